"""What a run is, as data: the problem, the algorithm with its options, and the versions of libraries."""

import inspect
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from pymoo.core.problem import Problem

from ..util.digests import digest_arrays


def described(thing: Any, *, without: Iterable[str] = ()) -> Any:
    """Anything with parameters as JSON: classes by name with their public attributes, the same in every process."""
    return _described(thing, frozenset(without), ())


def _described(thing: Any, without: frozenset[str], above: tuple[int, ...]) -> Any:
    if thing is None or isinstance(thing, str | bool | int | float):
        return thing
    if isinstance(thing, np.generic):
        return thing.item()
    if isinstance(thing, np.ndarray):
        return digest_arrays({"": thing}) if thing.dtype != object else f"objects {thing.shape}"
    if id(thing) in above:
        return "above"
    above = (*above, id(thing))
    if isinstance(thing, Mapping):
        return {str(name): _described(value, frozenset(), above) for name, value in thing.items()}
    if isinstance(thing, list | tuple | set | frozenset):
        return [_described(value, frozenset(), above) for value in thing]
    if isinstance(thing, type) or (callable(thing) and hasattr(thing, "__qualname__")):
        return f"{thing.__module__}.{thing.__qualname__}"
    earlier = _earlier(thing)
    public = {
        name: _described(value, frozenset(), above)
        for name, value in sorted(getattr(thing, "__dict__", {}).items())
        if not name.startswith("_") and name not in without and not isinstance(value, np.random.Generator)
        if name not in earlier or value != earlier[name]  # an option that is not named has its earlier value
    }
    # A class of ours that replaced another has that one's name, so that its journals can be resumed.
    kind = getattr(type(thing), "journaled_as", f"{type(thing).__module__}.{type(thing).__qualname__}")
    return {"class": kind} | public


def restore(thing: Any, old: Any) -> None:
    """Give options that a description does not name their earlier values: an option that was added to a class later,
    and would change what its runs do, has in the class's `earlier` the value that stands for the earlier behaviour.

    An option whose value is not its default is left as it is, and makes it another run.

    :param thing: an algorithm, or a part of one.
    :param old: what a journal says of it.
    """
    if not isinstance(old, Mapping):
        return
    for name, value in _earlier(thing).items():
        if name not in old and getattr(thing, name) == _default(type(thing), name):
            setattr(thing, name, value)
    for name, part in getattr(thing, "__dict__", {}).items():
        if isinstance(old.get(name), Mapping) and old[name].get("class"):
            restore(part, old[name])


def _earlier(thing: Any) -> Mapping[str, Any]:
    """The earlier values of options that were added to a class, or to one that it inherits from."""
    found = [vars(kind).get("earlier") for kind in type(thing).__mro__]
    return {name: value for each in found if isinstance(each, Mapping) for name, value in each.items()}


def _default(kind: type, name: str) -> Any:
    """The default of an option of a class, or of a class that it inherits from."""
    for each in kind.__mro__:
        parameters = inspect.signature(vars(each)["__init__"]).parameters if "__init__" in vars(each) else {}
        if name in parameters:
            return parameters[name].default
    return inspect.Parameter.empty


def differences(old: Any, new: Any, name: str = "") -> list[str]:
    """Where two descriptions differ, as text. Classes and functions of this package are compared by name: its modules
    move. Of objects of different classes only these are named."""
    if isinstance(old, dict) and isinstance(new, dict):
        kinds = [str(thing.get("class", "")) for thing in (old, new)]
        if all(kinds) and _unmoved(kinds[0]) != _unmoved(kinds[1]):
            short = [kind.rpartition(".")[2] for kind in kinds]
            old, new = kinds if short[0] == short[1] else short
            return [f"{name or 'class'} is {old} in the journal and {new} here"]
        names = sorted(old.keys() | new.keys())
        return [
            text for key in names for text in differences(old.get(key), new.get(key), f"{name}.{key}" if name else key)
        ]
    return [] if _unmoved(old) == _unmoved(new) else [f"{name} is {_short(old)} in the journal and {_short(new)} here"]


def problem_differences(run: Mapping[str, Any], problem: Problem, own: Mapping[str, Any] | None = None) -> list[str]:
    """Where the problem of a journal and this one differ, as text; what journals hold as a digest is given in the
    problem's words.

    :param run: what the journal says of its run.
    :param own: `identity(problem)`, if it is known.
    """
    there, here = run.get("words") or {}, words(problem)
    texts = []
    for text in differences(run.get("problem"), identity(problem) if own is None else own, "problem"):
        name = text.partition(" is ")[0]
        if name not in here:
            texts.append(text)
        elif name in there and there[name] != here[name]:
            texts.append(f"{there[name]} in the journal and {here[name]} here")
        else:
            texts.append(f"not the same {here[name]}")
    origins = run.get("origin"), getattr(problem, "origin", None)
    if texts and origins[0] and origins[0] != origins[1]:
        own_words = f", this one from {_origin_in_words(origins[1])}" if origins[1] else ""
        texts.append(f"the journal's was made from {_origin_in_words(origins[0])}{own_words}")
    return texts


def _origin_in_words(origin: Mapping[str, Any]) -> str:
    """The name of a ready-made problem, and its options."""
    options = ", ".join(f"{name}={value}" for name, value in origin["options"].items())
    return f"{origin['name']} with {options}" if options else origin["name"]


def words(problem: Problem) -> dict[str, str]:
    """The problem's words for what its identity holds as digests."""
    return problem.in_words() if hasattr(problem, "in_words") else {}


def _unmoved(value: Any) -> Any:
    """For the path of something in this package, its name and that it is of this package; any other value itself."""
    is_path = isinstance(value, str) and re.fullmatch(r"pymoo_stitch(\.[\w<>]+)+", value)
    return ("pymoo_stitch", value.rpartition(".")[2]) if is_path else value


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def identity(problem: Problem) -> dict[str, Any]:
    """What a problem is, the same in every process: its own `identity`, or the arrays, floats, strings and booleans
    that it holds (not integers, which may count something), and its class and size."""
    if hasattr(problem, "identity"):
        own = problem.identity()
    else:
        every = vars(Problem())
        own = {n: v for n, v in vars(problem).items() if n not in every and isinstance(v, str | float | bool)}
        own["data"] = digest_arrays(
            {n: v for n, v in vars(problem).items() if isinstance(v, np.ndarray) and v.dtype != object}
        )
    names = ("n_var", "n_obj", "n_ieq_constr", "n_eq_constr")
    return {"class": type(problem).__qualname__} | {name: int(getattr(problem, name)) for name in names} | own
