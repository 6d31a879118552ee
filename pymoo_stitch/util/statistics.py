"""How sure one can be of what was measured on a sample of images.

Statistics of images are arrays [n, …], one row per image, which add up over images: whatever is measured is a function
of their sum. That is all a bootstrap over images needs.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.stats import binomtest, norm

LEVEL = 0.05
"""A difference counts if chance makes one as large with a probability below this; intervals cover 1 − LEVEL."""

RESAMPLES = 1_000
"""Of a bootstrap."""

Values = Callable[[np.ndarray], np.ndarray]
"""A measure [m] as a function of summed statistics [m, …]."""


@dataclass(frozen=True)
class Paired:
    """Two networks compared on the same images.

    :param difference: by how much the first is better; negative if it is worse.
    :param low, high: the 95 % interval of the difference.
    :param p_value: two-sided, of there being no difference.
    """

    difference: float
    low: float
    high: float
    p_value: float

    def verdict(self, p_value: float | None = None) -> str:
        """ "better than", "worse than" or "not distinguishable from".

        :param p_value: to judge by instead of its own: one that was corrected for many comparisons.
        """
        if (self.p_value if p_value is None else p_value) >= LEVEL or not self.difference:
            return "not distinguishable from"
        return "better than" if self.difference > 0 else "worse than"


def wilson(successes: float, n: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a fraction."""
    z = norm.ppf(1 - LEVEL / 2)
    middle = (successes + z * z / 2) / (n + z * z)
    half = z / (n + z * z) * math.sqrt(max(0.0, successes * (n - successes) / n + z * z / 4))
    return max(0.0, middle - half), min(1.0, middle + half)


def mcnemar(first: np.ndarray, second: np.ndarray) -> Paired:
    """The exact McNemar test, and the interval of Agresti and Min (2005) for the difference of paired fractions.

    :param first, second: whether each was right on each image, booleans [n].
    """
    n = len(first)
    won, lost = int((first & ~second).sum()), int((second & ~first).sum())
    p_value = binomtest(won, won + lost).pvalue if won + lost else 1.0
    a, b, m = won + 0.5, lost + 0.5, n + 2
    middle, error = (a - b) / m, math.sqrt(a + b - (a - b) ** 2 / m) / m
    half = norm.ppf(1 - LEVEL / 2) * error
    return Paired((won - lost) / n, middle - half, middle + half, float(p_value))


def bootstrap(rows: np.ndarray, values: Values) -> tuple[float, float]:
    """The 95 % interval over images, the same every time: the percentiles of resamples, corrected by how much these
    are too large or too small on average. A calibration error, say, is larger on resampled images than on these, as it
    is larger on these than on all images; the interval is for the value on as many other images.

    :param rows: statistics [n, …].
    """
    found = _resampled(rows, values)
    low, high = np.quantile(found, (LEVEL / 2, 1 - LEVEL / 2)) + values(rows.sum(0)[None])[0] - found.mean()
    return float(low), float(high)


def paired_bootstrap(first: np.ndarray, second: np.ndarray, values: Values) -> Paired:
    """Both networks on the same resampled images.

    :param first, second: statistics [n, …].
    :param values: larger is better.
    """
    found = _resampled(first, values) - _resampled(second, values)
    one, other = values(np.stack([first.sum(0), second.sum(0)]))
    low, high = np.quantile(found, (LEVEL / 2, 1 - LEVEL / 2))
    tail = 1 + min((found <= 0).sum(), (found >= 0).sum())
    return Paired(float(one - other), float(low), float(high), float(min(1.0, 2 * tail / (len(found) + 1))))


def _resampled(rows: np.ndarray, values: Values) -> np.ndarray:
    """The measure on each of `RESAMPLES` resamples of the images."""
    n = len(rows)
    return values((_weights(n) @ rows.reshape(n, -1).astype(float)).reshape(RESAMPLES, *rows.shape[1:]))


@lru_cache(maxsize=4)
def _weights(n: int) -> np.ndarray:
    """How often each of n images is in each resample [RESAMPLES, n]."""
    rng = np.random.default_rng(0)
    return np.array([np.bincount(rng.integers(n, size=n), minlength=n) for _ in range(RESAMPLES)], dtype=float)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction: the smallest p-value is multiplied by the number of tests, the next by one less,
    and so on; none is smaller than the one before it."""
    order = np.argsort(p_values, kind="stable")
    corrected, highest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[i]))
        corrected[i] = float(highest)
    return corrected


def decimals(n: int, *, paired: bool = False) -> int:
    """How many decimals of a fraction this many images support; for a paired difference, those of one image."""
    return max(2, math.ceil(math.log10(n) if paired else math.log10(n) / 2 + 1))
