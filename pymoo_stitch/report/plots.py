"""Figures of a search: hypervolume, stitches in use, predictions, reliability. (`fronts` shows its fronts, `drawing` a
single subnetwork.)

Each function takes plain arrays and returns a new `matplotlib.figure.Figure`: `figure.savefig("stitches.pdf")`."""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ..task import METRICS
from ._looks import (
    GREY,
    HATCHES,
    LINES,
    PALETTE,
    TICKS,
    add_legend,
    check_not_empty,
    checked_array,
    elided,
    lighter,
    plain,
    say,
    settled,
    style_of,
)

_FEWEST = 10
"""Predictions in a bin whose reliability is drawn: with fewer, it is chance."""

_SPREADS = np.linspace(0, 4, 41)
"""Distances from a prediction, in spreads, at which its calibration is drawn."""


@settled
def plot_hypervolume(
    curves: Mapping[str, Sequence[tuple[np.ndarray, np.ndarray]]], *, x_label: str = "evaluations"
) -> Figure:
    """Hypervolume as a search goes on: for each algorithm the median of its seeds and a band between the quartiles.

    A hypervolume holds until the next is given, so that curves are steps, and medians exact. Median and quartiles are
    drawn where all seeds have a value: from where the last of them begins to where the first of them ends.

    :param curves: for each algorithm and seed two arrays [n]: x, which never decreases, and the hypervolume from there.
    :param x_label: what x is, such as "evaluations" or "minutes".
    """
    check_not_empty(curves, "curves", "{label: [(x, hypervolume), …]}")
    figure = Figure(figsize=(7.5, 4.5), layout="constrained")
    ax = figure.subplots()
    handles, shown = [], []
    for number, (label, seeds) in enumerate(curves.items()):
        if not len(seeds):
            raise ValueError(f"curves[{label!r}] holds no seed; give a pair (x, hypervolume) for each.")
        steps = [_checked_curve(pair, f"curves[{label!r}][{i}]") for i, pair in enumerate(seeds)]
        style = {**style_of(number), "linewidth": 2, "markersize": 4}
        text = f"{elided(label, 40)} ({len(steps)} seed{'s' * (len(steps) > 1)})"
        x, quartiles = _quartiles(steps)
        if not len(x):
            text += ", which share no x"
        else:
            spread: dict[str, Any] = {"markevery": (0.02 * number, 0.12)}
            ax.step(x, quartiles[1], where="post", **style, **spread, zorder=3 + number / 100)
            shown.append((x, quartiles))
        hatch = HATCHES[number % len(HATCHES)]
        band: dict[str, Any] = {
            "facecolor": lighter(style["color"], 0.75),
            "edgecolor": lighter(style["color"], 0.35),
            "hatch": hatch,
        }
        if len(steps) > 1 and len(x):
            ax.fill_between(x, quartiles[0], quartiles[2], step="post", alpha=0.6, linewidth=0.6, zorder=1.5, **band)
        line = Line2D([], [], **style)
        handles.append(((Patch(**band, alpha=0.6), line) if len(steps) > 1 else line, text))
    ax.set(xlabel=x_label, ylabel="hypervolume", ylim=_after_the_start(shown))
    ax.xaxis.set_major_formatter(FuncFormatter(plain))
    add_legend(figure, [handle for handle, _ in handles], [text for _, text in handles])
    return figure


