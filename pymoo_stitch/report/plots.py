"""Figures of a search: fronts, hypervolume, stitches in use, reliability. (`drawing` shows a single subnetwork.)

Each function takes plain arrays and returns a new `matplotlib.figure.Figure`: `figure.savefig("front.pdf")`. Nothing here
touches pyplot, a window or the settings of matplotlib. Series differ in colour, in lightness, in the shape of markers and in
the style of lines, so that figures can be read in grey and by the colour-blind."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from itertools import pairwise
from typing import Any

import matplotlib.style
import numpy as np
import torch
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.patheffects import withStroke
from matplotlib.textpath import text_to_path
from matplotlib.ticker import FuncFormatter, MaxNLocator, ScalarFormatter
from matplotlib.transforms import Bbox

from ..task import METRICS
from ..util.fronts import on_front

PALETTE = ("#0072B2", "#E69F00", "#000000", "#56B4E9", "#009E73", "#CC79A7", "#D55E00")
"""The colours of Okabe and Ito but yellow, which is lost on white, in an order in which neighbours differ in lightness."""

HATCHES = ("///", "...", "\\\\\\", "xx", "|||", "oo", "---")
_MARKERS = "osD^vPhp"
_LINES = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (5, 1.5, 1, 1.5)), (0, (9, 2)))

_SETTINGS = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "hatch.linewidth": 0.6,
    "text.parse_math": False,  # names may have dollars
}
_SMALL = 8
_TICKS = (1, 2, 2.5, 5, 10)
_GREY = "#555555"


def settled(function: Callable[..., Figure]) -> Callable[..., Figure]:
    """A function that makes its figure with our settings, whatever the user's are, and leaves these as they were."""

    @wraps(function)
    def inside(*args: Any, **kwargs: Any) -> Figure:
        with matplotlib.style.context(["default", _SETTINGS]):
            return function(*args, **kwargs)

    return inside


