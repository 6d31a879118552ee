"""The search algorithms: they reach known fronts, end as told, and can be stopped, copied and fed by hand at any
moment."""

import copy
import itertools
import pickle
import time

import numpy as np
import pytest
from binary_problems import LOTZ, TrapInverseTrap, TwoChains, ZeromaxOnemax
from hypothesis import given, settings
from hypothesis import strategies as st
from pymoo.core.callback import Callback
from pymoo.core.population import Population
from pymoo.core.problem import ElementwiseProblem, Problem
from pymoo.core.termination import TerminateIfAny
from pymoo.optimize import minimize
from pymoo.termination import get_termination

from pymoo_stitch import Evaluations
from pymoo_stitch.algorithms import GOMEA, LKGOMEA, AsyncGA, AsyncNSGA2, Threshold, nsga2
from pymoo_stitch.algorithms.gomea import close
from pymoo_stitch.runners import SimulatedRunner


def async_nsga2(pop_size, n_pending=None, **options):
    """With as many pending as the others have by default."""
    return AsyncNSGA2(pop_size=pop_size, n_pending=n_pending or pop_size, **options)


LOOPS = pytest.mark.parametrize("make", [AsyncGA, GOMEA, LKGOMEA])
OURS = pytest.mark.parametrize("make", [async_nsga2, AsyncGA, GOMEA, LKGOMEA])


class Counting(TrapInverseTrap):
    """Remembers every genotype it was asked for."""

    def __init__(self, n_var=20):
        super().__init__(n_var, seed=7)
        self.seen = []

    def _evaluate(self, x, out, *args, **kwargs):
        super()._evaluate(x, out)
        self.seen.extend(zip(x.copy(), out["F"], strict=True))

    def __deepcopy__(self, memo):
        return self


def lognormal(x, random_state):
    return random_state.lognormal(sigma=1)


def trace(algorithm):
    return [(ind.X.tolist(), ind.F.tolist()) for ind in algorithm.archive.members], algorithm.evaluator.requested


def non_dominated(f):
    """Slow and obvious."""
    f = {tuple(row) for row in f}
    return {a for a in f if not any(all(x <= y for x, y in zip(b, a, strict=True)) and b != a for b in f)}


@pytest.mark.parametrize(
    ("problem", "algorithm", "budget"),
    [
        pytest.param(TrapInverseTrap(50, seed=7), GOMEA(pop_size=64), 7_000, marks=pytest.mark.slow),
        (TrapInverseTrap(50, seed=7), LKGOMEA(pop_size=64), 5_000),
        (ZeromaxOnemax(50), GOMEA(pop_size=32), 5_000),
        (LOTZ(12), AsyncGA(pop_size=32), 1_500),
    ],
    ids=["trap GOMEA", "trap LKGOMEA", "zeromax GOMEA", "LOTZ GA"],
)
def test_the_whole_front_is_found(problem, algorithm, budget):
    result = minimize(problem, algorithm, ("n_evals", budget), seed=1)
    assert {tuple(f) for f in problem.pareto_front()} == {tuple(f) for f in result.F}


@OURS
@pytest.mark.parametrize("budget", [5, 64, 203])
def test_the_budget_is_met_exactly_and_no_genotype_is_evaluated_twice(make, budget):
    problem = Counting()
    result = minimize(problem, make(pop_size=16), ("n_evals", budget), seed=1)
    assert len(problem.seen) == budget == result.algorithm.evaluator.n_eval
    assert len({x.tobytes() for x, _ in problem.seen}) == budget
    assert {tuple(f) for f in result.F} == non_dominated([f for _, f in problem.seen])
    assert {tuple(f) for f in result.archive.get("F")} == non_dominated([f for _, f in problem.seen])


@LOOPS
def test_skipped_evaluations_count_if_asked_to(make):
    evaluations = Evaluations(count_skipped=True)
    result = minimize(Counting(10), make(pop_size=16), ("n_evals", 300), seed=1, evaluator=evaluations)
    used = result.algorithm.evaluator
    assert used.n_eval == 300 == used.real + used.skipped
    assert used.skipped > 0


