"""The fronts of a search as a figure: multiply-adds against the metric, with the networks to compare with."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FuncFormatter, MaxNLocator, ScalarFormatter
from matplotlib.transforms import Bbox

from ..task import METRICS, Metric
from ..util.fronts import on_front
from ._looks import (
    GREY,
    SMALL,
    TICKS,
    add_legend,
    check_not_empty,
    checked_array,
    elided,
    laid_out,
    plain,
    say,
    settled,
    style_of,
    unit_of,
)

_LIGHT, _DARKER = "#efefef", "#d6d6d6"
_CURVE: dict[str, Any] = {"color": "black", "linestyle": (0, (1, 1.5)), "linewidth": 1, "marker": ".", "markersize": 4}
_RING: dict[str, Any] = {"marker": "o", "markerfacecolor": "none", "markeredgecolor": "black", "linestyle": "none"}
_HOLLOW: dict[str, Any] = {"linestyle": "none", "markersize": 3, "markerfacecolor": "none", "markeredgewidth": 0.7}


@settled
def plot_fronts(
    fronts: Mapping[str, Mapping[str, np.ndarray]],
    references: Mapping[str, Mapping[str, Sequence[float]]],
    *,
    metric: str = "accuracy",
    floor: float | None = None,
    chosen: tuple[str, Mapping[str, Sequence[float]]] | None = None,
    curves: Mapping[str, Mapping[str, np.ndarray]] = MappingProxyType({}),
) -> Figure:
    """Multiply-adds against the metric, one panel for each split, with the networks to compare with ([G] 15).

    Light shade is whatever dominates at least one of the networks, darker shade what dominates the most expensive, as a
    rule the ensemble. Points that others of the same series dominate on that split, as happens when a front is
    evaluated again on test data, are small and hollow.

    :param fronts: for each split, such as "validation" and "test", and each label the objectives [n, 2] of points:
        multiply-adds, and error as `Metric.error` returns it; or [n, 4], with the ends of the error's interval, which
        are drawn as bars. n may be 0.
    :param references: for each split and network its multiply-adds and error, perhaps with an interval. Splits may be
        missing.
    :param metric: a name in `METRICS`. A metric that is minimised is drawn as the error itself, better below.
    :param floor: the worst value of the metric that is shown; a note says how many points are worse. By default that
        of the worst network, or else of the worst point, rounded to a multiple of 0.1 away from the better ones, or of
        less if that would leave more than half of the panel empty.
    :param chosen: the name of a point to be marked, and its objectives on each split.
    :param curves: by label and split, objectives [n, 2] or [n, 4] of more points to compare with, drawn as a dotted
        black curve.
    """
    _check_metric_and_floor(metric, floor)
    panels = _checked_panels(fronts, references, chosen)
    view = _view(panels, METRICS[metric], floor)
    labels = dict.fromkeys(label for panel in panels for label in panel.series)
    styles = {label: style_of(number) for number, label in enumerate(labels)}
    figure, axes = _empty_panels(panels, view, metric)
    for ax, panel in zip(axes, panels, strict=True):
        _draw_networks(ax, panel, view)
        _draw_series(ax, panel, view, styles)
        _draw_curves(ax, panel, view, curves)
        _mark_chosen(ax, panel, view)
        _tell_what_is_missing(ax, panel, view)
    more = [Line2D([], [], **_CURVE, label=elided(label, 40)) for label in curves]
    add_legend(figure, [*_handles(panels, view, styles), *more])
    renderer = laid_out(figure)  # only now is it known what is near a cross
    for ax, panel in zip(axes, panels, strict=True):
        _name_crosses(renderer, ax, panel, view)
    return figure


# ---------------------------------------------------------------------------------------------------------------- input


@dataclass(frozen=True)
class _Panel:
    """What is known of a split: multiply-adds and error, of series [n, 2] and of networks [2], the ends of the errors'
    intervals where they are known, of series [n, 2] and of networks [2], and the chosen point by its name."""

    split: str
    series: dict[str, np.ndarray]
    networks: dict[str, np.ndarray]
    series_ends: dict[str, np.ndarray]
    networks_ends: dict[str, np.ndarray]
    chosen: dict[str, np.ndarray]


def _check_metric_and_floor(metric: str, floor: float | None) -> None:
    if metric not in METRICS:
        raise ValueError(f"there is no metric {metric!r}; use one of {', '.join(METRICS)}.")
    if floor is not None and not math.isfinite(floor):
        raise ValueError(f"floor must be a value of the metric, but is {floor}; omit it to have it chosen.")


def _checked_panels(
    fronts: Mapping[str, Mapping],
    references: Mapping[str, Mapping],
    chosen: tuple[str, Mapping[str, Sequence[float]]] | None,
) -> list[_Panel]:
    check_not_empty(fronts, "fronts", "{split: {label: F}}")
    if unknown := [split for split in references if split not in fronts]:
        raise ValueError(
            f"references are given for {unknown[0]!r}, but fronts only for {', '.join(map(repr, fronts))}."
        )
    series = {split: _checked_part(fronts, "fronts", split, _checked_front) for split in fronts}
    networks = {split: _checked_part(references, "references", split, _checked_reference) for split in fronts}
    name, places = chosen or ("", {})
    marked = {split: {name: _checked_reference(f, f"chosen on {split!r}")[:2]} for split, f in places.items()}
    return [
        _Panel(  # type: ignore[call-arg]  # mypy does not count what is unpacked
            split,
            *({label: F[..., :2] for label, F in part[split].items()} for part in (series, networks)),
            *(
                {label: F[..., 2:] for label, F in part[split].items() if F.shape[-1] == 4}
                for part in (series, networks)
            ),
            marked.get(split, {}),
        )
        for split in fronts
    ]


def _checked_part(
    given: Mapping[str, Mapping], name: str, split: str, check: Callable[[Any, str], np.ndarray]
) -> dict[str, np.ndarray]:
    part = given.get(split, {})
    if not isinstance(part, Mapping):
        raise TypeError(f"what belongs to the split {split!r} is a dictionary by label, not {type(part).__name__}.")
    return {label: check(value, f"{name}[{split!r}][{label!r}]") for label, value in part.items()}


def _checked_front(F: Any, name: str) -> np.ndarray:
    F = checked_array(F, name)
    if F.size == 0:
        return np.empty((0, 2))
    if F.ndim != 2 or F.shape[1] not in (2, 4):
        raise ValueError(
            f"{name} must be of shape [n, 2], multiply-adds and error, or [n, 4], with the ends of the error's "
            f"interval, but is of shape {F.shape}."
        )
    return F


def _checked_reference(reference: Any, name: str) -> np.ndarray:
    pair = checked_array(reference, name)
    if pair.shape not in ((2,), (4,)):
        raise ValueError(
            f"{name} must be two numbers, multiply-adds and error, or four, with the ends of the error's interval, but "
            f"is {reference!r}."
        )
    return pair


# ------------------------------------------------------------------------------------------------- scale, floor, limits


@dataclass(frozen=True)
class _View:
    """Which objectives are shown, and where; the same in all panels."""

    sign: int  # 1 if the metric is maximised, else −1
    floor: float  # the worst value of the metric that is shown
    worst_error: float  # the floor as an error
    shown: np.ndarray  # all points and networks of all panels down to the floor [n, 2]
    scale: float  # multiply-adds are shown in multiples of it
    unit: str

    def shows(self, F: np.ndarray) -> np.ndarray:
        """Which objectives [..., 2] are not below the floor."""
        return F[..., 1] <= self.worst_error

    def place(self, F: np.ndarray) -> np.ndarray:
        """Where objectives [..., 2] are in a panel."""
        values = 1 - F[..., 1] if self.sign > 0 else F[..., 1]
        return np.stack([F[..., 0] / self.scale, values], axis=-1)


def _view(panels: Sequence[_Panel], metric: Metric, floor: float | None) -> _View:
    points = _rows(F for panel in panels for F in panel.series.values())
    networks = _rows(network for panel in panels for network in panel.networks.values())
    known = _rows([points, networks])
    if floor is None:
        judged = networks if len(networks) else points
        worst = judged[:, 1].max() if len(judged) else 1.0
        floor = metric.error(_rounded_up(worst, known[:, 1].min(initial=worst)))
    worst_error = metric.error(floor)
    shown = known[known[:, 1] <= worst_error]
    sign = 1 if metric.best > metric.worst else -1
    return _View(sign, floor, worst_error, shown, *unit_of(shown[:, 0].max(initial=0)))


def _rows(arrays: Iterable[np.ndarray]) -> np.ndarray:
    """All of them as one array [n, 2]; there may be none."""
    return np.vstack([np.empty((0, 2)), *arrays])


def _rounded_up(worst: float, best: float) -> float:
    """The worst error rounded to a multiple of 0.1, or to the next finer one that leaves no more room than is used."""
    for step in (0.1, 0.05, 0.02, 0.01):
        limit = math.ceil(round(worst / step, 6)) * step
        if limit - worst <= worst - best:
            break
    return limit if best < worst else max(1, math.ceil(round(worst / 0.1, 6))) * 0.1


def _limits(view: _View) -> tuple[tuple[float, float], tuple[float, float]]:
    """Of both axes, with room around what is shown; the floor is one end of y."""
    places, floor, sign = view.place(view.shown), view.floor, view.sign
    if not len(places):
        return (0, 1), (min(floor, floor + 0.1 * sign), max(floor, floor + 0.1 * sign))
    low, high = places[:, 0].min(), places[:, 0].max()
    margin = 0.08 * (high - low) or 0.1 * high or 1
    best = places[:, 1].max() if sign > 0 else places[:, 1].min()
    best += sign * max(0.12 * abs(best - floor), 1e-3)
    return (low - margin, high + margin), tuple(sorted((floor, best)))


# --------------------------------------------------------------------------------------------------------------- panels


def _empty_panels(panels: Sequence[_Panel], view: _View, metric: str) -> tuple[Figure, Sequence[Axes]]:
    """Their axes, with limits, titles and ticks."""
    figure = Figure(figsize=(max(6, 1 + 4.5 * len(panels)), 4.5), layout="constrained")
    axes = figure.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)[0]
    x_limits, y_limits = _limits(view)
    y_label = metric.replace("_", " ") + " (less is better)" * (view.sign < 0)
    axes[0].set(xlim=x_limits, ylim=y_limits, ylabel=y_label)
    for ax, panel in zip(axes, panels, strict=True):
        ax.set_title(panel.split, loc="left")
        ax.set_xlabel(f"multiply-adds ({view.unit})" if view.unit else "multiply-adds")
        ax.xaxis.set_major_formatter(FuncFormatter(plain))
        ax.xaxis.set_major_locator(MaxNLocator(6, steps=TICKS))
        ax.tick_params(labelleft=True)
        ax.yaxis.set_major_formatter(ScalarFormatter(useOffset=False))
    return figure, axes


def _draw_networks(ax: Axes, panel: _Panel, view: _View) -> None:
    """Crosses for networks, and what dominates them in shades: rectangles that reach beyond the axes."""
    places = {name: view.place(network) for name, network in panel.networks.items()}
    (left, right), (bottom, top) = ax.get_xlim(), ax.get_ylim()
    far_left, best = left - (right - left), top + (top - bottom) if view.sign > 0 else bottom - (top - bottom)
    largest = _most_expensive(places)
    for name, (x, y) in places.items():
        color, order = (_DARKER, 0.5) if name == largest else (_LIGHT, 0.4)
        ax.add_patch(Rectangle((far_left, y), x - far_left, best - y, facecolor=color, linewidth=0, zorder=order))
        corner: dict[str, Any] = {"color": "#9a9a9a", "linewidth": 0.6, "linestyle": (0, (3, 2)), "zorder": 0.6}
        ax.plot([far_left, x, x], [y, y, best], **corner)
    cross: dict[str, Any] = {
        "marker": "x",
        "color": "black",
        "markersize": 9,
        "markeredgewidth": 2,
        "linestyle": "none",
        "zorder": 5,
    }
    for name, (x, y) in places.items():
        hidden = not bottom <= y <= top  # the floor may be a network's own value: then its cross is on the edge
        ax.plot(x, y, **cross, clip_on=hidden)
        if name in panel.networks_ends:
            _draw_bars(ax, panel.networks[name][None], panel.networks_ends[name][None], view, "black", 4.8)


def _draw_bars(ax: Axes, F: np.ndarray, ends: np.ndarray, view: _View, color: str, order: float) -> None:
    """Intervals [n, 2] of the errors of points [n, 2]."""
    x = view.place(F)[:, 0]
    low, high = (view.place(np.column_stack([F[:, 0], end]))[:, 1] for end in ends.T)
    ax.vlines(x, low, high, color=color, linewidth=0.7, alpha=0.55, zorder=order)


def _draw_curves(ax: Axes, panel: _Panel, view: _View, curves: Mapping[str, Mapping[str, np.ndarray]]) -> None:
    for label, by_split in curves.items():
        F = _checked_front(by_split.get(panel.split, []), f"curves[{label!r}][{panel.split!r}]")
        ax.plot(*view.place(F[np.argsort(F[:, 0], kind="stable"), :2]).T, **_CURVE, zorder=2.9)
        if F.shape[1] == 4:
            _draw_bars(ax, F[:, :2], F[:, 2:], view, GREY, 2.8)


def _mark_chosen(ax: Axes, panel: _Panel, view: _View) -> None:
    for f in panel.chosen.values():
        ax.plot(*view.place(f), **_RING, markersize=12, markeredgewidth=1.4, zorder=4.95)


def _most_expensive(networks: Mapping[str, np.ndarray]) -> str | None:
    """The name of the network with the most multiply-adds, the last of equals."""
    return max(reversed(list(networks)), key=lambda name: networks[name][0], default=None)


def _draw_series(ax: Axes, panel: _Panel, view: _View, styles: Mapping[str, dict[str, Any]]) -> None:
    """Of each the front as steps, and what that dominates small and hollow."""
    for number, (label, F) in enumerate(panel.series.items()):
        kept = on_front(F)
        front, others = view.place(F[kept]), view.place(F[~kept])
        front = front[np.argsort(front[:, 0], kind="stable")]
        style, order = styles[label], 3 + number / 100
        ax.plot(*front.T, drawstyle="steps-post", **style, markersize=5, linewidth=1.4, label=label, zorder=order)
        ax.plot(*others.T, **_HOLLOW, color=style["color"], marker=style["marker"], zorder=order - 0.5)
        if label in panel.series_ends:
            _draw_bars(ax, F[kept], panel.series_ends[label][kept], view, style["color"], order - 0.6)


def _tell_what_is_missing(ax: Axes, panel: _Panel, view: _View) -> None:
    """How many points and networks are beyond the floor, and which series have no points at all."""
    points = sum(int((~view.shows(F)).sum()) for F in panel.series.values())
    networks = sum(not view.shows(network) for network in panel.networks.values())
    told = [f"{n:,} {what}{'s' * (n > 1)}" for n, what in ((points, "point"), (networks, "network")) if n]
    small: dict[str, Any] = {"fontsize": SMALL, "color": GREY}
    if told:
        side = "below" if view.sign > 0 else "above"
        ax.set_title(f"{' and '.join(told)} {side} {view.floor:.3g} not shown", loc="right", **small)
    empty = [label for label, F in panel.series.items() if not len(F)]
    if len(empty) == len(panel.series):
        say(ax, "no points")
    elif empty:
        text = f"no points: {elided(', '.join(empty), 50)}"
        ax.annotate(text, (1, 0), (-4, 4), "axes fraction", textcoords="offset points", ha="right", **small)


def _handles(panels: Sequence[_Panel], view: _View, styles: Mapping[str, dict[str, Any]]) -> list[Artist]:
    """What the legend explains: series, hollow points if any are shown, and the shades if there are networks."""
    handles: list[Artist] = []
    handles += [Line2D([], [], **style, markersize=5, label=elided(label, 40)) for label, style in styles.items()]
    if chosen := next((name for panel in panels for name in panel.chosen), None):
        handles.append(Line2D([], [], **_RING, markersize=9, label=f"recommended: {elided(chosen, 24)}"))
    if any(panel.series_ends or panel.networks_ends for panel in panels):
        handles.append(Line2D([], [], color=GREY, linewidth=0.8, label="95 % interval"))
    if any((~on_front(F) & view.shows(F)).any() for panel in panels for F in panel.series.values()):
        handles.append(Line2D([], [], **_HOLLOW, color=GREY, marker="o", label="dominated on this split"))
    if largest := {_most_expensive(panel.networks) for panel in panels if panel.networks}:
        name = elided(largest.pop(), 32) if len(largest) == 1 else "the most expensive"
        handles.append(Patch(color=_LIGHT, label="dominates a network"))
        handles.append(Patch(color=_DARKER, label=f"dominates {name}"))
    return handles


# ----------------------------------------------------------------------------------------------------- names of crosses


@dataclass(frozen=True)
class _Spot:
    """Where the name of a cross could be: so far away (in points), its middle `right` of the cross and `up` (in
    pixels)."""

    distance: float
    right: float
    up: float
    box: Bbox


def _name_crosses(renderer: Any, ax: Axes, panel: _Panel, view: _View) -> None:
    """The name of each network beside its cross, and that of the chosen point beside it, where it is inside the axes,
    over no other name or cross, and over as few points as can be."""
    to_pixels, point = ax.transData, ax.figure.dpi / 72
    named = panel.networks | panel.chosen
    places = {name: view.place(network) for name, network in named.items() if view.shows(network)}
    crosses = {name: to_pixels.transform(place) for name, place in places.items()}
    points = to_pixels.transform(_rows(_along(view.place(F)) for F in panel.series.values()))
    frame = ax.get_window_extent(renderer)
    taken: list[Bbox] = []
    halo = [withStroke(linewidth=2.5, foreground="white", alpha=0.9)]
    look: dict[str, Any] = {"fontsize": SMALL, "ha": "center", "va": "center", "path_effects": halo, "zorder": 6}
    for name, cross in crosses.items():
        text = ax.annotate(elided(name, 32), tuple(places[name]), (0, 0), textcoords="offset points", **look)
        size = text.get_window_extent(renderer)
        spots = _spots(cross, size, point)
        spot = min(spots, key=lambda spot: _harm(spot, frame, taken, crosses.values(), points))
        taken.append(spot.box)
        text.set_position((spot.right / point, spot.up / point))
        if math.hypot(max(0, abs(spot.right) - size.width / 2), spot.up) > 14 * point:
            near = np.clip(cross, spot.box.min, spot.box.max)
            line = to_pixels.inverted().transform([cross, near])
            ax.plot(*line.T, color=GREY, linewidth=0.6, zorder=4.9)


def _spots(cross: np.ndarray, size: Bbox, point: float) -> Iterator[_Spot]:
    """From near to far, on all sides, for a text of that size; a point is this many pixels."""
    x, y = cross
    for distance in (9, 18, 30, 45, 62):
        for dx, dy in ((1, 0), (-1, 0), (0, -1), (0, 1), (1, -1), (-1, -1), (1, 1), (-1, 1)):
            right = dx * (distance * point + size.width / 2)
            up = dy * (distance * point + (size.height / 2 if not dx else 0))
            box = Bbox.from_bounds(x + right - size.width / 2, y + up - size.height / 2, size.width, size.height)
            yield _Spot(distance, right, up, box)


def _harm(spot: _Spot, frame: Bbox, taken: Iterable[Bbox], crosses: Iterable[np.ndarray], points: np.ndarray) -> float:
    """How bad a spot is: it is worst to leave the frame or to cover names and crosses, then to cover points,
    then to be far away."""
    box = spot.box
    outside = not (frame.x0 < box.x0 and box.x1 < frame.x1 and frame.y0 < box.y0 and box.y1 < frame.y1)
    clashes = sum(box.padded(2).overlaps(other) for other in taken)
    clashes += sum(box.padded(5).contains(*cross) for cross in crosses)
    return 100 * (outside + clashes) + box.padded(3).count_contains(points) + spot.distance / 4


def _along(places: np.ndarray) -> np.ndarray:
    """The points, and more of them along the steps between, for names to keep away from."""
    places = places[np.argsort(places[:, 0], kind="stable")]
    t = np.linspace(0, 1, 5)[:, None]
    across = [np.column_stack([a[0] + t * (b[0] - a[0]), a[1] + 0 * t]) for a, b in pairwise(places)]
    return np.concatenate([places, *across])
