"""How good stitches are, alone and after one another: least squares as it is, with variance restored (the default),
Adam, and what finetuning adds.

    python benchmarks/fitting.py --data ../shared/data
    python benchmarks/fitting.py --data ../shared/data --only imagenet
    python benchmarks/fitting.py --only small

`cifar10` is ResNet-20 and ResNet-56 trained on CIFAR-10, `imagenet` MobileNetV2 and EfficientNet-Lite0 with 200 images
to fit on, `small` networks trained on handwritten digits here and now, which needs no data and compares the degrees to
which variance is restored where stitches are of another sort: in a family, between tokens, vectors, and maps of
different sizes, and into layers without a norm after them, `memory` the time and the peak memory of ResNet-50 and
ResNeXt-50 with random weights, in a process of its own. The folder holds `networks.py` with `load(name,
normalized=False)`, `NETWORKS`, `cifar10(split)` and `imagenet()`. Subnetworks with k stitches are drawn at random with
a fixed seed, their outputs uniform over both networks and the ensemble, and are the same for all methods.
"""

import argparse
import pathlib
import resource
import subprocess
import sys
import time

import numpy as np
import torch
from record import record
from torch import nn
from torch.nn import functional as F
from trained import cifar10_pair, imagenet_pair

from pymoo_stitch import Family, Layout, Link, StitchProblem, Supernet, Task
from pymoo_stitch.network import import_networks

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


def compare(part, fitted, validation, labels, counts):
    """A table of mean accuracies, and each method against the first, subnetwork by subnetwork, of which there are
    `counts[k]` with k stitches."""
    genotypes, found = None, {}
    for name, supernet, report in fitted:
        print(f"\n{name}\n{report}", flush=True)
        if genotypes is None:
            rng = np.random.default_rng(SEED)
            genotypes = {k: with_stitches(supernet, k, count, rng) for k, count in counts.items()}
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
        f"\nMean accuracy of subnetworks with k stitches, {len(labels)} "
        "images, and the mean difference from the first method"
    )
    print("with its 95 % interval, subnetwork by subnetwork; time of fitting over the first's\n")
    first_seconds, first = next(iter(found.values()))
    heads = [f"k = {k}, {count} subnetworks" for k, count in counts.items()]
    print("| | time | " + " | ".join(heads) + " |\n|" + "---|" * (len(counts) + 2))
    rows = []
    for name, (seconds, values) in found.items():
        cells = []
        for k, count in counts.items():
            difference = values[k] - first[k]
            error = 1.96 * difference.std(ddof=1) / np.sqrt(count)
            beside = "" if values is first else f" ({difference.mean():+.3f} ± {error:.3f})"
            cells.append(f"{values[k].mean():.3f}{beside}")
            rows.append(
                {"method": name, "k": k, "accuracy": values[k].mean(), "gain": difference.mean(), "error": error}
            )
        rows[-1]["time"] = seconds / first_seconds
        print(f"| {name} | {seconds / first_seconds:.2f} | " + " | ".join(cells) + " |")
    settings = {"subnetworks": counts, "images": len(labels), "seed": SEED}
    record(f"fitting-{part}", rows, by=("method", "k"), noise={"accuracy": 0.05}, **settings)


