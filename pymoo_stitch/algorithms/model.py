"""A model of the error: predicts the errors of genotypes that were not evaluated from those that were."""

import copy
from collections.abc import Iterable
from contextlib import AbstractContextManager
from functools import cache
from itertools import product
from typing import Any

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.stats import norm
from threadpoolctl import ThreadpoolController

LEAST = 50
"""Evaluations before the first prediction."""

LENGTHS = (4.0, 12.0, 36.0, 108.0)
"""Decisions over which correlation may fall to 1/e."""

SLOPES = (1.0, 10.0, 100.0, 1000.0)
"""Variances that the sum of the effects of n_var decisions may have, where that of their interactions is 1."""

LEVEL = 100.0
"""The variance of the level, in the same units: almost nothing is known of it."""

NOISE = 1e-3
"""The variance that is due to no decision, in the same units."""

ESTIMATE_NOISE = 0.1
"""The same of an evaluation that stopped early, whose error is an estimate."""

POINTS = 600
"""Evaluations that the model holds: half of them the newest, half those of least error among the others."""

QUANTILES = norm.ppf((np.arange(7) + 0.5) / 7)
"""Equally likely deviations from what is predicted, in standard deviations of the logarithm."""

OFFSET = 0.01
"""Added to errors before their logarithm is taken."""


