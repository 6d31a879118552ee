"""The search algorithms on problems whose fronts are known, on a simulated clock, and on a synthetic stitching space.

    python benchmarks/search.py --data ../shared/data
    python benchmarks/search.py --only clock --seeds 3
    python benchmarks/search.py --only stitching --instances 2 --budgets 1000

Parts, on one core of a machine under load: fronts (10 minutes, and more for GOMEA on best-of-traps, which seldom gets there),
clock (25), stitching (85), speed (2). The folder holds `best-of-traps/`.
"""

import argparse
import pathlib
import time
import warnings

import numpy as np
from binary_problems import LOTZ, BestOfTraps, TrapInverseTrap, TwoChains, ZeromaxOnemax
from pymoo.indicators.hv import Hypervolume
from pymoo.optimize import minimize

from pymoo_stitch import Evaluations
from pymoo_stitch.algorithms import GOMEA, LKGOMEA, AsyncGA, nsga2
from pymoo_stitch.algorithms.linkage import linkage_tree
from pymoo_stitch.runners import SerialRunner, SimulatedRunner


def run_to_front(problem, algorithm, budget, seed):
    """Run until the archive holds the whole front. The algorithm, and the evaluations it took, infinite if it did not."""
    algorithm.setup(problem, termination=("n_evals", budget), seed=seed)
    front = {tuple(f) for f in problem.pareto_front()}
    while algorithm.has_next():
        algorithm.next()
        newest = algorithm.archive.members[-1:]
        if newest and tuple(newest[0].F) in front and front <= {tuple(m.F) for m in algorithm.archive.members}:
            return algorithm, algorithm.evaluator.real
    return algorithm, np.inf


def seeds(arguments):
    return range(arguments.first_seed, arguments.first_seed + arguments.seeds)


def fronts(arguments):
    traps = arguments.data / "best-of-traps" / "bot_n40k5fns4s42.txt"
    cases = [
        ("zeromax-onemax 50", ZeromaxOnemax(50), GOMEA, 32, 20_000, 5_000),
        ("LOTZ 30", LOTZ(30), GOMEA, 64, 50_000, None),
        ("trap-inverse-trap 50", TrapInverseTrap(50, seed=7), GOMEA, 64, 40_000, 7_000),
        ("trap-inverse-trap 50", TrapInverseTrap(50, seed=7), LKGOMEA, 64, 40_000, 5_800),
        ("trap-inverse-trap 100", TrapInverseTrap(100, seed=7), GOMEA, 128, 100_000, 28_000),
        ("trap-inverse-trap 100", TrapInverseTrap(100, seed=7), LKGOMEA, 128, 100_000, 22_500),
        ("best-of-traps 40, 4", BestOfTraps(traps), LKGOMEA, 256, 200_000, 26_000),
        ("best-of-traps 40, 4", BestOfTraps(traps), GOMEA, 256, 200_000, None),
    ]
    print(f"{'problem':24}{'algorithm':10}{'n':>5}{'whole front':>13}{'median':>10}{'to reach':>10}{'seconds':>9}")
    for name, problem, make, n, budget, target in cases:
        start = time.perf_counter()
        needed = [run_to_front(problem, make(pop_size=n), budget, seed)[1] for seed in seeds(arguments)]
        reached = f"{np.isfinite(needed).sum()} of {len(needed)}"
        print(
            f"{name:24}{make.__name__:10}{n:5}{reached:>13}{np.median(needed):10,.0f}"
            f"{'' if target is None else f'≤ {target:,}':>10}{time.perf_counter() - start:9.0f}",
            flush=True,
        )
    problem = TrapInverseTrap(50, seed=7)
    best = problem.pareto_front()
    hv = Hypervolume(ref_point=np.zeros(2))
    found, volumes = [], []
    for seed in seeds(arguments):
        f = minimize(problem, nsga2(), ("n_evals", 20_000), seed=seed).F
        found.append(len({tuple(x) for x in f} & {tuple(x) for x in best}))
        volumes.append(hv.do(f) / hv.do(best))
    print(
        f"NSGA-II (n = 100) on trap-inverse-trap 50 after 20,000: median {np.median(found):.0f} of {len(best)} points, "
        f"hypervolume {np.median(volumes):.3f} of the optimum"
    )


def lognormal(x, random_state):
    return random_state.lognormal(sigma=1)


class Generational:
    """The generational form of an algorithm: a loop whose turn is over waits until all others' are."""

    def _fill(self):
        if not self.pending:
            super()._fill()


def generational(make):
    return type(f"Generational{make.__name__}", (Generational, make), {})


