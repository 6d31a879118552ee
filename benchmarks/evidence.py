"""What a person gets: trained networks are searched on validation images, chosen on selection images, reported on test
images.

    python benchmarks/evidence.py --data ../shared/data --only cifar10 --search
    python benchmarks/evidence.py --data ../shared/data --only cifar10
    python benchmarks/evidence.py --only compute --search

Each part is a problem with its searches. `--search` runs them; journals are kept in `--journals`, what is there is not
run again, and a search that was cut goes on. Then it says what they found on validation. Without `--search` the
journals are read, and what they found is evaluated on selection and test images, too.

`cifar10`: ResNet-20 and ResNet-56, 1,000 validation images. `cifar10-500`: the same on 500, where NSGA-II was run too.
`imagenet`: MobileNetV2 and EfficientNet-Lite0, two architectures with two normalisations; `three`: these and
SqueezeNet 1.1. Of the 600 images 150 each are for fitting (without labels), validation, selection and test. `compute`:
what it takes to have a front as good as NSGA-II's after 4,000 evaluations, on digits and on the synthetic stitching
space.
"""

import argparse
import pathlib
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from binary_problems import TwoChains
from pymoo.indicators.hv import Hypervolume
from pymoo.optimize import minimize
from record import record
from trained import folder_module, imported

from pymoo_stitch import DaskRunner, Evaluations, Report, Run, StitchProblem, Supernet, Task, compare, get_problem
from pymoo_stitch.algorithms import LKGOMEA, AsyncNSGA2, nsga2
from pymoo_stitch.report.points import Against, Measured
from pymoo_stitch.supernet import JointCosts
from pymoo_stitch.task.cascading import CascadeTable, Predictions, all_cascades, follow, joined, single_networks

torch.set_num_threads(1)
FORMS = {"async-NSGA-II": AsyncNSGA2, "LK-GOMEA": LKGOMEA, "NSGA-II": lambda: nsga2(pop_size=50)}
VOLUME = Hypervolume(ref_point=np.ones(2))
RESAMPLES = 1_000


@dataclass(frozen=True)
class Part:
    """A problem and the searches of it.

    :param problem: made from the folder of networks and images.
    """

    problem: Callable[[pathlib.Path], StitchProblem]
    forms: tuple[str, ...]
    budget: int
    seeds: tuple[int, ...]


def cifar10(images: int) -> Callable[[pathlib.Path], StitchProblem]:
    def make(folder: pathlib.Path) -> StitchProblem:
        problem = get_problem("cifar10", data=folder / "cifar10", images=images)
        problem.origin = None  # journals are committed, and are to name no folder of one's own
        return problem

    return make


def imagenet(*names: str) -> Callable[[pathlib.Path], StitchProblem]:
    def make(folder: pathlib.Path) -> StitchProblem:
        data = folder_module(folder)
        images, labels = data.imagenet()
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
        images, labels = images[order][:, :, 16:240, 16:240], labels[order]
        # SqueezeNet's tensors have sizes of their own.
        networks = imported(data, names, images[:1].float() / 255)
        supernet = Supernet.build(networks, resize="squeezenet1_1" in names)
        fitting, validation, selection, test = torch.arange(len(images)).split(150)
        supernet.fit(images[fitting], batch_size=20, positions=64)
        splits = {"validation": validation, "selection": selection, "test": test}
        task = Task(calibration=images[fitting], **{name: (images[at], labels[at]) for name, at in splits.items()})
        return StitchProblem(supernet, task)

    return make


PAIR = ("mobilenet_v2", "tf_efficientnet_lite0")
PARTS = {
    "cifar10-500": Part(cifar10(500), tuple(FORMS), 1_000, (1, 2, 3)),
    "cifar10": Part(cifar10(1_000), tuple(FORMS), 1_000, (1, 2, 3)),
    "cifar10-3000": Part(cifar10(1_000), ("async-NSGA-II",), 3_000, (1,)),
    "imagenet": Part(imagenet(*PAIR), ("async-NSGA-II",), 200, (1,)),
    "three": Part(imagenet(*PAIR, "squeezenet1_1"), ("async-NSGA-II",), 100, (1,)),
}


# --------------------------------------------------------------------------------------------------------------- tables


def tables(name: str, problem: StitchProblem, runs: list[Run]) -> None:
    """All tables of one part, as data and in words."""
    made = Report(runs, problem)
    print(made, flush=True)
    record(f"evidence-{name}", list(networks(made)), by=("what",), noise={"test": 0.02}, budget=runs[0].budget)
    record(f"evidence-{name}-adds", list(what_stitching_adds(made)), by=("with",), noise={"hypervolume": 0.02})