@OURS
def test_other_terminations(make):
    problem = TrapInverseTrap(20, seed=7)
    assert minimize(problem, make(pop_size=16), ("n_gen", 7), seed=1).algorithm.n_gen == 8
    start = time.perf_counter()
    minimize(problem, make(pop_size=64), ("time", 0.3), seed=1)
    assert 0.3 <= time.perf_counter() - start < 30  # however busy the machine is
    both = TerminateIfAny(get_termination("n_gen", 1000), get_termination("n_evals", 77))
    assert minimize(problem, make(pop_size=16), both, seed=1).algorithm.evaluator.real == 77


def test_pymoos_default_termination():
    assert len(minimize(TrapInverseTrap(10, seed=7), GOMEA(pop_size=16), seed=1).F) == 3


@OURS
def test_callback_history_and_display_fire_once_per_generation(make, capsys):
    class Count(Callback):
        def __init__(self):
            super().__init__()
            self.calls = 0

        def notify(self, algorithm):
            self.calls += 1

    callback = Count()
    problem = TwoChains(10, seed=1)
    result = minimize(
        problem, make(pop_size=16), ("n_gen", 5), seed=1, callback=callback, save_history=True, verbose=True
    )
    assert callback.calls == len(result.history) == 5
    printed = capsys.readouterr().out
    for column in ("real", "skipped", "screened", "hv", "archive", "threshold", "pending", "utilisation"):
        assert column in printed
    sizes = [entry.evaluator.requested for entry in result.history]
    assert sizes == sorted(sizes)


@OURS
def test_the_same_seed_gives_the_same_run_and_event_log(make):
    def run(seed):
        algorithm = make(pop_size=16, runner=SimulatedRunner(5, lognormal))
        return minimize(TwoChains(30, seed=1), algorithm, ("n_evals", 120), seed=seed).algorithm

    first, second, other = run(1), run(1), run(2)
    assert first.runner.log == second.runner.log
    assert trace(first) == trace(second)
    assert trace(first) != trace(other)


@OURS
def test_a_copy_made_at_any_moment_ends_like_the_original(make):
    ways = itertools.cycle([copy.deepcopy, lambda a: pickle.loads(pickle.dumps(a))])
    algorithm = make(pop_size=16).setup(TwoChains(30, seed=1), termination=("n_evals", 140), seed=1)
    copies, before = [], 0
    for moment, way in zip((0, 7, 60, 90), ways, strict=False):
        for _ in range(moment - before):
            algorithm.next()
        before = moment
        copies.append(way(algorithm))
    algorithm.run()
    whole = trace(algorithm)
    for other in copies:
        other.run()
        assert trace(other) == whole == trace(algorithm)
        assert other.evaluator.real == 140


@OURS
def test_a_copy_with_evaluations_pending_on_many_workers_submits_them_anew(make):
    problem = Counting()
    algorithm = make(pop_size=16, runner=SimulatedRunner(8, lognormal))
    algorithm.setup(problem, termination=("n_evals", 200), seed=1)
    for _ in range(50):
        algorithm.next()
    other = pickle.loads(pickle.dumps(algorithm))
    assert len(other.pending) == len(algorithm.pending) > 8
    other.run()
    assert other.evaluator.real == 200


@OURS
def test_telling_in_batches_is_the_same_as_one_by_one(make):
    problem = TrapInverseTrap(20, seed=7)

    def by_hand(batch):
        algorithm = make(pop_size=16).setup(problem, termination=("n_evals", 10_000), seed=1)
        queue = []
        while algorithm.evaluator.requested < 336:
            queue.extend(algorithm.ask())
            now, queue = queue[:batch], queue[batch:]
            algorithm.tell(infills=algorithm.evaluator.eval(problem, Population.create(*now)))
        assert len(algorithm.pending) == 16
        return trace(algorithm)

    assert by_hand(1) == by_hand(3) == by_hand(16)


