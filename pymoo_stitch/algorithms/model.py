"""A model of the error: predicts the errors of genotypes that were not evaluated from those that were."""

import copy
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve, cholesky, solve_triangular
from scipy.stats import norm

LEAST = 50
"""Evaluations before the first prediction."""

LENGTHS = (4.0, 12.0, 36.0, 108.0)
"""Decisions over which the residual's correlation may fall to 1/e."""

NOISE = 1e-3
"""Variance that is due to no decision, as a fraction of the residual's."""

ESTIMATE_NOISE = 0.1
"""The same of an evaluation that stopped early, whose error is an estimate."""

POINTS = 600
"""Evaluations that the Gaussian process holds: half of them the newest, half those of least error among the others."""

QUANTILES = norm.ppf((np.arange(7) + 0.5) / 7)
"""Equally likely deviations from what is predicted, in standard deviations of the logarithm."""

OFFSET = 0.01
"""Added to errors before their logarithm is taken."""

_INTERCEPT_RIDGE = 1e-6  # that of all others is 1


class ErrorModel:
    """Predicts errors, mean and spread, from the decisions that matter in a genotype and from its cost.

    The logarithm of (error + 0.01) is a ridge regression on the bits x∧active and active∧¬x and on the cost, plus a
    Gaussian process on what that leaves, with the kernel exp(−Hamming distance of the bits / length).

    It is fitted again when there are ten evaluations more, or a fortieth; the length is chosen by likelihood when there
    are half as many more. All of that depends on the evaluations alone, not on when predictions are asked for: a model
    that is given the same evaluations at once makes the same predictions.

    :param n_var: the number of variables of a genotype.
    """

    def __init__(self, n_var: int):
        self.n_var = n_var
        self._n = 0
        self._bits = np.empty((0, -(-2 * n_var // 8)), dtype=np.uint8)  # packed; these four have room for more rows
        self._costs = np.empty(0)
        self._targets = np.empty(0)
        self._noises = np.empty(0)
        self._fitted = self._tuned = 0  # evaluations that the fit, and the choice of the length, are based on
        self._length = LENGTHS[0]
        self._scale = 1.0  # of costs
        size = 2 * n_var + 2
        self._gram, self._moment = np.zeros((size, size)), np.zeros(size)
        self._weights = np.zeros(size)
        # The Gaussian process: the bits of its points and how many are 1, the factor of their covariance, the
        # coefficients of the covariances with them, and its variance.
        self._points = np.empty((0, 2 * n_var), dtype=np.float32)
        self._ones = np.empty(0, dtype=np.float32)
        self._factor = np.empty((0, 0))
        self._coefficients = np.empty(0)
        self._variance = 0.0

    def __len__(self) -> int:
        """The evaluations it has learned from."""
        return self._n

    @property
    def is_ready(self) -> bool:
        """Whether it knows enough to predict anything."""
        return self._n >= LEAST

    def add(self, x: np.ndarray, active: np.ndarray, cost: float, error: float, noise: float = NOISE) -> None:
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
            grown = (np.append(values, np.empty(room)) for values in (self._costs, self._targets, self._noises))
            self._costs, self._targets, self._noises = grown
        self._bits[self._n] = np.packbits(_decisions(x[None], active[None])[0])
        self._costs[self._n], self._targets[self._n], self._noises[self._n] = cost, np.log(error + OFFSET), noise
        self._n += 1

    def mean(self, X: np.ndarray, active: np.ndarray, costs: np.ndarray) -> np.ndarray:
        """The errors (m,) to be expected of genotypes (m, n_var) with these masks (m, n_var) and costs (m,)."""
        self._fit()
        bits = _decisions(X, active).astype(np.float32)
        return _error(self._linear(bits, costs) + self._covariances(bits) @ self._coefficients)

    def predict(self, X: np.ndarray, active: np.ndarray, costs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The same, and the spread (m,): one standard deviation, in units of the error."""
        self._fit()
        bits = _decisions(X, active).astype(np.float32)
        covariances = self._covariances(bits)
        logarithm = self._linear(bits, costs) + covariances @ self._coefficients
        explained = solve_triangular(self._factor, covariances.T, lower=True, check_finite=False)
        variance = self._variance * (1 + NOISE - (explained**2).sum(0))
        return _error(logarithm), np.sqrt(np.maximum(variance, 0)) * np.exp(logarithm)

    def quantiles(self, X: np.ndarray, active: np.ndarray, costs: np.ndarray) -> np.ndarray:
        """The errors (m, q) that are equally likely, for expectations of what is no linear function of the error."""
        errors, spreads = self.predict(X, active, costs)
        errors = errors[:, None] + OFFSET
        return errors * np.exp(QUANTILES * spreads[:, None] / errors) - OFFSET

    def largest_spread(self, error: float) -> float:
        """No prediction of this mean has a larger spread."""
        self._fit()
        return float(np.sqrt(self._variance * (1 + NOISE))) * (error + OFFSET)

    # ---- fitting

    def _fit(self) -> None:
        """Bring the fit up to date, by the same steps as a model that was asked after every evaluation."""
        steps, tuned, at = [], self._tuned, self._fitted
        while (at := at + max(10, at // 40) if at else LEAST) <= self._n:
            steps.append(at)
            tuned = at if at >= 1.5 * tuned else tuned
        for step in steps:
            self._accumulate(self._fitted, step)
            self._fitted = step
            if step == tuned:
                self._tuned = tuned
                self._solve(LENGTHS)
            elif step == steps[-1]:
                self._solve((self._length,))

    def _accumulate(self, first: int, last: int) -> None:
        """Take evaluations into the sums of the regression."""
        if not first:
            self._scale = float(np.abs(self._costs[:last]).max()) or 1.0
        z = self._features(self._unpacked(slice(first, last)), self._costs[first:last])
        self._gram += z.T @ z
        self._moment += z.T @ self._targets[first:last]

    def _solve(self, lengths: tuple[float, ...]) -> None:
        """Fit the regression to the evaluations so far, and the process to its residuals, with the likeliest length."""
        regularised = self._gram.copy()
        regularised[np.diag_indices_from(regularised)] += [_INTERCEPT_RIDGE] + [1.0] * (len(regularised) - 1)
        self._weights = cho_solve(cho_factor(regularised, overwrite_a=True, check_finite=False), self._moment)
        held = self._held()
        self._points = self._unpacked(held)
        self._ones = self._points.sum(1)
        residuals = self._targets[held] - self._linear(self._points, self._costs[held])
        distances = self._distances(self._points)
        best = -np.inf
        for length in lengths:
            covariance = np.exp(-distances / length)
            covariance[np.diag_indices_from(covariance)] = 1 + self._noises[held]
            factor = cholesky(covariance, lower=True, overwrite_a=True, check_finite=False)
            whitened = solve_triangular(factor, residuals, lower=True, check_finite=False)
            variance = float(whitened @ whitened) / len(residuals) + 1e-12
            likelihood = -0.5 * len(residuals) * np.log(variance) - np.log(np.diag(factor)).sum()
            if likelihood > best:
                best, self._length, self._factor, self._variance = likelihood, length, factor, variance
                self._coefficients = solve_triangular(factor, whitened, lower=True, trans=1, check_finite=False)

    def _held(self) -> np.ndarray:
        """The evaluations that the Gaussian process holds: the newest, and of the others those with the least error."""
        n = self._fitted
        if n <= POINTS:
            return np.arange(n)
        newest = n - POINTS // 2
        least = np.argsort(self._targets[:newest], kind="stable")[: POINTS - POINTS // 2]
        return np.concatenate([np.sort(least), np.arange(newest, n)])

    # ---- features

    def _unpacked(self, rows: slice | np.ndarray) -> np.ndarray:
        return np.unpackbits(self._bits[rows], axis=1, count=2 * self.n_var).astype(np.float32)

    def _features(self, bits: np.ndarray, costs: np.ndarray) -> np.ndarray:
        return np.column_stack([np.ones(len(bits)), bits, np.asarray(costs) / self._scale])

    def _linear(self, bits: np.ndarray, costs: np.ndarray) -> np.ndarray:
        """The regression's prediction of the logarithm."""
        return self._features(bits, costs) @ self._weights

    def _covariances(self, bits: np.ndarray) -> np.ndarray:
        """With the points of the process (m, n), as fractions of its variance."""
        return np.exp(-self._distances(bits) / self._length)

    def _distances(self, bits: np.ndarray) -> np.ndarray:
        """Hamming distances to the points of the process (m, n): whole numbers, exact in single precision."""
        return (bits.sum(1)[:, None] + self._ones - 2 * (bits @ self._points.T)).astype(float)

    def __deepcopy__(self, memo: dict[int, Any]) -> "ErrorModel":
        """A history holds many copies: what is replaced as a whole, and never changed, is shared."""
        new = copy.copy(self)
        for name in ("_bits", "_costs", "_targets", "_noises"):
            setattr(new, name, getattr(self, name)[: self._n].copy())
        new._gram, new._moment = self._gram.copy(), self._moment.copy()
        return new


def _decisions(x: np.ndarray, active: np.ndarray) -> np.ndarray:
    """What is decided by the variables that matter, as bits (m, 2 n_var): x∧active and active∧¬x."""
    return np.hstack([x & active, active & ~x])


def _error(logarithm: np.ndarray) -> np.ndarray:
    return np.exp(logarithm) - OFFSET
