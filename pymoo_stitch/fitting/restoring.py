"""Restores the variance that least squares takes away."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional as F

from .execution import Execution

if TYPE_CHECKING:
    from ..supernet import Subnetwork

DEGREES = (0.0, 0.5, 1.0)
"""What is tried where the degree is to be chosen."""
LEAST = 1e-4
"""The smallest R² that is used."""
PRIOR = 32
"""A channel's R² is drawn towards that of the whole stitch, as if by this many more rows."""


def adapter_of(stitch: nn.Module) -> Any:
    """The affine map itself: the module before the conversion to the target's layout."""
    return stitch[-2] if isinstance(stitch, nn.Sequential) else stitch


def remaining_variance(given: torch.Tensor, expected: torch.Tensor, centred: bool = True) -> torch.Tensor:
    """For each channel R², the fraction of the variance of what was expected that is left in what was given, rows
    [n, D]; at least `LEAST`, at most 1, and 1 where nothing varies. Without `centred` the mean square takes the place
    of the variance."""
    left, whole = (
        (rows - rows.mean(0) if centred else rows).square().mean(0, dtype=torch.float64) for rows in (given, expected)
    )
    live = whole > 1e-12 * whole.max()
    overall = (left[live].sum() / whole[live].sum()) if live.any() else whole.new_ones(())
    ratio = torch.where(live, left / whole, overall)
    ratio = (len(given) * ratio + PRIOR * overall) / (len(given) + PRIOR)
    return torch.where(live, ratio.clamp(LEAST, 1), 1)


class Restoration:
    """Stitches whose outputs are scaled around their means, channel by channel, by R²^(−degree/2), to any degree and
    back.

    :param fitted: for each name of a stitch R² and the mean output, both [D].
    """

    def __init__(self, stitches: nn.ModuleDict, fitted: Mapping[str, tuple[torch.Tensor, torch.Tensor]]):
        self.degree, self.stitches = 0.0, stitches
        self._fitted = [(adapter_of(stitches[name]), *values) for name, values in fitted.items()]

    @torch.no_grad()
    def restore(self, degree: float) -> None:
        """Scale from the present degree to another."""
        for adapter, remaining, mean in self._fitted:
            scale = (remaining ** ((self.degree - degree) / 2)).to(adapter.weight.dtype)
            adapter.weight *= scale.view(-1, *[1] * (adapter.weight.ndim - 1))
            if adapter.bias is not None:
                mean = mean.to(adapter.bias.dtype)
                adapter.bias.copy_(mean + scale * (adapter.bias - mean))
        self.degree = degree

    @torch.no_grad()
    def choose(
        self, execution: Execution, subnetworks: "Sequence[Subnetwork]", batches: Sequence[torch.Tensor]
    ) -> None:
        """Restore to the degree with which subnetworks come nearest to the ensemble on batches of images; without
        subnetworks, or where all are equally far, to degree 1."""
        supernet = execution.supernet
        ensemble = supernet.subnetwork(list(supernet.references.values())[-1])
        expected = [execution.run(ensemble, batch, self.stitches) for batch in batches]
        before = [[execution.before_stitches(each, batch) for batch in batches] for each in subnetworks]
        best, least = DEGREES[-1], math.inf
        for degree in reversed(DEGREES) if subnetworks else ():
            self.restore(degree)
            found = [
                len(batch) * distance(execution.run(each, batch, self.stitches, known), scores)
                for each, parts in zip(subnetworks, before, strict=True)
                for batch, known, scores in zip(batches, parts, expected, strict=True)
            ]
            far = torch.stack(found).sum().nan_to_num(math.inf).item()
            if far >= least and math.isfinite(least):
                break  # it falls with the degree, then rises
            best, least = degree, far
        self.restore(best)


def distance(output: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """How far class scores are from others, whatever their scale: the mean divergence of class probabilities after each
    image's scores are scaled to vary over classes as those expected do. (Else divergence would prefer whatever is less
    sure.) Of a single score, the mean squared difference."""
    if output.shape[1] == 1:
        return (output - expected).square().mean()
    spread, wanted = (scores.std(1, keepdim=True) for scores in (output, expected))
    return divergence(output * (wanted / spread.clamp_min(torch.finfo(spread.dtype).tiny)), expected)


def divergence(output: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """The mean Kullback–Leibler divergence of class probabilities, classes in the second dimension."""
    terms = F.kl_div(output.log_softmax(1), expected.log_softmax(1), log_target=True, reduction="none")
    return terms.sum(1).mean()
