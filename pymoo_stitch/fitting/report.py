"""How good fitted stitches are."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from ..network import Layout, Tap
from ._batches import Data
from .execution import Execution

if TYPE_CHECKING:
    from ..supernet import Supernet


@dataclass(frozen=True)
class FitReport:
    """`errors` is the relative error of each stitch on held-out images: its mean squared error over the variance of
    what it should give. 0 is perfect, 1 no better than the mean, infinite if it misses a constant."""

    method: str
    errors: dict[str, float]
    samples: int
    seconds: float
    losses: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        values = np.array([value for value in self.errors.values() if math.isfinite(value)])
        lines = [f"{self.method}: {len(self.errors)} stitches on {self.samples:,} samples in {self.seconds:.1f} s"]
        if len(values):
            quartiles = " ".join(f"{value:.3g}" for value in np.quantile(values, [0, 0.25, 0.5, 0.75, 1]))
            worst = sorted(self.errors, key=self.errors.get, reverse=True)[:3]
            lines.append(f"relative error on held-out images: {quartiles} (least, quartiles, largest)")
            lines.append("largest: " + ", ".join(f"{name} {self.errors[name]:.3g}" for name in worst))
        if self.losses:
            part = max(1, len(self.losses) // 8)
            first, last = np.mean(self.losses[:part]), np.mean(self.losses[-part:])
            lines.append(f"loss: {first:.4g} in the first eighth of {len(self.losses):,} steps, {last:.4g} in the last")
        return "\n".join(lines)


def check_finite(tensor: torch.Tensor, tap: Tap) -> None:
    if not tensor.sum().isfinite():
        raise ValueError(
            f"the tap {tap} has NaN or infinite values for the images given, so that no stitch at it can be fitted. "
            "Are they normalised as the network expects?"
        )


def learns(stitch: nn.Module) -> bool:
    """Whether there is anything in a stitch to fit."""
    return next(stitch.parameters(), None) is not None


def held_out_errors(
    supernet: "Supernet", execution: Execution, data: "Data", stitches: Mapping[str, nn.Module]
) -> dict[str, float]:
    """The relative error of each stitch on images that were kept from fitting; the mean over links that share one."""
    sums: dict[int, list[Any]] = {}
    for batch in data.held_out.split(data.batch_size):
        for number, source, target in execution.taps(batch.to(execution.device)):
            link = supernet.links[number]
            if link.stitch not in stitches or not learns(stitches[link.stitch]):
                continue
            check_finite(source, link.source)
            check_finite(target, link.target)
            with torch.no_grad():
                given = stitches[link.stitch].to(execution.device)(source)
            difference, truth = (_channels_last(tensor, link.target).double() for tensor in (given - target, target))
            new = difference.square().sum().item(), truth.square().sum().item(), truth.sum(0), len(truth)
            sums[number] = [a + b for a, b in zip(sums[number], new, strict=True)] if number in sums else list(new)
    errors: dict[str, list[float]] = {}
    for number, (squares, power, totals, count) in sums.items():
        variance = power - (totals.square().sum() / count).item()
        exact = squares <= 1e-12 * (power + count)  # of a tap that does not vary
        error = squares / variance if variance > 1e-12 * power else 0.0 if exact else math.inf
        errors.setdefault(supernet.links[number].stitch, []).append(error)
    return {name: float(np.mean(values)) for name, values in errors.items()}


def _channels_last(tensor: torch.Tensor, tap: Tap) -> torch.Tensor:
    """All positions of all images as rows of channels."""
    return (tensor.movedim(1, -1) if tap.layout is Layout.IMAGE else tensor).reshape(-1, tap.channels)
