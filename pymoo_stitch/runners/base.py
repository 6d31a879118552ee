"""What a runner is."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

Result = Mapping[str, Any]
"""The result of an evaluation; {"failed": reason} if the function raised an exception."""

Function = Callable[..., Result]
"""What is evaluated, given a genotype, and the second objective that it must reach to matter, if it is submitted with
one. It may have a method `group(X, needed, stopped)` that returns the results of several at once, and calls `stopped`
with the number of those that have just stopped early."""


class Runner(ABC):
    """Calls functions of one genotype, and returns their results.

    Any number may be submitted at a time; a runner starts them in that order. To each result it adds `begun` and
    `ended`, in seconds, and the `worker`, if there are several. A copy of a runner, pickled or not, has the same
    workers and nothing to do."""

    n_workers: int
    """How many evaluations happen at a time."""

    is_elsewhere: bool = False
    """Whether `wait` evaluates nothing itself, so that it can be interrupted at any time."""

    is_virtual: bool = False
    """Whether its time is virtual. What a journal knows is submitted all the same, so that the clock runs as it did."""

    ahead: int | None = None
    """How many it needs at a time to keep all workers busy; None for as many as there are."""

    dashboard: str | None = None
    """The address of a page that shows what the workers do, if there is one."""

    @abstractmethod
    def submit(self, f: Function, x: np.ndarray, needed: float | None = None) -> int:
        """Queue f(x), or f(x, needed), and return its number."""

    @abstractmethod
    def wait(self, timeout: float | None = None) -> tuple[int, Result] | None:
        """The number and the result of the next evaluation that is done; None after `timeout` seconds, or if nothing
        is queued."""

    @abstractmethod
    def cancel(self) -> None:
        """Forget all that is queued or running."""

    def finished(self) -> tuple[int, Result] | None:
        """A result that can be returned without waiting, if there is one; by default there is none."""
        return None

    @property
    @abstractmethod
    def utilisation(self) -> float:
        """The fraction of the workers' time in which they worked, since the run began."""

    def __call__(self, f: Function, xs: Iterable[np.ndarray]) -> list[Result]:
        """[f(x) for x in xs], for pymoo's own algorithms: `Problem(elementwise_runner=runner)`. The runner has nothing
        else to do; a failure is an error."""
        try:
            order = {self.submit(f, x): i for i, x in enumerate(xs)}
            results: list[Any] = [None] * len(order)
            for _ in range(len(order)):
                number, result = self.wait()
                if "failed" in result and "F" not in result:
                    raise RuntimeError(f"an evaluation failed: {result['failed']}")
                results[order[number]] = result
        except BaseException:
            self.cancel()  # the others are not needed any more
            raise
        return results


def check_runner(runner: Any) -> None:
    """Raise a TypeError unless this is a runner, or None."""
    if runner is not None and not isinstance(runner, Runner):
        raise TypeError(
            f"evaluations happen on a Runner, such as DaskRunner(), not on {type(runner).__name__}. Your own "
            "inherits from pymoo_stitch.runners.Runner."
        )


def attempt(f: Function, x: np.ndarray, needed: float | None = None) -> Result:
    """f(x), or f(x, needed), or the reason why it failed."""
    try:
        return f(x) if needed is None else f(x, needed)
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {error}"}
