"""The command that asks a cluster, before a search, whether it can do it and how fast."""

import math
import time
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..evaluations import Evaluate
from ..problem import StitchProblem
from ..runners import DaskRunner
from ..runners.inspection import all_versions, ask_all, evaluated, facts, largest_difference, place_of, rates
from ..runners.placement import Place, devices, misplaced, slots
from ..util.tables import table
from .commands import problem_of_options, runner_of_options
from .exits import ERROR

MUCH = 1.2
"""How many times as fast fewer evaluations at a time have to be to be worth a word: these measurements are short."""


def check(options: Namespace) -> int | None:
    problem = problem_of_options(options)
    with runner_of_options(options) as runner:
        if options.workers:
            runner.client.wait_for_workers(options.workers)
        wrong = _check(problem, runner, options)
    print()
    for sentence in wrong:
        print(f"Wrong: {sentence}")
    print("The cluster is not ready." if wrong else "Nothing is wrong.")
    return ERROR if wrong else None


def _check(problem: StitchProblem, runner: DaskRunner, options: Namespace) -> list[str]:
    """Print what is found; what is wrong as sentences."""
    threads, answers = runner.addresses(), ask_all(runner, facts)
    if not answers:
        return ["the cluster has no worker. Start some: dask worker ADDRESS."]
    wrong = [f"{address} cannot be asked: {_words(e)}" for address, e in answers.items() if isinstance(e, Exception)]
    known = {address: found for address, found in answers.items() if not isinstance(found, Exception)}
    places = [place_of(address, threads[address], found) for address, found in known.items()]
    print("\n".join(table([["worker", "at a time", "device", "memory", "free"], *_rows(places, known)])))
    wrong += [*_other_versions(known), *misplaced(places)]
    if wrong:
        return wrong
    print()
    print(
        f"Versions, the same here and on every worker: {', '.join(' '.join(pair) for pair in all_versions().items())}."
    )
    read = ask_all(runner, _read, about=Evaluate(problem))
    wrong = [f"{address} cannot read the data: {_words(e)}" for address, e in read.items() if isinstance(e, Exception)]
    if wrong:
        return wrong
    for split in next(iter(read.values())):
        took = [seconds[split] for seconds in read.values()]
        count = len(problem.task[split])
        print(f"Data, {split}: {count:,} images; the slowest worker read the first ones in {_short(max(took))}.")
    rng = np.random.default_rng(options.seed)
    f = Evaluate(problem)
    results = ask_all(runner, evaluated, _genotypes(problem, rng, 2), about=f)
    wrong = [f"{address} cannot evaluate: {_words(e)}" for address, e in results.items() if isinstance(e, Exception)]
    if wrong:
        return wrong
    cost, error = largest_difference(results)
    print(
        f"Two networks, evaluated by every worker: costs differ by {cost:g} (allowed: 0), "
        f"errors by {error:.2g} at most (allowed: {options.tolerance:g})."
    )
    if cost or not error <= options.tolerance:
        wrong.append(f"workers disagree about the same networks by more than {options.tolerance:g} (--tolerance).")
    found = rates(runner, places, f, lambda n: _genotypes(problem, rng, n))
    by_device = devices(places)
    most = sum(place.threads for place in places)
    rows = []
    for count, rate in found.items():
        busy = sum(len(slots(group, count)) for group in by_device.values())
        rows.append([f"{count}", f"{busy}", f"{rate / len(by_device):.3g}", f"{rate:.3g}"])
    head = ["evaluations at a time per device", "in all", "evaluations/s per device", "in all"]
    print("", *table([head, *rows]), sep="\n")
    used = found[max(found)]
    print(
        f"\n{options.budget:,} evaluations take about {_duration(options.budget / used)} with {most} at a time "
        f"on {_counted(len(by_device), 'device')}; less where many stop early, more if fewer are requested at a time."
    )
    best = max(found, key=lambda count: found[count])
    if found[best] > MUCH * used:
        print(f"{best} at a time per device would be faster: start fewer workers, or with fewer threads.")
    return wrong


def _rows(places: list[Place], known: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    rows = []
    for place in sorted(places, key=lambda place: (place.device, place.worker)):
        found = known[place.worker]
        on = "_on_gpu" if place.gpu is not None else ""
        name = f" ({found['gpu_name']})" if found["gpu_name"] else ""
        sizes = [f"{found[f'{what}{on}'] / 2**30:.1f} GB" for what in ("memory", "free")]
        rows.append([place.worker, str(place.threads), f"{place.device}{name}", *sizes])
    return rows


def _other_versions(known: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Which workers have other versions than this process, as sentences."""
    here, sentences = all_versions(), []
    for address, found in known.items():
        there = found["versions"]
        other = {name: there.get(name) for name, number in here.items() if there.get(name) != number}
        if other:
            differing = [f"{name} {number or 'missing'} instead of {here[name]}" for name, number in other.items()]
            sentences.append(f"{address} has {', '.join(differing)}. Install there what is here.")
    return sentences


def _read(f: Evaluate) -> dict[str, float]:
    """The seconds that a worker takes to read the first images of each split, and all of one that it keeps in
    memory."""
    seconds = {}
    for name, split in f.problem.task.splits.items():
        begun = time.perf_counter()
        next(iter(split.batches(1)))
        seconds[name] = time.perf_counter() - begun
    return seconds


def _genotypes(problem: StitchProblem, rng: np.random.Generator, count: int) -> np.ndarray:
    """Some of those with which a search begins."""
    return problem.sampling.do(problem, count, random_state=rng).get("X").astype(bool)


def _short(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 0.1 else "less than 0.1 s"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' if count != 1 else ''}"


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else f"{type(error).__name__}, no answer in time"


def _duration(seconds: float) -> str:
    for size, unit in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{math.ceil(seconds)} seconds"
