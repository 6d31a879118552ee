"""What is screened: new keys only, by exact cost and predicted error; and a journal answers instead of the model."""

import os
import shutil
import sqlite3
import subprocess
import sys

import numpy as np
import pytest
from binary_problems import TrapInverseTrap, TwoChains
from conftest import TESTS
from hypothesis import given, settings
from hypothesis import strategies as st
from journaled_run import Chains, search
from pymoo.indicators.hv import Hypervolume
from pymoo.optimize import minimize
from pymoo.util.nds.non_dominated_sorting import NonDominatedSorting

from pymoo_stitch import Evaluations, Run
from pymoo_stitch.algorithms import GOMEA, LKGOMEA, AsyncGA, AsyncNSGA2, Threshold
from pymoo_stitch.algorithms.archive import hypervolume_gains
from pymoo_stitch.algorithms.async_nsga2 import CHILDREN, DETOURS, crowding_distances, ranks
from pymoo_stitch.algorithms.model import LEAST, ErrorModel
from pymoo_stitch.algorithms.scalarization import largest_error, tschebysheff
from pymoo_stitch.algorithms.screen import Outlines, Screen
from pymoo_stitch.runners import SimulatedRunner

SCREENED = ["AsyncNSGA2", "AsyncGA", "LK-GOMEA"]


