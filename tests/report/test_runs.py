"""Runs as data: what a journal tells is what happened, and the measures are those of slower, obvious computations."""

import sqlite3

import numpy as np
import pytest
from binary_problems import LOTZ, TwoChains, ZeromaxOnemax
from hypothesis import given
from hypothesis import strategies as st
from pymoo.indicators.hv import HV
from pymoo.optimize import minimize

from pymoo_stitch import Evaluations, JournalError, Run
from pymoo_stitch.algorithms import ALGORITHMS, GOMEA, LKGOMEA, AsyncNSGA2, nsga2
from pymoo_stitch.evaluations import covered
from pymoo_stitch.report.runs import labels
from pymoo_stitch.util.fronts import dominates, front_of


def search(path, algorithm=None, seed=1, n=200, memo=(), problem=None):
    result = minimize(
        problem or ZeromaxOnemax(12),
        algorithm or GOMEA(pop_size=16),
        ("n_evals", n),
        seed=seed,
        evaluator=Evaluations(journal=path, memo=memo),
    )
    return result, Run.read(path)


def test_a_run_is_what_happened(tmp_path):
    result, run = search(tmp_path / "run.sqlite")
    assert len(run) == len(run.X) == len(run.F) == result.algorithm.evaluator.real
    assert run.X.dtype == bool
    assert (run.algorithm, run.seed, run.pop_size, run.budget, run.origin) == ("GOMEA", 1, 16, 200, None)
    assert run.active.all()
    found = {tuple(f) for f in run.F[run.front]}
    assert found == {tuple(f) for f in result.F}
    assert run.has_own_times
    assert (np.diff(run.elapsed()) >= 0).all()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_algorithms_are_told_by_their_names(name, tmp_path):
    _, run = search(tmp_path / "run.sqlite", ALGORITHMS[name](pop_size=16), n=40)
    assert run.algorithm == name


def test_predictions_are_told_beside_what_came_of_them(tmp_path):
    _, run = search(tmp_path / "run.sqlite", AsyncNSGA2(pop_size=16), problem=TwoChains(20, seed=1), n=150)
    noted = [i for i, row in enumerate(run.rows) if row.notes.get("predicted") is not None]
    assert np.flatnonzero(run.is_predicted).tolist() == noted
    assert run.screened == run.rows[-1].notes["screened"] > 0
    order = [np.argsort(np.argsort(values[noted])) for values in (run.predicted[:, 0], run.F[:, 1])]
    assert run.rank_correlation() == pytest.approx(np.corrcoef(order)[0, 1], abs=0.02)
    _, other = search(tmp_path / "other.sqlite")
    assert (other.rank_correlation(), other.screened, other.is_predicted.any()) == (None, 0, False)


def test_population_sizes_are_named_where_there_are_several(tmp_path):
    runs = [search(tmp_path / f"{n}.sqlite", LKGOMEA(pop_size=n), n=40)[1] for n in (8, 16)]
    runs.append(search(tmp_path / "nsga2.sqlite", nsga2(pop_size=16), n=40)[1])
    assert labels(runs) == ["LK-GOMEA, n = 8", "LK-GOMEA, n = 16", "NSGA-II"]
    assert labels(runs[1:]) == ["LK-GOMEA", "NSGA-II"]


def test_hypervolume_after_each_evaluation(tmp_path):
    class Shifted(LOTZ):
        def f(self, x):
            return 20 + super().f(x)

    _, run = search(tmp_path / "run.sqlite", problem=Shifted(12), n=120)
    ref_point = np.array([20.0, 18.0])  # some are beyond
    obvious = [HV(ref_point=ref_point)(run.F[: i + 1]) / ref_point.prod() for i in range(len(run))]
    assert run.hypervolume(ref_point) == pytest.approx(obvious)


def test_times_of_another_run_are_not_its_own(tmp_path):
    search(tmp_path / "first.sqlite", seed=1)
    with sqlite3.connect(tmp_path / "first.sqlite") as db:
        db.execute("update evaluations set begun = begun - 100, ended = ended - 100")
    db.close()
    for _ in range(2):
        result, run = search(tmp_path / "second.sqlite", seed=1, memo=[tmp_path / "first.sqlite"])
        assert not run.has_own_times
        assert result.algorithm.evaluator.seconds_before == 0  # it took no time of its own, nor when it was begun again
    search(tmp_path / "own.sqlite", seed=2)
    result, run = search(tmp_path / "own.sqlite", seed=2)
    assert result.algorithm.evaluator.seconds_before == run.elapsed()[-1] > 0


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 10)), min_size=1, max_size=8))
def test_covered_time_is_counted_once(intervals):
    intervals = [(begin, begin + length) for begin, length in intervals]
    seconds = {t for begin, end in intervals for t in range(begin, end)}
    obvious = np.maximum.accumulate([sum(t < end for t in seconds) for _, end in intervals])
    assert covered(intervals).tolist() == obvious.tolist()


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.booleans()), max_size=12))
def test_front_is_what_no_other_dominates(points):
    F, sound = (
        np.array([p[:2] for p in points], dtype=float).reshape(-1, 2),
        np.array([p[2] for p in points], dtype=bool),
    )
    front = front_of(F, sound)
    expected = {
        tuple(F[i]) for i in np.flatnonzero(sound) if not any(dominates(F[j], F[i]) for j in np.flatnonzero(sound))
    }
    assert {tuple(f) for f in F[front]} == expected
    assert len(front) == len(expected)
    assert all(i == min(j for j in np.flatnonzero(sound) if (F[j] == F[i]).all()) for i in front)
    assert F[front, 0].tolist() == sorted(F[front, 0])


def test_what_is_no_run(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no journal .*run\.sqlite"):
        Run.read(tmp_path / "run.sqlite")
    (tmp_path / "text").write_text("not a database at all, but long enough to be looked at" * 20)
    with pytest.raises(JournalError, match="text is not a journal, or is damaged"):
        Run.read(tmp_path / "text")
    search(tmp_path / "run.sqlite", n=20)
    with sqlite3.connect(tmp_path / "run.sqlite") as db:
        db.execute("delete from evaluations")
    db.close()
    with pytest.raises(JournalError, match="holds no evaluation yet"):
        Run.read(tmp_path / "run.sqlite")
