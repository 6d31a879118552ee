"""Which cascade to take: chosen on images that no search has seen, conservatively.

Of a million cascades, those that look best on some images had luck with these images. So the plain cascades, those of
the references, come first: few, and with thresholds alone to choose. A cascade with a stitched stage replaces the
plain one only if a paired test on images that were not used to find it says so."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

from ..supernet import JointCosts
from ..task.cascading import CascadeTable, Predictions, all_cascades, each_image, evaluate, joined
from ..util.statistics import LEVEL, Paired, holm
from .points import Against, paired

TOLERANCE = 0.005
"""How much worse than a plain cascade one with stitched stages may be, by the corrected interval of the difference on
the half of the images that it was not found on."""


@dataclass(frozen=True)
class Choice:
    """One cascade that was chosen, or a single network.

    :param table: the chosen one, and after it the plain one that was compared with it, as evaluated on all images
        given.
    :param against: how the chosen one compares with the plain one on images that were not used to find it; None if it
        is the plain one.
    """

    table: CascadeTable
    against: Against | None = None

    @property
    def is_stitched(self) -> bool:
        """Whether it is not the plain one."""
        return self.against is not None


def choose_cascade(
    predictions: Predictions,
    costs: JointCosts,
    references: Sequence[int],
    *,
    at_most: float,
    n_stages: int = 2,
    combine: str = "mean",
) -> Choice:
    """The best plain cascade of at most that cost; or in its place one with stitched stages, if that is better, or
    cheaper and as good, by a paired test.

    The plain one is chosen on all images. Those with stitched stages are found on every second image: the front of all
    cascades. Those of that front are compared with the plain one on the other images, where they had no luck yet.
    "Better" is by McNemar's test, or a bootstrap, with Holm's correction over that front; "as good" is at least as good
    on these images, and surely not worse by more than `TOLERANCE`, with Bonferroni's correction over that front: of
    many that are as good by chance, the cheapest is one that had luck.

    :param predictions: on images for selection.
    :param costs: of the same candidates.
    :param references: the places of the references among the candidates.
    :param at_most: expected multiply-adds for one image.
    :param n_stages: of plain cascades, at most. Those with stitched stages have two.
    """
    plain = all_cascades(predictions, costs, of=references, n_stages=n_stages, combine=combine)
    affordable = np.flatnonzero(plain.costs <= at_most)
    if not len(affordable):
        raise ValueError(
            f"no reference and no cascade of references costs at most {at_most:,.0f} multiply-adds; the cheapest costs "
            f"{plain.costs.min():,.0f}."
        )
    best = affordable[np.lexsort((plain.costs[affordable], plain.errors[affordable]))[0]]
    baseline = plain.take([best])
    return stitched_instead(predictions, costs, references, baseline, at_most=at_most)


def stitched_instead(
    predictions: Predictions,
    costs: JointCosts,
    references: Sequence[int],
    baseline: CascadeTable,
    *,
    at_most: float | None = None,
) -> Choice:
    """A cascade with stitched stages in the place of a plain one, if it is better, or cheaper and as good: see
    `choose_cascade`.

    :param baseline: the plain one, as a table of one row.
    :param at_most: expected multiply-adds for one image; by default those of the plain one.
    """
    at_most = baseline.costs[0] if at_most is None else at_most
    seen = np.arange(predictions.n_images) % 2 == 0
    found = all_cascades(predictions.take(np.flatnonzero(seen)), costs, at_most=at_most, combine=baseline.combine)
    found = found.take(found.front())
    found = found.take(~found.made_of(references))
    unseen = predictions.take(np.flatnonzero(~seen))
    row = each_image(baseline, 0, unseen)
    pairs = [paired(each_image(found, i, unseen), row, predictions.metric) for i in range(len(found))]
    against = [Against(*both) for both in zip(pairs, holm([pair.p_value for pair in pairs]), strict=True)]
    found = evaluate(found, predictions, costs)
    better = [i for i, one in enumerate(against) if one.verdict == "better than" and found.costs[i] <= at_most]
    cheaper = [i for i, one in enumerate(pairs) if _is_as_good(one, len(pairs)) and found.costs[i] < baseline.costs[0]]
    if better:
        chosen = max(better, key=lambda i: against[i].paired.difference)
    elif cheaper:
        chosen = min(cheaper, key=lambda i: found.costs[i])
    else:
        return Choice(joined([baseline, baseline]))
    return Choice(joined([found.take([chosen]), baseline]), against[chosen])


def _is_as_good(pair: Paired, count: int) -> bool:
    """Whether one, of this many that are compared, is at least as good, and surely not worse by more than
    `TOLERANCE`."""
    middle, error = (pair.low + pair.high) / 2, (pair.high - pair.low) / 2 / norm.ppf(1 - LEVEL / 2)
    return pair.difference >= 0 and middle - norm.ppf(1 - LEVEL / 2 / count) * error >= -TOLERANCE
