"""The benchmarks' binary problems: they equal slow and obvious ones, and their optima are what they say."""

from itertools import product

import numpy as np
import pytest
from binary_problems import LOTZ, BestOfTraps, TrapInverseTrap, TwoChains, ZeromaxOnemax
from hypothesis import given, settings
from hypothesis import strategies as st
from search import run_to_front

from pymoo_stitch.algorithms import LKGOMEA


def random_traps(seed, n_functions, n_var):
    """As (optimum, permutation) of each function."""
    rng = np.random.default_rng(seed)
    return [(rng.integers(2, size=n_var).tolist(), rng.permutation(n_var).tolist()) for _ in range(n_functions)]


def written(path, traps):
    lines = [str(len(traps))]
    for optimum, permutation in traps:
        lines += [f"{len(optimum)} 5", " ".join(map(str, optimum)), " ".join(map(str, permutation))]
    path.write_text("\n".join(lines) + "\n")
    return path


def best_of_traps(x, traps):
    """Slow and obvious: the larger, the better."""
    values = []
    for optimum, permutation in traps:
        value = 0
        for start in range(0, len(x), 5):
            right = 0
            for i in permutation[start : start + 5]:
                if bool(x[i]) == bool(optimum[i]):
                    right += 1
            value += 5 if right == 5 else 4 - right
        values.append(value)
    return max(values)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("traps")


@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.sampled_from([5, 10, 20]))
@settings(max_examples=50, deadline=None)
def test_best_of_traps_equals_a_slow_one(folder, seed, n_functions, n_var):
    traps = random_traps(seed, n_functions, n_var)
    problem = BestOfTraps(written(folder / "traps.txt", traps))
    assert (problem.n_var, problem.n_obj) == (n_var, 2)
    rng = np.random.default_rng(seed)
    x = rng.random((20, n_var)) < 0.5
    for row in x[:10]:  # blocks that are complete are rare by chance
        optimum, permutation = traps[rng.integers(n_functions)]
        right = permutation[: 5 * rng.integers(n_var // 5 + 1)]
        row[right] = np.array(optimum, dtype=bool)[right]
    f = problem.evaluate(x)
    assert f[:, 0].tolist() == [-best_of_traps(row, traps) for row in x]
    assert not f[:, 1].any()


def test_the_optima_of_best_of_traps_have_the_value_n_var_and_nothing_else_has(tmp_path):
    traps = random_traps(1, 3, 10)
    problem = BestOfTraps(written(tmp_path / "traps.txt", traps))
    x = np.array(list(product([False, True], repeat=10)))
    f = problem.evaluate(x)
    assert problem.pareto_front().tolist() == [[-10, 0]]
    assert f.min() == -10
    assert {tuple(row) for row in x[f[:, 0] == -10]} == {tuple(map(bool, optimum)) for optimum, _ in traps}


def test_more_than_the_said_number_of_functions_is_not_read(tmp_path):
    first, second = random_traps(1, 2, 10)
    path = written(tmp_path / "traps.txt", [first, second])
    path.write_text(path.read_text().replace("2", "1", 1))
    optimum = np.array([second[0]], dtype=bool)
    assert BestOfTraps(path).evaluate(optimum)[0, 0] == -best_of_traps(optimum[0], [first]) > -10


@pytest.mark.slow
def test_lk_gomea_reaches_an_optimum_of_best_of_traps(tmp_path):
    problem = BestOfTraps(written(tmp_path / "traps.txt", random_traps(3, 2, 20)))
    algorithm, needed = run_to_front(problem, LKGOMEA(pop_size=128), 5_000, seed=1)
    assert needed <= 5_000
    assert algorithm.archive.members[-1].F.tolist() == [-20, 0]


@pytest.mark.parametrize("problem", [ZeromaxOnemax(10), LOTZ(10), TrapInverseTrap(10, seed=7)])
def test_known_fronts_are_those_of_all_genotypes(problem):
    f = {tuple(row) for row in problem.evaluate(np.array(list(product([False, True], repeat=10))))}
    front = {a for a in f if not any(b != a and b[0] <= a[0] and b[1] <= a[1] for b in f)}
    assert front == {tuple(row) for row in problem.pareto_front()}


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=50, deadline=None)
def test_of_two_chains_only_what_is_active_matters(seed):
    rng = np.random.default_rng(seed)
    problem = TwoChains(6, seed=1)
    x, y = rng.random((2, problem.n_var)) < rng.random()
    active = problem.active(x)
    y[active] = x[active]
    assert (problem.active(y) == active).all()
    assert problem.key(x) == problem.key(y)
    assert problem.evaluate(x).tolist() == problem.evaluate(y).tolist()
    assert problem.cost(x) == problem.cost(y) == problem.evaluate(x)[0]
    key, mask, cost = problem.outline(x)
    assert (key, mask.tolist(), cost) == (problem.key(x), active.tolist(), problem.cost(x))
    slow_mask, slow_cost = walked(problem, x)
    assert mask.tolist() == slow_mask
    assert cost == pytest.approx(slow_cost, rel=1e-12)


def walked(problem, x):
    """The active mask and the cost of a genotype of two chains, along all its routes."""
    looked_at, layers, stitches = {2 * problem.depth, *([] if x[-2] else [2 * problem.depth + 1])}, set(), set()
    for route in problem.routes(x):
        for k, chain, used, stitched in route:
            looked_at.add(2 * k + chain)
            layers.add((k, used))
            stitches |= {2 * k + chain} if stitched else set()
    cost = sum(problem.layer_cost[k][used] for k, used in layers) + problem.stitch_cost * len(stitches)
    return [i in looked_at for i in range(problem.n_var)], cost
