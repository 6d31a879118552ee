"""What several subnetworks of one space have in common: which of their steps compute the same, and what they cost
together."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .subnetwork import Step, Subnetwork


@dataclass(frozen=True)
class Computation:
    """A step of one or more subnetworks, with `reads`: which earlier computation each node's name that it reads stands
    for; the input is not among them. `owner` is the first subnetwork that has it, by its place in the list."""

    step: Step
    reads: dict[str, int]
    owner: int


class Sharing:
    """The steps of several subnetworks, those that compute the same taken together: the same operation with the same
    weights on the same tensors. After a stitch that only one of two subnetworks has, they have no step in common.

    `computations` are all of them, each after those it reads; `of[i]` are the numbers of those of subnetwork i in the
    order in which they run, `results[i]` those whose mean is its output.

    :param subnetworks: of one space.
    """

    def __init__(self, subnetworks: Sequence[Subnetwork]):
        check_one_space(subnetworks)
        self.computations: list[Computation] = []
        self.of: list[list[int]] = []
        self.results: list[list[int]] = []
        known: dict[tuple, int] = {}
        for owner, subnetwork in enumerate(subnetworks):
            # Statistics and stitches of its own belong to it alone, even where they have the same values.
            own_stitches = id(subnetwork.stitches) if subnetwork.retrained else None
            number: dict[int, int] = {}
            for step in subnetwork.steps():
                reads = {name: number[i] for name, i in step.reads.items()}
                weights = (step.link.stitch, own_stitches) if step.link else step.own and id(step.own)
                found = known.setdefault((step.id, weights, *reads.values()), len(self.computations))
                if found == len(self.computations):
                    self.computations.append(Computation(step, reads, owner))
                number[step.id] = found
            self.of.append(list(number.values()))
            self.results.append([number[i] for i in subnetwork.results])


class JointCosts:
    """What subnetworks of one space cost together, each step counted once: exact, for many at a time.

    :param subnetworks: the candidates, which are then called by their place in this list.
    """

    def __init__(self, subnetworks: Sequence[Subnetwork]):
        sharing = Sharing(subnetworks)
        costs = np.array([computation.step.cost for computation in sharing.computations], dtype=np.int64)
        column = np.cumsum(costs > 0) - 1  # what is free needs no column
        self._costs = costs[costs > 0]
        self._uses = np.zeros((len(subnetworks), len(self._costs)), dtype=bool)
        for row, numbers in enumerate(sharing.of):
            self._uses[row, column[[i for i in numbers if costs[i]]]] = True

    def __len__(self) -> int:
        return len(self._uses)

    @cached_property
    def alone(self) -> np.ndarray:
        """The multiply-adds of each candidate [n]."""
        return self._uses @ self._costs

    @cached_property
    def pairs(self) -> np.ndarray:
        """The multiply-adds of each pair together [n, n]."""
        uses = self._uses.astype(np.float64)  # exact up to 2⁵³, and much faster than integers
        common = (uses * self._costs) @ uses.T
        return self.alone[:, None] + self.alone - np.rint(common).astype(np.int64)

    def cumulative(self, stages: np.ndarray) -> np.ndarray:
        """The multiply-adds of the first, the first two, … candidates in each row together.

        :param stages: candidates [n, stages], −1 after the last of a row that has fewer.
        :return: multiply-adds [n, stages] for one image; after the last of a row they stay as they are.
        """
        stages = np.asarray(stages)
        first, second = stages[:, 0], stages[:, 1:2]
        columns = [self.alone[first][:, None]]
        if second.shape[1]:
            columns.append(np.where(second < 0, columns[0], self.pairs[first[:, None], second]))
        for last in range(2, stages.shape[1]):
            columns.append(columns[-1].copy())
            for rows in np.array_split(np.flatnonzero(stages[:, last] >= 0), 1 + len(stages) // 1_000):
                columns[-1][rows, 0] = self._uses[stages[rows, : last + 1]].any(1) @ self._costs
        return np.concatenate(columns, axis=1)


def check_one_space(subnetworks: Sequence[Subnetwork]) -> None:
    """Raise a TypeError or ValueError unless these are subnetworks of one space."""
    for subnetwork in subnetworks:
        if not isinstance(subnetwork, Subnetwork):
            raise TypeError(f"subnetworks are expected, such as supernet.subnetwork(x), not {subnetwork!r}.")
        if subnetwork.space is not subnetworks[0].space:
            raise ValueError(
                f"{subnetwork!r} and {subnetworks[0]!r} are of different spaces, and have nothing in common. Take both "
                "from one supernet."
            )
