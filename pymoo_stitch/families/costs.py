"""The cost of a network as others count it, to compare with published figures. Our own count is defined in
`network.graph`."""

from dataclasses import replace
from functools import cache
from math import prod

import torch
from torch import nn

from ..network import INPUT, Network, Node, Tap, short_name
from ..stitches import KINDS, Link, build_stitch, is_direct
from ..supernet import Subnetwork


def fvcore_cost(subnetwork: Subnetwork) -> int:
    """The cost of a subnetwork for one sample as fvcore's `FlopCountAnalysis` counts: multiply-adds, and besides for
    each value that a layer, group or instance norm reads 5 (4 if it has no weight), a batch norm 2 (1), an adaptive
    average pooling 1; for each value that a bilinear interpolation or a grid sampler returns 4, a nearest one 1.

    One difference: attention as a single operator, of which fvcore knows nothing, is counted as the two
    matrix products that it stands for."""
    sizes, total = {}, 0
    for step in subnetwork.steps():
        if step.node is None:
            sizes[step.id] = prod(step.link.target.shape)
            total += step.cost + _beside_in_stitch(_nameless(step.link))
        else:
            sizes[step.id] = _size(step.node)
            read = {name: sizes[i] for name, i in step.reads.items()} | {INPUT: prod(step.network.input_shape)}
            total += step.cost + _beside(step.node, read)
    return total


_NORMS = {"layer_norm": (2, 5), "group_norm": (2, 5), "instance_norm": (1, 5), "batch_norm": (1, 2)}
"""The position of the weight among a norm's arguments, and what a value costs with it."""

_RESIZING = {"upsample_nearest2d": 1, "upsample_bilinear2d": 4, "grid_sampler": 4}


def _beside(node: Node, read: dict[str, int]) -> int:
    """What a node costs beside its multiply-adds, given the sizes of what it reads."""
    name = short_name(node.op)
    if name in _NORMS:
        place, each = _NORMS[name]
        has_weight = len(node.args) > place and node.args[place] is not None
        return _size(node) * (each if has_weight else each - 1)
    if name in ("adaptive_avg_pool2d", "_adaptive_avg_pool2d"):
        return read[node.inputs()[0]]
    return _size(node) * _RESIZING[name] if name in _RESIZING else 0


def _size(node: Node) -> int:
    """The number of values that a node returns for one sample; 0 for one that returns several tensors, which itself
    costs nothing."""
    return prod(size if isinstance(size, int) else size.multiple for size in node.shape) if node.shape else 0


@cache
def _beside_in_stitch(link: Link) -> int:
    """What a link's stitch costs beside its multiply-adds: most are one linear layer, and others are read as
    networks."""
    if is_direct(link) and (KINDS[link.kind].affine or isinstance(build_stitch(link), nn.Identity)):
        return 0
    graph = Network.from_module(build_stitch(link), torch.zeros(1, *link.source.shape), name="stitch")
    sizes = {INPUT: prod(link.source.shape)} | {node.name: _size(node) for node in graph.nodes}
    return sum(_beside(node, sizes) for node in graph.nodes)


def _nameless(link: Link) -> Link:
    """The same for all links between taps of the same layouts and sizes."""

    def alike(tap: Tap) -> Tap:
        return replace(tap, network="", name="", depth=0.0)

    return Link(alike(link.source), alike(link.target), link.kind)
