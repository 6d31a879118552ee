"""Runners: what is submitted is done, in the order it should be, on the workers there are, and time is accounted
for."""

import copy
import pickle
import time
from itertools import pairwise

import numpy as np
import pytest
from binary_problems import TwoChains
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pymoo.core.problem import ElementwiseProblem
from pymoo.optimize import minimize

from pymoo_stitch import Evaluations
from pymoo_stitch.algorithms import LKGOMEA, nsga2
from pymoo_stitch.runners import Runner, SerialRunner, SimulatedRunner


def as_long_as_said(x, random_state):
    return float(x)


def lognormal(x, random_state):
    return random_state.lognormal(sigma=1)


def one():
    return SimulatedRunner(1)


def three():
    return SimulatedRunner(3)


def various():
    return SimulatedRunner(3, lognormal, seed=1)


ALL = pytest.mark.parametrize("make", [SerialRunner, one, three, various])
COPIES = pytest.mark.parametrize(
    "way", [copy.deepcopy, lambda runner: pickle.loads(pickle.dumps(runner))], ids=["deepcopy", "pickle"]
)


def double(x):
    return {"F": 2 * x}


def whole_or_nothing(x):
    if x % 2:
        raise ValueError(f"{x} is odd")
    return {"F": x // 2}


def bare(result):
    """Without what the runner adds."""
    assert result["begun"] <= result["ended"]
    return {name: value for name, value in result.items() if name not in ("worker", "begun", "ended")}


def called(runner, f, xs):
    return [bare(result) if "begun" in result else result for result in runner(f, xs)]


def drain(runner):
    done = []
    while (completed := runner.wait()) is not None:
        done.append((completed[0], bare(completed[1])))
    return done


@ALL
def test_each_submission_has_a_number_of_its_own_and_its_result_comes_once(make):
    runner = make()
    assert runner.wait(timeout=0.0) is None
    expected = {runner.submit(double, x): {"F": 2 * x} for x in range(10)}
    assert len(expected) == 10
    done = drain(runner)
    assert len(done) == 10
    assert dict(done) == expected
    assert runner.submit(double, 0) not in expected


@pytest.mark.parametrize("make", [SerialRunner, one, three])
def test_evaluations_that_take_equally_long_end_in_the_order_of_submission(make):
    runner = make()
    numbers = [runner.submit(double, x) for x in range(10)]
    assert [number for number, _ in drain(runner)] == numbers


def test_the_serial_runner_evaluates_when_waited_for():
    runner, evaluated = SerialRunner(), []
    for x in range(3):
        runner.submit(lambda x: evaluated.append(x) or {}, x)
    assert runner.n_workers == 1
    assert evaluated == []
    runner.wait()
    assert evaluated == [0]
    runner.wait()
    assert evaluated == [0, 1]


@ALL
def test_an_exception_is_a_result_and_stops_nothing(make):
    runner = make()
    expected = {}
    for x in range(6):
        expected[runner.submit(whole_or_nothing, x)] = {"failed": f"ValueError: {x} is odd"} if x % 2 else {"F": x // 2}
    assert dict(drain(runner)) == expected


@ALL
def test_what_is_cancelled_is_neither_evaluated_nor_given_back(make):
    runner, evaluated = make(), []

    def f(x):
        evaluated.append(x)
        return double(x)

    before = [runner.submit(f, x) for x in range(10)]
    runner.wait()
    assert len(evaluated) == 1
    runner.cancel()
    assert runner.wait() is None
    after = {runner.submit(f, x): {"F": 2 * x} for x in range(100, 110)}
    assert after.keys().isdisjoint(before)
    assert dict(drain(runner)) == after
    assert sorted(evaluated[1:]) == list(range(100, 110))


@ALL
def test_called_it_gives_results_in_the_order_of_the_genotypes(make):
    runner = make()
    x = np.random.default_rng(1).permutation(20)
    assert called(runner, double, x) == [double(value) for value in x]
    assert called(runner, double, iter(x)) == [double(value) for value in x]
    assert called(runner, double, []) == []
    assert runner.wait() is None


def test_called_the_simulated_runner_waits_for_the_last():
    runner = SimulatedRunner(2, as_long_as_said)
    assert called(runner, double, [5, 1, 1, 1]) == [{"F": 10}, {"F": 2}, {"F": 2}, {"F": 2}]
    assert [event.number for event in runner.log] == [1, 2, 3, 0]
    assert runner.clock == 5
    assert runner.utilisation == (5 + 3) / (2 * 5)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (SerialRunner, ValueError, "3 is odd"),
        (one, RuntimeError, "an evaluation failed: ValueError: 3 is odd"),
        (three, RuntimeError, "an evaluation failed: ValueError: 3 is odd"),
    ],
)
def test_called_a_failure_is_an_error_that_leaves_nothing_behind(make, error, message):
    runner = make()
    with pytest.raises(error, match=message):
        runner(whole_or_nothing, [2, 3, 4, 6, 8, 10])
    assert runner.wait() is None
    assert called(runner, whole_or_nothing, [8, 6]) == [{"F": 4}, {"F": 3}]


