"""What cascades are worth: chosen on some images, judged on others; and how fast their files are.

    python benchmarks/cascades.py --data ../shared/data --cache /tmp/outputs
    python benchmarks/cascades.py --data ../shared/data --cache /tmp/outputs --only speed

`cifar10`: ResNet-20 and ResNet-56. Candidates are the references and all networks with one stitch, 279 in all. Their
outputs on 6,000 images are computed once (14 minutes on one core) and kept in the cache folder. Which 2,000 of the
images are for selection and which 4,000 for test is drawn 20 times (5 minutes). `imagenet` does the same for
MobileNetV2 and EfficientNet-Lite0, and `three` for these and SqueezeNet 1.1: 200 images to fit on, and of 400 others
200 each for selection and test; of the networks with one stitch 40 (5 minutes for the pair). `speed` exports a plain
cascade of 45 % of the ensemble's cost and the ensemble, and runs both on one thread (4 minutes). `dense` trains two
networks that classify pixels and looks whether the mean over pixels tells which images to defer (3 minutes).

The folder is that of `benchmarks/engine.py`; `cifar10` in it is also what the problem `cifar10` takes.
"""

import argparse
import pathlib
import tempfile
import time

import numpy as np
import torch
from pymoo_stitch.problems.digits import digits_of
from record import record
from torch import nn
from trained import folder_module, imported

from pymoo_stitch import Engine, Network, Supernet, get_problem
from pymoo_stitch.report.cascades import choose_cascade
from pymoo_stitch.supernet import Cascade, JointCosts
from pymoo_stitch.task import Split
from pymoo_stitch.task.cascading import Predictions, all_cascades, evaluate, predict, single_networks
from pymoo_stitch.util.tables import table

torch.set_num_threads(1)
RESAMPLINGS = 20


# ----------------------------------------------------------------------------------------------------------- candidates


def cifar10(folder):
    """The problem's supernet, and all images that are for choosing and judging."""
    problem = get_problem("cifar10", data=str(folder / "cifar10"))
    splits = [problem.task[name] for name in ("selection", "test")]
    images, labels = (torch.cat(parts) for parts in zip(*(next(s.batches(len(s))) for s in splits), strict=True))
    return problem.space, images, labels


def imagenet(folder, names):
    data = folder_module(folder)
    images, labels = data.imagenet()
    images = images[:, :, 16:240, 16:240]
    # SqueezeNet's tensors have sizes of their own.
    supernet = Supernet.build(imported(data, names, images[:1].float() / 255), resize="squeezenet1_1" in names)
    supernet.fit(images[:200].float() / 255, batch_size=20, positions=64)
    return supernet, images[200:], labels[200:]


def candidates(space, limit=None):
    """The genotypes of the references and of all networks with one stitch, or of so many of these, spread evenly."""
    stitched = space.one_stitch()
    if limit is not None and limit < len(stitched):
        stitched = stitched[np.linspace(0, len(stitched) - 1, limit).round().astype(int)]
    return np.concatenate([list(space.references.values()), stitched])


def predictions(cache, name, space, genotypes, images, labels):
    """What the candidates predict, from the cache if it has been computed for them."""
    path = cache / f"{name}-{space.digest()[:12]}.npz"
    if path.is_file():
        with np.load(path) as kept:
            if np.array_equal(kept["genotypes"], genotypes) and np.array_equal(kept["labels"], labels):
                return Predictions(torch.from_numpy(kept["outputs"]), labels)
    start, engine, rows = time.process_time(), Engine("cpu"), []
    subnetworks = [space.subnetwork(x) for x in genotypes]
    for part in torch.arange(len(labels)).split(200):
        rows.append(torch.stack(engine.outputs(subnetworks, Split("test", (images[part], labels[part])))))
        print(
            f"{name}: {len(part) * len(rows):,} of {len(labels):,} images, {time.process_time() - start:.0f} s",
            flush=True,
        )
    outputs = torch.cat(rows, 1)
    np.savez(path, outputs=outputs.numpy(), labels=labels.numpy(), genotypes=genotypes)
    return Predictions(outputs, labels)


# ------------------------------------------------------------------------------------------------------------- choosing


