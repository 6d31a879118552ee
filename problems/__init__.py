"""Ready-made problems. Installed as `pymoo_stitch.problems`.

In: a name and options, such as a folder of data. Out: trained networks, their data and the supernet over them, as a
`StitchProblem`.

May import: `util`, `network`, `supernet`, `task`, `problem`.
"""

import importlib.util
import os
import sys
import types
from collections.abc import Callable, Iterable
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin

import cloudpickle

from ..util.digests import digest
from ..util.lazy import LazyMapping
from ..util.words import did_you_mean
from .sources import Source, path_of, read_source

if TYPE_CHECKING:
    from ..problem import StitchProblem

__all__ = ["PROBLEMS", "get_problem", "parse_options"]


PROBLEMS = LazyMapping(
    __name__,
    {
        "digits": ("digits", "problem"),
        "cifar10": ("cifar10", "problem"),
        "imagenet-a": ("imagenet", "pair_a"),
        "imagenet-b": ("imagenet", "pair_b"),
        "voc": ("voc", "problem"),
    },
)
"""The functions that make problems, by name. The command line shows their docstrings, and reads options by their
annotations."""

SUMMARIES = {
    "digits": "Two small networks for scikit-learn's handwritten digits, trained on the spot; needs no download.",
    "cifar10": "ResNet-20 and ResNet-56 trained on CIFAR-10, from files in a folder.",
    "imagenet-a": "Pair (a) of the paper: timm's ResNet-152 and EfficientNet-B4 on ImageNet, at 224.",
    "imagenet-b": "Pair (b) of the paper: timm's ResNet-50 and ResNeXt-50 (32×4d) on ImageNet, at 224.",
    "voc": "The paper's segmentation pair: DeepLabV3 with MobileNetV3-Large and ResNet-50 on PASCAL VOC, at 520.",
}
"""The first lines of their docstrings, to be shown without importing them."""


def get_problem(name: str | os.PathLike, **options: Any) -> "StitchProblem":
    """A problem by its name, ready to be searched.

    >>> problem = get_problem("digits")
    >>> problem.n_var, problem.origin
    (72, {'name': 'digits', 'options': {}})

    :param name: one of `PROBLEMS`, or the path of a `.py` file that defines `problem(**options)`, which returns a
        `StitchProblem`. The file is imported, so its code is executed.
    :param options: those of the problem. What was given is in the problem's `origin`, so they are text, numbers,
        booleans, paths or None.
    """
    from ..problem import StitchProblem

    name, function = find(name)
    options = {key: _checked(name, function, key, value) for key, value in options.items()}
    _check_complete(name, function, options)
    problem = function(**options)
    if not isinstance(problem, StitchProblem):
        raise TypeError(f"{name}: problem() must return a StitchProblem, but returned {type(problem).__name__}.")
    written = {key: os.path.abspath(value) if isinstance(value, Path) else value for key, value in options.items()}
    problem.origin = {"name": name, "options": written}
    return problem


def parse_options(name: str | os.PathLike, texts: Iterable[str]) -> dict[str, Any]:
    """Options of a problem from strings such as `"images=500"`, each read as its annotation says: `int`, `float`,
    `bool` (true or false), `Path`, `str`, or several of these, and `none` where it may be None."""
    name, function = find(name)
    options: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise ValueError(
                f"an option is given as name=value, but {text!r} is not. {_options_of(name, _named_options(function))}"
            )
        if key in options:
            raise ValueError(f"the option {key} is given more than once.")
        options[key] = _parsed(name, key, value, _types(name, function, key))
    return options


# -------------------------------------------------------------------------------------------------- problems by name


def source_of(name: str | os.PathLike) -> Source | None:
    """What the source code of a problem says about it, without running it; None if that cannot be seen there. Raises a
    ValueError or FileNotFoundError if there is no such problem."""
    text = os.fspath(name)
    if text in PROBLEMS:
        module, _ = PROBLEMS.homes[text]
        return read_source(path_of(module))
    return read_source(_path_of_own(text))


def check_options(name: str | os.PathLike, texts: Iterable[str]) -> None:
    """Raise a ValueError, without importing it, if there is no such problem or it has no such options, as far as its
    source code tells."""
    source = source_of(name)
    for key, equals, _ in (text.partition("=") for text in texts):
        if source and equals and key not in source.options and not source.takes_any:
            raise ValueError(_no_option(os.fspath(name), key, source.options))


def find(name: str | os.PathLike) -> tuple[str, Callable[..., "StitchProblem"]]:
    """A problem's canonical name, or the absolute path of its file, and the function that makes it."""
    text = os.fspath(name)
    if text in PROBLEMS:
        return text, PROBLEMS[text]
    path = _path_of_own(text)
    return str(path), _own(path)


def _path_of_own(text: str) -> Path:
    """Where a user's file is."""
    if not text.endswith(".py"):
        raise ValueError(
            f"there is no problem {text!r}; choose from {', '.join(PROBLEMS)}, and your own: name a .py file that "
            f"defines problem(**options).{did_you_mean(text, PROBLEMS)}"
        )
    path = Path(text).absolute()
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path} to take a problem from.")
    return path


