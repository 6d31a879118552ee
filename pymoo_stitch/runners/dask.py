"""Evaluations on the workers of a Dask cluster."""

import asyncio
import json
import logging
import math
import os
import queue
import re
import signal
import sys
import threading
import time
import uuid
import warnings
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import cloudpickle
import dask
import numpy as np
from distributed import Client, Future, KilledWorker, LocalCluster, Nanny, Status, get_worker
from distributed.diagnostics.plugin import WorkerPlugin
from tqdm import tqdm

from ..util.digests import digest
from .base import Function, Result, Runner, attempt
from .guard import check_guard
from .placement import gpu_of, visible_gpus

TRIES = 3
"""After this many workers have died while evaluating a group, each of its genotypes is tried alone, and after as many
more it has failed. (Other clusters than the runner's own have a setting for it,
`distributed.scheduler.allowed-failures`.)"""

DESERTED = 60.0
"""Seconds without a worker, or without a result, after which the user is told why."""

PATIENCE = 2.0
"""Seconds after which the user is told what the runner is waiting for."""

PARTING = 10.0
"""Seconds that workers have in the end to forget what was sent to them."""

TRIM = "MALLOC_TRIM_THRESHOLD_"
"""How many free bytes malloc keeps before it returns memory to the system."""

GIVEN_UP = 360.0
"""Seconds in which a worker that cannot be reached has to come back, or to be given up: Dask's scheduler does that
after five minutes at most."""

TOGETHER = 5.0
"""Seconds in which results that are fetched together have to be there; beyond, each is fetched alone, again and again:
the host of a worker that does not answer keeps what it has until the scheduler gives it up, and keeps nothing else
waiting."""

LATENCY = 0.05
"""An upper bound of the seconds from the end of a group until the proposals that follow from it reach the worker."""


@dataclass
class _Job:
    number: int
    function: str  # the name by which workers know the function
    x: np.ndarray
    needed: float | None = None
    is_suspect: bool = False  # its worker died