@ALL
def test_called_a_result_that_says_it_failed_but_has_objectives_is_one(make):
    worst = {"F": np.inf, "failed": "out of memory"}
    assert called(make(), lambda x: worst if x else double(x), [0, 1]) == [{"F": 0}, worst]


class Ones(ElementwiseProblem):
    def __init__(self, **options):
        super().__init__(n_var=6, n_obj=2, vtype=bool, **options)

    def _evaluate(self, x, out, *args, **kwargs):
        out["F"] = [x.sum(), x[:3].sum()]


@ALL
def test_pymoo_takes_it_as_its_own_runner(make):
    x = np.random.default_rng(1).random((10, 6)) < 0.5
    problem = Ones(elementwise_runner=make())
    np.testing.assert_array_equal(problem.evaluate(x), Ones().evaluate(x))
    assert problem.elementwise_runner.utilisation > 0


class TickByTick:
    """Slow and obvious: SimulatedRunner with durations that are whole numbers, one unit of time after another."""

    def __init__(self, n_workers):
        self.n_workers, self.clock, self.worked, self.submitted = n_workers, 0, 0, 0
        self.queue, self.running = [], []

    def submit(self, duration):
        self.queue.append((self.submitted, duration))
        self.submitted += 1
        self.start()
        return self.submitted - 1

    def start(self):
        while self.queue and len(self.running) < self.n_workers:
            self.running.append(self.queue.pop(0))

    def wait(self):
        if not self.running:
            return None
        while all(left for _, left in self.running):
            self.running = [(number, left - 1) for number, left in self.running]
            self.worked += len(self.running)
            self.clock += 1
        done = min(number for number, left in self.running if not left)
        self.running = [(number, left) for number, left in self.running if number != done]
        self.start()
        return done

    def cancel(self):
        self.queue, self.running = [], []

    @property
    def utilisation(self):
        return self.worked / (self.n_workers * self.clock) if self.clock else 0.0


@given(st.integers(1, 5), st.lists(st.integers(0, 6) | st.sampled_from(["wait"] * 3 + ["cancel", "copy"]), max_size=60))
@example(2, [1, 4, "wait", "cancel"])
@example(2, [1, 4, "wait", "copy"])
@settings(max_examples=200, deadline=None)
def test_order_clock_and_utilisation_equal_a_simulation_tick_by_tick(n_workers, steps):
    runner, slow = SimulatedRunner(n_workers, as_long_as_said), TickByTick(n_workers)
    for step in steps:
        if step == "wait":
            done = runner.wait()
            assert (None if done is None else done[0]) == slow.wait()
        elif step == "cancel":
            runner.cancel()
            slow.cancel()
        elif step == "copy":  # which has nothing to do
            runner = copy.deepcopy(runner)
            slow.cancel()
        else:
            assert runner.submit(double, step) == slow.submit(step)
        assert runner.clock == slow.clock
        assert runner.utilisation == pytest.approx(slow.utilisation)


