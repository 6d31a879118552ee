"""What a genotype selects: a walk back from the output over the switches, made fast by folding everything between two
switches beforehand."""

from collections.abc import Sequence
from dataclasses import dataclass

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
        self._switches = [
            (folded[i], [(variable, folded[source]) for variable, source in arriving[i]]) for i in switches
        ]
        self._choices = [(networks, [folded[wiring.outputs[n]] for n in networks]) for networks in choices]

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
        values = x.tolist()
        active, links = [], []
        choice = 0
        for number, variable in enumerate(range(self.n_links, self.n_var), 1):
            active.append(variable)
            if values[variable]:
                choice = number
                break
        outputs, roots = self._choices[choice]
        waiting, nodes = 0, 0
        for reads, needed in roots:
            waiting |= reads
            nodes |= needed
        while waiting:  # the topmost bit is the last switch in topological order: nothing that waits reads it any more
            number = waiting.bit_length() - 1
            chosen, inputs = self._switches[number]
            for variable, source in inputs:
                active.append(variable)
                if values[variable]:
                    links.append(variable)
                    chosen = source
                    break
            waiting = (waiting ^ (1 << number)) | chosen[0]
            nodes |= chosen[1]
        mask = np.zeros(self.n_var, dtype=bool)
        mask[active] = True
        mask.setflags(write=False)
        return Selection(mask, tuple(sorted(links)), nodes, outputs)
