"""Evaluations on a real Dask cluster: processes that are killed, hang, come and go."""

import contextlib
import copy
import json
import os
import pickle
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing

import dask
import numpy as np
import psutil
import pytest
import torch
from cluster_problems import AtFirstTogether, Harmful, Large, Slow
from conftest import IMAGE, TESTS
from distributed import Client, LocalCluster, Status
from pymoo.core.problem import ElementwiseProblem
from pymoo.optimize import minimize

from pymoo_stitch import Evaluations, Journal, StitchProblem, Task
from pymoo_stitch.algorithms import GOMEA, LKGOMEA, AsyncGA, AsyncNSGA2, nsga2
from pymoo_stitch.evaluations import Evaluate
from pymoo_stitch.runners import DaskRunner

PATHS = os.pathsep.join([str(TESTS), str(TESTS.parent / "benchmarks")])


@pytest.fixture(scope="module", autouse=True)
def _path():
    """Workers find the problems that tests define."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [PATHS, before]))
    yield
    if before is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = before


@pytest.fixture(scope="module")
def runner():
    with DaskRunner(n_workers=2, time_limit=30) as runner:
        yield runner


@pytest.fixture
def fragile():
    """A cluster for a test to do harm to."""
    with DaskRunner(n_workers=2, time_limit=3) as runner:
        yield runner


def workers(runner):
    return set(runner.client.run(os.getpid).values())


def rows(path):
    return [(row.x.tobytes(), tuple(row.result["F"]), row.result["failed"]) for row in Journal(path).rows()]


def test_members_of_a_group_that_failed_have_the_time_of_all_for_themselves():
    with DaskRunner(n_workers=1, time_limit=1) as runner:
        before = workers(runner)
        results = runner(AtFirstTogether(seconds=0.25), np.ones((16, 2), dtype=bool))  # at most 2 seconds a group
        assert {result["F"][1] for result in results} == before == workers(runner)  # none was killed


def test_utilisation_is_that_of_the_present_run(runner):
    for seconds, n, pause in ((0, 16, 5), (0.05, 80, 0)):
        evaluations = Evaluations(runner=runner)
        result = minimize(Slow(seconds=seconds), AsyncGA(pop_size=32), ("n_evals", n), seed=1, evaluator=evaluations)
        used = result.algorithm.runner.utilisation
        time.sleep(pause)
    assert used > 0.45


@pytest.mark.parametrize("make", [AsyncGA, GOMEA, LKGOMEA])
def test_our_algorithms_run_on_it(runner, make, tmp_path):
    problem = Slow(seconds=0)
    journal = tmp_path / "run.sqlite"
    result = minimize(
        problem, make(pop_size=16, runner=runner), ("n_evals", 203), seed=1, evaluator=Evaluations(journal=journal)
    )
    evaluations = result.algorithm.evaluator
    assert (evaluations.real, evaluations.n_eval, evaluations.failed) == (203, 203, 0)
    written = rows(journal)
    assert len({x for x, _, _ in written}) == len(written) == 203
    for x, f, _ in written:
        np.testing.assert_array_equal(problem.f(np.frombuffer(x, bool)[None])[0], f)
    assert {str(row.result["worker"]) for row in Journal(journal).rows()} == {"0", "1"}


def test_pymoos_algorithms_run_on_it_with_the_same_result(runner):
    class Elementwise(ElementwiseProblem):
        def __init__(self, **options):
            super().__init__(n_var=20, n_obj=2, xl=0, xu=1, vtype=bool, **options)

        def _evaluate(self, x, out, *args, **kwargs):
            out["F"] = [-x.sum(), x[:10].sum() - x[10:].sum()]

    serial = minimize(Slow(seconds=0), nsga2(pop_size=20), ("n_evals", 200), seed=1)
    parallel = minimize(
        Slow(seconds=0), nsga2(pop_size=20), ("n_evals", 200), seed=1, evaluator=Evaluations(runner=runner)
    )
    np.testing.assert_array_equal(serial.F, parallel.F)
    one = minimize(Elementwise(), nsga2(pop_size=20), ("n_gen", 8), seed=1)
    many = minimize(Elementwise(elementwise_runner=runner), nsga2(pop_size=20), ("n_gen", 8), seed=1)
    np.testing.assert_array_equal(one.F, many.F)


@pytest.mark.slow
def test_a_problem_is_sent_once_to_each_worker_also_to_those_who_join_later(fragile, tmp_path):
    problem = Large(tmp_path, seconds=0.005)
    algorithm = LKGOMEA(pop_size=16, runner=fragile).setup(problem, termination=("n_evals", 4_000), seed=1)
    before = psutil.net_io_counters(pernic=True).get("lo")
    while algorithm.evaluator.real < 100:
        algorithm.next()
    fragile.client.cluster.scale(3)
    fragile.client.wait_for_workers(3)
    seen = set()
    while algorithm.has_next() and (algorithm.evaluator.real < 400 or len(seen) < 3):
        algorithm.next()
        seen.update(individual.get("pid") for individual in algorithm.off)
    assert len(list(tmp_path.glob("pickled-*"))) == 1
    unpickled = [path.name.split("-")[1] for path in tmp_path.glob("unpickled-*")]
    assert len(unpickled) == len(set(unpickled)) == len(seen) == 3
    if before is not None:  # the problem took 4 MB three times
        sent = psutil.net_io_counters(pernic=True)["lo"].bytes_sent - before.bytes_sent - 3 * problem.weights.nbytes
        assert sent / algorithm.evaluator.real < 20_000


def test_work_is_taken_in_groups_and_never_held_back(runner):
    f = Evaluate(Slow(seconds=0.05))
    x = np.random.default_rng(0).random((40, 20)) < 0.5
    alone = copy.deepcopy(runner)
    number = alone.submit(f, x[0])
    assert alone.wait(timeout=10)[0] == number
    numbers = [alone.submit(f, row) for row in x]
    done = [alone.wait(timeout=10) for _ in numbers]
    assert sorted(number for number, _ in done) == numbers
    begun = [result["begun"] for _, result in done]
    sizes = [begun.count(value) for value in set(begun)]
    assert 1 < max(sizes) <= runner.group
    assert alone.wait(timeout=0.1) is None


def test_with_one_worker_a_run_is_the_same_as_without_a_cluster():
    with DaskRunner(n_workers=1) as runner:
        parallel = minimize(Slow(seconds=0), LKGOMEA(pop_size=16, runner=runner), ("n_evals", 120), seed=3)
    serial = minimize(Slow(seconds=0), LKGOMEA(pop_size=16), ("n_evals", 120), seed=3)
    np.testing.assert_array_equal(serial.F, parallel.F)
    np.testing.assert_array_equal(serial.archive.get("X"), parallel.archive.get("X"))


def test_subnetworks_are_evaluated_as_in_this_process(runner, pair):
    rng = torch.Generator().manual_seed(0)
    task = Task(validation=(torch.rand(16, *IMAGE, generator=rng), torch.randint(5, (16,), generator=rng)))
    problem = StitchProblem(pair, task, batch_size=8)
    ours = minimize(problem, LKGOMEA(pop_size=16, runner=runner), ("n_evals", 100), seed=1)
    for individual in ours.archive:
        np.testing.assert_array_equal(individual.F, Evaluate(problem)(individual.X)["F"])
    serial = minimize(problem, nsga2(pop_size=16), ("n_evals", 100), seed=1)
    parallel = minimize(problem, nsga2(pop_size=16), ("n_evals", 100), seed=1, evaluator=Evaluations(runner=runner))
    np.testing.assert_array_equal(serial.F, parallel.F)
    np.testing.assert_array_equal(serial.X, parallel.X)


def test_failures_of_an_evaluation_are_results(runner, tmp_path):
    problem = Harmful("error", tmp_path, seconds=0)
    evaluations = Evaluations(journal=tmp_path / "run.sqlite")
    result = minimize(problem, AsyncGA(pop_size=16, runner=runner), ("n_evals", 150), seed=1, evaluator=evaluations)
    assert evaluations.real == 150
    for x, _, failed in rows(tmp_path / "run.sqlite"):
        assert failed == ("ValueError: three ones" if np.frombuffer(x, bool)[:3].all() else "")
    assert 0 < evaluations.failed < 150
    assert not result.X[:, :3].all(1).any()


def test_workers_may_be_killed_at_any_time(fragile, tmp_path):
    """An evaluation is neither lost nor counted twice."""
    rng = np.random.default_rng(1)
    killed = []

    def kill(algorithm):
        """One worker, or both, while they evaluate: whenever a generation is complete, there is more in flight."""
        alive = [p for p in psutil.Process().children(recursive=True) if "spawn_main" in " ".join(p.cmdline())]
        for victim in rng.permutation(alive)[: {2: 1, 5: 2, 7: 1}.get(algorithm.n_gen, 0)]:
            victim.kill()
            killed.append(victim.pid)

    evaluations = Evaluations(journal=tmp_path / "run.sqlite")
    algorithm = AsyncGA(pop_size=16, runner=fragile, callback=kill)
    minimize(Slow(seconds=0.03), algorithm, ("n_evals", 160), seed=1, evaluator=evaluations)
    assert len(killed) >= 2
    written = rows(tmp_path / "run.sqlite")
    assert len(written) == len({x for x, _, _ in written}) == evaluations.real == 160
    assert evaluations.failed == 0


@pytest.mark.parametrize("harm", [pytest.param("exit", marks=pytest.mark.slow), "hang"])
def test_what_harms_its_worker_once_is_done_elsewhere(fragile, harm, tmp_path):
    problem = Harmful(harm, tmp_path, once=True, seconds=0.001)
    evaluations = Evaluations()
    minimize(problem, AsyncGA(pop_size=16, runner=fragile), ("n_evals", 100), seed=1, evaluator=evaluations)
    assert list(tmp_path.glob("harm-*"))
    assert (evaluations.real, evaluations.failed) == (100, 0)


@pytest.mark.slow
def test_a_worker_that_is_frozen_is_given_up(fragile, tmp_path):
    problem = Harmful("freeze", tmp_path, once=True, seconds=0.001)
    evaluations = Evaluations()
    minimize(problem, AsyncGA(pop_size=16, runner=fragile), ("n_evals", 100), seed=1, evaluator=evaluations)
    assert list(tmp_path.glob("harm-*"))
    assert (evaluations.real, evaluations.failed) == (100, 0)


def test_a_worker_that_does_not_answer_does_not_keep_the_end_waiting(fragile, monkeypatch):
    monkeypatch.setattr("pymoo_stitch.runners.dask.PARTING", 2.0)
    other = DaskRunner(fragile.client.scheduler.address)
    other.submit(Evaluate(Slow(seconds=0)), np.zeros(20, bool))
    assert other.wait(timeout=60) is not None
    pid = min(workers(other))
    os.kill(pid, signal.SIGSTOP)
    try:
        begun = time.monotonic()
        other.close()
        assert time.monotonic() - begun < 20
    finally:
        os.kill(pid, signal.SIGCONT)


def test_what_a_frozen_worker_has_keeps_no_other_result_waiting(fragile):
    """It has finished, and said so, and is frozen before anybody has fetched what it brought."""
    f = Evaluate(Slow(seconds=0.2))
    fragile.client.wait_for_workers(2)
    runner = copy.deepcopy(fragile)
    first = runner.submit(f, np.zeros(20, bool))
    runner._dispatch()
    future = next(iter(runner._futures.values()))
    while future.status != "finished":
        time.sleep(0.01)
    (address,) = runner.client.who_has([future])[future.key]
    pid = runner.client.run(os.getpid, workers=[address])[address]
    os.kill(pid, signal.SIGSTOP)
    try:
        others = [runner.submit(f, x) for x in np.eye(4, 20, dtype=bool)]
        until, done = time.monotonic() + 60, {}
        while len(done) < 1 + len(others) and time.monotonic() < until:
            if (completed := runner.wait(timeout=1)) is not None:
                done[completed[0]] = completed[1]
        assert set(done) == {first, *others}  # its own was done again
        assert not any("failed" in result for result in done.values())
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
        runner.cancel()


def test_what_kills_every_worker_has_failed_after_some_tries(fragile, tmp_path):
    problem = Harmful("exit", tmp_path, seconds=0.001)
    x = np.zeros((12, 20), bool)
    x[np.arange(12), np.arange(12) + 5] = True
    x[7, :3] = True
    f = Evaluate(problem)
    numbers = [fragile.submit(f, row) for row in x]
    done = dict(fragile.wait() for _ in numbers)
    assert [number for number in numbers if "failed" in done[number]] == [numbers[7]]
    assert "died" in done[numbers[7]]["failed"]
    assert len(list(tmp_path.glob("harm-*"))) <= 6


@pytest.mark.slow
def test_who_kills_workers_does_not_keep_others_waiting_nor_waits_for_ever(fragile, tmp_path):
    f = Evaluate(Harmful("exit", tmp_path, seconds=0.005))
    killer = fragile.submit(f, np.ones(20, bool))
    rng = np.random.default_rng(0)
    others, done = 0, {}
    until = time.monotonic() + 60
    while killer not in done and time.monotonic() < until:
        while fragile._submitted - len(done) < 40:
            fragile.submit(f, rng.random(20) < [0] * 3 + [0.5] * 17)
        if (completed := fragile.wait(timeout=1)) is not None:
            done[completed[0]] = completed[1]
            others += completed[0] != killer
    assert "died" in done[killer]["failed"]
    assert others > 0
    assert not any("failed" in result for number, result in done.items() if number != killer)


def test_what_has_changed_is_sent_anew_and_what_has_not_is_not(runner, tmp_path):
    problem, x = Large(tmp_path, seconds=0), np.zeros(20, bool)
    one = copy.deepcopy(runner)

    def evaluate():
        """How often the problem was unpickled by now: at most once in each of the two workers, unless it is sent
        again."""
        for _ in range(4):
            one.submit(Evaluate(problem), x)
        for _ in range(4):
            one.wait(timeout=20)
        one.cancel()
        return len(list(tmp_path.glob("unpickled-*")))

    assert [evaluate() for _ in range(3)][-1] <= 2
    problem.weights[0] = 1
    before = len(list(tmp_path.glob("unpickled-*")))
    assert evaluate() > before


def test_workers_that_cannot_load_the_problem_are_an_error_not_a_result(runner):
    class Elsewhere:
        def __reduce__(self):
            return __import__, ("a_module_that_nobody_has",)

        def __call__(self, x):
            return {}

    other = copy.deepcopy(runner)
    other.submit(Elsewhere(), np.zeros(3))
    with pytest.raises(RuntimeError, match=r"cannot evaluate.*a_module_that_nobody_has.*same packages"):
        other.wait(timeout=20)
    other.cancel()


def test_called_a_failure_leaves_nothing_behind(runner):
    def f(x):
        if x[0]:
            raise ValueError("one")
        return {"F": float(x[1])}

    other = copy.deepcopy(runner)
    with pytest.raises(RuntimeError, match="an evaluation failed: ValueError: one"):
        other(f, np.eye(4))
    assert [result["F"] for result in other(f, np.eye(4)[1:])] == [1, 0, 0]


@pytest.mark.slow
def test_threads_of_a_worker_share_a_problem(pair):
    rng = torch.Generator().manual_seed(0)
    task = Task(validation=(torch.rand(16, *IMAGE, generator=rng), torch.randint(5, (16,), generator=rng)))
    problem = StitchProblem(pair, task, batch_size=8)
    options = {"n_workers": 1, "threads_per_worker": 4, "host": "127.0.0.1", "dashboard_address": None}
    with LocalCluster(**options) as cluster, DaskRunner(cluster, group=2) as runner:
        assert runner.n_workers == 4
        result = minimize(problem, AsyncGA(pop_size=32, runner=runner), ("n_evals", 150), seed=1)
    assert result.algorithm.evaluator.failed == 0
    for individual in result.archive:
        np.testing.assert_array_equal(individual.F, Evaluate(problem)(individual.X)["F"])


def test_copies_have_the_same_workers_and_nothing_to_do(runner):
    f = Evaluate(Slow(seconds=0.01))
    x = np.zeros((3, 20), bool)
    numbers = [runner.submit(f, row) for row in x]
    for other in (copy.deepcopy(runner), pickle.loads(pickle.dumps(runner))):
        assert other.wait(timeout=1) is None
        assert other.n_workers == runner.n_workers
        number = other.submit(f, x[0])
        assert other.wait(timeout=20)[0] == number
        if other.client is not runner.client:
            other.close()
    assert sorted(runner.wait(timeout=20)[0] for _ in numbers) == numbers


def test_what_is_cancelled_is_not_given_back(runner):
    f = Evaluate(Slow(seconds=0.05))
    for row in np.eye(20, dtype=bool):
        runner.submit(f, row)
    runner.wait(timeout=20)
    runner.cancel()
    assert runner.wait(timeout=0.5) is None
    number = runner.submit(f, np.ones(20, bool))
    assert runner.wait(timeout=20)[0] == number


@pytest.mark.slow
def test_a_run_waits_for_workers_and_says_so(fragile, monkeypatch):
    monkeypatch.setattr("pymoo_stitch.runners.dask.DESERTED", 1.0)
    fragile.client.cluster.scale(0)
    while fragile.client.nthreads():
        time.sleep(0.1)
    number = fragile.submit(Evaluate(Slow(seconds=0)), np.zeros(20, bool))
    with pytest.warns(RuntimeWarning, match="no worker for 1 seconds"):
        assert fragile.wait(timeout=4) is None
    monkeypatch.undo()
    fragile.client.cluster.scale(1)
    assert fragile.wait(timeout=60)[0] == number


def test_a_run_whose_workers_have_paused_says_so(fragile, monkeypatch):
    def set_status(name, dask_worker):
        dask_worker.status = Status[name]

    monkeypatch.setattr("pymoo_stitch.runners.dask.DESERTED", 1.0)
    fragile.client.wait_for_workers(2)
    fragile.client.run(set_status, "paused")
    number = fragile.submit(Evaluate(Slow(seconds=0)), np.zeros(20, bool))
    with pytest.warns(RuntimeWarning, match="2 of the workers have paused, since their memory is nearly full"):
        assert fragile.wait(timeout=4) is None
    fragile.client.run(set_status, "running")
    assert fragile.wait(timeout=60)[0] == number


def test_a_cluster_that_is_there_is_used_and_stays(runner, tmp_path):
    address = runner.client.scheduler.address
    f = Evaluate(Slow(seconds=0))
    file = tmp_path / "scheduler.json"
    file.write_text(json.dumps({"address": address}))  # as `dask scheduler --scheduler-file` does
    with Client(address, set_as_default=False) as client:
        for given in (
            {"cluster": address},
            {"cluster": client},
            {"cluster": runner.client.cluster},
            {"scheduler_file": file},
        ):
            with DaskRunner(**given) as other:
                number = other.submit(f, np.zeros(20, bool))
                assert other.wait(timeout=20)[0] == number
        assert client.status == "running"
    assert len(workers(runner)) == 2


def test_nothing_is_left_on_a_cluster_that_stays(runner):
    def plugins():
        return {
            name
            for names in runner.client.run(lambda dask_worker: list(dask_worker.plugins)).values()
            for name in names
        }

    before = plugins()
    with DaskRunner(runner.client.scheduler.address) as other:
        for _ in range(2):
            minimize(Slow(seconds=0), AsyncGA(pop_size=8, runner=other), ("n_evals", 20), seed=1)
        assert len(plugins() - before) == 1  # the same problem, sent once for both
    assert plugins() == before


@pytest.mark.slow
def test_a_search_may_begin_while_a_worker_cannot_be_reached(fragile):
    """It begins when the scheduler has given that worker up."""
    fragile.client.wait_for_workers(2)
    frozen = psutil.Process(next(iter(workers(fragile))))
    frozen.suspend()
    try:
        number = fragile.submit(Evaluate(Slow(seconds=0)), np.zeros(20, bool))
        assert fragile.wait(timeout=60)[0] == number
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            frozen.resume()


def test_what_never_reaches_every_worker_is_an_error_that_says_how_to_go_on(runner, monkeypatch):
    registered = runner.client.register_plugin

    def unreachable(*given, **options):
        registered(*given, **options)  # the scheduler keeps it, whatever comes of sending it
        raise TimeoutError("timed out connecting to tcp://10.0.0.11:4000")

    monkeypatch.setattr("pymoo_stitch.runners.dask.GIVEN_UP", 0.0)
    monkeypatch.setattr(runner.client, "register_plugin", unreachable)

    def kept(dask_scheduler):
        return set(dask_scheduler.worker_plugins)

    before = runner.client.run_on_scheduler(kept)
    with pytest.raises(RuntimeError, match=r"10\.0\.0\.11.*shorter DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL"):
        runner.submit(Evaluate(Slow(n_var=10)), np.zeros(10, bool))
    assert runner.client.run_on_scheduler(kept) == before


def test_more_workers_can_use_more(fragile):
    before = fragile.ahead
    fragile.client.cluster.scale(3)
    until = time.monotonic() + 60
    while fragile.ahead == before and time.monotonic() < until:
        time.sleep(0.1)
    assert fragile.ahead == before // 2 * 3


def test_a_cluster_that_scales_by_what_there_is_to_do_starts_workers(pair):
    """It has none when the search begins."""
    rng = torch.Generator().manual_seed(0)
    task = Task(validation=(torch.rand(16, *IMAGE, generator=rng), torch.randint(5, (16,), generator=rng)))
    problem = StitchProblem(pair, task, batch_size=8)
    settings = {"n_workers": 0, "threads_per_worker": 1, "host": "127.0.0.1", "dashboard_address": None}
    with LocalCluster(**settings) as cluster:
        cluster.adapt(minimum=0, maximum=1, interval="100ms")
        with DaskRunner(cluster) as runner:
            assert (runner.n_workers, runner.ahead) == (0, 16)
            evaluations = Evaluations()
            minimize(problem, AsyncNSGA2(pop_size=20, runner=runner), ("n_evals", 40), seed=1, evaluator=evaluations)
            assert evaluations.real == 40


@pytest.mark.parametrize("ahead", [3, 11])
def test_workers_that_join_after_a_search_has_begun_get_work(pair, ahead):
    """How many evaluations are under way follows from the workers there are, not from those at the beginning."""
    task = Task(validation=(torch.rand(16, *IMAGE), torch.arange(16) % 5))
    algorithm = AsyncNSGA2(pop_size=20)
    algorithm.setup(StitchProblem(pair, task, batch_size=8), ("n_evals", 60), seed=1)
    algorithm.next()
    algorithm.runner.ahead = ahead
    for _ in range(30):
        algorithm.next()
        assert len(algorithm.pending) - len(algorithm._queue) == ahead - 1  # one has been completed


def test_a_dashboard_that_cannot_be_shown_is_not_named(runner, monkeypatch):
    monkeypatch.setattr("pymoo_stitch.runners.dask.find_spec", lambda name: None)
    assert runner.dashboard is None
    monkeypatch.setattr("pymoo_stitch.runners.dask.find_spec", lambda name: name)
    assert runner.dashboard.startswith("http://127.0.0.1:")


def test_only_this_machine_can_reach_it(runner):
    pids = {os.getpid(), *(p.pid for p in psutil.Process().children(recursive=True))}
    listening = [c for c in psutil.net_connections("inet") if c.pid in pids and c.status == psutil.CONN_LISTEN]
    assert listening
    assert {c.laddr.ip for c in listening} <= {"127.0.0.1", "::1"}


SCHEDULER = """
import sys, time
from distributed import LocalCluster
if __name__ == "__main__":
    cluster = LocalCluster(n_workers=1, threads_per_worker=1, host="127.0.0.1", dashboard_address=None)
    print(cluster.scheduler_address, flush=True)
    time.sleep(600)
