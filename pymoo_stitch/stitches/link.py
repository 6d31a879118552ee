"""Links: which tap leads to which, and the stitch that lies between.

A kind works on one layout and leaves the positions as they are; whatever else lies between two taps, another layout or
another size, is bridged around it here, once for all kinds."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from torch import nn

from ..network import Layout, Tap
from .conversions import Average, FlattenImage, FromLayout, Resize, ToImage
from .kinds import KINDS, TOKENS, Kind

Modules = Mapping[str, nn.Module] | nn.ModuleDict
"""Stitches by the names that links have for them."""


@dataclass(frozen=True)
class Link:
    """A directed connection from a tap to another through a stitch. Links that name the same `stitch` share one;
    without a name a link has its own."""

    source: Tap
    target: Tap
    kind: str = "linear"
    stitch: str | None = None

    def __str__(self) -> str:
        return f"{self.source} → {self.target}"


def working_layout(kind: Kind, source: Tap, target: Tap) -> Layout | None:
    """The layout in which a stitch of this kind does its work between two taps; None if it cannot join them."""
    if kind.keeps and _channels_read(kind, source, target) != target.channels:
        return None
    if _is_direct(kind, source, target):
        return source.layout
    if source.grid is not None and target.layout is Layout.VECTOR and kind.affine:
        return Layout.VECTOR
    if source.grid is None or target.grid is None:
        return None
    if Layout.IMAGE in kind.layouts:
        return Layout.IMAGE
    return Layout.TOKENS if {source.layout, target.layout} <= kind.layouts & TOKENS else None


def are_alike(source: Tap, target: Tap) -> bool:
    """Whether two taps have the same layout and size."""
    return source.layout is target.layout and source.positions == target.positions


def is_direct(link: Link) -> bool:
    """Whether nothing but the kind's own module lies between the two taps."""
    return _is_direct(KINDS[link.kind], link.source, link.target)


def _is_direct(kind: Kind, source: Tap, target: Tap) -> bool:
    return are_alike(source, target) and source.layout in kind.layouts


def channels_read(link: Link) -> int:
    """How many channels the module of a link's kind gets: a class token that is joined to every position doubles
    them."""
    return _channels_read(KINDS[link.kind], link.source, link.target)


def _channels_read(kind: Kind, source: Tap, target: Tap) -> int:
    joined = source.layout is Layout.CLASS_TOKENS and not _is_direct(kind, source, target)
    return source.channels * (2 if joined else 1)


def build_stitch(link: Link) -> nn.Module:
    """A new, unfitted stitch for a link: the kind's own module, with whatever is needed around it. It overwrites
    nothing, since others read the tap as well."""
    stitch = _assemble(link)
    for part in stitch.modules():
        if getattr(part, "inplace", False):
            part.inplace = False  # type: ignore[assignment]  # an attribute, no tensor
    return stitch


def _assemble(link: Link) -> nn.Module:
    kind, source, target = KINDS[link.kind], link.source, link.target
    layout = working_layout(kind, source, target)
    if is_direct(link):
        return kind.build(layout, source.channels, target.channels)
    channels = channels_read(link)
    if layout is Layout.VECTOR:  # [SF]: the mean over all positions
        adapter = kind.build(layout, channels, target.channels)
        return nn.Sequential(ToImage(source), Average(), adapter, FromLayout(layout, target))
    steps: list[nn.Module] = []
    for size, channels_out in _chain(kind, channels, target.channels, source.grid, target.grid):
        steps += [Resize(size)] if layout is Layout.IMAGE else [Resize(size), FlattenImage()]
        steps.append(kind.build(layout, channels, channels_out))
        channels = channels_out
    return nn.Sequential(ToImage(source), *steps, FromLayout(layout, target))


def _chain(
    kind: Kind, channels_in: int, channels_out: int, size_in: tuple[int, int], size_out: tuple[int, int]
) -> list[tuple[tuple[int, int], int]]:
    """[T]: sizes and channels of the adapters that bridge a gap, one per scale, each half or twice the one before."""
    scales = round(abs(math.log2(size_in[0] / size_out[0])))
    steps = max(1, scales) if Layout.IMAGE in kind.layouts and not kind.affine else 1

    def between(first: int, last: int, i: int) -> int:
        if i == steps:
            return last
        return min(first * 2**i, last) if first < last else max(first // 2**i, last)

    (h_in, w_in), (h_out, w_out) = size_in, size_out
    return [
        ((between(h_in, h_out, i), between(w_in, w_out, i)), between(channels_in, channels_out, i))
        for i in range(1, steps + 1)
    ]
