"""How good fitted stitches are."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

GOOD, HOPELESS = 0.5, 0.9
"""Relative errors up to which a stitch explains most of its target, and above which it explains next to nothing."""


@dataclass(frozen=True)
class FitReport:
    """What stitches were fitted to, and what they miss.

    :param errors: the relative error of each stitch on images kept back: its mean squared error over the variance of
        its target. 0 is perfect, 1 no better than the mean, infinite if it misses a constant. That of least squares is
        measured on a sample of positions, for all links that share a stitch together, and before variance is restored,
        which raises it; that of training at all positions, as the mean over these links.
    :param samples: how many images were shown.
    :param variances: R² of each stitch that was fitted by least squares: the fraction of its target's variance that its
        output has before it is restored.
    :param degree: to which degree it was restored, 0 for not at all; None where nothing was fitted by least squares.
    :param losses: those of training, step by step.
    """

    method: str
    errors: dict[str, float]
    samples: int
    seconds: float
    variances: dict[str, float] = field(default_factory=dict)
    degree: float | None = None
    losses: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"{self.method}: {len(self.errors)} stitches on {self.samples:,} samples in {self.seconds:.1f} s"]
        values = [value for value in self.errors.values() if math.isfinite(value)]
        if values:
            lines.append(f"relative error on held-out images: {_quartiles(values)} (least, quartiles, largest)")
        lines += self._in_words()
        if self.degree is not None and self.variances:
            said = f"restored to degree {self.degree:g}" if self.degree else "left as it is (degree 0)"
            lines.append(
                f"R², the variance of outputs over that of targets: {_quartiles(self.variances.values())}; {said}"
            )
        if self.losses:
            part = max(1, len(self.losses) // 8)
            first, last = np.mean(self.losses[:part]), np.mean(self.losses[-part:])
            lines.append(f"loss: {first:.4g} in the first eighth of {len(self.losses):,} steps, {last:.4g} in the last")
        return "\n".join(lines)

    def _in_words(self) -> list[str]:
        """Which stitches explain their targets and which do not. Says nothing of those that were trained in
        subnetworks: they are no longer meant to reproduce their targets."""
        if self.method in ("finetune", "retrain"):
            return []
        good = sum(value <= GOOD for value in self.errors.values())
        lines = [f"{good} of {len(self.errors)} stitches explain at least half of their target's variance"]
        if self.hopeless:
            named = ", ".join(f"{name} {self.errors[name]:.3g}" for name in self.hopeless[:3])
            more = ", …" * (len(self.hopeless) > 3)
            lines.append(f"hopeless, with errors above {HOPELESS}: {len(self.hopeless)} ({named}{more})")
        return lines

    @property
    def hopeless(self) -> list[str]:
        """The stitches that explain next to nothing, the worst first."""
        return sorted((n for n, error in self.errors.items() if error > HOPELESS), key=self.errors.get, reverse=True)


def _quartiles(values: Iterable[float]) -> str:
    return " ".join(f"{value:.3g}" for value in np.quantile(list(values), [0, 0.25, 0.5, 0.75, 1]))
