"""The chains of a pool as a pymoo problem: every genotype is a chain, every chain it can jump to has a genotype."""

import gc

import numpy as np
import pytest
import torch
from conftest import IMAGE, seeded
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pymoo.optimize import minimize
from torch import nn

from pymoo_stitch import (
    ChainSpace,
    ClassMap,
    Evaluations,
    NearestNeighbours,
    Network,
    Pool,
    StitchProblem,
    Task,
    compose,
    search_chains,
)
from pymoo_stitch.algorithms import LKGOMEA, ChainRepair, nsga2
from pymoo_stitch.fragments.fragment import follows
from pymoo_stitch.runners import DaskRunner

ANY = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def plain(seed, *widths):
    """A network without residuals, which can be cut before each layer."""

    def make():
        pairs = zip((IMAGE[0], *widths), widths, strict=False)
        layers = [part for pair in pairs for part in (nn.Conv2d(*pair, 3, padding=1), nn.ReLU())]
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], 5))

    return seeded(make, seed).eval()


@pytest.fixture(scope="module")
def pool():
    images = torch.rand(8, *IMAGE, generator=torch.Generator().manual_seed(2))
    networks = [
        Network.from_module(plain(seed, *widths), images[:1], name=f"net{seed}")
        for seed, widths in enumerate([(4, 6, 5), (3, 8), (5, 5, 5, 5)])
    ]
    return Pool(networks, images)


@pytest.fixture(scope="module", params=[(4, 16), (99, 5), (0, 6)], ids=str)
def space(pool, request):
    candidates, length = request.param
    return ChainSpace(pool, candidates=candidates, length=length)


def genotype(space, seed, density):
    return np.random.default_rng(seed).random(space.n_var) < density


@ANY
@given(seed=st.integers(0, 10**6), density=st.floats(0, 1))
def test_every_genotype_is_a_chain_and_inactive_variables_change_nothing(space, seed, density):
    x = genotype(space, seed, density)
    chain = space.subnetwork(x)
    assert chain.fragments[0].is_start
    assert chain.fragments[-1].is_end
    assert len(set(chain.fragments)) == len(chain.fragments) <= space.length
    assert np.array_equal(chain.active, space.subnetwork(x).active)
    for variable in range(space.n_var):
        flipped = x.copy()
        flipped[variable] ^= True
        assert (space.subnetwork(flipped).key == chain.key) == (not chain.active[variable])


@ANY
@given(seed=st.integers(0, 10**6), density=st.floats(0, 1))
def test_a_repaired_genotype_selects_the_same_chain_with_the_fewest_ones(space, seed, density):
    x = genotype(space, seed, density)
    repaired = space.repaired(x)
    chain = space.subnetwork(x)
    assert space.subnetwork(repaired).fragments == chain.fragments
    assert np.array_equal(space.repaired(repaired), repaired)
    starts_elsewhere = chain.fragments[0].network is not space.pool.networks[0]
    assert repaired.sum() <= chain.n_stitches + starts_elsewhere


def chains_of(pool, length):
    """All chains, by trying."""
    pending = [(f,) for f in pool.fragments if f.is_start]
    while pending:
        beginning = pending.pop()
        if beginning[-1].is_end:
            yield beginning
        elif len(beginning) < length:
            pending += [(*beginning, f) for f in pool.fragments if pool.joins(beginning[-1], f) and f not in beginning]


def test_with_all_candidates_every_chain_has_a_genotype(pool):
    space = ChainSpace(pool, candidates=99, length=5)
    chains = [pool.chain(fragments) for fragments in chains_of(pool, 4)]
    assert len(chains) > 100
    genotypes = {space.genotype(chain).tobytes() for chain in chains}
    assert len(genotypes) == len(chains)
    for chain in chains:
        assert space.subnetwork(space.genotype(chain)).key == chain.key


