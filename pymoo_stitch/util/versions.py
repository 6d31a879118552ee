"""The versions of the installed libraries."""

import platform
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version


def versions() -> dict[str, str]:
    """The versions of what a run depends on."""
    found = {"python": platform.python_version()}
    for name in ("pymoo-stitch", "pymoo", "numpy", "torch"):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
