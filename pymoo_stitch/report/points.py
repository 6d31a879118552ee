"""Networks as points: what is known of each on every split, how sure that is, and how it compares with the
references."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from pymoo.core.individual import Individual
from torch import nn

from ..problem import StitchProblem
from ..supernet import Cascade, Subnetwork
from ..task import METRICS
from ..util.fronts import dominates
from ..util.statistics import Paired, bootstrap, decimals, holm, mcnemar, paired_bootstrap, wilson

TOLERANCE = 0.0025
"""How much worse than a reference a network may be, by the 95 % interval of the difference, and still be called as
good."""


@dataclass(frozen=True)
class Measured:
    """What is known of a network on a split: its multiply-adds, the value of each metric, and the statistics of each
    image [n, …] (see `task.Metric`)."""

    cost: float
    metrics: Mapping[str, float]
    each: Mapping[str, np.ndarray]
    _intervals: dict[str, tuple[float, float]] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, individual: Individual, metrics: Sequence[str]) -> "Measured":
        """What an evaluation found."""
        return cls(individual.F[0], {name: float(individual.get(name)) for name in metrics}, individual.get("each"))

    def interval(self, metric: str) -> tuple[float, float]:
        """The ends of a metric's 95 % interval, computed once; NaN where the evaluation failed."""
        if metric not in self._intervals:
            self._intervals[metric] = interval(self.each[metric], metric) if self.each else (np.nan, np.nan)
        return self._intervals[metric]


def measured_scores(problem: StitchProblem, cost: float, scores: torch.Tensor, labels: torch.Tensor) -> Measured:
    """What is known of a network that has these scores [n, classes] for images with these labels."""
    each = {name: METRICS[name].each(scores, labels) for name in problem.task.all_metrics}
    values = {name: METRICS[name].value(rows.sum(0)) for name, rows in each.items()}
    return Measured(cost, values, {name: rows.numpy() for name, rows in each.items()})


@dataclass(frozen=True)
class Against:
    """A network compared with a reference on the same images.

    :param corrected: the p-value, by Holm's correction over all networks that are shown.
    """

    paired: Paired
    corrected: float

    @classmethod
    def of(cls, first: np.ndarray, second: np.ndarray, metric: str) -> "Against":
        """A single comparison of two, by the statistics of each image [n, …]."""
        pair = paired(first, second, metric)
        return cls(pair, pair.p_value)

    @property
    def verdict(self) -> str:
        """ "better than", "worse than" or "not distinguishable from"."""
        return self.paired.verdict(self.corrected)

    @property
    def is_as_good(self) -> bool:
        """Whether it is surely no more than `TOLERANCE` worse, by the 95 % interval of the difference.

        Not to be distinguishably worse is not enough. Of many networks, each a little worse and cheaper than the last,
        the cheapest that no test tells from the reference is one that had luck, and as a rule one that is worse."""
        return self.paired.low >= -TOLERANCE


@dataclass(frozen=True, eq=False)
class Point:
    """A network that runs found, a cascade, or a reference, with all that is known of it. By the names of the splits:

    :param name: of a reference; of others the beginning of their key.
    :param network: the network itself, with `module()` and `export(path)`.
    :param found_by: the algorithms on whose front it is, or within half a standard error of it; "cascade" if it is one.
    :param measured: all that was measured.
    :param metrics: each metric's value.
    :param F: the objectives [2].
    :param dominates: the names of the references that it dominates.
    :param on_front: whether neither a reference nor another network that was found dominates it.
    :param against: how it compares with each reference, by name.
    """

    name: str
    network: Subnetwork | Cascade
    found_by: tuple[str, ...]
    measured: Mapping[str, Measured]
    metrics: Mapping[str, Mapping[str, float]]
    F: Mapping[str, np.ndarray]
    dominates: Mapping[str, tuple[str, ...]]
    on_front: Mapping[str, bool]
    against: Mapping[str, Mapping[str, Against]]

    def __repr__(self) -> str:
        metrics = {split: {name: round(value, 4) for name, value in of.items()} for split, of in self.metrics.items()}
        return f"Point({self.name!r}, {self.multiply_adds:,} multiply-adds, {self.stitches} stitches, {metrics})"

    @classmethod
    def of(
        cls,
        problem: StitchProblem,
        name: str,
        network: Subnetwork | Cascade,
        found_by: Sequence[str],
        measured: Mapping[str, Measured],
    ) -> "Point":
        """A point that has not been compared with others yet."""
        metric = problem.task.metric
        return cls(
            name,
            network,
            tuple(found_by),
            measured,
            {split: one.metrics for split, one in measured.items()},
            {s: np.array([one.cost, problem.metric.error(one.metrics[metric])]) for s, one in measured.items()},
            dict.fromkeys(measured, ()),
            dict.fromkeys(measured, True),
            {split: {} for split in measured},
        )

    @property
    def key(self) -> str:
        return self.network.key

    @property
    def is_cascade(self) -> bool:
        return isinstance(self.network, Cascade)

    @property
    def x(self) -> np.ndarray | None:
        """The genotype; None of a cascade."""
        return None if isinstance(self.network, Cascade) else self.network.x

    @property
    def cost(self) -> float:
        """Multiply-adds for one image; of a cascade those expected on the split on which it was chosen."""
        return self.network.cost

    @property
    def worst_cost(self) -> int:
        """Multiply-adds for an image that takes the most; of a network all images do."""
        return self.network.worst_cost if isinstance(self.network, Cascade) else self.network.cost

    @property
    def multiply_adds(self) -> int:
        """The cost, rounded."""
        return round(self.cost)

    @property
    def stitches(self) -> int:
        return self.network.n_stitches

    def interval(self, split: str, metric: str) -> tuple[float, float]:
        """The ends of a metric's 95 % interval on a split."""
        return self.measured[split].interval(metric)

    def module(self, device: torch.device | str | None = None) -> nn.Module:
        """A plain PyTorch module."""
        return self.network.module(device)

    def export(self, path: Any, **options: Any) -> dict[str, Any]:
        """Write it to a file that needs only torch, or to ONNX: as `Subnetwork.export`."""
        return self.network.export(path, **options)


