"""What a person gets: searches of trained networks, chosen on images that no search has seen, reported on others.

    python benchmarks/evidence.py --data ../shared/data --only cifar10-500
    python benchmarks/evidence.py --data ../shared/data --tables

Each part is one problem with its searches. Journals are kept in `--journals`; what is there is not run again, and a search that
was cut goes on. `--tables` runs no search: it evaluates what the journals found on selection and test images and prints the
tables.
"""

import argparse
import pathlib
from collections.abc import Callable
from dataclasses import dataclass

import torch

from pymoo_stitch import StitchProblem, compare, get_problem
from pymoo_stitch.algorithms import LKGOMEA, AsyncNSGA2, nsga2

torch.set_num_threads(1)
FORMS = {"async-NSGA-II": AsyncNSGA2, "LK-GOMEA": LKGOMEA, "NSGA-II": lambda: nsga2(pop_size=50)}


@dataclass(frozen=True)
class Part:
    """A problem, and the searches of it.

    :param problem: made from the folder of networks and images.
    """

    problem: Callable[[pathlib.Path], StitchProblem]
    forms: tuple[str, ...]
    budget: int
    seeds: tuple[int, ...]


def cifar10(images: int) -> Callable[[pathlib.Path], StitchProblem]:
    return lambda data: get_problem("cifar10", data=data / "cifar10", images=images)


PARTS = {
    "cifar10-500": Part(cifar10(500), tuple(FORMS), 1_000, (1, 2, 3)),
    "cifar10": Part(cifar10(1_000), ("async-NSGA-II", "LK-GOMEA"), 1_000, (1, 2, 3)),
}


def search(name: str, part: Part, arguments: argparse.Namespace) -> None:
    problem, folder = part.problem(arguments.data), arguments.journals / name
    forms = {form: FORMS[form] for form in arguments.forms or part.forms}
    compare(problem, forms, ("n_evals", part.budget), seeds=arguments.seeds or part.seeds, folder=folder, progress=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, default=pathlib.Path("../shared/data"))
    parser.add_argument("--journals", type=pathlib.Path, default=pathlib.Path(__file__).parent / "journals")
    parser.add_argument("--only", choices=PARTS, help="one part (default: all)")
    parser.add_argument("--forms", nargs="+", choices=FORMS, help="some of the algorithms")
    parser.add_argument("--seeds", nargs="+", type=int, help="some of the seeds")
    arguments = parser.parse_args()
    for name in [arguments.only] if arguments.only else PARTS:
        search(name, PARTS[name], arguments)