@given(st.integers(1, 5), st.lists(st.lists(st.floats(0, 10), max_size=6), max_size=6))
@settings(max_examples=100, deadline=None)
def test_the_log_is_a_schedule_and_utilisation_follows_from_it(n_workers, batches):
    runner = SimulatedRunner(n_workers, as_long_as_said)
    durations, submitted = {}, {}
    for batch in batches:
        for duration in batch:
            number = runner.submit(double, duration)
            durations[number], submitted[number] = duration, runner.clock
        runner.wait()
    drain(runner)
    log = runner.log
    assert sorted(event.number for event in log) == sorted(durations)
    assert [(event.ended, event.number) for event in log] == sorted((event.ended, event.number) for event in log)
    for event in log:
        assert event.submitted == submitted[event.number] <= event.begun
        assert event.ended == event.begun + durations[event.number]
    for worker in range(n_workers):
        own = sorted((event.begun, event.ended) for event in log if event.worker == worker)
        assert all(first[1] <= second[0] for first, second in pairwise(own))
    assert {event.worker for event in log} <= set(range(n_workers))
    begun = [event.begun for event in sorted(log, key=lambda event: event.number)]
    assert begun == sorted(begun)
    if runner.clock > 0:
        worked = sum(event.ended - event.begun for event in log)
        assert runner.utilisation == pytest.approx(worked / (n_workers * runner.clock))
        assert 0 < runner.utilisation <= 1 + 1e-9
    else:
        assert runner.utilisation == 0


def test_utilisation_by_hand():
    """Two workers: 0 takes 4 and 1 takes 1; 2 follows 1 and takes 2, until 3; 3 follows 2 and takes 3, until 6."""
    runner = SimulatedRunner(2, as_long_as_said)
    assert runner.utilisation == 0
    for duration in (4, 1, 2, 3):
        runner.submit(double, duration)
    assert runner.utilisation == 0
    seen = []
    while (done := runner.wait()) is not None:
        seen.append((done[0], runner.clock, runner.utilisation))
    assert seen == [(1, 1, 1.0), (2, 3, 1.0), (0, 4, 1.0), (3, 6, 10 / 12)]
    assert [(e.number, e.worker, e.submitted, e.begun, e.ended) for e in runner.log] == [
        (1, 1, 0, 0, 1),
        (2, 1, 0, 1, 3),
        (0, 0, 0, 0, 4),
        (3, 1, 0, 3, 6),
    ]


def test_time_spent_on_what_is_cancelled_was_spent():
    runner = SimulatedRunner(2, as_long_as_said)
    for duration in (2, 10):
        runner.submit(double, duration)
    runner.wait()
    assert runner.utilisation == 1
    runner.cancel()
    assert runner.utilisation == 1
    runner.submit(double, 2)
    runner.wait()
    assert runner.utilisation == (2 + 2 + 2) / (2 * 4)


def test_ties_are_broken_by_number():
    runner = SimulatedRunner(3, as_long_as_said)
    for duration in (3, 2, 1, 1, 0, 0):  # 3 begins at 1 and ends at 2, 4 begins and ends at 2, 5 too
        runner.submit(double, duration)
    assert [number for number, _ in drain(runner)] == [2, 1, 3, 4, 5, 0]


@pytest.mark.parametrize(("n_jobs", "clock", "utilisation"), [(1, 1, 1 / 4), (4, 1, 1), (5, 2, 5 / 8), (40, 10, 1)])
def test_fewer_and_more_jobs_than_workers(n_jobs, clock, utilisation):
    runner = SimulatedRunner(4)
    runner(double, range(n_jobs))
    assert (runner.clock, runner.utilisation) == (clock, utilisation)
    assert {event.worker for event in runner.log} == set(range(min(n_jobs, 4)))


def test_the_same_seed_gives_the_same_log():
    def log(seed):
        runner = SimulatedRunner(3, lognormal, seed=seed)
        runner(double, range(20))
        return runner.log

    assert log(1) == log(1)
    assert log(1) != log(2)


def test_durations_may_depend_on_the_genotype():
    runner = SimulatedRunner(1, lambda x, random_state: 1.0 + x.sum())
    runner(lambda x: {"F": x.sum()}, np.array([[True, True], [False, False]]))
    assert [event.ended for event in runner.log] == [3, 4]


def test_an_evaluation_that_stops_early_ends_earlier_and_what_comes_after_begins_earlier():
    def f(x, needed=None):
        if x == 5 and needed is not None:
            raise ValueError("it fails")
        return {"images": 100} if needed is None or x < needed else {"images": 25, "bound": 1.0}

    runner = SimulatedRunner(1, 4.0)
    for x, needed in ((1, None), (3, 2), (1, 2), (5, 2)):
        runner.submit(f, np.array(x), needed)
    results = drain(runner)
    assert [(event.begun, event.ended) for event in runner.log] == [(0, 4), (4, 5), (5, 9), (9, 13)]
    assert [result.get("images") for _, result in results] == [100, 25, 100, None]
    assert runner.clock == 13