def compared(points: Sequence[Point], references: Sequence[Point], metric: str) -> list[Point]:
    """The points, compared with one another and with the references on every split."""
    found: list[dict[str, Any]] = [{"dominates": {}, "on_front": {}, "against": {}} for _ in points]
    for split in points[0].F if points else ():
        everything = np.array([point.F[split] for point in [*points, *references]])
        for point, judged in zip(points, found, strict=True):
            f = point.F[split]
            judged["dominates"][split] = tuple(r.name for r in references if dominates(f, r.F[split]))
            better = (everything <= f).all(1) & (everything < f).any(1)
            judged["on_front"][split] = not better.any()
            judged["against"][split] = {}
        for reference in references:
            pairs = [
                paired(p.measured[split].each[metric], reference.measured[split].each[metric], metric) for p in points
            ]
            for judged, pair, corrected in zip(found, pairs, holm([p.p_value for p in pairs]), strict=True):
                judged["against"][split][reference.name] = Against(pair, corrected)
    return [replace(point, **judged) for point, judged in zip(points, found, strict=True)]


def interval(rows: np.ndarray, metric: str) -> tuple[float, float]:
    """The 95 % interval of a metric: Wilson's of an accuracy, else by a bootstrap over the images.

    :param rows: the statistics of each image [n, …].
    """
    if metric == "accuracy":
        return wilson(rows[:, 0].sum(), len(rows))
    low, high = bootstrap(rows, _values(metric))
    ends = METRICS[metric].best, METRICS[metric].worst
    return max(low, min(ends)), min(high, max(ends))


def paired(first: np.ndarray, second: np.ndarray, metric: str) -> Paired:
    """By how much the first is better by a metric, on the same images: McNemar's exact test of an accuracy, else a
    bootstrap over the images.

    :param first, second: the statistics of each image [n, …].
    """
    if metric == "accuracy":
        return mcnemar(first[:, 0] > 0, second[:, 0] > 0)
    sign = 1 if METRICS[metric].best > METRICS[metric].worst else -1
    values = _values(metric)
    return paired_bootstrap(first, second, lambda sums: sign * values(sums))


def _values(metric: str) -> Callable[[np.ndarray], np.ndarray]:
    return lambda sums: METRICS[metric].values(torch.from_numpy(sums)).numpy()


def noise(problem: StitchProblem) -> list[str]:
    """What the images of the search can and cannot tell, as sentences: which references differ by less than chance
    alone would, and how many images would be needed."""
    references, metric = problem.references(), problem.task.metric
    n, split = len(problem.task[problem.split]), problem.split
    names = [str(name) for name in references.get("name")]
    rows = [one.get("each")[metric] for one in references]
    lines, digits = [], decimals(n, paired=True)
    for i, first in enumerate(names):
        for j in range(i + 1, len(names)):
            pair = paired(rows[i], rows[j], metric)
            chance, difference = (pair.high - pair.low) / 2, abs(pair.difference)
            if difference >= chance:
                continue
            images = (
                f"about {round(n * (chance / difference) ** 2, -2):,.0f} images would tell them apart"
                if difference
                else "no number of images like these would tell them apart"
            )
            lines.append(
                f"On these {n:,} {split} images, {first} and {names[j]} differ by {difference:.{digits}f}, and chance "
                f"alone makes differences of up to {chance:.{digits}f} between such networks: {images}."
            )
    return lines