@settled
def plot_fronts(
    fronts: Mapping[str, Mapping[str, np.ndarray]],
    references: Mapping[str, Mapping[str, tuple[float, float]]],
    *,
    metric: str = "accuracy",
    floor: float | None = None,
) -> Figure:
    """Multiply-adds against the metric, one panel for each split, with the networks to compare with ([G] 15).

    Light shade is whatever dominates at least one of the networks, darker shade what dominates the dearest, as a rule
    the ensemble. Points that others of the same series dominate on that split, as happens when a front is evaluated
    anew on test data, are small and hollow.

    :param fronts: for each split, such as "validation" and "test", and each label the objectives [n, 2] of points:
        multiply-adds, and error as `Metric.error` gives it. n may be 0.
    :param references: for each split and network its multiply-adds and error. Splits may be missing.
    :param metric: a name in `METRICS`. One of which less is better is drawn as the error itself, better below.
    :param floor: the worst value of the metric that is shown; how many points are worse, a note tells. By default that
        of the worst network, or else of the worst point, rounded to a multiple of 0.1 away from the better ones, or of
        less if that would leave more than half of the panel empty.
    """
    if metric not in METRICS:
        raise ValueError(f"there is no metric {metric!r}; use one of {', '.join(METRICS)}.")
    if floor is not None and not math.isfinite(floor):
        raise ValueError(f"floor is a value of the metric, but is {floor}; leave it out to have it chosen.")
    _check_not_empty(fronts, "fronts", "{split: {label: F}}")
    if unknown := [split for split in references if split not in fronts]:
        raise ValueError(
            f"references are given for {unknown[0]!r}, but fronts only for {', '.join(map(repr, fronts))}."
        )
    sign = 1 if METRICS[metric].best > METRICS[metric].worst else -1
    points = {
        split: {label: _checked_front(F, f"fronts[{split!r}][{label!r}]") for label, F in _items(fronts, split)}
        for split in fronts
    }
    networks = {
        split: {
            name: _checked_reference(r, f"references[{split!r}][{name!r}]") for name, r in _items(references, split)
        }
        for split in fronts
    }
    everything = [F for part in points.values() for F in part.values()]
    named = [np.array([reference]) for part in networks.values() for reference in part.values()]
    if floor is None:
        errors = np.concatenate([F[:, 1] for F in everything + named] or [np.empty(0)])
        worst = max((F[:, 1].max() for F in named or everything if len(F)), default=1.0)
        floor = METRICS[metric].error(_rounded_up(worst, errors.min(initial=worst)))
    worst_error = METRICS[metric].error(floor)
    known = np.concatenate([*everything, *named, np.empty((0, 2))])
    shown = known[known[:, 1] <= worst_error]
    scale, unit = _unit(shown[:, 0].max(initial=0))

    def place(F: np.ndarray) -> np.ndarray:
        values = 1 - F[:, 1] if sign > 0 else F[:, 1]
        return np.column_stack([F[:, 0] / scale, values])

    labels = list(dict.fromkeys(label for part in points.values() for label in part))
    styles = dict(zip(labels, map(_style, range(len(labels))), strict=True))
    figure = Figure(figsize=(max(6, 1 + 4.5 * len(points)), 4.5), layout="constrained")
    panels = figure.subplots(1, len(points), sharex=True, sharey=True, squeeze=False)[0]
    x_limits, y_limits = _limits(place(shown), floor, sign)
    panels[0].set(xlim=x_limits, ylim=y_limits, ylabel=metric.replace("_", " ") + (" (less is better)" * (sign < 0)))
    left_behind = False
    for ax, (split, part) in zip(panels, points.items(), strict=True):
        ax.set_title(split, loc="left")
        ax.set_xlabel(f"multiply-adds ({unit})" if unit else "multiply-adds")
        ax.xaxis.set_major_formatter(FuncFormatter(_plain))
        ax.xaxis.set_major_locator(MaxNLocator(6, steps=_TICKS))
        ax.tick_params(labelleft=True)
        ax.yaxis.set_major_formatter(ScalarFormatter(useOffset=False))
        _shade(ax, {name: place(np.array([r]))[0] for name, r in networks[split].items()}, sign)
        for number, label in enumerate(part):
            F = part[label]
            kept = on_front(F)
            left_behind |= bool((~kept & (F[:, 1] <= worst_error)).any())
            front, others = place(F[kept]), place(F[~kept])
            front = front[np.argsort(front[:, 0], kind="stable")]
            style, order = styles[label], 3 + number / 100
            ax.plot(*front.T, drawstyle="steps-post", **style, markersize=5, linewidth=1.4, label=label, zorder=order)
            hollow = {"color": style["color"], "marker": style["marker"], "markersize": 3, "markerfacecolor": "none"}
            ax.plot(*others.T, linestyle="none", **hollow, markeredgewidth=0.7, zorder=order - 0.5)
        _note(ax, part, networks[split], worst_error, floor, sign)
    handles = [Line2D([], [], **styles[label], markersize=5, label=elided(label, 40)) for label in labels]
    if left_behind:
        hollow = {"marker": "o", "markersize": 3, "markerfacecolor": "none", "markeredgewidth": 0.7}
        handles.append(Line2D([], [], color=_GREY, linestyle="none", label="dominated on this split", **hollow))
    if named:
        handles.append(Patch(color=_LIGHT, label="dominates a network"))
        dearest = {_dearest(part) for part in networks.values() if part}
        name = elided(dearest.pop(), 32) if len(dearest) == 1 else "the dearest"
        handles.append(Patch(color=_DARKER, label=f"dominates {name}"))
    _legend(figure, handles)
    renderer = _laid_out(figure)
    for ax, split in zip(panels, points, strict=True):
        placed = {name: place(np.array([r]))[0] for name, r in networks[split].items() if r[1] <= worst_error}
        drawn = np.concatenate([_along(place(F)) for F in points[split].values()] or [np.empty((0, 2))])
        _name_crosses(renderer, ax, placed, drawn)
    return figure


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
    _check_not_empty(curves, "curves", "{label: [(x, hypervolume), …]}")
    figure = Figure(figsize=(7.5, 4.5), layout="constrained")
    ax = figure.subplots()
    handles, shown = [], []
    for number, (label, seeds) in enumerate(curves.items()):
        if not len(seeds):
            raise ValueError(f"curves[{label!r}] holds no seed; give a pair (x, hypervolume) for each.")
        steps = [_checked_curve(pair, f"curves[{label!r}][{i}]") for i, pair in enumerate(seeds)]
        style = {**_style(number), "linewidth": 2, "markersize": 4}
        text = f"{elided(label, 40)} ({len(steps)} seed{'s' * (len(steps) > 1)})"
        x, quartiles = _quartiles(steps)
        if not len(x):
            text += ", which share no x"
        else:
            spread = {"markevery": (0.02 * number, 0.12)}
            ax.step(x, quartiles[1], where="post", **style, **spread, zorder=3 + number / 100)
            shown.append((x, quartiles))
        hatch = HATCHES[number % len(HATCHES)]
        band = {
            "facecolor": lighter(style["color"], 0.75),
            "edgecolor": lighter(style["color"], 0.35),
            "hatch": hatch,
        }
        if len(steps) > 1 and len(x):
            ax.fill_between(x, quartiles[0], quartiles[2], step="post", alpha=0.6, linewidth=0.6, zorder=1.5, **band)
        line = Line2D([], [], **style)
        handles.append(((Patch(**band, alpha=0.6), line) if len(steps) > 1 else line, text))
    ax.set(xlabel=x_label, ylabel="hypervolume", ylim=_after_the_start(shown))
    ax.xaxis.set_major_formatter(FuncFormatter(_plain))
    _legend(figure, [handle for handle, _ in handles], [text for _, text in handles])
    return figure


