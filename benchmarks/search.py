"""The search algorithms on problems whose fronts are known, on a simulated clock, and on a synthetic stitching space.

    python benchmarks/search.py --data ../shared/data
    python benchmarks/search.py --only clock --seeds 3
    python benchmarks/search.py --only stitching --instances 2 --budgets 1000
    python benchmarks/search.py --only ready-made --seeds 10 --budgets 1000 2000 4000
    python benchmarks/search.py --only ready-made --seeds 10 --budgets 1000 \\
        --forms "async NSGA-II" "async NSGA-II in full" LK-GOMEA "LK-GOMEA in full"
    python benchmarks/search.py --only ready-made --problem cifar10 --options data=FOLDER images=500 --seeds 3
    --budgets 1000

Parts, on one core of a machine under load: fronts (10 minutes, and more for GOMEA on best-of-traps, which seldom gets
there), clock (25), stitching (85), speed (2). The folder holds `best-of-traps/`.
"""

import argparse
import json
import pathlib
import time
import warnings
from functools import partial

import numpy as np
from binary_problems import LOTZ, BestOfTraps, TrapInverseTrap, TwoChains, ZeromaxOnemax
from pymoo.core.sampling import Sampling
from pymoo.indicators.hv import Hypervolume
from pymoo.optimize import minimize
from record import record

from pymoo_stitch import Evaluations, __version__
from pymoo_stitch.algorithms import GOMEA, LKGOMEA, AsyncGA, AsyncNSGA2, nsga2
from pymoo_stitch.algorithms.asynchronous import Asynchronous
from pymoo_stitch.algorithms.linkage import linkage_tree
from pymoo_stitch.runners import SerialRunner, SimulatedRunner


def run_to_front(problem, algorithm, budget, seed):
    """Run until the archive holds the whole front. The algorithm, and the evaluations it took, infinite if it did
    not."""
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
    rows = []
    for name, problem, make, n, budget, target in cases:
        start = time.perf_counter()
        needed = [run_to_front(problem, make(pop_size=n), budget, seed)[1] for seed in seeds(arguments)]
        reached = f"{np.isfinite(needed).sum()} of {len(needed)}"
        median = np.median(needed) if np.isfinite(np.median(needed)) else None
        rows.append({"problem": name, "algorithm": make.__name__, "n": n, "reached": reached, "median": median})
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
    seeds_of = [arguments.first_seed, arguments.first_seed + arguments.seeds - 1]
    record("search-fronts", rows, by=("problem", "algorithm"), noise={"median": 0.15}, seeds=seeds_of)
    nsga = {"points": np.median(found), "of": len(best), "hypervolume": np.median(volumes)}
    record("search-fronts-nsga2", [nsga], noise={"hypervolume": 0.03}, seeds=seeds_of)


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
    found = []
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
            found.append(
                {"algorithm": make.__name__, "times": name, "utilisation": a, "generational": b, "speed_up": c}
                | {"evaluations": d, "over_one": e}
            )
            print(
                f"{make.__name__:10}{name:>12}{a:13.3f}{b:14.3f}{c:10.2f}{d:13,.0f}{e:17.2f}"
                f"{time.perf_counter() - start:9.0f}",
                flush=True,
            )
    noise = {"utilisation": 0.03, "speed_up": 0.15, "over_one": 0.15}
    record("search-clock", found, by=("algorithm", "times"), noise=noise, seeds=arguments.seeds)
    small = GOMEA(pop_size=64, runner=SimulatedRunner(90, lognormal))
    small.setup(TrapInverseTrap(100, seed=7), termination=("n_evals", 200_000), seed=1)
    while small.evaluator.real < 4_000:
        small.next()
    print(f"GOMEA, n = 64 and 90 workers: utilisation {small.runner.utilisation:.3f}, n/W = {64 / 90:.3f}")


