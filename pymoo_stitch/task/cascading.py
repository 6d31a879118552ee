"""Many cascades scored at once, from what their stages predict, computed once.

Candidates are subnetworks of one space, called by their place in a list. `predict` computes their scores on a split;
`all_cascades` makes a table of the candidates themselves and of all cascades of two of them, or of more. It is made of
`single_networks` and of `extend`, which adds one more stage. `CascadeTable.front` is what is worth looking at,
`evaluate` the same cascades on other images, and `follow` what one of them answers for each image, for paired tests.

    predictions = predict(problem.engine, candidates, problem.task["selection"])
    table = all_cascades(predictions, JointCosts(candidates))
    for row in table.front():
        cascade = table.build(row, candidates)
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import nn

from ..supernet import Cascade, JointCosts, Subnetwork, top_probability
from .engine import Engine
from .metrics import METRICS
from .split import Split

DEFERRED = (0.02, 0.04, 0.06, 0.08, 0.10, 0.13, 0.16, 0.20, 0.25, 0.30, 0.40, 0.50)
"""The fractions of the images reaching a stage that the tried thresholds defer: few enough that no threshold is chosen
by single images."""

MOST = 2 * 10**7
"""How many cascades are scored at once, at most: a table of them takes 2 GB."""

_CHUNK = 2**25
"""How many numbers are worked on at a time."""


@dataclass(frozen=True)
class Predictions:
    """The predictions of candidates for the images of a split.

    :param scores: [candidates, images, classes, …], float32; outputs, or what heads make of them.
    :param labels: [images, …].
    :param metric: a name from `METRICS` by which cascades are scored.
    """

    scores: torch.Tensor
    labels: torch.Tensor
    metric: str = "accuracy"

    def __post_init__(self) -> None:
        if self.metric not in METRICS:
            raise ValueError(f"there is no metric {self.metric!r}; choose from {', '.join(METRICS)}.")
        if self.scores.ndim < 3 or self.scores.shape[1] != len(self.labels):
            raise ValueError(
                f"scores are [candidates, images, classes, …] for {len(self.labels)} images with labels, but are of "
                f"shape {tuple(self.scores.shape)}."
            )

    def __len__(self) -> int:
        """The number of candidates."""
        return len(self.scores)

    @property
    def n_images(self) -> int:
        return len(self.labels)

    def take(self, images: np.ndarray) -> "Predictions":
        """The same for some of the images."""
        chosen = torch.as_tensor(images)
        return replace(self, scores=self.scores[:, chosen], labels=self.labels[chosen])

    @cached_property
    def each(self) -> np.ndarray:
        """The metric's statistics of each candidate for each image [candidates, images, …]: see `Metric`."""
        return np.stack([self.statistics(scores[None], self.labels)[0] for scores in self.scores])

    def statistics(self, scores: torch.Tensor, labels: torch.Tensor) -> np.ndarray:
        """The metric's statistics of scores [n, images, classes, …] for each image [n, images, …]."""
        repeated = labels.expand(len(scores), *labels.shape).flatten(0, 1)
        found = METRICS[self.metric].each(scores.flatten(0, 1), repeated)
        return found.view(*scores.shape[:2], *found.shape[1:]).numpy()

    def values(self, sums: np.ndarray) -> np.ndarray:
        """The metric [n] of summed statistics [n, …]."""
        return METRICS[self.metric].values(torch.as_tensor(sums)).numpy()


@dataclass(frozen=True)
class Followed:
    """What a cascade does with the images of a split.

    :param last: at which stage each image gets its answer, counted from 0 [images].
    :param answers: the scores that are its answers [images, classes, …].
    :param total: the sum of the scores of all stages, of the images that reach the last stage, in their order.
    """

    last: np.ndarray
    answers: torch.Tensor
    total: torch.Tensor

    @property
    def fractions(self) -> np.ndarray:
        """The fraction of the images that reaches each stage, up to the last stage that any image reaches."""
        return np.array([(self.last >= stage).mean() for stage in range(self.last.max(initial=0) + 1)])


