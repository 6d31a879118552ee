"""What is wrong with the options of a command, as far as that can be checked without importing torch, which takes
seconds."""

import shlex
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any

from ..problems import PROBLEMS, check_options
from ..util.files import check_exported, check_folder, check_place


def check(options: Namespace) -> None:
    """An error that names what is wrong, before any work."""
    given = vars(options)
    journals = given.get("journals") or ([given["journal"]] if "journal" in given else [])
    if options.command == "export":
        check_exported(options.output)
    if options.command in ("build", "search", "export") and options.output:
        check_place(options.output)
    if options.command in ("demo", "report", "compare"):
        check_folder(options.output)
    if "problem" in given:
        abouts = [_about(path) for path in journals]
        check_options(problem_named(origin_of(abouts), options), options.option)


def _about(path: str) -> Mapping[str, Any]:
    from ..evaluations import Journal, JournalError

    journal = Journal(path, create=False)
    journal.close()
    if journal.run is None:
        raise JournalError(f"{path} is a journal in which no run has begun. Start the run again, or delete it.")
    return journal.run


def origin_of(runs: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The problem that runs belong to, by their journals; None if these do not say."""
    return next((run["origin"] for run in runs if run.get("origin")), None)


def problem_named(origin: Mapping[str, Any] | None, options: Namespace) -> str:
    """The problem of journals. A file is run only if the user names it: a journal is data."""
    if options.problem is not None:
        return options.problem
    if origin is None:
        raise ValueError(
            "the journal does not name its problem, which a script made. Put it into a .py file with a function "
            "problem(), and name that with --problem; or use Run, Report and export in the script."
        )
    if origin["name"] not in PROBLEMS:
        raise ValueError(
            f"the journal is of the problem in {origin['name']}. If you trust "
            f"it, add --problem {shlex.quote(origin['name'])}."
        )
    return origin["name"]
