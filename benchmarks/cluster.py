"""What a Dask cluster costs and brings.

    python benchmarks/cluster.py --data ../shared/data
    python benchmarks/cluster.py --only overhead

Parts: overhead (1 minute), cifar (5 minutes), simulated (8 minutes). The folder holds `networks.py`, as in `engine.py`.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np
import psutil
from binary_problems import TrapInverseTrap
from pymoo.optimize import minimize
from record import record

from pymoo_stitch import DaskRunner, Evaluations
from pymoo_stitch.algorithms import LKGOMEA, AsyncGA
from pymoo_stitch.runners import SerialRunner, SimulatedRunner


class Nothing(TrapInverseTrap):
    """As good as no evaluation."""

    def __init__(self, n_var=455):
        super().__init__(n_var, seed=7)


def identity(x):
    return x


def overhead(arguments, n=1_500):
    """Milliseconds per evaluation: what a run takes on the cluster beyond what it takes in this process, and beyond
    what Dask takes for as many bare tasks."""
    problem = Nothing()
    x = np.random.default_rng(0).random((n, problem.n_var)) < 0.5
    with (
        tempfile.TemporaryDirectory() as folder,
        DaskRunner(n_workers=2) as runner,
        DaskRunner(n_workers=2, group=1) as single,
    ):
        for each in (runner, single):
            minimize(problem, AsyncGA(pop_size=64, runner=each), ("n_evals", 200), seed=2)  # warm up

        def bare():
            """As many tasks as a run has, as many in flight, results taken as they come."""
            from distributed import as_completed

            client, todo = single.client, iter(x)
            futures = as_completed(
                [client.submit(identity, next(todo), pure=False) for _ in range(64)],
                with_results=True,
                loop=client.loop,
            )
            for _ in futures:
                row = next(todo, None)
                if row is not None:
                    futures.add(client.submit(identity, row, pure=False))

        def run(each, journal=None):
            evaluations = Evaluations(journal=journal)
            minimize(problem, AsyncGA(pop_size=64, runner=each), ("n_evals", n), seed=1, evaluator=evaluations)

        def timed(f, *args):
            start = time.perf_counter()
            f(*args)
            return 1e3 * (time.perf_counter() - start) / n

        rounds = []
        for number in range(3):
            before = psutil.net_io_counters(pernic=True)["lo"].bytes_sent
            on_cluster = timed(run, runner, f"{folder}/{number}.sqlite")
            sent = (psutil.net_io_counters(pernic=True)["lo"].bytes_sent - before) / n
            rounds.append(
                [
                    timed(bare),
                    timed(run, SerialRunner()),
                    on_cluster,
                    timed(run, single, f"{folder}/{number}-1.sqlite"),
                    sent,
                ]
            )
            print(f"  round {number + 1} of 3", flush=True)
    task, alone, grouped, ungrouped, sent = np.median(rounds, axis=0)
    print(
        "2 workers, evaluations that do nothing, 455 variables, 64 pending; ms per evaluation, medians of three rounds"
    )
    print(f"  a bare task of Dask                          {task:8.2f}")
    print(f"  AsyncGA in this process                      {alone:8.2f}")
    print(f"  AsyncGA on the cluster, journal, groups of 8 {grouped:8.2f}   beyond Dask's task {grouped - task:+.2f}")
    print(
        f"  AsyncGA on the cluster, journal, one by one  {ungrouped:8.2f}   beyond Dask's task {ungrouped - task:+.2f}"
    )
    print(f"  bytes per evaluation on the loopback, groups of 8: {sent:,.0f}")
    row = {"task_ms": task, "alone_ms": alone, "grouped_ms": grouped, "ungrouped_ms": ungrouped, "bytes": sent}
    record(
        "cluster-overhead", [row | {"over_task": grouped / task}], noise={"bytes": 0.1, "over_task": 0.3}, evaluations=n
    )


CIFAR = """
import sys, torch
torch.set_num_threads(1)
sys.path.insert(0, {benchmarks!r})
from cluster import search
from trained import cifar10_problem
problem = cifar10_problem({data!r}, 100)
print("ready", flush=True)
sys.stdin.readline()
print(search(problem, None, {n}), flush=True)
"""


def search(problem, runner, n):
    """Seconds that so many evaluations take."""
    start = time.perf_counter()
    minimize(problem, LKGOMEA(pop_size=64, runner=runner), ("n_evals", n), seed=1)
    return time.perf_counter() - start


def cifar(arguments, n=96):
    import torch
    from trained import cifar10_problem

    torch.set_num_threads(1)
    problem = cifar10_problem(arguments.data, 100)
    times = {}
    for workers in (1, 2):
        with DaskRunner(n_workers=workers) as runner:
            search(problem, runner, 32)  # each has the problem and has begun
            times[workers] = search(problem, runner, n)
            print(f"  {workers} of 2", flush=True)
    code = CIFAR.format(benchmarks=str(pathlib.Path(__file__).parent), data=str(arguments.data), n=n // 2)
    processes = [
        subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    both = max(float(process.communicate()[0]) for process in processes)
    alone = search(problem, None, n // 2)
    print(f"CIFAR-10 pair, 100 images, {n} evaluations, one thread per process")
    print(f"  one worker {times[1]:.1f} s, two {times[2]:.1f} s: speed-up {times[1] / times[2]:.2f}")
    print(f"  two independent processes do as much as one in {both / alone:.2f} of its time: {2 * alone / both:.2f}")
    print(f"  of that: {times[1] / times[2] / (2 * alone / both):.2f}")
    row = {"one_s": times[1], "two_s": times[2], "speed_up": times[1] / times[2], "independent": 2 * alone / both}
    row["of_that"] = row["speed_up"] / row["independent"]
    record("cluster-two-workers", [row], noise={"of_that": 0.15}, evaluations=n, images=100)


def simulated(arguments):
    """Seconds per evaluation as in the paper, and the scheduler's time for each."""
    print("simulated workers, log-normal times of 4 s (σ = 0.5), the scheduler taking time for each evaluation")
    rows = []
    for n_workers, n in ((90, 512), (1_000, 2_000)):
        for overhead in arguments.overheads:
            runner = SimulatedRunner(
                n_workers, lambda x, random_state: 4 * random_state.lognormal(-0.125, 0.5), overhead=overhead / 1e3
            )
            algorithm = LKGOMEA(pop_size=n, runner=runner).setup(
                TrapInverseTrap(100, seed=7), termination=("n_evals", 10**7), seed=1
            )
            while algorithm.evaluator.real < 20 * n_workers:
                algorithm.next()
            rows.append({"workers": n_workers, "n": n, "overhead_ms": overhead, "utilisation": runner.utilisation})
            print(
                f"  {n_workers:5,} workers, n = {n:5,}, {overhead} ms: utilisation {runner.utilisation:.3f}", flush=True
            )
    record("cluster-simulated", rows, by=("workers", "overhead_ms"), noise={"utilisation": 0.03})


PARTS = {"overhead": overhead, "cifar": cifar, "simulated": simulated}

if __name__ == "__main__":
    os.environ.setdefault("PYTHONPATH", str(pathlib.Path(__file__).parent))  # workers import the problems from here
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=pathlib.Path, default=pathlib.Path("../shared/data"), help="default: ../shared/data"
    )
    parser.add_argument("--only", choices=PARTS, help="one part")
    parser.add_argument(
        "--overheads", type=float, nargs="+", default=[1, 2, 3], help="ms per evaluation, for simulated"
    )
    arguments = parser.parse_args()
    for name, part in PARTS.items():
        if arguments.only in (None, name):
            start = time.perf_counter()
            part(arguments)
            print(f"[{name}: {time.perf_counter() - start:.0f} s]\n", flush=True)
