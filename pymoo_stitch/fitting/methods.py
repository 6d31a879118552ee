"""Fitting: each stitch on its own gives, as nearly as it can, the tensor that it stands for."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from inspect import signature
from typing import TYPE_CHECKING, Any

from ..stitches import KINDS
from .least_squares import least_squares
from .report import FitReport, learns
from .training import adam

if TYPE_CHECKING:
    from ..supernet import Supernet


def fit(supernet: "Supernet", images: Any, method: str | None = None, **options: Any) -> FitReport:
    """Fit the stitches of a supernet; see `Supernet.fit`."""
    if method is not None and method not in METHODS:
        raise ValueError(f"there is no method {method!r} of fitting; there are {', '.join(METHODS)}.")
    if method is not None:
        return METHODS[method](supernet, images, **options)
    learning = [link for link in supernet.links if learns(supernet.stitches[link.stitch])]
    others = [link.stitch for link in learning if not KINDS[link.kind].affine]
    if not others:
        return least_squares(supernet, images, **options)
    if len(others) == len(learning):
        return adam(supernet, images, **options)
    takes = {function: set(signature(function).parameters) for function in (least_squares, adam)}
    if unknown := set(options) - takes[least_squares] - takes[adam]:
        raise TypeError(f"neither least squares nor adam takes the option {min(unknown)!r}.")
    first, second = ({k: v for k, v in options.items() if k in takes[f]} for f in (least_squares, adam))
    closed = least_squares(supernet, images, **first)
    learned = adam(supernet, images, stitches=others, **second)
    seconds = closed.seconds + learned.seconds
    return replace(learned, method="least squares and adam", seconds=seconds)


METHODS: Mapping[str, Callable[..., FitReport]] = {"least-squares": least_squares, "adam": adam}