FORMS = {
    "async NSGA-II": AsyncNSGA2,
    "async NSGA-II, no screen": lambda: AsyncNSGA2(screen=None),
    "async NSGA-II in full": lambda: AsyncNSGA2(early_stopping=False),
    "NSGA-II, n = 50": lambda: nsga2(pop_size=50),
    "NSGA-II, n = 100": lambda: nsga2(pop_size=100),
    "LK-GOMEA": LKGOMEA,
    "LK-GOMEA, no screen": lambda: LKGOMEA(screen=None),
    "LK-GOMEA in full": lambda: LKGOMEA(early_stopping=False),
    "GOMEA": GOMEA,
    "GOMEA, no screen": lambda: GOMEA(screen=None),
    "GOMEA, paper mode": lambda: GOMEA(
        closure=False, screen=None, renew=False, evaluator=Evaluations(count_skipped=True)
    ),
    "GA": AsyncGA,
    "GA, no screen": lambda: AsyncGA(screen=None),
    "local search": lambda: LocalSearch(),
}
LONG = ("async NSGA-II", "LK-GOMEA", "LK-GOMEA, no screen", "NSGA-II, n = 100")
"""What is run with many evaluations."""
USUAL = ("async NSGA-II", "LK-GOMEA", "NSGA-II, n = 50", "NSGA-II, n = 100")
"""What is run on ready-made problems."""


class LocalSearch(Asynchronous):
    """A local search over the archive (Den Ottelander et al. 2021): flips each active variable of each member, in
    random order, those of the members that were added last first; begins again with a random genotype when no flip is
    left."""

    def __init__(self, **options):
        super().__init__(pop_size=50, n_pending=64, screen=None, **options)

    def _begin(self):
        self.waiting = list(self._sample(64))

    def _population(self):
        return self.archive.members

    def _default_pop_size(self, budget):
        return 50

    def _use(self, individual, violation, entered):
        if entered:
            active = self.problem.active(individual.X)
            for i in self.random_state.permutation(np.flatnonzero(active)):
                x = individual.X.copy()
                x[i] ^= True
                self.waiting.append((individual, x))

    def _fill(self):
        members = {id(member) for member in self.archive.members}
        while len(self.pending) < self.n_pending:
            x = self._sample(1)[0]
            while self.waiting:
                candidate = self.waiting.pop()
                member, candidate = candidate if isinstance(candidate, tuple) else (None, candidate)
                if (member is None or id(member) in members) and self._outlines.is_new(candidate):
                    x = candidate
                    break
            self._outlines.propose(x)
            self._propose(x)


class Results:
    """Runs in a JSON file, by name and version of this package: what is there is not run again.

    :param only_kept: whether nothing is run at all.
    """

    def __init__(self, path, only_kept=False):
        self.path, self.only_kept = path, only_kept
        self.runs = json.loads(path.read_text()) if path.exists() else {}

    def __call__(self, name, problem, make, budget, seed):
        name = f"{name}, {__version__}"
        if name not in self.runs and not self.only_kept:
            self.runs[name] = searched(problem, make(), budget, seed)
            self.path.write_text(json.dumps(self.runs))
        return self.runs.get(name)


def complete(runs):
    """Without forms of which a run is missing."""
    missing = {form for (form, _), run in runs.items() if run is None}
    if missing:
        print(f"Left out, since runs are missing: {', '.join(sorted(missing))}")
    return {(form, i): run for (form, i), run in runs.items() if form not in missing}


class TimedRunner(SerialRunner):
    """Measures the processor time of evaluations."""

    seconds = 0.0

    def wait(self, timeout=None):
        start = time.process_time()
        done = super().wait(timeout)
        self.seconds += time.process_time() - start
        return done


def searched(problem, algorithm, budget, seed):
    """A run as data: the front, and what it took. `own` is the processor time of all but the evaluations."""
    runner = TimedRunner()
    evaluator = algorithm.evaluator
    evaluator.runner = runner
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of runs that end early; their evaluations say so
        result = minimize(problem, algorithm, ("n_evals", budget), seed=seed, copy_algorithm=False)
    seconds = time.process_time() - start
    return {
        "front": np.atleast_2d(result.F).tolist(),
        "real": evaluator.real,
        "skipped": evaluator.skipped,
        "images": int(evaluator.images),
        "screened": getattr(result.algorithm, "screened", 0),
        "seconds": seconds,
        "own": seconds - runner.seconds,
    }


