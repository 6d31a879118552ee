"""What a genotype selects: a walk back from the output over the switches, made fast by folding everything between two
switches beforehand, and by going over all switches at once between which the genotype chooses nothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..stitches import Link, Wiring, is_switch, node_of


@dataclass(frozen=True)
class Selection:
    """`active` marks the variables that matter, `links` are the indices of the links in use, `nodes` a bit set of the
    nodes in use, `outputs` the networks whose outputs are averaged."""

    active: np.ndarray
    links: tuple[int, ...]
    nodes: int
    outputs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Point:
    """A point of a walk, where switches wait to be passed: the last in topological order first.

    Variables are bits of an integer here, in the order in which walks come by them, the first topmost.

    :param variables: those of that switch.
    :param nodes: those that its original input needs, a bit set.
    :param others: the other switches that wait, a bit set.
    :param after: the point after it, if it passes its original input; None at the end.
    :param all_variables: `variables` and those of all points after it, if none of them is 1.
    :param all_nodes: the nodes needed then.
    """

    variables: int
    nodes: int
    others: int
    after: "_Point | None"
    all_variables: int
    all_nodes: int


_MOST = 100_000
"""Points of walks that are kept."""


class Selector:
    """Selects by genotype. Variable i is link i; after them stand those of the output switch: the second network,
    the third, …, the ensemble of all. (A single network, bridged to itself, has none.)

    A switch with several variables takes the first that is 1, or the original if none is. A variable is active iff its
    switch is read and all earlier variables of that switch are 0."""

    def __init__(self, wiring: Wiring, links: Sequence[Link], order: Sequence[int]):
        n_networks = len(wiring.outputs)
        choices = [(n,) for n in range(n_networks)] + [tuple(range(n_networks))] * (n_networks > 1)
        self.n_links = len(links)
        self.n_var = self.n_links + len(choices) - 1
        # In topological order: a switch is read only by what comes later.
        switches = [node_of(number) for number in order if is_switch(number)]
        bit = {i: 1 << number for number, i in enumerate(switches)}
        arriving: dict[int, list[tuple[int, int]]] = {i: [] for i in switches}
        for variable, link in enumerate(links):
            arriving[wiring.index(link.target)].append((variable, wiring.index(link.source)))
        roots = {*wiring.outputs, *switches, *(source for inputs in arriving.values() for _, source in inputs)}
        folded = {root: self._fold(root, wiring, bit) for root in roots}
        self._choices = [(networks, [folded[wiring.outputs[n]] for n in networks]) for networks in choices]
        by_bit = [variable for i in switches for variable, _ in reversed(arriving[i])]
        self._variables = np.array(by_bit + list(range(self.n_links, self.n_var))[::-1], dtype=int)
        self._bits = np.argsort(self._variables)
        self._links = [folded[wiring.index(links[variable].source)] for variable in by_bit]
        self._switches = [
            (folded[i], sum(1 << int(self._bits[variable]) for variable, _ in arriving[i])) for i in switches
        ]
        self._points: dict[int, _Point] = {}  # by the switches that wait, as a bit set

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_points": {}}

    @staticmethod
    def _fold(root: int, wiring: Wiring, bit: dict[int, int]) -> tuple[int, int]:
        """The switches that a raw node reads and the nodes it needs up to them, itself included, as two bit sets."""
        reads, nodes, pending, seen = 0, 0, [root], {root}
        while pending:
            i = pending.pop()
            nodes |= 1 << i
            for source in wiring.inputs[i]:
                if source in wiring.switched:
                    reads |= bit[source]
                elif source not in seen:
                    seen.add(source)
                    pending.append(source)
        return reads, nodes

    def __call__(self, x: np.ndarray) -> Selection:
        ones = int.from_bytes(np.packbits(x[self._variables], bitorder="little").tobytes(), "little")
        n_choices = self.n_var - self.n_links
        chosen = (ones >> self.n_links).bit_length()
        active = _from(chosen - 1 if chosen else 0, (1 << n_choices) - 1) << self.n_links
        outputs, roots = self._choices[n_choices + 1 - chosen if chosen else 0]
        waiting = nodes = 0
        for reads, needed in roots:
            waiting |= reads
            nodes |= needed
        links = []
        point = self._point(waiting)
        while point is not None:
            bit = (ones & point.all_variables).bit_length() - 1
            if bit < 0:
                active |= point.all_variables
                nodes |= point.all_nodes
                break
            active |= _from(bit, point.all_variables)
            while not point.variables >> bit & 1:
                nodes |= point.nodes
                point = point.after
            links.append(int(self._variables[bit]))
            reads, needed = self._links[bit]
            nodes |= needed
            point = self._point(point.others | reads)
        mask = np.frombuffer(active.to_bytes(-(-self.n_var // 8), "little"), dtype=np.uint8)
        mask = np.unpackbits(mask, bitorder="little")[self._bits].view(bool)
        mask.setflags(write=False)
        return Selection(mask, tuple(sorted(links)), nodes, outputs)

    def _point(self, waiting: int) -> _Point | None:
        """The point where these switches wait; None if there are none."""
        new, point = [], None
        while waiting and (point := self._points.get(waiting)) is None:
            # The topmost bit is the last switch in topological order: nothing that waits reads it any more.
            number = waiting.bit_length() - 1
            (reads, nodes), variables = self._switches[number]
            others = waiting ^ (1 << number)
            new.append((waiting, variables, nodes, others))
            waiting = others | reads
        if len(self._points) > _MOST:
            self._points.clear()
        for waiting, variables, nodes, others in reversed(new):
            all_variables, all_nodes = (0, 0) if point is None else (point.all_variables, point.all_nodes)
            point = _Point(variables, nodes, others, point, variables | all_variables, nodes | all_nodes)
            self._points[waiting] = point
        return point


def _from(bit: int, bits: int) -> int:
    """These bits without those below this one."""
    return bits >> bit << bit
