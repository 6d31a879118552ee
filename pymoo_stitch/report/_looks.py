"""How all figures look: colours, styles, text and legends, and the checks of what they are made from.

Nothing here touches pyplot, a window or the settings of matplotlib. Series differ in colour, in lightness, in the shape
of markers and in the style of lines, so that figures can be read in grey and by the colour-blind."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, wraps
from typing import Any

import matplotlib.style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

PALETTE = ("#0072B2", "#E69F00", "#5B2A86", "#56B4E9", "#009E73", "#CC79A7", "#D55E00")
"""The colours of Okabe and Ito, in an order in which neighbours differ in lightness; but yellow, which is lost on
white, and black, which is that of references."""

# What tells series apart besides their colours.
HATCHES = ("///", "...", "\\\\\\", "xx", "|||", "oo", "---")
LINES = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (5, 1.5, 1, 1.5)), (0, (9, 2)))
_MARKERS = "osD^vPhp"

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
SMALL = 8  # the font of notes
TICKS = (1, 2, 2.5, 5, 10)
GREY = "#555555"


def settled(function: Callable[..., Figure]) -> Callable[..., Figure]:
    """A function that makes its figure with our settings, whatever the user's are, and leaves these as they were."""

    @wraps(function)
    def inside(*args: Any, **kwargs: Any) -> Figure:
        with matplotlib.style.context(["default", _SETTINGS]):
            return function(*args, **kwargs)

    return inside


def style_of(number: int) -> dict[str, Any]:
    """Colour, marker and line of a series."""
    return {
        "color": PALETTE[number % len(PALETTE)],
        "marker": _MARKERS[number % len(_MARKERS)],
        "linestyle": LINES[number % len(LINES)],
    }


def lighter(color: str, part: float) -> tuple[float, float, float]:
    """The colour mixed with this fraction of white."""
    red, green, blue = (part + (1 - part) * value for value in matplotlib.colors.to_rgb(color))
    return red, green, blue


def unit_of(largest: float) -> tuple[float, str]:
    """What to divide multiply-adds by, and the letter for it."""
    return next(((scale, unit) for scale, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")) if largest >= scale), (1, ""))


def human(count: float) -> str:
    """A number with three digits, such as 4.09 G."""
    scale, unit = unit_of(count)
    digits = max(0, 2 - int(math.log10(max(count / scale, 1))))
    return f"{count / scale:.{digits}f} {unit}" if unit else f"{count:.0f}"


def plain(value: float, _: int) -> str:
    """The label of a tick, never with an exponent that is not needed."""
    return f"{value:,.10g}"


def elided(text: str, length: int) -> str:
    """The text, or its beginning and end."""
    text, half = str(text), (length - 1) // 2
    return text if len(text) <= length else f"{text[: length - 1 - half]}…{text[-half:]}"


def say(ax: Axes, text: str) -> None:
    """A note in a panel that has nothing else."""
    ax.text(0.5, 0.06, text, transform=ax.transAxes, ha="center", va="center", color=GREY)


def laid_out(figure: Figure) -> Any:
    """A renderer to measure with, after everything has found its place."""
    figure.draw_without_rendering()
    return FigureCanvasAgg(figure).get_renderer()


def add_legend(figure: Figure, handles: Sequence[Any], labels: Iterable[str] | None = None) -> None:
    """Below the panels, in as many columns as fit."""
    labels = [handle.get_label() for handle in handles] if labels is None else list(labels)
    size = _SETTINGS["legend.fontsize"]
    sizes = [text_width(label, size) + 6.5 * size / 72 for label in labels]  # with handle and spaces
    for columns in range(min(len(handles), 5), 0, -1):
        needed = sum(max(part) for part in np.array_split(sizes, columns))
        if needed < 0.96 * figure.get_figwidth() or columns == 1:
            figure.legend(handles, labels, loc="outside lower center", ncols=columns, handlelength=3.2)
            return


@lru_cache(maxsize=10_000)  # a report draws many networks with the same labels
def text_width(text: str, size: float, weight: str = "normal") -> float:
    """In inches; the size is in points."""
    return text_to_path.get_text_width_height_descent(text, FontProperties(size=size, weight=weight), False)[0] / 72


# --------------------------------------------------------------------------------------------------------------- checks


def check_not_empty(given: Mapping, name: str, form: str) -> None:
    if not isinstance(given, Mapping):
        raise TypeError(f"{name} is a dictionary {form}, not {type(given).__name__}.")
    if not given:
        raise ValueError(f"{name} is empty; give {form}.")


def checked_array(values: Any, name: str) -> np.ndarray:
    """The values as finite numbers; `name` stands for them in an error."""
    try:
        array = np.asarray(values, dtype=float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be numbers, but is {values!r}.") from error
    if not np.isfinite(array).all():
        bad = array[~np.isfinite(array)].flat[0]
        raise ValueError(f"{name} must be finite, but {bad} is among its values. Leave out what has failed.")
    return array
