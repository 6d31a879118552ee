"""Trained PyTorch modules imported as graphs, and the taps at which they can be stitched."""

import difflib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import fx, nn

from .graph import INPUT, GraphBuilder, Node
from .importing import Normalization, Trained, default_name, import_module, trained_on
from .layout import Layout, infer_layouts
from .operators import GETITEM, is_alias


@dataclass(frozen=True)
class Tap:
    """A tensor inside a network that a stitch can read or replace.

    `name` is the module that makes it, followed by the operation where that module makes several. `shape` is without
    the batch; `depth` is the fraction of the network's multiply-adds that are spent when it is computed; `grid` is the
    height and width of its positions, None where they are no image."""

    network: str
    name: str
    layout: Layout
    shape: tuple[int, ...]
    depth: float
    grid: tuple[int, int] | None = None

    @property
    def channels(self) -> int:
        return self.layout.channels(self.shape)

    @property
    def positions(self) -> tuple[int, ...]:
        return self.layout.positions(self.shape)

    def __str__(self) -> str:
        return f"{self.network}:{self.name}"


@dataclass(frozen=True, eq=False)
class Network:
    """A trained, frozen basis network as a graph.

    `nodes` are in topological order and all reach `output`; `weights` holds parameters as `nn.Parameter`, the rest as
    plain tensors, on the CPU. `normalization` is what the graph does to the images first, or None; `difference` is the
    largest absolute difference from the module's own output that was seen when it was imported; `trained` is what timm
    says about the images it was trained on, if known. Made by `Network.from_module`."""

    name: str
    nodes: tuple[Node, ...]
    weights: dict[str, torch.Tensor]
    input_shape: tuple[int, ...]
    output: str
    normalization: Normalization | None = None
    difference: float = 0.0
    trained: Trained | None = None

    @classmethod
    def from_module(
        cls,
        module: nn.Module,
        example_input: torch.Tensor,
        *,
        name: str | None = None,
        output: str | int | None = None,
        normalize: Normalization | str | None = None,
    ) -> "Network":
        """Import a module by `torch.export` and verify the graph against it on two batch sizes.

        What the module makes of weights alone by operators that a graph may not use, such as a batch norm that
        standardises the weights of a convolution, is computed now, once, and is a weight of the network.

        :param module: takes one tensor, batch first, and returns a tensor, or a tuple or dict of which `output` is the
            main one. It is left as it was.
        :param example_input: a batch of one or more samples.
        :param name: defaults to timm's name of the architecture, else to that of the class.
        :param output: which item of a tuple or dict to take. The default is the first of a tuple; of a dict `"out"`,
            `"logits"`, or its only item.
        :param normalize: (mean, std) per channel to make part of the graph, so that it takes images in [0, 1];
            `"timm"` reads them from the module's `pretrained_cfg`. None: the graph takes what the module takes."""
        name = default_name(module) if name is None else name
        found = import_module(module, example_input, name, output, normalize)
        parts = found.nodes, found.weights, found.input_shape, found.output, found.normalization
        network = cls(name, *parts, trained=trained_on(module))
        return replace(network, difference=_verify(network, found.batches, found.expected))

    @cached_property
    def cost(self) -> int:
        """Multiply-adds for one sample."""
        return sum(node.cost for node in self.nodes)

    @cached_property
    def output_shape(self) -> tuple[int, ...]:
        return next(node.sample_shape for node in self.nodes if node.name == self.output)

    @cached_property
    def n_parameters(self) -> int:
        """The number of its parameters, as a file holds them. Where weights are computed of other parameters at
        import, as in networks with weight standardisation, it is the computed ones that count."""
        return sum(weight.numel() for weight in self.weights.values() if isinstance(weight, nn.Parameter))

    @property
    def takes_unit_images(self) -> bool | None:
        """Whether it takes images in [0, 1] and normalises them in its graph. If not, it takes what the module takes:
        False where that is known to be normalised images, None where nothing is known."""
        return True if self.normalization else (False if self.trained else None)

    @cached_property
    def taps(self) -> tuple[Tap, ...]:
        """Every distinct tensor with a layout, in topological order; not the output, which the supernet switches as a
        whole."""
        layouts = infer_layouts(self.nodes, self.input_shape)
        outputs = self._output_aliases()
        varying = {node.name for node in self.varying}
        taps, spent = [], 0
        for node in self.nodes:
            spent += node.cost
            layout = layouts.get(node.name)
            if layout is None or node.path is None or node.name in outputs or node.name not in varying:
                continue
            if not node.dtype.is_floating_point or self._shows_again(node, layouts):
                continue
            grid = layout.grid(node.sample_shape, self.input_shape[-2:] if len(self.input_shape) == 3 else None)
            taps.append(Tap(self.name, node.name, layout, node.sample_shape, spent / max(self.cost, 1), grid))
        return tuple(taps)

    @cached_property
    def cuts(self) -> tuple[Tap, ...]:
        """The taps that lie on every path from the input to the output."""
        last_reader = {name: i for i, node in enumerate(self.varying) for name in node.inputs()}
        until, found = last_reader[INPUT], set()
        for i, node in enumerate(self.varying):
            if until <= i:  # nothing after this node reads anything before it
                found.add(node.name)
            until = max(until, last_reader.get(node.name, i))
        return tuple(tap for tap in self.taps if tap.name in found)

    @cached_property
    def varying(self) -> tuple[Node, ...]:
        """The nodes that depend on the input; the others are constants."""
        names, nodes = {INPUT}, []
        for node in self.nodes:
            if not names.isdisjoint(node.inputs()):
                names.add(node.name)
                nodes.append(node)
        return tuple(nodes)

    def tap(self, name: str) -> Tap:
        """The tap of that name; for the name of a module, the last tap made inside it."""
        name = str(name)
        inside = [tap for tap in self.taps if tap.name == name or tap.name.startswith(f"{name}.")]
        exact = [tap for tap in inside if tap.name == name]
        if not inside:
            near = difflib.get_close_matches(name, [tap.name for tap in self.taps], n=3, cutoff=0)
            raise ValueError(
                f"network {self.name!r} has no tap {name!r}; the nearest are {', '.join(map(repr, near))}. "
                f"`network.taps` lists all {len(self.taps)}."
            )
        return (exact or inside)[-1]

    def module(self, device: torch.device | str | None = None) -> fx.GraphModule:
        """The graph as a plain module."""
        builder = GraphBuilder(device)
        made = {INPUT: builder.input}
        for node in self.nodes:
            made[node.name] = builder.node(node, made.__getitem__, self.weights, self.name)
        return builder.module(made[self.output], self.name)

    @cached_property
    def _by_name(self) -> dict[str, Node]:
        return {node.name: node for node in self.nodes}

    def _output_aliases(self) -> set[str]:
        """The output and what it shows again."""
        names, node = {self.output}, self._by_name[self.output]
        while self.is_alias(node) and node.inputs() and node.inputs()[0] != INPUT:
            node = self._by_name[node.inputs()[0]]
            names.add(node.name)
        return names

    def is_alias(self, node: Node) -> bool:
        """Whether a node's values are another's: a view, a copy, or one of several views."""
        maker = self._by_name[node.inputs()[0]] if node.op == GETITEM else node
        return is_alias(maker.op, maker.args)

    def _shows_again(self, node: Node, layouts: dict[str, Layout]) -> bool:
        """Whether a node is an alias that makes no tap. A view that becomes a vector makes one: from networks that
        never have its base's layout, a stitch can reach only the vector."""
        base = next(iter(node.inputs()), None)
        becomes_vector = layouts[node.name] is Layout.VECTOR and layouts.get(base) is not Layout.VECTOR
        return self.is_alias(node) and not becomes_vector

    def __repr__(self) -> str:
        return (
            f"Network({self.name!r}, input {self.input_shape}, {len(self.taps)} taps, {self.cost:,} multiply-adds, "
            f"{self.n_parameters:,} parameters)"
        )


def _verify(network: Network, batches: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> float:
    module = network.module(batches[0].device)
    difference = 0.0
    for batch, reference in zip(batches, expected, strict=True):
        with torch.no_grad():
            result = module(batch)
        tolerance = 1e-5 * max(1.0, reference.abs().max().item())
        found = (result - reference).abs().max().item() if result.shape == reference.shape else math.inf
        if not found <= tolerance:
            raise ValueError(
                f"{network.name} cannot be imported: for {len(batch)} samples the imported graph differs from the "
                f"module by up to {found:.3g}, more than {tolerance:.3g}. Does its output depend on the batch, on "
                "random numbers, or on Python values that torch.export fixes?"
            )
        difference = max(difference, found)
    return difference