def clock(arguments):
    problem = {
        GOMEA: TrapInverseTrap(100, seed=7),
        LKGOMEA: TrapInverseTrap(100, seed=7),
        AsyncGA: LOTZ(20),
    }
    sizes = {GOMEA: 128, LKGOMEA: 128, AsyncGA: 180}
    print("90 workers on a simulated clock, to the whole front; medians")
    print(
        f"{'algorithm':10}{'times':>12}{'utilisation':>13}{'generational':>14}{'speed-up':>10}{'evaluations':>13}",
        end="",
    )
    print(f"{'over one worker':>17}{'seconds':>9}")
    for make, n in sizes.items():
        for name, duration in (("log-normal", lognormal), ("constant", 1.0)):
            start = time.perf_counter()
            rows = []
            for seed in seeds(arguments):
                runs = [
                    run_to_front(problem[make], form(pop_size=n, runner=runner), 200_000, seed)
                    for form, runner in (
                        (make, SimulatedRunner(90, duration, seed=seed)),
                        (generational(make), SimulatedRunner(90, duration, seed=seed)),
                        (make, SerialRunner()),
                    )
                ]
                (ours, needed), (theirs, _), (_, one) = runs
                rows.append(
                    [
                        ours.runner.utilisation,
                        theirs.runner.utilisation,
                        theirs.runner.clock / ours.runner.clock,
                        needed,
                        needed / one,
                    ]
                )
            a, b, c, d, e = np.median(rows, axis=0)
            print(
                f"{make.__name__:10}{name:>12}{a:13.3f}{b:14.3f}{c:10.2f}{d:13,.0f}{e:17.2f}"
                f"{time.perf_counter() - start:9.0f}",
                flush=True,
            )
    small = GOMEA(pop_size=64, runner=SimulatedRunner(90, lognormal))
    small.setup(TrapInverseTrap(100, seed=7), termination=("n_evals", 200_000), seed=1)
    while small.evaluator.real < 4_000:
        small.next()
    print(f"GOMEA, n = 64 and 90 workers: utilisation {small.runner.utilisation:.3f}, n/W = {64 / 90:.3f}")


def stitching(arguments):
    forms = {
        "GOMEA, paper mode": lambda: GOMEA(closure=False, evaluator=Evaluations(count_skipped=True)),
        "GOMEA, without closure": lambda: GOMEA(closure=False),
        "GOMEA": GOMEA,
        "LK-GOMEA": LKGOMEA,
        "GA": AsyncGA,
        "NSGA-II": nsga2,
    }
    hv = Hypervolume(ref_point=np.ones(2))
    for budget in arguments.budgets:
        volumes = {name: [] for name in (*forms, "best")}
        counts = {name: [] for name in forms}
        for instance in range(arguments.instances):
            problem = TwoChains(50, seed=instance)
            front = []
            for name, make in forms.items():
                start = time.perf_counter()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", RuntimeWarning)  # of runs that end early; their evaluations say so
                    result = minimize(problem, make(), ("n_evals", budget), seed=instance)
                f = problem.normalize(np.atleast_2d(result.F))
                front.append(f)
                volumes[name].append(hv.do(f))
                evaluations = result.algorithm.evaluator
                counts[name].append((evaluations.real, evaluations.skipped, time.perf_counter() - start))
            volumes["best"].append(hv.do(np.vstack(front)))
            print(f"  {budget:,} evaluations, instance {instance + 1} of {arguments.instances}", flush=True)
        best = np.array(volumes.pop("best"))
        gaps = {name: 1e4 * (best - values) for name, values in volumes.items()}
        print(
            f"\nTwo chains of 50 layers, {budget:,} evaluations, {arguments.instances} instances; hypervolume missing to"
        )
        print("the best front of all runs together, × 1e-4")
        print(
            f"{'algorithm':24}{'median':>8}{'worst':>8}{'better than NSGA-II in':>24}{'real':>9}{'skipped':>10}{'ms':>7}"
        )
        for name, values in gaps.items():
            real, skipped, seconds = np.median(counts[name], axis=0)
            wins = np.sum(values < gaps["NSGA-II"])
            print(
                f"{name:24}{np.median(values):8.1f}{values.max():8.1f}{f'{wins} of {len(values)}':>24}{real:9,.0f}"
                f"{skipped:10,.0f}{1e3 * seconds / real:7.2f}"
            )
        print()


def speed(arguments):
    rng = np.random.default_rng(0)
    x = rng.random((512, 456)) < 0.3
    times = []
    for _ in range(20):
        start = time.perf_counter()
        linkage_tree(x, rng)
        times.append(time.perf_counter() - start)
    print(f"linkage tree of 456 variables from 512 genotypes: median {1e3 * np.median(times):.1f} ms")
    problem = TrapInverseTrap(455, seed=7)
    for make, n in ((GOMEA, 512), (LKGOMEA, 512), (AsyncGA, 256)):
        runner = SerialRunner()
        start = time.perf_counter()
        algorithm = make(pop_size=n, runner=runner).setup(problem, termination=("n_evals", 60_000), seed=1)
        algorithm.run()
        own = time.perf_counter() - start - runner.busy
        print(
            f"{make.__name__}, n = {n}, 455 variables: own time {1e3 * own / 60_000:.3f} ms per evaluation", flush=True
        )


PARTS = {"fronts": fronts, "clock": clock, "stitching": stitching, "speed": speed}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=pathlib.Path, default=pathlib.Path("../shared/data"), help="default: ../shared/data"
    )
    parser.add_argument("--only", choices=PARTS, help="one part")
    parser.add_argument("--seeds", type=int, default=11, help="runs of each (default: 11)")
    parser.add_argument("--first-seed", type=int, default=0, help="of those runs (default: 0)")
    parser.add_argument("--instances", type=int, default=12, help="synthetic stitching spaces (default: 12)")
    parser.add_argument("--budgets", type=int, nargs="+", default=[1_000, 20_000], help="for stitching")
    arguments = parser.parse_args()
    for name, part in PARTS.items():
        if arguments.only in (None, name):
            start = time.perf_counter()
            part(arguments)
            print(f"[{name}: {time.perf_counter() - start:.0f} s]\n", flush=True)
