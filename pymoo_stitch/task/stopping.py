"""When the evaluation of a subnetwork can stop: as soon as it can no longer reach what is needed of it.

This is for metrics that are means over images of values in [0, 1]. Images come hardest first, so that this shows
early."""

from collections.abc import Sequence

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, logit

_LEAST_EASE = 0.02  # no image is certain to be right, or wrong
_ABILITY_DEVIATION = 2.0  # of subnetworks' abilities, before anything is known of one
_ROUNDING = 1e-9


def hardest_first(ease: np.ndarray) -> np.ndarray:
    """The order [n] of images in which a subnetwork's weakness shows earliest, given how easy each is [n]."""
    return np.argsort(ease, kind="stable")


class Stopping:
    """Decides when the evaluation of a subnetwork stops, and estimates its metric then.

    :param needed: for each subnetwork the value that its metric must reach to matter, None if it is evaluated in full.
    :param ease: how easy each image is, in the order in which they are evaluated [n]: what the metric is expected to
        be.
    """

    def __init__(self, needed: Sequence[float | None], ease: np.ndarray):
        self._needed = np.array([-np.inf if value is None else value for value in needed], dtype=float)
        self._ease = logit(np.clip(ease, _LEAST_EASE, 1 - _LEAST_EASE))

    def is_over(self, number: int, total: float, count: float, seen: int) -> bool:
        """Whether a subnetwork cannot reach what it needs, after so many images, of which so many counted."""
        return self.bound(total, count, seen) < self._needed[number] - _ROUNDING

    def bound(self, total: float, count: float, seen: int) -> float:
        """The metric if its value were 1 for each image that is left."""
        left = len(self._ease) - seen
        return (total + left) / max(count + left, 1)

    def estimate(self, total: float, count: float, seen: int) -> float:
        """The metric to be expected. Whether an image is right follows from its ease and the ability of the subnetwork,
        which is that with which what was seen is likeliest (a Rasch model)."""
        before, after = self._ease[:seen], self._ease[seen:]

        def excess(ability: float) -> float:
            return expit(before + ability).sum() + ability / _ABILITY_DEVIATION**2 - total

        reach = _ABILITY_DEVIATION**2 * (seen + 1)
        ability = brentq(excess, -reach, reach)
        return (total + expit(after + ability).sum()) / (count + len(after))