class DaskRunner(Runner):
    """Evaluates on a Dask cluster: one that it starts on this machine and stops, or an existing one.

    >>> with DaskRunner(n_workers=2) as runner:
    ...     evaluations = Evaluations(runner=runner)
    ...     options = {"seed": 1, "evaluator": evaluations}
    ...     result = minimize(get_problem("digits"), LKGOMEA(pop_size=16), ("n_evals", 40), **options)
    >>> evaluations.real
    40

    The problem goes to each worker once, also to those that join later; an evaluation sends a genotype and its result.
    Workers may come and go: what one of them was doing is done by another. An evaluation that repeatedly kills its
    workers, or takes too long, has failed.

    When more is waiting than the workers can begin with, each takes a *group* that it evaluates together, which shares
    work; nothing waits for a group to be full.

    :param cluster: the address of a scheduler, a `Client`, or a cluster object (dask-jobqueue, dask-cuda, …); by
        default a cluster on this machine, not reachable from elsewhere.
    :param n_workers: how many workers that cluster has: by default one per GPU, or else one per core.
    :param per_gpu: how many groups a worker of that cluster evaluates at a time, if it has a GPU.
    :param group: how many genotypes a worker takes at most at a time.
    :param time_limit: the seconds an evaluation may take, a group as many times longer as it is large, not counting
        those that stopped early; after that, its worker is stopped and replaced.
    :param scheduler_file: where the scheduler has written its address.
    :param security: Dask's `Security` object, for a cluster that speaks TLS.
    :param connect_timeout: the seconds in which the scheduler has to answer; by default Dask's setting, 30.
    """

    is_elsewhere = True

    def __init__(
        self,
        cluster: Any = None,
        *,
        n_workers: int | None = None,
        per_gpu: int = 1,
        group: int = 8,
        time_limit: float | None = 600,
        scheduler_file: str | os.PathLike | None = None,
        security: Any = None,
        connect_timeout: float | None = None,
    ):
        given = cluster is not None or scheduler_file is not None
        if given and n_workers is not None:
            raise ValueError("n_workers is for a cluster that DaskRunner() starts; this one has its own workers.")
        for name, value in (("n_workers", n_workers), ("per_gpu", per_gpu), ("group", group)):
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, but is {value}.")
        for name, seconds in (("time_limit", time_limit), ("connect_timeout", connect_timeout)):
            if seconds is not None and seconds <= 0:
                raise ValueError(f"{name} must be a time in seconds, but is {seconds}.")
        if scheduler_file is not None:
            _check_scheduler_file(scheduler_file)
        if isinstance(cluster, str):
            _check_address(cluster)
        self.group, self.time_limit = group, time_limit
        self._owned: list[Any] = []  # closed at the end, the last first
        if not given:
            check_guard()
            cluster = _local_cluster(n_workers, per_gpu, time_limit)
            self._owned.append(cluster)
        self._tidies = given  # what was sent; its own cluster goes as a whole
        self._address = {"address": cluster, "scheduler_file": scheduler_file, "security": security}
        self._address["timeout"] = connect_timeout or dask.config.get("distributed.comm.timeouts.connect")
        self._client = cluster if isinstance(cluster, Client) else None
        self._sent: dict[str, str] = {}  # the names of what was sent to the workers, by digest
        self._begin_anew()
        try:
            if not given:
                self.client.register_plugin(_Sheltered())
            self._look()  # find out now whether there is a scheduler, and whether workers can start
        except BaseException:
            self.close()
            raise

    @property
    def client(self) -> Client:
        """Dask's client. That of an unpickled runner connects when it is first needed."""
        if self._client is None:
            where = self._address["address"] or f"in {self._address['scheduler_file']}"
            limit = self._address["timeout"]
            limit = f"{limit:g} s" if isinstance(limit, int | float) else limit
            what = f"the Dask scheduler {where} to answer, {limit} at most"
            what = "worker processes to start" if isinstance(where, _Cluster) else what
            waiting = threading.Timer(PATIENCE, _tell, [f"Waiting for {what}."])
            waiting.start()
            try:
                self._client = Client(**self._address, set_as_default=False)
            except (OSError, TimeoutError, ValueError) as error:
                self.close()
                raise ConnectionError(
                    f"there is no Dask scheduler {where}, or it did not answer within {limit} (connect_timeout): "
                    f"{error}"
                ) from None
            finally:
                waiting.cancel()
            self._owned.append(self._client)
        return self._client

    def _begin_anew(self) -> None:
        self._waiting: deque[_Job] = deque()
        self._suspects: deque[_Job] = deque()  # whose worker died: tried again alone, one at a time
        self._in_flight: dict[str, list[_Job]] = {}  # by the key of their future
        self._futures: dict[str, Future] = {}
        self._events: queue.SimpleQueue[_Event] = queue.SimpleQueue()
        self._outcomes: dict[str, tuple[Future, Any]] = {}  # of futures, not taken yet
        self._results: deque[tuple[int, Result]] = deque()
        self._names: dict[int, tuple[str, Function]] = {}  # of functions the workers have, by identity
        self._trial = ""  # the key of the suspect that is tried
        self._submitted = self._groups = 0
        self._busy = 0.0
        self._started: float | None = None  # when this function was submitted for the first time
        self._function: Function | None = None
        self._threads, self._looked, self._deserted = 0, -math.inf, time.monotonic()
        self._silent = time.monotonic()  # since then no result has come, or the user was told why

    # ------------------------------------------------------------------------------------------------- the interface

    @property
    def ahead(self) -> int:  # type: ignore[override]  # an attribute elsewhere
        """A group for each worker, and one to follow it; as for one worker while there is none."""
        return 2 * self.group * max(1, self.n_workers)

    @property
    def n_workers(self) -> int:  # type: ignore[override]  # an attribute elsewhere
        """How many groups can be evaluated at a time, now."""
        self._look()
        return self._threads

    def submit(self, f: Function, x: np.ndarray, needed: float | None = None) -> int:
        if f is not self._function:  # another run
            self._function, self._started, self._busy, self._groups = f, time.monotonic(), 0.0, 0
        self._waiting.append(_Job(self._submitted, self._name_of(f), x, needed))
        self._submitted += 1
        return self._submitted - 1

    def wait(self, timeout: float | None = None) -> tuple[int, Result] | None:
        until = math.inf if timeout is None else time.monotonic() + timeout
        while not self._results:
            if not self._in_flight and not self._waiting and not self._suspects:
                return None
            if self.client.status != "running":
                raise self._lost()
            self._dispatch()
            # From a single worker, results are taken in the order of submission: then a run is always the same.
            key = next(iter(self._in_flight if self._threads == 1 else self._outcomes), None)
            if key in self._outcomes:
                self._take(*self._outcomes.pop(key))
            else:
                try:
                    self._heed(self._events.get(timeout=min(1.0, max(0.0, until - time.monotonic()))))
                except queue.Empty:
                    self._look()
                    self._explain_silence()
                    if time.monotonic() >= until:
                        return None
        number, result = self._results.popleft()
        self._dispatch()
        return number, result

    def cancel(self) -> None:
        futures = list(self._futures.values())
        if futures and self.client.status == "running":
            self.client.cancel(futures, force=True)
        kept = {name: getattr(self, name) for name in ("_submitted", "_function", "_started", "_busy", "_groups")}
        self._begin_anew()
        self.__dict__.update(kept)

    @property
    def utilisation(self) -> float:
        if self._started is None or not self.n_workers:
            return 0.0
        return min(1.0, self._busy / (self.n_workers * max(1e-9, time.monotonic() - self._started)))

    @property
    def dashboard(self) -> str | None:  # type: ignore[override]  # an attribute elsewhere
        """The address of Dask's dashboard, if there is one: that of a cluster of its own needs bokeh."""
        shows = not isinstance(self.client.cluster, _Cluster) or find_spec("bokeh") is not None
        return (self.client.dashboard_link or None) if shows else None

    def addresses(self) -> dict[str, int]:
        """The workers there are now, and how many groups each can evaluate at a time."""
        return dict(sorted(self.client.nthreads().items()))

    def ask(self, address: str, function: Callable[..., Any], *args: Any, about: Function | None = None) -> Future:
        """Call a function on one worker, which nobody else does for it.

        :param about: something to be evaluated; the worker's copy of it becomes the first argument.
        """
        name = None if about is None else self._name_of(about)
        return self.client.submit(_answer, function, name, args, workers=[address], pure=False, retries=0)

    def close(self) -> None:
        """Stop what this runner has started. A cluster that existed before remains."""
        try:
            if self._client is not None and self._client.status == "running":
                self.cancel()
                while self._sent and self._tidies:
                    self._unregister(self._sent.popitem()[1])
        finally:
            while self._owned:
                self._owned.pop().close()

    def __enter__(self) -> "DaskRunner":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"DaskRunner({self.client!r})"

    def __deepcopy__(self, memo: dict[int, Any]) -> "DaskRunner":
        """A runner with the same workers and nothing to do."""
        new = object.__new__(DaskRunner)
        new.__dict__.update(self.__dict__)
        new._owned, new._tidies = [], False
        new._begin_anew()
        return new

    def __getstate__(self) -> dict[str, Any]:
        address = {"address": self.client.scheduler.address, "scheduler_file": None, "security": self.client.security}
        address["timeout"] = self._address["timeout"]
        return {"group": self.group, "time_limit": self.time_limit, "_address": address}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _client=None, _owned=[], _sent={}, _tidies=True)
        self._begin_anew()

    # --------------------------------------------------------------------------------------------------- the cluster

    def _name_of(self, f: Function) -> str:
        """The name by which workers know a function. It is sent to them if it is new or has changed."""
        if id(f) not in self._names:
            pickled = cloudpickle.dumps(f)
            content = digest([pickled])
            if content not in self._sent:
                name = f"pymoo-stitch-{uuid.uuid4().hex}"
                self._register(_Sent(pickled), name)
                self._sent[content] = name
            self._names[id(f)] = self._sent[content], f
        return self._names[id(f)][0]

    def _register(self, plugin: WorkerPlugin, name: str) -> None:
        """Send a plugin to all workers, also to those that join later. Dask raises an error if one of them cannot be
        reached; here all are tried again, until that one is back or the scheduler has given it up."""
        until = time.monotonic() + GIVEN_UP
        what = (
            "Waiting for every worker to receive the problem. Dask gives up one that cannot be reached, in time. "
            "(Ctrl-C, pressed twice, ends the search.)"
        )
        waiting = threading.Timer(5 * PATIENCE, _tell, [what])
        waiting.daemon = True
        waiting.start()
        try:
            while True:
                try:
                    self.client.register_plugin(plugin, name=name)
                    return
                except OSError as error:  # of the scheduler's connection to a worker, TimeoutError included
                    if self.client.status != "running":
                        raise self._lost() from error
                    if time.monotonic() > until:
                        raise RuntimeError(
                            f"not every worker has received the problem within {GIVEN_UP:.0f} seconds ({error}). End "
                            "the one that cannot be reached, or start the scheduler with a shorter "
                            "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL."
                        ) from error
                    time.sleep(1)
        except BaseException:  # the scheduler keeps what could not be sent to all
            if self.client.status == "running":
                self._unregister(name)
            raise
        finally:
            waiting.cancel()

    def _unregister(self, name: str) -> None:
        """Have the workers forget what was sent to them."""
        # It is not there any more, or a worker does not answer: no reason to keep the user waiting.
        with suppress(ValueError, OSError, TimeoutError):
            self.client.sync(_forget, self.client, name, callback_timeout=PARTING)

    def _look(self) -> None:
        """Count the workers, once a second."""
        if time.monotonic() - self._looked <= 1 or self.client.status != "running":
            return
        with suppress(OSError, RuntimeError, TimeoutError):  # wait() reports a lost scheduler
            self._threads = sum(self.client.nthreads().values())
        self._looked = time.monotonic()
        if not self._threads and isinstance(cluster := self.client.cluster, _Cluster) and cluster.is_dead:
            raise RuntimeError(
                f"no worker process of the cluster is left: they ended {cluster.how_workers_ended}. What they wrote is "
                "above; they need memory, and the same packages and modules as this process."
            )
        if self._threads:
            self._deserted = self._looked
        elif self._looked - self._deserted > DESERTED:
            self._deserted = self._looked
            warnings.warn(
                f"the cluster has had no worker for {DESERTED:.0f} seconds; the run goes on when one joins.",
                RuntimeWarning,
                stacklevel=2,
            )

    def _explain_silence(self) -> None:
        """Tell the user if nothing comes since workers have paused, which Dask itself tells their log only."""
        if not self._in_flight or time.monotonic() - self._silent <= DESERTED:
            return
        self._silent, paused = time.monotonic(), 0
        with suppress(OSError, RuntimeError, TimeoutError):  # that the scheduler is lost is told by wait()
            paused = self.client.run_on_scheduler(_count_paused)
        if paused:
            warnings.warn(
                f"no result has come for {DESERTED:.0f} seconds, and {paused} of "
                "the workers have paused, since their memory is "
                "nearly full. Start them with more: --memory-limit of `dask worker`, memory= of SLURMCluster.",
                RuntimeWarning,
                stacklevel=2,
            )

    def _dispatch(self) -> None:
        """Give waiting work to workers: to each what it can do at a time, and enough to follow it."""
        if not self._waiting and not self._suspects:
            return
        seconds = self._busy / self._groups if self._groups else 1.0
        # without a worker too something is to be done: a cluster that scales by what there is would else start none
        slots = max(1, self.n_workers) * (1 + min(8, math.ceil(LATENCY / max(seconds, 1e-6))))
        # one at a time, or one that kills its worker would take others along
        if self._suspects and self._trial not in self._in_flight:
            self._trial = self._send([self._suspects.popleft()])
        while self._waiting and len(self._in_flight) < slots:
            size = min(self.group, math.ceil(len(self._waiting) / slots))
            group = [self._waiting.popleft()]
            while self._waiting and len(group) < size and self._waiting[0].function == group[0].function:
                group.append(self._waiting.popleft())
            self._send(group)

    def _send(self, group: list[_Job]) -> str:
        if not self._in_flight:
            self._silent = time.monotonic()
        X, needed = np.array([job.x for job in group]), [job.needed for job in group]
        future = self.client.submit(_evaluate, group[0].function, X, needed, self.time_limit, pure=False)
        key = str(future.key)
        self._in_flight[key] = group
        self._futures[key] = future
        future.add_done_callback(partial(_note_finished, self._events))  # in a thread of Dask's
        return key

    def _heed(self, first: "_Event") -> None:
        """Take in this event and all others that are there: what finished futures have brought is fetched together,
        while others are waited for; what was fetched is an outcome."""
        events = [first]
        with suppress(queue.Empty):
            while True:
                events.append(self._events.get_nowait())
        self._outcomes |= {future.key: (future, outcome) for future, is_fetched, outcome in events if is_fetched}
        if finished := [future for future, is_fetched, _ in events if not is_fetched]:
            self.client.loop.add_callback(_fetch, self.client, finished, self._events)

    def _take(self, future: Future, outcome: Any) -> None:
        """What a future brought."""
        group = self._in_flight.pop(str(future.key))
        del self._futures[str(future.key)]
        self._silent = time.monotonic()
        if not isinstance(outcome, Exception):
            worker, begun, ended, results = outcome
            self._busy += ended - begun
            self._groups += 1
            extra = {"worker": worker, "begun": begun, "ended": ended}
            self._results.extend((job.number, {**result, **extra}) for job, result in zip(group, results, strict=True))
        elif future.status in ("cancelled", "lost") or self.client.status != "running":
            raise self._lost() from outcome
        elif isinstance(outcome, KilledWorker) and not group[0].is_suspect:
            for job in group:
                job.is_suspect = True
            self._suspects.extend(group)
        elif isinstance(outcome, KilledWorker):
            self._results.append((group[0].number, {"failed": "KilledWorker: its workers died, or it took too long"}))
        else:
            raise RuntimeError(
                f"the workers cannot evaluate: {type(outcome).__name__}: {outcome}. They need the same packages and "
                "modules as this process."
            ) from outcome

    def _lost(self) -> ConnectionError:
        return ConnectionError(
            "the connection to the Dask scheduler is lost. What was evaluated is in the run's journal, if it has one: "
            "start a cluster, and the same run again goes on from there."
        )


