"""One evaluation after another, in this process."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

Function = Callable[[np.ndarray], Mapping[str, Any]]


class SerialRunner:
    """Evaluates in this process, in the order of submission, when waited for."""

    n_workers = 1

    def __init__(self) -> None:
        self._queue: deque[tuple[int, Function, np.ndarray]] = deque()
        self._submitted = 0
        self.busy = 0.0
        self._started: float | None = None

    def submit(self, f: Function, x: np.ndarray) -> int:
        self._start()
        self._queue.append((self._submitted, f, x))
        self._submitted += 1
        return self._submitted - 1

    def wait(self, timeout: float | None = None) -> tuple[int, Mapping[str, Any]] | None:
        """An evaluation, once begun, is not interrupted."""
        if not self._queue:
            return None
        number, f, x = self._queue.popleft()
        begun, start = time.time(), time.perf_counter()
        result = attempt(f, x)
        self.busy += time.perf_counter() - start
        return number, {**result, "begun": begun, "ended": time.time()}

    def cancel(self) -> None:
        self._queue.clear()

    def __call__(self, f: Function, xs: Iterable[np.ndarray]) -> list[Mapping[str, Any]]:
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


def attempt(f: Function, x: np.ndarray) -> Mapping[str, Any]:
    """f(x), or the reason why there is none."""
    try:
        return f(x)
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {error}"}


def all_of(runner: Any, f: Function, xs: Iterable[np.ndarray]) -> list[Mapping[str, Any]]:
    """The results of all of these from a runner that has nothing else to do, in their order; a failure is an error."""
    try:
        order = {runner.submit(f, x): i for i, x in enumerate(xs)}
        results: list[Any] = [None] * len(order)
        for _ in range(len(order)):
            number, result = runner.wait()
            if "failed" in result and "F" not in result:
                raise RuntimeError(f"an evaluation failed: {result['failed']}")
            results[order[number]] = result
    except BaseException:
        runner.cancel()  # nobody will ask for the others
        raise
    return results
