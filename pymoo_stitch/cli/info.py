"""`pymoo-stitch info`: lists what is available, or shows what is in a file. What takes seconds to import is imported
where it is needed."""

import json
import os
import textwrap
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from ..algorithms import ALGORITHMS
from ..problems import PROBLEMS, SUMMARIES, source_of
from ..util.tables import table
from ..util.versions import versions
from ..util.words import did_you_mean

if TYPE_CHECKING:
    from ..report import Run


def info(options: Namespace) -> None:
    what = options.what
    if what is None:
        lines = _all()
    elif what in PROBLEMS or what.endswith(".py"):
        lines = _about_problem(what)
    elif not Path(what).is_file():
        hint = did_you_mean(what, PROBLEMS)
        raise ValueError(f"there is no problem and no file {what!r}. Problems: {', '.join(PROBLEMS)}.{hint}")
    elif Path(what).suffix in (".pt2", ".onnx"):
        from ..supernet import read_about

        lines = [json.dumps(read_about(what), indent=2, ensure_ascii=False)]
    elif Path(what).suffix == ".sqlite" or _is_database(what):
        from ..report import Run

        lines = _about_run(Run.read(what))
    else:
        from ..supernet import Supernet

        lines = [Supernet.load(what).summary()]
    print("\n".join(lines))


def _all() -> list[str]:
    return [
        *table([["problem", "what it is"], *SUMMARIES.items()]),
        "",
        "algorithms: " + ", ".join(ALGORITHMS),
        "versions: " + ", ".join(f"{name} {number}" for name, number in versions().items()),
    ]


def _about_problem(name: str) -> list[str]:
    """What its source code says, without running it."""
    source = source_of(name)
    if source is None:
        raise ValueError(f"{name} defines no function problem(**options) that returns a StitchProblem.")
    summary = SUMMARIES.get(name, "")
    lines = [] if source.text.startswith(summary) else [summary, ""]
    lines += [source.text or name, "", "Options, as --option NAME=VALUE:" if source.options else "It has no options."]
    for option, (kind, default, about) in source.options.items():
        kind = kind.lower() or "text"
        text = f"{option} ({kind}, {f'default {default}' if default else 'required'})" + (f": {about}" if about else "")
        lines.append(textwrap.fill(text, 110, subsequent_indent="    "))
    return lines


def _is_database(path: str | os.PathLike) -> bool:
    with open(path, "rb") as file:
        return file.read(6) == b"SQLite"


def _about_run(run: "Run") -> list[str]:
    origin, problem = run.origin, run.about["problem"]
    lines = [
        f"A run of {run.algorithm} (population {run.pop_size}, seed {run.seed}), begun {run.about['begun'][:19]} UTC",
        f"problem      {origin['name'] if origin else problem['class']}, {problem['n_var']} variables",
        f"evaluations  {len(run):,}" + _of_budget(run),
        f"failed       {sum(bool(row.result['failed']) for row in run.rows):,}",
        f"front        {len(run.front)}",
        "versions     " + ", ".join(f"{name} {number}" for name, number in run.about["versions"].items()),
        "",
    ]
    rows = [["network", "multiply-adds", "error"]]
    rows += [[run.rows[i].key[:8], f"{run.F[i, 0]:,.0f}", f"{run.F[i, 1]:.4f}"] for i in run.front]
    return lines + table(rows)


def _of_budget(run: "Run") -> str:
    if not run.budget:
        return ""
    return f" of {run.budget:,}" if len(run) <= run.budget else f", begun with a budget of {run.budget:,}"