@OURS
def test_tell_takes_them_in_any_order_and_each_once(make):
    problem = TrapInverseTrap(20, seed=7)
    algorithm = make(pop_size=16).setup(problem, termination=("n_evals", 10_000), seed=1)
    rng = np.random.default_rng(1)
    waiting = []
    for _ in range(200):
        waiting.extend(algorithm.ask())
        individual = waiting.pop(rng.integers(len(waiting)))
        individual.F = problem.evaluate(individual.X)
        told = Population.create(individual)
        algorithm.tell(infills=told)
    assert len(algorithm.pending) == 16
    with pytest.raises(ValueError, match="told before"):
        algorithm.tell(infills=told)
    with pytest.raises(ValueError, match="has no F"):
        algorithm.tell(infills=Population.create(waiting[0]))


class Failing(ElementwiseProblem):
    """Raises for a third of the genotypes, gives NaN for another."""

    def __init__(self, part=3):
        super().__init__(n_var=12, n_obj=2, vtype=bool)
        self.part = part

    def _evaluate(self, x, out, *args, **kwargs):
        kind = hash(x.tobytes()) % self.part
        if kind == 0:
            raise RuntimeError("no luck")
        out["F"] = [np.nan if kind == 1 else x.sum(), (~x).sum()]


@OURS
@pytest.mark.parametrize("part", [3, 1])
def test_failures_are_counted_and_never_enter(make, part):
    result = minimize(Failing(part), make(pop_size=16), ("n_evals", 150), seed=1)
    evaluations = result.algorithm.evaluator
    assert evaluations.real == 150
    assert 0 < evaluations.failed <= 150
    for individual in [*result.pop, *result.archive]:
        assert not individual.get("failed")
        assert np.isfinite(individual.F).all()
    assert (len(result.pop) == 0) == (part == 1)


class Constant(Problem):
    def __init__(self, n_var):
        super().__init__(n_var=n_var, n_obj=2, vtype=bool)

    def _evaluate(self, x, out, *args, **kwargs):
        out["F"] = np.ones((len(x), 2))


class Inactive(Constant):
    """Nothing matters: one subnetwork, whatever the genotype."""

    def active(self, x):
        return np.zeros(self.n_var, dtype=bool)

    def key(self, x):
        return "the only one"


@OURS
@pytest.mark.parametrize(
    ("problem", "n"),
    [(ZeromaxOnemax(1), 2), (ZeromaxOnemax(1), 8), (ZeromaxOnemax(4), 2), (Constant(3), 4), (Inactive(6), 8)],
    ids=["one variable", "one variable, more individuals", "two individuals", "constant objectives", "all inactive"],
)
def test_what_holds_nothing_more_ends_and_says_so(make, problem, n):
    with pytest.warns(RuntimeWarning, match="the run ends after"):
        result = minimize(problem, make(pop_size=n, evaluator=Evaluations(patience=300)), ("n_evals", 1_000), seed=1)
    assert 1 <= result.algorithm.evaluator.real <= 2**problem.n_var
    assert len(result.F) >= 1


@OURS
@pytest.mark.parametrize("n_pending", [1, 3, 16])
@pytest.mark.parametrize("n_workers", [1, 4, 40])
def test_any_number_of_pending_and_workers(make, n_pending, n_workers):
    runner = SimulatedRunner(n_workers, lognormal)
    algorithm = make(pop_size=16, n_pending=n_pending, runner=runner)
    result = minimize(TrapInverseTrap(20, seed=7), algorithm, ("n_evals", 100), seed=1)
    assert result.algorithm.evaluator.real == 100
    log = result.algorithm.runner.log
    most = max(sum(e.begun <= f.begun < e.ended for e in log) for f in log)
    assert most <= min(n_pending, n_workers)


def test_nobody_starves():
    for make in (AsyncGA, GOMEA, LKGOMEA):
        algorithm = make(pop_size=64, runner=SimulatedRunner(90, 1.0))
        run = minimize(TrapInverseTrap(50, seed=7), algorithm, ("n_evals", 1_500), seed=1).algorithm
        assert run.runner.utilisation == pytest.approx(64 / 90, abs=0.02)


def test_what_the_algorithm_does_does_not_depend_on_the_number_of_workers_if_completions_keep_their_order():
    runs = [
        minimize(
            TrapInverseTrap(30, seed=7), GOMEA(pop_size=16, runner=SimulatedRunner(n, 1.0)), ("n_evals", 500), seed=1
        ).algorithm
        for n in (1, 16)
    ]
    assert trace(runs[0]) == trace(runs[1])