def follow(
    predictions: Predictions, stages: Sequence[int], thresholds: Sequence[float], combine: str = "mean"
) -> Followed:
    """The answers of a cascade of candidates for each image.

    :param stages: the candidates; one alone answers all images itself. −1 after the last is left out.
    :param thresholds: for each stage but the last.
    """
    stages = [int(stage) for stage in stages if stage >= 0]
    answers = total = predictions.scores[stages[0]]
    answers, there = answers.clone(), torch.arange(predictions.n_images)
    last = np.zeros(predictions.n_images, dtype=np.int64)
    for number, (stage, threshold) in enumerate(zip(stages[1:], thresholds, strict=False), 1):
        # As a cascade's module decides: NaN counts as not sure.
        unsure = ~(top_probability(answers[there]) >= torch.tensor(threshold, dtype=torch.float32))
        there, total = there[unsure], total[unsure]
        scores = predictions.scores[stage][there]
        total = total + scores
        answers[there] = total / (number + 1) if combine == "mean" else scores
        last[there.numpy()] = number
    return Followed(last, answers, total)


def predict(
    engine: Engine,
    subnetworks: Sequence[Subnetwork],
    split: Split,
    *,
    heads: Sequence[nn.Module | None] | None = None,
    metric: str = "accuracy",
) -> Predictions:
    """What subnetworks predict on a split, computed together, once.

    :param heads: as in `Engine.evaluate`, such as `StitchProblem.heads(subnetworks)`.
    """
    outputs = engine.outputs(subnetworks, split)
    for subnetwork, output, head in zip(subnetworks, outputs, heads or [nn.Identity()] * len(outputs), strict=True):
        if output is None or head is None or not output.isfinite().all():
            raise ValueError(f"{subnetwork!r} cannot be evaluated on the {split.name} split: omit it.")
    if heads is not None:
        with torch.inference_mode():
            outputs = [head.cpu()(output) for head, output in zip(heads, outputs, strict=True)]
    return Predictions(torch.stack(outputs), split.labels(), metric)


# --------------------------------------------------------------------------------------------------------------- tables


@dataclass(frozen=True)
class CascadeTable:
    """Cascades as arrays, a row for each; single networks are rows of one stage.

    :param stages: candidates [n, stages], −1 after the last.
    :param thresholds: [n, stages − 1], float32, NaN after the last.
    :param fractions: the fraction of the images that reaches each stage [n, stages], 0 after the last.
    :param costs: expected multiply-adds for one image [n].
    :param values: the metric [n].
    :param metric: its name.
    :param combine: as in `Cascade`.
    """

    stages: np.ndarray
    thresholds: np.ndarray
    fractions: np.ndarray
    costs: np.ndarray
    values: np.ndarray
    metric: str
    combine: str = "mean"

    def __len__(self) -> int:
        return len(self.costs)

    @property
    def n_stages(self) -> np.ndarray:
        """How many stages each has [n]."""
        return (self.stages >= 0).sum(1)

    @property
    def errors(self) -> np.ndarray:
        """The second objective [n], to be minimised like the cost."""
        metric = METRICS[self.metric]
        return 1 - self.values if metric.best > metric.worst else self.values

    def take(self, rows: np.ndarray | Sequence[int]) -> "CascadeTable":
        """Some of the rows, by their numbers or by a mask."""
        names = ("stages", "thresholds", "fractions", "costs", "values")
        return replace(self, **{name: getattr(self, name)[np.asarray(rows)] for name in names})

    def made_of(self, candidates: Iterable[int]) -> np.ndarray:
        """A mask over the rows: those whose stages are all among these. With the references, the plain cascades."""
        return np.all(np.isin(self.stages, [-1, *candidates]), axis=1)

    def front(self) -> np.ndarray:
        """The rows that no other dominates, in the order of cost; of equal ones the first."""
        order = np.lexsort((self.errors, self.costs))
        errors = self.errors[order]
        best = np.minimum.accumulate(errors)
        return order[np.concatenate([[True], errors[1:] < best[:-1]])] if len(order) else order

    def build(self, row: int, candidates: Sequence[Subnetwork]) -> Cascade | Subnetwork:
        """The cascade of a row, with its fractions; of a row of one stage the subnetwork itself."""
        count = int(self.n_stages[row])
        stages = [candidates[i] for i in self.stages[row, :count]]
        if count == 1:
            return stages[0]
        thresholds = self.thresholds[row, : count - 1].tolist()
        return Cascade(stages, thresholds, combine=self.combine, fractions=self.fractions[row, :count].tolist())


