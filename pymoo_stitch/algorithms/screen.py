"""Which genotypes a search evaluates: new ones that a model predicts may matter."""

import copy
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from pymoo.core.problem import Problem

from .model import ESTIMATE_NOISE, NOISE, ErrorModel

_CACHED = 20_000  # outlines of genotypes that are kept, since a search asks for the same again and again


class Outline(NamedTuple):
    """What is known of a genotype without evaluating it; None for problems without a mask or a cost."""

    key: Any
    active: np.ndarray | None
    cost: float | None


class Outlines:
    """What a problem knows of genotypes without evaluating them, and which of them were proposed."""

    def __init__(self, problem: Problem):
        self._problem = problem
        self._proposed: set[Any] = set()  # keys
        self._cache: dict[bytes, Outline] = {}

    def __call__(self, x: np.ndarray) -> Outline:
        name = x.tobytes()
        if name not in self._cache:
            if len(self._cache) >= _CACHED:
                self._cache.clear()
            self._cache[name] = self._look_at(x)
        return self._cache[name]

    def _look_at(self, x: np.ndarray) -> Outline:
        problem = self._problem
        if hasattr(problem, "outline"):  # all in one walk
            key, active, cost = problem.outline(x)
            return Outline(key, active, float(cost))
        key = problem.key(x) if hasattr(problem, "key") else x.tobytes()
        active = problem.active(x) if hasattr(problem, "active") else None
        return Outline(key, active, float(problem.cost(x)) if hasattr(problem, "cost") else None)

    def is_new(self, x: np.ndarray) -> bool:
        """Whether nothing with the same key was ever proposed."""
        return self(x).key not in self._proposed

    def propose(self, x: np.ndarray) -> None:
        """Note that this was proposed."""
        self._proposed.add(self(x).key)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_cache": {}}

    def __deepcopy__(self, memo: dict[int, Any]) -> "Outlines":
        new = copy.copy(self)
        new._problem = copy.deepcopy(self._problem, memo)
        new._proposed, new._cache = self._proposed.copy(), {}
        return new


class Prediction(NamedTuple):
    """A model's prediction of an error, with six digits: the mean, and one standard deviation."""

    error: float
    spread: float


