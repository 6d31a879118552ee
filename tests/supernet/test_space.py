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
