"""From one layout or size to another, without weights."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from ..network import Layout, Tap

# ---------------------------------------------------------------------------------------------------------- conversions


def as_image(x: torch.Tensor, tap: Tap) -> torch.Tensor:
    """The positions of a tap's tensor as B C H W, without its class token."""
    if tap.layout is Layout.IMAGE:
        return x
    if tap.layout is Layout.IMAGE_LAST:
        return x.permute(0, 3, 1, 2)
    return x[:, x.shape[1] - math.prod(tap.grid) :].transpose(1, 2).unflatten(2, tap.grid)


class ToImage(nn.Module):
    """Any layout with positions as B C H W. [T]: a class token is joined to every position, which doubles the
    channels."""

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
    """From the working layout, an image, tokens or a vector, to the layout of a tap of the same size. [T]: a class
    token is the mean of the others."""

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
