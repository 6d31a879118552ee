"""The supernets of ready-made problems: made once and kept, or given as a file."""

import json
import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..network import raw
from ..supernet import Supernet
from ..util.digests import digest, heading


def cache_folder() -> Path:
    """Where supernets are kept: `$PYMOO_STITCH_CACHE`, else `$XDG_CACHE_HOME/pymoo-stitch`, else
    `~/.cache/pymoo-stitch`."""
    if own := os.environ.get("PYMOO_STITCH_CACHE"):
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "pymoo-stitch"


def cached(name: str, depends: Mapping[str, Any], make: Callable[[], Supernet]) -> Supernet:
    """The result of `make`, from the cache if it was made before. A journal is refused when a supernet differs by a
    bit, and least squares on another machine may differ, so keeping the supernet makes runs resumable.

    :param name: the problem's name, the first part of the file's.
    :param depends: all that the supernet depends on, as JSON takes it; a digest of it is the other part.
    """
    text = json.dumps(depends, sort_keys=True)
    try:
        path = cache_folder() / f"{name}-{digest([text], size=12)}.safetensors"
    except RuntimeError as error:  # there is no home folder
        warnings.warn(f"the supernet cannot be cached: {error} {_REMEDY}", stacklevel=2)
        return make()
    if (kept := _loaded(path)) is not None:
        return kept
    with suppress(OSError):
        path.unlink(missing_ok=True)
    supernet = make()
    if (other := _loaded(path)) is not None:  # another process was first
        return other
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        supernet.save(path)
    except OSError as error:
        warnings.warn(f"the supernet cannot be cached: {error}. {_REMEDY}", stacklevel=2)
    return supernet


def _loaded(path: Path) -> Supernet | None:
    """The supernet kept in a file, if there is one that can be used."""
    if not path.exists():
        return None
    try:
        return Supernet.load(path)
    except (ValueError, OSError) as error:
        warnings.warn(f"the cached supernet is made again: {error}", stacklevel=3)
        return None


_REMEDY = "Name a writable folder in the environment variable PYMOO_STITCH_CACHE."


def given(path: Path, networks: Iterable[str], input_shape: tuple[int, ...], classes: int) -> Supernet:
    """The supernet in a file. Raises a ValueError unless it is a supernet of these networks, for images of this shape
    and this many classes."""
    supernet = Supernet.load(path)
    expected = tuple(networks), tuple(input_shape), classes
    found = tuple(n.name for n in supernet.networks), supernet.input_shape, supernet.networks[0].output_shape[0]
    for what, a, b in zip(("networks", "images", "classes"), found, expected, strict=True):
        if a != b:
            described = [_described(what, value) for value in (a, b)]
            raise ValueError(
                f"{path} holds a supernet of {described[0]}, but this problem's has {described[1]}. Give a file that "
                "Supernet.save wrote for this problem, or omit the option supernet."
            )
    return supernet


def _described(what: str, value: Any) -> str:
    if what == "networks":
        return f"the networks {' and '.join(value)}"
    return f"images of {'×'.join(map(str, value))}" if what == "images" else f"{value} classes"


def digest_weights(*parts: torch.Tensor | nn.Module) -> str:
    """A name for tensors and the weights of modules, the same in every process."""
    tensors = [
        pair
        for part in parts
        for pair in (sorted(part.state_dict().items()) if isinstance(part, nn.Module) else [("", part)])
    ]
    return digest(text for name, tensor in tensors for text in (heading(name, tensor), raw(tensor)))
