"""What evaluating subnetworks costs: alone, in groups, and in a search.

    python benchmarks/engine.py --data ../shared/data
    python benchmarks/engine.py --data ../shared/data --only cifar10
    python benchmarks/engine.py --data ../shared/data --only stopping --evaluations 300
    python benchmarks/engine.py --data ../shared/data --only held --evaluations 300 --seeds 3

The folder holds `networks.py` with `load(name, normalized=False)`, `NETWORKS` and `cifar10(split)`. `cifar10` is
ResNet-20 and ResNet-56 trained on CIFAR-10 and an NSGA-II on them (7 minutes), `imagenet` ResNet-50 and ResNeXt-50
with random weights (20 minutes), `memory` the memory of groups of these (5 minutes). `stopping` is a search on the
CIFAR-10 pair whose evaluations stop when they can no longer matter, on 1,500 images, and a quarter of its groups in
full (20 minutes for 1,000 evaluations); `held` what searches with and without stopping find for the same computation
on images that nobody searched or chose on (6 minutes a seed). All times are on one thread, and what is compared is
measured in one run.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile
import time
import warnings

import numpy as np
import timm
import torch
from pymoo.core.callback import Callback
from pymoo.indicators.hv import Hypervolume
from pymoo.optimize import minimize
from record import record
from tqdm import tqdm
from trained import cifar10_problem

from pymoo_stitch import DaskRunner, Evaluations, Run, StitchProblem, Supernet, Task, get_problem
from pymoo_stitch.algorithms import AsyncNSGA2, nsga2

torch.set_num_threads(1)


def imagenet_problem(images, batch_size, memory=None):
    torch.manual_seed(0)
    modules = [timm.create_model(name) for name in ("resnet50", "resnext50_32x4d")]
    supernet = Supernet.build(modules, torch.rand(1, 3, 224, 224), normalize="timm")
    data = torch.randint(256, (images, 3, 224, 224), dtype=torch.uint8), torch.randint(1_000, (images,))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that nothing was fitted
        return StitchProblem(supernet, Task(validation=data), batch_size=batch_size, memory=memory)


# ------------------------------------------------------------------------------------------------------------ measuring


def initial(problem, n, seed=1):
    return problem.sampling.do(problem, n, random_state=np.random.default_rng(seed)).get("X")


class Recorded(Callback):
    """The genotypes of a search in the order in which they were requested. Of each generation, `alone` are evaluated
    one at a time as well, as they would be without memo and groups: the machine is as busy as it is for the search
    itself."""

    def __init__(self, alone=0):
        super().__init__()
        self.found, self.alone, self.times, self.spent = [], alone, [], 0.0

    def notify(self, algorithm):
        start = time.perf_counter()
        X = algorithm.off.get("X")
        self.found += list(X)
        self.times += [evaluated(algorithm.problem, x[None])[0] for x in X[: self.alone]]
        self.spent += time.perf_counter() - start


def distinct(problem, X):
    """Each subnetwork once, where it comes first."""
    return np.array(list({problem.key(x): x for x in reversed(X)}.values())[::-1])


def evaluated(problem, X):
    """Seconds for evaluating these together, and their errors."""
    start = time.perf_counter()
    F = problem.evaluate(X)
    return time.perf_counter() - start, F[:, 1]


def alone(problem, X):
    """Evaluating each over the plain forward of its module, in turns."""
    images = problem.engine._prepared(next(problem.task["validation"].batches(10**6))[0]).contiguous()
    times = {"engine": 0.0, "module": 0.0}
    for x in tqdm(X, desc="alone", leave=False):
        module = problem.subnetwork(x).module()
        problem.evaluate(x)  # weights are folded and laid out when they are first used
        times["engine"] += evaluated(problem, x[None])[0]
        start = time.perf_counter()
        with torch.inference_mode():
            for batch in images.split(problem.engine.batch_size):
                module(batch)
        times["module"] += time.perf_counter() - start
    ratio = times["engine"] / times["module"]
    print(f"  one at a time over the plain forward as a module ({len(X)} subnetworks): {ratio:.3f}")
    return ratio


def grouped(problem, name, X):
    """One at a time against together, before and behind: multiply-adds and time."""
    together, F = evaluated(problem, X)
    single = [evaluated(problem, x[None]) for x in tqdm(X, desc=name, leave=False)]
    again, _ = evaluated(problem, X)
    assert [errors[0] for _, errors in single] == F.tolist(), "grouping has changed a result"
    subnetworks = [problem.subnetwork(x) for x in X]
    plans = list(problem.engine.plans(subnetworks))
    cost = sum(s.cost for s in subnetworks) / sum(plan.cost for plan in plans)
    seconds = sum(seconds for seconds, _ in single) / ((together + again) / 2)
    different = len({subnetwork.key for subnetwork in subnetworks})
    memory = max(plan.memory for plan in plans) / 2**20
    print(
        f"  {name}: {different} subnetworks, {cost:.2f}× fewer multiply-adds, "
        f"{seconds:.2f}× less time, in {len(plans)} "
        f"group{'s' * (len(plans) > 1)}, {memory:,.0f} MiB at most"
    )
    return cost, seconds


def saved(problem, X):
    """How many times fewer multiply-adds a group takes than its members alone."""
    subnetworks = [problem.subnetwork(x) for x in X]
    return sum(s.cost for s in subnetworks) / sum(plan.cost for plan in problem.engine.plans(subnetworks))


def windows(problem, name, X, size):
    """How many times fewer multiply-adds groups of consecutive ones take: the least, the median and the most."""
    ratios = [saved(problem, X[at : at + size]) for at in range(0, len(X) - size + 1, size // 2)]
    least, median, most = np.quantile(ratios, [0, 0.5, 1])
    print(f"  multiply-adds saved by groups of {size} consecutive {name}: {least:.2f}, {median:.2f}, {most:.2f}")
    return {f"{name}_least": least, f"{name}_median": median, f"{name}_most": most}


# ---------------------------------------------------------------------------------------------------------------- parts


def cifar10(folder, requested=2_000, pop_size=64):
    problem = cifar10_problem(folder, 32)
    print(f"CIFAR-10, {problem.space!r}, {problem.engine.batch_size} images", flush=True)
    row = {"pair": "ResNet-20 + ResNet-56, CIFAR-10, 32 images", "alone": alone(problem, initial(problem, 24))}
    row["first_cost"], row["first_time"] = grouped(problem, "random initial population", initial(problem, 64))
    start = time.perf_counter()
    result = minimize(
        problem, nsga2(pop_size=pop_size), ("n_gen", requested // pop_size + 1), seed=1, callback=Recorded(alone=6)
    )
    evaluations, recorded = result.algorithm.evaluator, result.algorithm.callback
    seconds = time.perf_counter() - start - recorded.spent
    X = np.array(recorded.found)
    real = distinct(problem, X)
    assert len(real) == evaluations.real
    print(
        f"  NSGA-II (n = {pop_size}): {evaluations.skipped / evaluations.requested:.1%} of "
        f"{evaluations.requested:,} requested evaluations are answered by the memo"
    )
    for name, genotypes in (("requests", X), ("evaluations", real)):
        row |= windows(problem, name, genotypes, 64)
        found = [
            grouped(problem, f"64 of NSGA-II from number {first} of the {name} on", genotypes[first : first + 64])
            for first in range(64, len(genotypes) - 63, len(genotypes) // 3)
        ]
        row[f"{name}_cost"], row[f"{name}_time"] = np.median(found, axis=0)
    per_request, single = seconds / evaluations.requested, np.mean(recorded.times)
    print(
        f"  milliseconds per requested evaluation: {1e3 * per_request:.0f} "
        f"in the search, {1e3 * single:.0f} without memo and "
        f"groups ({len(recorded.times)} of them): {single / per_request:.2f}× less"
    )
    row |= {"memo": evaluations.skipped / evaluations.requested, "request_ms": 1e3 * per_request}
    row["request_alone_ms"] = 1e3 * single
    record("engine-cifar10", [row], noise=GROUPS_NOISE, requests=len(X), pop_size=pop_size)


GROUPS_NOISE = {"alone": 0.15, "first_cost": 0.03, "first_time": 0.15, "evaluations_median": 0.05}


def imagenet():
    problem = imagenet_problem(8, 8)
    print(f"ImageNet size, {problem.space!r}, {problem.engine.batch_size} images", flush=True)
    row = {"pair": "ResNet-50 + ResNeXt-50, random weights, 8 images", "alone": alone(problem, initial(problem, 8))}
    row["first_cost"], row["first_time"] = grouped(problem, "random initial population", initial(problem, 64))
    small = imagenet_problem(2, 2)
    result = minimize(small, nsga2(pop_size=64), ("n_evals", 320), seed=1, callback=Recorded())
    X = np.array(result.algorithm.callback.found)
    for name, genotypes in (("requests", X), ("evaluations", distinct(problem, X))):
        row |= windows(problem, name, genotypes, 64)
        row[f"{name}_cost"], row[f"{name}_time"] = grouped(problem, f"the last 64 {name}", genotypes[-64:])
    record("engine-imagenet", [row], noise=GROUPS_NOISE)


def stopping(folder, evaluations):
    """How many images a search takes whose evaluations stop, and how long these take over the same in full."""
    problem = get_problem("cifar10", data=folder / "cifar10", images=1_500)
    print(f"CIFAR-10, {problem.task}, {evaluations} evaluations of async-NSGA-II, groups of 8, one worker", flush=True)
    with tempfile.TemporaryDirectory() as folder, DaskRunner(n_workers=1) as runner:
        journal = pathlib.Path(folder) / "run.sqlite"
        minimize(
            problem,
            AsyncNSGA2(),
            ("n_evals", evaluations),
            seed=1,
            evaluator=Evaluations(runner=runner, journal=journal),
        )
        run = Run.read(journal)
    images = run.images / len(problem.task["validation"])
    is_first = np.arange(len(run)) < 64  # the first population is evaluated in full
    masks = {"first": is_first, "others_in_full": ~is_first & ~run.is_bounded, "stopped": run.is_bounded}
    row = {"bounded": run.is_bounded.sum(), "hypervolume": run.hypervolume(problem.hv_ref_point)[-1]}
    row |= {"fraction": images.mean(), "fraction_beyond": images[~is_first].mean()}
    row |= {name: images[mask].sum() / len(run) for name, mask in masks.items()}
    print(f"  {row}", flush=True)
    seconds = np.diff(run.worked(), prepend=0)
    begun = np.array([result.result["begun"] for result in run.rows])
    groups = [np.flatnonzero(begun == time) for time in np.unique(begun)]
    beyond = [group for group in groups if not is_first[group].any()][::4]
    evaluated(problem, run.X[beyond[0]])  # weights are folded and laid out when they are first used
    in_full = sum(evaluated(problem, run.X[group])[0] for group in tqdm(beyond, desc="in full", leave=False))
    row["time_beyond"] = sum(seconds[group].sum() for group in beyond) / in_full
    first = is_first.mean()  # takes as long as in full
    row["time"] = first + (1 - first) * row["time_beyond"]
    print("  worker's time per evaluation over that in full: {time:.2f}, {time_beyond:.2f}".format_map(row))
    noise = {"fraction": 0.1, "time": 0.2}
    record("engine-stopping", [row], noise=noise, evaluations=evaluations, images=1_500, seed=1)


def held(folder, evaluations, seeds):
    """For the same computation: 500 images in full, or 1,500 with evaluations that stop. Hypervolume on test of what
    is chosen on selection."""
    problems = {n: get_problem("cifar10", data=folder / "cifar10", images=n) for n in (500, 1_500)}
    hv = Hypervolume(ref_point=np.ones(2))
    print(f"CIFAR-10, {evaluations} evaluations on 500 images, or as many images beyond them on 1,500", flush=True)
    rows = []
    for seed in seeds:
        for n, problem in problems.items():
            evaluator = Evaluations()
            algorithm = AsyncNSGA2(early_stopping=n == 1_500, evaluator=evaluator)
            algorithm.setup(problem, termination=("n_evals", 100_000), seed=seed)
            while algorithm.has_next() and evaluator.images < 500 * evaluations:
                algorithm.next()
            found = algorithm.archive.front(algorithm.slack).get("X")  # a result is as of the last full generation
            chosen = found[problem.reevaluate(found, "selection").get("on_front")]
            test = problem.reevaluate(chosen, "test").get("F")
            volume = hv.do(problems[500].normalize(test))
            rows.append({"seed": seed, "images": n, "evaluations": evaluator.real, "hypervolume": volume})
            print(
                f"  seed {seed}, {n} images: {evaluator}, {len(chosen)} chosen, hypervolume on test {volume:.4f}",
                flush=True,
            )
    record("engine-held", rows, by=("seed", "images"), noise={"hypervolume": 0.05}, evaluations=evaluations)


def memory(budget):
    """Peak memory of evaluating 16 subnetworks of the ImageNet pair in groups that may take so many MiB: groups, MiB
    planned and measured, as the last numbers printed."""
    problem = imagenet_problem(32, 32, budget * 2**20)
    X = initial(problem, 16)
    plans = list(problem.engine.plans([problem.subnetwork(x) for x in X]))  # also lays out the weights for itself
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # Linux: forget the peak so far
    before = resident("VmRSS")
    problem.evaluate(X)
    print(len(plans), max(p.memory for p in plans) / 2**20, resident("VmHWM") - before)


def memories():
    print("Memory of groups, 16 random subnetworks of the ImageNet pair, 32 images at a time", flush=True)
    rows = []
    for budget in (1_280, 2_048):
        command = [sys.executable, __file__, "--memory-of", str(budget)]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        groups, planned, grown = (float(number) for number in said.split()[-3:])
        rows.append({"allowed": budget, "groups": groups, "planned": planned, "grown": grown})
        print(
            f"  {budget:,} MiB allowed: {groups:.0f} groups, {planned:,.0f} planned, grew by {grown:,.0f}", flush=True
        )
    record("engine-memory", rows, by=("allowed",), noise={"planned": 0.05, "grown": 0.15})


def resident(field):
    """Memory of this process in MiB: VmRSS now, VmHWM at most."""
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) / 2**10


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=pathlib.Path, default="../shared/data", help="folder with networks.py (default: ../shared/data)"
    )
    parser.add_argument(
        "--only", choices=["cifar10", "imagenet", "memory", "stopping", "held"], help="one part of the benchmark"
    )
    parser.add_argument("--evaluations", type=int, default=300, help="of stopping and held (default: 300)")
    parser.add_argument("--seeds", type=int, default=3, help="of held (default: 3)")
    parser.add_argument("--memory-of", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.memory_of:
        memory(arguments.memory_of)
        raise SystemExit
    if arguments.only in (None, "cifar10"):
        cifar10(arguments.data)
    if arguments.only in (None, "imagenet"):
        imagenet()
    if arguments.only in (None, "memory"):
        memories()
    if arguments.only in (None, "stopping"):
        stopping(arguments.data, arguments.evaluations)
    if arguments.only in (None, "held"):
        held(arguments.data, arguments.evaluations, range(1, arguments.seeds + 1))
