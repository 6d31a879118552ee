"""Stitches: small modules that turn one tap's tensor into another's.

A kind says what a stitch is made of. It works on one layout and leaves the positions as they are; whatever else lies
between two taps, another layout or another size, is bridged around it here, once for all kinds."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from .layout import Layout
from .network import Tap

TOKENS = frozenset({Layout.TOKENS, Layout.CLASS_TOKENS})


@dataclass(frozen=True)
class Kind:
    """What a stitch is made of.

    `build(layout, channels_in, channels_out)` gives a new, unfitted module for tensors of one of `layouts`. `affine`: it
    is one affine map of the channels, the same at every position, in a convolution or linear layer; then least squares can
    fit it, one is enough to bridge any gap, and it leads from an image to a vector too. `keeps`: it gives as many channels
    as it takes, and joins no taps with different ones."""

    build: Callable[[Layout, int, int], nn.Module]
    layouts: frozenset[Layout] = frozenset(Layout)
    affine: bool = False
    keeps: bool = False


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
    """How many channels the module of a link's kind gets: a class token that is joined to every position doubles them."""
    return _channels_read(KINDS[link.kind], link.source, link.target)


def _channels_read(kind: Kind, source: Tap, target: Tap) -> int:
    joined = source.layout is Layout.CLASS_TOKENS and not _is_direct(kind, source, target)
    return source.channels * (2 if joined else 1)


def build_stitch(link: Link) -> nn.Module:
    """A new, unfitted stitch for a link: the kind's own module, with whatever is needed around it. It writes over
    nothing: others read the tap as well."""
    stitch = _assemble(link)
    for part in stitch.modules():
        if getattr(part, "inplace", False):
            part.inplace = False
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
    steps = []
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


# ---------------------------------------------------------------------------------------------------------- conversions


def as_image(x: torch.Tensor, tap: Tap) -> torch.Tensor:
    """The positions of a tap's tensor as B C H W, without its class token."""
    if tap.layout is Layout.IMAGE:
        return x
    if tap.layout is Layout.IMAGE_LAST:
        return x.permute(0, 3, 1, 2)
    return x[:, x.shape[1] - math.prod(tap.grid) :].transpose(1, 2).unflatten(2, tap.grid)


class ToImage(nn.Module):
    """Any layout with positions as B C H W. [T]: a class token is joined to every position, which doubles the channels."""

    def __init__(self, tap: Tap):
        super().__init__()
        self.tap = tap

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        image = as_image(x, self.tap)
        if self.tap.layout is not Layout.CLASS_TOKENS:
            return image
        return torch.cat([image, x[:, 0, :, None, None].expand_as(image)], 1)


class FlattenImage(nn.Module):
    """B C H W as tokens."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.flatten(2).transpose(1, 2)


class Average(nn.Module):
    """B C H W as a vector: the mean over all positions."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean((2, 3))


class FromLayout(nn.Module):
    """From the working layout, an image, tokens or a vector, to the layout of a tap of the same size. [T]: a class token is the
    mean of the others."""

    def __init__(self, working: Layout, tap: Tap):
        super().__init__()
        self.working, self.layout = working, tap.layout
        self.extra = tap.positions[0] - math.prod(tap.grid) if tap.layout is Layout.CLASS_TOKENS else 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.working is Layout.IMAGE:
            if self.layout is Layout.IMAGE:
                return x
            if self.layout is Layout.IMAGE_LAST:
                return x.permute(0, 2, 3, 1)
            x = x.flatten(2).transpose(1, 2)
        return torch.cat([x.mean(1, keepdim=True).expand(-1, self.extra, -1), x], 1) if self.extra else x


