"""Asynchronous search with one loop per individual, each with a weight vector of its own ([G])."""

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from pymoo.core.individual import Individual
from pymoo.core.problem import Problem

from .asynchronous import Asynchronous
from .scalarization import largest_error, reassign, spread_weights, tschebysheff
from .screen import Prediction

CANDIDATES = 64
"""New candidates among which the model chooses one."""

EXEMPT = 1 / 20
"""The fraction of these choices that are the first candidate, whatever the model says."""

_TRIES = 100  # to find something new when an individual is renewed

STAGNANT = 100
"""Completions for each individual without a change of the archive, after which a population counts as converged."""

KNOWN = 10
"""Proposals in a row that were known before an individual of a converged population is renewed."""


class Candidate(NamedTuple):
    """What a loop may propose: a genotype, and the individuals whose place it may take."""

    x: np.ndarray
    rivals: Sequence[int]


class Loops(Asynchronous):
    """Loops that propose a genotype, wait for its evaluation, use the result, and propose the next.

    Proposals are *screened*: of the next 64 candidates with new keys a loop proposes the one that adds most to the
    hypervolume of the archive in expectation, if by its exact cost and by the predicted error − ½ spread it improves
    the individual or is dominated by nothing in the archive. One choice in twenty is the first candidate, whatever the
    model says. If none is worth it, one whose key is known and whose objectives improve the individual is proposed.

    When a population has converged, and proposes only what is known, its individuals are *renewed* one after the other:
    they become mutated members of the archive.

    A subclass defines what a loop proposes (`_first` and `_next` of its turn) and what it does with the result
    (`_compare`).
    """

    earlier: ClassVar = {"screen": None, "renew": False}

    def __init__(self, *, renew: bool = True, **options: Any):
        """
        :param renew: whether individuals are renewed when the population has converged.
        """
        super().__init__(**options)
        self.renew = renew

    def _setup(self, problem: Problem, **kwargs: Any) -> None:
        super()._setup(problem, **kwargs)
        self._improved_at = 0  # completions when the archive last changed
        self._renewed_at = 0  # proposals in a row that were known when an individual was last renewed
        self._turns = self._since_reassigned = 0
        self._idle: deque[int] = deque()  # loops whose turn is over, the longest waiting first
        self._prediction: Prediction | None = None  # of the proposal that is being made

    def _begin(self) -> None:
        n = self.pop_size
        self._x = self._sample(n)
        self._f = np.full((n, self.problem.n_obj), -np.inf)
        self._violation = np.full(n, np.inf)
        self._members: list[Individual | None] = [None] * n
        self._changes = 0  # of any genotype in the population
        self._weights = self.random_state.permutation(spread_weights(n, self.problem.n_obj, self.random_state))
        self._idle.extend(range(max(n, self.n_pending)))

    def _population(self) -> list[Individual]:
        return [member for member in self._members if member is not None]

    # ---- loops

    @abstractmethod
    def _first(self, loop: int) -> np.ndarray | None:
        """The first genotype (n_var,) of this loop's turn; None if there is nothing to propose."""

    def _next(self, loop: int) -> np.ndarray | None:
        """The next genotype of this loop's turn; None if its turn is over."""
        return None

    @abstractmethod
    def _compare(self, individual: Individual, violation: float, entered: bool) -> None:
        """Use a loop's evaluated proposal, as `_use` does."""

    def _rivals(self, loop: int) -> list[int]:
        """The individuals whose place a loop's proposal may take."""
        return [loop]

    def _is_unknown(self, loop: int) -> bool:
        """Whether the loop is that of an individual whose first genotype is still to be evaluated."""
        return loop < self.pop_size and self._members[loop] is None

    def _use(self, individual: Individual, violation: float, entered: bool) -> None:
        if entered:
            self._improved_at = self._completed
        loop = individual.get("loop")
        is_first = self._is_unknown(loop)
        if is_first:
            self._place(loop, individual, violation)
        else:
            self._compare(individual, violation, entered)
        self._proceed(loop, is_first)

    def _lose(self, individual: Individual) -> None:
        loop = individual.get("loop")
        is_first = self._is_unknown(loop)
        if is_first:
            self._x[loop] = self._sample(1)
            self._changes += 1
        self._proceed(loop, is_first)

    def _proceed(self, loop: int, was_first: bool) -> None:
        self._since_reassigned += 1
        is_renewed = self._is_stale() and self._renew(loop)
        proposal = None if was_first or is_renewed else self._next(loop)
        if proposal is None:
            self._turns += 1
            self._idle.append(loop)
        else:
            self._propose_of(loop, proposal)
        n, n_var = self._x.shape
        if self._turns >= n or self._since_reassigned >= n * max(1, n_var / 4):
            self._reassign()

    def _fill(self) -> None:
        for _ in range(len(self._idle)):
            if len(self.pending) >= self.n_pending:
                break
            loop = self._idle.popleft()
            x = self._x[loop].copy() if self._is_unknown(loop) else self._first(loop)
            if x is None and (self._screen is not None or self._is_stagnant()) and self._renew(loop):
                x = self._x[loop].copy()
            if x is None:
                self._idle.append(loop)
            else:
                self._propose_of(loop, x)

    def _propose_of(self, loop: int, x: np.ndarray) -> None:
        self._propose(x, self._prediction, self._accepted_of(loop, x), loop=loop)
        self._prediction = None

    def _accepted_of(self, loop: int, x: np.ndarray) -> float | None:
        """The largest error with which a proposal may replace an individual now; None to evaluate it in full."""
        if not self._stops or self._is_unknown(loop):
            return None
        rivals = self._rivals(loop)
        if not rivals:
            return -np.inf
        cost, bounds = self._outlines(x).cost, self._bounds()
        return max(self._accepted(i, cost, bounds) for i in rivals)

    def _accepted(self, i: int, cost: float, bounds: tuple[np.ndarray, np.ndarray]) -> float:
        """The largest error with which a solution of this cost may be better for individual i than its present one."""
        own = self._f[i]
        if self._violation[i] > self.slack:
            return float(own[1])
        return largest_error(cost, own, self._weights[i], *bounds)

    # ---- renewal

    def _is_stagnant(self) -> bool:
        return self._completed - self._improved_at >= STAGNANT * self.pop_size

    def _is_stale(self) -> bool:
        """Whether the population has converged, and since the last renewal nothing was new."""
        known = self.evaluator.skipped_in_a_row
        self._renewed_at = min(self._renewed_at, known)
        return known - self._renewed_at >= KNOWN and self._is_stagnant()

    def _renew(self, i: int) -> bool:
        """Restart individual i from a mutated member of the archive, if `renew` is set and something new is found."""
        elite = self.archive.front(self.slack)
        if not self.renew or i >= self.pop_size or not len(elite):
            return False
        self._renewed_at = self.evaluator.skipped_in_a_row
        for attempt in range(_TRIES):
            x = elite[self.random_state.integers(len(elite))].X.copy()
            x[self.random_state.integers(x.size, size=1 + attempt // 10)] ^= True
            if self._screen is None or self._outlines.is_new(x):
                self._x[i], self._members[i] = x, None
                self._f[i], self._violation[i] = -np.inf, np.inf
                self._changes += 1
                return True
        return False

    # ---- the screen

    def _choice(self, make: Callable[[], Candidate | None]) -> Candidate | None:
        """What a loop proposes of its next candidates; None if they are screened out, or there is none.

        :param make: returns the loop's next candidate, None if there is none.
        """
        if self._screen is None or not self._screen.is_ready:
            return make()
        slack, bounds = self.slack, self._bounds()

        def can_matter(candidate: Candidate, error: float) -> bool:
            f = np.array([self._outlines(candidate.x).cost, error])
            violation = float(self.annealing.violation(f, 0.0))
            for i in candidate.rivals:
                if self._members[i] is not None:
                    present = self._rank(i, self._f[i], self._violation[i], bounds)
                    if self._rank(i, f, violation, bounds) < present:
                        return True
            return violation <= slack and not self.archive.has_better(f, slack)

        candidates: list[Candidate] = []
        known: list[tuple[Candidate, float]] = []
        while len(candidates) < CANDIDATES and (candidate := make()) is not None:
            if self._outlines.is_new(candidate.x):
                candidates.append(candidate)
            elif (error := self._screen.known(candidate.x)) is not None:
                known.append((candidate, error))
        if candidates:
            is_exempt = self.random_state.random() < EXEMPT
            admitted = self._screen.admit(
                [candidate.x for candidate in candidates],
                is_exempt,
                self._gain,
                lambda place, error: can_matter(candidates[place], error),
            )
            if admitted is not None:
                place, self._prediction = admitted
                return candidates[place]
        return next((candidate for candidate, error in known if can_matter(candidate, error)), None)

    # ---- the population

    def _place(self, i: int, individual: Individual, violation: float) -> None:
        """Put an individual into the population."""
        self._changes += not np.array_equal(self._x[i], individual.X)
        self._members[i] = individual
        self._x[i], self._f[i], self._violation[i] = individual.X, individual.F, violation

    def _improves(self, i: int, f: np.ndarray, violation: float) -> bool:
        """Whether a solution is better for individual i than its present one."""
        return self._rank(i, f, violation) < self._rank(i, self._f[i], self._violation[i])

    def _rank(
        self, i: int, f: np.ndarray, violation: float, bounds: tuple[np.ndarray, np.ndarray] | None = None
    ) -> tuple[float, float]:
        """How good a solution is for individual i, smaller is better: violation before objectives.

        :param bounds: those of the population now, so that many can be compared.
        """
        ideal, worst = bounds or self._bounds()
        return max(0.0, violation - self.slack), float(tschebysheff(f, self._weights[i], ideal, worst))

    def _bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """The best objectives that meet the threshold, and the population's worst."""
        ideal = self.archive.ideal(self.slack)
        if ideal is None:
            ideal = self._f[np.isfinite(self._violation)].min(0)
        return ideal, self._f.max(0)

    def _reassign(self) -> None:
        self._turns = self._since_reassigned = 0
        known = np.isfinite(self._violation)
        if known.any():
            ideal, worst = self._bounds()
            f = np.where(known[:, None], self._f, worst)
            excess = np.maximum(0, self._violation - self.slack)
            assigned = reassign(f, excess, self._weights, ideal, worst, self.random_state)
            self._weights = self._weights[assigned]
