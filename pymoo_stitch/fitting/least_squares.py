"""Affine stitches in closed form, all of them in one pass over the images."""

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..network import Layout, Tap
from ..stitches import KINDS, Link, as_image, is_direct, working_layout
from ._batches import Data
from .execution import Execution
from .report import FitReport, check_finite, held_out_errors
from .solving import solve_sums

if TYPE_CHECKING:
    from ..supernet import Supernet


# --------------------------------------------------------------------------------------------------------- least squares


def least_squares(
    supernet: "Supernet",
    images: Any,
    *,
    batch_size: int = 32,
    positions: int = 16,
    ridge: float = 1e-6,
    device: torch.device | str | None = None,
    progress: bool | None = None,
) -> FitReport:
    """Solve for each affine stitch what minimises the mean squared error between its output and the original tensor.

    One pass accumulates, in float64, the Gram matrices of the taps that are read, each once for all its links, and
    their products with what is to be given. No activations are kept beyond a batch: memory is 8·C² bytes for each tap
    of C channels that a link reads and 8·C·D bytes for each pair of taps, and of the activations themselves only what
    is still to be read.

    :param images: a tensor of images, a Dataset, or a DataLoader or another iterable of batches. Labels are ignored.
    :param positions: how many positions of each image are used at most, the same for all images.
    :param ridge: added to each variance, as part of the mean variance of the tap.
    """
    chosen = [i for i, link in enumerate(supernet.links) if KINDS[link.kind].affine]
    if not chosen:
        kinds = sorted({link.kind for link in supernet.links})
        raise ValueError(f"least squares fits affine kinds only, and the links are of {kinds}. Use method='adam'.")
    start, device = time.perf_counter(), torch.device(device or "cpu")
    execution = Execution(supernet, device)
    stitches = supernet.stitches.to(device).eval()
    data = Data(supernet, images, batch_size, device, progress, "least squares")
    moments = _Moments(supernet, chosen, stitches, positions)
    for batch, _ in data.batches():
        moments.add(execution.taps(batch))
    for name in dict.fromkeys(supernet.links[i].stitch for i in chosen):
        links = [i for i in chosen if supernet.links[i].stitch == name]
        adapter = adapter_of(stitches[name])
        weight, bias = solve_sums(*moments.pooled(links), ridge, centred=adapter.bias is not None)
        with torch.no_grad():
            adapter.weight.copy_(weight.view_as(adapter.weight))
            if adapter.bias is not None:
                adapter.bias.copy_(bias)
    errors = held_out_errors(supernet, execution, data, stitches)
    stitches.to("cpu")
    return FitReport("least squares", errors, data.seen, time.perf_counter() - start)


def adapter_of(stitch: nn.Module) -> nn.Module:
    """The affine map itself: the module before the conversion to the target's layout."""
    return stitch[-2] if isinstance(stitch, nn.Sequential) else stitch


class _Moments:
    """Sums over samples of x, y, x xᵀ and x yᵀ for links from taps x to taps y, each kept once however many links use it."""

    def __init__(self, supernet: "Supernet", links: Sequence[int], stitches: nn.ModuleDict, positions: int):
        self.supernet, self.positions, self._chosen = supernet, positions, set(links)
        self._enter = {i: stitches[supernet.links[i].stitch] for i in links}
        self._last = {key: i for i in links for key in self._keys(supernet.links[i])}
        self._sums: dict[tuple, torch.Tensor] = {}
        self._grams: dict[tuple, torch.Tensor] = {}
        self._crosses: dict[tuple, torch.Tensor] = {}
        self._counts: dict[tuple, int] = {}

    @staticmethod
    def _keys(link: Link) -> tuple[tuple, tuple]:
        """What names the rows of a link's source and of its target: the tap and how it is converted."""
        if is_direct(link):
            return (str(link.source),), (str(link.target),)
        return (str(link.source), "resized", link.target.grid), (str(link.target), "image")

    def add(self, taps: Iterable[tuple[int, torch.Tensor, torch.Tensor]]) -> None:
        rows: dict[tuple, torch.Tensor] = {}
        crossed = set()
        for number, source, target in taps:
            if number not in self._chosen:
                continue
            link = self.supernet.links[number]
            x_key, y_key = self._keys(link)
            if x_key not in rows:
                rows[x_key] = source_rows(link, self._enter[number], source, self.positions)
                self._add_sum(x_key, rows[x_key])
            if (x_key, "gram") not in crossed:
                crossed.add((x_key, "gram"))
                self._grams[x_key] = self._grams.get(x_key, 0) + rows[x_key].T @ rows[x_key]
            if y_key not in rows:
                rows[y_key] = target_rows(link, target, self.positions)
                self._add_sum(y_key, rows[y_key])
            if (x_key, y_key) not in crossed and (y_key, x_key) not in crossed:
                crossed.add((x_key, y_key))
                flip = (y_key, x_key) in self._crosses
                a, b = (y_key, x_key) if flip else (x_key, y_key)
                self._crosses[a, b] = self._crosses.get((a, b), 0) + rows[a].T @ rows[b]
            for key in (x_key, y_key):
                if self._last[key] == number:
                    rows.pop(key, None)

    def pooled(self, links: Sequence[int]) -> tuple[int, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """The sums over all samples of several links that share a stitch: n, Σx, Σy, Σx xᵀ, Σx yᵀ."""
        parts = []
        for i in links:
            x, y = self._keys(self.supernet.links[i])
            cross = self._crosses[x, y] if (x, y) in self._crosses else self._crosses[y, x].T
            parts.append((self._counts[x], self._sums[x], self._sums[y], self._grams[x], cross))
        return tuple(sum(column[1:], start=column[0]) for column in zip(*parts, strict=True))

    def _add_sum(self, key: tuple, rows: torch.Tensor) -> None:
        self._sums[key] = self._sums.get(key, 0) + rows.sum(0)
        self._counts[key] = self._counts.get(key, 0) + len(rows)


def source_rows(link: Link, stitch: nn.Module, source: torch.Tensor, positions: int) -> torch.Tensor:
    """What the affine map of a link's stitch reads for a sample of positions of every image, as rows of channels in
    float64."""
    return _rows(source if is_direct(link) else stitch[:-2](source), link, link.source, positions)


def target_rows(link: Link, target: torch.Tensor, positions: int) -> torch.Tensor:
    """What it is to give, for the same positions."""
    plain = is_direct(link) or link.target.layout is Layout.VECTOR
    return _rows(target if plain else as_image(target, link.target), link, link.target, positions)


def _rows(tensor: torch.Tensor, link: Link, tap: Tap, positions: int) -> torch.Tensor:
    layout = working_layout(KINDS[link.kind], link.source, link.target)
    rows = (
        tensor.flatten(2).transpose(1, 2)
        if layout is Layout.IMAGE
        else tensor.reshape(len(tensor), -1, tensor.shape[-1])
    )
    count = rows.shape[1]
    if count > positions:
        generator = torch.Generator().manual_seed(count)
        rows = rows[:, torch.randperm(count, generator=generator)[:positions].to(rows.device)]
    rows = rows.double().flatten(0, 1)
    check_finite(rows, tap)
    return rows