def table(title, problem_of, instances, runs):
    """Print what is missing to the best front of all runs of an instance, × 1e-4, and return it, a row for each form.

    :param runs: by form and instance, what `searched` returned. Forms of which a run is missing are left out.
    """
    runs = complete(runs)
    if not runs:
        return []
    hv = Hypervolume(ref_point=np.ones(2))
    problems = {i: problem_of(i) for i in instances}
    best = {
        i: hv.do(np.vstack([problems[i].normalize(np.array(run["front"])) for (_, at), run in runs.items() if at == i]))
        for i in instances
    }
    forms = list(dict.fromkeys(form for form, _ in runs))
    gaps = {
        form: np.array(
            [1e4 * (best[i] - hv.do(problems[i].normalize(np.array(runs[form, i]["front"])))) for i in instances]
        )
        for form in forms
    }
    baselines = [gaps[form] for form in forms if form.startswith("NSGA-II")]
    least = np.min(baselines, axis=0) if baselines else None
    print(f"\n{title}, {len(instances)} instances; hypervolume missing to the best front of all runs together, × 1e-4")
    print(
        f"{'algorithm':26}{'median':>8}{'worst':>8}{'better / not worse than the better NSGA-II':>44}{'real':>8}"
        f"{'skipped':>9}{'screened':>10}{'own ms':>8}{'per request':>12}"
    )
    rows = []
    for form in forms:
        values = gaps[form]
        names = ("real", "skipped", "screened", "own", "images")
        real, skipped, screened, own, images = np.median([[runs[form, i][n] for i in instances] for n in names], axis=1)
        row = {"form": form, "median": np.median(values), "worst": values.max(), "instances": len(instances)}
        against = ""
        if least is not None:
            row |= {"better": int(np.sum(values < least - 1e-6)), "not_worse": int(np.sum(values <= least + 1e-6))}
            against = f"{row['better']} / {row['not_worse']}"
        volumes = [hv.do(problems[i].normalize(np.array(runs[form, i]["front"]))) for i in instances]
        row |= {"hypervolume": np.median(volumes), "images": int(images)}
        rows.append(row | {"skipped": skipped, "screened": screened})
        print(
            f"{form:26}{np.median(values):8.1f}{values.max():8.1f}{against:>44}{real:8,.0f}{skipped:9,.0f}{screened:10,.0f}"
            f"{1e3 * own / real:8.2f}{1e3 * own / (real + skipped):12.2f}  hypervolumes {np.round(volumes, 4).tolist()}"
        )
    print(flush=True)
    return rows


def stitching(arguments):
    results = Results(arguments.results, arguments.only_kept)
    instances = range(arguments.first_instance, arguments.first_instance + arguments.instances)
    forms = arguments.forms or [form for form in FORMS if not form.endswith("in full")]  # nothing stops early here
    rows = []
    for budget in arguments.budgets:
        chosen = [form for form in forms if budget <= 4_000 or form in LONG]
        runs = {}
        for form in chosen:
            for i in instances:
                name = f"two chains of 50, instance {i}, {form}, {budget}"
                runs[form, i] = results(name, TwoChains(50, seed=i), FORMS[form], budget, i)
            print(f"  {form}, {budget:,} evaluations", flush=True)
        title = f"Two chains of 50 layers, {budget:,} evaluations"
        rows += [row | {"budget": budget} for row in table(title, lambda i: TwoChains(50, seed=i), instances, runs)]
    record(
        "search-stitching",
        rows,
        by=("form", "budget"),
        noise={"hypervolume": 0.005},
        instances=[instances[0], instances[-1]],
    )


def pending(arguments):
    """The quality of AsyncNSGA2 by the number of evaluations that are pending."""
    results = Results(arguments.results, arguments.only_kept)
    instances = range(arguments.first_instance, arguments.first_instance + arguments.instances)
    rows = []
    for budget in arguments.budgets:
        runs = {}
        for n in (1, 64, 128, 1_000):
            for i in instances:
                name = f"two chains of 50, instance {i}, async NSGA-II, {n} pending, {budget}"
                make = partial(AsyncNSGA2, n_pending=n)
                runs[f"{n:,} pending", i] = results(name, TwoChains(50, seed=i), make, budget, i)
        title = f"AsyncNSGA2, two chains of 50 layers, {budget:,} evaluations"
        rows += [row | {"budget": budget} for row in table(title, lambda i: TwoChains(50, seed=i), instances, runs)]
    record(
        "search-pending",
        rows,
        by=("form", "budget"),
        noise={"hypervolume": 0.005},
        instances=[instances[0], instances[-1]],
    )