@settled
def plot_stitches(runs: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> Figure:
    """How many stitches the evaluated genotypes ask for, and how many of these are in use, one panel for each run:
    median and quartiles of a window that moves over the evaluations.

    :param runs: for each run two arrays [n], in the order of evaluations: ones among the variables of links, and ones
        among those of them that are active, so never more.
    """
    check_not_empty(runs, "runs", "{label: (nonzero, active)}")
    checked = {label: _checked_counts(pair, f"runs[{label!r}]") for label, pair in runs.items()}
    columns = min(3, len(checked))
    rows = math.ceil(len(checked) / columns)
    figure = Figure(figsize=(max(6, 1 + 3.6 * columns), 1 + 3 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flatten().tolist()
    window = max(1, max(len(nonzero) for nonzero, _ in checked.values()) // 40)
    bands: dict[str, tuple[str, str, Any]] = {"nonzero": (PALETTE[1], "///", LINES[1]), "active": (PALETTE[0], "", "-")}
    for ax, (label, counts) in zip(panels, checked.items(), strict=False):
        ax.set_title(elided(label, 40), loc="left")
        for values, (color, hatch, line) in zip(counts, bands.values(), strict=True):
            if not len(values):
                continue
            x, (low, median, high) = _moving_quartiles(values, window)
            light, edge = lighter(color, 0.75), lighter(color, 0.4)
            ax.fill_between(x, low, high, facecolor=light, edgecolor=edge, hatch=hatch, linewidth=0.5, alpha=0.7)
            ax.plot(x, median, color=color, linestyle=line, linewidth=1.8)
        if not len(counts[0]):
            say(ax, "no evaluations")
        ax.xaxis.set_major_formatter(FuncFormatter(plain))
        ax.xaxis.set_major_locator(MaxNLocator(5, steps=TICKS))
    for spare in panels[len(checked) :]:
        spare.remove()
    for number, ax in enumerate(panels[: len(checked)]):
        if number % columns == 0:
            ax.set_ylabel("stitches of a genotype")
        if number + columns >= len(checked):  # nothing below
            ax.set_xlabel("evaluations")
            ax.tick_params(labelbottom=True)
    panels[0].set_ylim(bottom=0)
    handles = [
        (Patch(facecolor=lighter(c, 0.75), edgecolor=lighter(c, 0.4), hatch=h), Line2D([], [], color=c, linestyle=s))
        for c, h, s in bands.values()
    ]
    said = f"median and quartiles of {window:,} evaluation{'s' * (window > 1)}"
    add_legend(figure, handles, [f"nonzero ({said})", "active, that is in use"])
    return figure


@settled
def plot_reliability(bins: Mapping[str, Any], *, references: Collection[str] = ()) -> Figure:
    """How often predictions are right, against how probable the networks say they are; below, how the predictions are
    spread over the bins. Bins of fewer than 10 predictions are left out above. The legend has the expected calibration
    error.

    :param bins: for each label what `task.reliability` returns, summed over all batches: an array or tensor [3, bins]
        of predictions, the sum of their probabilities, and right ones.
    :param references: the labels of references, which are drawn in greys, others in colour.
    """
    check_not_empty(bins, "bins", "{label: metrics.reliability(outputs, labels)}")
    figure = Figure(figsize=(6, 6), layout="constrained")
    top, below = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
    top.plot([0, 1], [0, 1], color=GREY, linewidth=0.8, linestyle=(0, (2, 2)), zorder=1)
    handles = []
    names = [label for label in bins if label in references]
    others = [label for label in bins if label not in references]
    greys = {label: str(0.65 * i / max(1, len(names) - 1)) for i, label in enumerate(names)}
    for number, (label, sums) in enumerate(bins.items()):
        count, probability, right = _checked_sums(sums, f"bins[{label!r}]")
        style = {**style_of(number), "linewidth": 1.5, "markersize": 5}
        style["color"] = greys[label] if label in greys else style_of(others.index(label))["color"]
        full, total = count >= _FEWEST, count.sum()
        top.plot(probability[full] / count[full], right[full] / count[full], **style, zorder=3 + number / 100)
        line = {"color": style["color"], "linestyle": style["linestyle"], "linewidth": 1.5}
        if total:
            below.stairs(count / total, np.linspace(0, 1, len(count) + 1), baseline=None, **line)
        error = METRICS["calibration_error"].value(torch.tensor(np.array([count, probability, right])))
        told = f"ECE {error:.3f}" if total else "no predictions"
        handles.append(Line2D([], [], **style, label=f"{elided(label, 40)}: {told}"))
    top.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), ylabel="fraction of predictions that are right")
    below.set(ylim=(0, None), xlabel="probability of the predicted class", ylabel="predictions")
    below.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
    below.yaxis.set_major_locator(MaxNLocator(3))
    add_legend(figure, handles)
    return figure


@settled
def plot_predictions(runs: Mapping[str, tuple[np.ndarray, np.ndarray, np.ndarray]]) -> Figure:
    """How good a search's model is: real errors against predicted ones; below, how often the real error is within a
    number of spreads of the predicted one, beside what a normal distribution would have.

    :param runs: for each label the predicted errors, their spreads, and the real errors, each (n,).
    """
    check_not_empty(runs, "runs", "{label: (predicted, spread, error)}")
    figure = Figure(figsize=(6, 7), layout="constrained")
    top, below = figure.subplots(2, 1, height_ratios=(3, 1))
    handles = []
    for number, (label, values) in enumerate(runs.items()):
        predicted, spread, error = (checked_array(value, f"runs[{label!r}]") for value in values)
        colour = style_of(number)["color"]
        top.plot(predicted, error, ".", color=colour, markersize=3, alpha=0.5)
        order = np.argsort(predicted, kind="stable")
        bins = [part for part in np.array_split(order, 10) if len(part) >= _FEWEST]
        if bins:
            means = np.array([(predicted[part].mean(), error[part].mean()) for part in bins])
            top.plot(*means.T, color=colour, marker="o", markersize=5, markeredgecolor="white")
        away = np.abs(error - predicted) / np.maximum(spread, 1e-12)
        below.plot(_SPREADS, [(away <= within).mean() for within in _SPREADS], color=colour)
        handles.append(
            Line2D([], [], color=colour, marker="o", label=f"{elided(label, 40)}, {len(error):,} evaluations")
        )
    top.axline((0, 0), slope=1, color=GREY, linewidth=0.8, linestyle=(0, (2, 2)), zorder=1)
    top.set(xlabel="predicted error", ylabel="real error")
    normal = [math.erf(within / math.sqrt(2)) for within in _SPREADS]
    below.plot(_SPREADS, normal, color=GREY, linewidth=0.8, linestyle=(0, (2, 2)))
    below.set(xlim=(0, _SPREADS[-1]), ylim=(0, 1.02), xlabel="spreads from the prediction", ylabel="fraction within")
    handles.append(Line2D([], [], color=GREY, linestyle=(0, (2, 2)), label="what a calibrated model would have"))
    add_legend(figure, handles)
    return figure


# ----------------------------------------------------------------------------------------------------------- statistics


def _quartiles(steps: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """x [m] and quartiles [3, m] of step functions where all are defined; only where one of these changes, and the
    end."""
    start, end = max(x[0] for x, _ in steps), min(x[-1] for x, _ in steps)
    grid = np.unique(np.concatenate([x for x, _ in steps]))
    grid = grid[(grid >= start) & (grid <= end)]
    if not len(grid):
        return grid, np.empty((3, 0))
    values = np.array([y[np.searchsorted(x, grid, side="right") - 1] for x, y in steps])
    quartiles = np.quantile(values, (0.25, 0.5, 0.75), axis=0)
    changes = np.append(True, (np.diff(quartiles) != 0).any(axis=0))
    changes[-1] = True
    return grid[changes], quartiles[:, changes]


def _moving_quartiles(values: np.ndarray, window: int) -> tuple[np.ndarray, np.ndarray]:
    """At a few hundred places, evaluations counted from 1, the quartiles [3, m] of the `window` values around."""
    centers = np.unique(np.linspace(0, len(values) - 1, min(len(values), 400)).round().astype(int))
    around = [values[max(0, c - window // 2) : c + window - window // 2] for c in centers]
    return centers + 1, np.array([np.quantile(part, (0.25, 0.5, 0.75)) for part in around]).T


def _after_the_start(curves: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[float | None, float | None]:
    """Limits for what differs, not for the steep rise of the first hundredth of x, if that would take most of the
    room."""
    if not curves:
        return None, None
    begin, end = min(x[0] for x, _ in curves), max(x[-1] for x, _ in curves)
    top = max(quartiles.max() for _, quartiles in curves)
    after = begin + 0.01 * (end - begin)
    bottom = min(quartiles[:, max(0, np.searchsorted(x, after, side="right") - 1) :].min() for x, quartiles in curves)
    if bottom < top / 2:
        return None, None
    margin = 0.08 * (top - bottom) or 0.05
    return bottom - margin, top + margin


# --------------------------------------------------------------------------------------------------------------- checks


def _pair(values: Any, name: str, what: str) -> tuple[np.ndarray, np.ndarray]:
    if not isinstance(values, Sequence | np.ndarray) or len(values) != 2:
        raise ValueError(f"{name} must be a pair of arrays, {what}.")
    first, second = (checked_array(part, f"{name}[{i}]") for i, part in enumerate(values))
    if first.ndim != 1 or first.shape != second.shape:
        raise ValueError(
            f"{name} must be two arrays of one length, {what}, but they are {first.shape}, {second.shape}."
        )
    return first, second


def _checked_curve(values: Any, name: str) -> tuple[np.ndarray, np.ndarray]:
    x, y = _pair(values, name, "x and hypervolume")
    if not len(x):
        raise ValueError(f"{name} has no values; leave out a seed that has none.")
    if (np.diff(x) < 0).any():
        at = int(np.flatnonzero(np.diff(x) < 0)[0])
        raise ValueError(f"{name}: x must never decrease, but {x[at]:g} is followed by {x[at + 1]:g}. Sort both by x.")
    return x, y


def _checked_counts(values: Any, name: str) -> tuple[np.ndarray, np.ndarray]:
    nonzero, active = _pair(values, name, "nonzero and active")
    if (active > nonzero).any() or (active < 0).any():
        at = int(np.flatnonzero((active > nonzero) | (active < 0))[0])
        raise ValueError(
            f"{name}: of evaluation {at} {active[at]:g} stitches are active and {nonzero[at]:g} nonzero; active ones "
            "are some of the nonzero ones. Give (nonzero, active)."
        )
    return nonzero, active


def _checked_sums(sums: Any, name: str) -> np.ndarray:
    sums = checked_array(sums.cpu() if isinstance(sums, torch.Tensor) else sums, name)
    if sums.ndim != 2 or len(sums) != 3 or not sums.shape[1]:
        raise ValueError(f"{name} must be of shape [3, bins], as metrics.reliability returns it, but is {sums.shape}.")
    count, probability, right = sums
    if (sums < 0).any() or (right > count).any() or (probability > count * (1 + 1e-6)).any():
        raise ValueError(
            f"{name} must be, for each bin, predictions, the sum of their probabilities and right ones, the latter two "
            "at most the first and none negative. Use metrics.reliability, and add its results up."
        )
    return sums