def resample(found, costs, names, n_selection, targets, seeds=RESAMPLINGS):
    """For each target, a fraction of the ensemble's cost and the reference to compare with: what is chosen on selection
    images by three rules, and what that is worth on test images."""
    references = list(range(len(names)))
    ensemble = costs.alone[names.index("ensemble")]
    results = {target: [] for target in targets}
    for seed in range(seeds):
        order = np.random.default_rng(seed).permutation(found.n_images)
        selection, test = found.take(order[:n_selection]), found.take(order[n_selection:])
        alone = single_networks(test, costs).values
        largest = all_cascades(selection, costs, at_most=max(share for share, _ in targets) * ensemble)
        for share, name in targets:
            plain_ones = all_cascades(selection, costs, of=references)
            plain = best(plain_ones, share * ensemble)
            greedy = best(largest, share * ensemble)
            choice = choose_cascade(selection, costs, references, at_most=share * ensemble)
            chosen = [plain, choice.table.take([0]), greedy]
            if len(names) > 3:  # more than two networks and their ensemble
                chosen.append(best(all_cascades(selection, costs, of=references, n_stages=3), share * ensemble))
            judged = [evaluate(each, test, costs) for each in chosen]
            rivals = [evaluate(best(plain_ones, each.costs[0]), test, costs) for each in chosen]
            results[share, name].append(
                {
                    "accuracy": [each.values[0] - alone[names.index(name)] for each in judged],
                    "gain": [each.values[0] - rival.values[0] for each, rival in zip(judged, rivals, strict=True)],
                    "cost": [each.costs[0] / ensemble for each in judged],
                    "stitched": [not each.made_of(references)[0] for each in chosen],
                }
            )
        print(f"resampling {seed + 1} of {seeds}", flush=True)
    return results


def best(rows, at_most):
    """The most accurate of at most that cost, of equal ones the cheapest."""
    rows = rows.take(rows.costs <= at_most)
    return rows.take([np.lexsort((rows.costs, rows.errors))[0]])


def show(name, results):
    headings = ["at most", "compared with", "rule", "difference on test", "from", "to", "cost on test", "stitched"]
    rows, recorded = [[*headings, "gain where stitched"]], []
    for (share, reference), found in results.items():
        accuracy, gain, cost, stitched = (
            np.array([each[what] for each in found]) for what in ("accuracy", "gain", "cost", "stitched")
        )
        rules = ["best plain", "conservative", "best of all", "best plain, up to three stages"]
        for i, rule in enumerate(rules[: accuracy.shape[1]]):
            own = stitched[:, i]
            recorded.append(
                {"at_most": share, "reference": reference, "rule": rule, "difference": np.median(accuracy[:, i])}
                | {"worst": accuracy[:, i].min(), "best": accuracy[:, i].max(), "cost": np.median(cost[:, i])}
                | {"stitched": int(own.sum()), "of": len(own)}
                | {"gain": np.median(gain[own, i]) if own.any() else None}
            )
            rows.append(
                [f"{share:.0%}", reference, rule, f"{np.median(accuracy[:, i]):+.4f}"]
                + [f"{np.quantile(accuracy[:, i], q):+.4f}" for q in (0, 1)]
                + [f"{np.median(cost[:, i]):.3f}", f"{own.sum()} of {len(own)}"]
                + [f"{np.median(gain[own, i]):+.4f}" if own.any() else ""]
            )
    record(f"cascades-{name}", recorded, by=("at_most", "reference", "rule"), noise={"cost": 0.1})
    print("\n".join(table(rows)), flush=True)
    print(
        "(medians over resamplings, and the worst and the best; costs as fractions of the ensemble's; gain where "
        "stitched:"
    )
    print(
        "of those with a stitched stage over the best plain cascade, on selection, of at most their cost)\n", flush=True
    )


