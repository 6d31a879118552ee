"""What each command of the command line does, given its options. Each returns an exit code, None for success."""

import logging
import os
import shlex
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from pymoo.optimize import minimize
from pymoo.termination.collection import TerminationCollection
from pymoo.termination.max_eval import MaximumFunctionCallTermination

from ..algorithms import ALGORITHMS
from ..evaluations import Evaluations, JournalError, RunTime
from ..problem import StitchProblem
from ..problems import PROBLEMS, get_problem, parse_options, source_of
from ..report import (
    Measured,
    Point,
    Report,
    Run,
    describe_subnetwork,
    file_name,
    in_words,
    noise,
    read_cascade,
    stages_of,
    with_new_thresholds,
)
from ..report import compare as run_all
from ..runners import DaskRunner
from ..supernet import Cascade, Subnetwork, Supernet, check_path
from ..util.statistics import decimals
from ..util.tables import table
from .checks import origin_of, problem_named
from .exits import INTERRUPTED

# -------------------------------------------------------------------------------------------------------- the whole way


def demo(options: Namespace) -> None:
    folder = Path(options.output)
    folder.mkdir(parents=True, exist_ok=True)
    _say("1. Two small networks for handwritten digits, trained on the spot and stitched into a supernet")
    problem = get_problem("digits")
    _say(f"   {problem.space!r}\n   {problem.task!r}")
    _say(*(f"   {line}" for line in noise(problem)), "")
    _say(
        f"2. Search: {options.budget:,} evaluations by async-NSGA-II, and as many by NSGA-II, on {options.workers} "
        "workers"
    )
    algorithms = {name: ALGORITHMS[name] for name in ("async-NSGA-II", "NSGA-II")}
    with runner_of_options(options) as runner:
        runs = run_all(
            problem,
            algorithms,
            ("n_evals", options.budget),
            seeds=[options.seed],
            folder=folder,
            runner=runner,
            progress=True,
        )
    _say("\n3. Their fronts, evaluated again on selection and test images that no search has seen\n")
    report = Report(runs, problem, one_stitch=True)
    print(report)
    if report.recommended is not None:
        _say("\n4. What is recommended, to take home\n")
    else:
        _say("\n4. A network to take home, of at most 40 % of the ensemble's cost, chosen on the selection images\n")
    chosen = report.recommended or to_take_home(report)
    written = [*report.write(folder, chosen), _export(report, chosen, folder / "network.pt2")]
    _say_written([*(run.path for run in runs), *written])


def to_take_home(report: Report, most: float = 0.4) -> Point:
    """The best network or cascade that costs at most this fraction of the most expensive reference, of equals the most
    expensive. A tenth of the fraction is left for other images, of which more may be deferred than of those it is
    chosen on."""
    limit, split = 0.9 * most * max(point.multiply_adds for point in report.references), report.deciding
    affordable = [point for point in [*report.front, *report.cascades] if point.multiply_adds <= limit]
    return min(affordable, key=lambda point: (point.F[split][1], -point.multiply_adds))


# ----------------------------------------------------------------------------------------------------------- one by one


def build(options: Namespace) -> None:
    space = problem_of_options(options).space
    supernet = space.basis  # of a family, the supernet it lists
    if not isinstance(supernet, Supernet):
        raise ValueError(f"{options.problem} does not search a supernet that could be saved, but {space!r}.")
    supernet.save(options.output)
    _say(supernet.summary(), "", f"Saved to {options.output}. {_use_of_supernet(options)}")


def _use_of_supernet(options: Namespace) -> str:
    source = source_of(options.problem)
    if source and "supernet" in source.options:
        return f"To search it: pymoo-stitch search {options.problem} --option supernet={options.output}"
    return f"To search it, load it in problem() of your file: Supernet.load({str(options.output)!r})"


def search(options: Namespace) -> int | None:
    problem = problem_of_options(options)
    name = f"{Path(options.problem).stem}-{options.algorithm}-seed{options.seed}"
    journal = Path(options.output or f"{file_name(name)}.sqlite")
    budget = options.budget or (None if options.time else 2_000)
    return _search(options, problem, options.algorithm, options.pop_size, budget, options.seed, journal, options.memo)


