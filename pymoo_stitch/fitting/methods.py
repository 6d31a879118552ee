"""Fitting: each stitch on its own reproduces, as well as it can, the tensor that it replaces."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np

from ..stitches import KINDS
from ..supernet import FitReport
from ..util.words import did_you_mean
from ._batches import warn_of_mixed_inputs
from .errors import learns
from .least_squares import least_squares
from .training import adam

if TYPE_CHECKING:
    from ..supernet import Supernet


def fit(
    supernet: "Supernet",
    images: Any,
    method: str | None = None,
    genotypes: Sequence[np.ndarray] | np.ndarray | None = None,
    **options: Any,
) -> FitReport:
    """Fit the stitches of a supernet; see `Supernet.fit`."""
    if method is not None and method not in METHODS:
        raise ValueError(f"there is no method {method!r} of fitting; choose from {', '.join(METHODS)}.")
    warn_of_mixed_inputs(supernet)
    learning = [link for link in supernet.links if learns(supernet.stitches[link.stitch])]
    others = [link.stitch for link in learning if not KINDS[link.kind].affine]
    if method == "least-squares" or (method is None and not others):
        return least_squares(supernet, images, genotypes=genotypes, **options)
    if method == "adam" or len(others) == len(learning):
        return adam(supernet, images, **options)
    takes = {function: set(signature(function).parameters) for function in (least_squares, adam)}
    if unknown := set(options) - takes[least_squares] - takes[adam]:
        hint = did_you_mean(min(unknown), takes[least_squares] | takes[adam])
        raise TypeError(f"neither least squares nor adam takes the option {min(unknown)!r}.{hint}")
    first, second = ({k: v for k, v in options.items() if k in takes[f]} for f in (least_squares, adam))
    closed = least_squares(supernet, images, genotypes=genotypes, **first)
    learned = adam(supernet, images, stitches=others, **second)
    return replace(
        closed,
        method="least squares and adam",
        errors=closed.errors | {name: learned.errors[name] for name in others},
        samples=learned.samples,
        seconds=closed.seconds + learned.seconds,
        losses=learned.losses,
    )


METHODS: Mapping[str, Callable[..., FitReport]] = {"least-squares": least_squares, "adam": adam}
