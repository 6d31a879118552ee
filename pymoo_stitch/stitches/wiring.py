"""Networks and links as one graph."""

from collections.abc import Iterable, Sequence

import networkx as nx

from ..network import INPUT, Network, Node, Tap
from .link import Link


def switch_at(node: int) -> int:
    """The number of the switch at a node. Nodes are numbered from 0; switches have negative numbers."""
    return ~node


def is_switch(number: int) -> bool:
    return number < 0


def node_of(switch: int) -> int:
    """The node that a switch belongs to."""
    return ~switch


class Wiring:
    """The supernet as a directed graph: raw tap → link → switch → consumers.

    Its vertices are numbers: that of a node of a network, `nodes[i]`, as it computes its tensor itself, and where links
    arrive at a node, that of the switch there, which is what the node's consumers read."""

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
        self.graph.add_edges_from((i, switch_at(i)) for i in self.switched)
        self.graph.add_edges_from(map(self.edge, links))

    def index(self, tap: Tap) -> int:
        return self._index[tap.network, tap.name]

    def switch(self, link: Link) -> int:
        """The switch at which a link arrives."""
        return switch_at(self.index(link.target))

    def edge(self, link: Link) -> tuple[int, int]:
        """From the node that a link reads to the switch at which it arrives."""
        return self.index(link.source), self.switch(link)

    def index_of(self, network: str, node: str) -> int:
        return self._index[network, node]

    def read(self, i: int) -> int:
        """What the consumers of node i read: its switch, or the node itself."""
        return switch_at(i) if i in self.switched else i

    def order(self) -> list[int]:
        """A topological order that keeps each network's own as far as the links allow. Raises a ValueError that names
        a cycle if there is one."""

        def place(number: int) -> tuple[int, int]:
            return (node_of(number), 1) if is_switch(number) else (number, 0)

        try:
            return list(nx.lexicographical_topological_sort(self.graph, key=place))
        except nx.NetworkXUnfeasible:
            pass
        arriving = [(source, node_of(end)) for source, end in nx.find_cycle(self.graph) if is_switch(end)]
        links = ", ".join(f"{self._name(a)} → {self._name(b)}" for a, b in arriving if a != b)
        raise ValueError(
            f"the links {links} close a cycle. A supernet must be acyclic, each link leading forward; remove one of "
            "them."
        )

    def _name(self, i: int) -> str:
        return f"{self.owners[i].name}:{self.nodes[i].name}"
