"""Runs as data: what journals tell, as arrays, and how good a run was after each of its evaluations."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from pymoo.indicators.hv import Hypervolume

from ..algorithms import ALGORITHMS
from ..evaluations import Journal, JournalError, Row, covered, is_bounded
from ..util.fronts import front_of


@dataclass(frozen=True, eq=False)
class Run:
    """One search, read from its journal: a row for each of its N evaluations, in the order in which the algorithm saw
    them.

    >>> evaluations = Evaluations(journal="run.sqlite")
    >>> _ = minimize(get_problem("digits"), GOMEA(pop_size=8), ("n_evals", 20), seed=1, evaluator=evaluations)
    >>> run = Run.read("run.sqlite")
    >>> run.algorithm, run.seed, run.X.shape, run.F.shape
    ('GOMEA', 1, (20, 72), (20, 2))

    :param about: what was searched, by what, and with which versions: `Journal.run`.
    """

    path: Path
    about: dict[str, Any]
    rows: tuple[Row, ...]

    @classmethod
    def read(cls, path: str | os.PathLike) -> "Run":
        journal = Journal(path, create=False)
        try:
            if journal.run is None:
                raise JournalError(f"{path} is a journal in which no run has begun. Start the run again, or delete it.")
            rows = tuple(journal.rows())
        finally:
            journal.close()
        if not rows:
            raise JournalError(f"{path} holds no evaluation yet. Start the run again, or delete it.")
        return cls(Path(path), journal.run, rows)

    @classmethod
    def read_if_begun(cls, path: str | os.PathLike) -> "Run | None":
        """None where there is no journal, or nothing readable in it."""
        try:
            return cls.read(path)
        except (FileNotFoundError, JournalError):
            return None

    def __len__(self) -> int:
        return len(self.rows)

    # ------------------------------------------------------------------------------------------------------ what it was

    @property
    def algorithm(self) -> str:
        """Its name in `ALGORITHMS`, or else that of its class."""
        own = self.about["algorithm"]["class"].rpartition(".")[2]
        made_by = {make.lower(): name for name, (_, make) in ALGORITHMS.homes.items()}
        return made_by.get(own.lower(), own)

    @property
    def pop_size(self) -> int | None:
        return self.about["algorithm"].get("pop_size")

    @property
    def seed(self) -> int:
        return self.about["seed"]

    @property
    def budget(self) -> int | None:
        """The evaluations it was planned for."""
        return self.about["budget"]

    @property
    def origin(self) -> dict[str, Any] | None:
        """The name and the options of the ready-made problem that was searched, if it was one."""
        return self.about.get("origin")

    # ------------------------------------------------------------------------------------------------- its evaluations

    @cached_property
    def X(self) -> np.ndarray:
        """Genotypes [N, n_var]."""
        return np.array([row.x for row in self.rows])

    @cached_property
    def F(self) -> np.ndarray:
        """Objectives [N, n_obj]."""
        return np.array([row.result["F"] for row in self.rows])

    @cached_property
    def active(self) -> np.ndarray:
        """Which variables mattered [N, n_var]; of problems that do not tell, all."""
        return np.array([row.result.get("active", np.ones(len(row.x), dtype=bool)) for row in self.rows])

    @cached_property
    def is_bounded(self) -> np.ndarray:
        """Which evaluations stopped because they could not reach what was needed: their second objective is an estimate
        [N]."""
        return np.array([is_bounded(row.result) for row in self.rows])

    @cached_property
    def images(self) -> np.ndarray:
        """How many images each evaluation took [N]; NaN where the journal does not say."""
        missing = [0 if row.result["failed"] else np.nan for row in self.rows]  # unknown for a worker that died
        return np.array([row.result.get("images", n) for row, n in zip(self.rows, missing, strict=True)], dtype=float)

    @cached_property
    def is_feasible(self) -> np.ndarray:
        """Which evaluations have not failed and meet the constraints, bounded ones by their estimate [N]."""
        return np.array(
            [
                not row.result["failed"]
                and np.isfinite(row.result["F"]).all()
                and (row.result["G"] <= 0).all()
                and (row.result["H"] == 0).all()
                for row in self.rows
            ]
        )

    @cached_property
    def is_sound(self) -> np.ndarray:
        """Which of these are not bounded [N]."""
        return self.is_feasible & ~self.is_bounded

    @cached_property
    def front(self) -> np.ndarray:
        """The evaluations that no other dominates, of equal ones the first, by their first objective."""
        return front_of(self.F, self.is_sound)

    @cached_property
    def predicted(self) -> np.ndarray:
        """What the search's model said of the second objective beforehand, mean and spread [N, 2]; NaN where it was
        not asked."""
        return np.array(
            [[row.notes.get("predicted", np.nan), row.notes.get("spread", np.nan)] for row in self.rows], dtype=float
        )

    @property
    def screened(self) -> int:
        """How many candidates were screened out."""
        return self.rows[-1].notes.get("screened", 0)

    @cached_property
    def is_predicted(self) -> np.ndarray:
        """Which evaluations have a prediction to compare with [N]; not bounded ones, whose error is an estimate."""
        failed = np.array([bool(row.result["failed"]) for row in self.rows])
        return np.isfinite(self.predicted[:, 0]) & np.isfinite(self.F).all(1) & ~failed & ~self.is_bounded

    def rank_correlation(self) -> float | None:
        """Spearman's correlation of predicted and real errors over the run; None where too few were predicted."""
        predicted, error = self.predicted[self.is_predicted, 0], self.F[self.is_predicted, -1]
        if len(error) < 3 or np.ptp(predicted) == 0 or np.ptp(error) == 0:
            return None
        from scipy.stats import spearmanr  # which takes a second to import

        return float(spearmanr(predicted, error).statistic)

    def hypervolume(self, ref_point: np.ndarray) -> np.ndarray:
        """After each evaluation [N], as a fraction of the box between 0 and the reference point."""
        indicator = Hypervolume(ref_point=np.ones(self.F.shape[1]))
        scaled = self.F / ref_point
        best = np.empty((0, self.F.shape[1]))
        values = np.zeros(len(self))
        for i, f in enumerate(scaled):
            values[i] = values[i - 1] if i else 0.0
            if self.is_sound[i] and (f < 1).all() and not (best <= f).all(1).any():
                best = np.vstack([best[~(f <= best).all(1)], f])
                values[i] = indicator.do(best)
        return values

    @cached_property
    def has_own_times(self) -> bool:
        """Whether everything was evaluated in this run, and nothing taken over from another."""
        begun = np.array([row.result.get("begun", np.nan) for row in self.rows])
        return bool((begun >= datetime.fromisoformat(self.about["begun"]).timestamp()).all())

    def elapsed(self) -> np.ndarray:
        """Seconds until each evaluation was complete [N], without pauses, in which nothing was being evaluated."""
        return covered([(row.result["begun"], row.result["ended"]) for row in self.rows])

    def computed(self) -> np.ndarray:
        """Images × multiply-adds that all evaluations had taken when each was complete [N], as if none shared any
        work."""
        return np.cumsum(np.where(self.images > 0, self.images * self.F[:, 0], 0))

    def worked(self) -> np.ndarray:
        """Seconds that workers had spent on evaluations when each was complete [N]."""
        seconds = [row.result.get("seconds", 0.0) for row in self.rows]
        return np.cumsum(np.nan_to_num(np.array(seconds, dtype=float)))


def labels(runs: Sequence[Run]) -> list[str]:
    """What to call each run's algorithm: its name, and the population size where it comes in several."""
    sizes: dict[str, set[int | None]] = {}
    for run in runs:
        sizes.setdefault(run.algorithm, set()).add(run.pop_size)
    return [f"{run.algorithm}, n = {run.pop_size}" if len(sizes[run.algorithm]) > 1 else run.algorithm for run in runs]
