"""A cluster as docs/cluster.md starts it from the command line, on hosts of their own, and what a fault costs it."""

import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from netns import Host, hosts

from pymoo_stitch import Journal

PROBLEM = Path(__file__).with_name("problem.py")
DASK = (sys.executable, "-m", "dask")
SLOTS = 2
"""Evaluations at a time on each worker host."""
POP_SIZE = 32
"""Evaluations that are requested at a time."""
RESTARTED = 'while :; do "$@"; sleep 1; done'
"""What starts a worker again when it has ended."""


@dataclass
class Cluster:
    """A scheduler, worker hosts and the host of the search."""

    scheduler: Host
    head: Host
    workers: list[Host]
    folder: Path
    protocol: str = "tcp"
    environment: dict[str, str] = field(default_factory=dict)
    journal: Path = field(init=False)

    def __post_init__(self) -> None:
        self.journal = self.folder / "run.sqlite"

    @property
    def address(self) -> str:
        return f"{self.protocol}://{self.scheduler.address}:8786"

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def start_scheduler(self) -> subprocess.Popen:
        where = self.scheduler.address
        options = [
            "--protocol",
            self.protocol,
            "--host",
            where,
            "--port",
            "8786",
            "--dashboard-address",
            f"{where}:8787",
        ]
        return self.scheduler.start(*DASK, "scheduler", *options, **self.environment)

    def start_worker(self, host: Host, *, restarted: bool = True) -> subprocess.Popen:
        """Workers, as a rule such that are started again when they end."""
        where = ["--host", host.address, "--dashboard-address", f"{host.address}:0"]
        size = ["--nworkers", "1", "--nthreads", str(SLOTS), "--local-directory", str(self.folder / host.name)]
        command = [*DASK, "worker", self.address, *where, *size]
        loop = ["sh", "-c", RESTARTED, "sh"] if restarted else []
        return host.start(*loop, *command, **self.environment)

    def search(self, budget: int, seconds: float, journal: Path | None = None, **environment: str) -> subprocess.Popen:
        options = ["--option", f"log={self.log}", "--option", f"seconds={seconds}", "--scheduler", self.address]
        more = ["--budget", str(budget), "--pop-size", str(POP_SIZE), "--output", str(journal or self.journal)]
        command = [sys.executable, "-m", "pymoo_stitch", "search", str(PROBLEM), *options, *more]
        return self.head.start(*command, **(self.environment | environment))

    # --------------------------------------------------------------------------------------------- what has happened

    def count(self, journal: Path | None = None) -> int:
        """Evaluations in the journal so far."""
        try:
            with closing(sqlite3.connect(f"file:{journal or self.journal}?mode=ro", uri=True)) as db:
                return db.execute("select count(*) from evaluations").fetchone()[0]
        except sqlite3.OperationalError:
            return 0

    def wait_until(self, what: Callable[[], object], seconds: float = 400) -> None:
        until = time.monotonic() + seconds
        while not what():
            if time.monotonic() > until:
                raise TimeoutError(f"not within {seconds:.0f} s.\n{self.all_said()}")
            time.sleep(0.1)

    def wait_for(self, count: int, journal: Path | None = None) -> None:
        self.wait_until(lambda: self.count(journal) >= count)

    def ends(self, process: subprocess.Popen, seconds: float = 500) -> str:
        """What a search said that has ended well."""
        try:
            code = process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"the search has not ended within {seconds} s.\n{self.all_said()}") from None
        assert code == 0, self.all_said()
        return self.head.said()

    def all_said(self) -> str:
        return "\n".join(
            f"--- {host.name}\n{host.said()[-6_000:]}" for host in (self.scheduler, *self.workers, self.head)
        )

    def calls(self) -> tuple[Counter, Counter]:
        """How often the evaluation of each subnetwork has begun and ended, on all workers together."""
        counts = {"begun": Counter(), "ended": Counter()}
        for path in self.log.glob("*.txt"):
            for line in path.read_text().splitlines():
                what, _, *keys = line.split()
                counts[what].update(keys)
        return counts["begun"], counts["ended"]

    def check(self, budget: int, journal: Path | None = None) -> int:
        """The budget is reached, nothing was lost, nothing counted twice, and the journal agrees with the workers: how
        many evaluations were begun more than once."""
        rows = list(Journal(journal or self.journal, create=False).rows())
        assert len(rows) == budget
        assert len({row.key for row in rows}) == budget
        assert {row.result["failed"] for row in rows} == {""}
        assert all(np.isfinite(row.result["F"]).all() for row in rows)
        begun, ended = self.calls()
        assert {row.key for row in rows} == set(ended), "a result was lost, or invented"
        return begun.total() - len(begun)

    def tell(self, fault: str, budget: int, seconds: float, window: tuple[float, float]) -> None:
        """Print what a fault has cost as a row of a table: how much longer the run took than if all workers had worked
        all the time, evaluations repeated, and the workers' utilisation while it lasted.

        :param window: when it began and ended.
        """
        results = [row.result for row in Journal(self.journal, create=False).rows()]
        groups = {(result["worker"], result["begun"], result["ended"]) for result in results}
        first, last = min(begun for _, begun, _ in groups), max(ended for _, _, ended in groups)
        slots = SLOTS * len(self.workers)
        begin, end = max(window[0], first), min(window[1], last)
        busy = sum(max(0.0, min(end, ended) - max(begin, begun)) for _, begun, ended in groups)
        utilisation = busy / (slots * (end - begin))
        lost = last - first - budget * seconds / slots
        print(f"\n| {fault} | {lost:.0f} s | {self.check(budget)} | {100 * utilisation:.0f} % |")


@contextmanager
def cluster(folder: Path, *, protocol: str = "tcp", n_hosts: int = 2, **environment: str) -> Iterator[Cluster]:
    """A cluster of which nothing has been started yet; it goes with all that was."""
    workers = {f"worker{i}": 11 + i for i in range(n_hosts)}
    (folder / "log").mkdir()
    with hosts(folder, scheduler=1, head=2, **workers) as made:
        yield Cluster(
            made["scheduler"], made["head"], [made[name] for name in workers], folder, protocol, dict(environment)
        )