def resume(options: Namespace) -> int | None:
    run = Run.read(options.journal)
    if run.algorithm not in ALGORITHMS:
        raise JournalError(
            f"{run.path} is a run of {run.algorithm}, which this command does not know: run its script again."
        )
    budget = options.budget or run.budget
    if options.budget is None and run.budget is not None and len(run) > run.budget:
        raise JournalError(
            f"{run.path} was begun with a budget of {run.budget:,} and has "
            f"{len(run):,} evaluations: say how many it may "
            f"have, --budget {2 * len(run)}."
        )
    if budget is None and options.time is None:
        raise JournalError(f"{run.path} had a time limit and no budget: say how long it may go on, such as --time 1h.")
    return _search(options, _problem_of([run], options), run.algorithm, run.pop_size, budget, run.seed, run.path, ())


def report(options: Namespace) -> None:
    with runner_of_options(options) as runner:
        made = _report(options, runner)
        print(made)
        asked = any(value is not None for value in (options.key, options.at_most, options.at_least))
        chosen = _choose(made, options) if asked else made.recommended
        if chosen is not None:
            _say("", f"Drawing {chosen.name}:", _description(chosen.network))
        _say_written(made.write(options.output, chosen))


def export(options: Namespace) -> None:
    check_path(options.output)
    with runner_of_options(options) as runner:
        made = _report(options, runner, test=False)  # of which the chosen one is measured on test
        kept = Path(options.report) / "cascades.json"
        cascade = read_cascade(kept, options.key, made.problem) if options.key and kept.is_file() else None
        network = cascade or _choose(made, options)
    _export(made, network, options.output, options.retrain, options.recalibrate)


def compare(options: Namespace) -> None:
    problem = problem_of_options(options)
    algorithms = {name: ALGORITHMS[name] for name in options.algorithms}
    if options.pop_sizes:
        algorithms = {
            f"{name} {size}": partial(make, pop_size=size)
            for name, make in algorithms.items()
            for size in options.pop_sizes
        }
    seeds = range(options.seed, options.seed + options.seeds)
    termination = _termination(options.budget or (None if options.time else 1_000), options.time)
    with runner_of_options(options) as runner:
        runs = run_all(
            problem, algorithms, termination, seeds=seeds, folder=options.output, runner=runner, progress=True
        )
    made = Report(runs, problem)
    print(made)
    _say_written(made.write(options.output))


# ---------------------------------------------------------------------------------------------------------- their parts


def problem_of_options(options: Namespace) -> StitchProblem:
    return get_problem(options.problem, **parse_options(options.problem, options.option))


def _problem_of(runs: Sequence[Run], options: Namespace) -> StitchProblem:
    """The problem that runs belong to."""
    origin = origin_of([run.about for run in runs])
    name = problem_named(origin, options)
    given = parse_options(name, options.option)
    return get_problem(name, **((origin["options"] if origin else {}) | given))


def _search(
    options: Namespace,
    problem: StitchProblem,
    algorithm: str,
    pop_size: int | None,
    budget: int | None,
    seed: int,
    journal: Path,
    memo: Sequence[str],
) -> int | None:
    sizes = {} if pop_size is None else {"pop_size": pop_size}
    for line in noise(problem):
        _say(line)
    run = Run.read_if_begun(journal)
    # A journal of another run is refused when the run begins, with what differs.
    is_same = (
        run is not None and (run.algorithm, run.seed) == (algorithm, seed) and _name_of(run) == problem.origin["name"]
    )
    if is_same and budget is not None and budget < min(len(run), run.budget or len(run)):
        raise ValueError(
            f"{journal} has {len(run):,} evaluations already, more than the budget of {budget:,}. Ask for more."
        )
    _say(f"To watch it in a browser: {shlex.join(['pymoo-stitch', 'watch', str(journal)])}")
    with runner_of_options(options) as runner:
        evaluations = Evaluations(runner=runner, journal=journal, memo=memo, progress=True)
        try:
            result = minimize(
                problem,
                ALGORITHMS[algorithm](**sizes),
                _termination(budget, options.time),
                seed=seed,
                evaluator=evaluations,
            )
        finally:
            evaluations.close()
    name = problem.origin["name"]
    again = shlex.join([str(journal), *([] if name in PROBLEMS else ["--problem", name])])
    if evaluations.interrupted and not evaluations.real:
        _say("Interrupted before the first evaluation was complete: start the same command again.")
        return INTERRUPTED
    if not evaluations.interrupted:
        print(Report([Run.read(journal)], problem, test=False), end="\n\n")
    sources = {"the journal": evaluations.replayed, "journals of other runs": evaluations.shared}
    known = ", ".join(f"{n:,} of them from {source}" for source, n in sources.items() if n)
    _say(
        f"{evaluations.real:,} evaluations{f' ({known})' * bool(known)}, {evaluations.skipped:,} skipped, "
        f"{evaluations.failed:,} failed, {evaluations.bounded:,} stopped early."
    )
    if evaluations.interrupted:
        more = ["--budget", str(budget)] if budget not in (None, Run.read(journal).budget) else []
        if options.scheduler or options.workers:
            more += ["--scheduler", options.scheduler] if options.scheduler else ["--workers", str(options.workers)]
        _say(" ".join(["Interrupted. Go on: pymoo-stitch resume", again, *([shlex.join(more)] if more else [])]))
        return INTERRUPTED
    if budget and evaluations.real < budget and not options.time:
        _say(
            f"That is less than the budget of {budget:,}: nothing new was found any more, or there is no more to find."
        )
    elif evaluations.real < (size := result.algorithm.pop_size):
        _say(f"That is less than the population of {size}: ask for more, or for a smaller one (--pop-size).")
    _say(f"The run is in {journal}. Next: pymoo-stitch report {again}")
    return None


