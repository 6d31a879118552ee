"""The command line: `pymoo-stitch`, or `python -m pymoo_stitch`.

In: command-line arguments. Out: an exit code, and what a command prints and writes.

May import: `util`, `supernet`, `runners`, `evaluations`, `algorithms`, `problem`, `problems`, `report`.
"""

import errno
import importlib
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import Any

from .exits import ERROR, INTERRUPTED, USAGE
from .parser import make_parser

_EXPECTED = (ValueError, TypeError, RuntimeError, OSError, ImportError)
"""What our own messages come as. Of anything else the kind is told as well."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; its exit code."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    if options.command is None:
        parser.print_help()
        return USAGE
    warnings.showwarning = _show_warning
    try:
        # What a command needs is imported when it is run: torch takes seconds, and `--help` should not.
        command = getattr(importlib.import_module("pymoo_stitch.cli.commands"), options.command)
        return command(options) or 0
    except KeyboardInterrupt:
        print("\nInterrupted. What a journal holds is kept: the same command goes on from there.", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # who read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ERROR
    except Exception as error:
        if options.traceback:
            traceback.print_exc()
        print(f"pymoo-stitch {options.command}: {_message(error)}", file=sys.stderr)
        return ERROR


def _message(error: Exception) -> str:
    if not isinstance(error, _EXPECTED):
        return f"{type(error).__name__}: {error}; --traceback shows where."
    if isinstance(error, OSError) and error.strerror:
        what = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
        return f"{what}. Make room and start again." if error.errno in (errno.ENOSPC, errno.EDQUOT) else f"{what}."
    return str(error) or type(error).__name__


def _show_warning(message: Any, category: type[Warning], *_: Any, **__: Any) -> None:
    if not issubclass(category, DeprecationWarning | PendingDeprecationWarning):
        print(f"warning: {message}", file=sys.stderr)
