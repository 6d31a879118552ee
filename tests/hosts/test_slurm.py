"""The search on a real SLURM of one node. As root, with slurm-wlm and munge installed: pytest -m hosts -n 0 -s
tests/hosts"""

import importlib.util
import re
import sys
import time
from contextlib import contextmanager

import netns
import pytest
import slurm
from cluster import DASK, POP_SIZE, PROBLEM, Cluster
from netns import hosts

ON_SLURM = PROBLEM.with_name("on_slurm.py")
REASON = netns.missing() or slurm.missing()
if REASON is None and importlib.util.find_spec("dask_jobqueue") is None:
    REASON = "pip install -e '.[slurm]' for dask-jobqueue."
pytestmark = [pytest.mark.hosts, pytest.mark.skipif(bool(REASON), reason=REASON or "")]

BUDGET, SECONDS = 120, 0.5


@contextmanager
def searching(folder, budget=BUDGET, walltime="00:10:00", *how):
    """A search on three jobs of a node."""
    with hosts(folder, node=5) as made:
        (folder / "log" / "jobs").mkdir(parents=True)
        node = made["node"]
        with slurm.slurm(node, folder) as commands:
            one = Cluster(node, node, [node], folder)
            arguments = [str(PROBLEM), str(one.log), str(one.journal), str(budget), str(SECONDS), walltime, *how]
            one.process = node.start(sys.executable, str(ON_SLURM), *arguments, **commands.environment)
            yield one, commands


def finished(one, budget=BUDGET, seconds=300):
    one.ends(one.process, seconds)
    return one.check(budget)


def test_jobs_are_cancelled_and_requeued_in_the_middle(tmp_path):
    with searching(tmp_path) as (one, commands):
        one.wait_for(BUDGET // 4)
        begin = time.time()
        first, second, *_ = sorted(commands.jobs())
        commands("scancel", first)
        commands("scontrol", "requeue", second)
        repeated = finished(one)
        assert first not in commands.jobs()
        print(
            "\n| one of three SLURM jobs cancelled, one requeued | "
            f"{time.time() - begin:.0f} s to the end | {repeated} |"
        )
        assert 0 < repeated <= POP_SIZE


@pytest.mark.parametrize("minimum", [3, 0])
def test_workers_leave_before_the_walltime_and_adaptive_scaling_replaces_them(tmp_path, minimum):
    with searching(tmp_path, 600, "00:03:00", str(minimum)) as (one, commands):
        one.wait_for(1)
        begin = time.time()
        repeated = finished(one, 600, 600)
        workers = {path.name for path in one.log.glob("*-*.txt")}
        print(
            f"\n| SLURM jobs of 90 s, adaptive from {minimum} on | {time.time() - begin:.0f} s to the end, "
            f"{len(workers)} workers in all | {repeated} |"
        )
        assert len(workers) > 3
        assert repeated <= POP_SIZE
        one.wait_until(lambda: not commands.jobs(), 60)


def test_a_walltime_that_ends_all_workers(tmp_path):
    """Without adaptive scaling nobody asks for others: the search waits and says so, and goes on when somebody does."""
    with searching(tmp_path, 2_000, "00:02:00") as (one, commands):
        one.wait_for(1)
        one.wait_until(lambda: "has had no worker for 60 seconds" in one.head.said())
        assert one.process.poll() is None
        assert not commands.jobs()
        before = one.count()
        (address,) = {
            re.search(r"to connect to: +(tcp://\S+)", path.read_text())[1] for path in one.log.glob("jobs/*.err")
        }
        one.head.start(*DASK, "worker", address, "--host", one.head.address, "--nthreads", "1")
        one.wait_for(before + POP_SIZE)