"""


def test_a_lost_scheduler_is_an_error_that_says_how_to_go_on(tmp_path):
    cluster = subprocess.Popen([sys.executable, "-c", SCHEDULER], stdout=subprocess.PIPE, text=True)
    try:
        runner = DaskRunner(cluster.stdout.readline().strip())
        algorithm = AsyncGA(pop_size=8, runner=runner)
        journal = tmp_path / "run.sqlite"
        algorithm.setup(Slow(), termination=("n_evals", 2_000), seed=1, evaluator=Evaluations(journal=journal))
        while algorithm.evaluator.real < 20:
            algorithm.next()
        cluster.kill()
        with pytest.raises(ConnectionError, match=r"lost.*journal"):
            algorithm.run()
        other = copy.deepcopy(runner)  # with nothing under way
        other.submit(Evaluate(algorithm.problem), np.zeros(20, bool))
        with pytest.raises(ConnectionError, match="lost"):
            other.wait()
        runner.close()
        assert len(rows(journal)) == algorithm.evaluator.real >= 20
    finally:
        cluster.kill()
        cluster.wait()
        cluster.stdout.close()


SEARCH = """
import os, sys
from conftest import IMAGE, TESTS
from cluster_problems import Slow
from pymoo.optimize import minimize
from pymoo_stitch import Evaluations
from pymoo_stitch.algorithms import AsyncGA, nsga2
from pymoo_stitch.runners import DaskRunner
if __name__ == "__main__":
    with DaskRunner(n_workers=2) as runner:
        print(*runner.client.run(os.getpid).values(), flush=True)
        ours = {"algorithm": AsyncGA(pop_size=16, runner=runner), "evaluator": Evaluations(journal=sys.argv[2])}
        theirs = {"algorithm": nsga2(pop_size=16), "evaluator": Evaluations(journal=sys.argv[2], runner=runner)}
        options = ours if sys.argv[1] == "ours" else theirs
        result = minimize(Slow(), termination=("n_evals", 3_000), seed=1, **options)
    print(result.algorithm.evaluator.real, len(result.F), flush=True)
