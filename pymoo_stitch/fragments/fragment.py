"""Networks cut into fragments at the tensors where a linear map can be fused into the layers after ([SF])."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import torch

from ..network import CONVOLUTIONS, INPUT, Layout, Network, Node, Ref, Tap, Weight, foldable, infer_layouts

LINEAR = "aten.linear.default"


@dataclass(frozen=True)
class Fragment:
    """What a network computes between two cuts: `first` is the tap it reads, None for the input, and `last` the tap it
    ends in, None for the output. `number` counts the fragments of the network from 0."""

    network: Network
    number: int
    first: Tap | None
    last: Tap | None

    @property
    def is_start(self) -> bool:
        return self.first is None

    @property
    def is_end(self) -> bool:
        return self.last is None

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes it needs, in their order; the last one computes its output. One that is made of weights alone may
        be in several fragments."""
        needed = {self.network.output if self.last is None else self.last.name}
        start = None if self.first is None else self.first.name
        nodes = []
        for node in reversed(self.network.nodes):
            if node.name in needed and node.name != start:
                nodes.append(node)
                needed.update(node.inputs())
        return tuple(reversed(nodes))

    @cached_property
    def cost(self) -> int:
        """Multiply-adds for one sample."""
        return sum(node.cost for node in self.nodes)

    @cached_property
    def parameters(self) -> int:
        """How many numbers it holds, with each batch norm after a convolution folded into it. Those of other norms are
        four for each channel: running statistics count, as they do in a file; a normalisation of the input does not."""
        own = {node.name: node for node in self.nodes if node.path is not None}
        folded = {norm: name for norm, name in foldable(self.network).items() if norm in own}
        names = {name for node in own.values() if node.name not in folded for name in node.weights()}
        names |= {own[norm].args[3].name for norm, name in folded.items() if not any(own[name].args[2:3])}  # new biases
        return sum(self.network.weights[name].numel() for name in names)

    def __str__(self) -> str:
        return f"{self.network.name}[{self.number}]"

    def __repr__(self) -> str:
        ends = (str(self.first.name if self.first else INPUT), str(self.last.name if self.last else "output"))
        return f"Fragment({self}, {' → '.join(ends)}, {self.cost:,} multiply-adds, {self.parameters:,} parameters)"


def fragments(network: Network) -> tuple[Fragment, ...]:
    """The fragments of a network from its input to its output; one if there is nowhere to cut.

    >>> for fragment in fragments(get_problem("digits").space.networks[1]):
    ...     fragment
    Fragment(residual[0], input → 4.relu, 338,688 multiply-adds, 5,352 parameters)
    Fragment(residual[1], 4.relu → 8, 294,912 multiply-adds, 18,552 parameters)
    Fragment(residual[2], 8 → output, 240 multiply-adds, 250 parameters)
    """
    ends = [None, *fusible_cuts(network), None]
    return tuple(Fragment(network, number, *pair) for number, pair in enumerate(pairwise(ends)))


def follows(first: Fragment, second: Fragment) -> bool:
    """Whether a fragment comes right after another in their network."""
    return first.network is second.network and first.number + 1 == second.number


def fusible_cuts(network: Network) -> list[Tap]:
    """The taps at which a network is cut, in order: every path from the input to the output passes through one of them,
    and what reads it is one linear layer or one or more convolutions, none with groups. Views and dropouts between a
    tap and its readers are looked through; where a tensor is flattened to a vector, the vector is the tap."""
    taps = {tap.name: tap for tap in network.taps}
    layouts = infer_layouts(network.nodes, network.input_shape)
    readers: dict[str, list[Node]] = {}
    for node in network.nodes:
        for name in dict.fromkeys(node.inputs()):
            readers.setdefault(name, []).append(node)

    def layers(name: str) -> Iterator[tuple[Node, str]]:
        """The readers of a tap, each with the name that it reads: after views, unless a view is a tap itself."""
        for node in readers.get(name, ()):
            if node.name not in taps and network.is_alias(node):
                yield from layers(node.name)
            else:
                yield node, name

    def can_be_fused(tap: Tap, node: Node, name: str) -> bool:
        layout, channels = layouts.get(name), input_channels(node, network.weights)
        if not isinstance(layout, Layout) or Ref(name) != node.args[0] or node.inputs() != [name]:
            return False
        return channels == tap.channels and (layout is Layout.IMAGE) is (node.op in CONVOLUTIONS)

    found = []
    for tap in network.cuts:
        reading = list(layers(tap.name))
        alone = len(reading) == 1 or all(node.op in CONVOLUTIONS for node, _ in reading)
        if alone and all(can_be_fused(tap, node, name) for node, name in reading):
            found.append(tap)
    return found


def input_channels(node: Node, weights: Mapping[str, torch.Tensor]) -> int | None:
    """How many channels a linear layer or a convolution without groups reads; None for any other node, and where its
    weight is computed."""
    if node.op not in (LINEAR, *CONVOLUTIONS) or not isinstance(node.args[1], Weight):
        return None
    groups = node.args[6] if len(node.args) > 6 else node.kwargs.get("groups", 1)
    return weights[node.args[1].name].shape[1] if groups == 1 else None
