"""How many evaluations, and how much time, a run may take."""

import time
from typing import Any

import numpy as np
from pymoo.core.algorithm import Algorithm
from pymoo.core.termination import TerminateIfAll, Termination
from pymoo.termination.max_eval import MaximumFunctionCallTermination
from pymoo.termination.max_time import TimeBasedTermination

_LIMITS = {"n_max_evals": "evaluations", "n_max_gen": "generations", "max_time": "seconds"}
"""Attributes of pymoo's terminations."""


def max_evals(termination: Termination) -> float:
    """The evaluations after which this termination ends a run for certain; infinite if it does not count them."""
    parts = [max_evals(part) for part in _parts(termination)]
    if parts:
        return max(parts) if isinstance(termination, TerminateIfAll) else min(parts)
    limit = getattr(termination, "n_max_evals", None)
    return np.inf if limit is None else limit


def budget_of(termination: Termination, pop_size: int | None) -> int | None:
    """The evaluations this termination allows, a generation counting as `pop_size`; None if that cannot be known. A
    ValueError if it would end a run before it has begun."""
    for name, what in _LIMITS.items():
        limit = getattr(termination, name, None)
        if limit is not None and not limit > 0:
            raise ValueError(
                f"the termination allows {limit} {what}, but a run needs at least one: ('n_evals', 2_000)."
            )
    parts = [budget for part in _parts(termination) if (budget := budget_of(part, pop_size)) is not None]
    if parts:
        return max(parts) if isinstance(termination, TerminateIfAll) else min(parts)
    generations = getattr(termination, "n_max_gen", None) if pop_size else None
    limit = min(max_evals(termination), np.inf if generations is None else generations * pop_size)
    return int(limit) if np.isfinite(limit) else None


def is_over(termination: Termination, algorithm: Algorithm) -> bool:
    """Whether evaluations or time are used up. Other criteria are checked by generation."""
    parts = [is_over(part, algorithm) for part in _parts(termination)]
    if parts:
        return all(parts) if isinstance(termination, TerminateIfAll) else any(parts)
    counted = isinstance(termination, MaximumFunctionCallTermination | TimeBasedTermination)
    return counted and termination._update(algorithm) >= 1


def _parts(termination: Termination) -> list[Termination]:
    return [*getattr(termination, "criteria", ()), *getattr(termination, "terminations", ())]


class RunTime(TimeBasedTermination):
    """Ends a run after this many seconds, including those before an interruption: a run that is started again has the
    rest."""

    def __init__(self, seconds: float):
        super().__init__(seconds)
        self._since: float | None = None

    def _update(self, algorithm: Any) -> float:
        evaluations = algorithm.evaluator
        if evaluations.is_replaying():
            return 0.0
        if self._since is None:
            self._since = time.time() - evaluations.seconds_before
        return (time.time() - self._since) / self.max_time
