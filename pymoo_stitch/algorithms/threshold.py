"""An accuracy threshold that rises while the budget is used: at first everything is tolerated, at the end only what is
useful."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from pymoo.core.algorithm import Algorithm
from pymoo.core.population import Population
from pymoo.core.problem import Problem
from pymoo.core.survival import Survival

from ..evaluations import Evaluations, budget_of


@dataclass(frozen=True, kw_only=True)
class Threshold:
    """The required accuracy rises linearly from 0 to `final`, which it reaches at the fraction `until` of the budget.

    The accuracy of a solution is 1 − F[1]. What falls short of `final`, or violates the problem's constraints, has a
    *violation*; it is tolerated up to a *slack* that shrinks from `final` to 0. A solution that is not tolerated is
    worse than any that is, and among those the smaller violation is better.

    :param budget: the evaluations in the whole run; by default what the run's termination allows.
    """

    final: float = 0.5
    until: float = 0.5
    budget: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.final <= 1:
            raise ValueError(
                f"final must be an accuracy above 0 and at most 1, but is {self.final}. Use None for no threshold."
            )
        if not 0 <= self.until <= 1:
            raise ValueError(f"until must be a fraction of the budget, between 0 and 1, but is {self.until}.")
        if self.budget is not None and self.budget < 1:
            raise ValueError(f"budget must be a number of evaluations, at least 1, but is {self.budget}.")

    def slack(self, progress: float) -> float:
        """The violation that is tolerated when this fraction of the budget is used."""
        return self.final * max(0.0, 1 - progress / self.until) if self.until > 0 else 0.0

    def violation(self, f: np.ndarray, cv: np.ndarray | float) -> np.ndarray:
        """The violation of solutions with objectives `f` (..., n_obj) and constraint violations `cv` (...)."""
        return np.maximum(cv, self.final - (1 - f[..., 1]))


Choice = Threshold | None | Literal["auto"]


class Annealing:
    """A threshold, or none, in one run: what is tolerated now.

    :param threshold: "auto" decides by the problem. Stitch problems, known by their `min_accuracy`, have a threshold
        that rises to it, or to 0.5 if it is None; the threshold then stands in for the constraint, which is the same at
        its end. Other problems have none.
    :param budget: evaluations, or None if the termination does not say; the threshold is then `final` from the start.
    """

    def __init__(self, threshold: Choice, problem: Problem, budget: int | None):
        if threshold == "auto":
            accuracy = getattr(problem, "min_accuracy", 0)
            threshold = Threshold(final=0.5 if accuracy is None else accuracy) if accuracy != 0 else None
        if not isinstance(threshold, Threshold | None):
            raise TypeError(f"threshold must be a Threshold, None or 'auto', but is {threshold!r}.")
        if threshold is not None and problem.n_obj < 2:
            raise ValueError(
                "a threshold reads the accuracy from the second objective, but the problem has only one objective. Use "
                "None."
            )
        self.threshold = threshold
        self.budget = budget if threshold is None or threshold.budget is None else threshold.budget

    def slack(self, n_eval: int) -> float:
        """The violation that is tolerated after this many evaluations."""
        if self.threshold is None:
            return 0.0
        return self.threshold.slack(1.0 if self.budget is None else n_eval / self.budget)

    def level(self, n_eval: int) -> float | None:
        """The accuracy that is required after this many evaluations."""
        return None if self.threshold is None else self.threshold.final - self.slack(n_eval)

    def violation(self, f: np.ndarray, cv: np.ndarray | float) -> np.ndarray:
        """The violation of solutions: that of the constraints alone if there is no threshold."""
        return np.asarray(cv, float) if self.threshold is None else self.threshold.violation(f, cv)


class ThresholdSurvival(Survival):
    """The same threshold for pymoo's algorithms: a survival under which what is not tolerated is infeasible.

    It writes the violation beyond the slack into each individual's CV, for the tournament to see.
    """

    def __init__(self, survival: Survival, threshold: Choice = "auto"):
        super().__init__(filter_infeasible=False)
        self.survival, self.threshold = survival, threshold
        self.annealing: Annealing | None = None

    def _do(
        self, problem: Problem, pop: Population, *args: Any, n_survive: int, algorithm: Algorithm, **kwargs: Any
    ) -> Population:
        if self.annealing is None:
            budget = budget_of(algorithm.termination, getattr(algorithm, "pop_size", None))
            if isinstance(algorithm.evaluator, Evaluations):
                budget = algorithm.evaluator.budget(budget)
            self.annealing = Annealing(self.threshold, problem, budget)
        if self.annealing.threshold is None:
            return self.survival.do(problem, pop, *args, n_survive=n_survive, algorithm=algorithm, **kwargs)
        for individual in pop:
            individual.CV = None  # of an earlier threshold: pymoo computes that of the constraints again
        violation = self.annealing.violation(pop.get("F"), pop.get("CV")[:, 0])
        excess = np.maximum(0, violation - self.annealing.slack(algorithm.evaluator.n_eval))
        for individual, value in zip(pop, excess, strict=True):
            individual.CV = np.array([value])
        tolerated = pop[excess == 0]
        others = pop[excess > 0][np.argsort(excess[excess > 0], kind="stable")]
        for individual in others:
            individual.set("rank", None)
        if len(tolerated) > 0:
            tolerated = self.survival._do(
                problem, tolerated, *args, n_survive=min(n_survive, len(tolerated)), algorithm=algorithm, **kwargs
            )
        return Population.merge(tolerated, others[: n_survive - len(tolerated)])