@settled
def plot_stitches(runs: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> Figure:
    """How many stitches the evaluated genotypes ask for, and how many of these are in use, one panel for each run: median
    and quartiles of a window that moves over the evaluations.

    :param runs: for each run two arrays [n], in the order of evaluations: ones among the variables of links, and ones
        among those of them that are active, so never more.
    """
    _check_not_empty(runs, "runs", "{label: (nonzero, active)}")
    checked = {label: _checked_counts(pair, f"runs[{label!r}]") for label, pair in runs.items()}
    columns = min(3, len(checked))
    rows = math.ceil(len(checked) / columns)
    figure = Figure(figsize=(max(6, 1 + 3.6 * columns), 1 + 3 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flatten().tolist()
    window = max(1, max(len(nonzero) for nonzero, _ in checked.values()) // 40)
    bands = {"nonzero": (PALETTE[1], "///", _LINES[1]), "active": (PALETTE[0], "", "-")}
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
            _say(ax, "no evaluations")
        ax.xaxis.set_major_formatter(FuncFormatter(_plain))
        ax.xaxis.set_major_locator(MaxNLocator(5, steps=_TICKS))
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
    _legend(figure, handles, [f"nonzero ({said})", "active, that is in use"])
    return figure


@settled
def plot_reliability(bins: Mapping[str, Any]) -> Figure:
    """How often predictions are right, against how probable the networks say they are; below, how the predictions are
    spread over the bins. The legend has the expected calibration error.

    :param bins: for each label what `metrics.reliability` gives, summed over all batches: an array or tensor [3, bins]
        of predictions, the sum of their probabilities, and right ones.
    """
    _check_not_empty(bins, "bins", "{label: metrics.reliability(outputs, labels)}")
    figure = Figure(figsize=(6, 6), layout="constrained")
    top, below = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
    top.plot([0, 1], [0, 1], color=_GREY, linewidth=0.8, linestyle=(0, (2, 2)), zorder=1)
    handles = []
    for number, (label, sums) in enumerate(bins.items()):
        count, probability, right = _checked_sums(sums, f"bins[{label!r}]")
        style = {**_style(number), "linewidth": 1.5, "markersize": 5}
        full, total = count > 0, count.sum()
        top.plot(probability[full] / count[full], right[full] / count[full], **style, zorder=3 + number / 100)
        line = {"color": style["color"], "linestyle": style["linestyle"], "linewidth": 1.5}
        if total:
            below.stairs(count / total, np.linspace(0, 1, len(count) + 1), baseline=None, **line)
        error = METRICS["calibration_error"].value(torch.tensor(np.array([count, probability, right])))
        told = f"ECE {error:.3f}" if total else "no predictions"
        handles.append(Line2D([], [], **style, label=f"{elided(label, 40)}: {told}"))
    top.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), ylabel="part of predictions that are right")
    below.set(ylim=(0, None), xlabel="probability of the predicted class", ylabel="predictions")
    below.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
    below.yaxis.set_major_locator(MaxNLocator(3))
    _legend(figure, handles)
    return figure


# ---------------------------------------------------------------------------------------------------------------- fronts

_LIGHT, _DARKER = "#efefef", "#d6d6d6"


def _along(places: np.ndarray) -> np.ndarray:
    """The points, and more of them along the steps between, for names to keep away from."""
    places = places[np.argsort(places[:, 0], kind="stable")]
    t = np.linspace(0, 1, 5)[:, None]
    across = [np.column_stack([a[0] + t * (b[0] - a[0]), a[1] + 0 * t]) for a, b in pairwise(places)]
    return np.concatenate([places, *across])


def _after_the_start(curves: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[float | None, float | None]:
    """Limits for what differs, not for the steep rise of the first hundredth of x, if that would take most of the room."""
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


def _rounded_up(worst: float, best: float) -> float:
    """The worst error rounded to a multiple of 0.1, or to the next finer one that leaves no more room than is used."""
    for step in (0.1, 0.05, 0.02, 0.01):
        limit = math.ceil(round(worst / step, 6)) * step
        if limit - worst <= worst - best:
            break
    return limit if best < worst else max(1, math.ceil(round(worst / 0.1, 6))) * 0.1


def _limits(places: np.ndarray, floor: float, sign: int) -> tuple[tuple[float, float], tuple[float, float]]:
    """Of both axes, with room around what is shown; the floor is one end of y."""
    if not len(places):
        return (0, 1), tuple(sorted((floor, floor + 0.1 * sign)))
    low, high = places[:, 0].min(), places[:, 0].max()
    margin = 0.08 * (high - low) or 0.1 * high or 1
    best = places[:, 1].max() if sign > 0 else places[:, 1].min()
    best += sign * max(0.12 * abs(best - floor), 1e-3)
    return (low - margin, high + margin), tuple(sorted((floor, best)))


def _dearest(networks: Mapping[str, Sequence[float]]) -> str | None:
    """The last of those with the most multiply-adds."""
    return max(reversed(networks), key=lambda name: networks[name][0], default=None)


def _shade(ax: Axes, places: Mapping[str, np.ndarray], sign: int) -> None:
    """Crosses for networks, and what dominates them in shades: rectangles that reach beyond the axes."""
    (left, right), (bottom, top) = ax.get_xlim(), ax.get_ylim()
    far_left, best = left - (right - left), top + (top - bottom) if sign > 0 else bottom - (top - bottom)
    dearest = _dearest(places)
    for name, (x, y) in places.items():
        color, order = (_DARKER, 0.5) if name == dearest else (_LIGHT, 0.4)
        ax.add_patch(Rectangle((far_left, y), x - far_left, best - y, facecolor=color, linewidth=0, zorder=order))
        corner = {"color": "#9a9a9a", "linewidth": 0.6, "linestyle": (0, (3, 2)), "zorder": 0.6}
        ax.plot([far_left, x, x], [y, y, best], **corner)
    for x, y in places.values():
        hidden = not bottom <= y <= top  # the floor may be a network's own value: then its cross is on the edge
        ax.plot(
            x, y, marker="x", color="black", markersize=9, markeredgewidth=2, linestyle="none", zorder=5, clip_on=hidden
        )


def _note(
    ax: Axes,
    part: Mapping[str, np.ndarray],
    networks: Mapping[str, tuple[float, float]],
    worst_error: float,
    floor: float,
    sign: int,
) -> None:
    """What a panel does not show."""
    hidden = sum(int((F[:, 1] > worst_error).sum()) for F in part.values())
    below = sum(error > worst_error for _, error in networks.values())
    told = [f"{n:,} {what}{'s' * (n > 1)}" for n, what in ((hidden, "point"), (below, "network")) if n]
    if told:
        side = "below" if sign > 0 else "above"
        ax.set_title(f"{' and '.join(told)} {side} {floor:.3g} not shown", loc="right", fontsize=_SMALL, color=_GREY)
    if not any(len(F) for F in part.values()):
        _say(ax, "no points")
    elif empty := [label for label, F in part.items() if not len(F)]:
        ax.annotate(
            f"no points: {elided(', '.join(empty), 50)}",
            (1, 0),
            (-4, 4),
            xycoords="axes fraction",
            textcoords="offset points",
            ha="right",
            fontsize=_SMALL,
            color=_GREY,
        )


def _name_crosses(renderer: Any, ax: Axes, places: Mapping[str, np.ndarray], points: np.ndarray) -> None:
    """Each network's name beside its cross, where it is inside the axes, over no other name or cross, and over as
    few points as can be."""
    points = ax.transData.transform(points)
    crosses = {name: ax.transData.transform(place) for name, place in places.items()}
    unit, frame = ax.figure.dpi / 72, ax.get_window_extent(renderer)
    taken: list[Bbox] = []
    for name, (x, y) in crosses.items():
        text = ax.annotate(
            elided(name, 32),
            places[name],
            (0, 0),
            textcoords="offset points",
            fontsize=_SMALL,
            zorder=6,
            ha="center",
            va="center",
            path_effects=[withStroke(linewidth=2.5, foreground="white", alpha=0.9)],
        )
        size = text.get_window_extent(renderer)
        choices = []
        for distance in (9, 18, 30, 45, 62):
            for dx, dy in ((1, 0), (-1, 0), (0, -1), (0, 1), (1, -1), (-1, -1), (1, 1), (-1, 1)):
                right = dx * (distance * unit + size.width / 2)
                up = dy * (distance * unit + (size.height / 2 if not dx else 0))
                box = Bbox.from_bounds(x + right - size.width / 2, y + up - size.height / 2, size.width, size.height)
                outside = not (frame.x0 < box.x0 and box.x1 < frame.x1 and frame.y0 < box.y0 and box.y1 < frame.y1)
                clashes = sum(box.padded(2).overlaps(other) for other in taken)
                clashes += sum(box.padded(5).contains(*other) for other in crosses.values())
                covered = box.padded(3).count_contains(points)
                choices.append((100 * (outside + clashes) + covered + distance / 4, len(choices), right, up, box))
        _, _, right, up, box = min(choices)
        taken.append(box)
        text.set_position((right / unit, up / unit))
        if math.hypot(max(0, abs(right) - size.width / 2), up) > 14 * unit:
            near = np.clip((x, y), box.min, box.max)
            line = ax.transData.inverted().transform([(x, y), near])
            ax.plot(*line.T, color=_GREY, linewidth=0.6, zorder=4.9)


# ------------------------------------------------------------------------------------------------------------ statistics


def _quartiles(steps: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """x [m] and quartiles [3, m] of step functions where all are defined; only where one of these changes, and the end."""
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


# --------------------------------------------------------------------------------------------------------------- looks


def _style(number: int) -> dict[str, Any]:
    return {
        "color": PALETTE[number % len(PALETTE)],
        "marker": _MARKERS[number % len(_MARKERS)],
        "linestyle": _LINES[number % len(_LINES)],
    }


def lighter(color: str, part: float) -> tuple[float, ...]:
    """The colour with that part of white."""
    return tuple(part + (1 - part) * value for value in matplotlib.colors.to_rgb(color))


def _unit(largest: float) -> tuple[float, str]:
    """What to divide multiply-adds by, and the letter for it."""
    return next(((scale, unit) for scale, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")) if largest >= scale), (1, ""))


def human(count: float) -> str:
    """A number with three digits, such as 4.09 G."""
    scale, unit = _unit(count)
    digits = max(0, 2 - int(math.log10(max(count / scale, 1))))
    return f"{count / scale:.{digits}f} {unit}" if unit else f"{count:.0f}"


def _plain(value: float, _: int) -> str:
    return f"{value:,.10g}"


def elided(text: str, length: int) -> str:
    """The text, or its beginning and end."""
    text, half = str(text), (length - 1) // 2
    return text if len(text) <= length else f"{text[: length - 1 - half]}…{text[-half:]}"


def _say(ax: Axes, text: str) -> None:
    ax.text(0.5, 0.06, text, transform=ax.transAxes, ha="center", va="center", color=_GREY)


def _laid_out(figure: Figure) -> Any:
    """A renderer to measure with, after everything has found its place."""
    figure.draw_without_rendering()
    return FigureCanvasAgg(figure).get_renderer()


def _legend(
    figure: Figure, handles: Sequence[Artist | tuple[Artist, ...]], labels: Iterable[str] | None = None
) -> None:
    """Below the panels, in as many columns as fit."""
    labels = [handle.get_label() for handle in handles] if labels is None else list(labels)
    size = _SETTINGS["legend.fontsize"]
    sizes = [text_width(label, size) + 6.5 * size / 72 for label in labels]  # with handle and spaces
    for columns in range(min(len(handles), 5), 0, -1):
        needed = sum(max(part) for part in np.array_split(sizes, columns))
        if needed < 0.96 * figure.get_figwidth() or columns == 1:
            figure.legend(handles, labels, loc="outside lower center", ncols=columns, handlelength=3.2)
            return


def text_width(text: str, size: float, weight: str = "normal") -> float:
    """In inches; the size is in points."""
    return text_to_path.get_text_width_height_descent(text, FontProperties(size=size, weight=weight), False)[0] / 72


# --------------------------------------------------------------------------------------------------------------- checks


def _check_not_empty(given: Mapping, name: str, form: str) -> None:
    if not isinstance(given, Mapping):
        raise TypeError(f"{name} is a dictionary {form}, not {type(given).__name__}.")
    if not given:
        raise ValueError(f"{name} is empty; give {form}.")


def _items(given: Mapping[str, Mapping], split: str) -> Iterable[tuple[str, Any]]:
    part = given.get(split, {})
    if not isinstance(part, Mapping):
        raise TypeError(f"what belongs to the split {split!r} is a dictionary by label, not {type(part).__name__}.")
    return part.items()


def _array(values: Any, name: str) -> np.ndarray:
    try:
        array = np.asarray(values, dtype=float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be numbers, but is {values!r}.") from error
    if not np.isfinite(array).all():
        bad = array[~np.isfinite(array)].flat[0]
        raise ValueError(f"{name} must be finite, but {bad} is among its values. Leave out what has failed.")
    return array


def _checked_front(F: Any, name: str) -> np.ndarray:
    F = _array(F, name)
    if F.size == 0:
        return np.empty((0, 2))
    if F.ndim != 2 or F.shape[1] != 2:
        raise ValueError(f"{name} must be of shape [n, 2], multiply-adds and error, but is of shape {F.shape}.")
    return F


def _checked_reference(reference: Any, name: str) -> tuple[float, float]:
    pair = _array(reference, name)
    if pair.shape != (2,):
        raise ValueError(f"{name} must be two numbers, multiply-adds and error, but is {reference!r}.")
    return tuple(pair.tolist())


def _pair(values: Any, name: str, what: str) -> tuple[np.ndarray, np.ndarray]:
    if not isinstance(values, Sequence | np.ndarray) or len(values) != 2:
        raise ValueError(f"{name} must be a pair of arrays, {what}.")
    first, second = (_array(part, f"{name}[{i}]") for i, part in enumerate(values))
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
            f"{name}: of evaluation {at} {active[at]:g} stitches are active and {nonzero[at]:g} nonzero; active ones are "
            "some of the nonzero ones. Give (nonzero, active)."
        )
    return nonzero, active


def _checked_sums(sums: Any, name: str) -> np.ndarray:
    sums = _array(sums.cpu() if isinstance(sums, torch.Tensor) else sums, name)
    if sums.ndim != 2 or len(sums) != 3 or not sums.shape[1]:
        raise ValueError(f"{name} must be of shape [3, bins], as metrics.reliability gives it, but is {sums.shape}.")
    count, probability, right = sums
    if (sums < 0).any() or (right > count).any() or (probability > count * (1 + 1e-6)).any():
        raise ValueError(
            f"{name} must be, for each bin, predictions, the sum of their probabilities and right ones, the latter two at "
            "most the first and none negative. Use metrics.reliability, and add its results up."
        )
    return sums