class Resize(nn.Module):
    """Bilinear, to a fixed size."""

    def __init__(self, size: tuple[int, int]):
        super().__init__()
        self.size = tuple(size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[-2:] == self.size:
            return x
        return F.interpolate(x, size=self.size, mode="bilinear", align_corners=False)

    def extra_repr(self) -> str:
        return f"{self.size}"


# ---------------------------------------------------------------------------------------------------------------- kinds


def _linear(layout: Layout, channels_in: int, channels_out: int, bias: bool = True) -> nn.Module:
    if layout is Layout.IMAGE:
        return nn.Conv2d(channels_in, channels_out, kernel_size=1, bias=bias)
    return nn.Linear(channels_in, channels_out, bias=bias)


def _matrix(layout: Layout, channels_in: int, channels_out: int) -> nn.Module:
    return _linear(layout, channels_in, channels_out, bias=False)


def _linear_relu(layout: Layout, channels_in: int, channels_out: int) -> nn.Module:
    norm = nn.BatchNorm2d if layout is Layout.IMAGE else nn.LayerNorm
    linear = _linear(layout, channels_in, channels_out)
    return nn.Sequential(norm(channels_in), linear, norm(channels_out), nn.ReLU())


def _conv3x3(layout: Layout, channels_in: int, channels_out: int) -> nn.Module:
    conv = nn.Conv2d(channels_in, channels_out, kernel_size=3, padding=1)
    return nn.Sequential(nn.BatchNorm2d(channels_in), conv, nn.BatchNorm2d(channels_out), nn.ReLU())


class Bottleneck(nn.Module):
    """As in a ResNet, with a quarter of the outgoing channels inside; without a residual at first (γ = 0)."""

    def __init__(self, channels_in: int, channels_out: int):
        super().__init__()
        inner = max(1, channels_out // 4)

        def conv(c_in: int, c_out: int, size: int) -> list[nn.Module]:
            return [nn.Conv2d(c_in, c_out, size, padding=size // 2, bias=False), nn.BatchNorm2d(c_out)]

        first, second = conv(channels_in, inner, 1), conv(inner, inner, 3)
        self.residual = nn.Sequential(*first, nn.ReLU(), *second, nn.ReLU(), *conv(inner, channels_out, 1))
        nn.init.zeros_(self.residual[-1].weight)
        self.shortcut = nn.Sequential(*(conv(channels_in, channels_out, 1) if channels_in != channels_out else []))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.shortcut(x) + self.residual(x))


class TransformerBlock(nn.Module):
    """Attention with six heads, or as many as divide the channels, and a perceptron four times as wide; before them a
    linear layer where the channels differ."""

    def __init__(self, channels_in: int, channels_out: int):
        super().__init__()
        self.project = nn.Identity() if channels_in == channels_out else nn.Linear(channels_in, channels_out)
        self.heads = next(heads for heads in (6, 5, 4, 3, 2, 1) if channels_out % heads == 0)
        self.norm1, self.norm2 = nn.LayerNorm(channels_out), nn.LayerNorm(channels_out)
        self.qkv, self.out = nn.Linear(channels_out, 3 * channels_out), nn.Linear(channels_out, channels_out)
        self.mlp = nn.Sequential(
            nn.Linear(channels_out, 4 * channels_out), nn.GELU(), nn.Linear(4 * channels_out, channels_out)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.project(x)
        q, k, v = self.qkv(self.norm1(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


KINDS: dict[str, Kind] = {
    "linear": Kind(_linear, affine=True),
    "matrix": Kind(_matrix, affine=True),
    "linear+relu": Kind(_linear_relu),
    "conv3x3": Kind(_conv3x3, frozenset({Layout.IMAGE})),
    "bottleneck": Kind(lambda layout, c_in, c_out: Bottleneck(c_in, c_out), frozenset({Layout.IMAGE})),
    "transformer": Kind(lambda layout, c_in, c_out: TransformerBlock(c_in, c_out), TOKENS),
    "identity": Kind(lambda layout, c_in, c_out: nn.Identity(), keeps=True),
}
"""The kinds by name; yours are added as `KINDS["name"] = Kind(build, layouts)`. `linear` ([G]) is one affine map of the
channels at every position, `matrix` ([SF]) the same without bias; `identity` leaves the values as they are, has nothing
to fit and joins equal channels only; the others are those of [T], with normalisation before and behind."""
