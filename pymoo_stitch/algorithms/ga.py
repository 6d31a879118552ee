"""The asynchronous genetic algorithm of [G]."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from pymoo.core.individual import Individual

from .loops import CANDIDATES, Candidate, Loops

_TRIES = 100  # to make a child that is worth an evaluation


class AsyncGA(Loops):
    """Two-point crossover and mutation; a child replaces one of its parents that is worse for the parent's own weight.

    Parents are paired at random, each once until all were; both children of a pair are used. Each variable mutates with
    probability 1/n_var.
    """

    def _setup(self, problem: Any, **kwargs: Any) -> None:
        super()._setup(problem, **kwargs)
        self._unpaired: list[int] = []
        self._second: tuple[np.ndarray, tuple[int, int]] | None = None
        self._parents: dict[int, Sequence[int]] = {}  # of each loop's child

    def _default_pop_size(self, budget: int) -> int:
        return int(np.clip(budget // 50, 32, 256))

    def _first(self, loop: int) -> np.ndarray | None:
        children = (self._child() for _ in range(_TRIES))  # a choice may take many of them
        for _ in range(1 + _TRIES // CANDIDATES):
            chosen = self._choice(partial(next, children, None))
            if chosen is not None:
                self._parents[loop] = chosen.rivals
                return chosen.x
        return None

    def _rivals(self, loop: int) -> list[int]:
        return [i for i in self._parents[loop] if self._members[i] is not None]

    def _child(self) -> Candidate:
        """The next child of a pair, which may take the place of one of them."""
        if self._second is None:
            if len(self._unpaired) < 2:
                self._unpaired = self.random_state.permutation(self.pop_size).tolist()
            parents = self._unpaired.pop(), self._unpaired.pop()
            child, second = two_point_crossover(self._x[parents[0]], self._x[parents[1]], self.random_state)
            self._second = second, parents
        else:
            child, parents = self._second
            self._second = None
        return Candidate(child ^ (self.random_state.random(child.size) < 1 / child.size), parents)

    def _compare(self, individual: Individual, violation: float, entered: bool) -> None:
        worse = [i for i in self._rivals(individual.get("loop")) if self._improves(i, individual.F, violation)]
        if worse:
            self._place(worse[self.random_state.integers(len(worse))], individual, violation)


def two_point_crossover(
    a: np.ndarray, b: np.ndarray, random_state: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Two genotypes with the part between two different cuts exchanged."""
    first, last = np.sort(random_state.choice(a.size + 1, 2, replace=False))
    a, b = a.copy(), b.copy()
    a[first:last], b[first:last] = b[first:last].copy(), a[first:last].copy()
    return a, b
