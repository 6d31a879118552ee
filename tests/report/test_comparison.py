"""Comparing algorithms: every run is there, none is computed twice, and statistics are those of textbooks."""

import itertools
import time

import numpy as np
import pytest
from binary_problems import LOTZ
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import rankdata

from pymoo_stitch import Comparison, Run, compare
from pymoo_stitch.algorithms import GOMEA, LKGOMEA, AsyncGA, nsga2
from pymoo_stitch.evaluations import RunTime
from pymoo_stitch.report.comparison import _p_value
from pymoo_stitch.util.statistics import holm

ALGORITHMS = {"GOMEA": lambda: GOMEA(pop_size=16), "NSGA-II": lambda: nsga2(pop_size=16)}
REF_POINT = np.array([1.0, 1.0])


class Shifted(LOTZ):
    """With objectives in [0, 1]."""

    def f(self, x):
        return 1 + super().f(x) / self.n_var


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return compare(Shifted(20), ALGORITHMS, ("n_evals", 160), seeds=range(3), folder=tmp_path_factory.mktemp("compare"))


def test_one_run_for_each_algorithm_and_seed(runs):
    expected = [(name, seed) for seed in range(3) for name in ALGORITHMS]
    assert [(run.algorithm, run.seed) for run in runs] == expected
    assert all(len(run) >= 160 for run in runs)
    assert all(len(run) == 160 for run in runs if run.algorithm == "GOMEA")
    assert runs[0].path.name == "gomea-seed0.sqlite"


def test_called_again_nothing_is_evaluated(runs):
    class Dead(Shifted):
        def f(self, x):
            raise AssertionError

    Dead.__qualname__ = Shifted.__qualname__
    again = compare(Dead(20), ALGORITHMS, ("n_evals", 160), seeds=range(3), folder=runs[0].path.parent)
    assert all((a.F == b.F).all() for a, b in zip(runs, again, strict=True))


def test_runs_share_what_they_know(tmp_path):
    counted = []

    class Counting(Shifted):
        def f(self, x):
            counted.extend(row.tobytes() for row in x)
            return super().f(x)

    found = compare(Counting(10), ALGORITHMS, ("n_evals", 300), seeds=[1, 2], folder=tmp_path)
    assert sum(map(len, found)) > len(counted) == len(set(counted))


def test_the_table_shows_every_seed_and_every_loss(runs):
    comparison = Comparison(runs, REF_POINT)
    text = str(comparison)
    for values in comparison.hypervolumes.values():
        for value in values.values():
            assert f"{value:.4f}" in text
    (difference,) = comparison.differences
    values = comparison.hypervolumes
    lost = tuple(seed for seed in range(3) if values["GOMEA"][seed] < values["NSGA-II"][seed])
    assert difference.losses == lost
    assert "worse for seeds\n" in text
    assert text.rstrip().endswith(", ".join(map(str, lost)) or "none")


def test_runs_are_compared_after_equally_many_evaluations(runs):
    comparison = Comparison(runs, REF_POINT)
    assert comparison.evaluations == 160 < max(map(len, runs))
    assert "hypervolume after 160" in str(comparison)
    for run in runs:
        assert comparison.hypervolumes[run.algorithm][run.seed] == run.hypervolume(REF_POINT)[159]


def test_another_budget_is_another_comparison(runs):
    with pytest.raises(ValueError, match="was planned for 160 evaluations, and 200 are asked for"):
        compare(Shifted(20), ALGORITHMS, ("n_evals", 200), seeds=[0], folder=runs[0].path.parent)


def test_time_is_that_of_the_whole_run(tmp_path):
    class Slow(Shifted):
        def f(self, x):
            time.sleep(0.02 * len(x))
            return super().f(x)

    for _ in range(2):  # the second time, nothing is left
        runs = compare(Slow(30), {"GA": lambda: AsyncGA(pop_size=8)}, RunTime(1), seeds=[1, 2], folder=tmp_path)
        assert all(0.9 < run.elapsed()[-1] < 1.5 for run in runs[:1])
        assert all(10 < len(run) < 55 for run in runs[:1])


def test_what_was_cut_before_it_began_is_no_obstacle(tmp_path):
    (tmp_path / "gomea-seed2.sqlite").touch()
    runs = compare(Shifted(10), {"GOMEA": lambda: GOMEA(pop_size=8)}, ("n_evals", 20), seeds=[1, 2], folder=tmp_path)
    assert [len(run) for run in runs] == [20, 20]


def test_one_run_has_no_statistics(runs):
    comparison = Comparison(runs[:1], REF_POINT)
    assert comparison.differences == []
    assert "Mann" not in str(comparison)
    assert "median" not in str(comparison)


def test_a_run_twice_is_refused(runs):
    with pytest.raises(ValueError, match="GOMEA with seed 0 is there several times"):
        Comparison([*runs, Run.read(runs[0].path)], REF_POINT)


def test_nothing_to_compare(tmp_path):
    with pytest.raises(ValueError, match="at least one algorithm and one seed"):
        compare(Shifted(10), {}, ("n_evals", 10), seeds=[1], folder=tmp_path)
    with pytest.raises(ValueError, match="at least one algorithm and one seed"):
        compare(Shifted(10), ALGORITHMS, ("n_evals", 10), seeds=[], folder=tmp_path)


def test_ctrl_c_ends_all(tmp_path):
    class Interrupting(Shifted):
        calls = 0

        def f(self, x):
            Interrupting.calls += 1
            if Interrupting.calls == 30:
                raise KeyboardInterrupt
            return super().f(x)

    with pytest.warns(RuntimeWarning, match="interrupted"), pytest.raises(KeyboardInterrupt):
        compare(
            Interrupting(20),
            {"LK-GOMEA": lambda: LKGOMEA(pop_size=16)},
            ("n_evals", 100),
            seeds=[1, 2],
            folder=tmp_path,
        )
    assert [path.name for path in tmp_path.glob("*.sqlite")] == ["lk-gomea-seed1.sqlite"]
    runs = compare(
        Interrupting(20), {"LK-GOMEA": lambda: LKGOMEA(pop_size=16)}, ("n_evals", 100), seeds=[1, 2], folder=tmp_path
    )
    assert [len(run) for run in runs] == [100, 100]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_holm(p_values):
    corrected = holm(p_values)
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    for rank, i in enumerate(order):
        expected = max(min(1.0, (len(p_values) - k) * p_values[order[k]]) for k in range(rank + 1))
        assert corrected[i] == pytest.approx(expected)


@given(st.lists(st.integers(0, 50), min_size=3, max_size=5, unique=True), st.data())
def test_mann_whitney_is_the_exact_permutation_test(a, data):
    b = data.draw(
        st.lists(
            st.integers(51, 90) | st.integers(0, 50).filter(lambda v: v not in a), min_size=3, max_size=5, unique=True
        )
    )
    ranks = rankdata(a + b)
    middle = len(a) * (len(a) + len(b) + 1) / 2
    seen = abs(ranks[: len(a)].sum() - middle)
    sums = [sum(chosen) for chosen in itertools.combinations(ranks, len(a))]
    assert _p_value(a, b) == pytest.approx(np.mean([abs(s - middle) >= seen - 1e-9 for s in sums]))


def test_equal_values_are_no_difference():
    assert _p_value([0.5, 0.5], [0.5, 0.5]) == 1.0
