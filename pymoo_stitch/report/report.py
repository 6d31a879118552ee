"""What a person takes from runs: the networks on their fronts, tables, plots, and everything as data."""

import csv
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from torch import nn

from ..evaluations import differences, identity, write_genotype
from ..problem import StitchProblem
from ..supernet import Subnetwork
from ..task import reliability
from ..util.fronts import dominates, front_of
from ..util.tables import table
from .comparison import Comparison
from .drawing import draw_subnetwork
from .fronts import plot_fronts
from .plots import plot_hypervolume, plot_reliability, plot_stitches
from .runs import Run


@dataclass(frozen=True, eq=False)
class Point:
    """A network that runs found, or a reference, with all that is known of it. Splits are the one that was searched, as a
    rule "validation", and "test".

    :param name: of a reference; of others the beginning of their key.
    :param found_by: the algorithms on whose front it is.
    :param metrics: by the names of the splits: each metric's value.
    :param F: the objectives [2] on each split.
    :param dominates: on each split, the names of the references that it dominates.
    :param on_front: on each split, whether none of the others found dominates it.
    """

    name: str
    key: str
    x: np.ndarray
    multiply_adds: int
    stitches: int
    found_by: tuple[str, ...]
    metrics: Mapping[str, Mapping[str, float]]
    F: Mapping[str, np.ndarray]
    dominates: Mapping[str, tuple[str, ...]]
    on_front: Mapping[str, bool]


