"""Stitch trained neural networks into a supernet and search it with pymoo."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .chain_search import compose, search_chains
    from .chain_space import ChainSpace
    from .chains import Pool
    from .engine import Engine
    from .evaluations import Evaluations
    from .export import read_about
    from .families import Family
    from .heads import ClassMap, LinearProbe, NearestNeighbours
    from .journal import Journal, JournalError
    from .layout import Layout
    from .matching import Matching, match
    from .network import Network, Tap
    from .problem import StitchProblem
    from .stitches import KINDS, Kind, Link
    from .subnetwork import Subnetwork
    from .supernet import Supernet
    from .switching import Switchable
    from .task import Task

__all__ = [
    "KINDS",
    "ChainSpace",
    "ClassMap",
    "Engine",
    "Evaluations",
    "Family",
    "Journal",
    "JournalError",
    "Kind",
    "Layout",
    "LinearProbe",
    "Link",
    "Matching",
    "NearestNeighbours",
    "Network",
    "Pool",
    "StitchProblem",
    "Subnetwork",
    "Supernet",
    "Switchable",
    "Tap",
    "Task",
    "compose",
    "match",
    "read_about",
    "search_chains",
]
_HOMES = {
    "chain_search": ["compose", "search_chains"],
    "chain_space": ["ChainSpace"],
    "chains": ["Pool"],
    "engine": ["Engine"],
    "evaluations": ["Evaluations"],
    "export": ["read_about"],
    "families": ["Family"],
    "heads": ["ClassMap", "LinearProbe", "NearestNeighbours"],
    "journal": ["Journal", "JournalError"],
    "layout": ["Layout"],
    "matching": ["Matching", "match"],
    "network": ["Network", "Tap"],
    "problem": ["StitchProblem"],
    "stitches": ["KINDS", "Kind", "Link"],
    "subnetwork": ["Subnetwork"],
    "supernet": ["Supernet"],
    "switching": ["Switchable"],
    "task": ["Task"],
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
