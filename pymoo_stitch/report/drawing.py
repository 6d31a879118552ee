"""A subnetwork or a cascade as a picture: which parts of which network it uses, and where the stitches are."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from matplotlib.figure import Figure

from ..network import Network
from ..supernet import Cascade, Sharing, Subnetwork
from ._looks import HATCHES, PALETTE, elided, human, settled, text_width
from .segments import Segment, results, segments, stitch_label
from .shapes import Box, Drawing, Line, Text

# All lengths are in inches, fonts in points.
_SMALL, _NAME = 7.5, 9
_GAP = 0.16  # between blocks of a lane
_PADDING = 0.16  # around text
_INSET = 0.09  # from the start of a block to its first arrow
_UNUSED = 0.3  # the least width of a part that is left out
_LINE = 0.14  # from one line of text to the next
_LEVEL = 0.09  # between lines that run side by side
_WIDEST = 14  # beyond it text is turned upright
_LONGEST = 24  # characters of a module's path


@dataclass
class _Layout:
    """Where things are. Each stitch has an x of its own, so that their labels never meet; blocks of a lane follow one
    another; each block is to the right of all it reads."""

    upright: bool
    lines: dict[int, list[str]]  # of each block
    block_height: float
    label_height: float
    ends: dict[str, float]  # of each lane
    spans: dict[int, tuple[float, float]] = field(default_factory=dict)  # of each block
    stitches: dict[int, float] = field(default_factory=dict)
    unused: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    free: float = 0.0  # where the label of the next stitch may begin

    @property
    def width(self) -> float:
        return max(0.0 if self.upright else self.free - _PADDING, *self.ends.values())


@settled
def draw_subnetwork(subnetwork: Subnetwork) -> Figure:
    """A lane for each network, from the input on the left to the output on the right. Blocks are the segments in use,
    with their first and last module, their multiply-adds and their share of all; grey outlines are left out. Arrows
    between lanes are stitches, with their kind and channels; lines along a lane show what blocks read from one another.
    The bar at the foot shows the multiply-adds of all blocks (in the colours of the lanes) and stitches (black) to
    scale.

    Blocks are as wide as their labels; the figure is as wide as it needs to be."""
    return subnetwork_drawing(subnetwork).figure()


@settled
def draw_cascade(cascade: Cascade) -> Figure:
    """The stages of a cascade, one below another, each drawn like a subnetwork (see `draw_subnetwork`): in the stage's
    own colour what it computes, in grey what stages before it have computed and kept. Beside each stage, when an image
    gets its answer there, and where it is known, what fraction of images reaches it. At the foot, how many
    multiply-adds each stage adds, to scale, and as the height of its bar the fraction of images for which it does."""
    return cascade_drawing(cascade).figure()


def subnetwork_drawing(subnetwork: Subnetwork) -> Drawing:
    """The shapes of `draw_subnetwork`."""
    networks, foot = subnetwork.space.networks, 0.95
    panel = _Panel(subnetwork, segments(subnetwork), networks, _output(subnetwork))
    heading = _heading(subnetwork)
    height = foot + panel.height + 0.35
    width = max(panel.left + panel.width, 7, 0.5 + text_width(heading, 10))
    drawing = Drawing(width, height, panel.left)
    drawing.add(Text(0.15 - panel.left, height - 0.2, [heading], 10))
    panel.draw(drawing, foot, [_look(networks, part) for part in panel.parts])
    _draw_bar(drawing, panel.parts, networks, max(subnetwork.cost, 1), width - panel.left - 0.3)
    return drawing


def cascade_drawing(cascade: Cascade) -> Drawing:
    """The shapes of `draw_cascade`."""
    panels = [
        _Panel(stage, parts, [n for n in cascade.space.networks if any(part.network is n for part in parts)], lines)
        for stage, parts, lines in zip(cascade.stages, _new_parts(cascade), _answers(cascade), strict=True)
    ]
    left, foot, head = max(panel.left for panel in panels), 1.35, 0.35
    heading = _cascade_heading(cascade)
    titles = _stage_titles(cascade)
    height = foot + sum(panel.height + head for panel in panels) + 0.4
    texts = [text_width(heading, 10), *(text_width(title, _NAME, "bold") for title in titles)]
    width = max(left + max(panel.width for panel in panels), 7, 0.5 + max(texts))
    drawing = Drawing(width, height, left)
    drawing.add(Text(0.15 - left, height - 0.2, [heading], 10))
    top = height - 0.4
    for number, (panel, title) in enumerate(zip(panels, titles, strict=True)):
        color, hatch = _stage_look(number)
        drawing.add(
            Text(0.15 - left, top - head / 2, [title], _NAME, bold=True),
            Line([(0.15 - left, top), (width - left - 0.15, top)], "pale", 0.8),
            Box(0.03 - left, top - head - panel.height + 0.1, 0.06, head + panel.height - 0.2, color, order=1),
        )
        top -= head + panel.height
        panel.draw(drawing, top, [_KNOWN if part.is_known else (color, hatch) for part in panel.parts])
    _draw_stages(drawing, cascade, width - left - 0.3)
    return drawing


_Look = tuple[str, str]
"""A colour, as `shapes` names it, and a hatch."""

_KNOWN: _Look = ("grey", "")
"""Of what an earlier stage has computed."""


def _look(networks: Sequence[Network], part: Segment) -> _Look:
    """Of a part in a drawing in which each network has its own."""
    return _stage_look(networks.index(part.network) if part.network else 0)


def _stage_look(number: int) -> _Look:
    return str(number % len(PALETTE)), HATCHES[number % len(HATCHES)]


class _Panel:
    """One subnetwork: a lane for each network, and the output.

    `left` is how far it reaches to the left of the input, `width` to the right, `height` from its foot.

    :param output: the lines beside its output."""

    def __init__(
        self, subnetwork: Subnetwork, parts: Sequence[Segment], networks: Sequence[Network], output: Sequence[str]
    ):
        self.parts, self.networks, self.output = parts, networks, output
        self.ends = [parts[i] for i in results(subnetwork, parts)]
        self.layout = _lay_out(parts, networks, subnetwork.cost, upright=False)
        if self.layout.width > _WIDEST:
            self.layout = _lay_out(parts, networks, subnetwork.cost, upright=True)
        self.names = {network.name: _lane_name(network, parts) for network in networks}
        self.left = 0.4 + max(text_width(line, _NAME, "bold") for lines in self.names.values() for line in lines)
        self.channels = _Channels(parts, networks, self.layout)
        gap = self.layout.label_height + 0.55 + 2 * _LEVEL * self.channels.levels
        above_first = gap if self.channels.above_first else 0.35
        self._pitch = self.layout.block_height + gap
        self._lowest = 0.3 + _LEVEL * self.channels.levels
        self.width = self.layout.width + 0.9 + max(text_width(line, _NAME) for line in output)
        self.height = self._lowest + self._pitch * (len(networks) - 1) + self.layout.block_height + above_first

    def draw(self, drawing: Drawing, foot: float, looks: Sequence[_Look]) -> None:
        """Draw it from this height on, with these colours of its parts."""
        last = len(self.networks) - 1
        rows = {n.name: foot + self._lowest + self._pitch * (last - i) for i, n in enumerate(self.networks)}
        for network in self.networks:
            place = rows[network.name], self.names[network.name], 0.15 - drawing.left
            _draw_lane(drawing, self.layout, self.parts, network, looks, *place)
        _draw_lines(drawing, self.layout, self.parts, rows, self.channels)
        _draw_stitches(drawing, self.layout, self.parts, rows, self.channels)
        _draw_output(drawing, self.layout, self.ends, rows, self.output)


# --------------------------------------------------------------------------------------------------------------- layout


def _lay_out(parts: Sequence[Segment], networks: Sequence[Network], total: int, upright: bool) -> _Layout:
    layout = _empty_layout(parts, networks, total, upright)
    reach = dict.fromkeys(layout.ends, 0)  # of each lane: the nodes before it have been placed, or left out
    for i, part in enumerate(parts):
        if part.network:
            name = part.network.name
            left_out = _left_out(parts, part.network, reach[name], part.nodes[0])
            _place_block(layout, parts, i, left_out)
            reach[name] = max(reach[name], part.nodes[-1] + 1)
    for network in networks:
        if _left_out(parts, network, reach[network.name], len(network.nodes)):
            _place_rest(layout, network.name)
    return layout


def _empty_layout(parts: Sequence[Segment], networks: Sequence[Network], total: int, upright: bool) -> _Layout:
    """All lanes are as high as the highest block, and there is room for the highest label of a stitch."""
    lines = {i: _block_lines(part, total) for i, part in enumerate(parts) if part.network}
    longest = max(text_width(line, _SMALL) for block in lines.values() for line in block) + _PADDING
    labels = [text_width(stitch_label(part.link), _SMALL) for part in parts if part.link]
    height = longest if upright else _PADDING + _LINE * max(map(len, lines.values()))
    ends = {network.name: 0.35 for network in networks}
    return _Layout(upright, lines, max(height, 0.5), max(labels) if upright and labels else _LINE, ends)


def _place_block(layout: _Layout, parts: Sequence[Segment], i: int, left_out: bool) -> None:
    """After the last block of its lane, with an outline between if nodes are left out there, and after all blocks
    it reads, be it through stitches."""
    name, reads = parts[i].network.name, parts[i].reads
    begin = layout.ends[name] + _GAP
    sources = [parts[read].reads[0] if parts[read].link else read for read in reads]
    start = max([begin + (_UNUSED + _GAP) * left_out, *(layout.spans[source][1] + _GAP for source in sources)])
    arriving = [read for read in reads if parts[read].link and read not in layout.stitches]
    if arriving:
        start = max(start, layout.free - _INSET)
    needed = _place_stitches(layout, parts, arriving, start)
    layout.ends[name] = start + max(_block_width(layout, i), needed)
    layout.spans[i] = start, layout.ends[name]
    if left_out:
        layout.unused[name].append((begin, start - _GAP))


def _place_stitches(layout: _Layout, parts: Sequence[Segment], arriving: Iterable[int], start: float) -> float:
    """Stitches side by side, where a block starts; returns the width this block needs for their arrows. A label may
    reach beyond the block, but not its arrow."""
    inside, needed = _INSET, 0.0
    for i in arriving:
        layout.stitches[i] = start + inside
        needed = layout.stitches[i] - start + 0.1
        inside += 0.2 if layout.upright else text_width(stitch_label(parts[i].link), _SMALL) + _PADDING
        layout.free = start + inside
    return needed


def _block_width(layout: _Layout, i: int) -> float:
    if layout.upright:
        return _LINE * len(layout.lines[i]) + 0.12
    return max(text_width(line, _SMALL) for line in layout.lines[i]) + _PADDING


def _place_rest(layout: _Layout, name: str) -> None:
    """An outline for the unused end of a lane, as far as the longest lane."""
    start = layout.ends[name] + _GAP
    layout.ends[name] = max(start + _UNUSED, *layout.ends.values())
    layout.unused[name].append((start, layout.ends[name]))


def _left_out(parts: Sequence[Segment], network: Network, start: int, end: int) -> bool:
    """Whether any node from start to before end is in no segment."""
    used = {i for part in parts if part.network is network for i in part.nodes}
    return not used.issuperset(range(start, end))


def _block_lines(part: Segment, total: int) -> list[str]:
    first, last = elided(part.first, _LONGEST), elided(part.last, _LONGEST)
    share = part.cost / max(total, 1)
    costs = [f"{human(part.cost)} · {100 * share:.2g} %" if share < 0.9995 else f"{human(part.cost)} · 100 %"]
    return ([first] if part.first == part.last else [f"{first} …", last]) + costs * (share >= 0.0005)


class _Channels:
    """Which lines run along a lane outside its blocks, and how far from them, so that none hides another.

    `stitches` and `bypasses` map a stitch, or two blocks of a lane, to (side, level): side 1 is above the lane, −1
    below.
    """

    def __init__(self, parts: Sequence[Segment], networks: Sequence[Network], layout: _Layout):
        order = {network.name: i for i, network in enumerate(networks)}
        self.stitches: dict[int, tuple[int, int]] = {}
        self.bypasses: dict[tuple[int, int], tuple[int, int]] = {}
        self.straight: list[tuple[int, int]] = []
        runs: list[tuple[float, float, str, int, Any]] = []  # from, to, network, side, what
        for i, x in layout.stitches.items():
            link = parts[i].link
            side = -1 if order[link.source.network] < order[link.target.network] else 1
            runs.append((layout.spans[parts[i].reads[0]][1], x, link.source.network, side, i))
        for source, target in self._lines(parts, layout):
            name = parts[target].network.name
            blocks = [i for i, part in enumerate(parts) if part.network and part.network.name == name]
            between = blocks[blocks.index(source) + 1 : blocks.index(target)]
            if between:
                run = layout.spans[source][1], layout.spans[target][0], name, -1, (source, target)
                runs.append(run)
            else:
                self.straight.append((source, target))
        busy: dict[tuple[str, int], list[float]] = defaultdict(list)  # for each level, where its last line ends
        for start, end, name, side, what in sorted(runs, key=lambda run: run[:4]):
            levels = busy[name, side]
            level = next((n for n, until in enumerate(levels) if until < start - 0.02), len(levels))
            levels[level : level + 1] = [end]
            (self.bypasses if isinstance(what, tuple) else self.stitches)[what] = side, level
        self.levels = max(map(len, busy.values()), default=0)
        self.above_first = any(part.link and self._is_above_first(part, order) for part in parts)

    @staticmethod
    def _is_above_first(part: Segment, order: dict[str, int]) -> bool:
        return order[part.link.source.network] == order[part.link.target.network] == 0

    @staticmethod
    def _lines(parts: Sequence[Segment], layout: _Layout) -> Iterable[tuple[int, int]]:
        """Which blocks of a lane to join: those of which one reads the other, or the output of a stitch that the other
        read, unless a chain of blocks that each read the one before shows that already."""
        entered: dict[int, int] = {}
        chain: dict[str, list[int]] = defaultdict(list)  # blocks of a lane up to now, each reading the one before
        for i, part in enumerate(parts):
            if part.link:
                continue
            sources = [entered.setdefault(read, i) if parts[read].link else read for read in part.reads]
            so_far = chain[part.network.name]
            joined = bool(so_far) and so_far[-1] in sources
            for source in dict.fromkeys(sources):
                if source != i and (source not in so_far[:-1] or not joined):
                    yield source, i
            chain[part.network.name] = [*so_far, i] if joined else [i]


# -------------------------------------------------------------------------------------------------------------- drawing


def _draw_lane(
    drawing: Drawing,
    layout: _Layout,
    parts: Sequence[Segment],
    network: Network,
    looks: Sequence[_Look],
    y: float,
    name: Sequence[str],
    x_name: float,
) -> None:
    height = layout.block_height
    middle = y + height / 2
    drawing.add(
        Text(x_name, middle + 0.04, [name[0]], _NAME, bold=True, at="bottom"),
        Text(x_name, middle - 0.04, [name[1]], _SMALL, "muted", at="top"),
    )
    for start, end in layout.unused[network.name]:
        drawing.add(Box(start, middle - 0.12, end - start, 0.24, "paper", "pale", 0.8, order=1))
    for i, (start, end) in layout.spans.items():
        if parts[i].network is not network:
            continue
        color, hatch = looks[i]
        drawing.add(
            Box(start, y, end - start, height, f"{color}/15", color, 1.2),
            Box(start, y, end - start, 0.07, f"{color}/60", color, hatch=hatch, order=4.1),
        )
        place: dict[str, Any] = {"centered": True, "upright": layout.upright}
        drawing.add(Text((start + end) / 2, middle + 0.03, layout.lines[i], _SMALL, **place))
        if parts[i].reads_input:
            drawing.add(Line([(start, middle), (0.05, middle)], end="dot"))


def _draw_lines(
    drawing: Drawing, layout: _Layout, parts: Sequence[Segment], rows: dict[str, float], channels: _Channels
) -> None:
    for source, target in channels.straight:
        middle = rows[parts[target].network.name] + layout.block_height / 2
        drawing.add(Line([(layout.spans[source][1], middle), (layout.spans[target][0], middle)]))
    for (source, target), (_, level) in channels.bypasses.items():
        y = rows[parts[target].network.name]
        start, end, low = layout.spans[source][1] - 0.05, layout.spans[target][0] + 0.05, y - _outside(level)
        drawing.add(Line([(start, y), (start, low), (end, low), (end, y)]))


def _outside(level: int) -> float:
    return 0.1 + _LEVEL * level


def _draw_stitches(
    drawing: Drawing, layout: _Layout, parts: Sequence[Segment], rows: dict[str, float], channels: _Channels
) -> None:
    for i, x in layout.stitches.items():
        link, (side, level) = parts[i].link, channels.stitches[i]
        away = layout.block_height if side > 0 else 0
        start = layout.spans[parts[i].reads[0]][1] - 0.09
        y_start, y_run = rows[link.source.network] + away, rows[link.source.network] + away + side * _outside(level)
        same = link.source.network == link.target.network
        top = side < 0 or same  # an arrow enters from above
        y_end = rows[link.target.network] + (layout.block_height if top else 0)
        path = [(start, y_start), (start, y_run), (x, y_run), (x, y_end)]
        drawing.add(Line(path, "ink", 1.3, "arrow", order=3))
        direction = 1 if top else -1
        y_text = y_end + direction * (0.14 + _LEVEL * channels.levels)
        place: dict[str, Any] = {"at": "bottom" if direction > 0 else "top", "paper": True, "order": 3.5}
        place |= {"centered": True, "upright": True} if layout.upright else {}
        x_text = x if layout.upright else x + 0.05
        drawing.add(Text(x_text, y_text, [stitch_label(link)], _SMALL, **place))


def _draw_output(
    drawing: Drawing, layout: _Layout, ends: Sequence[Segment], rows: dict[str, float], output: Sequence[str]
) -> None:
    x = layout.width + 0.3
    middles = [rows[part.network.name] + layout.block_height / 2 for part in ends]
    y = sum(middles) / len(middles)
    for part, middle in zip(ends, middles, strict=True):
        drawing.add(Line([(layout.ends[part.network.name], middle), (x, middle), (x, y)]))
    drawing.add(Line([(x, y), (x + 0.22, y)], line=1, end="arrow"), Text(x + 0.27, y, output, _NAME))


def _draw_bar(
    drawing: Drawing, parts: Sequence[Segment], networks: Sequence[Network], total: int, width: float
) -> None:
    drawing.add(Text(0, 0.62, ["multiply-adds to scale, in this order"], _SMALL, "muted"))
    x = 0.0
    for part in parts:
        length = part.cost / total * width
        if part.link:
            drawing.add(Box(x, 0.22, length, 0.26, "ink", order=1))
        else:
            color, hatch = _look(networks, part)
            drawing.add(Box(x, 0.22, length, 0.26, f"{color}/40", color, 0.6, hatch, order=1))
        x += length


def _draw_stages(drawing: Drawing, cascade: Cascade, width: float) -> None:
    """A bar for each stage, as wide as what it adds and as high as the fraction of images for which it does."""
    note = "multiply-adds that stages add, to scale" + (
        "; height: fraction of images that get there" if cascade.fractions else ""
    )
    drawing.add(Text(0, 1.02, [note], _SMALL, "muted"))
    x, high = 0.0, 0.6
    for number, (cost, before) in enumerate(zip(cascade.costs, (0, *cascade.costs), strict=False)):
        (color, hatch), length = _stage_look(number), (cost - before) / max(cascade.worst_cost, 1) * width
        fraction = cascade.fractions[number] if cascade.fractions else 1.0
        drawing.add(
            Box(x, 0.22, length, high, "paper", "pale", 0.6, order=1),
            Box(x, 0.22, length, high * fraction, f"{color}/40", color, 0.6, hatch, order=1),
        )
        x += length


# ---------------------------------------------------------------------------------------------------------------- words


def _lane_name(network: Network, parts: Sequence[Segment]) -> tuple[str, str]:
    used = [part.cost for part in parts if part.network is network]
    share = f"{100 * sum(used) / max(network.cost, 1):.3g} % of its {human(network.cost)}" if used else "not in use"
    return elided(network.name, 28), share


def _output(subnetwork: Subnetwork) -> list[str]:
    names = [elided(network.name, 28) for network in subnetwork.outputs]
    return ["output:", *names] if len(names) == 1 else ["output: mean of", *names]


def _heading(subnetwork: Subnetwork) -> str:
    count = subnetwork.n_stitches
    return f"Subnetwork of {human(subnetwork.cost)} multiply-adds with {count} stitch{'es' * (count != 1)}"


def _new_parts(cascade: Cascade) -> Iterable[tuple[Segment, ...]]:
    """The parts of each stage, apart from one another what is new and what is known."""
    sharing, seen = Sharing(cascade.stages), set()
    for stage, numbers in zip(cascade.stages, sharing.of, strict=True):
        known = {step.id for step, number in zip(stage.steps(), numbers, strict=True) if number in seen}
        seen.update(numbers)
        yield segments(stage, known)


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.3g} %"


def _stage_titles(cascade: Cascade) -> list[str]:
    """What each stage costs, and how many images get there."""
    titles = []
    for number, (cost, before) in enumerate(zip(cascade.costs, (0, *cascade.costs), strict=False)):
        who = "all images" if number == 0 else "images on which the stages before are not sure"
        if number and cascade.fractions:
            who = f"the {_percent(cascade.fractions[number])} of images on which the stages before are not sure"
        titles.append(f"Stage {number + 1}: {human(cost - before)} multiply-adds{' more' * (number > 0)}, for {who}")
    return titles


def _answers(cascade: Cascade) -> Iterable[list[str]]:
    """For each stage, what its answer is and when it stops there."""
    for number, stage in enumerate(cascade.stages):
        lines = _output(stage)
        if number and cascade.combine == "mean":
            lines = [*lines, f"answer: mean of stages 1–{number + 1}"]
        if number == len(cascade.thresholds):
            yield [*lines, "stop in any case"]
            continue
        lines = [*lines, "stop if its top probability", f"is at least {cascade.thresholds[number]:.4g}"]
        if cascade.fractions:
            share = cascade.fractions[number] - cascade.fractions[number + 1]
            lines[-1] += f": {_percent(share)}"
        yield lines


def _cascade_heading(cascade: Cascade) -> str:
    count = cascade.n_stitches
    expected = f"{human(round(cascade.cost))} expected, " if cascade.fractions else ""
    stitches = f"{count} stitch{'es' * (count != 1)}"
    cost = f"{expected}{human(cascade.worst_cost)} at most"
    return f"Cascade of {len(cascade.stages)} stages with {stitches}, multiply-adds: {cost}"
