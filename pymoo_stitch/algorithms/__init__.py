"""What proposes genotypes: search algorithms for binary pymoo problems.

In: a pymoo problem with boolean variables, which may define more (`key`, `active`, `sampling`, `codes`, `min_accuracy`,
`identity`, `normalize`, `cost`, `outline`). Out: the non-dominated genotypes that were found.

May import: `util`, `runners`, `evaluations`.

They know nothing of networks and do not import torch. Each is imported when it is first used: workers, which only need
a problem's sampling, do not import the rest.
"""

from typing import TYPE_CHECKING

from ..util.lazy import lazy

if TYPE_CHECKING:
    from .async_nsga2 import AsyncNSGA2 as AsyncNSGA2
    from .exhaustive import Exhaustive as Exhaustive
    from .ga import AsyncGA as AsyncGA
    from .gomea import GOMEA as GOMEA
    from .gomea import LKGOMEA as LKGOMEA
    from .named import ALGORITHMS as ALGORITHMS
    from .nsga import nsga2 as nsga2
    from .repair import ChainRepair as ChainRepair
    from .sampling import BinarySampling as BinarySampling
    from .sampling import ProblemSampling as ProblemSampling
    from .threshold import Threshold as Threshold
    from .threshold import ThresholdSurvival as ThresholdSurvival

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "async_nsga2": ["AsyncNSGA2"],
        "exhaustive": ["Exhaustive"],
        "ga": ["AsyncGA"],
        "gomea": ["GOMEA", "LKGOMEA"],
        "named": ["ALGORITHMS"],
        "nsga": ["nsga2"],
        "repair": ["ChainRepair"],
        "sampling": ["BinarySampling", "ProblemSampling"],
        "threshold": ["Threshold", "ThresholdSurvival"],
    },
)