def _name_of(run: Run) -> str | None:
    return run.origin["name"] if run.origin else None


def _termination(budget: int | None, seconds: int | None) -> Any:
    parts = [] if budget is None else [MaximumFunctionCallTermination(budget)]
    parts += [] if seconds is None else [RunTime(seconds)]
    return parts[0] if len(parts) == 1 else TerminationCollection(*parts)


@contextmanager
def runner_of_options(options: Namespace) -> Iterator[DaskRunner | None]:
    if getattr(options, "scheduler", None):
        is_file = Path(options.scheduler).is_file()
        where = {"scheduler_file": options.scheduler} if is_file else {"cluster": options.scheduler}
        with DaskRunner(**where) as runner:
            logging.getLogger("distributed.client").setLevel(logging.CRITICAL)  # the error says what it would
            yield runner
    elif options.workers:
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // (options.workers + 1)))  # the workers have the others
        with DaskRunner(n_workers=options.workers) as runner:
            yield runner
    else:
        cores = os.cpu_count() or 1
        if torch.get_num_threads() > 1 and os.getloadavg()[0] > cores / 2:
            print(
                f"This machine is busy: with --workers {cores}, or with OMP_NUM_THREADS=1 in front of the command, "
                "this may be several times faster.",
                file=sys.stderr,
            )
        yield None


def _report(options: Namespace, runner: DaskRunner | None, *, test: bool = True) -> Report:
    runs = [Run.read(path) for path in options.journals]
    one_stitch, n_stages = getattr(options, "one_stitch", False), getattr(options, "stages", 2)
    problem = _problem_of(runs, options)
    return Report(runs, problem, test=test, one_stitch=one_stitch, n_stages=n_stages, runner=runner)


def _choose(report: Report, options: Namespace) -> Point:
    return report.choose(key=options.key, at_most=options.at_most, at_least=options.at_least)


