"""Options of algorithms that are passed on to pymoo."""

from collections.abc import Iterable
from inspect import signature

from pymoo.core.algorithm import Algorithm

from ..util.words import did_you_mean


def check_options(kind: type[Algorithm], given: Iterable[str]) -> None:
    """Raise a TypeError if neither this class nor those it inherits from have an option: pymoo would ignore it."""
    known = {name for base in kind.__mro__[:-1] for name in signature(base.__init__).parameters}  # type: ignore[misc]  # of the class itself, on purpose
    known -= {"self", "args", "kwargs", "options"}
    if unknown := sorted(set(given) - known):
        raise TypeError(f"{kind.__name__} has no option {', '.join(unknown)}.{did_you_mean(unknown[0], known)}")
