"""What benchmarks measured, as data: a JSON file for each part in `benchmarks/data`. `figures.py` makes the tables of
docs/figures.md from it, and `run_all.py` compares a new run with it."""

import json
import os
import pathlib
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from importlib.metadata import version

import numpy as np

from pymoo_stitch import __version__

DATA = pathlib.Path(__file__).parent / "data"
"""Where the committed data are."""

LIBRARIES = ("torch", "pymoo", "numpy", "timm", "distributed")


def record(
    name: str,
    rows: Iterable[Mapping],
    *,
    by: Sequence[str] = (),
    noise: Mapping[str, float] | None = None,
    **settings,
) -> None:
    """Write what a part measured: to `benchmarks/data`, or to the folder that BENCHMARK_DATA names.

    :param name: of the file, and of the tables that are made from it.
    :param rows: numbers and names by column.
    :param by: the columns that say what a row is about.
    :param noise: how far each of these columns may be from the committed figure by chance, as a fraction of it. Other
        columns, such as times, are not compared.
    :param settings: what a reader must know to judge the figures, such as seeds.
    """
    rows = [dict(row) for row in rows]
    if not rows:
        sys.exit(f"There is nothing to record as {name}: no run is complete.")
    folder = pathlib.Path(os.environ.get("BENCHMARK_DATA", DATA))
    folder.mkdir(parents=True, exist_ok=True)
    command = " ".join(["python", f"benchmarks/{pathlib.Path(sys.argv[0]).name}", *map(_shown, sys.argv[1:])])
    document = {
        "command": command,
        "date": date.today().isoformat(),
        "versions": {"python": sys.version.split()[0], "pymoo-stitch": __version__}
        | {library: version(library) for library in LIBRARIES},
        "settings": settings,
        "by": list(by),
        "noise": dict(noise or {}),
        "rows": rows,
    }
    path = folder / f"{name}.json"
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False, default=_plain) + "\n", encoding="utf-8")


def read(name: str, folder: pathlib.Path = DATA) -> dict:
    """What `record` wrote."""
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))


def _shown(argument: str) -> str:
    """An argument as a shell takes it, without folders of one's own."""
    key, equals, value = argument.rpartition("=")
    return f"{key}{equals}FOLDER" if "/" in value else shlex.quote(argument)


def _plain(value):
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"{value!r} cannot be written as data.")
