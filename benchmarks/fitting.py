"""Fitting a real pair: ResNet-20 and ResNet-56 trained on CIFAR-10, least squares against Adam, and what finetuning adds.

    python benchmarks/fitting.py --data ../shared/data
    python benchmarks/fitting.py --data ../shared/data --only memory

The folder holds `networks.py` with `load(name, normalized=False)`, `NETWORKS` and `cifar10(split)`. The memory is that of
ResNet-50 and ResNeXt-50 with random weights, in a process of its own.
"""

import argparse
import pathlib
import resource
import subprocess
import sys
import time

import numpy as np
import torch
from trained import cifar10_pair

from pymoo_stitch import Supernet

torch.set_num_threads(1)


def accuracy(subnetwork, images, labels):
    module = subnetwork.module()
    with torch.inference_mode():
        predictions = torch.cat([module(batch).argmax(1) for batch in images.split(100)])
    return (predictions == labels).float().mean().item()


def one_stitch(supernet):
    """A subnetwork for each link that uses it and no other."""
    for number, link in enumerate(supernet.links):
        x = supernet.references[link.target.network].copy()
        x[number] = True
        subnetwork = supernet.subnetwork(x)
        if subnetwork.n_stitches == 1:
            yield subnetwork


def six_stitches(supernet, count, rng):
    """Random subnetworks with six active stitches."""
    found = []
    while len(found) < count:
        x = rng.random(supernet.n_var) < 12 / supernet.n_var
        if supernet.subnetwork(x).n_stitches == 6:
            found.append(x)
    return found


def compare(folder, samples, measured, finetuned):
    networks, images, validation, labels = cifar10_pair(folder)
    validation, labels = validation[:measured], labels[:measured]
    supernets = {method: Supernet.build(networks) for method in ("least squares", "adam")}
    print(supernets["adam"], end="\n\n")
    reports = {
        "least squares": supernets["least squares"].fit(images[:2_500], batch_size=100, positions=64),
        "adam": supernets["adam"].fit(images, "adam", samples=samples),
    }
    for report in reports.values():
        print(report, end="\n\n")
    ratio = reports["adam"].seconds / reports["least squares"].seconds
    print(f"time of adam over that of least squares: {ratio:.1f}")
    # Both are measured once more on the same images, which neither has seen.
    errors = {method: held_out(supernet, validation[:200]) for method, supernet in supernets.items()}
    ratios = np.array([errors["least squares"][name] / errors["adam"][name] for name in errors["adam"]])
    worse = [str(link) for link, r in zip(supernets["adam"].links, ratios, strict=True) if r > 1]
    print(f"held-out error, least squares over adam: median {np.median(ratios):.3f}, largest {ratios.max():.3f}")
    print(f"stitches where adam is better: {len(worse)} of {len(ratios)}: {', '.join(worse)}")
    singles = {
        method: [accuracy(s, validation, labels) for s in one_stitch(supernet)]
        for method, supernet in supernets.items()
    }
    for method, values in singles.items():
        print(
            f"accuracy with one stitch, {method}: median {np.median(values):.3f} over {len(values)} subnetworks, {measured} images"
        )
    supernet = supernets["least squares"]
    genotypes = six_stitches(supernet, 40, np.random.default_rng(1))
    before = [accuracy(supernet.subnetwork(x), validation, labels) for x in genotypes]
    report = supernet.finetune(images, samples=finetuned)
    after = [accuracy(supernet.subnetwork(x), validation, labels) for x in genotypes]
    print(f"accuracy with six stitches: median {np.median(before):.3f} before finetuning, {np.median(after):.3f} after")
    print(
        f"  ({finetuned} samples without labels, {report.seconds:.0f} s; better in {np.sum(np.array(after) > before)} of {len(before)} subnetworks)"
    )
    for name, x in supernet.references.items():
        print(f"reference {name}: {accuracy(supernet.subnetwork(x), validation, labels):.3f}")


def held_out(supernet, images):
    """The relative error of each stitch on these images."""
    from pymoo_stitch.fitting import Execution

    errors = {}
    for number, source, target in Execution(supernet, torch.device("cpu")).taps(images):
        link = supernet.links[number]
        with torch.no_grad():
            given = supernet.stitches[link.stitch](source)
        axes = [d for d in range(target.ndim) if d != 1]
        variance = (target - target.mean(axes, keepdim=True)).square().mean()
        errors[link.stitch] = ((given - target).square().mean() / variance).item() + 1e-12
    return errors


def peak_memory(method):
    """Fit ResNet-50 and ResNeXt-50 at batch 32 and print the peak memory of this process."""
    import timm

    modules = [timm.create_model(name) for name in ("resnet50", "resnext50_32x4d")]
    supernet = Supernet.build(modules, torch.rand(1, 3, 224, 224))
    built = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    start = time.perf_counter()
    options = {"samples": 32} if method == "adam" else {}
    supernet.fit(torch.rand(72, 3, 224, 224), method, batch_size=32, **options)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"peak memory, resnet50 + resnext50_32x4d, batch 32, {method}: {peak:.1f} GB ({built:.1f} GB when built), {time.perf_counter() - start:.0f} s"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=pathlib.Path, default="../shared/data", help="folder with networks.py (default: ../shared/data)"
    )
    parser.add_argument("--only", choices=["compare", "memory"], help="one half of the benchmark")
    parser.add_argument("--samples", type=int, default=16_384, help="samples for Adam (default: 16384)")
    parser.add_argument("--measured", type=int, default=200, help="validation images (default: 200)")
    parser.add_argument("--finetuned", type=int, default=8_192, help="samples for finetuning (default: 8192)")
    parser.add_argument("--memory-of", choices=["least-squares", "adam"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.memory_of:
        peak_memory(arguments.memory_of)
    else:
        if arguments.only != "memory":
            compare(arguments.data, arguments.samples, arguments.measured, arguments.finetuned)
        if arguments.only != "compare":
            for method in ("least-squares", "adam"):
                subprocess.run([sys.executable, __file__, "--memory-of", method], check=True)
