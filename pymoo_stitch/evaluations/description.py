"""What a run is, as data: the problem, the algorithm with its options, and the versions of libraries."""

import hashlib
import json
import platform
from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from pymoo.core.problem import Problem

# ------------------------------------------------------------------------------------------------------ what a run is


def described(thing: Any, *, without: Iterable[str] = ()) -> Any:
    """Anything with parameters as JSON: classes by name with their public attributes, in whatever process the same."""
    return _described(thing, frozenset(without), ())


def _described(thing: Any, without: frozenset[str], above: tuple[int, ...]) -> Any:
    if thing is None or isinstance(thing, str | bool | int | float):
        return thing
    if isinstance(thing, np.generic):
        return thing.item()
    if isinstance(thing, np.ndarray):
        return digest({"": thing}) if thing.dtype != object else f"objects {thing.shape}"
    if id(thing) in above:
        return "above"
    above = (*above, id(thing))
    if isinstance(thing, Mapping):
        return {str(name): _described(value, frozenset(), above) for name, value in thing.items()}
    if isinstance(thing, list | tuple | set | frozenset):
        return [_described(value, frozenset(), above) for value in thing]
    if isinstance(thing, type) or (callable(thing) and hasattr(thing, "__qualname__")):
        return f"{thing.__module__}.{thing.__qualname__}"
    public = {
        name: _described(value, frozenset(), above)
        for name, value in sorted(getattr(thing, "__dict__", {}).items())
        if not name.startswith("_") and name not in without and not isinstance(value, np.random.Generator)
    }
    return {"class": f"{type(thing).__module__}.{type(thing).__qualname__}"} | public


def digest(arrays: Mapping[str, np.ndarray]) -> str:
    """A name for the values of arrays, the same in every process."""
    state = hashlib.blake2b(digest_size=16)
    for name in sorted(arrays):
        state.update(f"{name} {arrays[name].dtype} {arrays[name].shape}\n".encode())
        state.update(np.ascontiguousarray(arrays[name]).tobytes())
    return state.hexdigest()


def differences(old: Any, new: Any, name: str = "") -> list[str]:
    """Where two descriptions differ, as text."""
    if isinstance(old, dict) and isinstance(new, dict):
        names = sorted(old.keys() | new.keys())
        return [
            text for key in names for text in differences(old.get(key), new.get(key), f"{name}.{key}" if name else key)
        ]
    return [] if old == new else [f"{name} is {_short(old)} in the journal and {_short(new)} here"]


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def identity(problem: Problem) -> dict[str, Any]:
    """What a problem is, the same in every process: its own word for it, or the arrays, numbers with a point, texts and
    truths that it holds (not whole numbers, which may count something), and its class and size."""
    if hasattr(problem, "identity"):
        own = problem.identity()
    else:
        every = vars(Problem())
        own = {n: v for n, v in vars(problem).items() if n not in every and isinstance(v, str | float | bool)}
        own["data"] = digest(
            {n: v for n, v in vars(problem).items() if isinstance(v, np.ndarray) and v.dtype != object}
        )
    names = ("n_var", "n_obj", "n_ieq_constr", "n_eq_constr")
    return {"class": type(problem).__qualname__} | {name: int(getattr(problem, name)) for name in names} | own


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in ("pymoo-stitch", "pymoo", "numpy", "torch"):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
