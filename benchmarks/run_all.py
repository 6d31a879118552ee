"""Runs the benchmarks and says what moved beyond noise against the committed data.

    python benchmarks/run_all.py --data ../shared/data --quick   # fewer seeds and instances, under an hour on two cores
    python benchmarks/run_all.py --data ../shared/data --update  # everything; then the tables of the docs are written
    again

Ratios, accuracies and hypervolumes are compared; times are not. Exits with 1 if anything moved.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from shutil import copy

from record import DATA, read

HERE = pathlib.Path(__file__).parent


@dataclass(frozen=True)
class Step:
    """A benchmark to run.

    :param script: its file, and its arguments in full.
    :param quick: arguments instead of these; None if it is left out.
    :param needs_data: whether it takes the folder of trained networks.
    """

    script: str
    full: Sequence[str] = ()
    quick: Sequence[str] | None = ()
    needs_data: bool = False


ON_DIGITS = ("async NSGA-II", "async NSGA-II in full", "LK-GOMEA", "LK-GOMEA in full", "GA")
ON_DIGITS += ("NSGA-II, n = 50", "NSGA-II, n = 100")
STEPS = (
    Step("supernet.py", quick=("--repeats", "10")),
    Step("families.py"),
    Step("fitting.py", ("--only", "small"), ("--only", "small", "--count", "10")),
    Step("fitting.py", ("--only", "cifar10"), ("--only", "cifar10", "--count", "10", "--samples", "2048"), True),
    Step("fitting.py", ("--only", "imagenet"), None, True),
    Step("engine.py", ("--only", "cifar10"), None, True),
    Step("engine.py", ("--only", "imagenet"), None),
    Step("engine.py", ("--only", "memory")),
    Step("engine.py", ("--only", "stopping", "--evaluations", "1000"), None, True),
    Step("engine.py", ("--only", "held"), None, True),
    Step("search.py", ("--only", "fronts"), None, True),
    Step("search.py", ("--only", "clock"), ("--only", "clock", "--seeds", "1")),
    Step(
        "search.py",
        ("--only", "stitching", "--budgets", "500", "1000", "2000", "4000", "20000"),
        ("--only", "stitching", "--budgets", "500", "1000", "--instances", "10"),
    ),
    Step("search.py", ("--only", "pending", "--budgets", "1000"), None),
    Step("search.py", ("--only", "workers")),
    Step("search.py", ("--only", "ready-made", "--seeds", "10", "--budgets", "1000", "--forms", *ON_DIGITS), None),
    Step("cluster.py", ("--only", "overhead")),
    Step("cluster.py", ("--only", "cifar"), ("--only", "cifar"), True),
    Step("cluster.py", ("--only", "simulated"), ("--only", "simulated", "--overheads", "3")),
    *(Step("evidence.py", ("--only", part), None, True) for part in ("cifar10", "cifar10-3000", "imagenet", "three")),
    Step("evidence.py", ("--only", "compute"), None),
    Step("journals.py", quick=("--evaluations", "5000")),
    Step("fragments.py", quick=None, needs_data=True),
)


def moved(name: str, folder: pathlib.Path, committed: pathlib.Path = DATA) -> list[str]:
    """What is further from the committed data than chance allows, a line each."""
    new = read(name, folder)
    if not (committed / f"{name}.json").is_file():
        return [f"{name}: nothing is committed to compare with"]
    old = read(name, committed)
    known = {tuple(row[column] for column in new["by"]): row for row in old["rows"]}
    lines = []
    for row in new["rows"]:
        about = tuple(row[column] for column in new["by"])
        for column, share in new["noise"].items():
            before, now = known.get(about, {}).get(column), row.get(column)
            if before is None and now is None:
                continue
            if before is None or now is None or abs(now - before) > share * abs(before) + 1e-12:
                lines.append(f"{name}{f' {about}' if about else ''}: {column} was {before}, is {now}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=pathlib.Path, help="trained networks and images; without it, what needs them is left out"
    )
    parser.add_argument("--quick", action="store_true", help="fewer seeds and instances, under an hour")
    parser.add_argument(
        "--update", action="store_true", help="keep the new data, and write the tables of the docs again"
    )
    parser.add_argument(
        "--only", nargs="+", choices=sorted({step.script for step in STEPS}), help="some of the benchmarks"
    )
    arguments = parser.parse_args()
    if arguments.quick and arguments.update:
        parser.error("--update keeps figures, which are those of full runs: leave out --quick.")
    lines, failed = [], []
    with tempfile.TemporaryDirectory() as folder:
        for step in STEPS:
            options = step.quick if arguments.quick else step.full
            left_out = options is None or (step.needs_data and arguments.data is None)
            if left_out or (arguments.only and step.script not in arguments.only):
                continue
            command = [sys.executable, str(HERE / step.script), *options]
            if step.needs_data:
                command += ["--data", str(arguments.data.resolve())]
            print(f"\n=== {step.script} {' '.join(options)}", flush=True)
            start = time.monotonic()
            environment = os.environ | {"BENCHMARK_DATA": folder, "OMP_NUM_THREADS": "1"}
            if subprocess.run(command, env=environment, cwd=folder).returncode:
                failed.append(f"{step.script} {' '.join(options)}")
            print(f"=== {time.monotonic() - start:.0f} s", flush=True)
        found = sorted(path.stem for path in pathlib.Path(folder).glob("*.json") if path.stem != "search")
        for name in found:
            lines += moved(name, pathlib.Path(folder))
            if arguments.update:
                copy(pathlib.Path(folder) / f"{name}.json", DATA)
    if arguments.update:
        subprocess.run([sys.executable, str(HERE / "figures.py")], check=True)
    print(f"\n{len(found)} sets of figures. Moved beyond noise: {len(lines) or 'none'}", *lines, sep="\n  ")
    if failed:
        print("Failed:", *failed, sep="\n  ")
    sys.exit(bool(lines or failed))


if __name__ == "__main__":
    main()