def test_a_long_row_of_known_ones_neither_recurses_nor_keeps_others_waiting():
    evaluations = Evaluations(patience=2_000)
    with pytest.warns(RuntimeWarning, match="none of the last 2,000"):
        result = minimize(ZeromaxOnemax(3), AsyncGA(pop_size=8, evaluator=evaluations), ("n_evals", 100), seed=1)
    assert result.algorithm.evaluator.real == 8


def test_options_are_checked():
    for make in (AsyncNSGA2, GOMEA, nsga2):
        with pytest.raises(TypeError, match=r"no option popsize. Did you mean pop_size\?"):
            make(popsize=3)
    with pytest.raises(ValueError, match="pop_size must be at least 2, but is 1"):
        AsyncGA(pop_size=1)
    with pytest.raises(ValueError, match="Make pop_size larger"):
        GOMEA(pop_size=4, n_pending=5).setup(ZeromaxOnemax(5))
    with pytest.raises(ValueError, match="c, the size"):
        LKGOMEA(c=0)


@pytest.mark.parametrize("make", [AsyncNSGA2, LKGOMEA, nsga2])
@pytest.mark.parametrize("limit", [("n_evals", -5), ("n_evals", 0), ("n_gen", 0), ("time", -1)])
def test_a_budget_of_nothing_is_refused(make, limit):
    with pytest.raises(ValueError, match=rf"allows {limit[1]} .*at least one"):
        minimize(ZeromaxOnemax(5), make(pop_size=4), limit, seed=1)


def test_the_default_population_follows_from_the_budget():
    sizes = [
        GOMEA().setup(ZeromaxOnemax(50), termination=("n_evals", budget)).pop_size for budget in (1_000, 40_000, 10**6)
    ]
    assert sizes == [64, 200, 512]


@OURS
def test_the_threshold_keeps_what_is_below_it_from_the_front(make):
    problem = TwoChains(30, seed=1)
    result = minimize(problem, make(pop_size=16, threshold=Threshold(final=0.75)), ("n_evals", 150), seed=1)
    assert (1 - result.F[:, 1] >= 0.75).all()
    free = minimize(problem, make(pop_size=16, threshold=None), ("n_evals", 150), seed=1)
    assert not (1 - free.F[:, 1] >= 0.75).all()
    assert set(map(tuple, free.F)) == set(map(tuple, free.archive.get("F")))


def test_a_time_limit_makes_the_threshold_constant_and_says_so():
    with pytest.warns(RuntimeWarning, match="from the start"):
        algorithm = GOMEA(pop_size=16).setup(TwoChains(10, seed=1), termination=("time", 1))
    assert algorithm.annealing.level(0) == 0.5
    given = GOMEA(threshold=Threshold(budget=100)).setup(TwoChains(10, seed=1), termination=("time", 1))
    assert given.annealing.level(25) == 0.25


def test_nsga2_beside_them_has_the_same_budget_and_threshold():
    result = minimize(TwoChains(10, seed=1), nsga2(pop_size=20), ("n_evals", 200), seed=1)
    assert (1 - result.F[:, 1] >= 0.5).all()
    assert result.algorithm.evaluator.n_eval == result.algorithm.evaluator.real


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=50, deadline=None)
def test_after_closure_all_that_became_active_has_the_donors_values(seed):
    rng = np.random.default_rng(seed)
    problem = TwoChains(8, seed=1)
    x, donor = rng.random((2, problem.n_var)) < 0.5
    subset = np.flatnonzero(rng.random(problem.n_var) < 0.3)
    child = x.copy()
    child[subset] = donor[subset]
    before = problem.active(x)
    close(child, donor, before, subset, problem.active)
    fresh = problem.active(child) & ~before
    assert (child[fresh] == donor[fresh]).all()
    assert ((child == x) | (child == donor)).all()


