"""Kinds of stitches: small modules that turn one tap's tensor into another's."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from .layout import Layout
from .network import Tap


@dataclass(frozen=True)
class Kind:
    """What a stitch is made of: whether one can lead from a tap to another, and a new, unfitted module that does."""

    applies: Callable[[Tap, Tap], bool]
    build: Callable[[Tap, Tap], nn.Module]


def _same_positions(source: Tap, target: Tap) -> bool:
    """[G]: both vectors, or both images of one height and width; the same for the other layouts."""
    return source.layout is target.layout and source.positions == target.positions


def _linear(source: Tap, target: Tap) -> nn.Module:
    if source.layout is Layout.IMAGE:
        return nn.Conv2d(source.channels, target.channels, kernel_size=1)
    return nn.Linear(source.channels, target.channels)


KINDS: dict[str, Kind] = {"linear": Kind(_same_positions, _linear)}
"""The kinds by name. `linear` is one affine map of the channels at every position: a 1×1 convolution on images, a
linear layer elsewhere, with bias."""


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
