"""Chains of fragments of three networks trained on ImageNet, without training: their accuracy on a subset of the
classes beside the networks themselves and each network stitched to itself.

    python benchmarks/fragments.py --data ../shared/data

The folder holds `networks.py` with `load(name, normalized=False)`, `NETWORKS` and `imagenet()`. Stitches are fitted on
images without labels, chains are chosen on validation images, and what is printed is measured on test images that
neither has seen.
"""

import argparse
import pathlib
import time
from collections import Counter
from itertools import islice

import torch
from pymoo.optimize import minimize
from record import record
from trained import folder_module

from pymoo_stitch import ChainSpace, ClassMap, Evaluations, Network, Pool, StitchProblem, Task, search_chains
from pymoo_stitch.algorithms import nsga2

torch.set_num_threads(1)
NAMES = ("squeezenet1_1", "mobilenet_v2", "tf_efficientnet_lite0")


def images_of_classes(data, classes):
    """The images of those classes that have the most, in random order, and their classes."""
    images, labels = data.imagenet()
    counts = Counter(labels.tolist())
    chosen = sorted(sorted(counts, key=lambda label: (-counts[label], label))[:classes])
    kept = [i for i, label in enumerate(labels.tolist()) if label in set(chosen)]
    order = torch.tensor(kept)[torch.randperm(len(kept), generator=torch.Generator().manual_seed(0))]
    return images[order][:, :, 16:240, 16:240], torch.tensor([chosen.index(i) for i in labels[order].tolist()]), chosen


def main(data, classes, samples, validation, found, budget):
    images, labels, chosen = images_of_classes(data, classes)
    example = torch.rand(1, 3, 224, 224)
    networks = [
        Network.from_module(data.load(name, normalized=False), example, name=name, normalize=data.NETWORKS[name][2])
        for name in NAMES
    ]
    pool = Pool(networks, images[:samples])
    last = samples + validation
    task = Task(
        validation=(images[samples:last], labels[samples:last]),
        test=(images[last:], labels[last:]),
        head=ClassMap(chosen),
    )
    print(f"{pool}\n{task}, {classes} of 1,000 classes")

    rows = []

    def report(title, chains):
        values = {split: accuracies(problem, chains, task[split]) for split in ("validation", "test")}
        for chain, on_validation, on_test in zip(chains, *values.values(), strict=True):
            route = " ".join(f"{'→ ' * bool(link)}{name}" for name, link in route_of(chain))
            rows.append(
                {"what": title, "route": route, "cost": chain.cost, "validation": on_validation, "test": on_test}
            )
            print(
                f"{title}: {on_validation:.3f} on validation, {on_test:.3f} on test, {chain.cost:,} multiply-adds; "
                f"{route}"
            )

    start = time.perf_counter()
    lists = {
        name: [chain for chain, _ in islice(search_chains(pool, length=18, start=pool[name][0]), found)]
        for name in NAMES
    }
    published = [chain for chains in lists.values() for chain in chains]
    print(f"{len(published)} chains by the published search in {time.perf_counter() - start:.0f} s")
    space = ChainSpace(pool, include=published)
    problem = StitchProblem(space, task, batch_size=20)
    report("network", [pool.chain(pool[name]) for name in NAMES])
    report("network stitched to itself", [pool.self_stitched(name) for name in NAMES])
    stitched = [chain for chain in published if chain.n_stitches]
    on_validation = accuracies(problem, stitched, task["validation"])
    ranked = sorted(range(len(stitched)), key=lambda i: -on_validation[i])
    report("published search, best on validation", [stitched[i] for i in ranked[:3]])
    mixed = [i for i in ranked if len({fragment.network.name for fragment in stitched[i].fragments}) > 1]
    report("the same, of several networks", [stitched[i] for i in mixed[:3]])
    start = time.perf_counter()
    result = minimize(problem, nsga2(pop_size=40), ("n_evals", budget), seed=1, evaluator=Evaluations(progress=True))
    print(f"{budget} evaluations of NSGA-II in {space!r} in {time.perf_counter() - start:.0f} s")
    front = {problem.key(x): x for x in result.X}
    report("front of NSGA-II", sorted((problem.subnetwork(x) for x in front.values()), key=lambda chain: chain.cost))
    settings = {"classes": classes, "samples": samples, "test_images": len(task["test"]), "budget": budget}
    record("fragments", rows, by=("what", "route"), noise={"test": 0.05}, **settings)


def accuracies(problem, chains, split):
    outcomes = problem.engine.evaluate(chains, split, ["accuracy"], heads=[problem.task.head] * len(chains))
    return [outcome.metrics["accuracy"] for outcome in outcomes]


def route_of(chain):
    """Stretches of one network, and whether a stitch leads to each."""
    parts = []
    for fragment, link in zip(chain.fragments, chain.joins, strict=True):
        if parts and link is None:
            parts[-1][0][-1] = fragment.number
        else:
            parts.append(([fragment.network.name, fragment.number, fragment.number], link))
    return [(f"{name}[{first}–{last}]", link) for (name, first, last), link in parts]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, required=True, help="the folder that holds networks.py")
    parser.add_argument("--classes", type=int, default=100, help="how many classes (default: %(default)s)")
    parser.add_argument("--samples", type=int, default=96, help="images to fit on (default: %(default)s)")
    parser.add_argument("--validation", type=int, default=100, help="images to choose on (default: %(default)s)")
    parser.add_argument("--found", type=int, default=20, help="chains of each network's search (default: %(default)s)")
    parser.add_argument("--budget", type=int, default=250, help="evaluations of NSGA-II (default: %(default)s)")
    arguments = parser.parse_args()
    main(folder_module(arguments.data), *list(vars(arguments).values())[1:])