def ready_made(arguments):
    """The same on a ready-made problem, whose instances are seeds."""
    from pymoo_stitch import get_problem

    results = Results(arguments.results, arguments.only_kept)
    options = dict(option.split("=", 1) for option in arguments.options)
    options = {name: int(value) if value.isdecimal() else value for name, value in options.items()}
    problem = get_problem(arguments.problem, **options)
    instances, rows = seeds(arguments), []
    for budget in arguments.budgets:
        runs = {}
        for form in arguments.forms or USUAL:
            for i in instances:
                name = f"{arguments.problem} {' '.join(arguments.options)}, seed {i}, {form}, {budget}"
                runs[form, i] = results(name, problem, FORMS[form], budget, i)
            print(f"  {form}, {budget:,} evaluations", flush=True)
        title = f"{arguments.problem}, {budget:,} evaluations"
        rows += [row | {"budget": budget} for row in table(title, lambda _: problem, instances, runs)]
    record(
        f"search-{arguments.problem}",
        rows,
        by=("form", "budget"),
        noise={"hypervolume": 0.01},
        seeds=[instances[0], instances[-1]],
    )


def first(arguments):
    """Whether it serves a search to begin with the references and networks with one stitch."""
    from pymoo_stitch import StitchProblem, get_problem

    class FromOneStitch(StitchProblem):
        @property
        def sampling(self):
            return Given(np.concatenate([list(self.space.references.values()), self.space.one_stitch()]))

    results, usual = Results(arguments.results, arguments.only_kept), get_problem(arguments.problem)
    problems = {"usual": usual, "one stitch": FromOneStitch(usual.space, usual.task)}
    instances, rows = seeds(arguments), []
    for budget in arguments.budgets:
        runs = {}
        for form in arguments.forms or ("async NSGA-II", "LK-GOMEA", "NSGA-II, n = 50"):
            for begins, problem in problems.items():
                for i in instances:
                    name = f"{arguments.problem} from {begins}, seed {i}, {form}, {budget}"
                    runs[f"{form}, {begins}", i] = results(name, problem, FORMS[form], budget, i)
        title = f"{arguments.problem}, {budget:,} evaluations"
        rows += [row | {"budget": budget} for row in table(title, lambda _: usual, instances, runs)]
    record(
        "search-first", rows, by=("form", "budget"), noise={"hypervolume": 0.01}, seeds=[instances[0], instances[-1]]
    )


class Given(Sampling):
    """So many of these genotypes, drawn at random; all of them before one comes again."""

    def __init__(self, X):
        super().__init__()
        self.X = X

    def _do(self, problem, n_samples, *args, random_state=None, **kwargs):
        return self.X[random_state.permutation(len(self.X))[np.arange(n_samples) % len(self.X)]]


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
    rows = []
    for make, n in ((GOMEA, 512), (LKGOMEA, 512), (AsyncGA, 256)):
        runner = SerialRunner()
        start = time.perf_counter()
        algorithm = make(pop_size=n, runner=runner).setup(problem, termination=("n_evals", 60_000), seed=1)
        algorithm.run()
        own = time.perf_counter() - start - runner.busy
        rows.append({"algorithm": make.__name__, "n": n, "own_ms": 1e3 * own / 60_000})
        print(
            f"{make.__name__}, n = {n}, 455 variables: own time {1e3 * own / 60_000:.3f} ms per evaluation", flush=True
        )
    record("search-speed", rows)


