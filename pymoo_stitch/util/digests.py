"""Names for contents: the same for the same content, in every process."""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np


def digest(parts: Iterable[str | bytes | np.ndarray], size: int = 16, key: bytes = b"") -> str:
    """A name, of `size` bytes in hexadecimal, for strings, bytes and contiguous arrays one after another; another for
    each `key`."""
    state = hashlib.blake2b(digest_size=size, key=key)
    for part in parts:
        state.update(part.encode() if isinstance(part, str) else part)  # type: ignore[arg-type]  # arrays are buffers too
    return state.hexdigest()


def digest_arrays(arrays: Mapping[str, np.ndarray]) -> str:
    """A name for named arrays: their names, types, shapes and values."""
    return digest(part for name in sorted(arrays) for part in (heading(name, arrays[name]), arrays[name].tobytes()))


def heading(name: str, array: Any) -> str:
    """What is hashed before the values of an array or a tensor."""
    return f"{name} {array.dtype} {tuple(array.shape)}\n"