@pytest.mark.parametrize("n_workers", [0, -1])
def test_there_is_at_least_one_worker(n_workers):
    with pytest.raises(ValueError, match=f"n_workers must be at least 1, but is {n_workers}"):
        SimulatedRunner(n_workers)


@ALL
@pytest.mark.parametrize(
    "way", [copy.copy, copy.deepcopy, lambda r: pickle.loads(pickle.dumps(r))], ids=["copy", "deepcopy", "pickle"]
)
def test_a_copy_has_the_same_workers_and_nothing_to_do(make, way):
    runner = make()
    waiting = [runner.submit(double, x) for x in range(8)]
    done = [runner.wait()]
    other = way(runner)
    assert other.n_workers == runner.n_workers
    assert other.wait() is None
    expected = {other.submit(double, x): {"F": 2 * x} for x in range(100, 108)}
    assert dict(drain(other)) == expected
    done += drain(runner)  # and the original goes on
    assert sorted(number for number, _ in done) == waiting
    if isinstance(runner, SimulatedRunner):
        assert [event.number for event in runner.log] == [number for number, _ in done]


@COPIES
def test_a_copy_of_a_simulated_runner_goes_on_from_the_same_time_with_the_same_chances(way):
    runner = SimulatedRunner(3, lognormal, seed=1)
    runner(double, range(5))
    other = way(runner)
    assert (other.clock, other.log, other.utilisation) == (runner.clock, runner.log, runner.utilisation)
    other(double, range(5))
    assert len(runner.log) == 5  # the original has not moved
    runner(double, range(5))
    assert other.log == runner.log
    other(double, range(9))
    most = max(sum(e.begun <= f.begun < e.ended for e in other.log) for f in other.log)
    assert most == 3


@pytest.mark.parametrize("way", [lambda r, f: (r.submit(f, 0), r.wait()), lambda r, f: r(f, [0])], ids=["wait", "call"])
def test_the_serial_runners_utilisation_is_a_part_of_real_time(way):
    runner = SerialRunner()
    assert runner.utilisation == 0
    way(runner, lambda x: time.sleep(0.02) or double(x))
    assert runner.busy >= 0.02
    assert 0 < runner.utilisation <= 1
    time.sleep(3 * runner.busy)
    assert 0 < runner.utilisation <= 1 / 4
    assert copy.deepcopy(runner).utilisation == 0  # its time begins when it has something to do


def test_a_scheduler_that_takes_time_begins_one_after_the_other():
    """Two workers, evaluations of 3 s, 1 s for the scheduler: begun at 1, 2, then when a worker is free and a second
    more."""
    runner = SimulatedRunner(2, 3.0, overhead=1.0)
    for x in range(4):
        runner.submit(double, x)
    drain(runner)
    assert [(event.begun, event.ended) for event in runner.log] == [(1, 4), (2, 5), (5, 8), (6, 9)]
    assert runner.utilisation == 4 * 3 / (2 * 9)


# ------------------------------------------------------------------------------------------------------------ one's own


class Backwards(Runner):
    """Evaluates in this process, the last first: of all that a runner offers, the least that it must."""

    n_workers = 1
    utilisation = 1.0

    def __init__(self):
        self.jobs, self.submitted = [], 0

    def submit(self, f, x, needed=None):
        self.submitted += 1
        self.jobs.append((self.submitted, f, x))
        return self.submitted

    def wait(self, timeout=None):
        if not self.jobs:
            return None
        number, f, x = self.jobs.pop()
        return number, f(x)

    def cancel(self):
        self.jobs.clear()


@pytest.mark.parametrize("make", [LKGOMEA, nsga2])
def test_a_runner_of_ones_own(make):
    evaluations = Evaluations(runner=Backwards())
    minimize(TwoChains(8, seed=1), make(pop_size=16), ("n_evals", 60), seed=1, evaluator=evaluations)
    assert 60 <= evaluations.real < 60 + 16
    assert Backwards()(lambda x: {"F": x.sum()}, np.ones((3, 4))) == [{"F": 4}] * 3
    assert (Backwards.is_elsewhere, Backwards.is_virtual, Backwards.dashboard) == (False, False, None)
