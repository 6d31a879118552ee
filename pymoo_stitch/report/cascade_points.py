"""Cascades as points of a report: the plain ones, and one with stitched stages where that is worth more."""

import json
import math
import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np

from ..problem import Elsewhere, StitchProblem
from ..supernet import Cascade, JointCosts, Subnetwork, top_probability
from ..task.cascading import CascadeTable, Predictions, all_cascades, follow
from .cascades import stitched_instead
from .points import Measured, Point, measured_scores

MEMORY = 2**31
"""Bytes that the scores of all candidates may take. The first that fit are taken."""


class CascadePoints:
    """Cascades of a report's networks. Their thresholds are chosen on the deciding split.

    :param references: those of the report. Their cascades are the plain ones: what one can have without a search.
    :param others: networks with stitches that may be stages, the most promising first.
    :param splits: on which cascades are evaluated.
    :param deciding: the one of these on which they are chosen.
    :param n_stages: how many stages plain ones have at most.
    :param runner: where networks predict; by default in this process.
    """

    def __init__(
        self,
        problem: StitchProblem,
        references: Sequence[Point],
        others: Sequence[Subnetwork],
        splits: Sequence[str],
        deciding: str,
        n_stages: int = 2,
        runner: Elsewhere | None = None,
    ):
        self.problem, self.splits, self.deciding, self.n_stages = problem, splits, deciding, n_stages
        self.runner = runner
        self.references: list[Subnetwork] = [p.network for p in references if isinstance(p.network, Subnetwork)]
        most = MEMORY // self._bytes(deciding)
        self.candidates = [*self.references, *others][: max(len(self.references), most)]

    @cached_property
    def refusal(self) -> str | None:
        """Why there are none, as a sentence: the scores of dense outputs may take more memory than there is."""
        needed = len(self.references) * max(map(self._bytes, self.splits))
        if needed <= MEMORY:
            return None
        return (
            f"Cascades were left out: the references' scores take {needed / 2**30:.1f} GB, and {MEMORY / 2**30:.0f} "
            "are allowed. Give the task fewer images for selection and test."
        )

    def _bytes(self, split: str) -> int:
        """Of a network's scores on a split."""
        classes, *pixels = self.references[0].outputs[0].output_shape
        return 4 * (self.problem.task.n_classes or classes) * math.prod(pixels) * len(self.problem.task[split])

    @cached_property
    def plain(self) -> list[Point]:
        """The cascades of references that no other cascade and no reference beats in both quality and cost on the
        deciding split, by their cost. Of those that are equally good there, all are kept: on other images those that
        defer more are nearer to what all stages together would answer."""
        if self.refusal:
            return []
        order = np.lexsort((self._plain.errors, self._plain.costs))
        good = self._plain.errors[order] <= np.minimum.accumulate(self._plain.errors[order])
        rows = [row for row in order[good] if self._plain.n_stages[row] > 1]
        known = {split: self.problem.predictions(self.references, split, self.runner) for split in self.splits}
        place = {stage.key: i for i, stage in enumerate(self.references)}
        points = []
        for row in rows:
            cascade = self._plain.build(row, self.references)
            assert isinstance(cascade, Cascade)  # of several stages
            stages = [place[stage.key] for stage in cascade.stages]
            measured = {split: _followed(self.problem, cascade, known[split], stages) for split in self.splits}
            points.append(self._point(cascade, measured))
        return points

    def stitched(self, plain: Point) -> Point | None:
        """A cascade with a stitched stage that is worth more than a plain one: see `cascades.stitched_instead`."""
        if len(self.candidates) == len(self.references):
            return None
        keys = [self._plain.build(row, self.references).key for row in range(len(self._plain))]
        baseline = self._plain.take([keys.index(plain.key)])
        scores = self.problem.predictions(self.candidates, self.deciding, self.runner)
        chosen = stitched_instead(scores, JointCosts(self.candidates), range(len(self.references)), baseline)
        cascade = chosen.table.build(0, self.candidates)
        if not chosen.is_stitched or not isinstance(cascade, Cascade):  # a single network is judged among the networks
            return None
        return self._point(
            cascade, {split: measure_cascade(self.problem, cascade, split, self.runner) for split in self.splits}
        )

    @cached_property
    def _plain(self) -> CascadeTable:
        scores = self.problem.predictions(self.references, self.deciding, self.runner)
        return all_cascades(scores, JointCosts(self.references), n_stages=self.n_stages)

    def _point(self, cascade: Cascade, measured: dict[str, Measured]) -> Point:
        return Point.of(self.problem, cascade.key[:8], cascade, ("cascade",), measured)


