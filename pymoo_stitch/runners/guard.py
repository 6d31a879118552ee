"""Whether worker processes can be started from here: each of them imports the script that starts them."""

import ast
import multiprocessing
import sys
from pathlib import Path
from types import FrameType, ModuleType

REMEDY = """Put what it does into a function, and call that only where the script itself is run:

    if __name__ == "__main__":
        main()
"""


def check_guard() -> None:
    """Raise a RuntimeError, with the remedy, if workers that are started here would run this script again, or could not
    import it."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):  # this is such a worker
        raise RuntimeError(f"workers import the script that starts them, and this one would start workers. {REMEDY}")
    main = sys.modules.get("__main__")
    script, spec = getattr(main, "__file__", None), getattr(main, "__spec__", None)
    if script is None or (spec is not None and spec.name.endswith("__main__")):  # what workers do not import
        return
    if not Path(script).is_file():
        raise RuntimeError(f"workers import the script that starts them, but {script} is no file: save it. {REMEDY}")
    line = _line_of(main)
    if line is not None and not _is_guarded(Path(script), line):
        raise RuntimeError(f"workers import {script}, and would run all of it again. {REMEDY}")


def _line_of(main: ModuleType) -> int | None:
    """The line of the main module that is executed now, at its top level; None if none is, as in a thread."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_globals is vars(main) and frame.f_code.co_name == "<module>":
            return frame.f_lineno
        frame = frame.f_back
    return None


def _is_guarded(script: Path, line: int) -> bool:
    """Whether that line is under a condition on `__name__`; True where there is no source to look at."""
    try:
        tree = ast.parse(script.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return True
    guards = [node for node in ast.walk(tree) if isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)]
    return any(guard.lineno <= line <= (guard.end_lineno or line) for guard in guards)