def rows(path):
    return [(row.request, row.x.tobytes(), row.result["F"].tolist(), row.notes) for row in Run.read(path).rows]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The journal of a run of each algorithm."""
    folder = tmp_path_factory.mktemp("whole")
    for name in SCREENED:
        search(name, folder / name, 130)
    return folder


def cut(journal, path, n):
    """A copy of a journal with its first n rows."""
    shutil.copy(journal, path)
    with sqlite3.connect(path) as db:
        db.execute("DELETE FROM evaluations WHERE sequence >= ?", (n,))
    db.close()
    return path


@pytest.mark.parametrize("name", SCREENED)
def test_while_a_journal_answers_no_model_is_asked(whole, tmp_path, monkeypatch, name):
    fits = []
    solve = ErrorModel._solve
    monkeypatch.setattr(ErrorModel, "_solve", lambda self, *given: fits.append(len(self)) or solve(self, *given))
    path = cut(whole / name, tmp_path / "journal", 110)
    search(name, path, 111)
    known = sum(not row.result["failed"] for row in Run.read(whole / name).rows[:110])
    assert len(fits) <= 2  # the choice of length and slope, and the fit, when all had been replayed
    assert all(n >= known for n in fits)
    found, expected = rows(path), rows(whole / name)[:111]
    assert found[:110] == expected[:110]
    # What is noted beside the last one depends on the budget: nothing more is proposed when there is no room for it.
    assert found[110][:3] == expected[110][:3]


@pytest.mark.parametrize("name", SCREENED)
def test_a_machine_whose_model_says_something_else_goes_on_all_the_same(whole, tmp_path, monkeypatch, name):
    for name_of in ("mean", "predict"):
        says = getattr(ErrorModel, name_of)
        turned = lambda self, *new, says=says: (1 - says(self, *new)[0], says(self, *new)[1])  # noqa: E731
        monkeypatch.setattr(ErrorModel, name_of, turned)
    path = cut(whole / name, tmp_path / "journal", 100)
    search(name, path, 130)
    assert rows(path)[:100] == rows(whole / name)[:100]
    assert len(rows(path)) == 130


@pytest.mark.parametrize("name", ["AsyncNSGA2", pytest.param("LK-GOMEA", marks=pytest.mark.slow)])
def test_another_number_of_threads_changes_nothing(whole, tmp_path, name):
    path = cut(whole / name, tmp_path / "journal", 77)
    threads = {"OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"}
    paths = os.pathsep.join([str(TESTS), str(TESTS.parent / "benchmarks")])
    subprocess.run(
        [sys.executable, TESTS / "journaled_run.py", name, path, "130"],
        env=os.environ | threads | {"PYTHONPATH": paths},
        check=True,
        capture_output=True,
    )
    assert rows(path) == rows(whole / name)


@pytest.mark.filterwarnings("ignore:nothing new is left to propose")
@pytest.mark.parametrize("seed", [1, 2])
def test_a_run_that_uses_up_the_space_goes_on_from_anywhere(tmp_path, seed):
    """Near the end most proposals find nothing new: the decisions in the journal are those of later ones."""
    small = {"budget": 400, "problem": Chains(depth=4), "seed": seed}
    search("AsyncNSGA2", tmp_path / "whole", **small)
    expected = rows(tmp_path / "whole")
    assert len(expected) < 400
    for n in (60, 90, 100, 108):
        path = cut(tmp_path / "whole", tmp_path / f"journal {n}", n)
        search("AsyncNSGA2", path, **small)
        assert rows(path) == expected


@pytest.mark.parametrize("name", SCREENED)
def test_rows_tell_what_was_predicted(whole, name):
    run = Run.read(whole / name)
    predicted = [row for row in run.rows if "predicted" in row.notes]
    assert len(predicted) > 40
    errors = [(row.notes["predicted"], row.result["F"][1]) for row in predicted if not row.result["failed"]]
    assert np.corrcoef(np.array(errors).T)[0, 1] > 0.3
    assert all(row.notes["spread"] > 0 for row in predicted)
    counts = [row.notes["screened"] for row in run.rows]
    assert counts == sorted(counts)
    assert counts[-1] > counts[LEAST] >= 0


def test_no_key_is_proposed_twice():
    problem = Chains(depth=20)
    algorithm = minimize(problem, AsyncNSGA2(), ("n_evals", 200), seed=1).algorithm
    assert algorithm.evaluator.skipped == 0
    assert len(set(problem.evaluated)) == len(problem.evaluated)
    assert algorithm.screened > 0
    without = minimize(problem, AsyncNSGA2(screen=None), ("n_evals", 200), seed=1).algorithm
    assert (without.evaluator.skipped, without.screened) == (0, 0)


def test_a_detour_flips_an_active_variable_and_one_that_becomes_active_by_that():
    problem = TwoChains(20, seed=1)
    algorithm = minimize(problem, AsyncNSGA2(), ("n_evals", 100), seed=1).algorithm
    parents = np.array([member.X for member in algorithm._members])
    for drawn in np.random.default_rng(0).random((200, 4)):
        x = algorithm._detour(drawn)
        ways = []
        for parent in parents:
            flipped = np.flatnonzero(x != parent)
            for first in flipped:
                between = parent.copy()
                between[first] ^= True
                becomes_active = problem.active(between) & ~problem.active(parent)
                rest = flipped[flipped != first]
                one = len(rest) == min(1, becomes_active.sum())
                ways.append(problem.active(parent)[first] and one and becomes_active[rest].all())
        assert any(ways)


def test_detours_are_proposed(tmp_path):
    evaluator = Evaluations(journal=tmp_path / "run.sqlite")
    minimize(TwoChains(20, seed=1), AsyncNSGA2(), ("n_evals", 200), seed=1, evaluator=evaluator)
    places = [place for row in Run.read(tmp_path / "run.sqlite").rows for place, *_ in row.notes["taken"]]
    assert any(CHILDREN - DETOURS <= place < CHILDREN for place in places)
    assert any(place < CHILDREN - DETOURS for place in places)


@pytest.mark.parametrize("make", [AsyncGA, LKGOMEA])
def test_screened_loops_seldom_ask_for_what_is_known(make):
    evaluator = minimize(TwoChains(20, seed=1), make(), ("n_evals", 300), seed=1).algorithm.evaluator
    assert evaluator.real == 300
    assert evaluator.skipped < evaluator.real


@pytest.mark.parametrize("make", [AsyncNSGA2, AsyncGA, GOMEA])
def test_problems_that_do_not_tell_the_cost_are_searched_without_a_model(make):
    def found(**options):
        result = minimize(TrapInverseTrap(20, seed=7), make(pop_size=16, **options), ("n_evals", 150), seed=1)
        return [x.tolist() for x in result.archive.get("X")], result.algorithm.screened

    assert found() == found(screen=None)
    assert found()[1] == 0


def test_pending_follows_from_the_workers_and_stays_as_it_was(tmp_path):
    def run(n_workers, budget):
        algorithm = AsyncNSGA2(runner=SimulatedRunner(n_workers))
        evaluations = Evaluations(journal=tmp_path / "journal")
        return minimize(TwoChains(10, seed=1), algorithm, ("n_evals", budget), seed=1, evaluator=evaluations).algorithm

    assert run(70, 40).n_pending == 105
    assert run(3, 40).n_pending == 105
    assert AsyncNSGA2().setup(TwoChains(10, seed=1), termination=("n_evals", 10)).n_pending == 64


class Asked(Chains):
    """Notes what is needed of each genotype when its evaluation begins."""

    def __init__(self):
        super().__init__()
        self.needed = []

    def _evaluate(self, X, out, *args, needed=None, **kwargs):
        super()._evaluate(X, out, *args, needed=needed, **kwargs)
        self.needed += [None] * len(X) if needed is None else needed


def test_what_is_needed_follows_from_all_that_was_known_when_the_evaluation_began(tmp_path):
    problem = Asked()
    evaluator = Evaluations(journal=tmp_path / "journal")
    algorithm = AsyncNSGA2(pop_size=16, n_pending=16)  # all but one of which wait
    minimize(problem, algorithm, ("n_evals", 150), seed=1, evaluator=evaluator)
    run = Run.read(tmp_path / "journal")
    known = ~run.is_bounded & np.array([not row.result["failed"] for row in run.rows])
    assert problem.needed[:16] == [None] * 16
    for i in range(16, 150):
        cheaper = np.flatnonzero(known[:i] & (run.F[:i, 0] <= problem.cost(run.X[i])))
        expected = run.F[cheaper, 1].min() if len(cheaper) else None
        assert problem.needed[i] == (None if expected is None else pytest.approx(expected))


@pytest.mark.parametrize("make", [AsyncNSGA2, AsyncGA, LKGOMEA])
def test_what_is_not_to_stop_is_evaluated_in_full(make):
    def asked(evaluator=None, **options):
        problem = Asked()
        algorithm = make(pop_size=8, n_pending=8, **options, **({"evaluator": evaluator} if evaluator else {}))
        minimize(problem, algorithm, ("n_evals", 80), seed=1, copy_algorithm=False)
        return [needed for needed in problem.needed if needed is not None], algorithm

    assert asked()[0]
    for found, algorithm in (asked(early_stopping=False), asked(Evaluations(count_skipped=True))):
        assert found == []
        assert algorithm.evaluator.bounded == 0


numbers = st.floats(0.01, 1).map(lambda value: round(value, 3))


@given(numbers, st.tuples(numbers, numbers), numbers, st.tuples(numbers, numbers), st.lists(numbers, min_size=9))
def test_the_largest_error_that_is_accepted_is_where_a_solution_becomes_worse(cost, f, weight, ideal, errors):
    f, weights, ideal = np.array(f), np.array([weight, 1 - weight]), np.array(ideal)
    worst = ideal + 0.7
    largest = largest_error(cost, f, weights, ideal, worst)
    for error in errors:
        if abs(error - largest) > 1e-9:  # there rounding decides
            given = np.array([cost, error])
            is_accepted = tschebysheff(given, weights, ideal, worst) <= tschebysheff(f, weights, ideal, worst) + 1e-12
            assert is_accepted == (error < largest)


solutions = st.lists(st.tuples(*[st.integers(0, 6)] * 2), min_size=1, max_size=30).map(lambda f: np.array(f, float))


@given(solutions, st.randoms())
@settings(max_examples=50, deadline=None)
def test_ranks_are_those_of_non_dominated_sorting_and_what_is_not_tolerated_follows(f, random):
    excess = np.array([random.choice([0.0, 0.0, 0.1, 0.2]) for _ in f])
    found = ranks(f, excess)
    tolerated = np.flatnonzero(excess == 0)
    fronts = NonDominatedSorting().do(f[tolerated]) if len(tolerated) else []
    for number, front in enumerate(fronts):
        assert (found[tolerated[front]] == number).all()
    for a in range(len(f)):
        for b in range(len(f)):
            if excess[a] < excess[b]:
                assert found[a] < found[b]
            if excess[a] == excess[b] > 0:
                assert found[a] == found[b]


@given(solutions)
@settings(max_examples=50, deadline=None)
def test_crowding_is_that_of_a_slow_one(f):
    rank = ranks(f, np.zeros(len(f)))
    found = crowding_distances(f, rank)
    extent = np.where(np.ptp(f, axis=0) > 0, np.ptp(f, axis=0), 1)
    for i, own in enumerate(f):
        before = [j for j in range(i) if rank[j] == rank[i] and (f[j] == own).all()]
        others = {tuple(other) for other, r in zip(f, rank, strict=True) if r == rank[i]} - {tuple(own)}
        expected = 0.0
        for k in range(2):
            below = [other[k] for other in others if other[k] < own[k]]
            above = [other[k] for other in others if other[k] > own[k]]
            expected += (min(above) - max(below)) / extent[k] if below and above else np.inf
        assert found[i] == (0 if before else pytest.approx(expected))


@given(solutions, solutions)
@settings(max_examples=100, deadline=None)
def test_gains_are_differences_of_hypervolumes(f, others):
    front = np.unique(others[ranks(others, np.zeros(len(others))) == 0], axis=0)
    ref_point = np.array([6.5, 5.5])
    indicator = Hypervolume(ref_point=ref_point)
    found = hypervolume_gains(f, front, ref_point)
    for solution, gain in zip(f, found, strict=True):
        expected = indicator.do(np.vstack([front, solution])) - indicator.do(front)
        assert max(gain, 0) == pytest.approx(expected, abs=1e-9)
        if gain <= 0:
            is_beyond = solution[0] >= ref_point[0]
            assert is_beyond or solution[1] >= ref_point[1] or (front <= solution).all(1).any()
            assert (gain == -np.inf) == is_beyond


def test_candidates_are_weighed_by_what_they_add_in_expectation():
    """One whose mean adds nothing, but that would close a wide gap if it were better, comes before one that is sure to
    add little; the expectation is the mean of differences of hypervolumes."""
    ref_point = np.array([6.0, 0.9])
    algorithm = AsyncNSGA2().setup(TwoChains(6, seed=0), termination=("n_evals", 100), seed=1)
    algorithm._ref_point = ref_point
    front, algorithm._worst = np.array([[1.0, 0.5], [5.0, 0.4], [5.1, 0.3]]), np.array([7.0, 1.0])
    algorithm.archive.front_f = lambda slack: front
    costs, errors = np.array([2.0, 5.0, 5.5]), np.array([[0.4, 0.5, 0.6], [0.39, 0.39, 0.39], [0.5, 0.6, 0.7]])
    indicator = Hypervolume(ref_point=ref_point)
    gains = [
        np.mean([indicator.do(np.vstack([front, [cost, error]])) - indicator.do(front) for error in row])
        for cost, row in zip(costs, errors, strict=True)
    ]
    found = algorithm._gain(costs, errors)
    np.testing.assert_allclose(found[:2], gains[:2])
    assert found[0] > found[1] > 0 > found[2] == pytest.approx(-0.2)


@pytest.mark.parametrize(
    ("threshold", "ref_point", "error"),
    [(None, [9.0, 9.0], 0.9), (0.5, [9.0, 9.0], 0.5), (0.5, [9.0, 0.2], 0.2)],
)
def test_nothing_is_gained_where_nobody_looks(threshold, ref_point, error):
    """Neither below the threshold, nor beyond the hypervolume's reference point, nor beyond all that was seen."""
    chosen = None if threshold is None else Threshold(final=threshold, until=0)
    algorithm = AsyncNSGA2(threshold=chosen).setup(TwoChains(6, seed=0), termination=("n_evals", 100), seed=1)
    algorithm._ref_point = np.array(ref_point)
    algorithm._worst = np.array([6.0, 0.9])
    gains = algorithm._gain(np.array([1.0, 1.0, 7.0]), np.array([[error - 0.01], [error + 0.01], [0.1]]))
    assert gains[0] == pytest.approx(5 * 0.01)
    assert gains[1] <= 0
    assert gains[2] == -np.inf


