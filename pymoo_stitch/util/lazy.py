"""Names of a package that are imported when they are first used."""

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any


def lazy(
    package: str, homes: Mapping[str, Iterable[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a package whose names live in the modules `homes` and are imported from
    there when they are first used, so that what takes seconds to import (torch, Dask) is imported by those who need it.

    :param package: the package's `__name__`.
    :param homes: for each module of the package, by its relative name, the names that come from it.
    """
    home_of = {name: module for module, names in homes.items() for name in names}

    def get(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f".{home_of[name]}", package), name)
        setattr(sys.modules[package], name, value)
        return value

    names = sorted(home_of)
    return get, lambda: sorted({*vars(sys.modules[package]), *names}), names