class Report:
    """Runs of one problem, by any algorithms and with any seeds, and their front evaluated again on the test split.

    Whatever an algorithm's runs have found together is its front: the non-dominated ones of all their evaluations.

    >>> problem, evaluations = get_problem("digits"), Evaluations(journal="run.sqlite")
    >>> _ = minimize(problem, GOMEA(pop_size=8), ("n_evals", 20), seed=1, evaluator=evaluations)
    >>> report = Report([Run.read("run.sqlite")], problem)
    >>> [point.name for point in report.references]
    ['inverted', 'residual', 'ensemble']
    >>> report.choose().multiply_adds <= max(point.multiply_adds for point in report.front)
    True
    >>> len(report.write("report"))
    9

    :param runs: as `Run.read` gives them.
    :param problem: the one that was searched. A run of another is refused.
    :param test: whether to evaluate on the test split, if the task has one.
    """

    def __init__(self, runs: Iterable[Run], problem: StitchProblem, *, test: bool = True):
        runs = list(runs)
        if not runs:
            raise ValueError("a report is about one run or more; none is given.")
        own = identity(problem)
        for run in runs:
            if found := differences(run.about["problem"], own, "problem"):
                origin = f" (It was made from {run.origin}.)" if run.origin else ""
                raise ValueError(f"{run.path} is a run of another problem: {'; '.join(found)}.{origin}")
        self.problem = problem
        self.comparison = Comparison(runs, problem.hv_ref_point)
        self.split = problem.split
        own = [self.split, "test"] if test and "test" in problem.task.splits else [self.split]
        self.splits = tuple(dict.fromkeys(own))

    @property
    def runs(self) -> list[Run]:
        return [run for group in self.comparison.runs.values() for run in group]

    @cached_property
    def references(self) -> list[Point]:
        """Each network and the ensemble, by their cost."""
        evaluated = {split: self.problem.references(split) for split in self.splits}
        names = evaluated[self.splits[0]].get("name")
        points = [
            self._point(str(name), pop.X, (), {split: evaluated[split][i] for split in self.splits})
            for i, (name, pop) in enumerate(zip(names, evaluated[self.splits[0]], strict=True))
        ]
        return sorted(points, key=lambda point: point.multiply_adds)

    @cached_property
    def front(self) -> list[Point]:
        """The networks on the algorithms' fronts together, by their cost, evaluated on all splits."""
        found: dict[str, tuple[np.ndarray, list[str]]] = {}
        for label, group in self.comparison.runs.items():
            F, X = np.concatenate([run.F for run in group]), np.concatenate([run.X for run in group])
            keys = [row.key for run in group for row in run.rows]
            for i in front_of(F, np.concatenate([run.is_sound for run in group])):
                found.setdefault(keys[i], (X[i], []))[1].append(label)
        if not found:
            return []
        X = np.array([x for x, _ in found.values()])
        evaluated = {split: self.problem.reevaluate(X, split) for split in self.splits}
        points = [
            self._point(key[:8], x, tuple(labels), {split: evaluated[split][i] for split in self.splits})
            for i, (key, (x, labels)) in enumerate(found.items())
        ]
        return sorted(points, key=lambda point: tuple(point.F[self.split]))

    def _point(self, name: str, x: np.ndarray, found_by: tuple[str, ...], evaluated: Mapping[str, Any]) -> Point:
        subnetwork = self.problem.subnetwork(x)
        names = self.problem.task.all_metrics
        metrics = {split: {n: float(one.get(n)) for n in names} for split, one in evaluated.items()}
        objectives = {split: one.F for split, one in evaluated.items()}
        others = self.references if found_by else []
        beaten = {
            split: tuple(other.name for other in others if dominates(f, other.F[split]))
            for split, f in objectives.items()
        }
        on_front = {split: bool(one.get("on_front")) for split, one in evaluated.items()}
        cost, stitches = subnetwork.cost, subnetwork.n_stitches
        return Point(name, subnetwork.key, x, cost, stitches, found_by, metrics, objectives, beaten, on_front)

    @cached_property
    def found(self) -> list[Point]:
        """The networks on the front that are no references, and that none found by another algorithm dominates."""
        known = {point.key for point in self.references}
        return [point for point in self.front if point.key not in known and point.on_front[self.split]]

    def choose(self, *, key: str | None = None, at_most: float | None = None, at_least: float | None = None) -> Point:
        """One network on the front, judged on the split that was searched: by default the cheapest one that is as good as
        the best reference, or the best one if none is.

        :param key: the one whose key begins so.
        :param at_most: the best one, of equals the cheapest, of at most so many multiply-adds.
        :param at_least: the cheapest one whose metric is at least so good.
        """
        if not self.front:
            raise ValueError("these runs found no network: all evaluations failed, or none meets the constraint.")
        metric = self.problem.task.metric

        def error_first(point: Point) -> tuple[float, int]:
            return point.F[self.split][1], point.multiply_adds

        best = min(self.front, key=error_first)
        if key is not None:
            found = [point for point in self.front if point.key.startswith(key)]
            if len(found) != 1:
                some = ", ".join(point.name for point in self.front[:20])
                raise ValueError(
                    f"{len(found) or 'no'} networks on the front have a key like {key!r}. There are {some}."
                )
            return found[0]
        if at_most is not None:
            found = [point for point in self.front if point.multiply_adds <= at_most]
            if not found:
                least = self.front[0].multiply_adds
                raise ValueError(f"no network on the front costs at most {at_most:,.0f}; the cheapest costs {least:,}.")
            return min(found, key=error_first)
        if at_least is None:
            limit = min(point.F[self.split][1] for point in self.references)
        else:
            limit = self.problem.metric.error(at_least)
        found = [point for point in self.front if point.F[self.split][1] <= limit]
        if not found and at_least is not None:
            reached = best.metrics[self.split][metric]
            raise ValueError(f"no network on the front reaches {metric} {at_least:g}; the best has {reached:.4f}.")
        return found[0] if found else best

    def measure(self, subnetwork: Subnetwork) -> dict[str, dict[str, float]]:
        """Every metric of a subnetwork, also one with stitches of its own, on the split that was searched and on test."""
        task, engine = self.problem.task, self.problem.engine
        splits = [split for split in dict.fromkeys([self.split, "test"]) if split in task.splits]
        heads = self.problem.heads([subnetwork])
        evaluate = partial(engine.evaluate, [subnetwork], metrics=task.all_metrics, heads=heads, progress=True)
        return {split: dict(evaluate(split=task[split])[0].metrics) for split in splits}

    # ------------------------------------------------------------------------------------------------------------ text

    def __str__(self) -> str:
        return "\n".join([*self._points(), "", *self._verdict(), "", str(self.comparison)])

    def _points(self, most: int = 12) -> list[str]:
        """References, and of what was found above the floor so many, evenly spread."""
        metric, ensemble = self.problem.task.metric, max(point.multiply_adds for point in self.references)
        shown = self._above_floor()
        if len(shown) > most:
            shown = [shown[i] for i in np.linspace(0, len(shown) - 1, most).round().astype(int)]
        several = len(self.comparison.runs) > 1
        columns = [f"{metric}, {split}" for split in self.splits]
        wins = [f"dominates on {split}" for split in self.splits]
        rows = [["network", "multiply-adds", "of dearest", *columns, "stitches", *wins, *["found by"] * several]]
        for point in [*self.references, *shown]:
            rows.append(
                [point.name, f"{point.multiply_adds:,}", f"{point.multiply_adds / ensemble:.0%}"]
                + [f"{point.metrics[split][metric]:.4f}" for split in self.splits]
                + [f"{point.stitches}"]
                + [", ".join(point.dominates[split]) for split in self.splits]
                + [", ".join(point.found_by)] * several
            )
        return table(rows)

    def _above_floor(self) -> list[Point]:
        """Those found whose error the plots and the hypervolume look at."""
        floor = self.problem.hv_ref_point[1]
        return [point for point in self.found if point.F[self.split][1] <= floor]

    def _verdict(self) -> list[str]:
        floor = self.problem.hv_ref_point[1]
        bound = f"{1 - floor:g}" if self.problem.metric.best > self.problem.metric.worst else f"{floor:g}"
        n, above = len(self.found), len(self._above_floor())
        lines = [f"Found on the front: {n}, of which {above} are above the floor, {self.problem.task.metric} {bound}."]
        if "test" in self.splits and n:
            lines[0] += f" On test {sum(point.on_front['test'] for point in self.found)} of them are not dominated."
        for reference in self.references:
            there = [point for point in self.found if reference.name in point.dominates[self.split]]
            text = f"{len(there)} dominate {reference.name} on {self.split}"
            if "test" in self.splits and there:
                text += f", {sum(reference.name in point.dominates['test'] for point in there)} of them still on test"
            lines.append(f"{text}.")
        return lines

    # ----------------------------------------------------------------------------------------------------------- plots

    def plot_fronts(self) -> Figure:
        fronts = {
            split: {
                label: np.array([point.F[split] for point in self.front if label in point.found_by]).reshape(-1, 2)
                for label in self.comparison.runs
            }
            for split in self.splits
        }
        references = {split: {point.name: tuple(point.F[split]) for point in self.references} for split in self.splits}
        return plot_fronts(fronts, references, metric=self.problem.task.metric)

    def plot_hypervolume(self, *, over_time: bool = False) -> Figure:
        """Over evaluations, or over time: that since a run began where all runs have evaluated everything themselves,
        else the time that workers spent on evaluations."""
        times, label = self._times()
        seconds, unit = (60, "minutes") if max(times(run)[-1] for run in self.runs) > 120 else (1, "seconds")
        curves = {
            name: [
                (times(run) / seconds if over_time else np.arange(1, len(run) + 1), curve)
                for run, curve in zip(group, self.comparison.curves[name], strict=True)
            ]
            for name, group in self.comparison.runs.items()
        }
        return plot_hypervolume(curves, x_label=f"{label} ({unit})" if over_time else "evaluations")

    def _times(self) -> tuple[Callable[[Run], np.ndarray], str]:
        if all(run.has_own_times for run in self.runs):
            return Run.elapsed, "time"
        return Run.worked, "workers' time"

    def plot_stitches(self) -> Figure:
        """Of the first run of each algorithm."""
        return plot_stitches({label: self._stitches(group[0]) for label, group in self.comparison.runs.items()})

    def _stitches(self, run: Run) -> tuple[np.ndarray, np.ndarray]:
        links = self.problem.n_var - self.problem.space.n_choices
        X = run.X[:, :links]
        return X.sum(1), (X & run.active[:, :links]).sum(1)

    def reliability(self, chosen: Point) -> dict[str, np.ndarray]:
        """Of the references and a network, on the last split: for each bin of the predicted class's probability the
        predictions, the sum of their probabilities, and those that are right [3, bins]."""
        engine, split = self.problem.engine, self.problem.task[self.splits[-1]]
        points = [*self.references, chosen]
        subnetworks = [self.problem.subnetwork(point.x) for point in points]
        heads = self.problem.heads(subnetworks) or [nn.Identity()] * len(points)
        sums: list[Any] = [0] * len(points)
        for images, labels in split.batches(engine.batch_size):
            for i, outputs in enumerate(engine.predict(subnetworks, images)):
                sums[i] = sums[i] + reliability(heads[i].cpu()(outputs), labels)
        return {point.name: total.numpy() for point, total in zip(points, sums, strict=True)}

    # ------------------------------------------------------------------------------------------------------------ files

    def write(self, folder: str | os.PathLike, chosen: Point | None = None) -> list[Path]:
        """Everything as files in a folder, made if need be: plots as PNG, tables as CSV, all in one as JSON.

        :param chosen: the network that is drawn, and whose reliability is shown; by default `choose()`.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        chosen = chosen or (self.choose() if self.front else None)
        bins = {} if chosen is None else self.reliability(chosen)
        written = [
            _write_csv(folder / "front.csv", map(self._flat, [*self.references, *self.front])),
            _write_csv(folder / "evaluations.csv", self._evaluations()),
            _write_json(folder / "report.json", self._document(bins)),
        ]
        figures = {
            "fronts": self.plot_fronts,
            "hypervolume": self.plot_hypervolume,
            "hypervolume-time": lambda: self.plot_hypervolume(over_time=True),
        }
        if self.problem.codes is None:  # a code's variables are no links
            figures["stitches"] = self.plot_stitches
        if chosen is not None:
            figures["reliability"] = lambda: plot_reliability(bins)
            figures["subnetwork"] = lambda: draw_subnetwork(self.problem.subnetwork(chosen.x))
        for name, draw in figures.items():
            draw().savefig(folder / f"{name}.png", dpi=150)
            written.append(folder / f"{name}.png")
        return written

    def _flat(self, point: Point) -> dict[str, Any]:
        row = {
            "name": point.name,
            "key": point.key,
            "found_by": "; ".join(point.found_by),
            "multiply_adds": point.multiply_adds,
            "stitches": point.stitches,
        }
        row |= {f"{split}_{name}": v for split, values in point.metrics.items() for name, v in values.items()}
        row |= {f"dominates_on_{split}": "; ".join(names) for split, names in point.dominates.items()}
        row |= {f"on_front_on_{split}": int(v) if point.found_by else "" for split, v in point.on_front.items()}
        return row | {"genotype": write_genotype(point.x)}

    def _evaluations(self) -> Iterable[dict[str, Any]]:
        for label, group in self.comparison.runs.items():
            for run, curve in zip(group, self.comparison.curves[label], strict=True):
                nonzero, active = self._stitches(run)
                elapsed, worked = run.elapsed() if run.has_own_times else None, run.worked()
                for i, row in enumerate(run.rows):
                    yield {
                        "algorithm": label,
                        "seed": run.seed,
                        "evaluation": i + 1,
                        "elapsed": "" if elapsed is None else round(float(elapsed[i]), 4),
                        "worked": round(float(worked[i]), 4),
                        "multiply_adds": run.F[i, 0],
                        "error": run.F[i, 1],
                        "hypervolume": curve[i],
                        "nonzero_stitches": int(nonzero[i]),
                        "active_stitches": int(active[i]),
                        "threshold": row.threshold,
                        "failed": row.result["failed"],
                        "key": row.key,
                    }

    def _document(self, bins: Mapping[str, np.ndarray]) -> dict[str, Any]:
        metric = self.problem.task.metric
        return {
            "problem": {
                "origin": self.problem.origin,
                "metric": metric,
                "ref_point": self.problem.hv_ref_point.tolist(),
            },
            "runs": [
                {"algorithm": label, "path": run.path.name, "evaluations": len(run)}
                | {"seed": run.seed, "pop_size": run.pop_size, "versions": run.about["versions"]}
                | {"hypervolume": self.comparison.hypervolumes[label][run.seed]}
                for label, group in self.comparison.runs.items()
                for run in group
            ],
            "compared_after": self.comparison.evaluations,
            "differences": [asdict(difference) for difference in self.comparison.differences],
            "references": [self._flat(point) for point in self.references],
            "front": [self._flat(point) for point in self.front],
            "reliability": {name: sums.tolist() for name, sums in bins.items()},
        }


def _write_csv(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = None
        for row in rows:
            if writer is None:
                writer = csv.DictWriter(file, row)
                writer.writeheader()
            writer.writerow(row)
    return path


def _write_json(path: Path, document: Mapping[str, Any]) -> Path:
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return path