"""


def gone(pids, seconds=20):
    until = time.monotonic() + seconds
    while time.monotonic() < until and any(psutil.pid_exists(pid) for pid in pids):
        time.sleep(0.1)
    return not any(psutil.pid_exists(pid) for pid in pids)


def count(journal):
    """Evaluations in a journal, seen without getting in the way of who is about to make it."""
    try:
        with closing(sqlite3.connect(f"file:{journal}?mode=ro", uri=True)) as db:
            return db.execute("select count(*) from evaluations").fetchone()[0]
    except sqlite3.OperationalError:
        return 0


def search(which, journal):
    process = subprocess.Popen(
        [sys.executable, "-c", SEARCH, which, str(journal)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    pids = [int(pid) for pid in process.stdout.readline().split()]
    until = time.monotonic() + 60
    while time.monotonic() < until and not count(journal):
        time.sleep(0.1)
    time.sleep(0.5)
    return process, pids


@pytest.mark.slow
@pytest.mark.parametrize("which", ["ours", "theirs"])
def test_an_interrupted_search_ends_cleanly(which, tmp_path):
    """Ctrl-C reaches all processes of a terminal's group."""
    process, pids = search(which, tmp_path / "run.sqlite")
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "interrupted" in err
    assert "KeyboardInterrupt" not in err
    real, found = map(int, out.split())
    assert 0 < real == len(rows(tmp_path / "run.sqlite")) < 3_000
    assert found > 0
    assert gone(pids)