_Event = tuple[Future, bool, Any]
"""A future that is finished, whether what it brought is fetched, and that: a result or an exception."""


def _note_finished(events: "queue.SimpleQueue[_Event]", future: Future) -> None:
    events.put((future, False, None))


def _count_paused(dask_scheduler: Any) -> int:
    return sum(worker.status is Status.paused for worker in dask_scheduler.workers.values())


async def _forget(client: Client, name: str) -> None:
    await client.unregister_worker_plugin(name)


async def _fetch(client: Client, futures: list[Future], events: "queue.SimpleQueue[_Event]") -> None:
    """Fetch what futures have brought, and note it: together, or else each as it comes. Runs in Dask's loop."""
    try:
        outcomes = await asyncio.wait_for(client.gather(futures, asynchronous=True), TOGETHER)
    except (Exception, asyncio.CancelledError):  # whose fault it is shows when each is alone
        await asyncio.gather(*(_fetch_alone(client, future, events) for future in futures))
    else:
        for future, outcome in zip(futures, outcomes, strict=True):
            events.put((future, True, outcome))


async def _fetch_alone(client: Client, future: Future, events: "queue.SimpleQueue[_Event]") -> None:
    """What one future brought, however long it takes: its worker may be given up, and another one do it again. Dask's
    client fetches few at a time, so that one that does not come is left for a while."""
    while client.status == "running":
        try:
            outcome = await asyncio.wait_for(client.gather(future, asynchronous=True), TOGETHER)
        except (Exception, asyncio.CancelledError) as error:
            if future.status not in ("error", "cancelled", "lost"):
                await asyncio.sleep(1)
                continue
            outcome = error if isinstance(error, Exception) else RuntimeError(str(error))
        events.put((future, True, outcome))
        return


