"""Gene-pool optimal mixing, asynchronous: GOMEA and LK-GOMEA of [G]."""

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from pymoo.core.individual import Individual
from pymoo.core.problem import Problem

from .linkage import linkage_tree
from .loops import Candidate, Loops


@dataclass
class Mixing:
    """The state of one gene-pool optimal mixing (GOM).

    :param subsets: the subsets of variables in which it mixes.
    :param donors: the individuals donors are drawn from.
    :param elite: genotypes from the archive, the donors of a forced improvement; None while it is not forced.
    :param order: the subsets still to be tried, the next at the end.
    :param steps: evaluations since the subsets were learned.
    :param tried: the subsets of earlier trees that were tried, as sorted bytes.
    """

    subsets: list[np.ndarray]
    donors: np.ndarray
    elite: np.ndarray | None = None
    order: list[int] = field(default_factory=list)
    steps: int = 0
    tried: frozenset[bytes] = frozenset()
    changed: bool = False
    improved: bool = False

    def __deepcopy__(self, memo: dict[int, Any]) -> "Mixing":
        return replace(self, order=list(self.order))  # what is large never changes, and a history holds many copies


class GOMEA(Loops):
    """Each individual's loop is one GOM after another: for each subset of a linkage tree it takes over the values of a
    donor that differs there, and keeps them if it is not worse for it.

    If that changed nothing, or nothing was improved for a while, donors come from the archive until something improves.

    Where the problem has `active(x)`, the mask of the variables that matter in a genotype, mixing is *closed*:
    variables that it activates take the donor's values as well, and those that become active by that, until there are
    no more.
    """

    def __init__(self, *, closure: bool = True, filter_donors: bool = False, **options: Any):
        """
        :param closure: whether mixing is closed, where the problem has `active(x)`.
        :param filter_donors: whether a donor must differ in a variable that is active in the recipient.
        """
        super().__init__(**options)
        self.closure, self.filter_donors = closure, filter_donors

    def _setup(self, problem: Problem, **kwargs: Any) -> None:
        super()._setup(problem, **kwargs)
        if self.n_pending > self.pop_size:
            raise ValueError(
                f"n_pending is {self.n_pending}, but each of the {self.pop_size} individuals waits for one evaluation "
                "at a time. Make pop_size larger."
            )
        self._mixings: list[Mixing | None] = [None] * self.pop_size
        self._stagnation = [0] * self.pop_size  # GOMs without improvement
        self._tree: tuple[int, list[np.ndarray]] = -1, []

    def _default_pop_size(self, budget: int) -> int:
        # A GOM has one to two subsets per variable; an individual should come to several. Nothing mutates: below 64,
        # what a sparse sampling leaves out cannot be found.
        return int(np.clip(budget // (4 * self.problem.n_var), 64, 512))

    def _first(self, loop: int) -> np.ndarray | None:
        donors, subsets = self._learn(loop)
        self._mixings[loop] = self._mixing(subsets, donors)
        return self._next(loop)

    def _next(self, loop: int) -> np.ndarray | None:
        mixing = self._mixings[loop]
        while mixing is not None:
            while mixing.order:
                chosen = self._choice(partial(self._step, loop, mixing))
                if chosen is not None:
                    mixing.steps += 1
                    return chosen.x
            mixing = self._next_mixing(loop, mixing)
            self._mixings[loop] = mixing
        return None

    def _next_mixing(self, loop: int, mixing: Mixing) -> Mixing | None:
        """What follows a GOM that is over: a forced improvement, or nothing."""
        if mixing.elite is None:
            self._stagnation[loop] = 0 if mixing.improved else self._stagnation[loop] + 1
            if not mixing.changed or self._stagnation[loop] > 1 + int(np.log2(self.pop_size)):
                elite = self.archive.front(self.slack)
                if len(elite):
                    return self._mixing(mixing.subsets, mixing.donors, elite.get("X"))
        return None

    def _compare(self, individual: Individual, violation: float, entered: bool) -> None:
        loop = individual.get("loop")
        mixing = self._mixings[loop]
        new = self._rank(loop, individual.F, violation)
        old = self._rank(loop, self._f[loop], self._violation[loop])
        improved = entered or new < old
        if improved or (new == old and mixing.elite is None):
            self._place(loop, individual, violation)
            mixing.changed = True
        if improved:
            mixing.improved = True
            if mixing.elite is not None:
                mixing.order.clear()

    def _learn(self, loop: int) -> tuple[np.ndarray, list[np.ndarray]]:
        """The donors of individual `loop`, and the subsets in which it mixes."""
        if self._tree[0] != self._changes:
            self._tree = self._changes, linkage_tree(self._x, self.random_state)
        return np.delete(np.arange(self.pop_size), loop), self._tree[1]

    def _mixing(self, subsets: list[np.ndarray], donors: np.ndarray, elite: np.ndarray | None = None) -> Mixing:
        return Mixing(subsets, donors, elite, self.random_state.permutation(len(subsets)).tolist())

    def _step(self, loop: int, mixing: Mixing) -> Candidate | None:
        """The genotype of individual `loop` with a donor's values in the next subset in which one differs; None if
        there is none."""
        while mixing.order:
            child = self._mixed(loop, mixing.subsets[mixing.order.pop()], mixing)
            if child is not None:
                return Candidate(child, [loop])
        return None

    def _mixed(self, loop: int, subset: np.ndarray, mixing: Mixing) -> np.ndarray | None:
        """The genotype of individual `loop` with a donor's values in a subset; None if no donor differs there."""
        x = self._x[loop]
        active = self._active(loop)
        where = subset[active[subset]] if self.filter_donors else subset
        if mixing.elite is None:
            differing = mixing.donors[(self._x[mixing.donors[:, None], where] != x[where]).any(1)]
            donors = self._x
        else:
            differing = np.flatnonzero((mixing.elite[:, where] != x[where]).any(1))
            donors = mixing.elite
        if not len(differing):
            return None
        donor = donors[differing[self.random_state.integers(len(differing))]]
        child = x.copy()
        child[subset] = donor[subset]
        if self.closure and hasattr(self.problem, "active"):
            close(child, donor, active, subset, lambda x: self._outlines(x).active)
        return child

    def _active(self, loop: int) -> np.ndarray:
        active = self._outlines(self._x[loop]).active
        return np.ones(self.problem.n_var, dtype=bool) if active is None else active


class LKGOMEA(GOMEA):
    """GOMEA in which each individual mixes within its own neighbourhood, and learns its linkage there.

    >>> result = minimize(get_problem("digits"), LKGOMEA(pop_size=16), ("n_evals", 20), seed=1)
    >>> len(result.archive) >= len(result.F) >= 1
    True

    The neighbourhood is the k nearest by Hamming distance, k = ⌈n/m⌉ with m drawn again from 1 to n/c. It changes
    quickly: within a GOM, neighbourhood and linkage are found again after every n_var/4 evaluations, and subsets that
    were tried are left out. (With a screen a GOM is over before that: an evaluation takes several subsets.)
    """

    def __init__(self, *, c: int | None = None, **options: Any):
        """
        :param c: the size of the smallest neighbourhoods; by default 20 for problems with `active(x)`, and 5 for
            others.
        """
        super().__init__(**options)
        if c is not None and c < 1:
            raise ValueError(f"c, the size of the smallest neighbourhoods, must be at least 1, but is {c}.")
        self.c = c

    def _next(self, loop: int) -> np.ndarray | None:
        mixing = self._mixings[loop]
        if mixing.elite is None and mixing.order and mixing.steps >= max(1, self.problem.n_var // 4):
            left = set(mixing.order)
            mixing.tried |= {_name(subset) for i, subset in enumerate(mixing.subsets) if i not in left}
            mixing.donors, subsets = self._learn(loop)
            mixing.subsets = [subset for subset in subsets if _name(subset) not in mixing.tried]
            mixing.order = self.random_state.permutation(len(mixing.subsets)).tolist()
            mixing.steps = 0
        return super()._next(loop)

    def _learn(self, loop: int) -> tuple[np.ndarray, list[np.ndarray]]:
        n = self.pop_size
        c = self.c or (20 if hasattr(self.problem, "active") else 5)
        k = -(-n // self.random_state.integers(1, max(1, n // c) + 1))
        distance = (self._x != self._x[loop]).sum(1)
        nearest = np.lexsort((self.random_state.random(n), distance))[:k]
        if not distance[nearest[-1]]:  # a neighbourhood that has converged offers nothing
            return super()._learn(loop)
        return nearest, linkage_tree(self._x[nearest], self.random_state)


def _name(subset: np.ndarray) -> bytes:
    return np.sort(subset).tobytes()


def close(child: np.ndarray, donor: np.ndarray, before: np.ndarray, copied: np.ndarray, active: Any) -> None:
    """Let variables that mixing has made active take the donor's values, in place, until no more become active.

    :param before: the mask of what was active in the recipient.
    :param copied: the variables that have the donor's values already.
    :param active: returns the mask of what is active in a genotype.
    """
    settled = before.copy()
    settled[copied] = True
    while True:
        fresh = active(child) & ~settled
        if (child[fresh] == donor[fresh]).all():
            return
        child[fresh] = donor[fresh]
        settled |= fresh
