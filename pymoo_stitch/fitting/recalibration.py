"""Batch norms of one subnetwork get the statistics of what they read after its stitches."""

import copy
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import Dataset

from ..network import INPUT, ImageLimits, Weight, output_of, unique_name
from ..stitches import Modules
from ..util.progress import Progress
from ._batches import as_dataset, checked, take

if TYPE_CHECKING:
    from ..supernet import Step, Subnetwork


@dataclass(frozen=True)
class Recalibration:
    """`shifts` tells for each batch norm, by network and name, how far the mean of what it reads had moved: the root
    mean square over its channels, in standard deviations of the network's own statistics."""

    shifts: dict[str, float]
    samples: int
    seconds: float

    def __str__(self) -> str:
        largest = max(self.shifts, key=self.shifts.get)
        return (
            f"{len(self.shifts)} batch norms recalibrated on {self.samples:,} images in {self.seconds:.1f} s; "
            f"their means had moved by up to {self.shifts[largest]:.3g} standard deviations ({largest})"
        )


@torch.no_grad()
def recalibrate(
    subnetwork: "Subnetwork",
    images: Any,
    *,
    samples: int = 256,
    batch_size: int = 32,
    device: torch.device | str | None = None,
    seed: int = 0,
    progress: bool | None = None,
) -> Recalibration:
    """Compute the mean and variance of every batch norm after a stitch again, for one subnetwork, from images without
    labels; see `Subnetwork.recalibrate`.

    The statistics are those of all images, and each batch norm sees what it will see: those before it are recalibrated
    already. For that all batches advance together from one batch norm to the next. So every image goes through the
    network once, where going back to the input for each batch norm would take as many passes as there are; the price is
    memory, for `samples` images, of what lies between two layers.

    :param samples: how many images are used, chosen at random from a dataset, the first of other batches.
    :param batch_size: how many images are computed at a time. It does not change the result, but for rounding.
    """
    start, device = time.perf_counter(), torch.device(device or "cpu")
    if samples < 2 or batch_size < 1:
        raise ValueError(
            f"samples must be at least 2 and batch_size at least 1, but they are {samples} and {batch_size}."
        )
    norms = subnetwork.norms_after_stitches()
    if not norms:
        raise ValueError(
            "no batch norm of this subnetwork lies after a stitch, so that there is nothing to recalibrate."
        )
    steps = {step.id: step for step in subnetwork._steps()}
    stitches = {
        name: copy.deepcopy(subnetwork.stitches[name]).to(device)
        for name in dict.fromkeys(link.stitch for link in subnetwork.links)
    }
    limits = ImageLimits.of(subnetwork.space.networks)
    batches = [batch.to(device) for batch in _batches(images, limits, samples, batch_size, seed)]
    runs = [_run(subnetwork, steps, {step.id for step in norms}, stitches, batch) for batch in batches]
    taken = {step.network.name: set(step.network.weights) for step in norms}
    shifts = {}
    with Progress(len(norms), "recalibration", "batch norm", progress) as bar:
        for step in norms:
            name = f"{step.network.name}:{step.node.name}"
            mean, variance = _statistics([next(run) for run in runs], name)
            own, (old_mean, old_variance) = step.network.weights, step.node.args[3:5]
            before, spread = own[old_mean.name].double(), own[old_variance.name].double() + step.node.args[7]
            shifts[name] = ((mean - before).square() / spread).mean().sqrt().item()
            steps[step.id] = _with_statistics(step, mean, variance, taken[step.network.name])
            bar.update(1)
    subnetwork.norms = {step.id: steps[step.id] for step in norms}
    return Recalibration(shifts, sum(map(len, batches)), time.perf_counter() - start)


def _batches(images: Any, limits: ImageLimits, samples: int, batch_size: int, seed: int) -> Iterator[torch.Tensor]:
    images, purpose, seen = as_dataset(images), "a batch to recalibrate on", 0
    if isinstance(images, Dataset):
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))  # type: ignore[arg-type]
        chosen = order[:samples].sort().values.split(batch_size)
        batches = (take(images, indices.tolist(), limits, purpose) for indices in chosen if len(indices))
    else:
        batches = (checked(item, limits, purpose) for item in images)
    for batch, _ in batches:
        batch = batch[: samples - seen]
        seen += len(batch)
        yield from batch.split(batch_size)
        if seen == samples:
            break
    if seen < 2:
        raise ValueError(f"recalibration takes two images or more, but {seen} {'is' if seen == 1 else 'are'} given.")


def _run(
    subnetwork: "Subnetwork",
    steps: Mapping[int, "Step"],
    norms: set[int],
    stitches: Modules,
    images: torch.Tensor,
) -> Iterator[torch.Tensor]:
    """Run a batch up to one batch norm after the other: what each of them reads. Before the next, `steps` holds it with
    its new statistics."""
    readers = Counter(subnetwork.results) + Counter(i for step in steps.values() for i in step.reads.values())
    made: dict[int, torch.Tensor] = {}
    for id, step in list(steps.items()):
        read = {name: made[i] for name, i in step.reads.items()} | {INPUT: images}
        for i in step.reads.values():
            readers[i] -= 1
            if not readers[i]:
                del made[i]
        if id in norms:
            yield read[step.node.args[0].node]
            step = steps[id]
        if step.node is not None:
            weights = {name: step.weights[name].to(images.device) for name in step.node.weights()}
            made[id] = output_of(step.node, read.__getitem__, weights, images)
        else:
            made[id] = stitches[step.link.stitch](*(read[name] for name in step.reads))


def _statistics(tensors: Sequence[torch.Tensor], name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """The mean and the variance of each channel, the second dimension, over all tensors, as batch norms keep them."""
    others = [dimension for dimension in range(tensors[0].ndim) if dimension != 1]
    count = sum(tensor.numel() // tensor.shape[1] for tensor in tensors)
    mean: Any = sum(tensor.double().sum(others) for tensor in tensors) / count
    around = mean.view(-1, *[1] * (tensors[0].ndim - 2))
    variance: Any = sum((tensor.double() - around).square_().sum(others) for tensor in tensors) / (count - 1)
    if not (mean.isfinite().all() and variance.isfinite().all()):
        raise ValueError(
            f"the batch norm {name} reads NaN or infinite values for the images given. Are the stitches fitted?"
        )
    return mean.cpu(), variance.cpu()


def _with_statistics(step: "Step", mean: torch.Tensor, variance: torch.Tensor, taken: set[str]) -> "Step":
    """The step with these statistics, under names of their own: another node of the network may read the old ones."""
    args, own = list(step.node.args), {}
    for place, tensor in ((3, mean), (4, variance)):
        old = args[place].name
        name = unique_name(old, taken)
        taken.add(name)
        args[place], own[name] = Weight(name), tensor.to(step.network.weights[old].dtype)
    return replace(step, node=replace(step.node, args=tuple(args)), own=own)