def mixed(algorithm, requests):
    """All that mixing proposes in a run, each as (recipient, proposal). Nobody changes while it waits for a
    proposal."""
    problem = algorithm.problem
    while algorithm.evaluator.requested < requests:
        proposals = algorithm.ask()
        for proposal in proposals:
            if algorithm._members[proposal.get("loop")] is not None:
                yield algorithm._x[proposal.get("loop")].copy(), proposal.X.copy()
        algorithm.tell(infills=algorithm.evaluator.eval(problem, proposals))


@pytest.mark.parametrize("make", [GOMEA, LKGOMEA])
@pytest.mark.parametrize("closure", [False, True])
def test_a_filtered_donor_differs_in_what_is_active_in_the_recipient(make, closure):
    problem = TwoChains(10, seed=1)

    def steps(filter_donors):
        algorithm = make(pop_size=16, closure=closure, filter_donors=filter_donors, screen=None)
        return list(mixed(algorithm.setup(problem, termination=("n_evals", 10_000), seed=1), 300))

    found = steps(True)
    assert len(found) >= 284
    for x, child in found:
        assert (x != child)[problem.active(x)].any()
        assert problem.key(x) != problem.key(child)
    without = steps(False)
    assert all((x != child).any() for x, child in without)
    assert not all((x != child)[problem.active(x)].any() for x, child in without)


def test_without_inactive_variables_the_filter_changes_nothing():
    def run(filter_donors):
        algorithm = GOMEA(pop_size=16, filter_donors=filter_donors)
        return trace(minimize(TrapInverseTrap(20, seed=7), algorithm, ("n_evals", 300), seed=1).algorithm)

    assert run(True) == run(False)


class Diary(LKGOMEA):
    """Writes down each GOM as a list of trees, each as its subsets and those tried with whether that gave a
    proposal."""

    goms = ()

    def _first(self, loop):
        self.goms = [*self.goms, []]
        self.of = getattr(self, "of", {}) | {loop: self.goms[-1]}
        return super()._first(loop)

    def _learn(self, loop):
        donors, subsets = super()._learn(loop)
        self.of[loop].append(({frozenset(subset.tolist()) for subset in subsets}, []))
        return donors, subsets

    def _mixed(self, loop, subset, mixing):
        child = super()._mixed(loop, subset, mixing)
        if mixing.elite is None:
            self.of[loop][-1][1].append((frozenset(subset.tolist()), child is not None))
        return child


@pytest.mark.parametrize("n_var", [5, 30])
def test_within_a_gom_subsets_are_learned_anew_and_none_is_tried_twice(n_var):
    algorithm = Diary(pop_size=32).setup(TrapInverseTrap(n_var, seed=7), termination=("n_evals", 10_000), seed=1)
    for _ in range(1_000):
        algorithm.next()
    each = max(1, n_var // 4)
    known = 0  # subsets that were learned again, and left out
    for gom in algorithm.goms:
        before = set()
        for subsets, tries in gom:
            tried = [subset for subset, _ in tries]
            assert len(set(tried)) == len(tried)
            assert set(tried) <= subsets - before
            known += len(subsets & before)
            before |= set(tried)
        proposals = [sum(proposed for _, proposed in tries) for _, tries in gom]
        assert proposals[:-1] == [each] * (len(gom) - 1)
        assert proposals[-1] <= each
    assert known > 0
    assert max(map(len, algorithm.goms)) > 3


@pytest.mark.parametrize("way", [copy.deepcopy, lambda a: pickle.loads(pickle.dumps(a))], ids=["deepcopy", "pickle"])
def test_a_copy_made_within_a_gom_that_has_learned_anew_goes_on_identically(way):
    algorithm = LKGOMEA(pop_size=16).setup(TrapInverseTrap(30, seed=7), termination=("n_evals", 600), seed=1)

    def amid(mixing):
        return mixing is not None and mixing.tried and mixing.order and 0 < mixing.steps < 3

    algorithm.next()
    while not any(map(amid, algorithm._mixings)):
        algorithm.next()
    assert algorithm.evaluator.real < 300
    other = way(algorithm)
    algorithm.run()
    after = trace(algorithm), algorithm._x.tolist()
    other.run()
    assert (trace(other), other._x.tolist()) == after
    assert other.evaluator.real == 600
