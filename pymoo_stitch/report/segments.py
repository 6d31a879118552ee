"""What a subnetwork is made of, in few words: stretches of its networks, and the stitches between them."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import networkx as nx

from ..network import INPUT, Network, Node
from ..stitches import Link
from ..supernet import Step, Subnetwork
from ..util.tables import table


@dataclass(frozen=True)
class Segment:
    """A part of a subnetwork: nodes of one network that follow one another and are all used, or a stitch.

    `nodes` are positions in `network.nodes`, in the order they are computed; a stitch has neither network nor nodes,
    but its `link`. `cost` is in multiply-adds for one sample. `reads` are the positions of the parts it reads among all
    `segments` of the subnetwork, each earlier than itself; `reads_input` says whether it reads the input, `is_known`
    whether it has been computed before, by an earlier stage of a cascade."""

    cost: int
    reads: tuple[int, ...]
    reads_input: bool = False
    network: Network | None = None
    nodes: tuple[int, ...] = ()
    link: Link | None = None
    is_known: bool = False

    @property
    def first(self) -> str:
        """Where it begins: the largest module that begins there and lies within it, or else the node."""
        return self._name(self.nodes[0])

    @property
    def last(self) -> str:
        """Where it ends, as `first`."""
        return self._name(self.nodes[-1])

    def _name(self, position: int) -> str:
        nodes, name = self.network.nodes, self.network.nodes[position].name
        parts, own = name.split("."), set(self.nodes)
        for length in range(1, len(parts) + 1):
            module = ".".join(parts[:length])
            if all(i in own for i, node in enumerate(nodes) if _is_inside(node, module)):
                return module
        # The name is also that of a module, of which other nodes are not in this segment.
        return f"{name} ({nodes[position].op.removeprefix('aten.').split('.')[0]})"


def _is_inside(node: Node, module: str) -> bool:
    return node.name == module or node.name.startswith(f"{module}.")


def segments(subnetwork: Subnetwork, known: Collection[int] = ()) -> tuple[Segment, ...]:
    """The parts of a subnetwork in topological order. A segment ends where nodes are left out, where a stitch reads,
    and before the first node that reads a stitch's output. Each step of the subnetwork is in exactly one part.

    :param known: the ids of steps that have been computed before. A part has such steps alone, or none."""
    steps = _in_order(subnetwork)
    positions = {
        network.name: {node.name: i for i, node in enumerate(network.nodes)} for network in subnetwork.space.networks
    }
    sources = {(link.source.network, link.source.name) for link in subnetwork.links}
    groups: list[list[Step]] = []
    part_of: dict[int, int] = {}  # a step's id → its part
    latest: dict[str, int] = {}  # a network's name → its part that goes on
    unread = {step.id for step in steps if step.link}
    for step in steps:
        if step.link:
            part_of[step.id] = len(groups)
            groups.append([step])
            continue
        name, arriving = step.network.name, unread.intersection(step.reads.values())
        unread -= arriving
        open_part = latest.get(name)
        if open_part is not None and not arriving:
            before = groups[open_part][-1]
            last = before.node.name
            follows = positions[name][step.node.name] == positions[name][last] + 1
            follows = follows and (before.id in known) == (step.id in known)
            if follows and (name, last) not in sources:
                groups[open_part].append(step)
                part_of[step.id] = open_part
                continue
        latest[name] = part_of[step.id] = len(groups)
        groups.append([step])
    return tuple(_segment(group, number, part_of, positions, known) for number, group in enumerate(groups))


def _in_order(subnetwork: Subnetwork) -> list[Step]:
    """The steps in an order that keeps each network's own. `Subnetwork.steps` does so only as far as all links of the
    supernet allow, those not in use included, which would tear parallel branches apart."""
    steps = list(subnetwork.steps())
    number = {step.id: i for i, step in enumerate(steps)}
    graph = nx.DiGraph()
    graph.add_nodes_from(range(len(steps)))
    graph.add_edges_from((number[i], number[step.id]) for step in steps for i in step.reads.values())
    for network in subnetwork.space.networks:
        # A supernet numbers the nodes of a network in the order of the network.
        graph.add_edges_from(pairwise(number[i] for i in sorted(number) if steps[number[i]].network is network))
    if not nx.is_directed_acyclic_graph(graph):  # links by hand, between branches, may need another order
        return steps
    return [steps[i] for i in nx.lexicographical_topological_sort(graph)]


def _segment(
    group: list[Step],
    number: int,
    part_of: dict[int, int],
    positions: dict[str, dict[str, int]],
    known: Collection[int],
) -> Segment:
    reads = tuple(sorted({part_of[i] for step in group for i in step.reads.values()} - {number}))
    cost = sum(step.cost for step in group)
    if group[0].link:
        return Segment(cost, reads, link=group[0].link, is_known=group[0].id in known)
    network = group[0].network
    return Segment(
        cost,
        reads,
        any(INPUT in step.node.inputs() for step in group),
        network,
        tuple(positions[network.name][step.node.name] for step in group),
        is_known=group[0].id in known,
    )


def results(subnetwork: Subnetwork, parts: Sequence[Segment]) -> list[int]:
    """The positions of the parts that compute the output, or the outputs whose mean it is."""
    ends = {
        (part.network.name, part.network.nodes[i].name): number for number, part in enumerate(parts) for i in part.nodes
    }
    return [ends[network.name, network.output] for network in subnetwork.outputs]


def stitch_label(link: Link) -> str:
    """The kind and the channels on both sides."""
    return f"{link.kind} {link.source.channels}→{link.target.channels}"


def describe_subnetwork(subnetwork: Subnetwork) -> str:
    """A table for a terminal: the parts of a subnetwork in topological order, with their multiply-adds for one sample
    and what each reads."""
    parts = segments(subnetwork)
    rows = [["", "part", "from", "to", "multiply-adds", "%", "reads"], *part_rows(parts, subnetwork.cost)]
    count = subnetwork.n_stitches
    ends = " and ".join(f"{number + 1}" for number in results(subnetwork, parts))
    output = f"the mean of {ends}" if len(subnetwork.outputs) > 1 else ends
    return "\n".join(
        [
            f"Subnetwork of {subnetwork.cost:,} multiply-adds with {count} stitch{'es' * (count != 1)}",
            "",
            *table(rows),
            "",
            f"output: {output}, of {' and '.join(network.name for network in subnetwork.outputs)}",
        ]
    )


def part_rows(parts: Sequence[Segment], total: int) -> Iterator[list[str]]:
    """A row of strings for each part: its number, what it is, where it begins and ends, multiply-adds, percent, what it
    reads."""
    for number, part in enumerate(parts, 1):
        reads = ", ".join(["input"] * part.reads_input + [f"{i + 1}" for i in part.reads])
        if part.link:
            ends = [f"stitch {stitch_label(part.link)}", str(part.link.source), str(part.link.target)]
        else:
            ends = [part.network.name, part.first, part.last]
        yield [f"{number}", *ends, f"{part.cost:,}", f"{100 * part.cost / max(total, 1):.1f}", reads or "nothing"]