def volumes(problem: StitchProblem, runs: list[Run]):
    """What each search found on validation, and what it took."""
    for run in runs:
        yield {
            "algorithm": run.algorithm,
            "seed": run.seed,
            "evaluations": len(run),
            "hypervolume": VOLUME.do(problem.normalize(run.F[run.front])),
            "images": run.images.mean() / len(problem.task[problem.split]),
        }


def networks(made: Report):
    """The references, what the report shows, and three of its stitched networks with stitches retrained or norms
    recalibrated: each compared with the best reference on the same images."""
    best, metric = made.best_reference, made.problem.task.metric
    images = made.problem.task["calibration"].source
    stitched = sorted((point for point in made.found if point.stitches), key=lambda point: point.F[made.deciding][1])

    def row(what: str, kind: str, measured: Mapping[str, Measured], headline: str = "") -> dict:
        low, high = measured["test"].interval(metric)
        columns = {
            "what": what,
            "kind": kind,
            "headline": headline,
            "cost": measured["test"].cost / best.measured["test"].cost,
            **{split: measured[split].metrics[metric] for split in made.splits},
            "low": low,
            "high": high,
        }
        if what == best.name:
            return columns
        pair = Against.of(measured["test"].each[metric], best.measured["test"].each[metric], metric).paired
        differences = {"difference": pair.difference, "difference_low": pair.low, "difference_high": pair.high}
        return columns | differences | {"verdict": f"{pair.verdict()} {best.name}"}

    for point in made.references:
        yield row(point.name, "reference", point.measured, point.name)
    for point in made._shown():
        kind = ("stitched" if point.stitches else "plain") + (" cascade" if point.is_cascade else "")
        recommended, most_accurate = point is made.recommended, point in stitched[:1]
        headline = f"**{kind}, recommended**" if recommended else "most accurate stitched network" * most_accurate
        yield row(point.name, kind, point.measured, headline)
    for point in stitched[:3]:
        retrained, recalibrated = made.problem.subnetwork(point.network.x), made.problem.subnetwork(point.network.x)
        retrained.retrain(images)
        yield row(f"{point.name}, retrained", "stitched", made.measured(retrained))
        if recalibrated.norms_after_stitches():
            recalibrated.recalibrate(images)
            yield row(f"{point.name}, recalibrated", "stitched", made.measured(recalibrated))


def what_stitching_adds(made: Report):
    """The hypervolume on test of what is chosen on selection from more and more: of the networks and their ensemble,
    of plain cascades too, of stitched networks too, of stitched cascades too. Intervals are by a bootstrap over the
    test images."""
    problem, n = made.problem, len(made.references)
    known = {point.key for point in made.references}
    stages = [point.network for point in made.references]
    stages += [point.network for point in made.front if point.key not in known]
    costs = JointCosts(stages)
    on_selection, on_test = (problem.predictions(stages, split) for split in ("selection", "test"))
    alone = single_networks(on_selection, costs)
    plain = all_cascades(on_selection, costs, of=range(n))
    sets = {
        "networks and their ensemble": alone.take(np.arange(n)),
        "plain cascades": plain,
        "stitched networks": joined([plain, alone]),
        "stitched cascades": all_cascades(on_selection, costs),
    }
    rng = np.random.default_rng(0)
    weights = rng.multinomial(on_test.n_images, np.full(on_test.n_images, 1 / on_test.n_images), RESAMPLES)
    before = None
    for name, table in sets.items():
        table = table.take(table.front())
        right, cost = each_image(table, on_test, costs)
        found, *resampled = (volume(problem, right, cost, each) for each in [np.ones(on_test.n_images), *weights])
        low, high = np.quantile(resampled, (0.025, 0.975))
        row = {"with": name, "members": len(table), "hypervolume": found, "low": low, "high": high}
        if before is not None:
            least, most = np.quantile(np.array(resampled) - before[1], (0.025, 0.975))
            row |= {"gain": found - before[0], "gain_low": least, "gain_high": most}
        before = found, np.array(resampled)
        yield row


