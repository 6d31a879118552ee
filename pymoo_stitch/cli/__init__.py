"""The command line: `pymoo-stitch`, or `python -m pymoo_stitch`.

In: command-line arguments. Out: an exit code, and what a command prints and writes.

May import: `util`, `supernet`, `runners`, `evaluations`, `algorithms`, `problem`, `problems`, `report`.
"""

import errno
import importlib
import os
import signal
import sys
import threading
import traceback
import warnings
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from .checks import check
from .exits import ERROR, INTERRUPTED, TERMINATED, USAGE
from .parser import make_parser

_EXPECTED = (ValueError, TypeError, RuntimeError, OSError, ImportError)
"""The types of errors with messages of our own. For any other, the type is printed as well."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    if options.command is None:
        parser.print_help()
        return USAGE
    warnings.showwarning = _show_warning
    try:
        with _ended_by_sigterm():
            return _run(options)
    except SystemExit as end:
        if end.code == TERMINATED:
            print("\nTerminated. What a journal holds is kept: the same command goes on from there.", file=sys.stderr)
        return end.code  # type: ignore[return-value]  # argparse and this package end with numbers


def _run(options: Namespace) -> int:
    try:
        # What a command needs is imported when it is run: torch takes seconds, and wrong options are reported at once.
        check(options)
        home = {"info": "info", "watch": "watching", "check": "checking"}.get(options.command, "commands")
        command = getattr(importlib.import_module(f"pymoo_stitch.cli.{home}"), options.command)
        return command(options) or 0
    except KeyboardInterrupt:
        print("\nInterrupted. What a journal holds is kept: the same command goes on from there.", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of the output has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ERROR
    except Exception as error:
        if options.traceback:
            traceback.print_exc()
        print(f"pymoo-stitch {options.command}: {_message(error)}", file=sys.stderr)
        return ERROR


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """SIGTERM, with which clusters end what has taken too long, ends a command as an error would: workers are stopped,
    and nothing is left in temporary folders."""

    def end(*_: object) -> None:
        raise SystemExit(TERMINATED)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _message(error: Exception) -> str:
    if not isinstance(error, _EXPECTED):
        return f"{type(error).__name__}: {error}; --traceback shows where."
    if isinstance(error, OSError) and error.strerror:
        what = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
        return (
            f"{what}. Free some space and start again." if error.errno in (errno.ENOSPC, errno.EDQUOT) else f"{what}."
        )
    return str(error) or type(error).__name__


def _show_warning(message: Any, category: type[Warning], *_: Any, **__: Any) -> None:
    if not issubclass(category, DeprecationWarning | PendingDeprecationWarning):
        print(f"warning: {message}", file=sys.stderr)
