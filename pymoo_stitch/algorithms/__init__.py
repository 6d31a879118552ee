"""What proposes genotypes: search algorithms for binary pymoo problems.

In: a pymoo problem with boolean variables, which may say more of its genotypes (`key`, `active`, `sampling`, `codes`). Out: the
non-dominated ones that were found.

May import: `util`, `runners`, `evaluations`.

They know nothing of networks and need no torch.
"""

from .exhaustive import Exhaustive
from .ga import AsyncGA
from .gomea import GOMEA, LKGOMEA
from .nsga2 import nsga2
from .repair import ChainRepair
from .sampling import BinarySampling, ProblemSampling
from .threshold import Threshold, ThresholdSurvival

__all__ = [
    "ALGORITHMS",
    "GOMEA",
    "LKGOMEA",
    "AsyncGA",
    "BinarySampling",
    "ChainRepair",
    "Exhaustive",
    "ProblemSampling",
    "Threshold",
    "ThresholdSurvival",
    "nsga2",
]

ALGORITHMS = {"LK-GOMEA": LKGOMEA, "GOMEA": GOMEA, "GA": AsyncGA, "NSGA-II": nsga2}
"""Those that search, by the names that people know them by. Each takes `pop_size`."""
