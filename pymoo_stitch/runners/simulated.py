"""Many workers on a virtual clock, to see what an algorithm does with them."""

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .base import Function, Result, Runner, attempt

_Job = tuple[Function, np.ndarray, float | None]
"""A function, a genotype and what is needed of it."""


@dataclass(frozen=True)
class Event:
    """An evaluation that is complete: when it was submitted, began and ended, and on which worker. Times are
    virtual."""

    number: int
    worker: int
    submitted: float
    begun: float
    ended: float


class SimulatedRunner(Runner):
    """`n_workers` workers whose evaluations take virtual time and happen at once, when they end, in this process.

    What stops early ends early: after the fraction of its time that its `images` are of the most that any before it
    had. So what may stop happens before the first that ends after it has begun.

    Events are ordered by the time of completion, ties by number: with the same seeds, a run has the same `log`.

    >>> runner = SimulatedRunner(4, duration=2.0)
    >>> algorithm = GOMEA(pop_size=8, runner=runner, early_stopping=False)
    >>> result = minimize(get_problem("digits"), algorithm, ("n_evals", 20), seed=1)
    >>> result.algorithm.runner.clock  # 20 evaluations of 2 seconds on 4 workers
    10.0

    :param duration: virtual seconds: a constant, or a function of the genotype and a random generator, such as
        `lambda x, random_state: random_state.lognormal(sigma=1)`.
    :param overhead: virtual seconds that the scheduler, which does one thing at a time, takes to begin an evaluation.
    """

    is_virtual = True

    def __init__(
        self,
        n_workers: int,
        duration: float | Callable[[np.ndarray, np.random.Generator], float] = 1.0,
        *,
        overhead: float = 0.0,
        seed: int = 0,
    ):
        if n_workers < 1:
            raise ValueError(f"n_workers must be at least 1, but is {n_workers}.")
        self.n_workers = self.ahead = n_workers
        self.duration, self.overhead = duration, overhead
        self.clock = 0.0
        self.log: list[Event] = []
        self._random_state = np.random.default_rng(seed)
        self._submitted = 0
        self._in_vain = 0.0  # time spent on what was cancelled
        self._most_images = 0
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._free = list(range(self.n_workers))
        self._queue: deque[tuple[int, float, _Job]] = deque()
        # By the end; what may stop early, until its result is known, by the beginning.
        self._running: list[tuple[float, int, Event, _Job, Result | None]] = []
        self._scheduler_free = 0.0

    def submit(self, f: Function, x: np.ndarray, needed: float | None = None) -> int:
        self._queue.append((self._submitted, self.clock, (f, x, needed)))
        self._submitted += 1
        self._start()
        return self._submitted - 1

    def wait(self, timeout: float | None = None) -> tuple[int, Result] | None:
        """There is no real time to wait for: `timeout` has no effect."""
        if not self._running:
            return None
        while self._running[0][0] < self._running[0][2].ended:
            self._find_end_of_first()
        self.clock, number, event, job, result = heapq.heappop(self._running)
        self.log.append(event)
        heapq.heappush(self._free, event.worker)
        result = attempt(*job) if result is None else result
        self._most_images = max(self._most_images, result.get("images", 0))
        self._start()
        return number, {**result, "worker": str(event.worker), "begun": event.begun, "ended": event.ended}

    def cancel(self) -> None:
        self._in_vain += self._unfinished()
        self._begin_anew()

    @property
    def utilisation(self) -> float:
        worked = sum(event.ended - event.begun for event in self.log) + self._unfinished() + self._in_vain
        return worked / (self.n_workers * self.clock) if self.clock > 0 else 0.0

    def _unfinished(self) -> float:
        """Time spent so far on what is running."""
        return sum(max(0.0, self.clock - event.begun) for _, _, event, *_ in self._running)

    def _start(self) -> None:
        while self._queue and self._free:
            number, submitted, job = self._queue.popleft()
            duration = self.duration(job[1], self._random_state) if callable(self.duration) else self.duration
            begun = self._scheduler_free = max(self.clock, self._scheduler_free) + self.overhead
            event = Event(number, heapq.heappop(self._free), submitted, begun, begun + duration)
            earliest = event.ended if job[2] is None else begun
            heapq.heappush(self._running, (earliest, number, event, job, None))

    def _find_end_of_first(self) -> None:
        """Evaluate the one that may be the next to end."""
        _, number, event, job, _ = self._running[0]
        result = attempt(*job)
        if result.get("bound") is not None and 0 < result.get("images", 0) < self._most_images:
            part = result["images"] / self._most_images
            event = replace(event, ended=event.begun + part * (event.ended - event.begun))
        heapq.heapreplace(self._running, (event.ended, number, event, job, result))

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__ | {"log": list(self.log), "_queue": deque(), "_running": []}
        return state | {"_free": list(range(self.n_workers)), "_in_vain": self._in_vain + self._unfinished()}