# ------------------------------------------------------------------------------------------------------- on the workers


class _Sent(WorkerPlugin):
    """A function in each worker. As a plugin it reaches those who join later, and outlives every worker."""

    def __init__(self, pickled: bytes):
        self.pickled = pickled
        self._function: Function | None = None
        self._lock: Any = None

    def setup(self, worker: Any) -> None:
        self._lock = threading.Lock()

    @property
    def function(self) -> Function:
        with self._lock:
            if self._function is None:
                self._function = cloudpickle.loads(self.pickled)
                self.pickled = b""
        return self._function


class _Sheltered(WorkerPlugin):
    """Ctrl-C in a terminal reaches all its processes, but the search decides when workers stop. And no worker
    that is killed leaves a semaphore: progress bars have one to lock a terminal that a worker has not got."""

    def setup(self, worker: Any) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        tqdm.set_lock(threading.RLock())


def _evaluate(
    name: str, X: np.ndarray, needed: list[float | None], limit: float | None
) -> tuple[str, float, float, list[Result]]:
    """What a worker does with a group."""
    worker = get_worker()
    watchdog = None if limit is None else _Watchdog(limit, len(X))
    try:
        f = worker.plugins[name].function  # type: ignore[attr-defined]  # ours, an `_Installed`
        begun = time.time()
        results = None
        if hasattr(f, "group"):
            try:
                results = f.group(X, needed, watchdog.stopped if watchdog else lambda count: None)
            except Exception:  # whose fault it is shows when each is alone
                if watchdog is not None:
                    watchdog.end()
                    watchdog = _Watchdog(limit, len(X))
        if results is None:
            results = [attempt(f, x, error) for x, error in zip(X, needed, strict=True)]
        return str(worker.name), begun, time.time(), results
    finally:
        if watchdog is not None:
            watchdog.end()