def _export(
    report: Report,
    chosen: Point | Cascade,
    path: str | os.PathLike,
    retrain: int | None = None,
    recalibrate: int | None = None,
) -> Path:
    problem = report.problem
    network = chosen if isinstance(chosen, Cascade) else chosen.network
    _say(_description(network), "")
    if isinstance(chosen, Point):
        if same := [reference.name for reference in report.references if reference.key == chosen.key]:
            _say(f"This is {same[0]} itself.", "")
        else:
            if chosen.F[report.deciding][1] > problem.hv_ref_point[1]:
                _say("This is far worse than the networks it is made of: search longer.", "")
            _say(f"On {report.deciding} images: {in_words(chosen, report.deciding)}.", "")
    columns = measured = report.measured(network)
    stages = network.stages if isinstance(network, Cascade) else [network]
    if retrain and not network.n_stitches:
        _say("It uses no stitch: there is nothing to retrain.", "")
    elif retrain:
        for stage in stages:
            if stage.n_stitches:
                stage.retrain(_calibration_images(problem, "retrain"), samples=retrain)
        network = _with_new_thresholds(report, network)
        measured = report.measured(network)
        columns = columns | {f"{split}, retrained": one for split, one in measured.items()}
    if recalibrate and not any(stage.norms_after_stitches() for stage in stages):
        _say("It has no batch norm after a stitch: there is nothing to recalibrate.", "")
    elif recalibrate:
        network, after = _recalibrate(report, network, measured, recalibrate)
        if after is not None:
            measured = after
            columns = columns | {f"{split}, recalibrated": one for split, one in measured.items()}
    rows = [
        [
            name,
            *(_with_interval(one, name, len(problem.task[title.partition(",")[0]])) for title, one in columns.items()),
        ]
        for name in problem.task.all_metrics
    ]
    _say("\n".join(table([["", *columns], *rows])), "In parentheses: 95 % intervals.", "")
    metrics = {split: dict(one.metrics) for split, one in measured.items()}
    network.export(path, classes=problem.task.classes, metrics=metrics)
    use = f" To use it: torch.export.load({str(path)!r}).module()(images)" if str(path).endswith(".pt2") else ""
    _say(f"Saved to {path}.{use}")
    return Path(path)


def _with_interval(measured: Measured, metric: str, images: int) -> str:
    value, low, high = (f"{x:.{decimals(images)}f}" for x in (measured.metrics[metric], *measured.interval(metric)))
    return f"{value} ({low}–{high})"


def _with_new_thresholds(report: Report, network: Subnetwork | Cascade) -> Subnetwork | Cascade:
    """A cascade whose stages have changed defers as many images as before, other networks stay as they are."""
    if not isinstance(network, Cascade):
        return network
    return with_new_thresholds(report.problem, network, report.deciding)


def _description(network: Subnetwork | Cascade) -> str:
    if not isinstance(network, Cascade):
        return describe_subnetwork(network)
    lines = [
        f"Cascade of {network.cost:,.0f} expected multiply-adds, {network.worst_cost:,} at most: {stages_of(network)}"
    ]
    for number, stage in enumerate(network.stages, 1):
        lines += ["", f"Stage {number}: {describe_subnetwork(stage)}"]
    return "\n".join(lines)


def _recalibrate(
    report: Report, network: Subnetwork | Cascade, before: Mapping[str, Measured], samples: int
) -> tuple[Subnetwork | Cascade, dict[str, Measured] | None]:
    """Recalibrate a network, or the stages of a cascade, if that makes it better on the deciding split: the network,
    and what is measured then."""
    problem, split, metric = report.problem, report.deciding, report.problem.task.metric
    stages = network.stages if isinstance(network, Cascade) else [network]
    images = _calibration_images(problem, "recalibrate")
    done = [stage.recalibrate(images, samples=samples) for stage in stages if stage.norms_after_stitches()]
    changed = _with_new_thresholds(report, network)
    after = report.measured(changed)
    old, new = before[split].metrics[metric], after[split].metrics[metric]
    digits = decimals(len(problem.task[split]))
    is_better = problem.metric.error(new) < problem.metric.error(old)
    if not is_better:
        for stage in stages:
            stage.undo_recalibration()
    _say(
        f"Recalibration of {sum(len(one.shifts) for one in done)} batch norms on {done[0].samples:,} images: {metric} "
        f"on {split} {old:.{digits}f} before, {new:.{digits}f} after. It is "
        f"{'kept' if is_better else 'not kept: the statistics of the networks stay'}.",
        "",
    )
    return (changed, after) if is_better else (network, None)


def _calibration_images(problem: StitchProblem, option: str) -> Any:
    if "calibration" not in problem.task.splits:
        raise ValueError(
            f"the task has no calibration images to {option} on: give it some, Task(calibration=images), or export "
            f"without --{option}."
        )
    return problem.task["calibration"].source


def _say_written(paths: Sequence[Path]) -> None:
    _say("\nWritten:\n" + "\n".join(f"  {path}" for path in paths))
    page = next(path for path in paths if path.name == "report.html")
    _say(f"\nTo look at all of it, open {page} in a browser.")


def _say(*lines: str) -> None:
    print("\n".join(lines))
    sys.stdout.flush()
