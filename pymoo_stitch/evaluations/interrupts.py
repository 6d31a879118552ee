"""Ctrl-C: a run ends with what it has, in a consistent state."""

import signal
import threading
import warnings
from collections.abc import Callable
from typing import Any

from pymoo.core.algorithm import Algorithm

from ..runners import Result, Runner


class HeldInterrupt:
    """Holds Ctrl-C back while an algorithm updates its state: `noted` tells whether it was pressed. It interrupts what
    is waited for. At the end it is passed on to the previous handler, unless `noted` was reset."""

    def __init__(self) -> None:
        self.noted = self._waiting = False

    def __enter__(self) -> "HeldInterrupt":
        self._before = signal.getsignal(signal.SIGINT)
        self._holds = threading.current_thread() is threading.main_thread() and callable(self._before)
        outer = getattr(self._before, "__self__", None)
        self.noted = self._holds and isinstance(outer, HeldInterrupt) and outer.noted
        if self._holds:
            signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._holds:
            signal.signal(signal.SIGINT, self._before)
            if self.noted and exception[0] is None:
                self._before(signal.SIGINT, None)  # type: ignore[operator]  # `_holds` says that it can be called

    def let_through(self, wait: Callable[[], Any]) -> Any:
        """What `wait()` returns, or None if it was interrupted."""
        try:
            self._waiting = True
            return None if self.noted else wait()
        except KeyboardInterrupt:
            self.noted = True
            return None
        finally:
            self._waiting = False

    def wait_for(self, runner: Runner) -> tuple[int, Result] | None:
        """The runner's next completion; None if there is none for a second, or it was interrupted. Where evaluations
        happen elsewhere it waits for up to a second, so that nothing is interrupted halfway; pressing Ctrl-C again
        does not wait."""
        if runner.is_elsewhere:
            return None if self.noted else runner.wait(timeout=1.0)
        return self.let_through(lambda: runner.wait(timeout=1.0))

    def _note(self, *_: object) -> None:
        again, self.noted = self.noted, True
        if self._waiting or again:
            raise KeyboardInterrupt


def end_interrupted(algorithm: Algorithm) -> None:
    """End a run that a user interrupts (Ctrl-C), so that there is a result."""
    algorithm.termination.terminate()
    algorithm.evaluator.interrupted = True
    warnings.warn(
        f"interrupted: the run ends after {algorithm.evaluator.real:,} evaluations. If it has a journal, the same run "
        "started again goes on from here.",
        RuntimeWarning,
        stacklevel=2,
    )
