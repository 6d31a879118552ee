"""All the best solutions of a run."""

import numpy as np
from pymoo.core.individual import Individual
from pymoo.core.population import Population


class Archive:
    """All non-dominated solutions that were added, however many; of equal ones the first.

    The violation counts as one more objective: whatever is tolerated later, the best that meet it are here.
    """

    def __init__(self, n_obj: int):
        self.members: list[Individual] = []
        self._f = np.empty((0, n_obj + 1))

    def __len__(self) -> int:
        return len(self.members)

    def insert(self, individual: Individual, violation: float) -> bool:
        """Add a solution with its violation, at least 0. Returns whether it is now among the best."""
        f = np.append(individual.F, violation)
        if (self._f <= f).all(1).any():
            return False
        keep = ~np.all(f <= self._f, axis=1)
        if not keep.all():
            self.members = [member for member, kept in zip(self.members, keep, strict=True) if kept]
        self.members.append(individual)
        self._f = np.vstack([self._f[keep], f])
        return True

    def add(self, individuals: Population) -> "Archive":
        """pymoo calls this after each advance, when our algorithms have inserted them already."""
        return self

    def ideal(self, slack: float) -> np.ndarray | None:
        """The least of each objective among the members with at most this violation; None if there is none."""
        f = self._f[self._f[:, -1] <= slack, :-1]
        return f.min(0) if len(f) else None

    def least_error(self, cost: float) -> float:
        """The least second objective among the members whose first is at most this; infinite if there is none."""
        return float(self._f[self._f[:, 0] <= cost, 1].min(initial=np.inf))

    def front(self, slack: float) -> Population:
        """The non-dominated ones of the members with at most this violation."""
        return Population.create(*(self.members[i] for i in self._front(slack)))

    def front_f(self, slack: float) -> np.ndarray:
        """Their objectives (n, n_obj)."""
        return self._f[self._front(slack), :-1]

    def has_better(self, f: np.ndarray, slack: float) -> bool:
        """Whether a member with at most this violation dominates or equals these objectives (n_obj,)."""
        return bool(((self._f[:, :-1] <= f).all(1) & (self._f[:, -1] <= slack)).any())

    def _front(self, slack: float) -> np.ndarray:
        met = np.flatnonzero(self._f[:, -1] <= slack)
        f = self._f[met, :-1]
        # Among these the violation no longer counts. Members are distinct, but for it their objectives may be equal.
        better = (f[None] <= f[:, None]).all(2)
        better &= (f[None] < f[:, None]).any(2) | np.tri(len(f), k=-1, dtype=bool)
        return met[~better.any(1)]

    def least_violating(self) -> Population:
        """The member with the smallest violation, if there is any."""
        return Population.create(*(self.members[i] for i in [*np.argsort(self._f[:, -1], kind="stable")[:1]]))


def hypervolume_gains(f: np.ndarray, front: np.ndarray, ref_point: np.ndarray) -> np.ndarray:
    """What each of some solutions would add to the hypervolume of a front alone (n,); of those that add nothing, by how
    much their second objective is above the front, as a negative number: −∞ where the first is beyond the reference
    point, since no second objective would help there.

    :param f: (n, 2).
    :param front: (m, 2), none of which dominates another.
    """
    front = front[np.argsort(front[:, 0])]
    # The second objective that is undercut, from each member's first objective to the next one's.
    lower = np.append(-np.inf, front[:, 0])
    upper = np.append(front[:, 0], np.inf)
    height = np.append(ref_point[1], np.minimum(front[:, 1], ref_point[1]))
    width = np.minimum(upper, ref_point[0]) - np.maximum(lower, f[:, :1])
    gains = (np.maximum(width, 0) * np.maximum(height - f[:, 1:], 0)).sum(1)
    above = f[:, 1] - height[np.searchsorted(front[:, 0], f[:, 0], side="right")]
    lacking = np.where(f[:, 0] < ref_point[0], np.maximum(above, 0), np.inf)
    return np.where(gains > 0, gains, -lacking)
