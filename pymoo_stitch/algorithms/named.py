"""The algorithms that search, by the names that people know them by."""

from .async_nsga2 import AsyncNSGA2
from .ga import AsyncGA
from .gomea import GOMEA, LKGOMEA
from .nsga import nsga2

ALGORITHMS = {
    "async-NSGA-II": AsyncNSGA2,
    "LK-GOMEA": LKGOMEA,
    "GOMEA": GOMEA,
    "GA": AsyncGA,
    "NSGA-II": nsga2,
}
"""What makes each; all take `pop_size`. A function is named as the class that it makes, in any case (`nsga2`, `NSGA2`): runs are
recognised by that."""
