"""Least squares itself: the affine map of least squared error."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

RIDGES = (1e-6, 1e-3, 1e-2, 1e-1)
"""What is tried where the ridge is to be chosen."""
TRIED = 64
"""A ridge is chosen by at most this many output channels."""
AMPLE = 100
"""With this many samples per channel the smallest ridge is as good as any."""
SAFE = 1e-2
"""From this ridge on, what is added to the variances is far above the rounding errors of products in float32."""
BLOCK = 256


class Equations(ABC):
    """What the weight of least squared error solves, for n samples of x [C] and y [D]: a positive matrix with some
    penalty, whose factors are kept for the next call.

    :param variance: the mean variance of the channels of x; a ridge is a fraction of it.
    """

    def __init__(self, n: int, channels: int, variance: torch.Tensor):
        self.n, self.channels, self._variance = n, channels, variance
        self._factors: dict[float, torch.Tensor] = {}

    @abstractmethod
    def weight(self, ridge: float, outputs: slice = slice(None)) -> torch.Tensor:
        """The weight for some of the outputs, [D, C]."""

    @abstractmethod
    def _matrix(self, dtype: torch.dtype) -> torch.Tensor:
        """Its lower triangle."""

    def _solve(self, rows: torch.Tensor, ridge: float) -> torch.Tensor:
        """The rows times the inverse of the matrix with its penalty. (Triangular systems with rows on the left take
        two thirds of the time of columns on the right.)"""
        if ridge not in self._factors:
            self._factors[ridge] = _factor(self._matrix(rows.dtype), _penalty(self._variance, ridge))
        factor = self._factors[ridge]
        half = torch.linalg.solve_triangular(factor.T, rows, upper=True, left=False)
        return torch.linalg.solve_triangular(factor, half, upper=False, left=False)


class NormalEquations(Equations):
    """C×C, from the second moments of x and of x with y."""

    def __init__(self, n: int, xx: torch.Tensor, xy: torch.Tensor):
        super().__init__(n, len(xx), xx.diagonal().clamp_min(0).mean())
        self._xx, self._xy = xx, xy

    def weight(self, ridge: float, outputs: slice = slice(None)) -> torch.Tensor:
        return self._solve(self._xy[:, outputs].T, ridge)

    def _matrix(self, dtype: torch.dtype) -> torch.Tensor:
        return self._xx


class RowEquations(Equations):
    """From the samples themselves, rows of x [n, C] and y [n, D]: the smaller of two systems, C×C, or n×n where there
    are fewer samples than channels. Where the ridge is below `SAFE`, in float64."""

    def __init__(self, x: torch.Tensor, y: torch.Tensor):
        super().__init__(x.shape[0], x.shape[1], x.square().mean(dtype=torch.float64))
        self._x, self._y = x, y
        self._matrices: dict[torch.dtype, torch.Tensor] = {}

    def weight(self, ridge: float, outputs: slice = slice(None)) -> torch.Tensor:
        dtype = self._x.dtype if ridge >= SAFE else torch.float64
        x, y = self._x.to(dtype), self._y[:, outputs].to(dtype) / self.n
        return self._solve(y.T, ridge) @ x if self.n < self.channels else self._solve(y.T @ x, ridge)

    def _matrix(self, dtype: torch.dtype) -> torch.Tensor:
        if dtype not in self._matrices:
            x = self._x.to(dtype)
            self._matrices[dtype] = _gram(x if self.n < self.channels else x.T) / self.n
        return self._matrices[dtype]


@dataclass(frozen=True)
class Moments:
    """Means of x [C] and y [D] over n samples, and the mean products of what deviates from them, [C, C] and [C, D]."""

    n: int
    mean_x: torch.Tensor
    mean_y: torch.Tensor
    xx: torch.Tensor
    xy: torch.Tensor

    def equations(self, centred: bool = True) -> NormalEquations:
        """Without `centred`, those of a map without bias."""
        if centred:
            return NormalEquations(self.n, self.xx, self.xy)
        x, y = self.mean_x, self.mean_y
        return NormalEquations(self.n, self.xx + torch.outer(x, x), self.xy + torch.outer(x, y))


def pool(parts: Sequence[Moments]) -> Moments:
    """The moments of all samples together."""
    if len(parts) == 1:
        return parts[0]
    n = sum(part.n for part in parts)
    mean_x: Any = sum(part.mean_x * part.n for part in parts) / n
    mean_y: Any = sum(part.mean_y * part.n for part in parts) / n
    xx, xy = torch.zeros_like(parts[0].xx), torch.zeros_like(parts[0].xy)
    for part in parts:
        x, y = part.mean_x - mean_x, part.mean_y - mean_y
        xx += part.n / n * (part.xx + torch.outer(x, x))
        xy += part.n / n * (part.xy + torch.outer(x, y))
    return Moments(n, mean_x, mean_y, xx, xy)


def choose_ridge(equations: Equations, x: torch.Tensor, y: torch.Tensor) -> float:
    """The ridge with the smallest error on samples kept back, rows of x [m, C] and y [m, D], deviations from the
    means that the equations were made with. Where there are plenty of samples it is the smallest."""
    if equations.n >= AMPLE * equations.channels:
        return RIDGES[0]
    outputs = slice(None, None, -(-y.shape[1] // TRIED))
    best, least = RIDGES[-1], math.inf
    for ridge in reversed(RIDGES):
        weight = equations.weight(ridge, outputs).to(x.dtype)
        missed = (x @ weight.T - y[:, outputs]).square().sum().item()
        if missed > least:
            break  # the error falls with the ridge, then rises
        best, least = ridge, missed
    return best


def solve_rows(
    x: torch.Tensor, y: torch.Tensor, ridge: float = 1e-6, centred: bool = True
) -> tuple[torch.Tensor, torch.Tensor]:
    """Weight and bias of the affine map of least squared error for rows of x [n, C] and y [n, D], by the smaller of two
    systems: C×C, or n×n where there are fewer samples than channels. Without `centred` the bias is 0."""
    mean_x, mean_y = (x.mean(0), y.mean(0)) if centred else (x.new_zeros(x.shape[1]), y.new_zeros(y.shape[1]))
    weight = RowEquations(x - mean_x, y - mean_y).weight(ridge)
    return weight, mean_y - weight @ mean_x


def solve_factors(
    x: torch.Tensor, y: torch.Tensor, ridge: float = 1e-6, centred: bool = True
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The same weight [D, C], never written down: the product of the second factor [D, n] and the first [n, C], whose
    rows are orthonormal, for fewer samples n than channels; and the bias."""
    n, channels = x.shape
    mean_x, mean_y = (x.mean(0), y.mean(0)) if centred else (x.new_zeros(channels), y.new_zeros(y.shape[1]))
    left, scales, down = torch.linalg.svd(x - mean_x, full_matrices=False)
    penalty = n * _penalty(scales.square().sum() / n / channels, ridge)
    up = (y - mean_y).T @ left * (scales / (scales.square() + penalty))
    return down, up, mean_y - up @ (down @ mean_x)


def _penalty(variance: torch.Tensor, ridge: float) -> torch.Tensor:
    """Never 0: otherwise directions that do not vary would be divided by rounding errors."""
    return torch.where(variance > 0, max(ridge, 1e-12) * variance, torch.ones_like(variance))


def _gram(rows: torch.Tensor) -> torch.Tensor:
    """The products of all rows with one another, of which blocks above the diagonal are left out."""
    products = rows.new_zeros(len(rows), len(rows))
    for at in range(0, len(rows), BLOCK):
        to = min(at + BLOCK, len(rows))
        torch.mm(rows[at:to], rows[:to].T, out=products[at:to, :to])
    return products


def _factor(matrix: torch.Tensor, penalty: torch.Tensor) -> torch.Tensor:
    """The Cholesky factor of matrix + penalty, of a matrix that is positive up to rounding."""
    for _ in range(8):
        penalised = matrix.clone()
        penalised.diagonal().add_(penalty)
        factor, failed = torch.linalg.cholesky_ex(penalised)
        if not failed:
            return factor
        penalty = penalty * 10  # rounding has made a variance negative: a tap with nearly dependent channels
    raise ValueError("the channels of a tap depend on each other so much that no stitch can be fitted: raise ridge.")
