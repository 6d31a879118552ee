"""Affine stitches in closed form, all of them in one pass over the images."""

import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..stitches import KINDS, Link, channels_read
from ..supernet import FitReport
from ._batches import Data
from .errors import learns, relative_error
from .execution import Execution
from .genotypes import random_genotype
from .restoring import Restoration, adapter_of, remaining_variance
from .samples import KeptRows, Rows, Samples, n_rows
from .solving import choose_ridge

if TYPE_CHECKING:
    from ..supernet import Subnetwork, Supernet

POSITIONS = 16
ROWS = 1_024
"""Where there are few images, more than `POSITIONS` of each are used, to get this many rows."""
PIECE = 8_000_000
"""As many images go through the networks at a time as have tensors of this many bytes: the C library keeps such
blocks, and returns larger ones to the system every time."""
HELD_OUT_ROWS = 512
"""How many rows of the images kept back are looked at."""
TRIED_IMAGES, MOST_STITCHES = 16, 8
"""The degree is chosen on at most this many images, by half as many subnetworks with at most this many stitches."""


def least_squares(
    supernet: "Supernet",
    images: Any,
    *,
    batch_size: int = 32,
    positions: int | None = None,
    ridge: float | None = None,
    restore: float | None = None,
    genotypes: Sequence[np.ndarray] | np.ndarray | None = None,
    device: torch.device | str | None = None,
    progress: bool | None = None,
) -> FitReport:
    """Find the weights of each affine stitch that minimise the mean squared error between its output and the original
    tensor, then restore the variance that this takes away.

    Least squares predicts means: the output of a stitch varies less than the tensor it replaces, and each stitch after
    another loses more. So every output channel is scaled around its mean by R²^(−degree/2), where R² is the fraction of
    the variance that is left on images kept back. Degree 1 restores all of it, 0 nothing.

    One pass accumulates, in float64, the Gram matrices of the taps that are read, each once for all its links, and
    their products with the targets. Memory is 8·C² bytes for each tap of C channels that a link reads, 8·C·D bytes for
    each pair of taps, and 512 rows of each tap of the images kept back, but no activations beyond a batch. Where a
    dataset has so few samples n that it is no more memory, the samples are kept instead, 4·n·(C+D) bytes; if they are
    fewer than channels, the smaller system of n equations is solved.

    :param images: a tensor of images, a Dataset, or a DataLoader or another iterable of batches. Labels are ignored.
    :param batch_size: how many images go through the networks at a time at most.
    :param positions: how many positions of each image are used at most, the same for all images. By default 16, and
        more where a dataset has fewer than 64 images to show.
    :param ridge: added to each variance, as a fraction of the mean variance of the tap. By default the one is chosen,
        for each stitch, that is best on the images kept back.
    :param restore: the degree, from 0 to 1. By default one of 0, 0.5 and 1 is chosen: that with which random
        subnetworks come nearest to the ensemble on the images kept back.
    :param genotypes: the subnetworks to choose the degree by, instead of random ones.
    """
    if restore is not None and not 0 <= restore <= 1:
        raise ValueError(f"restore must be a degree from 0 (plain least squares) to 1, but is {restore}.")
    if ridge is not None and not ridge >= 0:
        raise ValueError(f"ridge must be a fraction of the mean variance of a tap, such as 1e-3, but is {ridge}.")
    if genotypes is not None and not len(genotypes):
        raise ValueError("genotypes is empty, so that no degree can be chosen. Omit it, or give restore.")
    if positions is not None and positions < 1:
        raise ValueError(f"positions must be at least 1, but is {positions}.")
    chosen = [i for i, link in enumerate(supernet.links) if KINDS[link.kind].affine]
    if not chosen:
        kinds = sorted({link.kind for link in supernet.links})
        raise ValueError(f"least squares fits affine kinds only, and the links are of {kinds}. Use method='adam'.")
    start, device = time.perf_counter(), torch.device(device or "cpu")
    execution = Execution(supernet, device)
    stitches = supernet.stitches.to(device).eval()
    data = Data(supernet, images, batch_size, device, progress, "least squares")
    if positions is None:
        positions = max(POSITIONS, -(-ROWS // data.expected)) if data.expected else POSITIONS
    shared: dict[str, list[Link]] = {}
    for i in chosen:
        shared.setdefault(supernet.links[i].stitch, []).append(supernet.links[i])
    samples = Samples(shared.values(), lambda links: _are_few(links, data.expected, positions))
    largest = max(4 * math.prod(tap.shape) for network in supernet.networks for tap in network.taps)
    piece = max(1, PIECE // largest) if device.type == "cpu" else batch_size
    rows = Rows(supernet, chosen, stitches, positions)
    for batch, _ in data.batches():
        for images in batch.split(piece):
            samples.add(rows.of(execution.taps(images)))
    held_out = KeptRows(link for links in shared.values() for link in links)
    rows = Rows(supernet, chosen, stitches, max(1, HELD_OUT_ROWS // len(data.held_out)))
    for images in data.held_out.split(min(piece, batch_size)):
        held_out.add(rows.of(execution.taps(images.to(device))))
    errors, left = {}, {}
    for name, links in shared.items():
        adapter = adapter_of(stitches[name])
        centred = adapter.bias is not None
        equations, mean_x, mean_y = samples.equations(links, centred)
        x, y = (end - mean.float() for end, mean in zip(held_out.of(links), (mean_x, mean_y), strict=True))
        weight = equations.weight(choose_ridge(equations, x, y) if ridge is None else ridge)
        with torch.no_grad():
            adapter.weight.copy_(weight.view_as(adapter.weight))
            if centred:
                adapter.bias.copy_(mean_y - weight @ mean_x.to(weight.dtype))
        given = x @ weight.T.float()
        errors[name], left[name] = relative_error(given, y), (remaining_variance(given, y, centred), mean_y)
    restoration = Restoration(stitches, left)
    if restore is None:
        tried = _tried(data.held_out, data.seen)
        pieces = [images.to(device) for images in tried.split(min(piece, batch_size))]
        restoration.choose(execution, _examples(supernet, genotypes, max(4, len(tried) // 2)), pieces)
    else:
        restoration.restore(float(restore))
    stitches.to("cpu")
    return FitReport(
        "least squares",
        errors,
        data.seen,
        time.perf_counter() - start,
        variances={name: variances.mean().item() for name, (variances, _) in left.items()},
        degree=restoration.degree,
    )


def _are_few(links: Sequence[Link], images: int | None, positions: int) -> bool:
    """Whether the rows of links that share a stitch, in float32, will take no more memory than products in float64, of
    links that lead both ways."""
    return images is not None and images * sum(n_rows(link, positions) for link in links) <= 3 * channels_read(links[0])


def _tried(held_out: torch.Tensor, seen: int) -> torch.Tensor:
    """Images all over those kept back, few enough that the choice takes little of the time."""
    number = min(TRIED_IMAGES, max(4, seen // TRIED_IMAGES))
    return held_out[:: -(-len(held_out) // number)]


def _examples(
    supernet: "Supernet", genotypes: Sequence[np.ndarray] | np.ndarray | None, number: int
) -> "list[Subnetwork]":
    """Subnetworks with a few stitches, all of them affine, of those given or at random; fewer if there are not so
    many."""
    rng = np.random.default_rng(0)
    found: dict[str, Subnetwork] = {}
    for _ in range(1_000):
        x = random_genotype(supernet, rng) if genotypes is None else genotypes[int(rng.integers(len(genotypes)))]
        subnetwork = supernet.subnetwork(x)
        fitted = all(KINDS[k.kind].affine or not learns(supernet.stitches[k.stitch]) for k in subnetwork.links)
        if fitted and 1 <= subnetwork.n_stitches <= MOST_STITCHES:
            found[subnetwork.key] = subnetwork
        if len(found) == number:
            break
    return list(found.values())