@pytest.mark.slow
def test_workers_do_not_outlive_a_search_that_is_killed(tmp_path):
    process, pids = search("ours", tmp_path / "run.sqlite")
    process.kill()
    _, error = process.communicate()
    assert gone(pids)
    assert rows(tmp_path / "run.sqlite"), error


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_workers": 0}, "n_workers must be at least 1, but is 0"),
        ({"group": 0}, "group must be at least 1"),
        ({"time_limit": -1}, "time_limit must be a time in seconds, but is -1"),
        ({"cluster": "tcp://127.0.0.1:1", "n_workers": 2}, "has its own workers"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        DaskRunner(**options)


def test_a_scheduler_that_is_not_there():
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "1s"}),
        pytest.raises(ConnectionError, match="no Dask scheduler"),
    ):
        DaskRunner("tcp://127.0.0.1:1")


def test_what_is_waited_for_is_told_and_the_limit_can_be_set(monkeypatch, capfd):
    monkeypatch.setattr("pymoo_stitch.runners.dask.PATIENCE", 0.1)
    with pytest.raises(
        ConnectionError, match=r"no Dask scheduler tcp://127.0.0.1:1, .* within 1 s \(connect_timeout\)"
    ):
        DaskRunner("tcp://127.0.0.1:1", connect_timeout=1)
    assert capfd.readouterr().err == "Waiting for the Dask scheduler tcp://127.0.0.1:1 to answer, 1 s at most.\n"


