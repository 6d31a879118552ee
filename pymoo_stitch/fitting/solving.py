"""Least squares itself: the affine map of least squared error."""

import torch


def solve_sums(
    n: int,
    x: torch.Tensor,
    y: torch.Tensor,
    xx: torch.Tensor,
    xy: torch.Tensor,
    ridge: float,
    centred: bool = True,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Weight and bias of the affine map of least squared error, from sums over n samples; without `centred` the bias is
    0."""
    mean_x, mean_y = (x / n, y / n) if centred else (torch.zeros_like(x), torch.zeros_like(y))
    covariance = xx / n - torch.outer(mean_x, mean_x)
    shared = xy / n - torch.outer(mean_x, mean_y)
    penalty = _penalty(covariance.diagonal().clamp_min(0).mean(), ridge)
    solution = _solve_positive(covariance, shared, penalty)
    return solution.T, mean_y - solution.T @ mean_x


def solve_rows(
    x: torch.Tensor, y: torch.Tensor, ridge: float = 1e-6, centred: bool = True
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same from the samples themselves, rows of x [n, C] and y [n, D], by the smaller of two systems: C×C, or n×n where
    there are fewer samples than channels."""
    n, channels = x.shape
    if channels <= n:
        return solve_sums(n, x.sum(0), y.sum(0), x.T @ x, x.T @ y, ridge, centred)
    mean_x, mean_y = (x.mean(0), y.mean(0)) if centred else (x.new_zeros(channels), y.new_zeros(y.shape[1]))
    x, y = x - mean_x, y - mean_y
    kernel = x @ x.T / n
    penalty = _penalty(kernel.diagonal().sum() / channels, ridge)
    weight = (x.T @ _solve_positive(kernel, y / n, penalty)).T
    return weight, mean_y - weight @ mean_x


def solve_factors(
    x: torch.Tensor, y: torch.Tensor, ridge: float = 1e-6, centred: bool = True
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The same weight [D, C], never written down: the product of the second factor [D, n] and the first [n, C], whose rows
    are orthonormal, for fewer samples n than channels; and the bias."""
    n, channels = x.shape
    mean_x, mean_y = (x.mean(0), y.mean(0)) if centred else (x.new_zeros(channels), y.new_zeros(y.shape[1]))
    left, scales, down = torch.linalg.svd(x - mean_x, full_matrices=False)
    penalty = n * _penalty(scales.square().sum() / n / channels, ridge)
    up = (y - mean_y).T @ left * (scales / (scales.square() + penalty))
    return down, up, mean_y - up @ (down @ mean_x)


def _penalty(variance: torch.Tensor, ridge: float) -> torch.Tensor:
    """Never nothing: directions that do not vary would be divided by rounding errors."""
    return torch.where(variance > 0, max(ridge, 1e-12) * variance, torch.ones_like(variance))


def _solve_positive(matrix: torch.Tensor, right: torch.Tensor, penalty: torch.Tensor) -> torch.Tensor:
    """(matrix + penalty)⁻¹ right, of a matrix that is positive up to rounding."""
    for _ in range(8):
        factor, failed = torch.linalg.cholesky_ex(
            matrix + penalty * torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)
        )
        if not failed:
            break
        penalty = penalty * 10  # rounding has made a variance negative: a tap with nearly dependent channels
    else:
        raise ValueError(
            "the channels of a tap depend on each other so much that no stitch can be fitted: raise ridge."
        )
    return torch.cholesky_solve(right, factor)
