"""The images that networks take."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .network import Network


def as_floats(images: torch.Tensor) -> torch.Tensor:
    """Bytes as floats in [0, 1]; floats as they are."""
    return images.float() / 255 if images.dtype is torch.uint8 else images


def are_unit_images(images: torch.Tensor) -> bool:
    """Whether images are in [0, 1], as bytes always are. Resizing may overshoot a little."""
    return images.dtype is torch.uint8 or bool(images.min() >= -0.01 and images.max() <= 1.01)


@dataclass(frozen=True)
class ImageLimits:
    """The images that networks take: of this `shape`, and, if the networks normalise them themselves, `in_unit`, in [0,
    1]."""

    shape: tuple[int, ...]
    in_unit: bool

    @classmethod
    def of(cls, networks: Sequence[Network]) -> "ImageLimits":
        return cls(networks[0].input_shape, all(network.takes_unit_images for network in networks))

    def broken_by(self, images: Any) -> str | None:
        """Why the networks cannot take a batch of images, as the end of a sentence; None if they can."""
        if not isinstance(images, torch.Tensor):
            return f"is a {type(images).__name__}, not a tensor of images."
        if images.dtype not in (torch.float32, torch.uint8):
            return f"has images of {images.dtype}; give float32 (`.float()`) or uint8."
        if tuple(images.shape[1:]) != self.shape:
            return (
                f"has images of shape {tuple(images.shape[1:])}, but the networks were imported for {self.shape}. "
                "Resize and crop the images, or import the networks with an example of their size."
            )
        if not len(images):
            return "has no images."
        least, most = images.min().item(), images.max().item()
        if not math.isfinite(least + most):
            return "has images with NaN or infinite values."
        if self.in_unit and not are_unit_images(images):
            return (
                f"has images with values from {least:.3g} to {most:.3g}, but the networks take images in [0, 1] and "
                "normalise them themselves."
            )
        return None
