"""NSGA-II without generations, with a model that chooses among children."""

from typing import Any

import numpy as np
from pymoo.core.individual import Individual
from pymoo.core.problem import Problem

from .asynchronous import Asynchronous
from .sampling import ProblemSampling
from .screen import Prediction

CHILDREN = 64
"""Children among which the model chooses one."""

DETOURS = 8
"""How many of these, the last, are detours."""

EXEMPT = 1 / 10
"""The fraction of proposals that are not chosen by the model."""

_TRIES = 100  # to make a child with a new key; then as many again with extra mutations


class AsyncNSGA2(Asynchronous):
    """Each evaluation is followed at once by the next child: two parents by binary tournament (rank, then crowding),
    two-point crossover, each variable mutates with probability 1/n_var. Of the population with the child, the most
    crowded of the last front is removed. No key is proposed twice.

    Where the problem has `cost(x)` and `active(x)`, nine of ten proposals are the one of 64 children that adds most
    to the hypervolume of the archive in expectation, by its exact cost and what is predicted of its error; if none adds
    anything, the one that comes nearest to the front. Eight of the 64 are *detours*: a parent of which one active
    variable is flipped, and one of those that become active by that. A stitch there and another back are often good
    only together, and mutation seldom flips both.

    >>> result = minimize(get_problem("digits"), AsyncNSGA2(), ("n_evals", 60), seed=1)
    >>> result.algorithm.evaluator.real
    60

    By default `pop_size` is 50, and `n_pending` 64, or 1.5 times the runner's workers if that is more.
    """

    proposes_no_key_twice = True

    def _setup(self, problem: Problem, **kwargs: Any) -> None:
        super()._setup(problem, **kwargs)
        self._initial: list[np.ndarray] = []  # genotypes still to be proposed, the next at the end
        self._members: list[Individual] = []
        self._violations: list[float] = []
        # The members' genotypes by rank, then crowding, the best first, and each member's place among them.
        self._genotypes = np.empty((0, problem.n_var), dtype=bool)
        self._standing = np.empty(0, dtype=int)

    def _default_pop_size(self, budget: int) -> int:
        return 50

    def _default_n_pending(self) -> int:
        journaled = self.evaluator.journaled_option("n_pending")  # the run may go on with other workers
        return journaled or max(64, -(-3 * self.runner.n_workers // 2))

    def _begin(self) -> None:
        self._initial = list(self._sample(max(self.pop_size, self.n_pending))[::-1])

    def _population(self) -> list[Individual]:
        return self._members

    # ---- the population

    def _use(self, individual: Individual, violation: float, entered: bool) -> None:
        self._members.append(individual)
        self._violations.append(violation)
        f = np.array([member.F for member in self._members])
        rank = ranks(f, np.maximum(0, np.array(self._violations) - self.slack))
        crowding = crowding_distances(f, rank)
        if len(self._members) > self.pop_size:
            last = np.flatnonzero(rank == rank.max())
            removed = last[np.argmin(crowding[last])]
            del self._members[removed], self._violations[removed]
            f, rank = np.delete(f, removed, axis=0), np.delete(rank, removed)
            crowding = crowding_distances(f, rank)
        order = np.lexsort((-crowding, rank))
        self._genotypes = np.array([self._members[i].X for i in order], dtype=bool)
        self._standing = np.argsort(order)

    # ---- proposals

    def _fill(self) -> None:
        while len(self.pending) < self.n_pending:
            proposal = self._next()
            if proposal is None:
                break
            x, prediction, is_first = proposal
            self._propose(x, prediction, None if is_first else -np.inf)

    def _next(self) -> tuple[np.ndarray, Prediction | None, bool] | None:
        """A genotype with a new key, its prediction, and whether it is of the first population; None if none is
        found."""
        while self._initial:
            x = self._initial.pop()
            if self._outlines.is_new(x):
                return x, None, True
        child = self._child_and_prediction()
        return child and (*child, False)

    def _child_and_prediction(self) -> tuple[np.ndarray, Prediction | None] | None:
        seed = int(self.random_state.integers(2**63))
        is_exempt = self.random_state.random() < EXEMPT
        is_screened = self._screen is not None and self._screen.is_ready
        n, n_detours = (CHILDREN, DETOURS) if is_screened and not is_exempt else (1, 0)
        children = self._children(_generator(seed, 0), n - n_detours)
        detours = _generator(seed, 2).random((n_detours, 4))

        def child(place: int) -> np.ndarray | None:
            if place == n:  # none of them is new
                return self._new_child(_generator(seed, 1))
            x = children[place] if place < len(children) else self._detour(detours[place - len(children)])
            return x if self._outlines.is_new(x) else None

        if is_screened:
            return self._screen.best(child, n, self._gain)
        x = child(0)
        x = child(1) if x is None else x
        return None if x is None else (x, None)

    def _new_child(self, random_state: np.random.Generator) -> np.ndarray | None:
        """A child whose key was never proposed; None if many tries make none."""
        for attempt in range(2 * _TRIES):
            x = self._children(random_state, 1)[0]
            if attempt >= _TRIES:
                x[random_state.integers(len(x), size=1 + attempt // 10 - _TRIES // 10)] ^= True
            if self._outlines.is_new(x):
                return x
        return None

    def _children(self, random_state: np.random.Generator, n: int) -> np.ndarray:
        """Children (n, n_var), each of two parents."""
        n_var, size = self.problem.n_var, len(self._members)
        drawn = random_state.random((n, 6 + n_var))  # for the tournaments, the cuts and the mutation
        if size < min(4, self.pop_size):  # all others are pending, or have failed
            sample = ProblemSampling().do(self.problem, n, random_state=random_state)
            x = sample.get("X").astype(bool)
        else:
            standing = self._standing[(drawn[:, :4] * size).astype(int)]
            parents = self._genotypes[np.minimum(standing[:, ::2], standing[:, 1::2])]
            begin, end = (drawn[:, 4] * (n_var + 1)).astype(int), (drawn[:, 5] * n_var).astype(int)
            end += end >= begin  # two different cuts
            at = np.arange(n_var)
            is_between = (at >= np.minimum(begin, end)[:, None]) & (at < np.maximum(begin, end)[:, None])
            x = np.where(is_between, parents[:, 1], parents[:, 0])
        return x ^ (drawn[:, 6:] < 1 / n_var)

    def _detour(self, drawn: np.ndarray) -> np.ndarray:
        """A parent with one of its active variables flipped, and one of those that become active by that.

        :param drawn: numbers from 0 to 1 (4,): two for the tournament, and which variables.
        """
        x = self._genotypes[self._standing[(drawn[:2] * len(self._members)).astype(int)].min()].copy()
        active = self._outlines(x).active
        _flip_one(x, active, drawn[2])
        _flip_one(x, self._outlines(x).active & ~active, drawn[3])
        return x


def _flip_one(x: np.ndarray, mask: np.ndarray, drawn: float) -> None:
    """Flip one of these variables, by a number from 0 to 1; none if there are none."""
    places = np.flatnonzero(mask)
    x[places[int(drawn * len(places)) :][:1]] ^= True


def _generator(seed: int, stream: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=[seed, stream]))


def ranks(f: np.ndarray, excess: np.ndarray) -> np.ndarray:
    """The non-domination rank (n,) of objectives (n, n_obj); what is not tolerated comes after all that is, by its
    excess."""
    rank = np.full(len(f), -1)
    not_worse = np.logical_and.reduce([values[:, None] <= values for values in f.T])
    better = not_worse & ~not_worse.T
    left = excess == 0
    number = 0
    while left.any():
        front = left & ~better[left].any(0)
        rank[front] = number
        left &= ~front
        number += 1
    rank[excess > 0] = number + np.unique(excess[excess > 0], return_inverse=True)[1]
    return rank


def crowding_distances(f: np.ndarray, rank: np.ndarray) -> np.ndarray:
    """How far the neighbours in the same rank are apart (n,), in units of the range of each objective: infinite at the
    ends, 0 for all but the first of those with equal objectives."""
    extent = np.ptp(f, axis=0)
    by_rank = np.lexsort((*f.T, rank))
    is_copy = np.append(False, (f[by_rank[1:]] == f[by_rank[:-1]]).all(1) & (np.diff(rank[by_rank]) == 0))
    distinct = by_rank[~is_copy]
    of = rank[distinct]
    distance = np.zeros(len(f))
    for values in (f[distinct] / np.where(extent > 0, extent, 1)).T:
        order = np.lexsort((values, of))
        values, neighbours = values[order], of[order]
        gaps = np.where(neighbours[1:] == neighbours[:-1], np.diff(values), np.inf)
        distance[distinct[order]] += np.append(np.inf, gaps) + np.append(gaps, np.inf)
    return distance
