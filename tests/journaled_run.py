"""Searches with a journal, also as a program of their own, to be killed:
`python journaled_run.py NAME JOURNAL BUDGET`."""

import argparse
import json
import os
import signal
import time

import numpy as np
from binary_problems import TwoChains
from pymoo.optimize import minimize

from pymoo_stitch import Evaluations
from pymoo_stitch.algorithms import GOMEA, LKGOMEA, AsyncGA, AsyncNSGA2, nsga2
from pymoo_stitch.runners import SerialRunner, SimulatedRunner


def lognormal(x, random_state):
    return random_state.lognormal(sigma=1)


SIZE, BUDGET = 16, 100
"""Half of the budget has a model, and few loops have run out of what is new, which takes them longest."""

WORKERS = {"": None, ", few workers": 5, ", many workers": 40}  # of which all have a virtual clock

SEARCHES = [
    *(f"{algorithm}{workers}" for workers in WORKERS for algorithm in ("AsyncNSGA2", "AsyncGA", "GOMEA", "LK-GOMEA")),
    "NSGA-II",
    "NSGA-II, runner",
]


def make(name, size=SIZE):
    """An algorithm, and the runner of pymoo's own."""
    kind, *rest = name.split(", ")
    if kind == "NSGA-II":
        return nsga2(pop_size=size, threshold="auto"), SerialRunner() if rest else None
    n_workers = WORKERS[name.removeprefix(kind)]
    runner = None if n_workers is None else SimulatedRunner(n_workers, lognormal)
    kinds = {"AsyncNSGA2": AsyncNSGA2, "AsyncGA": AsyncGA, "GOMEA": GOMEA, "LK-GOMEA": LKGOMEA}
    return kinds[kind](pop_size=size, n_pending=size, runner=runner), None


class Chains(TwoChains):
    """Notes what it evaluates, says more than objectives, fails for a few genotypes, and stops where it cannot matter.

    :param limit: how many evaluations it makes before it raises `error`.
    :param each: what it calls before each evaluation, with the number of those before.
    """

    can_stop = True

    def __init__(self, depth=10, limit=None, error=None, each=None):
        super().__init__(depth, seed=1)
        self.limit, self.error, self.each = limit, error, each
        self.evaluated = []  # keys
        self.ease = np.full(100, 0.5)

    def _evaluate(self, X, out, *args, needed=None, **kwargs):
        for x in X:
            if self.limit is not None and len(self.evaluated) >= self.limit:
                raise self.error
            if self.each is not None:
                self.each(len(self.evaluated))
            self.evaluated.append(self.key(x))
        super()._evaluate(X, out, *args, **kwargs)
        out["F"][[np.sum(x & self.active(x)) % 7 == 6 for x in X]] = np.nan
        out["images"] = np.full(len(X), 100)
        if needed is not None:
            self._stop(out, needed)
        out["accuracy"] = 1 - out["F"][:, 1]
        out["mask"] = np.array([self.active(x) for x in X])

    def _stop(self, out, needed):
        out["bound"] = np.full(len(needed), None)
        for i, (f, least) in enumerate(zip(out["F"], needed, strict=True)):
            if least is not None and f[1] > least:
                out["images"][i] = 10
                out["bound"][i] = (f[1] + least) / 2
                f[1] = (f[1] + out["bound"][i]) / 2


def search(name, journal, budget=BUDGET, problem=None, seed=3, size=SIZE, memo=(), evaluations=None, **options):
    """What `minimize` gives."""
    algorithm, runner = make(name, size) if isinstance(name, str) else (name, None)
    evaluator = Evaluations(journal=journal, runner=runner, memo=memo, **evaluations or {})
    problem = Chains() if problem is None else problem
    return minimize(problem, algorithm, ("n_evals", budget), seed=seed, evaluator=evaluator, **options)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=SEARCHES)
    parser.add_argument("journal")
    parser.add_argument("budget", type=int)
    parser.add_argument("--size", type=int, default=SIZE)
    parser.add_argument("--seconds", type=float, default=0.001, help="that an evaluation takes")
    parser.add_argument("--uid", type=int, help="whose rights it has")
    parser.add_argument("--file-size", type=int, help="how large a file may become, in bytes")
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background has it ignored
    if options.file_size is not None:
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (options.file_size, options.file_size))
    if options.uid is not None:
        search(options.name, None, budget=60)  # imports all that is needed: others may not read where packages are
        os.setuid(options.uid)

    def each(number):
        print("evaluation", number, flush=True)
        time.sleep(options.seconds)

    print("begin", flush=True)
    result = search(options.name, options.journal, options.budget, Chains(each=each), size=options.size)
    evaluator = result.algorithm.evaluator
    counters = {name: getattr(evaluator, name) for name in ("real", "replayed", "requested", "skipped", "failed")}
    print()  # an interrupt may have come in the middle of a line
    print(json.dumps(counters | {"F": result.F.tolist()}), flush=True)


if __name__ == "__main__":
    main()