def _own(path: Path) -> Callable[..., "StitchProblem"]:
    """`problem` of a user's file, imported if the file is new or has changed."""
    try:
        content = path.read_bytes()
        # by name and content, so that no other module has this name, and a changed file is another module
        name = f"problem_{path.stem}_{digest([bytes(path), content], size=8)}"
        if name not in sys.modules:
            _import(name, path)
    except Exception as error:  # whatever a file makes go wrong, the file is at fault
        raise ValueError(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
    function = getattr(sys.modules[name], "problem", None)
    if not callable(function):
        raise ValueError(f"{path} defines no function problem(**options) that returns a StitchProblem.")
    return function


def _import(name: str, path: Path) -> None:
    spec = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent))  # for what it imports from files beside it, as when a script is run
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        sys.path.remove(str(path.parent))
    # workers cannot import this module, so whatever it defines travels with its code
    cloudpickle.register_pickle_by_value(module)


# ------------------------------------------------------------------------------------------------------------ options


def _parameters(function: Callable) -> dict[str, Parameter]:
    return dict(signature(function).parameters)


def _types(name: str, function: Callable, key: str) -> tuple[type, ...]:
    """The types an option may have, by its annotation; none if it has no annotation. Raises a ValueError if there is no
    such option."""
    parameters = _parameters(function)
    more = next((p for p in parameters.values() if p.kind is Parameter.VAR_KEYWORD), None)
    found = parameters.get(key, more)
    if found is None or found.kind in (Parameter.VAR_POSITIONAL, Parameter.POSITIONAL_ONLY):
        raise ValueError(_no_option(name, key, _named_options(function)))
    annotation = found.annotation
    if isinstance(annotation, str):
        try:
            annotation = eval(annotation, getattr(function, "__globals__", {}))  # as typing.get_type_hints does
        except Exception as error:
            raise ValueError(
                f"the annotation {annotation!r} of the option {key} of {name} is wrong: {error}."
            ) from error
    if annotation in (Parameter.empty, Any):
        return ()
    members = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
    members = tuple(type(None) if member is None else member for member in members)
    if unknown := [member for member in members if member not in _READERS]:
        raise ValueError(
            f"{name} annotates the option {key} with {unknown[0]}; options are str, int, float, bool, Path or None."
        )
    return members


def _named_options(function: Callable) -> list[str]:
    named = (Parameter.KEYWORD_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    return [key for key, p in _parameters(function).items() if p.kind in named]


def _options_of(name: str, named: Iterable[str]) -> str:
    listed = ", ".join(named)
    return f"The options of {name} are {listed}." if listed else f"{name} has no options."


def _no_option(name: str, key: str, named: Iterable[str]) -> str:
    return f"{name} has no option {key!r}. {_options_of(name, named)}{did_you_mean(key, named)}"


def _check_complete(name: str, function: Callable, options: dict[str, Any]) -> None:
    named = (Parameter.KEYWORD_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    missing = [
        key
        for key, p in _parameters(function).items()
        if p.kind in named and p.default is Parameter.empty and key not in options
    ]
    if missing:
        plural = "s" if len(missing) > 1 else ""
        raise ValueError(
            f"{name} needs the option{plural} {' and '.join(missing)}. {_options_of(name, _named_options(function))}"
        )


def _checked(name: str, function: Callable, key: str, value: Any) -> Any:
    """The value, text as a path where a path is meant. Raises a ValueError unless it is of the annotated type."""
    allowed = _types(name, function, key) or tuple(_READERS)
    if isinstance(value, os.PathLike) and not isinstance(value, Path):
        value = Path(value)
    if isinstance(value, str) and str not in allowed and Path in allowed:
        return Path(value)
    fits = [t for t in allowed if isinstance(value, t) and not (isinstance(value, bool) and t is not bool)]
    if fits:
        return value
    if float in allowed and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, Path) and str in allowed:
        return str(value)
    raise ValueError(f"the option {key} of {name} is {_named(allowed)}, but {value!r} is given.")


def _parsed(name: str, key: str, text: str, allowed: tuple[type, ...]) -> Any:
    for kind in _READERS:
        if kind in allowed:
            try:
                return _READERS[kind](text)
            except (KeyError, ValueError):
                continue
    if not allowed:
        return text
    raise ValueError(f"the option {key} of {name} is {_named(allowed)}, but {text!r} is given.")


def _path(text: str) -> Path:
    if not text:
        raise ValueError("an empty text is no path")
    return Path(text).expanduser()


_READERS: dict[type, Callable[[str], Any]] = {
    type(None): lambda text: {"none": None}[text.lower()],
    bool: lambda text: {"true": True, "false": False}[text.lower()],
    int: int,
    float: float,
    Path: _path,
    str: str,
}
"""How each type is read from text, in the order they are tried where several are allowed."""

_NAMES = {
    type(None): "none",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    Path: "a path",
    str: "text",
}


def _named(allowed: tuple[type, ...]) -> str:
    return " or ".join(_NAMES[kind] for kind in sorted(allowed, key=list(_READERS)[::-1].index))
