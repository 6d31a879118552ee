"""What runners call, and a runner for those who have none."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from pymoo.core.problem import Problem

from ..runners import Function, Result, Runner


class Evaluate:
    """What a runner calls: all that the problem returns for one genotype, or for several together. It does not use the
    problem's own runner, so that a runner may call it."""

    def __init__(self, problem: Problem):
        self.problem = problem

    def __call__(self, x: np.ndarray, needed: float | None = None) -> dict[str, Any]:
        return self.group(x[None], [needed])[0]

    def group(
        self,
        X: np.ndarray,
        needed: Sequence[float | None] = (),
        stopped: Callable[[int], None] = lambda count: None,
    ) -> list[dict[str, Any]]:
        """
        :param needed: for each genotype the second objective that it must reach to matter; None to evaluate it in
            full.
        :param stopped: is called with the number of those that have just stopped because they cannot.
        """
        problem, outs = self.problem, []
        can_stop = any(error is not None for error in needed)
        options = {"needed": needed, "stopped": stopped} if can_stop else {}
        if problem.elementwise:
            for x in X:
                out: dict[str, Any] = {}
                problem._evaluate(x, out)
                outs.append({name: np.array([value]) for name, value in out.items()})
        else:
            out = {}
            problem._evaluate(X, out, **options)
            outs.append(out)
        formatted = [problem._format_dict(out, len(X) // len(outs), ["F", "G", "H"]) for out in outs]
        return [
            {name: values[i] for name, values in out.items() if values[i] is not None}
            for out in formatted
            for i in range(len(X) // len(outs))
        ]


class Together(Runner):
    """Evaluates in this process everything that is submitted before the first `wait`, at once, as pymoo itself does.

    :param problem: what is evaluated, whatever function is submitted.
    :param names: the values that pymoo asks for.
    :param options: of `problem.evaluate`.
    """

    n_workers = 1
    utilisation = 1.0

    def __init__(self, problem: Problem, names: list[str], algorithm: Any, options: dict[str, Any]):
        self._problem = problem
        self._options = {"return_values_of": names, "return_as_dictionary": True, "algorithm": algorithm, **options}
        self._submitted = 0
        self._queue: dict[int, np.ndarray] = {}
        self._done: deque[tuple[int, Result]] = deque()

    def submit(self, f: Function, x: np.ndarray, needed: float | None = None) -> int:
        self._queue[self._submitted] = x
        self._submitted += 1
        return self._submitted - 1

    def wait(self, timeout: float | None = None) -> tuple[int, Result] | None:
        if not self._done and self._queue:
            begun = time.time()
            out = self._problem.evaluate(np.array(list(self._queue.values())), **self._options)
            times = {"begun": begun, "ended": time.time()}
            found = [(name, values) for name, values in out.items() if values is not None]
            for i, number in enumerate(self._queue):
                self._done.append((number, {name: values[i] for name, values in found} | times))
            self._queue = {}
        return self.finished()

    def finished(self) -> tuple[int, Result] | None:
        return self._done.popleft() if self._done else None

    def cancel(self) -> None:
        self._queue, self._done = {}, deque()