def digits():
    """Images in [0, 1], 1×8×8, and labels, shuffled with a fixed seed."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    return torch.tensor(images[order] / 16).float().view(-1, 1, 8, 8), torch.tensor(labels[order])


def convolutional(width, stride=1, norm=nn.BatchNorm2d):
    """A network with maps of two sizes and three layers of vectors; `norm` after each convolution."""

    def block(inputs, outputs, stride=1):
        convolution = nn.Conv2d(inputs, outputs, 3, stride, 1)
        nn.init.kaiming_normal_(convolution.weight)  # without norms, others do not learn
        return nn.Sequential(convolution, norm(outputs), nn.ReLU())

    maps = block(1, width, stride), *(block(width, width) for _ in range(3))
    halved = block(width, 2 * width, 2), *(block(2 * width, 2 * width) for _ in range(3))
    vectors = nn.Flatten(), nn.Linear(8 * width, 48), nn.ReLU(), nn.Linear(48, 32), nn.ReLU(), nn.Linear(32, 10)
    return nn.Sequential(*maps, *halved, nn.AdaptiveAvgPool2d(2), *vectors)


def plain(width):
    return convolutional(width, norm=lambda channels: nn.Identity())


def transformer(width):
    from timm.models import VisionTransformer

    options = {"img_size": 8, "patch_size": 2, "in_chans": 1, "num_classes": 10, "num_heads": 4, "mlp_ratio": 2}
    return VisionTransformer(embed_dim=width, depth=5, **options)


def trained(modules, images, labels, epochs):
    for module in modules:
        optimizer, batches = torch.optim.AdamW(module.train().parameters()), -(-len(labels) // 50)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, total_steps=epochs * batches)
        for _ in range(epochs):
            for rows in torch.randperm(len(labels)).split(50):
                loss = F.cross_entropy(module(images[rows]), labels[rows])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
        module.eval()
    return modules


def vector_links(first, second):
    """Both ways between the vectors of two networks that stand at the same place."""
    pairs = zip(*([tap for tap in n.taps if tap.layout is Layout.VECTOR] for n in (first, second)), strict=True)
    return [link for a, b in pairs for link in (Link(a, b), Link(b, a))]


def small(count):
    """A table: what stitches join, and the mean accuracy of subnetworks with k of them for each degree, the last being
    the one that is chosen by default."""
    images, labels = digits()
    fitting, task = slice(0, 1_000), Task(validation=(images[1_000:], labels[1_000:]))

    def pair(make, *arguments, epochs=6):
        torch.manual_seed(1)
        modules = trained([make(*each) for each in arguments], images[fitting], labels[fitting], epochs)
        return import_networks(modules, images[:1])

    maps, bare = pair(convolutional, (8,), (12,)), pair(plain, (8,), (12,))
    sizes, tokens = pair(convolutional, (8,), (12, 2)), pair(transformer, (16,), (24,), epochs=30)
    spaces = {
        "maps, a batch norm after the stitch": Supernet.build(maps),
        "maps, no norm after the stitch": Supernet.build(bare),
        "maps of different sizes (`resize=True`)": Supernet.build(sizes, resize=True),
        "vectors": Supernet(maps, vector_links(*maps)),
        "tokens, a layer norm after the stitch": Supernet.build(tokens),
        "family of convolutional networks": Family.build(maps, blocks={n.name: list("1234567") for n in maps}),
        "family of transformers": Family.build(tokens),
    }
    rows = []
    print("| stitches between | best network | k | degree 0 | 0.5 | 1 | default |\n|" + "---|" * 7)
    for what, space in spaces.items():
        rng, found = np.random.default_rng(SEED), {}
        if isinstance(space, Family):
            genotypes = {1: space.codes[[subnetwork.n_stitches == 1 for subnetwork in space]]}
        else:
            numbers = (1, 2) if what == "vectors" else (1, 3)
            genotypes = {k: np.array(with_stitches(space, k, count, rng)) for k in numbers}
        for degree in (0, 0.5, 1, None):
            report = space.fit(images[fitting], restore=degree, progress=False)
            problem = StitchProblem(space, task)
            best = 1 - problem.references().get("F")[:, 1].min()
            for k, X in genotypes.items():
                found[k, degree] = 1 - problem.reevaluate(X, "validation").get("F")[:, 1]
        for k in genotypes:
            cells = [f"{found[k, 0].mean():.3f}"]
            for degree in (0.5, 1, None):
                difference = found[k, degree] - found[k, 0]
                error = 1.96 * difference.std(ddof=1) / np.sqrt(len(difference))
                chosen = f"degree {report.degree:g}: " if degree is None else ""
                cells.append(f"{chosen}{found[k, degree].mean():.3f} ({difference.mean():+.3f} ± {error:.3f})")
                what_is = {"degree": degree, "chosen": report.degree} if degree is None else {"degree": degree}
                rows.append(
                    {"between": what, "best": best, "k": k, **what_is, "accuracy": found[k, degree].mean()}
                    | {"plain": found[k, 0].mean(), "gain": difference.mean(), "error": error}
                )
            print(f"| {what} | {best:.3f} | {k} | " + " | ".join(cells) + " |", flush=True)
    record(
        "fitting-small",
        rows,
        by=("between", "k", "degree"),
        noise={"accuracy": 0.1},
        subnetworks=count,
        images=len(task["validation"]),
    )


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
    parser.add_argument("--only", choices=["cifar10", "imagenet", "small", "memory"], help="one part of the benchmark")
    parser.add_argument("--samples", type=int, default=16_384, help="samples for Adam (default: 16384)")
    parser.add_argument("--measured", type=int, default=500, help="validation images (default: 500)")
    parser.add_argument(
        "--count", type=int, help="subnetworks for each k (default: 40, for imagenet 16 with 3 or 6, small 20)"
    )
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
        counts = dict.fromkeys((1, 3, 6, 10), arguments.count or 40)
        compare("cifar10", fitted, validation[:measured], labels[:measured], counts)
    if only in (None, "imagenet"):
        networks, images, validation, labels = imagenet_pair(arguments.data)
        fitted = fit_imagenet(networks, images)
        counts = {k: arguments.count or count for k, count in {1: 40, 3: 16, 6: 16}.items()}
        compare("imagenet", fitted, validation[:measured], labels[:measured], counts)
    if only in (None, "small"):
        small(arguments.count or 20)
    if only in (None, "memory"):
        for method in ("least-squares", "adam"):
            subprocess.run([sys.executable, __file__, "--memory-of", method], check=True)
