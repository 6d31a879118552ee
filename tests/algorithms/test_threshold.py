"""The threshold rises as told, orders solutions, composes with constraints, and is the same for NSGA-II."""

import numpy as np
import pytest
from binary_problems import TwoChains
from hypothesis import given, settings
from hypothesis import strategies as st
from pymoo.core.termination import TerminateIfAll, TerminateIfAny
from pymoo.optimize import minimize
from pymoo.termination import get_termination
from pymoo.termination.default import DefaultMultiObjectiveTermination

from pymoo_stitch.algorithms import GOMEA, Threshold, nsga2
from pymoo_stitch.algorithms.threshold import Annealing
from pymoo_stitch.evaluations import budget_of, max_evals


class MinAccuracy(TwoChains):
    """The same with a constraint: accuracy of at least 0.75."""

    min_accuracy = 0.75

    def __init__(self):
        super().__init__(30, seed=1)
        self.n_ieq_constr = 1

    def _evaluate(self, x, out, *args, **kwargs):
        super()._evaluate(x, out)
        out["G"] = self.min_accuracy - (1 - out["F"][:, 1:])


def test_it_rises_linearly_and_is_reached_at_half_of_the_budget():
    annealing = Annealing(Threshold(), TwoChains(5, seed=1), 1_000)
    assert [annealing.level(n) for n in (0, 250, 500, 1_000)] == [0, 0.25, 0.5, 0.5]


def test_the_problem_decides_by_default():
    assert Annealing("auto", TwoChains(5, seed=1), 10).threshold == Threshold(final=0.5)
    assert Annealing("auto", MinAccuracy(), 10).threshold == Threshold(final=0.75)
    assert Annealing(None, MinAccuracy(), 10).threshold is None


def test_a_slack_on_the_constraint_is_the_same_as_a_level_of_accuracy():
    annealing = Annealing("auto", MinAccuracy(), 100)
    accuracy = np.linspace(0, 1, 21)
    f = np.column_stack([accuracy, 1 - accuracy])
    violation = annealing.violation(f, np.maximum(0, 0.75 - accuracy))
    for n_eval in (0, 13, 40, 60):
        met = violation <= annealing.slack(n_eval) + 1e-12
        assert (met == (accuracy >= annealing.level(n_eval) - 1e-12)).all()


solutions = st.tuples(*[st.floats(0, 1)] * 2)


@given(st.lists(solutions, min_size=3, max_size=3), st.integers(0, 100))
@settings(max_examples=100, deadline=None)
def test_the_order_is_a_total_preorder_with_what_is_tolerated_first(three, n_eval):
    algorithm = GOMEA(pop_size=4).setup(TwoChains(5, seed=1), termination=("n_evals", 100), seed=1)
    algorithm.infill()
    algorithm.evaluator.n_eval = n_eval
    algorithm._f[:] = [[0, 1], [1, 0], [0.5, 0.5], [0.2, 0.9]]
    algorithm._violation[:] = 0
    f = np.array(three)
    violation = algorithm.annealing.violation(f, 0.0)
    a, b, c = (algorithm._rank(0, *solution) for solution in zip(f, violation, strict=True))
    assert a <= b or b <= a
    assert not (a <= b <= c) or a <= c
    for rank, v in ((a, violation[0]), (b, violation[1]), (c, violation[2])):
        assert (rank[0] == 0) == (v <= algorithm.slack)


@pytest.mark.parametrize(
    "algorithm", [GOMEA(pop_size=16), nsga2(pop_size=16, threshold="auto")], ids=["GOMEA", "NSGA-II"]
)
def test_a_minimal_accuracy_is_met_in_the_end(algorithm):
    result = minimize(MinAccuracy(), algorithm, ("n_evals", 400), seed=1)
    assert (1 - result.F[:, 1] >= 0.75).all()
    assert len({tuple(f) for f in result.F}) > 3


def test_nsga2_without_threshold_differs():
    problem = TwoChains(30, seed=1)
    with_it, without = (
        minimize(problem, nsga2(pop_size=16, threshold=t), ("n_evals", 300), seed=1)
        for t in (Threshold(final=0.8), None)
    )
    assert with_it.pop.get("F")[:, 1].max() <= 0.2 + 1e-12 < without.pop.get("F")[:, 1].max()


def test_budgets_of_terminations():
    evals, generations, seconds = (
        get_termination("n_evals", 50),
        get_termination("n_gen", 3),
        get_termination("time", 9),
    )
    assert (max_evals(evals), budget_of(evals, 10)) == (50, 50)
    assert (max_evals(generations), budget_of(generations, 10)) == (np.inf, 30)
    assert budget_of(seconds, 10) is None
    assert budget_of(TerminateIfAny(evals, generations, seconds), 10) == 30
    assert max_evals(TerminateIfAll(evals, get_termination("n_evals", 70))) == 70
    assert max_evals(TerminateIfAll(evals, seconds)) == np.inf
    assert max_evals(DefaultMultiObjectiveTermination()) == 100_000


def test_options_are_checked():
    with pytest.raises(ValueError, match="final must be an accuracy"):
        Threshold(final=0)
    with pytest.raises(ValueError, match="until must be a fraction"):
        Threshold(until=1.5)
    with pytest.raises(ValueError, match="budget must be a number"):
        Threshold(budget=0)
    with pytest.raises(TypeError, match="a Threshold, None or 'auto'"):
        Annealing(0.5, TwoChains(5, seed=1), 10)