def joined(tables: Sequence[CascadeTable]) -> CascadeTable:
    """Several tables of the same images as one, the rows of the first first."""
    first, width = tables[0], max(table.stages.shape[1] for table in tables)
    if any((table.metric, table.combine) != (first.metric, first.combine) for table in tables):
        raise ValueError("only tables of one metric and one rule can be joined.")

    def padded(name: str, width: int, value: float) -> np.ndarray:
        arrays = [getattr(table, name) for table in tables]
        return np.concatenate(
            [np.pad(each, ((0, 0), (0, width - each.shape[1])), constant_values=value) for each in arrays]
        )

    return replace(
        first,
        stages=padded("stages", width, -1),
        thresholds=padded("thresholds", width - 1, np.nan),
        fractions=padded("fractions", width, 0),
        costs=np.concatenate([table.costs for table in tables]),
        values=np.concatenate([table.values for table in tables]),
    )


def single_networks(predictions: Predictions, costs: JointCosts, combine: str = "mean") -> CascadeTable:
    """The candidates themselves, in their order.

    :param combine: of the cascades that they are to be joined with or extended to.
    """
    count = len(predictions)
    return CascadeTable(
        np.arange(count)[:, None],
        np.empty((count, 0), dtype=np.float32),
        np.ones((count, 1)),
        costs.alone.astype(float),
        predictions.values(predictions.each.sum(1)),
        predictions.metric,
        combine,
    )


def all_cascades(
    predictions: Predictions,
    costs: JointCosts,
    *,
    of: Sequence[int] | None = None,
    n_stages: int = 2,
    at_most: float = np.inf,
    combine: str = "mean",
) -> CascadeTable:
    """Candidates alone, then the cascades of each pair of them in both orders with each threshold, and so on.

    :param of: the candidates that can be stages, all by default; of the references these are the plain cascades.
    :param n_stages: how many stages there are at most. Each one more makes several hundred times as many cascades.
    :param at_most: leaves out cascades that cost more on these images, in expected multiply-adds for one image.
    """
    table = single_networks(predictions, costs, combine)
    table = table.take(np.arange(len(predictions)) if of is None else np.asarray(of))
    tables = [table.take(table.costs <= at_most)]
    for _ in range(n_stages - 1):
        table = extend(tables[-1], predictions, costs, by=of)
        tables.append(table.take(table.costs <= at_most))
    return joined(tables)


def extend(
    table: CascadeTable,
    predictions: Predictions,
    costs: JointCosts,
    *,
    by: Sequence[int] | None = None,
    deferred: Sequence[float] = DEFERRED,
) -> CascadeTable:
    """Each cascade of a table with one more stage: with each candidate that is not among its stages, and each
    threshold.

    :param table: of the same images. All rows have the same number of stages.
    :param by: the candidates that can be the new stage, all by default.
    :param deferred: the fractions of the images reaching the last stage that are to be deferred to the new one.
        Thresholds lie in the middle between the top probabilities of two images.
    """
    if len(table) and table.n_stages.min() < table.stages.shape[1]:
        raise ValueError("the cascades to extend must all have the same number of stages.")
    by = range(len(predictions)) if by is None else by
    if (count := len(table) * len(by) * len(deferred)) > MOST:
        raise ValueError(
            f"up to {count:,} cascades of {table.stages.shape[1] + 1} stages are more than the {MOST:,} that can be "
            "scored at once: name fewer candidates, or fewer stages."
        )
    parts = [_extended(table, row, predictions, np.asarray(by), deferred) for row in range(len(table))]
    width = table.stages.shape[1] + 1
    stages, thresholds, fractions, values = (
        np.concatenate([part[i] for part in parts]) if parts else np.empty((0, *shape))
        for i, shape in enumerate([(width,), (width - 1,), (width,), ()])
    )
    added = np.diff(costs.cumulative(stages.astype(np.int64)), axis=1, prepend=0)
    expected = (fractions * added).sum(1)
    return replace(table, stages=stages, thresholds=thresholds, fractions=fractions, costs=expected, values=values)


