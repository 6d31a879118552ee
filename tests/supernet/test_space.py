"""Spaces: one base class, whose defaults follow from what genotypes select."""

import numpy as np
import pytest

from pymoo_stitch import ChainSpace, Pool, Space, Supernet


class Reversed(Space):
    """A supernet whose genotypes are read from the end: of all that a space offers, the least that it must."""

    def __init__(self, supernet):
        self.supernet, self.n_var = supernet, supernet.n_var

    def subnetwork(self, x):
        return self.supernet.subnetwork(np.asarray(x)[::-1])


def genotypes(space, count=20):
    return np.random.default_rng(0).random((count, space.n_var)) < 0.3


def test_a_space_needs_no_more_than_n_var_and_subnetwork(pair):
    space = Reversed(pair)
    assert (space.n_choices, space.first, space.codes) == (0, None, None)
    assert space.references.keys() == {"zeros"}
    assert not space.references["zeros"].any()
    assert space.basis is pair
    for name in ("networks", "input_shape", "max_cost", "is_fitted"):
        assert getattr(space, name) == getattr(pair, name)
    assert space.digest() == "Reversed"
    assert space.density == pair.density == min(0.5, 6.18 / pair.n_var)
    for x in genotypes(space):
        assert space.outline(x).key == pair.subnetwork(x[::-1]).key
    with pytest.raises(TypeError, match="abstract"):
        Space()


def test_an_outline_is_what_the_subnetwork_says(supernet):
    for x in genotypes(supernet):
        key, active, cost = supernet.outline(x)
        subnetwork = supernet.subnetwork(x)
        assert (key, cost) == (subnetwork.key, subnetwork.cost)
        assert (active == subnetwork.active).all()
        assert (supernet.active(x) == active).all()
        assert subnetwork.space is supernet.basis is supernet


def test_subnetworks_of_every_space_belong_to_one(pair, residual, gated, images):
    pool = Pool([residual, gated], images.repeat(2, 1, 1, 1))
    for space in (pair, Reversed(pair), ChainSpace(pool)):
        for x in genotypes(space, 5):
            found = space.subnetwork(x).space
            assert isinstance(found, Space)
            assert found is space.basis
            assert len(space.active(x)) == space.n_var
    assert isinstance(pair, Supernet)


def test_one_stitch_lists_every_subnetwork_with_one_stitch_once(supernet):
    found = {supernet.subnetwork(x).key for x in supernet.one_stitch()}
    assert len(found) == len(supernet.one_stitch())
    # The slow way: every link with every combination of the output's variables, and others that happen to have one
    # stitch.
    expected = set()
    for i in range(len(supernet.links)):
        for bits in range(2**supernet.n_choices):
            x = np.zeros(supernet.n_var, dtype=bool)
            x[i] = True
            x[len(supernet.links) :] = [bits >> n & 1 for n in range(supernet.n_choices)]
            expected.add(supernet.subnetwork(x))
    expected |= {supernet.subnetwork(x) for x in genotypes(supernet, 300)}
    assert found == {subnetwork.key for subnetwork in expected if subnetwork.n_stitches == 1}


def test_one_stitch_of_two_networks_is_two_for_each_link(pair):
    """A link matters where its target's network is the output, or the ensemble is."""
    assert len(pair.one_stitch()) == 2 * len(pair.links)


def test_one_stitch_of_other_spaces(pair, residual, gated, images):
    assert {Reversed(pair).subnetwork(x).n_stitches for x in Reversed(pair).one_stitch()} == {1}
    space = ChainSpace(Pool([residual, gated], images.repeat(2, 1, 1, 1)))
    chains = [space.subnetwork(x) for x in space.one_stitch()]
    assert chains
    assert {chain.n_stitches for chain in chains} == {1}
    assert len({chain.key for chain in chains}) == len(chains)
