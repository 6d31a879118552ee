"""Stitch trained neural networks into a supernet and search it with pymoo."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .evaluations import Evaluations
    from .layout import Layout
    from .matching import Matching, match
    from .network import Network, Tap
    from .stitches import KINDS, Kind, Link
    from .supernet import Subnetwork, Supernet

__all__ = [
    "KINDS",
    "Evaluations",
    "Kind",
    "Layout",
    "Link",
    "Matching",
    "Network",
    "Subnetwork",
    "Supernet",
    "Tap",
    "match",
]
_HOMES = {
    "evaluations": ["Evaluations"],
    "layout": ["Layout"],
    "matching": ["Matching", "match"],
    "network": ["Network", "Tap"],
    "stitches": ["KINDS", "Kind", "Link"],
    "supernet": ["Subnetwork", "Supernet"],
}


def __getattr__(name: str) -> Any:
    """Names are imported when they are first used: who takes the search algorithms alone needs no torch."""
    for module, names in _HOMES.items():
        if name in names:
            globals()[name] = getattr(import_module(f".{module}", __name__), name)
            return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
