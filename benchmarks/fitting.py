"""How good stitches are, alone and after one another: least squares as it is, with variance restored (the default), Adam,
and what finetuning adds.

    python benchmarks/fitting.py --data ../shared/data
    python benchmarks/fitting.py --data ../shared/data --only imagenet

`cifar10` is ResNet-20 and ResNet-56 trained on CIFAR-10, `imagenet` MobileNetV2 and EfficientNet-Lite0 with 200 images to fit
on, `memory` the time and the peak memory of ResNet-50 and ResNeXt-50 with random weights, in a process of its own. The folder
holds `networks.py` with `load(name, normalized=False)`, `NETWORKS`, `cifar10(split)` and `imagenet()`. Subnetworks with k
stitches are drawn at random with a fixed seed, their outputs uniform over both networks and the ensemble, and are the same for
all methods.
"""

import argparse
import pathlib
import resource
import subprocess
import sys
import time

import numpy as np
import torch
from trained import cifar10_pair, imagenet_pair

from pymoo_stitch import StitchProblem, Supernet, Task

torch.set_num_threads(1)
SEED = 2024


def with_stitches(supernet, k, count, rng):
    """Random genotypes with k active stitches."""
    links, references = len(supernet.links), list(supernet.references.values())
    found = []
    while len(found) < count:
        x = rng.random(supernet.n_var) < rng.uniform(0.6, 6) * k / links
        x[links:] = references[rng.integers(len(references))][links:]
        if supernet.subnetwork(x).n_stitches == k:
            found.append(x)
    return found


def copied(supernet):
    """The same supernet, so that one can go on with its stitches and keep them."""
    return Supernet(supernet.networks, supernet.links, stitches=supernet.stitches.state_dict())


def fit_cifar10(networks, images, samples, finetuned):
    """The supernets to compare by how their stitches were fitted, with the seconds it took."""
    few, options = images[:2_500], {"batch_size": 100, "positions": 64}
    methods = {
        "least squares": lambda s: s.fit(few, ridge=1e-6, restore=0, **options),
        "default": lambda s: s.fit(few, **options),
        "adam": lambda s: s.fit(images, "adam", samples=samples),
    }
    for name, method in methods.items():
        supernet = Supernet.build(networks)
        yield name, supernet, method(supernet)
        if name == "default":
            tuned = copied(supernet)
            yield f"default, finetuned on {finetuned:,}", tuned, tuned.finetune(images, samples=finetuned)


def fit_imagenet(networks, images):
    methods = {
        "least squares": lambda s: s.fit(images, ridge=1e-6, restore=0, positions=16),
        "default": lambda s: s.fit(images),
    }
    for name, method in methods.items():
        supernet = Supernet.build(networks)
        yield name, supernet, method(supernet)


def compare(fitted, validation, labels, numbers, count):
    """A table of mean accuracies, and each method against the first, subnetwork by subnetwork."""
    genotypes, found = None, {}
    for name, supernet, report in fitted:
        print(f"\n{name}\n{report}", flush=True)
        if genotypes is None:
            rng = np.random.default_rng(SEED)
            genotypes = {k: with_stitches(supernet, k, count, rng) for k in numbers}
            references = StitchProblem(supernet, Task(validation=(validation, labels))).references()
            for reference, f in zip(supernet.references, references.get("F"), strict=True):
                print(f"reference {reference}: {1 - f[1]:.3f}")
        problem = StitchProblem(supernet, Task(validation=(validation, labels)))
        found[name] = (
            report.seconds,
            {k: 1 - problem.reevaluate(np.array(X), "validation").get("F")[:, 1] for k, X in genotypes.items()},
        )
        print("accuracy", {k: round(float(values.mean()), 4) for k, values in found[name][1].items()}, flush=True)
    print(
        f"\nMean accuracy of {count} subnetworks with k stitches, {len(labels)} images, and the mean difference from the first"
    )
    print("method with its 95 % interval, subnetwork by subnetwork; time of fitting over the first's\n")
    first_seconds, first = next(iter(found.values()))
    print("| | time | " + " | ".join(f"k = {k}" for k in numbers) + " |\n|" + "---|" * (len(numbers) + 2))
    for name, (seconds, values) in found.items():
        cells = []
        for k in numbers:
            difference = values[k] - first[k]
            error = 1.96 * difference.std(ddof=1) / np.sqrt(count)
            beside = "" if values is first else f" ({difference.mean():+.3f} ± {error:.3f})"
            cells.append(f"{values[k].mean():.3f}{beside}")
        print(f"| {name} | {seconds / first_seconds:.2f} | " + " | ".join(cells) + " |")


def peak_memory(method):
    """Fit ResNet-50 and ResNeXt-50 at batch 32 and print time and peak memory of this process."""
    import timm

    torch.manual_seed(0)
    modules = [timm.create_model(name) for name in ("resnet50", "resnext50_32x4d")]
    supernet = Supernet.build(modules, torch.rand(1, 3, 224, 224))
    built = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    torch.manual_seed(1)
    start, spent = time.perf_counter(), time.process_time()
    options = {"samples": 32} if method == "adam" else {}
    supernet.fit(torch.rand(72, 3, 224, 224), method, batch_size=32, **options)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"resnet50 + resnext50_32x4d, batch 32, {method}: peak memory {peak:.1f} GB ({built:.1f} GB when built), "
        f"{time.perf_counter() - start:.0f} s ({time.process_time() - spent:.0f} s of CPU time)"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=pathlib.Path, default="../shared/data", help="folder with networks.py (default: ../shared/data)"
    )
    parser.add_argument("--only", choices=["cifar10", "imagenet", "memory"], help="one part of the benchmark")
    parser.add_argument("--samples", type=int, default=16_384, help="samples for Adam (default: 16384)")
    parser.add_argument("--measured", type=int, default=500, help="validation images (default: 500)")
    parser.add_argument("--count", type=int, help="subnetworks for each k (default: 40 for cifar10, 16 for imagenet)")
    parser.add_argument("--finetuned", type=int, default=8_192, help="samples for finetuning (default: 8192)")
    parser.add_argument("--memory-of", choices=["least-squares", "adam"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    only, measured = arguments.only, arguments.measured
    if arguments.memory_of:
        peak_memory(arguments.memory_of)
        sys.exit()
    if only in (None, "cifar10"):
        networks, images, validation, labels = cifar10_pair(arguments.data)
        fitted = fit_cifar10(networks, images, arguments.samples, arguments.finetuned)
        compare(fitted, validation[:measured], labels[:measured], (1, 3, 6, 10), arguments.count or 40)
    if only in (None, "imagenet"):
        networks, images, validation, labels = imagenet_pair(arguments.data)
        compare(
            fit_imagenet(networks, images), validation[:measured], labels[:measured], (1, 3, 6), arguments.count or 16
        )
    if only in (None, "memory"):
        for method in ("least-squares", "adam"):
            subprocess.run([sys.executable, __file__, "--memory-of", method], check=True)