def workers(arguments):
    """Own time per evaluation with a model, and what that leaves of many workers' time, on a simulated clock; there,
    too, of workers whose evaluations stop early, those of digits."""
    from pymoo_stitch import get_problem

    rows = []
    for depth in (69, 227):
        problem = TwoChains(depth, seed=0)
        for make in (AsyncNSGA2, LKGOMEA, AsyncGA):
            run = searched(problem, make(), 1_500, 1)
            own = run["own"] / run["real"]
            per_request = run["own"] / (run["real"] + run["skipped"])
            said = (
                f"{make.__name__}, {problem.n_var} variables: own time {1e3 * own:.2f} "
                f"ms per evaluation, {1e3 * per_request:.2f} per request"
            )
            row = {
                "algorithm": make.__name__,
                "variables": problem.n_var,
                "own_ms": 1e3 * own,
                "request_ms": 1e3 * per_request,
            }
            if make is AsyncNSGA2:
                for n in (90, 1_000):
                    algorithm = AsyncNSGA2(screen=None, runner=SimulatedRunner(n, 4.0, overhead=own))
                    minimize(problem, algorithm, ("n_evals", 20 * n), seed=1, copy_algorithm=False)
                    row[f"utilisation_{n}"] = algorithm.runner.utilisation
                    said += f"; utilisation of {n:,} workers at 4 s: {algorithm.runner.utilisation:.3f}"
            rows.append(row)
            print(said, flush=True)
    own = max(row["own_ms"] for row in rows if row["algorithm"] == "AsyncNSGA2") / 1e3
    problem, stopping = get_problem("digits"), []
    for n in (90, 1_000):
        algorithm = AsyncNSGA2(runner=SimulatedRunner(n, 4.0, overhead=own))
        minimize(problem, algorithm, ("n_evals", 20 * n), seed=1, copy_algorithm=False)
        images = algorithm.evaluator.images / algorithm.evaluator.real / len(problem.task[problem.split])
        stopping.append({"workers": n, "own_ms": 1e3 * own, "images": images})
        stopping[-1]["utilisation"] = algorithm.runner.utilisation
        print(f"digits, {n:,} workers, evaluations that stop: {stopping[-1]}", flush=True)
    record("search-workers-stopping", stopping, by=("workers",), noise={"utilisation": 0.1}, evaluations_each=20)
    record(
        "search-workers",
        rows,
        by=("algorithm", "variables"),
        noise={"utilisation_90": 0.03, "utilisation_1000": 0.05},
        evaluations=1_500,
    )


PARTS = {
    "fronts": fronts,
    "clock": clock,
    "stitching": stitching,
    "pending": pending,
    "speed": speed,
    "workers": workers,
}
ON_DEMAND = {"ready-made": ready_made, "first": first}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=pathlib.Path, default=pathlib.Path("../shared/data"), help="default: ../shared/data"
    )
    parser.add_argument("--only", choices=PARTS | ON_DEMAND, help="one part")
    parser.add_argument("--seeds", type=int, default=11, help="runs of each (default: 11)")
    parser.add_argument("--first-seed", type=int, default=0, help="of those runs (default: 0)")
    parser.add_argument("--instances", type=int, default=10, help="synthetic stitching spaces (default: 10)")
    parser.add_argument("--first-instance", type=int, default=1_000, help="0 to 19 are for tuning (default: 1000)")
    parser.add_argument(
        "--budgets", type=int, nargs="+", default=[500, 1_000, 2_000, 4_000], help="for stitching and ready-made"
    )
    parser.add_argument("--forms", nargs="+", choices=FORMS, help="of algorithms (default: all)")
    parser.add_argument("--problem", default="digits", help="for ready-made (default: digits)")
    parser.add_argument("--options", nargs="*", default=[], metavar="NAME=VALUE", help="of the ready-made problem")
    parser.add_argument(
        "--results",
        type=pathlib.Path,
        default=pathlib.Path("search.json"),
        help="runs are kept there (default: search.json)",
    )
    parser.add_argument("--only-kept", action="store_true", help="run nothing, make tables of what is in --results")
    arguments = parser.parse_args()
    for name, part in (PARTS | ON_DEMAND).items():
        if arguments.only == name or (arguments.only is None and name in PARTS):
            start = time.perf_counter()
            part(arguments)
            print(f"[{name}: {time.perf_counter() - start:.0f} s]\n", flush=True)
