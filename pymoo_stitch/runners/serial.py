"""One evaluation after another, in this process."""

import time
from collections import deque
from collections.abc import Iterable
from typing import Any

import numpy as np

from .base import Function, Result, Runner, attempt


class SerialRunner(Runner):
    """Evaluates in this process, in the order of submission, when waited for."""

    n_workers = ahead = 1

    def __init__(self) -> None:
        self._queue: deque[tuple[int, Function, np.ndarray, float | None]] = deque()
        self._submitted = 0
        self.busy = 0.0
        self._started: float | None = None

    def submit(self, f: Function, x: np.ndarray, needed: float | None = None) -> int:
        self._start()
        self._queue.append((self._submitted, f, x, needed))
        self._submitted += 1
        return self._submitted - 1

    def wait(self, timeout: float | None = None) -> tuple[int, Result] | None:
        """Evaluate the next one. Once begun, it is not interrupted, whatever the timeout."""
        if not self._queue:
            return None
        number, f, x, needed = self._queue.popleft()
        begun, start = time.time(), time.perf_counter()
        result = attempt(f, x, needed)
        self.busy += time.perf_counter() - start
        return number, {**result, "begun": begun, "ended": time.time()}

    def cancel(self) -> None:
        self._queue.clear()

    def __call__(self, f: Function, xs: Iterable[np.ndarray]) -> list[Result]:
        self._start()
        start = time.perf_counter()
        results = [f(x) for x in xs]
        self.busy += time.perf_counter() - start
        return results

    @property
    def utilisation(self) -> float:
        return 0.0 if self._started is None else self.busy / (time.perf_counter() - self._started)

    def _start(self) -> None:
        if self._started is None:
            self._started = time.perf_counter()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_queue": deque(), "busy": 0.0, "_started": None}
