"""What long journals take: to go on with a run of 200,000 evaluations, and to read and report on one.

    python benchmarks/journals.py
    python benchmarks/journals.py --only resume --evaluations 20000

`resume` runs a search of the synthetic stitching space with a journal (20 minutes for 200,000 evaluations), then the
same search again in a process of its own, which the journal answers. `report` reads a journal of digits with as many
evaluations, and writes the page and everything else of a report (5 minutes). All but a few hundred of these evaluations
are made up: genotypes are random, costs exact, and errors drawn, the larger the more stitches there are.
"""

import argparse
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

import numpy as np
from binary_problems import TwoChains
from pymoo.optimize import minimize
from record import record

from pymoo_stitch import Evaluations, Report, Run, get_problem
from pymoo_stitch.algorithms import LKGOMEA, AsyncNSGA2
from pymoo_stitch.evaluations import Journal, Row, is_bounded

FORMS = {"async-NSGA-II": AsyncNSGA2, "LK-GOMEA": LKGOMEA}
BEGUN = 1_700_000_000.0


def peak_mib() -> float:
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def apart(*arguments) -> list[float]:
    """The numbers that this file prints at the end if it is called so, in a process of its own."""
    command = [sys.executable, __file__, *map(str, arguments)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [float(number) for number in said.split()[-2:]]


def searched(path: pathlib.Path, form: str, evaluations: int) -> None:
    """Run a search with this journal, or go on with it, and print seconds and peak memory."""
    start = time.perf_counter()
    evaluator = Evaluations(journal=path)
    minimize(TwoChains(69, seed=0), FORMS[form](), ("n_evals", evaluations), seed=1, evaluator=evaluator)
    print(time.perf_counter() - start, peak_mib())


def resume(arguments: argparse.Namespace) -> None:
    rows = []
    for form in arguments.forms:
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "run.sqlite"
            first, _ = apart("--search", path, form, arguments.evaluations)
            size = path.stat().st_size / 2**20
            again, peak = apart("--search", path, form, arguments.evaluations)
        row = {"algorithm": form, "evaluations": arguments.evaluations, "search_s": first, "resume_s": again}
        rows.append(row | {"peak_mib": peak, "journal_mib": size, "ratio": again / first})
        print(rows[-1], flush=True)
    record("journals-resume", rows, by=("algorithm", "evaluations"), noise={"peak_mib": 0.2, "journal_mib": 0.05})


def report(arguments: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "run.sqlite"
        lengthened(path, arguments.evaluations)
        read_s, read_peak = apart("--read", path)
        report_s, report_peak = apart("--report", path, pathlib.Path(folder) / "report")
        page = (pathlib.Path(folder) / "report" / "report.html").stat().st_size / 2**20
    row = {"evaluations": arguments.evaluations, "read_s": read_s, "read_mib": read_peak, "report_s": report_s}
    row |= {"report_mib": report_peak, "page_mib": page}
    print(row, flush=True)
    record("journals-report", [row], by=("evaluations",), noise={"report_mib": 0.2, "page_mib": 0.1})


def lengthened(path: pathlib.Path, evaluations: int, real: int = 300) -> None:
    """A journal of a short search of digits, made longer by evaluations that never were."""
    problem = get_problem("digits")
    minimize(problem, AsyncNSGA2(), ("n_evals", real), seed=1, evaluator=Evaluations(journal=path))
    journal = Journal(path)
    rows = list(journal.rows())
    random = np.random.default_rng(1)
    last = next(row for row in reversed(rows) if not row.result["failed"] and not is_bounded(row.result))
    best = min(row.result["F"][1] for row in rows)
    known, made = {row.key for row in rows}, []
    request = max(row.request for row in rows)
    while len(made) < evaluations - real:
        x = random.random(problem.n_var) < random.uniform(0.02, 0.5)
        key, active, cost = problem.outline(x)
        if key in known:
            continue
        known.add(key)
        request += 1
        error = float(np.round(min(0.9, best + random.exponential(0.02) * (1 + (x & active).sum())), 4))
        begun = BEGUN + 0.05 * len(made)
        result = dict(last.result) | {"F": np.array([cost, error]), "accuracy": 1 - error, "active": active}
        made.append(Row(request, x, key, result | {"begun": begun, "ended": begun + 0.05}, last.threshold, {}))
    journal.append(len(rows), made)
    journal.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["resume", "report"], help="one part (default: both)")
    parser.add_argument("--evaluations", type=int, default=200_000, help="of a journal (default: 200,000)")
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=["async-NSGA-II"], help="of algorithms, to resume")
    # What this file calls itself with, for time and memory of a process of its own.
    parser.add_argument("--search", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--read", help=argparse.SUPPRESS)
    parser.add_argument("--report", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    start = time.perf_counter()
    if arguments.search:
        path, form, evaluations = arguments.search
        searched(pathlib.Path(path), form, int(evaluations))
    elif arguments.read:
        run = Run.read(arguments.read)
        assert run.is_sound.mean() > 0.9
        run.front, run.hypervolume(get_problem("digits").hv_ref_point)
        print(time.perf_counter() - start, peak_mib())
    elif arguments.report:
        path, folder = arguments.report
        Report([Run.read(path)], get_problem("digits")).write(folder)
        print(time.perf_counter() - start, peak_mib())
    else:
        for part in (resume, report):
            if arguments.only in (None, part.__name__):
                part(arguments)


if __name__ == "__main__":
    main()