def _extended(
    table: CascadeTable, row: int, predictions: Predictions, by: np.ndarray, deferred: Sequence[float]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Stages, thresholds, fractions and values of all cascades that a row can be extended to."""
    so_far = follow(predictions, table.stages[row], table.thresholds[row], table.combine)
    by = by[~np.isin(by, table.stages[row])]
    n_stages, n_images = table.stages.shape[1], predictions.n_images
    there = np.flatnonzero(so_far.last == n_stages - 1)
    tops = top_probability(so_far.answers[there]).numpy()
    order = np.argsort(tops, kind="stable")
    thresholds, counts = _thresholds(tops[order], deferred)
    most = counts[-1] if len(counts) else 0
    images = there[order[:most]]
    base = predictions.statistics(so_far.answers[None], predictions.labels)[0]
    kept = base.sum(0) - _sums_up_to(base[images][None], counts)[0]
    total = so_far.total[torch.as_tensor(order[:most])]
    sums = [
        kept + _sums_up_to(predictions.statistics(_answers(scores, total, n_stages, table.combine), labels), counts)
        for scores, labels in _chunks(predictions, by, images)
    ]
    values = predictions.values(np.concatenate(sums).reshape(-1, *kept.shape[1:])) if len(by) else np.empty(0)
    size, each = len(by) * len(counts), len(counts)
    reached = np.append(table.fractions[row], 0.0)
    fractions = np.tile(reached, (size, 1))
    fractions[:, -1] = np.tile(counts / n_images, len(by))
    stages = np.column_stack([np.tile(table.stages[row], (size, 1)), np.repeat(by, each)])
    all_thresholds = np.column_stack(
        [np.tile(table.thresholds[row], (size, 1)), np.tile(thresholds, len(by))[:, None]]
    ).astype(np.float32)
    return stages, all_thresholds, fractions, values


def _thresholds(tops: np.ndarray, deferred: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """Thresholds that defer about these fractions of images, and how many they do, ascending; none that defers no
    image.

    :param tops: the top probabilities of the images, ascending, float32."""
    found: dict[int, np.float32] = {}
    for fraction in sorted(deferred):
        place = min(round(fraction * len(tops)), len(tops) - 1)
        if place > 0:
            middle = np.float32((float(tops[place - 1]) + float(tops[place])) / 2)
            found.setdefault(int(np.searchsorted(tops, middle)), middle)
    found.pop(0, None)
    return np.array(list(found.values()), dtype=np.float32), np.array(list(found), dtype=np.int64)


def _chunks(
    predictions: Predictions, by: np.ndarray, images: np.ndarray
) -> Iterable[tuple[torch.Tensor, torch.Tensor]]:
    """The scores of some candidates for some images, [n, images, classes, …], a few candidates at a time, with
    labels."""
    chosen = torch.as_tensor(images)
    size = max(1, len(images) * predictions.scores[0, 0].numel())
    for at in range(0, len(by), step := max(1, _CHUNK // size)):
        yield predictions.scores[torch.as_tensor(by[at : at + step])[:, None], chosen], predictions.labels[chosen]


def _answers(scores: torch.Tensor, total: torch.Tensor, n_before: int, combine: str) -> torch.Tensor:
    """The answers of cascades after a stage with these scores, given the sum of those of the `n_before` stages before
    it."""
    return (total + scores) / (n_before + 1) if combine == "mean" else scores


def _sums_up_to(each: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """For each of `counts`, the sum of the statistics [n, images, …] of the first so many images: [n, counts, …]."""
    if not len(counts):
        return np.empty((len(each), 0, *each.shape[2:]))
    parts = np.add.reduceat(each[:, : counts[-1]], np.append(0, counts[:-1]), axis=1)
    return np.cumsum(parts, axis=1)


def evaluate(table: CascadeTable, predictions: Predictions, costs: JointCosts) -> CascadeTable:
    """The same cascades on other images: with their own thresholds, but the fractions, costs and values that they have
    there."""
    fractions, values = np.zeros(table.fractions.shape), np.empty(len(table))
    for row in range(len(table)):
        followed = follow(predictions, table.stages[row], table.thresholds[row], table.combine)
        fractions[row, : len(followed.fractions)] = followed.fractions
        each = predictions.statistics(followed.answers[None], predictions.labels)[0]
        values[row] = predictions.values(each.sum(0)[None])[0]
    added = np.diff(costs.cumulative(table.stages), axis=1, prepend=0)
    return replace(
        table, fractions=fractions, costs=(fractions * added).sum(1), values=values, metric=predictions.metric
    )


def each_image(table: CascadeTable, row: int, predictions: Predictions) -> np.ndarray:
    """The metric's statistics of one cascade for each image [images, …]; of the accuracy, the first column tells
    whether it is right: what paired tests need."""
    followed = follow(predictions, table.stages[row], table.thresholds[row], table.combine)
    return predictions.statistics(followed.answers[None], predictions.labels)[0]