def judge(cache, name, space, images, labels, limit, n_selection, targets):
    genotypes = candidates(space, limit)
    found = predictions(cache, name, space, genotypes, images, labels)
    subnetworks, names = [space.subnetwork(x) for x in genotypes], list(space.references)
    start, costs = time.process_time(), JointCosts(subnetworks)
    everything = all_cascades(found.take(np.arange(n_selection)), costs)
    seconds = time.process_time() - start
    alone = single_networks(found, costs)
    print(f"\n{name}: {len(space.one_stitch())} networks with one stitch, {len(genotypes)} candidates")
    print(f"{len(everything):,} cascades on {n_selection:,} images in {seconds:.1f} s")
    for i, reference in enumerate(names):
        print(
            f"  {reference}: {alone.costs[i] / alone.costs[names.index('ensemble')]:.1%}, {alone.values[i]:.4f} on all"
        )
    show(name, resample(found, costs, names, n_selection, targets))


# ---------------------------------------------------------------------------------------------------------------- speed


def speed(folder, share=0.45, images=512):
    space, pixels, _ = cifar10(folder)
    small, large, ensemble = (space.subnetwork(x) for x in space.references.values())
    photos = pixels[:2_000].float() / 255
    with torch.no_grad():
        tops = torch.cat([small.module()(part).softmax(1).amax(1) for part in photos.split(200)])
    plain = Cascade([small, large], [0.5])
    fraction = (share * plain.worst_cost - plain.costs[0]) / (plain.costs[1] - plain.costs[0])
    cascade = Cascade([small, large], [tops.quantile(fraction).item()], fractions=[1, fraction])
    print(f"{cascade!r}, {cascade.cost / ensemble.cost:.1%} of the ensemble's cost", flush=True)
    photos = photos[torch.randperm(len(photos), generator=torch.Generator().manual_seed(0))[:images]]
    rows = [["file", "batch", "ensemble", "with norms folded", "cascade", "cascade / ensemble", "cascade / folded"]]
    with tempfile.TemporaryDirectory() as temporary:
        for suffix in ("pt2", "onnx"):
            paths = [pathlib.Path(temporary) / f"{name}.{suffix}" for name in ("ensemble", "cascade")]
            ensemble.export(paths[0])
            cascade.export(paths[1])
            runs = [loaded(paths[0]), loaded(paths[1], all_deferred=True), loaded(paths[1])]
            for batch in (1, 64):
                rates = per_second([run for run in runs if run], photos[: 128 if batch == 1 else None], batch)
                if suffix == "onnx":
                    rates.insert(1, None)
                rows.append(
                    [suffix, f"{batch}", *("" if rate is None else f"{rate:.0f}" for rate in rates)]
                    + ["" if rate is None else f"{rates[2] / rate:.2f}" for rate in rates[:2]]
                )
    record("cascades-speed", [dict(zip(rows[0], row, strict=True)) for row in rows[1:]], by=("file", "batch"))
    print("\n".join(table(rows)))
    print(
        "(images per second of processor time, one thread; with norms folded: the cascade's file, all images deferred)"
    )


def loaded(path, all_deferred=False):
    """A file as a function."""
    if path.suffix == ".pt2":
        module = torch.export.load(path).module()
        if all_deferred:
            module.threshold1.fill_(2.0)
        return module
    if all_deferred:
        return None  # ONNX Runtime folds norms itself
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda batch: session.run(None, {"input": batch.numpy()})


@torch.no_grad()
def per_second(runs, photos, batch, rounds=7):
    """Images per second of each, in turns; the median of the rounds."""
    times = np.zeros((rounds, len(runs)))
    for turn in range(-1, rounds):  # the first warms up
        for i, run in enumerate(runs):
            start = time.process_time()
            for part in photos.split(batch):
                run(part)
            times[turn, i] = time.process_time() - start
    return list(len(photos) / np.median(times, axis=0))


# ---------------------------------------------------------------------------------------------------------------- dense


