"""Cascades as points of a report: the plain ones, and one with stitched stages where that is worth more."""

import json
import math
import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..evaluations import read_genotype, write_genotype
from ..problem import StitchProblem
from ..supernet import Cascade, JointCosts, Subnetwork
from ..task.cascading import CascadeTable, Predictions, follow, predict
from .cascades import plain_cascades, stitched_instead
from .points import Measured, Point, measured_outputs

MEMORY = 2**31
"""Bytes that the scores of all candidates may take. The first that fit are taken."""


class CascadePoints:
    """Cascades of a report's networks. Their thresholds are chosen on the deciding split, and what they predict on all.

    :param references: those of the report. Their cascades are the plain ones: what one can have without a search.
    :param others: networks with stitches that may be stages, the most promising first.
    :param splits: on which cascades are evaluated.
    :param deciding: the one of these on which they are chosen.
    """

    def __init__(
        self,
        problem: StitchProblem,
        references: Sequence[Point],
        others: Sequence[Subnetwork],
        splits: Sequence[str],
        deciding: str,
    ):
        self.problem, self.splits, self.deciding = problem, splits, deciding
        networks = [point.network for point in references]
        size = (
            len(problem.task[deciding]) * (problem.task.n_classes or math.prod(networks[0].outputs[0].output_shape)) * 4
        )
        self.candidates = [*networks, *others][: max(len(networks), MEMORY // size)]
        self.n_references = len(networks)
        self.is_possible = not problem.task[deciding].is_dense and size * len(networks) <= MEMORY

    @cached_property
    def plain(self) -> list[Point]:
        """The cascades of references that no other and no reference dominates on the deciding split, by their cost."""
        if not self.is_possible:
            return []
        rows = [row for row in self._plain.front() if self._plain.n_stages[row] > 1]
        return [self._point(self._plain, row) for row in rows]

    def stitched(self, plain: Point) -> Point | None:
        """A cascade with a stitched stage that is worth more than a plain one: see `cascades.stitched_instead`."""
        if len(self.candidates) == self.n_references:
            return None
        keys = [self._plain.build(row, self.candidates).key for row in range(len(self._plain))]
        baseline = self._plain.take([keys.index(plain.key)])
        chosen = stitched_instead(self._predictions(self.deciding), self._costs, range(self.n_references), baseline)
        return self._point(chosen.table, 0) if chosen.is_stitched else None

    @cached_property
    def _costs(self) -> JointCosts:
        return JointCosts(self.candidates)

    @cached_property
    def _plain(self) -> CascadeTable:
        return plain_cascades(self._predictions(self.deciding), self._costs, range(self.n_references))

    @cached_property
    def _known(self) -> dict[str, Predictions]:
        return {}

    def _predictions(self, split: str) -> Predictions:
        if split not in self._known:
            self._known[split] = predictions(self.problem, self.candidates, split)
        return self._known[split]

    def _point(self, table: CascadeTable, row: int) -> Point:
        network = table.build(row, self.candidates)
        measured = {split: measure_cascade(self.problem, network, split) for split in self.splits}
        return Point.of(self.problem, network.key[:8], network, ("cascade",), measured)


def predictions(problem: StitchProblem, subnetworks: Sequence[Subnetwork], split: str) -> Predictions:
    """What subnetworks predict on a split, with the task's head."""
    heads = problem.heads(subnetworks)
    return predict(problem.engine, subnetworks, problem.task[split], heads=heads, metric=problem.task.metric)


def measure_cascade(problem: StitchProblem, cascade: Cascade, split: str) -> Measured:
    """A cascade on a split: with its expected cost there."""
    found = predictions(problem, cascade.stages, split)
    followed = follow(found, range(len(cascade.stages)), cascade.thresholds, cascade.combine)
    fractions = np.pad(followed.fractions, (0, len(cascade.stages) - len(followed.fractions)))
    return measured_outputs(problem, cascade.expected_cost(fractions), followed.answers, found.labels)


def with_new_thresholds(problem: StitchProblem, cascade: Cascade, split: str) -> Cascade:
    """The same stages, perhaps changed since, with thresholds that defer the same fractions of the images of a split as
    before."""
    if cascade.fractions is None:
        raise ValueError("this cascade does not know what fractions of images it is to defer: give it fractions=.")
    found = predictions(problem, cascade.stages, split)
    thresholds: list[float] = []
    for number in range(1, len(cascade.stages)):
        followed = follow(found, range(number), thresholds, cascade.combine)
        there = followed.last == number - 1
        tops = np.sort(followed.answers[there].softmax(1).amax(1).numpy())
        wanted = round(cascade.fractions[number] * found.n_images)
        thresholds.append(float(tops[min(wanted, len(tops) - 1)]))
    followed = follow(found, range(len(cascade.stages)), thresholds, cascade.combine)
    fractions = np.pad(followed.fractions, (0, len(cascade.stages) - len(followed.fractions))).tolist()
    return Cascade(cascade.stages, thresholds, combine=cascade.combine, fractions=fractions)


def as_data(point: Point, problem: StitchProblem) -> dict[str, Any]:
    """A cascade as JSON takes it, from which `read_cascade` makes it again."""
    cascade = point.network
    return {
        "key": point.key,
        "space": problem.space.digest(),
        "stages": [write_genotype(stage.x) for stage in cascade.stages],
        "thresholds": list(cascade.thresholds),
        "combine": cascade.combine,
        "fractions": list(cascade.fractions),
        "costs": list(cascade.costs),
        "expected_cost": {split: float(f[0]) for split, f in point.F.items()},
        "metrics": {split: dict(values) for split, values in point.metrics.items()},
    }


def read_cascade(path: str | os.PathLike, key: str, problem: StitchProblem) -> Cascade | None:
    """The cascade in a file `cascades.json` whose key begins so; None if there is none."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
        rows = [row for row in document if row["key"].startswith(key)]
        if not rows:
            return None
        (row,) = rows
        own = row["space"] == problem.space.digest()
        stages = [problem.subnetwork(read_genotype(text)) for text in row["stages"]]
        cascade = Cascade(stages, row["thresholds"], combine=row["combine"], fractions=row["fractions"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} has no single cascade with a key like {key!r} that can be read: {error}") from error
    if not own or cascade.key != row["key"]:
        raise ValueError(f"{path} has cascades of other networks than those of this problem. Run the report again.")
    return cascade