def measure_cascade(problem: StitchProblem, cascade: Cascade, split: str, runner: Elsewhere | None = None) -> Measured:
    """A cascade on a split, with its expected cost there."""
    scores = problem.predictions(cascade.stages, split, runner)
    return _followed(problem, cascade, scores, range(len(cascade.stages)))


def _followed(problem: StitchProblem, cascade: Cascade, scores: Predictions, stages: Sequence[int]) -> Measured:
    """A cascade, given what candidates predict and which of these its stages are."""
    followed = follow(scores, stages, cascade.thresholds, cascade.combine)
    cost = cascade.expected_cost(_padded(followed.fractions, len(stages)))
    return measured_scores(problem, cost, followed.answers, scores.labels)


def _padded(fractions: np.ndarray, n_stages: int) -> list[float]:
    """For every stage, also where no image reaches the last ones."""
    return np.pad(fractions, (0, n_stages - len(fractions))).tolist()


def with_new_thresholds(problem: StitchProblem, cascade: Cascade, split: str) -> Cascade:
    """The same stages, which may have changed since, with thresholds that defer the same fractions of the images of a
    split as before."""
    if cascade.fractions is None:
        raise ValueError("this cascade does not know what fractions of images it should defer: pass fractions=.")
    scores, n_stages = problem.predictions(cascade.stages, split), len(cascade.stages)
    thresholds: list[float] = []
    for number in range(1, n_stages):
        followed = follow(scores, range(number), thresholds, cascade.combine)
        answers = followed.answers[followed.last == number - 1]
        tops = np.sort(top_probability(answers).numpy())
        wanted = round(cascade.fractions[number] * scores.n_images)
        thresholds.append(float(tops[min(wanted, len(tops) - 1)]))
    fractions = follow(scores, range(n_stages), thresholds, cascade.combine).fractions
    return Cascade(cascade.stages, thresholds, combine=cascade.combine, fractions=_padded(fractions, n_stages))


def cascades_document(points: Sequence[Point], problem: StitchProblem) -> dict[str, Any]:
    """Cascades as JSON takes them, from which `read_cascade` makes them again."""
    rows = [
        cast(Cascade, point.network).document()
        | {"expected_cost": {split: float(f[0]) for split, f in point.F.items()}}
        | {"metrics": {split: dict(values) for split, values in point.metrics.items()}}
        | {"intervals": {s: {name: point.interval(s, name) for name in values} for s, values in point.metrics.items()}}
        for point in points
    ]
    return {"space": problem.space.digest(), "cascades": rows}


def read_cascade(path: str | os.PathLike, key: str, problem: StitchProblem) -> Cascade | None:
    """The cascade in a file `cascades.json` whose key begins with `key`; None if there is none."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
        rows = [row for row in document["cascades"] if row["key"].startswith(key)]
        own = document["space"] == problem.space.digest()
        found = [Cascade.from_document(row, problem.subnetwork) for row in rows if own]
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path} is not a file of cascades that can be read: {error}. Run the report again."
        ) from error
    if not rows:
        return None
    if not own or any(cascade.key != row["key"] for cascade, row in zip(found, rows, strict=True)):
        raise ValueError(f"{path} has cascades of other networks than those of this problem. Run the report again.")
    if len(found) > 1:
        raise ValueError(
            f"{len(found)} cascades in {path} have a key that begins with {key!r}: give more characters of it."
        )
    return found[0]