def each_image(table: CascadeTable, on_test: Predictions, costs: JointCosts) -> tuple[np.ndarray, np.ndarray]:
    """Whether each row is right for each image, and the multiply-adds it takes [rows, images]."""
    right, cost = [], []
    cumulative = costs.cumulative(table.stages)
    for row in range(len(table)):
        followed = follow(on_test, table.stages[row], table.thresholds[row], table.combine)
        right.append((followed.answers.argmax(1) == on_test.labels).numpy())
        cost.append(cumulative[row][followed.last])
    return np.array(right, dtype=float), np.array(cost, dtype=float)


def volume(problem: StitchProblem, right: np.ndarray, cost: np.ndarray, weights: np.ndarray) -> float:
    """The hypervolume if each image is there so many times."""
    share = weights / weights.sum()
    return VOLUME.do(problem.normalize(np.column_stack([cost @ share, 1 - right @ share])))


# -------------------------------------------------------------------------------------------------------------- compute


def compute(arguments: argparse.Namespace, budget: int = 4_000, seeds: int = 5) -> None:
    """Computation (evaluations × images × cost) until a front is as good as NSGA-II's after so many evaluations, over
    what NSGA-II took."""
    problems = {f"two chains of 50, instance {i}": TwoChains(50, seed=i) for i in range(1_000, 1_010)}
    problems |= {f"digits, seed {seed}": get_problem("digits") for seed in range(seeds)}
    rows = []
    for number, (name, problem) in enumerate(problems.items()):
        spent = {}
        for form, make in {"NSGA-II": lambda: nsga2(pop_size=100), "async-NSGA-II": AsyncNSGA2}.items():
            with tempfile.TemporaryDirectory() as folder:
                evaluations = Evaluations(journal=pathlib.Path(folder) / "run.sqlite")
                minimize(problem, make(), ("n_evals", budget), seed=number % 10, evaluator=evaluations)
                evaluations.close()
                run = Run.read(pathlib.Path(folder) / "run.sqlite")
            images = np.where(np.isnan(run.images), 1, run.images)  # the synthetic space has none
            spent[form] = np.cumsum(images * run.F[:, 0]), front_volumes(problem, run)
        (theirs, target), (ours, reached) = spent.values()
        there = np.flatnonzero(reached >= target[-1] - 1e-9)
        at = there[0] if len(there) else None
        rows.append(
            {"problem": name, "evaluations": None if at is None else int(at + 1)}
            | {"share": None if at is None else ours[at] / theirs[-1]}
        )
        print(rows[-1], flush=True)
    record("evidence-compute", rows, by=("problem",), budget=budget)


def front_volumes(problem, run: Run) -> np.ndarray:
    """The hypervolume after each evaluation."""
    best, found, volumes = 0.0, [], []
    for f, sound in zip(problem.normalize(run.F), run.is_sound, strict=True):
        if sound:
            found.append(f)
            best = max(best, VOLUME.do(np.array(found))) if (f < 1).all() else best
        volumes.append(best)
    return np.array(volumes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, default=pathlib.Path("../shared/data"))
    parser.add_argument("--journals", type=pathlib.Path, default=pathlib.Path(__file__).parent / "journals")
    parser.add_argument("--only", choices=[*PARTS, "compute"], help="one part (default: all)")
    parser.add_argument("--search", action="store_true", help="run searches, and say what they found on validation")
    parser.add_argument("--forms", nargs="+", choices=FORMS, help="some of the algorithms")
    parser.add_argument("--seeds", nargs="+", type=int, help="some of the seeds")
    arguments = parser.parse_args()
    for name, part in PARTS.items():
        if arguments.only not in (None, name):
            continue
        problem, folder = part.problem(arguments.data), arguments.journals / name
        if arguments.search:
            options = {"seeds": arguments.seeds or part.seeds, "folder": folder, "progress": True}
            algorithms = {form: FORMS[form] for form in arguments.forms or part.forms}
            with DaskRunner(n_workers=1) as runner:  # which evaluates in groups
                compare(problem, algorithms, ("n_evals", part.budget), runner=runner, **options)
        runs = [Run.read(path) for path in sorted(folder.glob("*.sqlite"))]
        runs = [run for run in runs if len(run) >= part.budget]  # others are still searching, or were cut
        if not runs:
            print(f"No search of {name} is complete in {folder}: --search runs them.", flush=True)
            continue
        found = list(volumes(problem, runs))
        print(*found, sep="\n", flush=True)
        record(f"evidence-{name}-search", found, by=("algorithm", "seed"), noise={"hypervolume": 0.02})
        if not arguments.search:
            tables(name, problem, runs)
    if arguments.only in (None, "compute"):
        compute(arguments)


if __name__ == "__main__":
    main()