def test_an_estimate_teaches_less_than_an_error():
    problem = TwoChains(12, seed=3)
    x = np.random.default_rng(3).random((60, problem.n_var)) < 0.2
    active = np.array([problem.active(row) for row in x])
    screens = [Screen(problem, Outlines(problem)) for _ in range(2)]
    for screen, bounded in zip(screens, (False, True), strict=True):
        for row, (_, error) in zip(x, problem.f(x), strict=True):
            screen.learn(row, error, bounded)
    (_, surely), (_, hardly) = (screen.model.predict(x, active) for screen in screens)
    assert np.median(hardly / surely) > 1.5


@pytest.fixture
def taught():
    """A screen that has learned from 80 evaluations of a synthetic space, and genotypes that it has not seen."""
    problem = TwoChains(12, seed=3)
    screen = Screen(problem, Outlines(problem))
    x = np.random.default_rng(3).random((120, problem.n_var)) < 0.2
    for row, (_, error) in zip(x[:80], problem.f(x[:80]), strict=True):
        screen.learn(row, error)
    return screen, list(x[80:90])


def test_the_best_of_some_candidates_is_taken_if_it_can_matter_and_a_journal_says_so_again(taught):
    screen, candidates = taught

    def score(costs, errors):
        return -costs - errors.mean(1)

    def refuse(place, error):
        return False

    def forgive(place, error):
        return True

    active = np.array([screen._outlines(x).active for x in candidates])
    costs = np.array([screen._outlines(x).cost for x in candidates])
    best = int(np.argmax(score(costs, screen.model.quantiles(np.array(candidates), active))))
    assert best > 0
    assert screen.admit(candidates, False, score, refuse) is None
    assert screen.screened == 10
    place, prediction = screen.admit(candidates, False, score, forgive)
    assert place == best
    first = screen.notes(0)
    assert first == {"screened": 19, "taken": [[10 + best, *prediction]]}
    assert screen.admit(candidates, True, score, refuse)[0] == 0  # whatever the model says
    again = Screen(screen._outlines._problem, screen._outlines)
    again.remember([first, screen.notes(1)])  # knows nothing but the journal's rows
    assert again.admit(candidates, False, score, forgive) is None
    assert again.admit(candidates, False, score, refuse) == (best, prediction)
    assert again.admit(candidates, False, score, refuse)[0] == 0
    assert again.screened == screen.screened == 28


def test_what_is_new_comes_first():
    class Noting(AsyncGA):
        """Notes what is proposed, and whether it is new."""

        def _propose(self, x, *args, **attributes):
            asked.append(self._outlines.is_new(x))
            super()._propose(x, *args, **attributes)

    asked = []
    minimize(TwoChains(30, seed=2), Noting(), ("n_evals", 150), seed=1)
    assert np.mean(asked[50:100]) > 0.8


def test_options_are_checked():
    with pytest.raises(ValueError, match="screen must be 'auto' or None, but is 3"):
        AsyncNSGA2(screen=3)
