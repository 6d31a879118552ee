"""What the source code of a problem says about it, without running it: importing torch takes seconds, and a file is
code."""

import ast
import importlib.util
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Source:
    """A function that makes a problem.

    :param text: its docstring, or else its module's, without the options.
    :param options: for each its annotation, its default (empty if it has none), and what the docstring says about it.
    :param takes_any: whether it takes other options as well.
    """

    text: str
    options: dict[str, tuple[str, str, str]]
    takes_any: bool


def read_source(path: Path) -> Source | None:
    """What a file says about its function `problem`; None if it does not define one, or is not Python."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return None
    found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "problem"]
    if not found:
        return None
    arguments = found[0].args
    text, *said = (ast.get_docstring(found[0]) or ast.get_docstring(tree) or "").split("\n:param ")
    about = {name: " ".join(rest.split()) for name, _, rest in (part.partition(":") for part in said)}
    named = [*arguments.args, *arguments.kwonlyargs]
    defaults = [*[None] * (len(arguments.args) - len(arguments.defaults)), *arguments.defaults, *arguments.kw_defaults]
    options = {
        option.arg: (
            ast.unparse(option.annotation) if option.annotation else "",
            ast.unparse(default) if default else "",
            about.get(option.arg, ""),
        )
        for option, default in zip(named, defaults, strict=True)
    }
    return Source(text.rstrip(), options, arguments.kwarg is not None)


def path_of(module: str) -> Path:
    """The file of a module of this package."""
    return Path(importlib.util.find_spec(f".{module}", __package__).origin)