def _answer(function: Callable[..., Any], name: str | None, args: tuple[Any, ...]) -> Any:
    """What a worker says when it is asked."""
    if name is None:
        return function(*args)
    return function(get_worker().plugins[name].function, *args)  # type: ignore[attr-defined]  # ours, an `_Installed`


class _Watchdog:
    """Ends the process of a group that takes too long: there is no other way to stop what hangs in a library.

    :param limit: seconds for each of its members.
    """

    def __init__(self, limit: float, members: int):
        self._limit, self._members, self._begun = limit, members, time.monotonic()
        self._timer = threading.Timer(0, os._exit)
        self.stopped(0)

    def stopped(self, count: int) -> None:
        """This many members have stopped: the limit shrinks by their time, except for what has passed."""
        self.end()
        self._members -= count
        left = self._limit * self._members + self._begun - time.monotonic()
        self._timer = threading.Timer(max(left, self._limit), os._exit, (1,))
        self._timer.daemon = True
        self._timer.start()

    def end(self) -> None:
        self._timer.cancel()


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _check_scheduler_file(path: str | os.PathLike) -> None:
    """Raise an error if Dask would wait for this file forever, or find no address in it."""
    try:
        address = json.loads(Path(path).read_text())["address"]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ConnectionError(f"there is no Dask scheduler in {path}: {type(error).__name__}: {error}") from error
    if not isinstance(address, str):
        raise ConnectionError(f"there is no Dask scheduler in {path}: its address is {address!r}.")


