"""What a genotype selects: a walk back from the output over the switches, made fast by folding everything between two
switches beforehand."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import networkx as nx
import numpy as np

from .graph import INPUT, Node
from .network import Network, Tap
from .stitches import Link


class Wiring:
    """The supernet as a directed graph of integers: raw tap → link → switch → consumers.

    `i` is a node of a network as it computes its tensor itself, `nodes[i]`; `~i` is the switch there, what the node's
    consumers read if links arrive at it."""

    def __init__(self, networks: Sequence[Network], links: Iterable[Link]):
        links = list(links)
        self.nodes: list[Node] = [node for network in networks for node in network.nodes]
        self.owners: list[Network] = [network for network in networks for _ in network.nodes]
        self._index = {
            (owner.name, node.name): i for i, (owner, node) in enumerate(zip(self.owners, self.nodes, strict=True))
        }
        self.outputs = [self._index[network.name, network.output] for network in networks]
        self.switched = {self.index(link.target) for link in links}
        self.inputs = [
            [self._index[owner.name, name] for name in dict.fromkeys(node.inputs()) if name != INPUT]
            for owner, node in zip(self.owners, self.nodes, strict=True)
        ]
        self.graph = nx.DiGraph()
        self.graph.add_nodes_from(range(len(self.nodes)))
        self.graph.add_edges_from((self.read(source), i) for i, sources in enumerate(self.inputs) for source in sources)
        self.graph.add_edges_from((i, ~i) for i in self.switched)
        self.graph.add_edges_from((self.index(link.source), ~self.index(link.target)) for link in links)

    def index(self, tap: Tap) -> int:
        return self._index[tap.network, tap.name]

    def index_of(self, network: str, node: str) -> int:
        return self._index[network, node]

    def read(self, i: int) -> int:
        """What the consumers of node i read: its switch, or the node itself."""
        return ~i if i in self.switched else i

    def order(self) -> list[int]:
        """A topological order that keeps each network's own as far as the links allow. A ValueError that names a
        cycle if there is one."""
        try:
            return list(nx.lexicographical_topological_sort(self.graph, key=lambda i: (i, 0) if i >= 0 else (~i, 1)))
        except nx.NetworkXUnfeasible:
            pass
        steps = [(source, target) for source, target in nx.find_cycle(self.graph) if target < 0 and source != ~target]
        links = ", ".join(f"{self._name(source)} → {self._name(~target)}" for source, target in steps)
        raise ValueError(
            f"the links {links} close a cycle. A supernet must be acyclic, each link leading forward; remove one of them."
        )

    def _name(self, i: int) -> str:
        return f"{self.owners[i].name}:{self.nodes[i].name}"


@dataclass(frozen=True)
class Step:
    """One step of what a subnetwork computes: a node of a network, or a stitch, which stands for the node it replaces.

    `reads` tells for each node's name that it reads which earlier step gives it; the network's input is not among
    them."""

    id: int
    reads: dict[str, int]
    cost: int
    network: Network | None = None
    node: Node | None = None
    link: Link | None = None


@dataclass(frozen=True)
class Selection:
    """`active` marks the variables that matter, `links` are the indices of the links in use, `nodes` a bit set of the
    nodes in use, `outputs` the networks whose outputs are averaged."""

    active: np.ndarray
    links: tuple[int, ...]
    nodes: int
    outputs: tuple[int, ...]


class Selector:
    """Selects by genotype. Variable i is link i; behind them stand those of the output switch: the second network,
    the third, …, the ensemble of all. (A single network, bridged to itself, has none.)

    A switch with several variables takes the first that is 1, or the original if none is. A variable is active iff its
    switch is read and all earlier variables of that switch are 0."""

    def __init__(self, wiring: Wiring, links: Sequence[Link], order: Sequence[int]):
        n_networks = len(wiring.outputs)
        choices = [(n,) for n in range(n_networks)] + [tuple(range(n_networks))] * (n_networks > 1)
        self.n_links = len(links)
        self.n_var = self.n_links + len(choices) - 1
        switches = [~i for i in order if i < 0]  # in topological order: a switch is read only by what comes later
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
