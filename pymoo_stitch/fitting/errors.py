"""What fitted stitches miss on images kept back."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from ..network import Layout, Tap
from ..stitches import Modules
from ._batches import Data
from .execution import Execution

if TYPE_CHECKING:
    from ..supernet import Supernet


def check_finite(tensor: torch.Tensor, tap: Tap) -> None:
    if not tensor.sum().isfinite():
        raise ValueError(
            f"the tap {tap} has NaN or infinite values for the images given, so that no stitch at it can be fitted. "
            "Are they normalised as the network expects?"
        )


def learns(stitch: nn.Module) -> bool:
    """Whether there is anything in a stitch to fit."""
    return next(stitch.parameters(), None) is not None


def held_out_errors(supernet: "Supernet", execution: Execution, data: "Data", stitches: Modules) -> dict[str, float]:
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
        errors.setdefault(supernet.links[number].stitch, []).append(_relative(squares, variance, power, count))
    return {name: float(np.mean(values)) for name, values in errors.items()}


def relative_error(given: torch.Tensor, expected: torch.Tensor) -> float:
    """The mean squared error over the variance of what was expected, of rows [n, channels]."""
    all_rows = given - expected, expected - expected.mean(0), expected
    squares, variance, power = (rows.square().sum(dtype=torch.float64).item() for rows in all_rows)
    return _relative(squares, variance, power, len(expected))


def _relative(squares: float, variance: float, power: float, count: int) -> float:
    exact = squares <= 1e-12 * (power + count)  # of a tap that does not vary
    return squares / variance if variance > 1e-12 * power else 0.0 if exact else math.inf


def _channels_last(tensor: torch.Tensor, tap: Tap) -> torch.Tensor:
    """All positions of all images as rows of channels."""
    return (tensor.movedim(1, -1) if tap.layout is Layout.IMAGE else tensor).reshape(-1, tap.channels)