DYING = """
import os
if __name__ == "__main__":
    from pymoo_stitch.runners import DaskRunner
    DaskRunner(n_workers=1)
else:
    os._exit(3)  # in a worker
"""


def test_workers_that_cannot_start_are_one_error_not_pages(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(DYING)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "no worker process of the cluster is left: they ended with exit code 3" in done.stderr.splitlines()[-1]
    assert done.stderr.count("Traceback") == 1


KILLED = """
import os
from pathlib import Path
from pymoo_stitch.runners import DaskRunner
from tqdm import tqdm

def f(x):
    if not Path("killed").exists():
        Path("killed").touch()
        tqdm(disable=True)
        os.kill(os.getpid(), 9)
    return {"F": [1.0]}

if __name__ == "__main__":
    with DaskRunner(n_workers=1) as runner:
        runner.submit(f, [0])
        print(runner.wait()[1]["F"])
"""


@pytest.mark.slow
def test_nothing_is_left_in_temporary_folders_nor_of_semaphores_by_workers_that_are_killed(tmp_path):
    script, folder = tmp_path / "script.py", tmp_path / "temporary"
    script.write_text(KILLED)
    folder.mkdir()
    environment = os.environ | {"TMPDIR": str(folder)}
    options = {"env": environment, "cwd": tmp_path, "timeout": 120}
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, **options)
    assert done.stdout == "[1.0]\n", done.stderr
    assert (tmp_path / "killed").exists()
    assert done.stderr.replace("Waiting for worker processes to start.\n", "") == ""
    assert [path for path in folder.rglob("*") if not path.name.startswith("torchinductor")] == []


def test_each_worker_sees_its_gpu(monkeypatch):
    """There is none, but the workers' environment is what it would be."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    with DaskRunner(per_gpu=3) as runner:
        assert runner.n_workers == 2 * 3
        found = runner.client.run(lambda: os.environ["CUDA_VISIBLE_DEVICES"])
    assert sorted(found.values()) == ["4", "7"]
