"""Algorithms compared: several seeds of each at the same budget, their hypervolumes, and whether the difference is
chance."""

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from pymoo.core.algorithm import Algorithm
from pymoo.core.problem import Problem
from pymoo.optimize import minimize
from pymoo.termination import get_termination
from scipy.stats import mannwhitneyu

from ..evaluations import Evaluations, budget_of
from ..util.statistics import holm
from ..util.tables import table
from .runs import Run, labels


@dataclass(frozen=True)
class Difference:
    """Two algorithms, by the hypervolumes of their runs.

    :param p_value: of the Mann–Whitney U test, two-sided: how likely it is that runs of one and the same algorithm
        differ by as much.
    :param corrected: the same after Holm's correction for all pairs that are compared.
    :param wins, losses: seeds for which the first is better, and worse, than the second; equal ones count in neither.
    """

    first: str
    second: str
    p_value: float
    corrected: float
    wins: tuple[int, ...]
    losses: tuple[int, ...]


class Comparison:
    """Runs of several algorithms on one problem, compared by their hypervolumes after as many evaluations as all have.

    :param runs: one or more of each algorithm, with different seeds.
    :param ref_point: the hypervolume's reference point, in units of the objectives (`problem.hv_ref_point`).
    """

    def __init__(self, runs: Iterable[Run], ref_point: np.ndarray):
        self.runs: dict[str, list[Run]] = {}
        runs = list(runs)
        for label, run in zip(labels(runs), runs, strict=True):
            self.runs.setdefault(label, []).append(run)
        for label, group in self.runs.items():
            seeds = [run.seed for run in group]
            if len(set(seeds)) < len(seeds):
                again = next(seed for seed in seeds if seeds.count(seed) > 1)
                paths = ", ".join(str(run.path) for run in group if run.seed == again)
                raise ValueError(f"{label} with seed {again} is there several times: {paths}. Name each run once.")
        self.curves = {label: [run.hypervolume(ref_point) for run in group] for label, group in self.runs.items()}
        self.evaluations = min(map(len, runs))
        self.hypervolumes = {
            label: {
                run.seed: float(curve[self.evaluations - 1])
                for run, curve in zip(group, self.curves[label], strict=True)
            }
            for label, group in self.runs.items()
        }

    @property
    def differences(self) -> list[Difference]:
        """Each pair of algorithms of which both have several runs."""
        pairs = [
            (a, b)
            for a, b in combinations(self.runs, 2)
            if min(len(self.hypervolumes[a]), len(self.hypervolumes[b])) > 1
        ]
        p_values = [_p_value(*(list(self.hypervolumes[name].values()) for name in pair)) for pair in pairs]
        return [
            Difference(a, b, p, corrected, *self._seeds(a, b))
            for (a, b), p, corrected in zip(pairs, p_values, holm(p_values), strict=True)
        ]

    def _seeds(self, a: str, b: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        first, second = self.hypervolumes[a], self.hypervolumes[b]
        both = sorted(first.keys() & second.keys())
        return tuple(s for s in both if first[s] > second[s]), tuple(s for s in both if first[s] < second[s])

    def __str__(self) -> str:
        seeds = sorted({seed for values in self.hypervolumes.values() for seed in values})
        several = len(seeds) > 1
        images = {label: np.median([run.images.sum() for run in group]) for label, group in self.runs.items()}
        counts_images = np.isfinite(list(images.values())).any()
        head = [
            f"hypervolume after {self.evaluations:,}",
            "evaluations",
            *(["images"] if counts_images else []),
            *(["median", "quartiles"] if several else []),
            *(f"seed {s}" for s in seeds),
        ]
        rows = [head]
        for label, values in self.hypervolumes.items():
            evaluations = sorted({len(run) for run in self.runs[label]})
            counts = f"{evaluations[0]:,}" if len(evaluations) == 1 else f"{evaluations[0]:,}–{evaluations[-1]:,}"
            low, median, high = np.quantile(list(values.values()), (0.25, 0.5, 0.75))
            middle = [f"{images[label]:,.0f}" if np.isfinite(images[label]) else ""] if counts_images else []
            middle += [f"{median:.4f}", f"{low:.4f}–{high:.4f}"] if several else []
            rows.append([label, counts, *middle, *(f"{values[s]:.4f}" if s in values else "" for s in seeds)])
        lines = table(rows)
        if differences := self.differences:
            rows = [["Mann–Whitney", "p", "p, Holm", "better", "worse", "worse for seeds"]]
            for d in differences:
                lost = ", ".join(map(str, d.losses)) or "none"
                rows.append(
                    [f"{d.first} against {d.second}", f"{d.p_value:.3g}", f"{d.corrected:.3g}"]
                    + [f"{len(d.wins)}", f"{len(d.losses)}", lost]
                )
            lines += ["", *table(rows)]
        return "\n".join(lines)


def compare(
    problem: Problem,
    algorithms: Mapping[str, Callable[[], Algorithm]],
    termination: Any,
    *,
    seeds: Sequence[int],
    folder: str | os.PathLike,
    runner: Any = None,
    progress: bool = False,
) -> list[Run]:
    """Run each algorithm with each seed, one run after the other, each with a journal in the folder.

    Journals in the folder that were planned for another budget are refused: their accuracy thresholds rose differently.
    A limit of time is one of the whole run (`RunTime`), also if it is cut and goes on.

    All share one memo: a subnetwork that one run has evaluated is not computed again for another, but counts. Called
    again, runs that were complete are read, and one that was cut goes on.

    >>> algorithms = {"GOMEA": lambda: GOMEA(pop_size=8), "NSGA-II": lambda: nsga2(pop_size=8)}
    >>> runs = compare(get_problem("digits"), algorithms, ("n_evals", 10), seeds=[1, 2], folder="runs")
    >>> [(run.algorithm, run.seed) for run in runs]
    [('GOMEA', 1), ('NSGA-II', 1), ('GOMEA', 2), ('NSGA-II', 2)]

    :param algorithms: what makes each algorithm, by a name for its journals: `{"GOMEA": GOMEA, "NSGA-II": nsga2}`.
    :param termination: of each run, as pymoo's `minimize` takes it: `("n_evals", 2_000)`.
    :param runner: where evaluations happen; by default in this process.
    """
    if not algorithms or not seeds:
        raise ValueError("name at least one algorithm and one seed to compare.")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    journals = [
        (folder / f"{file_name(name)}-seed{seed}.sqlite", make, seed)
        for seed in seeds
        for name, make in algorithms.items()
    ]
    budget = budget_of(get_termination(*termination) if isinstance(termination, tuple) else termination, None)
    for path, *_ in journals:
        run = Run.read_if_begun(path)
        if run is not None and run.budget != budget:
            raise ValueError(
                f"{path} was planned for {run.budget} evaluations, and {budget} are asked for now. Use the same "
                "budget, or choose another folder."
            )
    for path, make, seed in journals:
        others = [other for other, *_ in journals if other != path and other.is_file()]
        evaluations = Evaluations(runner=runner, journal=path, memo=others, progress=progress)
        if progress:
            print(f"{path.stem}:", file=sys.stderr)
        try:
            minimize(problem, make(), termination, seed=seed, evaluator=evaluations)
        finally:
            evaluations.close()
        if evaluations.interrupted:
            raise KeyboardInterrupt
    return [Run.read(path) for path, *_ in journals]


def _p_value(a: Sequence[float], b: Sequence[float]) -> float:
    return 1.0 if set(a) == set(b) and len(set(a)) == 1 else float(mannwhitneyu(a, b, alternative="two-sided").pvalue)


def file_name(label: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-")
