"""What stitches are fitted to: the channels of their taps at some positions of all images."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..network import Layout, Tap
from ..stitches import KINDS, Link, as_image, is_direct, working_layout
from .errors import check_finite
from .solving import Equations, Moments, RowEquations, pool

if TYPE_CHECKING:
    from ..supernet import Supernet

Key = tuple
Ends = tuple[Link, torch.Tensor, torch.Tensor]
"""A link with rows of its source [n, C] and its target [n, D]."""


class Rows:
    """The rows of links' taps from batch to batch, each made once however many links use it."""

    def __init__(self, supernet: "Supernet", links: Sequence[int], stitches: nn.ModuleDict, positions: int):
        self._links, self._stitches, self.positions = {i: supernet.links[i] for i in links}, stitches, positions
        self._last = {key: i for i, link in self._links.items() for key in keys(link)}

    def of(self, taps: Iterable[tuple[int, torch.Tensor, torch.Tensor]]) -> Iterator[Ends]:
        """From the tensors of each link's taps, by its index."""
        made: dict[Key, torch.Tensor] = {}
        for number, source, target in taps:
            if number not in self._links:
                continue
            link = self._links[number]
            x, y = keys(link)
            if x not in made:
                made[x] = source_rows(link, self._stitches[link.stitch], source, self.positions)
            if y not in made:
                made[y] = target_rows(link, target, self.positions)
            yield link, made[x], made[y]
            for key in {x, y}:
                if self._last[key] == number:
                    del made[key]


class KeptRows:
    """All rows of links' taps, in float32."""

    def __init__(self, links: Iterable[Link]):
        self._parts: dict[Key, list[torch.Tensor]] = {key: [] for link in links for key in keys(link)}

    def add(self, rows: Iterable[Ends]) -> None:
        """The rows of a batch."""
        added = set()
        for link, *ends in rows:
            for key, end in zip(keys(link), ends, strict=True):
                if key in self._parts and key not in added:
                    added.add(key)
                    self._parts[key].append(end)

    def of(self, links: Sequence[Link]) -> tuple[torch.Tensor, torch.Tensor]:
        """The rows of the sources and of the targets of links that share a stitch."""
        x, y = zip(*(keys(link) for link in links), strict=True)
        first, second = (torch.cat([part for key in column for part in self._parts[key]]) for column in (x, y))
        return first, second


class Samples:
    """What the stitches of links are fitted to, from batch to batch.

    Of a tap x and a tap y that it leads to, sums of x, y, x xᵀ and x yᵀ are kept, each once however many links use it.
    Where links that share a stitch have few rows, the rows themselves are kept.

    :param groups: the links that share a stitch, for each stitch.
    :param are_few: says of such links whether their rows are kept.
    """

    def __init__(self, groups: Iterable[Sequence[Link]], are_few: Callable[[Sequence[Link]], bool]):
        groups = list(groups)
        self._rows = KeptRows(link for links in groups if are_few(links) for link in links)
        self._summed = {link for links in groups if not are_few(links) for link in links}
        self._sums: dict[Key, torch.Tensor] = {}
        self._counts: Counter[Key] = Counter()
        self._products: dict[tuple[Key, Key], torch.Tensor] = {}

    def add(self, rows: Iterable[Ends]) -> None:
        """The rows of a batch."""
        self._rows.add(self._add_sums(rows))

    def _add_sums(self, rows: Iterable[Ends]) -> Iterator[Ends]:
        done: set[object] = set()
        for link, *ends in rows:
            yield link, ends[0], ends[1]
            if link not in self._summed:
                continue
            wide = {key: end.double() for key, end in zip(keys(link), ends, strict=True)}
            for key in wide.keys() - done:
                done.add(key)
                self._sums[key] = self._sums.get(key, 0) + wide[key].sum(0)
                self._counts[key] += len(wide[key])
            x, y = keys(link)
            for pair in ((x, x), (x, y)):
                if pair not in done and pair[::-1] not in done:
                    done.add(pair)
                    a, b = (wide[key] for key in pair)
                    if pair not in self._products:
                        self._products[pair] = a.new_zeros(a.shape[1], b.shape[1])
                    self._products[pair].addmm_(a.T, b)

    def equations(self, links: Sequence[Link], centred: bool) -> tuple[Equations, torch.Tensor, torch.Tensor]:
        """What a stitch that these links share solves, and the means of x and y; without `centred`, they are 0."""
        if links[0] in self._summed:
            moments = pool([self._moments(link) for link in links])
            means = moments.mean_x, moments.mean_y
            return moments.equations(centred), *(means if centred else map(torch.zeros_like, means))
        x, y = self._rows.of(links)
        mean_x, mean_y = (rows.mean(0, dtype=torch.float64) * centred for rows in (x, y))
        return RowEquations(x - mean_x.float(), y - mean_y.float()), mean_x, mean_y

    def _moments(self, link: Link) -> Moments:
        x, y = keys(link)
        n = self._counts[x]
        mean_x, mean_y = self._sums[x] / n, self._sums[y] / n
        xy = self._products[x, y] if (x, y) in self._products else self._products[y, x].T
        return Moments(
            n,
            mean_x,
            mean_y,
            torch.addr(self._products[x, x] / n, mean_x, mean_x, alpha=-1),
            torch.addr(xy / n, mean_x, mean_y, alpha=-1),
        )


def keys(link: Link) -> tuple[Key, Key]:
    """What names the rows of a link's source and of its target: the tap and how it is converted."""
    if is_direct(link):
        return (str(link.source),), (str(link.target),)
    return (str(link.source), "resized", link.target.grid), (str(link.target), "image")


def source_rows(link: Link, stitch: Any, source: torch.Tensor, positions: int) -> torch.Tensor:
    """What the affine map of a link's stitch reads for a sample of positions of every image, as rows of channels."""
    return _rows(source if is_direct(link) else stitch[:-2](source), link, link.source, positions)


def target_rows(link: Link, target: torch.Tensor, positions: int) -> torch.Tensor:
    """What it should return, for the same positions."""
    plain = is_direct(link) or link.target.layout is Layout.VECTOR
    return _rows(target if plain else as_image(target, link.target), link, link.target, positions)


def n_rows(link: Link, positions: int) -> int:
    """How many rows there are for each image."""
    if link.target.layout is Layout.VECTOR:
        return 1
    sizes = link.target.positions if is_direct(link) else link.target.grid
    return min(positions, math.prod(sizes))


def _rows(tensor: torch.Tensor, link: Link, tap: Tap, positions: int) -> torch.Tensor:
    layout = working_layout(KINDS[link.kind], link.source, link.target)
    rows = (
        tensor.flatten(2).transpose(1, 2)
        if layout is Layout.IMAGE
        else tensor.reshape(len(tensor), -1, tensor.shape[-1])
    )
    count = rows.shape[1]
    if count > positions:
        generator = torch.Generator().manual_seed(count)
        chosen = torch.randperm(count, generator=generator)[:positions]
        if tap.layout is Layout.CLASS_TOKENS and count > math.prod(tap.grid):  # else it was taken off before
            chosen[0] = 0  # the class token, which is like no other
        rows = rows[:, chosen.to(rows.device)]
    rows = rows.flatten(0, 1)
    check_finite(rows, tap)
    return rows
