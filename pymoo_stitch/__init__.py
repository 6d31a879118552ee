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

_MODULES = {
    "evaluations": ("Evaluations",),
    "layout": ("Layout",),
    "matching": ("Matching", "match"),
    "network": ("Network", "Tap"),
    "stitches": ("KINDS", "Kind", "Link"),
    "supernet": ("Subnetwork", "Supernet"),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    """Names are imported when they are first used: who takes the search algorithms alone needs no torch."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
