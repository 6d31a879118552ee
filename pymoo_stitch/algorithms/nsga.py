"""The baseline: pymoo's NSGA-II, configured for binary genotypes."""

from inspect import signature
from typing import Any

from pymoo.algorithms.moo.nsga2 import NSGA2
from pymoo.operators.crossover.pntx import TwoPointCrossover
from pymoo.operators.mutation.bitflip import BitflipMutation
from pymoo.operators.survival.rank_and_crowding import RankAndCrowding

from ..evaluations import Evaluations
from .sampling import ProblemSampling
from .threshold import Choice, ThresholdSurvival


def nsga2(*, pop_size: int = 100, threshold: Choice = None, **options: Any) -> NSGA2:
    """NSGA-II that starts from the problem's own sampling and whose budget, as that of our algorithms, is one of real
    evaluations, looked at after each generation: `minimize(problem, nsga2(), ("n_evals", 2_000), seed=1)`.

    >>> result = minimize(get_problem("digits"), nsga2(pop_size=20), ("n_evals", 40), seed=1)
    >>> result.algorithm.evaluator.real >= 40
    True

    :param threshold: none by default; a `Threshold`, or "auto", which gives stitch problems the one that our algorithms
        have. What does not meet it at the end is infeasible: if nothing does, the result is empty.
    :param options: anything pymoo's `NSGA2` takes.
    """
    known = {name for base in NSGA2.__mro__[:-1] for name in signature(base.__init__).parameters}
    if unknown := options.keys() - known:
        raise TypeError(f"NSGA2 has no option {', '.join(sorted(unknown))}.")
    defaults = {
        "sampling": ProblemSampling(),
        "crossover": TwoPointCrossover(),
        "mutation": BitflipMutation(),
        "survival": ThresholdSurvival(RankAndCrowding(), threshold),
        "evaluator": Evaluations(),
    }
    return NSGA2(pop_size=pop_size, **(defaults | options))
