"""Kinds: what stitches, the small modules that turn one tap's tensor into another's, are made of."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from ..network import Layout

TOKENS = frozenset({Layout.TOKENS, Layout.CLASS_TOKENS})


@dataclass(frozen=True)
class Kind:
    """What a stitch is made of.

    `build(layout, channels_in, channels_out)` returns a new, unfitted module for tensors of one of `layouts`. `affine`:
    it is one affine map of the channels, the same at every position, in a convolution or linear layer; then least
    squares can fit it, one is enough to bridge any gap, and it leads from an image to a vector too. `keeps`: it
    returns as many channels as it takes, and joins only taps with equal ones."""

    build: Callable[[Layout, int, int], nn.Module]
    layouts: frozenset[Layout] = frozenset(Layout)
    affine: bool = False
    keeps: bool = False


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
    """As in a ResNet, with a quarter of the outgoing channels inside; with a residual of 0 at first (γ = 0)."""

    def __init__(self, channels_in: int, channels_out: int):
        super().__init__()
        inner = max(1, channels_out // 4)

        def conv(c_in: int, c_out: int, size: int) -> list[nn.Module]:
            return [nn.Conv2d(c_in, c_out, size, padding=size // 2, bias=False), nn.BatchNorm2d(c_out)]

        first, second = conv(channels_in, inner, 1), conv(inner, inner, 3)
        self.residual = nn.Sequential(*first, nn.ReLU(), *second, nn.ReLU(), *conv(inner, channels_out, 1))
        nn.init.zeros_(self.residual[-1].weight)  # type: ignore[arg-type]  # that of a batch norm
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
to fit and joins equal channels only; the others are those of [T], with normalisation before and after."""
