"""Names of a package that are imported when they are first used."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from typing import Any


def lazy(
    package: str, homes: Mapping[str, Iterable[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a package whose names live in the modules `homes` and are imported from
    there when they are first used, so that what takes seconds to import (torch, Dask) is imported only where it is
    needed.

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


class LazyMapping(Mapping[str, Any]):
    """Values by name, each imported when it is first looked up.

    :param package: in which the modules are.
    :param homes: for each name, the module and what it is called there.
    """

    def __init__(self, package: str, homes: Mapping[str, tuple[str, str]]):
        self._package, self.homes = package, homes

    def __getitem__(self, name: str) -> Any:
        module, attribute = self.homes[name]
        return getattr(import_module(f".{module}", self._package), attribute)

    def __contains__(self, name: object) -> bool:  # without importing it, as Mapping's own would
        return name in self.homes

    def __iter__(self) -> Iterator[str]:
        return iter(self.homes)

    def __len__(self) -> int:
        return len(self.homes)

    def __repr__(self) -> str:
        return f"<{', '.join(self)}>"
