"""The versions of the installed libraries."""

import platform
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

from .. import __version__

OWN = "pymoo-stitch"


def versions() -> dict[str, str]:
    """The versions of what a run depends on. That of this package is the source's: what is installed as editable keeps
    the number that it was installed with."""
    found = {"python": platform.python_version(), OWN: __version__}
    for name in ("pymoo", "numpy", "torch"):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