class Screen:
    """A model, its decisions, and those of them that a journal holds.

    What is decided is noted, so that the same run started again asks its journal and not the model: that is exact
    whatever the rounding of a machine, and takes no time.
    """

    def __init__(self, problem: Problem, outlines: Outlines):
        self.model = ErrorModel(problem.n_var)
        self.screened = 0
        """Candidates that were not taken."""
        self._outlines = outlines
        self._learned: dict[Any, float] = {}  # the error of each key
        self._out = 0  # candidates that were screened out since one was last taken
        # Decisions that are not in the journal yet, and how many of them went into its row of this number.
        self._decisions: list[tuple[int, Prediction]] = []
        self._noted, self._row = 0, -1
        # Decisions that the journal remembers and that are to be made again, and the candidates screened out by then.
        self._remembered: deque[tuple[int, Prediction]] = deque()
        self._screened_then = 0

    @staticmethod
    def suits(problem: Problem) -> bool:
        """Whether a problem has what a screen needs: the exact cost, its first objective, and the active mask."""
        return problem.n_obj == 2 and hasattr(problem, "cost") and hasattr(problem, "active")

    @property
    def is_ready(self) -> bool:
        return self.model.is_ready

    def learn(self, x: np.ndarray, error: float, bounded: bool = False) -> None:
        """Learn from an evaluation, from each subnetwork's once.

        :param bounded: whether the error is an estimate.
        """
        key, active, _ = self._outlines(x)
        if key not in self._learned:
            self._learned[key] = float(error)
            self.model.add(x, active, error, ESTIMATE_NOISE if bounded else NOISE)

    def known(self, x: np.ndarray) -> float | None:
        """The error of what was evaluated; None if that is still to come, or has failed."""
        return self._learned.get(self._outlines(x).key)

    # ---- deciding

    def best(
        self,
        make: Callable[[int], np.ndarray | None],
        n: int,
        score: Callable[[np.ndarray, np.ndarray], np.ndarray],
    ) -> tuple[np.ndarray, Prediction] | None:
        """The best of n candidates, with what is predicted of it; None if there is none.

        :param make: returns candidate number i, 0 to n − 1, None if it is not new. If none of them is, number n stands
            in for them.
        :param score: of costs (n,) and equally likely errors (n, q), the higher the better (n,).
        """
        if self._remembered:
            place, prediction = self._remembered[0]
            x = make(place) if place <= n else None
            if x is None:  # nothing was new then either: the decision is of a later proposal
                return None
            self._remembered.popleft()
        else:
            candidates = {place: x for place in range(n) if (x := make(place)) is not None}
            if not candidates and (x := make(n)) is not None:
                candidates = {n: x}
            if not candidates:
                return None
            place = self._best_of(candidates, score)
            x = candidates[place]
            prediction = self._predict(x)
        self.screened += n - 1
        self._decisions.append((place, prediction))
        return x, prediction

    def admit(
        self,
        candidates: list[np.ndarray],
        is_exempt: bool,
        score: Callable[[np.ndarray, np.ndarray], np.ndarray],
        can_matter: Callable[[int, float], bool],
    ) -> tuple[int, Prediction] | None:
        """The number of the best of some candidates, with what is predicted of it; None if it is screened out, and with
        it all.

        :param is_exempt: whether the first is taken whatever the model says.
        :param score: as in `best`.
        :param can_matter: takes a candidate's number and an error; what can matter can also matter with a smaller
            error.
        """
        place, prediction = 0, None
        if self._remembered:
            place = self._remembered[0][0] - self._out
            prediction = self._remembered.popleft()[1] if 0 <= place < len(candidates) else None
        elif self.screened >= self._screened_then:
            place = 0 if is_exempt else self._best_of(dict(enumerate(candidates)), score)
            if is_exempt or self._can_matter(candidates[place], partial(can_matter, place)):
                prediction = self._predict(candidates[place])
        if prediction is None:
            self.screened += len(candidates)
            self._out += len(candidates)
            return None
        self.screened += len(candidates) - 1
        self._decisions.append((self._out + place, prediction))
        self._out = 0
        return place, prediction

    def _best_of(
        self, candidates: Mapping[int, np.ndarray], score: Callable[[np.ndarray, np.ndarray], np.ndarray]
    ) -> int:
        """The number of the best candidate; of those with the same key, only the first is looked at."""
        distinct: dict[Any, int] = {}
        for place, x in candidates.items():
            distinct.setdefault(self._outlines(x).key, place)
        places = list(distinct.values())
        if len(places) == 1:
            return places[0]
        genotypes = [candidates[place] for place in places]
        _, active, costs = zip(*map(self._outlines, genotypes), strict=True)
        errors = self.model.quantiles(np.array(genotypes), np.array(active))
        return places[int(np.argmax(score(np.array(costs), errors)))]

    def _can_matter(self, x: np.ndarray, can_matter: Callable[[float], bool]) -> bool:
        """By the predicted error − ½ spread. The spread takes most of the time, and is seldom needed."""
        active = self._outlines(x).active[None]
        error, at_most = (float(value[0]) for value in self.model.mean(x[None], active))
        if can_matter(error):
            return True
        if not can_matter(error - 0.5 * at_most):
            return False
        _, spread = self.model.predict(x[None], active)
        return can_matter(error - 0.5 * float(spread[0]))

    def _predict(self, x: np.ndarray) -> Prediction:
        values = self.model.predict(x[None], self._outlines(x).active[None])
        return Prediction(*(float(f"{float(value[0]):.6g}") for value in values))

    # ---- the journal

    def notes(self, row: int) -> dict[str, Any]:
        """What has been decided since the row before this one: for each candidate that was taken its number, counted
        from the last one that was taken, with what was predicted; and how many were not taken so far."""
        if row != self._row:
            del self._decisions[: self._noted]
            self._row = row
        self._noted = len(self._decisions)
        return {"screened": self.screened, "taken": [[place, *prediction] for place, prediction in self._decisions]}

    def remember(self, notes: Iterable[Mapping[str, Any]]) -> None:
        """Take over the decisions that the rows of a journal hold."""
        for note in notes:
            self._remembered.extend((place, Prediction(*values)) for place, *values in note.get("taken", ()))
            self._screened_then = note.get("screened", self._screened_then)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Screen":
        new = copy.copy(self)
        new.model, new._outlines = copy.deepcopy(self.model, memo), copy.deepcopy(self._outlines, memo)
        new._learned, new._decisions = self._learned.copy(), list(self._decisions)
        new._remembered = self._remembered.copy()
        return new
