"""The service between algorithms and what evaluates: each key once, honest counters, copies that go their own way."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pymoo.core.individual import Individual
from pymoo.core.population import Population
from pymoo.core.problem import Problem
from pymoo.optimize import minimize

from pymoo_stitch import Evaluations
from pymoo_stitch.algorithms import GOMEA, nsga2
from pymoo_stitch.evaluations import differences
from pymoo_stitch.runners import SerialRunner, SimulatedRunner


class Halves(Problem):
    """Only the first half of the variables matters, and the key says so."""

    def __init__(self, n_var=8, keys=True, bad=lambda x: False):
        super().__init__(n_var=n_var, n_obj=2, vtype=bool)
        self.evaluated, self.bad = [], bad
        if keys:
            self.key = self._half

    def _half(self, x):
        return x[: self.n_var // 2].tobytes()

    def _evaluate(self, X, out, *args, **kwargs):
        self.evaluated += [x.copy() for x in X]
        ones = X[:, : self.n_var // 2].sum(1)
        out["F"] = np.column_stack([ones, -ones]).astype(float)
        out["F"][[self.bad(x) for x in X]] = np.nan
        out["note"] = np.arange(len(X))

    def __deepcopy__(self, memo):
        return self


def individuals(rows):
    return Population.new("X", np.array(rows, dtype=bool))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.integers(0, 15), min_size=1, max_size=20), min_size=1, max_size=6), st.booleans())
def test_each_key_is_evaluated_once_and_the_memo_changes_no_result(batches, keys):
    problem, evaluations = Halves(4, keys), Evaluations()
    seen = set()
    for batch in batches:
        rows = [[number >> bit & 1 for bit in range(4)] for number in batch]
        pop = evaluations.eval(problem, individuals(rows))
        seen |= {tuple(row[:2] if keys else row) for row in rows}
        np.testing.assert_array_equal(pop.get("F"), Halves(4).evaluate(np.array(rows, dtype=bool)))
        assert all({"F", "G", "H"} <= individual.evaluated for individual in pop)
    assert evaluations.real == evaluations.n_eval == len(problem.evaluated) == len(seen)
    assert evaluations.requested == evaluations.real + evaluations.skipped == sum(map(len, batches))


def test_what_is_in_flight_is_shared():
    problem, evaluations = Halves(), Evaluations()
    first, same, other = (Individual(X=np.array(x, dtype=bool)) for x in ([1] * 8, [1] * 4 + [0] * 4, [0] * 8))
    runner = SerialRunner()
    assert evaluations.submit(problem, first)
    assert not evaluations.submit(problem, same)
    assert evaluations.submit(problem, other)
    assert evaluations.next(runner) is first
    assert [x.tolist() for x in problem.evaluated] == [[True] * 8]
    assert (same.F == first.F).all()
    assert same.get("note") == first.get("note") == 0
    assert not other.evaluated
    assert (evaluations.requested, evaluations.real, evaluations.skipped) == (3, 1, 1)
    assert evaluations.next(runner) is same
    assert not evaluations.submit(problem, first)
    assert evaluations.next(runner, known_first=0) is other  # who waits for an evaluation is not overtaken for ever
    assert evaluations.next(runner) is first
    assert (evaluations.requested, evaluations.real, evaluations.skipped) == (4, 2, 2)


def test_what_is_withdrawn_is_submitted_again():
    problem, evaluations, runner = Halves(), Evaluations(), SimulatedRunner(2)
    both = [Individual(X=np.array(x, dtype=bool)) for x in ([1] * 8, [0] * 8)]
    for individual in both:
        evaluations.submit(problem, individual)
    assert evaluations.next(runner, lambda runner: None) is None
    evaluations.withdraw(runner)
    assert runner.wait() is None
    assert [evaluations.next(runner) for _ in both] == both
    assert evaluations.next(runner) is None
    assert (evaluations.requested, evaluations.real, evaluations.skipped) == (2, 2, 0)


def test_skipped_ones_count_if_asked():
    problem, evaluations = Halves(), Evaluations(count_skipped=True)
    evaluations.eval(problem, individuals([[0] * 8, [0] * 7 + [1], [1] * 8]))
    assert (evaluations.real, evaluations.n_eval) == (2, 3)
    evaluations.eval(problem, individuals([[1, 0] * 4]), count_evals=False)
    assert (evaluations.real, evaluations.n_eval) == (3, 3)


def test_nan_is_a_failure_worse_than_all():
    evaluations = Evaluations()
    pop = evaluations.eval(Halves(bad=lambda x: x[0]), individuals([[1] * 8, [0] * 8]))
    assert evaluations.failed == 1
    assert np.isinf(pop[0].F).all()
    assert "nan" in pop[0].get("failed")
    assert pop[1].get("failed") == ""
    assert np.isfinite(pop[1].F).all()


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_an_error_leaves_nothing_in_flight(error):
    problem, evaluations = Halves(), Evaluations()

    def fail(X, out, *args, **kwargs):
        raise error

    problem._evaluate = fail
    with pytest.raises(error):
        evaluations.eval(problem, individuals([[0] * 8]))
    assert evaluations.requested == 0
    del problem._evaluate
    evaluations.eval(problem, individuals([[0] * 8]))
    assert evaluations.real == 1


def test_an_error_while_asking_leaves_nothing_in_flight():
    problem, evaluations = Halves(), Evaluations()
    problem.key = lambda x: 1 / 0 if x[1] else x.tobytes()
    with pytest.raises(ZeroDivisionError):
        evaluations.eval(problem, individuals([[0] * 8, [1] * 8]))
    assert evaluations.requested == 0
    assert evaluations.eval(problem, individuals([[0] * 8]))[0].F.tolist() == [0, 0]


def test_nobody_can_change_what_is_known():
    problem, evaluations = Halves(), Evaluations()
    evaluations.eval(problem, individuals([[1] * 8]))[0].F[:] = -1
    assert evaluations.eval(problem, individuals([[1] * 8]))[0].F.tolist() == [4, -4]


def test_genotypes_of_objects_need_a_key():
    problem = Halves(keys=False)
    with pytest.raises(TypeError, match=r"give the problem a key\(x\)"):
        Evaluations().submit(problem, Individual(X={"a": 1}))


class Plain(Problem):
    """A problem that algorithms copy."""

    def __init__(self):
        super().__init__(n_var=16, n_obj=2, vtype=bool)

    def _evaluate(self, X, out, *args, **kwargs):
        out["F"] = np.column_stack([X.sum(1), -X[:, :8].sum(1)]).astype(float)


def test_a_copy_of_an_algorithm_takes_its_problem_with_it():
    whole = nsga2(pop_size=10).setup(Plain(), termination=("n_evals", 100), seed=3)
    whole.next()
    twin = copy.deepcopy(whole)
    np.testing.assert_array_equal(whole.run().X, twin.run().X)


def test_nsga2_takes_no_unknown_option():
    with pytest.raises(TypeError, match="no option popsize"):
        nsga2(popsize=3)


def test_another_problem_is_refused():
    evaluations = Evaluations()
    evaluations.eval(Halves(), individuals([[0] * 8]))
    with pytest.raises(ValueError, match="new Evaluations"):
        evaluations.eval(Halves(), individuals([[0] * 8]))


def test_copies_know_the_past_and_go_their_own_way():
    problem, evaluations = Halves(), Evaluations()
    evaluations.eval(problem, individuals([[0] * 8]))
    twin = copy.deepcopy(evaluations)
    assert twin._known is evaluations._known  # a history of copies costs nothing
    evaluations.eval(problem, individuals([[1] * 8]))
    twin.eval(problem, individuals([[0] * 8, [1, 0] * 4, [1] * 8]))
    assert (evaluations.real, twin.real, twin.skipped) == (2, 3, 1)
    evaluations.eval(problem, individuals([[1, 0] * 4, [1] * 8]))
    assert (evaluations.real, evaluations.skipped) == (3, 1)
    assert (twin.real, twin.skipped) == (3, 1)


def test_a_checkpoint_continues_as_the_run_itself():
    problem = Halves(24)
    whole = nsga2(pop_size=10).setup(problem, termination=("n_evals", 300), seed=3)
    for _ in range(5):
        whole.next()
    copies = [copy.deepcopy(whole), whole]
    for algorithm in copies:  # the second finds the first one's evaluations nowhere
        algorithm.run()
    first, second = (algorithm.result() for algorithm in copies)
    np.testing.assert_array_equal(first.X, second.X)
    assert copies[0].evaluator.real == copies[1].evaluator.real


def test_pickled_with_requests_in_flight():
    problem, evaluations = Halves(keys=False), Evaluations()
    individual = Individual(X=np.ones(8, dtype=bool))
    problem.bad = None
    evaluations.submit(problem, individual)
    evaluations.next(SimulatedRunner(2), lambda runner: None)  # it is with a runner, who has not answered
    evaluations, problem, individual = pickle.loads(pickle.dumps((evaluations, problem, individual)))
    other, runner = Individual(X=np.ones(8, dtype=bool)), SerialRunner()
    problem.bad = lambda x: False
    assert not evaluations.submit(problem, other)
    assert [evaluations.next(runner), evaluations.next(runner)] == [individual, other]
    assert len(problem.evaluated) == evaluations.real == 1


def test_a_budget_is_one_of_real_evaluations_also_for_nsga2():
    result = minimize(Halves(20), nsga2(pop_size=20), ("n_evals", 300), seed=1)
    evaluator = result.algorithm.evaluator
    assert 300 <= evaluator.real == evaluator.n_eval < 320
    assert evaluator.skipped > 0


def test_a_space_smaller_than_the_budget_ends_the_run_and_says_so():
    algorithm = nsga2(pop_size=8, evaluator=Evaluations(patience=200))
    with pytest.warns(
        RuntimeWarning, match="none of the last 2.. individuals was new: the run ends after 16 evaluations"
    ):
        result = minimize(Halves(8), algorithm, ("n_evals", 1_000), seed=1)
    assert result.algorithm.evaluator.real == 16


# ----------------------------------------------------------------------------------------- when something goes wrong


class Broken(SerialRunner):
    """Cannot submit."""

    def submit(self, f, x, needed=None):
        raise ConnectionError("the scheduler is lost: start it again")


def test_what_a_runner_says_is_what_a_user_sees():
    problem, evaluations = Halves(), Evaluations(runner=Broken())
    with pytest.raises(ConnectionError, match="start it again"):
        evaluations.eval(problem, individuals([[0] * 8, [1] * 8]))
    assert evaluations.requested == 0
    evaluations.runner = SerialRunner()
    evaluations.eval(problem, individuals([[0] * 8, [1] * 8]))
    assert (evaluations.requested, evaluations.real) == (2, 2)


def test_what_is_no_runner_is_told():
    class Duck:
        pass

    for make in (lambda: Evaluations(runner=Duck()), lambda: GOMEA(runner=Duck())):
        with pytest.raises(TypeError, match=r"on a Runner, such as DaskRunner\(\), not on Duck"):
            make()


def test_a_result_that_is_committed_is_known_whatever_the_bar_does(monkeypatch):
    problem, evaluations = Halves(), Evaluations()

    class Bar:
        def show(self, real, is_replayed):
            raise OSError("the terminal is gone")

    evaluations._progress = Bar()
    with pytest.raises(OSError, match="the terminal is gone"):
        evaluations.eval(problem, individuals([[0] * 8]))
    evaluations._progress = None
    assert (evaluations.requested, evaluations.real) == (1, 1)
    assert evaluations.eval(problem, individuals([[0] * 8, [1] * 8]))[1].F.tolist() == [4, -4]
    assert (evaluations.requested, evaluations.real, evaluations.skipped) == (3, 2, 1)


def test_others_can_be_evaluated_in_the_middle_of_a_run():
    """As a callback might: neither they nor the run notice."""
    X = np.random.default_rng(0).random((40, 16)) < 0.5

    def search(callback):
        problem = Plain()
        algorithm = GOMEA(pop_size=16, runner=SimulatedRunner(5)).setup(problem, termination=("n_evals", 150), seed=1)
        while algorithm.has_next():
            algorithm.next()
            if callback:
                pop = algorithm.evaluator.eval(problem, Population.new("X", X), count_evals=False)
                np.testing.assert_array_equal(pop.get("F"), problem.evaluate(X))
        assert algorithm.evaluator.n_eval == 150
        return algorithm

    search(callback=False)
    run = search(callback=True)
    assert run.evaluator.requested == run.evaluator.real + run.evaluator.skipped + len(run.evaluator._open)


def test_the_same_individual_twice_is_answered_once_for_each():
    problem, evaluations = Halves(), Evaluations()
    individual = Individual(X=np.ones(8, dtype=bool))
    evaluations.eval(problem, Population.create(individual, individual))
    assert (evaluations.requested, evaluations.real, evaluations.skipped) == (2, 1, 1)
    assert not evaluations._answered


def test_a_copy_has_the_same_runner():
    runner = SimulatedRunner(2)
    minimize(Plain(), nsga2(pop_size=10, evaluator=Evaluations(runner=runner)), ("n_evals", 30), seed=1)
    assert len(runner.log) >= 30


def test_only_what_is_of_this_package_may_move():
    assert not differences("pymoo_stitch.sampling.BinarySampling", "pymoo_stitch.algorithms.sampling.BinarySampling")
    for old, new in (
        ("pymoo_stitch.sampling.BinarySampling", "pymoo_stitch.sampling.Other"),
        ("pymoo_stitch.sampling.BinarySampling", "mine.sampling.BinarySampling"),
        ("digits.small.npz", "digits.large.npz"),
        ("resnet.a1.in1k", "resnet.a2.in1k"),
    ):
        assert differences({"x": old}, {"x": new}) == [f'x is "{old}" in the journal and "{new}" here']
