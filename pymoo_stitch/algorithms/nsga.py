"""The baseline: pymoo's NSGA-II, configured for binary genotypes."""

from typing import Any

import numpy as np
from pymoo.algorithms.moo import nsga2 as pymoo_nsga2
from pymoo.core.population import Population
from pymoo.core.problem import Problem
from pymoo.operators.crossover.pntx import TwoPointCrossover
from pymoo.operators.mutation.bitflip import BitflipMutation
from pymoo.operators.survival.rank_and_crowding import RankAndCrowding

from ..evaluations import Evaluations, budget_of
from .options import check_options
from .sampling import ProblemSampling
from .threshold import Choice, ThresholdSurvival


class NSGA2(pymoo_nsga2.NSGA2):
    """pymoo's NSGA-II with a population size that follows from the budget, and a result without copies: several
    genotypes may select the same subnetwork."""

    journaled_as = "pymoo.algorithms.moo.nsga2.NSGA2"
    pop_size: int | None
    n_offsprings: int | None
    opt: Population

    def _setup(self, problem: Problem, **kwargs: Any) -> None:
        super()._setup(problem, **kwargs)
        budget = budget_of(self.termination, None) or 0
        if self.pop_size is None:
            journaled = None
            if isinstance(self.evaluator, Evaluations):
                journaled = self.evaluator.journaled_option("pop_size")
            self.pop_size = journaled or (50 if budget <= LARGE else 100)
        self.n_offsprings = self.n_offsprings or self.pop_size

    def _set_optimum(self, **kwargs: Any) -> None:
        super()._set_optimum(**kwargs)
        if len(self.opt):
            _, first = np.unique(self.opt.get("F"), axis=0, return_index=True)
            self.opt = self.opt[np.sort(first)]

    def _finalize(self) -> None:
        if isinstance(self.evaluator, Evaluations):
            self.evaluator.close()


LARGE = 1_000
"""Evaluations up to which NSGA-II is better with a population of 50 than of 100."""


def nsga2(*, pop_size: int | None = None, threshold: Choice = None, **options: Any) -> NSGA2:
    """NSGA-II that starts from the problem's own sampling and whose budget, as that of our algorithms, is one of real
    evaluations, looked at after each generation: `minimize(problem, nsga2(), ("n_evals", 2_000), seed=1)`.

    >>> result = minimize(get_problem("digits"), nsga2(pop_size=20), ("n_evals", 40), seed=1)
    >>> result.algorithm.evaluator.real >= 40
    True

    :param pop_size: by default 50, and 100 beyond 1,000 evaluations.
    :param threshold: none by default; a `Threshold`, or "auto": for stitch problems, the one that our algorithms have.
        What does not meet it at the end is infeasible: if nothing does, the result is empty.
    :param options: anything pymoo's `NSGA2` takes.
    """
    check_options(NSGA2, options)
    defaults = {
        "sampling": ProblemSampling(),
        "crossover": TwoPointCrossover(),
        "mutation": BitflipMutation(),
        "survival": ThresholdSurvival(RankAndCrowding(), threshold),
        "evaluator": Evaluations(),
    }
    return NSGA2(pop_size=pop_size, **(defaults | options))
