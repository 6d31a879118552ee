"""The outputs of the beginnings of chains, and the stitches in them."""

import math
import weakref
from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from ..fitting import adapter_of, solve_factors, solve_rows, source_rows, target_rows
from ..network import INPUT, Layout, outputs_of
from ..stitches import LEAST, Link, build_stitch, channels_read, hsic, is_direct, kernel
from ._joints import Joints
from .fragment import Fragment, follows

BATCH = 8
"""How many images run through a fragment at a time. It belongs to the definition of a chain: another number rounds
differently."""

Prefix = tuple[tuple[int, bool], ...]
"""The beginning of a chain: for each fragment its place in the pool, and whether there is a stitch before it."""


class Beginnings:
    """Computes the outputs of beginnings of chains for some images, and fits the stitches in them, each on the chain so
    far.

    What is computed is kept for the chains that begin in the same way, as long as there is room; what each fragment
    reads in its own network is always kept. A copy in another process begins with nothing, and computes the same.

    :param fragments: those of a pool, in its order.
    :param joints: how fragments are joined.
    :param memory: how many bytes of tensors and stitches are kept at most.
    """

    def __init__(
        self,
        fragments: Sequence[Fragment],
        joints: Joints,
        images: torch.Tensor,
        *,
        positions: int,
        ridge: float,
        memory: int,
    ):
        self.fragments, self.joints, self.images = fragments, joints, images
        self.positions, self.ridge, self.memory = positions, ridge, memory
        self._place = {fragment: i for i, fragment in enumerate(fragments)}
        self._forget()

    def prefix(self, beginning: Sequence[Fragment], restitch: bool = False) -> Prefix:
        """A beginning by its fragments; with `restitch` also those that follow one another in their network are
        stitched."""
        before = [None, *beginning]
        return tuple(
            (self._place[fragment], previous is not None and (restitch or not follows(previous, fragment)))
            for previous, fragment in zip(before, beginning, strict=False)
        )

    def similarity(self, beginning: Sequence[Fragment], candidate: Fragment) -> float:
        """The CKA, without bias, of the output of a beginning of a chain and what a fragment reads in its own
        network."""
        if len(self.images) < LEAST:
            raise ValueError(f"CKA needs {LEAST} images or more, but the pool has {len(self.images)}.")
        own = self._natural(self._place[candidate] - 1)
        values = hsic(np.stack([self._kernel(self.prefix(beginning)), self._kernel(own)]))
        norm = values[0, 0] * values[1, 1]
        return float(values[0, 1] / math.sqrt(norm)) if norm > 0 and math.isfinite(norm) else 0.0

    def stitch(self, prefix: Prefix, source: torch.Tensor | None = None) -> nn.Module:
        """The stitch before the last fragment of a beginning, fitted; `source` is the chain's output before it, if
        that is known."""
        stitch = self._recent.get(("stitch", prefix)) or self._stitches.get(prefix)
        if stitch is None:
            source = self._output(prefix[:-1]) if source is None else source
            self._stitches[prefix] = stitch = self._fitted(prefix, source)
            self._recent.add(("stitch", prefix), stitch, sum(p.numel() * p.itemsize for p in stitch.parameters()))
        return stitch

    @torch.no_grad()
    def _fitted(self, prefix: Prefix, source: torch.Tensor) -> nn.Module:
        before, fragment = self.fragments[prefix[-2][0]], self.fragments[prefix[-1][0]]
        link = self.joints.link(before, fragment)
        rank, y = self.joints.rank(link), self._expected(fragment, is_direct(link))
        with torch.device("meta"):  # without drawing random numbers
            stitch: Any = build_stitch(link).eval()
            if rank is not None:
                factors = Factors(channels_read(link), rank, link.target.channels, adapter_of(stitch).bias is not None)
                stitch = factors if is_direct(link) else nn.Sequential(*stitch[:-2], factors, stitch[-1])
        stitch.to_empty(device="cpu")
        adapter = adapter_of(stitch)
        if y is None or not source.isfinite().all():  # a chain is at fault, or a network: its predictions will show it
            for parameter in adapter.parameters():
                parameter.fill_(math.nan)
            return stitch
        x = torch.cat([source_rows(link, stitch, part, self.positions) for part in source.split(BATCH)]).double()
        centred = adapter.bias is not None
        if rank is None:
            weight, bias = solve_rows(x, y, self.ridge, centred)
            adapter.weight.copy_(weight.view_as(adapter.weight))
        else:
            down, up, bias = solve_factors(x, y, self.ridge, centred)
            adapter.down.weight.copy_(down)
            adapter.up.weight.copy_(up)
        if centred:
            adapter.bias.copy_(bias)
        return stitch

    def _expected(self, fragment: Fragment, direct: bool) -> torch.Tensor | None:
        """What the fragment reads in its own network, as rows that a stitch should return; None if that is not
        finite."""
        at = self._place[fragment], direct
        if at not in self._rows:
            self._output(self._natural(at[0] - 1))
        return self._rows[at].double() if at in self._rows else None

    def _kernel(self, prefix: Prefix) -> np.ndarray:
        if prefix == self._natural(prefix[-1][0]):
            if prefix not in self._kernels:
                self._output(prefix)
            return self._kernels[prefix]
        known = self._recent.get(("kernel", prefix))
        if known is None:
            known = kernel(self._output(prefix))
            self._recent.add(("kernel", prefix), known, known.nbytes)
        return known

    def _output(self, prefix: Prefix) -> torch.Tensor:
        """The output of a chain so far, for all images."""
        known = self._recent.get(("output", prefix))
        if known is not None:
            return known
        place, stitched = prefix[-1]
        fragment = self.fragments[place]
        source = self.images if len(prefix) == 1 else self._output(prefix[:-1])
        stitch = self.stitch(prefix, source) if stitched else None
        parts = []
        with torch.no_grad():
            for part in source.split(BATCH):
                part = part if stitch is None else stitch(part)
                given = INPUT if fragment.first is None else fragment.first.name
                outputs = outputs_of(fragment.network, part, nodes=fragment.nodes, given=given)
                parts += [output for _, output in deque(outputs, maxlen=1)]  # of the last node
        output = torch.cat(parts)
        self._recent.add(("output", prefix), output, output.numel() * output.itemsize)
        if prefix == self._natural(place):
            self._remember(prefix, output)
        return output

    def _remember(self, prefix: Prefix, output: torch.Tensor) -> None:
        """Keep of a network's own tensor at a cut its kernel, and what stitches that lead there should return: all
        tokens, or those without the class token, which a stitch from another layout makes itself."""
        self._kernels[prefix] = kernel(output)
        place, tap = prefix[-1][0] + 1, self.fragments[prefix[-1][0]].last
        if tap is None or not output.isfinite().all():
            return
        link = Link(tap, tap, self.joints.kind)
        self._rows[place, True] = self._rows[place, False] = target_rows(link, output, self.positions).float()
        if tap.layout is Layout.CLASS_TOKENS:
            image = output[:, output.shape[1] - math.prod(tap.grid) :]
            self._rows[place, False] = target_rows(link, image, self.positions).float()

    def _natural(self, place: int) -> Prefix:
        """The beginning of a network up to a fragment."""
        return tuple((i, False) for i in range(place - self.fragments[place].number, place + 1))

    def _forget(self) -> None:
        self._recent = Recent(self.memory)
        self._stitches: weakref.WeakValueDictionary[Prefix, nn.Module] = weakref.WeakValueDictionary()
        self._rows: dict[tuple[int, bool], torch.Tensor] = {}
        self._kernels: dict[Prefix, np.ndarray] = {}

    def __getstate__(self) -> dict[str, Any]:
        forgotten = ("_recent", "_stitches", "_rows", "_kernels")
        return {name: value for name, value in self.__dict__.items() if name not in forgotten}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()


class Factors(nn.Module):
    """An affine map of vectors whose matrix is of low rank, as the product of two."""

    def __init__(self, channels_in: int, rank: int, channels_out: int, bias: bool):
        super().__init__()
        self.down, self.up = nn.Linear(channels_in, rank, bias=False), nn.Linear(rank, channels_out, bias=bias)

    @property
    def bias(self) -> nn.Parameter | None:
        return self.up.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.up(self.down(x))


class Recent:
    """What was used last, as much as there is room for."""

    def __init__(self, room: int):
        self.room = room
        self._held: OrderedDict[Any, tuple[Any, int]] = OrderedDict()

    def get(self, name: Any) -> Any:
        if name not in self._held:
            return None
        self._held.move_to_end(name)
        return self._held[name][0]

    def add(self, name: Any, value: Any, size: int) -> None:
        self._held[name] = value, size
        self.room -= size
        while self.room < 0:
            _, (_, freed) = self._held.popitem(last=False)
            self.room += freed
