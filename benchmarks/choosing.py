"""What becomes, on images that nobody has chosen by, of a network that was chosen on selection images.

python benchmarks/choosing.py --only simulation
python benchmarks/choosing.py --only digits
python benchmarks/choosing.py --only cifar10 --data FOLDER --journals runs

`simulation`: thirty networks, each a little cheaper and a little worse than the last, compared with a reference on
2,000 selection images; the cheapest that passes a rule is chosen and compared again on 4,000 test images. `cifar10`:
searches of 300 evaluations of the CIFAR-10 pair, and what a report recommends after each. `digits`: what the demo
takes home, for ten seeds of the networks' training, after its searches of 1,000 evaluations.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from record import record

from pymoo_stitch import Cascade, DaskRunner, Report, compare, get_problem
from pymoo_stitch.algorithms import ALGORITHMS, AsyncNSGA2
from pymoo_stitch.cli.commands import to_take_home
from pymoo_stitch.report.points import TOLERANCE

RULES = {
    "not distinguishably worse (5 %)": lambda z, error: z > -1.96,
    "within a standard error": lambda z, error: z > -1,
    "at least as good on these images": lambda z, error: z >= 0,
    "ours: surely no more than 0.0025 worse": lambda z, error: (z - 1.96) * error >= -TOLERANCE,
}


def simulate(worst: float, best: float, rounds: int = 4_000) -> dict[str, tuple[float, float]]:
    """For each rule how often something is chosen, and how often that is worse than the reference on test by more than
    two standard errors. True differences from the reference go from `worst`, of the cheapest network, to `best`; any
    two networks disagree on a twentieth of the images, and half of the variance is common to all."""
    rng, disagreement, common = np.random.default_rng(0), 0.05, 0.5
    truth = np.linspace(worst, best, 30)
    measured = []
    for images in (2_000, 4_000):
        error = np.sqrt(disagreement / images)
        shared, own = rng.standard_normal((rounds, 1)), rng.standard_normal((rounds, len(truth)))
        measured.append((truth + error * (np.sqrt(common) * shared + np.sqrt(1 - common) * own), error))
    (selection, error), (test, test_error) = measured
    found = {}
    for name, rule in RULES.items():
        passes = rule(selection / error, error)
        chosen = test[np.arange(rounds), passes.argmax(1)] / test_error
        some = passes.any(1)
        found[name] = some.mean(), (chosen[some] < -2).mean() if some.any() else 0.0
    return found


def simulation() -> None:
    ranges = {"-0.030 to -0.003": (-0.03, -0.003), "-0.030 to 0": (-0.03, 0.0), "-0.030 to +0.005": (-0.03, 0.005)}
    print("| rule: chosen, and of these worse on test by two standard errors | " + " | ".join(ranges) + " |")
    print("|---" * (1 + len(ranges)) + "|")
    columns = [simulate(*ends) for ends in ranges.values()]
    rows = [
        {"rule": rule, "range": name, "chosen": column[rule][0], "worse": column[rule][1]}
        for rule in RULES
        for name, column in zip(ranges, columns, strict=True)
    ]
    record("choosing-simulation", rows, by=("rule", "range"), noise={"chosen": 0.1})
    for rule in RULES:
        print(f"| {rule} | " + " | ".join("{:.0%}, {:.0%}".format(*column[rule]) for column in columns) + " |")


def cifar10(data: Path, journals: Path, seeds: Sequence[int], budget: int) -> None:
    problem, rows = get_problem("cifar10", data=data), []
    with DaskRunner(n_workers=1) as runner:  # which evaluates in groups
        options = {"seeds": seeds, "folder": journals, "progress": True, "runner": runner}
        runs = compare(problem, {"async-NSGA-II": AsyncNSGA2}, ("n_evals", budget), **options)
    for run in runs:
        report = Report([run], problem)
        best, chosen = report.best_reference, report.recommended
        line = f"seed {run.seed}: {len(report.found)} found, best reference {best.name}; "
        row = {"seed": run.seed, "found": len(report.found), "reference": best.name, "recommended": None}
        rows.append(row)
        if chosen is None:
            print(f"{line}nothing recommended", flush=True)
            continue
        pair = chosen.against["test"][best.name].paired
        error = (pair.high - pair.low) / 2 / 1.96
        cost = chosen.F["test"][0] / best.F["test"][0]
        kind = "network" if not isinstance(chosen.network, Cascade) else "stitched" if chosen.stitches else "plain"
        row |= {"recommended": kind, "cost": cost, "difference": pair.difference, "errors": pair.difference / error}
        row["p_value"] = pair.p_value
        print(
            f"{line}{chosen.network!r} at {cost:.0%} of its cost: test {pair.difference:+.5f}, "
            f"{pair.difference / error:+.2f} standard errors, p = {pair.p_value:.2f}",
            flush=True,
        )
    record("choosing-cifar10", rows, by=("seed",), noise={"cost": 0.2}, evaluations=budget)


def digits(journals: Path, seeds: int, budget: int) -> None:
    """The demo asks for at most 40 % of the ensemble's cost."""
    algorithms = {name: ALGORITHMS[name] for name in ("async-NSGA-II", "NSGA-II")}
    rows = []
    for seed in range(seeds):
        problem = get_problem("digits", seed=seed)
        folder = journals / f"digits-{seed}"
        runs = compare(problem, algorithms, ("n_evals", budget), seeds=[1], folder=folder)
        report = Report(runs, problem, one_stitch=True)
        chosen, ensemble = to_take_home(report), report.references[-1]
        against, cost = chosen.against["test"][ensemble.name].paired, chosen.F["test"][0] / ensemble.F["test"][0]
        holds = cost <= 0.4 and against.difference >= -0.005 and against.verdict() != "worse than"
        rows.append({"seed": seed, "cost": cost, "difference": against.difference, "p_value": against.p_value})
        rows[-1]["holds"] = holds
        print(
            f"seed {seed}: {chosen.network!r}, test cost {cost:.1%}, "
            f"accuracy {against.difference:+.4f} (p = {against.p_value:.2f}): {'holds' if holds else 'does not hold'}",
            flush=True,
        )
    record("choosing-digits", rows, by=("seed",), noise={"cost": 0.2}, evaluations=budget)
    good = sum(row["holds"] for row in rows)
    print(f"{good} of {seeds}: at most 40 % of the ensemble's cost, at most 0.005 below it, not distinguishable")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["simulation", "digits", "cifar10"], help="one part (default: all)")
    parser.add_argument("--data", type=Path, help="the folder that the problem cifar10 takes")
    parser.add_argument("--journals", type=Path, default=Path("choosing"), help="where searches are kept (%(default)s)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5], help="of cifar10 (default: 1 to 5)")
    parser.add_argument("--budget", type=int, default=300, help="evaluations of each (default: %(default)s)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.only in (None, "simulation"):
        simulation()
    if arguments.only in (None, "digits"):
        digits(arguments.journals, 10, 1_000)
    if arguments.only in (None, "cifar10"):
        if arguments.data is None:
            parser.error("cifar10 needs --data: `pymoo-stitch info cifar10` says what the folder holds.")
        cifar10(arguments.data, arguments.journals, arguments.seeds, arguments.budget)