class ErrorModel:
    """Predicts errors, mean and spread, from the decisions that matter in a genotype.

    The logarithm of (error + 0.01) is a Gaussian process over the bits x∧active and active∧¬x. Its covariance is that
    of a level, of an effect of each decision, and of their interactions: level + slope · (bits in common / n_var) +
    exp(−Hamming distance / length). All three are fitted together: few evaluations would be explained by the
    effects of so many decisions alone, and predictions from these would look far surer than they are.

    It is fitted again when there are ten evaluations more, or a fortieth; length and slope are chosen by likelihood
    when there are half as many more. All of that depends on the evaluations alone, not on when predictions are asked
    for: a model that is given the same evaluations at once makes the same predictions.

    :param n_var: the number of variables of a genotype.
    """

    def __init__(self, n_var: int):
        self.n_var = n_var
        self._n = 0
        self._bits = np.empty((0, -(-2 * n_var // 8)), dtype=np.uint8)  # packed; these three have room for more rows
        self._targets = np.empty(0)
        self._noises = np.empty(0)
        self._fitted = self._tuned = 0  # evaluations that the fit, and the choice of length and slope, are based on
        self._length, self._slope = LENGTHS[0], SLOPES[0]
        # The bits of the points and how many are 1, the factor of their covariance and its diagonal, the coefficients
        # of the covariances with them, and how large a variance of 1 really is.
        self._points = np.empty((0, 2 * n_var), dtype=np.float32)
        self._ones = np.empty(0, dtype=np.float32)
        self._factor, self._own = np.empty((0, 0)), np.empty(0)
        self._coefficients = np.empty(0)
        self._variance = 0.0

    def __len__(self) -> int:
        """The evaluations it has learned from."""
        return self._n

    @property
    def is_ready(self) -> bool:
        """Whether it knows enough to predict anything."""
        return self._n >= LEAST

    def add(self, x: np.ndarray, active: np.ndarray, error: float, noise: float = NOISE) -> None:
        """Learn from an evaluation.

        :param x: the genotype (n_var,), bool.
        :param active: the mask (n_var,) of the variables that matter in it.
        :param error: at least 0.
        :param noise: `NOISE`, or more if the error is not sure.
        """
        if error < 0:
            raise ValueError(
                f"the model predicts errors of at least 0, but the second objective is {error}. Use screen=None."
            )
        if self._n == len(self._targets):
            room = max(256, self._n)
            self._bits = np.vstack([self._bits, np.empty((room, self._bits.shape[1]), dtype=np.uint8)])
            self._targets, self._noises = (np.append(v, np.empty(room)) for v in (self._targets, self._noises))
        self._bits[self._n] = np.packbits(_decisions(x[None], active[None])[0])
        self._targets[self._n], self._noises[self._n] = np.log(error + OFFSET), noise
        self._n += 1

    def mean(self, X: np.ndarray, active: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The errors (m,) to be expected of genotypes (m, n_var) with these masks (m, n_var), and what their spreads
        (m,) are at most: what is left of each if only the one evaluation were known that explains most of it."""
        with _one_thread():
            self._fit()
            covariances, own = self._covariances(_decisions(X, active).astype(np.float32))
            logarithm = covariances @ self._coefficients
        explained = (covariances**2 / self._own).max(1)
        return _error(logarithm), self._spread(own - explained, logarithm)

    def predict(self, X: np.ndarray, active: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The errors, and their spreads (m,): one standard deviation, in units of the error."""
        with _one_thread():
            self._fit()
            covariances, own = self._covariances(_decisions(X, active).astype(np.float32))
            logarithm = covariances @ self._coefficients
            explained = solve_triangular(self._factor, covariances.T, lower=True, check_finite=False)
        return _error(logarithm), self._spread(own - (explained**2).sum(0), logarithm)

    def quantiles(self, X: np.ndarray, active: np.ndarray) -> np.ndarray:
        """The errors (m, q) that are equally likely, for expectations of what is no linear function of the error."""
        errors, spreads = self.predict(X, active)
        errors = errors[:, None] + OFFSET
        return np.maximum(errors * np.exp(QUANTILES * spreads[:, None] / errors) - OFFSET, 0)

    # ---- fitting

    def _fit(self) -> None:
        """Bring the fit up to date, as that of a model that was asked after every evaluation."""
        at, fitted, tuned = self._fitted, self._fitted, self._tuned
        while (at := at + max(10, at // 40) if at else LEAST) <= self._n:
            fitted = at
            tuned = at if at >= 1.5 * tuned else tuned
        if tuned > self._tuned:
            self._tuned = self._fitted = tuned
            self._solve(tuned, product(LENGTHS, SLOPES))
        if fitted > self._fitted:
            self._fitted = fitted
            self._solve(fitted, [(self._length, self._slope)])

    def _solve(self, n: int, choices: Iterable[tuple[float, float]]) -> None:
        """Fit the process to the first n evaluations, with the likeliest of these pairs of length and slope."""
        held = self._held(n)
        self._points = self._unpacked(held)
        self._ones = self._points.sum(1)
        targets = self._targets[held]
        shared, distances = self._compared(self._points)
        best = -np.inf
        for length, slope in choices:
            covariance = LEVEL + slope * shared + np.exp(-distances / length)
            covariance[np.diag_indices_from(covariance)] += self._noises[held]
            factor = cholesky(covariance, lower=True, check_finite=False)
            whitened = solve_triangular(factor, targets, lower=True, check_finite=False)
            variance = float(whitened @ whitened) / len(targets) + 1e-12
            likelihood = -0.5 * len(targets) * np.log(variance) - np.log(np.diag(factor)).sum()
            if likelihood > best:
                best, self._length, self._slope = likelihood, length, slope
                self._factor, self._own, self._variance = factor, np.diag(covariance).copy(), variance
                self._coefficients = solve_triangular(factor, whitened, lower=True, trans=1, check_finite=False)

    def _held(self, n: int) -> np.ndarray:
        """Of the first n evaluations those that the process holds: the newest, and of the others those with the least
        error."""
        if n <= POINTS:
            return np.arange(n)
        newest = n - POINTS // 2
        least = np.argsort(self._targets[:newest], kind="stable")[: POINTS - POINTS // 2]
        return np.concatenate([np.sort(least), np.arange(newest, n)])

    def _unpacked(self, rows: np.ndarray) -> np.ndarray:
        return np.unpackbits(self._bits[rows], axis=1, count=2 * self.n_var).astype(np.float32)

    # ---- predicting

    def _covariances(self, bits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """With the points of the process (m, n), and a new evaluation's own variance (m,)."""
        shared, distances = self._compared(bits)
        own = LEVEL + self._slope * bits.sum(1).astype(float) / self.n_var + 1 + NOISE
        return LEVEL + self._slope * shared + np.exp(-distances / self._length), own

    def _compared(self, bits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Bits in common with the points of the process (m, n), as a fraction of n_var, and Hamming distances. Both
        are whole numbers at first, exact in single precision."""
        shared = bits @ self._points.T
        distances = bits.sum(1)[:, None] + self._ones - 2 * shared
        return shared.astype(float) / self.n_var, distances.astype(float)

    def _spread(self, variance: np.ndarray, logarithm: np.ndarray) -> np.ndarray:
        return np.sqrt(np.maximum(variance, 0) * self._variance) * np.exp(logarithm)

    def __deepcopy__(self, memo: dict[int, Any]) -> "ErrorModel":
        """A history holds many copies: what is replaced as a whole, and never changed, is shared."""
        new = copy.copy(self)
        for name in ("_bits", "_targets", "_noises"):
            setattr(new, name, getattr(self, name)[: self._n].copy())
        return new


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()


def _one_thread() -> AbstractContextManager:
    """While this is entered, linear algebra computes on one thread: matrices are small, and beside busy workers several
    threads are many times slower."""
    return _libraries().limit(limits=1, user_api="blas")


def _decisions(x: np.ndarray, active: np.ndarray) -> np.ndarray:
    """What is decided by the variables that matter, as bits (m, 2 n_var): x∧active and active∧¬x."""
    return np.hstack([x & active, active & ~x])


def _error(logarithm: np.ndarray) -> np.ndarray:
    return np.exp(logarithm) - OFFSET