def dense(n_train=2_000, n=1_000, epochs=12):
    """Whether the mean over pixels tells which images to defer: a small and a large network that classify the pixels of
    two handwritten digits side by side, against deferring as many images by chance."""
    torch.manual_seed(0)
    images, labels = scenes("calibration", n_train, 0)
    modules = {"small": field(12, 3), "large": field(28, 6)}
    for module in modules.values():
        optimizer = torch.optim.Adam(module.parameters())
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 6e-3, epochs * n_train // 50)
        for _ in range(epochs):
            for part in torch.randperm(n_train).split(50):
                optimizer.zero_grad()
                nn.functional.cross_entropy(module(images[part]), labels[part]).backward()
                optimizer.step()
                schedule.step()
    networks = [Network.from_module(module.eval(), images[:1], name=name) for name, module in modules.items()]
    space = Supernet.build(networks)
    subnetworks = [space.subnetwork(x) for x in space.references.values()]
    costs, engine = JointCosts(subnetworks), Engine("cpu")
    found = [
        predict(engine, subnetworks, Split(split, scenes(split, n, seed)), metric="pixel_accuracy")
        for seed, split in enumerate(("selection", "test"), 1)
    ]
    chosen = evaluate(all_cascades(found[0], costs, of=[0, 1]), found[1], costs)
    alone = single_networks(found[1], costs)
    rows = [["deferred", "cost", "pixel accuracy on test", "deferred by chance"]]
    rows += [
        ["", f"{cost / costs.alone[2]:.0%}", f"{value:.4f}", ""]
        for cost, value in zip(alone.costs, alone.values, strict=True)
    ]
    for row in np.flatnonzero((chosen.stages == [0, 1]).all(1)):
        fraction, gain = chosen.fractions[row, 1], alone.values[2] - alone.values[0]
        rows.append(
            [f"{fraction:.0%}", f"{chosen.costs[row] / costs.alone[2]:.0%}", f"{chosen.values[row]:.4f}"]
            + [f"{alone.values[0] + fraction * gain:.4f}"]
        )
    print("\n".join(table(rows)), "(first the small network, the large one and their ensemble alone)", sep="\n")


def scenes(split, n, seed):
    """Two digits side by side on 10×20 pixels, with noise. Pixels of ink are of their digit's class, all others of
    class 10."""
    digits, classes = digits_of(split)
    generator = torch.Generator().manual_seed(seed)
    images, labels = torch.zeros(n, 1, 10, 20), torch.full((n, 10, 20), 10)
    for image, label in zip(images, labels, strict=True):
        for left in (0, 10):
            which, y, x = (int(torch.randint(high, (), generator=generator)) for high in (len(digits), 3, 3))
            place = slice(y, y + 8), slice(left + x, left + x + 8)
            image[0][place] = digits[which, 0]
            label[place][digits[which, 0] > 0.25] = classes[which]
    noise = 0.25 * torch.rand(n, 1, 1, 1, generator=generator) * torch.randn(images.shape, generator=generator)
    return (images + noise).clamp(0, 1), labels


def field(width, depth):
    """Convolutions that look further and further."""
    layers = []
    for i in range(depth):
        reach = 1 + i % 3
        layers += [nn.Conv2d(width if i else 1, width, 3, padding=reach, dilation=reach, bias=False)]
        layers += [nn.BatchNorm2d(width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Conv2d(width, 11, 1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, type=pathlib.Path)
    parser.add_argument("--cache", required=True, type=pathlib.Path, help="a folder that keeps outputs")
    parser.add_argument("--only", choices=["cifar10", "imagenet", "three", "speed", "dense"])
    arguments = parser.parse_args()
    arguments.cache.mkdir(exist_ok=True)
    if arguments.only in (None, "cifar10"):
        targets = [(0.38, "resnet56"), (0.5, "ensemble")]
        judge(arguments.cache, "cifar10", *cifar10(arguments.data), None, 2_000, targets)
    pair = ("mobilenet_v2", "tf_efficientnet_lite0")
    if arguments.only in (None, "imagenet"):
        targets = [(0.5, "tf_efficientnet_lite0"), (0.6, "ensemble")]
        judge(arguments.cache, "pair", *imagenet(arguments.data, pair), 40, 200, targets)
    if arguments.only in (None, "three"):
        targets = [(0.38, "tf_efficientnet_lite0"), (0.5, "ensemble")]
        judge(arguments.cache, "three", *imagenet(arguments.data, (*pair, "squeezenet1_1")), 40, 200, targets)
    if arguments.only in (None, "speed"):
        speed(arguments.data)
    if arguments.only in (None, "dense"):
        dense()


if __name__ == "__main__":
    main()
