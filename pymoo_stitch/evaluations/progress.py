"""How far a search is, as a progress bar."""

import sys
import weakref
from typing import Any

import numpy as np
from pymoo.core.algorithm import Algorithm
from pymoo.indicators.hv import Hypervolume
from pymoo.util.display.output import pareto_front_if_possible

from ..runners import Runner
from ..util import progress
from ..util.tables import percent
from .budget import max_evals


class Progress:
    """On standard error: real evaluations, how long one takes, the time that is left, and beside it the hypervolume and
    the workers' utilisation."""

    def __init__(self, algorithm: Algorithm):
        limit = max_evals(algorithm.termination)
        self._algorithm = weakref.ref(algorithm)  # so that the bar ends with it
        runner = _runner(algorithm)
        if runner is not None and runner.dashboard:
            print(f"Dask's dashboard: {runner.dashboard}", file=sys.stderr, flush=True)
        self._progress = progress.Progress(int(limit) if np.isfinite(limit) else None, "search", "evaluation")
        self._real = 0
        self._shown: tuple[Any, str] = None, ""

    def show(self, real: int, is_replayed: bool = False) -> None:
        """Show that this many evaluations are done; replayed ones took no time."""
        if self._progress.is_due():
            self._note()
        self._progress.update(real - self._real, at_once=is_replayed)
        self._real = real

    def _note(self) -> None:
        algorithm, notes = self._algorithm(), {}
        if algorithm is None:
            return
        if algorithm.opt is not None and len(algorithm.opt):
            if self._shown[0] is not algorithm.opt:  # a hypervolume takes time, and changes only with a generation
                value = hypervolume(algorithm)
                self._shown = algorithm.opt, "" if value is None else f"{value:.4f}"
            notes["hypervolume"] = self._shown[1]
        runner = _runner(algorithm)
        if runner is not None:
            notes["utilisation"] = percent(runner.utilisation)
        self._progress.note(**{name: text for name, text in notes.items() if text})

    def close(self) -> None:
        self._note()
        with self._progress:
            pass


def _runner(algorithm: Algorithm) -> Runner | None:
    return getattr(algorithm, "runner", None) or getattr(algorithm.evaluator, "runner", None)


def hypervolume(algorithm: Algorithm) -> float | None:
    """The hypervolume of the front so far, normalised by the problem if it can, else by its known front, if it has
    one."""
    problem, f = algorithm.problem, algorithm.opt.get("F")
    if hasattr(problem, "normalize"):
        return Hypervolume(ref_point=np.ones(problem.n_obj)).do(problem.normalize(f)) if len(f) else 0.0
    front = pareto_front_if_possible(problem)
    return None if front is None or not len(f) else Hypervolume(pf=front, zero_to_one=True).do(f)
