"""The algorithms that search, by the names that people know them by."""

from ..util.lazy import LazyMapping

ALGORITHMS = LazyMapping(
    __package__,
    {
        "async-NSGA-II": ("async_nsga2", "AsyncNSGA2"),
        "LK-GOMEA": ("gomea", "LKGOMEA"),
        "GOMEA": ("gomea", "GOMEA"),
        "GA": ("ga", "AsyncGA"),
        "NSGA-II": ("nsga", "nsga2"),
    },
)
"""The function or class that makes each; all take `pop_size`. A function is named as the class that it makes, in any
case (`nsga2`, `NSGA2`): runs are recognised by that."""