def test_zeros_are_the_first_network_and_references_the_others(pool):
    space = ChainSpace(pool)
    assert not space.references["net0"].any()
    for name, x in space.references.items():
        assert space.subnetwork(x).fragments == pool[name]


def test_networks_of_more_fragments_than_usual_are_chains_too():
    images = torch.rand(4, *IMAGE)
    long = Network.from_module(plain(0, *[3] * 20), images[:1], name="long")
    short = Network.from_module(plain(1, 4), images[:1], name="short")
    space = ChainSpace(Pool([long, short], images), candidates=1)
    assert space.length == len(space.pool["long"]) == 21
    assert space.subnetwork(space.references["long"]).fragments == space.pool["long"]


class Bottle(nn.Module):
    """An image, a vector, and an image again: from the vector no stitch leads to its own last fragment."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 2, 3, padding=1)
        self.down, self.up = nn.Linear(2 * IMAGE[1] * IMAGE[2], 8), nn.Linear(8, 3 * IMAGE[1] * IMAGE[2])
        self.third, self.fourth = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 5, 3, padding=1)

    def forward(self, x):
        x = self.second(self.first(x).relu()).relu().flatten(1)
        x = self.up(self.down(x).relu()).relu().view(-1, *IMAGE)
        return self.fourth(self.third(x).relu()).mean((2, 3))


@pytest.mark.parametrize("length", [None, 7])
def test_every_genotype_is_a_chain_where_not_every_end_can_be_joined(length):
    images = torch.rand(6, *IMAGE)
    modules = [seeded(Bottle), plain(1, 4, 4)]
    pool = Pool([Network.from_module(m, images[:1], name=f"net{i}") for i, m in enumerate(modules)], images)
    space = ChainSpace(pool, candidates=99, length=length)
    assert not pool.joins(pool["net0"][1], pool["net0"][-1])
    found = {space.subnetwork(genotype(space, seed, 0.02 * (seed % 30))).fragments for seed in range(600)}
    assert len(found) > 50
    assert all(fragments[-1].is_end for fragments in found)


def test_a_restitched_chain_has_no_genotype(pool):
    with pytest.raises(ValueError, match="no genotype selects"):
        ChainSpace(pool, include=[pool.self_stitched("net0")])


def test_jumps_lead_to_the_most_similar_inputs(pool):
    space = ChainSpace(pool, candidates=2)
    for fragment in pool.fragments:
        own = pool[fragment.network.name][: fragment.number + 1]
        others = [t for t in pool.fragments if pool.joins(fragment, t) and not follows(fragment, t)]
        best = sorted(-pool.similarity(own, t) for t in others)[:2]
        found = [-pool.similarity(own, target) for source, target in space.jumps if source == fragment]
        assert found == pytest.approx(best)


def test_chains_from_the_published_search_can_be_an_initial_population(pool, task):
    chains = [chain for chain, _ in search_chains(pool, k=3, threshold=0.0)]
    space = ChainSpace(pool, candidates=0, include=chains)
    problem = StitchProblem(space, task)
    keys = [chain.key for chain in chains]
    size = 2 * len(chains)
    for algorithm in (nsga2(pop_size=size, repair=ChainRepair()), LKGOMEA(pop_size=size)):
        algorithm.setup(problem, seed=1, termination=("n_evals", 200))
        found = [problem.key(x) for x in algorithm.ask().get("X").astype(bool)]
        assert set(keys) <= set(found)
    few = problem.sampling.do(problem, 4, random_state=np.random.default_rng(1)).get("X")
    assert [problem.key(x) for x in few[:2]] == [keys[0], keys[-1]]  # half, evenly spread
    with pytest.raises(ValueError, match=r"which no genotype does. Make the space with include"):
        ChainSpace(pool, candidates=0).genotype(next(chain for chain in chains if chain.n_stitches))


@pytest.fixture(scope="module")
def task():
    generator = torch.Generator().manual_seed(4)
    return Task(validation=(torch.rand(10, *IMAGE, generator=generator), torch.arange(10) % 5))


def test_it_is_searched_as_supernets_are(pool, task, tmp_path):
    problem = StitchProblem(ChainSpace(pool), task)
    names = [str(name) for name in problem.references().get("name")]
    assert names == ["net0", "net1", "net2"]
    journal = tmp_path / "run.sqlite"
    result = minimize(problem, LKGOMEA(pop_size=32), ("n_evals", 60), seed=1, evaluator=Evaluations(journal=journal))
    for x, (cost, error) in zip(result.X, result.F, strict=True):
        chain = problem.subnetwork(x)
        images, labels = task["validation"].source
        with torch.no_grad():
            assert (chain.module()(images).argmax(1) == labels).float().mean().item() == pytest.approx(1 - error)
        assert chain.cost == cost
    chain.export(tmp_path / "network.pt2")


def test_what_a_pool_forgets_the_engine_forgets(task):
    images = torch.rand(8, *IMAGE)
    networks = [Network.from_module(plain(seed, 4, 5), images[:1], name=f"net{seed}") for seed in range(2)]
    problem = StitchProblem(ChainSpace(Pool(networks, images, memory=0)), task)
    problem.evaluate(np.array([genotype(problem.space, seed, 0.3) for seed in range(20)]))
    gc.collect()
    assert not problem.engine._stitches
    assert not problem.space.pool.beginnings._stitches


@pytest.mark.slow
def test_a_cluster_fits_the_same_stitches(pool, task):
    problem = StitchProblem(ChainSpace(pool), task)
    X = np.array([genotype(problem.space, seed, 0.2) for seed in range(12)])
    with DaskRunner(n_workers=2) as runner:
        there = Evaluations(runner=runner).eval(problem, population(X)).get("F")
    assert np.array_equal(there, problem.evaluate(X, return_as_dictionary=True)["F"])


def population(X):
    from pymoo.core.population import Population

    return Population.new("X", X)


def test_networks_and_predictions_for_unlabelled_images_in_one_call(pool):
    found = compose(pool.networks, pool.images, count=5, k=3, threshold=0.0, head=ClassMap([0, [1, 2], 4]))
    assert len(found) == 5
    assert all(c.chain.n_stitches for c in found)
    assert len({c.chain.fragments[0] for c in found}) == 3
    assert [c.score for c in found] == sorted((c.score for c in found), reverse=True)
    for composed in found:
        with torch.no_grad():
            expected = ClassMap([0, [1, 2], 4])(composed.chain.module()(pool.images))
        torch.testing.assert_close(composed.outputs, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda pool: ChainSpace(pool, candidates=-1), "at least 0, but is -1"),
        (lambda pool: ChainSpace(pool, length=4), "length is 4, but a network of the pool, .* has 5 fragments"),
        (lambda pool: ChainSpace(pool).subnetwork(np.zeros(3)), "variables, but one of shape"),
        (lambda pool: compose(pool.networks, pool.images, count=0), "count, the number of networks"),
        (lambda pool: compose(pool.networks, pool.images[:2]), "CKA needs 4 images"),
        (lambda pool: list(search_chains(pool, threshold=np.nan)), "threshold is a score"),
    ],
)
def test_bad_input_is_named(pool, call, message):
    with pytest.raises(ValueError, match=message):
        call(pool)


def test_what_is_no_chain_or_module_is_named(pool):
    with pytest.raises(TypeError, match="take the first of each pair"):
        ChainSpace(pool, include=search_chains(pool))
    with pytest.raises(TypeError, match="a head is a module, such as a ClassMap"):
        compose(pool.networks, pool.images, head=NearestNeighbours())


def test_a_chain_of_another_pool_cannot_be_included(pool):
    other = Pool(pool.networks[:1], pool.images)
    chain = pool.chain([pool["net1"][0], pool["net0"][-1]])
    with pytest.raises(ValueError, match="another pool"):
        ChainSpace(other, include=[chain])
