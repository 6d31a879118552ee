"""Drawings as data: boxes, lines and texts, in inches, which matplotlib draws as a figure and a page as SVG."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle
from matplotlib.path import Path

from ._looks import GREY, PALETTE, lighter

_COLORS = {"ink": "black", "muted": GREY, "grey": "#999999", "pale": "#bbbbbb", "paper": "white"}
"""Colours go by these names, or by their number in `PALETTE`, since paper may be dark; "0/15" is 15 % of the first
colour on paper."""


@dataclass(frozen=True)
class Box:
    """x and y are those of its lower left corner; `line` is the width of its edge in points."""

    x: float
    y: float
    width: float
    height: float
    fill: str
    edge: str = "paper"
    line: float = 0.0
    hatch: str = ""
    order: float = 4.0


@dataclass(frozen=True)
class Line:
    """Through points, with an arrow or a dot at its end, if it has any."""

    points: Sequence[tuple[float, float]]
    color: str = "muted"
    line: float = 1.1
    end: str = ""
    order: float = 2.0


@dataclass(frozen=True)
class Text:
    """Lines of text. `x` is where they start, or their middle if they are `centered`; `y` their "bottom", "center" or
    "top", as `at` says. Upright ones read from below, and on `paper` they hide what is under them. The size is in
    points."""

    x: float
    y: float
    lines: Sequence[str]
    size: float
    color: str = "ink"
    bold: bool = False
    centered: bool = False
    at: str = "center"
    upright: bool = False
    paper: bool = False
    order: float = 5.0


Shape = Box | Line | Text


@dataclass
class Drawing:
    """Shapes on a canvas whose lower left corner is (−left, 0). Those of a higher `order` lie above others."""

    width: float
    height: float
    left: float = 0.0
    shapes: list[Shape] = field(default_factory=list)

    def add(self, *shapes: Shape) -> None:
        self.shapes.extend(shapes)

    def figure(self) -> Figure:
        """By matplotlib."""
        figure = Figure(figsize=(self.width, self.height))
        ax = figure.add_axes((0, 0, 1, 1))
        ax.set(xlim=(-self.left, self.width - self.left), ylim=(0, self.height))
        ax.set_axis_off()
        for shape in self.shapes:
            if isinstance(shape, Box):
                look = {"facecolor": _color(shape.fill), "edgecolor": _color(shape.edge), "hatch": shape.hatch or None}
                place = (shape.x, shape.y), shape.width, shape.height
                ax.add_patch(Rectangle(*place, **look, linewidth=shape.line, zorder=shape.order))
            elif isinstance(shape, Line):
                _draw_line(ax, shape)
            else:
                _draw_text(ax, shape)
        return figure

    def document(self) -> dict[str, Any]:
        """As JSON takes it, in few bytes: from the lowest to the highest, y downwards, in hundredths of an inch. Shapes
        are lists that begin with the number of their look among all `looks`, in which what is as by default is left
        out. Then come, of boxes, x, y, width and height; of lines x and y of all points; of texts x, y and the
        lines."""
        looks: dict[str, int] = {}
        shapes = []
        for shape in sorted(self.shapes, key=lambda shape: shape.order):
            look = json.dumps({"kind": type(shape).__name__.lower()} | _look(shape))
            shapes.append([looks.setdefault(look, len(looks)), *self._places(shape)])
        width, height = round(100 * self.width), round(100 * self.height)
        return {"width": width, "height": height, "looks": [json.loads(look) for look in looks], "shapes": shapes}

    def _places(self, shape: Shape) -> list[Any]:
        if isinstance(shape, Line):
            return [number for point in shape.points for number in self._place(*point)]
        if isinstance(shape, Text):
            return [*self._place(shape.x, shape.y), *shape.lines]
        return [*self._place(shape.x, shape.y + shape.height), _hundredths(shape.width), _hundredths(shape.height)]

    def _place(self, x: float, y: float) -> tuple[float, float]:
        return _hundredths(x + self.left), _hundredths(self.height - y)


def _look(shape: Shape) -> dict[str, Any]:
    """The look of a shape, apart from its place, without what has its default."""
    elsewhere = ("x", "y", "width", "height", "points", "lines", "order", "hatch")
    values = ((field.name, getattr(shape, field.name), field.default) for field in fields(shape))
    return {name: value for name, value, default in values if name not in elsewhere and value != default}


def _hundredths(inches: float) -> float:
    value = round(100 * inches, 1)
    return int(value) if value.is_integer() else value


def _color(name: str) -> Any:
    name, _, percent = name.partition("/")
    color = PALETTE[int(name)] if name.isdecimal() else _COLORS[name]
    return lighter(color, 1 - int(percent) / 100) if percent else color


def _draw_line(ax: Any, shape: Line) -> None:
    look: dict[str, Any] = {"color": _color(shape.color), "linewidth": shape.line, "zorder": shape.order}
    if shape.end == "arrow":
        arrow: dict[str, Any] = {
            "arrowstyle": "-|>",
            "mutation_scale": 9,
            "shrinkA": 0,
            "shrinkB": 0,
            "joinstyle": "miter",
        }
        ax.add_patch(FancyArrowPatch(path=Path(shape.points), **arrow, **look, fill=False))
        return
    x, y = zip(*shape.points, strict=True)
    ax.plot(x, y, **look, solid_capstyle="butt")
    if shape.end == "dot":
        ax.plot(x[-1], y[-1], marker="o", color=look["color"], markersize=4, zorder=shape.order)


def _draw_text(ax: Any, shape: Text) -> None:
    look: dict[str, Any] = {"fontsize": shape.size, "color": _color(shape.color), "zorder": shape.order}
    look |= {"weight": "bold"} if shape.bold else {}
    look |= {"rotation": 90} if shape.upright else {}
    look |= {"bbox": {"facecolor": "white", "linewidth": 0, "pad": 0.6}} if shape.paper else {}
    ha = "center" if shape.centered else "left"
    ax.text(shape.x, shape.y, "\n".join(shape.lines), ha=ha, va=shape.at, linespacing=1.25, **look)