def _check_address(address: str) -> None:
    """Raise an error for what Dask would try for minutes, or tell in many lines."""
    if re.search(r":\d+/?$", address) or address.startswith("inproc://"):
        return
    if address.endswith(".json"):
        raise ConnectionError(f"there is no Dask scheduler {address}: there is no such file.")
    raise ConnectionError(f"there is no Dask scheduler {address}: an address has a port, as tcp://host:8786.")


# ------------------------------------------------------------------------------------------------------ on this machine


def _local_cluster(n_workers: int | None, per_gpu: int, time_limit: float | None) -> LocalCluster:
    gpus = visible_gpus()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    n_workers = n_workers or len(gpus) or cores
    folder = TemporaryDirectory(prefix="pymoo-stitch-", ignore_cleanup_errors=True)
    settings = {"distributed.scheduler.allowed-failures": TRIES - 1, "temporary-directory": folder.name}
    if time_limit is not None:
        settings["distributed.scheduler.worker-ttl"] = f"{min(300, time_limit)}s"
    with dask.config.set(settings):
        cluster = _Cluster(
            n_workers=0,
            local_directory=folder.name,
            threads_per_worker=per_gpu if gpus else 1,
            processes=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            memory_limit=0,
            # this class reports why workers end; their other messages are of no interest
            silence_logs=logging.CRITICAL,
            env={"OMP_NUM_THREADS": str(max(1, cores // n_workers))},
        )
        cluster.gpus, cluster.folder = gpus, folder
        cluster.scale(n_workers)
        return cluster


class _Cluster(LocalCluster):
    """Each worker sees a single GPU, if there is any, and writes to a folder that is removed with the cluster."""

    gpus: list[str] = []  # noqa: RUF012
    folder: TemporaryDirectory | None = None

    def close(self, *args: Any, **options: Any) -> Any:
        try:
            return super().close(*args, **options)
        finally:
            if self.folder is not None:
                self.folder.cleanup()

    @property
    def is_dead(self) -> bool:
        """Whether all workers have ended for good."""
        workers = [self.workers.get(name) for name in self.worker_spec]
        return bool(workers) and all(w is not None and w.status in (Status.failed, Status.closed) for w in workers)

    @property
    def how_workers_ended(self) -> str:
        codes = {nanny.exit_code for nanny in self.workers.values()} - {None}
        return f"with exit code {' and '.join(map(str, sorted(codes)))}" if codes else "before they had begun"

    def new_worker_spec(self) -> dict[Any, Any]:
        ((name, spec),) = super().new_worker_spec().items()
        if self.gpus:
            env = spec["options"]["env"] | {"CUDA_VISIBLE_DEVICES": gpu_of(name, self.gpus)}
            spec = spec | {"options": spec["options"] | {"env": env}}
        return {name: spec | {"cls": _Nanny}}


class _Nanny(Nanny):
    """Workers keep the memory that they free. Dask has them return it at once, and a network asks for it again at its
    next layer, which takes a third of the time on a CPU."""

    exit_code: int | None = None

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        if TRIM not in os.environ:
            for environment in (self.pre_spawn_env, self.env):
                environment.pop(TRIM, None)

    async def start(self) -> "_Nanny":  # type: ignore[misc]  # final, but there is no other way to hold its error
        with suppress(Exception):  # its status says so, and the runner reports it: Dask would print pages
            await super().start()
        return self

    def _on_worker_exit_sync(self, exitcode: int) -> None:
        self.exit_code = exitcode
        super()._on_worker_exit_sync(exitcode)
