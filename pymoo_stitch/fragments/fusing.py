"""Subnetworks as plain networks, and their stitches fused into the layers after them ([SF])."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from ..network import (
    CONVOLUTIONS,
    INPUT,
    Network,
    Node,
    Ref,
    Weight,
    fold,
    foldable,
    is_alias,
    permutation,
    run_without_computing,
    short_name,
    substitute,
    unique_name,
)
from ..supernet import Subnetwork
from .fragment import LINEAR, input_channels

STITCHES = "stitches"
"""The prefix of the names of a stitch's nodes and weights; no network may have this name."""


def as_network(subnetwork: Subnetwork, name: str) -> Network:
    """A subnetwork with one output as a network of its own. Its nodes have the names of those they come from, prefixed
    by their network's name."""
    if len(subnetwork.results) > 1:
        raise ValueError(f"{subnetwork} is an ensemble: only what has one network's output becomes a network.")
    nodes: list[Node] = []
    weights: dict[str, torch.Tensor] = {}
    made: dict[int, str] = {}

    def add(node: Node, owner: str, read: Mapping[str, str], own: Mapping[str, torch.Tensor]) -> str:
        def moved(value: Any) -> Any:
            if isinstance(value, Ref):
                return Ref(read[value.node])
            return Weight(f"{owner}.{value.name}") if isinstance(value, Weight) else value

        args, kwargs = substitute(node.args, moved), substitute(node.kwargs, moved)
        path = None if node.path is None else f"{owner}.{node.path}".strip(".")
        nodes.append(replace(node, name=f"{owner}.{node.name}", args=args, kwargs=kwargs, path=path))
        weights.update({f"{owner}.{weight}": own[weight] for weight in node.weights()})
        return nodes[-1].name

    for step in subnetwork.steps():
        read = {INPUT: INPUT} | {of: made[i] for of, i in step.reads.items()}
        if step.node is not None:
            made[step.id] = add(step.node, step.network.name, read, step.weights)
        else:
            (source,) = (made[i] for i in step.reads.values())
            example = torch.rand(2, *step.link.source.shape, generator=torch.Generator().manual_seed(0))
            stitch = Network.from_module(subnetwork.stitches[step.link.stitch], example, name="stitch")
            own = {INPUT: source}
            for node in stitch.nodes:
                own[node.name] = add(node, f"{STITCHES}.{step.link.stitch}", own, stitch.weights)
            made[step.id] = own[stitch.output]
    return Network(name, tuple(nodes), weights, subnetwork.space.input_shape, made[subnetwork.results[0]])


def folded(network: Network) -> Network:
    """The same with each batch norm after a convolution folded into it."""
    pairs, by_name = foldable(network), {node.name: node for node in network.nodes}
    gone = {*pairs, *pairs.values()}
    kept = {name for node in network.nodes if node.name not in gone for name in node.weights()}
    weights = {name: weight for name, weight in network.weights.items() if name in kept}
    nodes = []
    for node in network.nodes:
        if node.name in pairs:
            node, own = fold(by_name[pairs[node.name]], node, network.weights)
            node = _with_weights(node, own["weight"], own["bias"], weights)
        elif node.name in gone:
            continue
        nodes.append(node)
    return replace(network, nodes=tuple(nodes), weights=weights)


def fused(network: Network) -> Network:
    """The same with each stitch that is one linear map fused into the layers that read it, where that is exact: with W
    of a layer and A of the stitch, W·A along the input channels of all of them. A bias is fused into linear layers and
    convolutions without padding: at a border of zeros it would be missing. What resizes or pools before the map
    stays."""
    weights = dict(network.weights)
    nodes = {node.name: node for node in network.nodes}
    for stitch in reversed(network.nodes):  # the second of two factors before the first
        if _is_stitch(stitch) and stitch.name != network.output and _is_map(stitch, weights):
            _fuse(network.output, nodes, weights, stitch)
    used = {name for node in nodes.values() for name in node.weights()}
    weights = {name: weight for name, weight in weights.items() if name in used}
    costs = [cost for *_, cost in run_without_computing(nodes.values(), weights, network.input_shape)]
    found = tuple(replace(node, cost=cost) for node, cost in zip(nodes.values(), costs, strict=True))
    return replace(network, nodes=found, weights=weights)


def _fuse(output: str, nodes: dict[str, Node], weights: dict[str, torch.Tensor], stitch: Node) -> None:
    """Fuse one stitch, if all that read it can take it."""
    found = _readers(output, nodes, weights, stitch)
    if found is None:
        return
    views, layers = found
    matrix = weights[stitch.args[1].name].double().flatten(1)
    bias = _bias(stitch)
    if bias is not None and any(_pads(layer, weights) for layer in layers):
        return
    source = stitch.args[0]

    def passed(value: Any) -> Any:
        return source if value == Ref(stitch.name) else value

    for view, axis in views:
        nodes[view.name] = _narrowed(replace(view, args=substitute(view.args, passed)), axis, matrix.shape[1])
    for layer in layers:
        weight = weights[layer.args[1].name].double()
        own = None if _bias(layer) is None else weights[_bias(layer).name]
        if bias is not None:
            shift = weight.flatten(2).sum(2) if weight.ndim > 2 else weight
            own = shift @ weights[bias.name].double() + (0 if own is None else own.double())
        mixed = torch.einsum("oi...,ic->oc...", weight, matrix)
        layer = replace(layer, args=substitute(layer.args, passed))
        nodes[layer.name] = _with_weights(layer, mixed, own, weights)
    del nodes[stitch.name]


def _readers(
    output: str, nodes: Mapping[str, Node], weights: Mapping[str, torch.Tensor], stitch: Node
) -> tuple[list[tuple[Node, int]], list[Node]] | None:
    """The views of a stitch's output, each with the axis of its channels, and the layers that read it; None if
    anything else does."""
    axes = {stitch.name: 1 if stitch.op in CONVOLUTIONS else len(stitch.shape) - 1}
    views, layers = [], []
    for node in nodes.values():
        reads = [name for name in node.inputs() if name in axes]
        if not reads:
            continue
        if len(node.inputs()) > 1 or node.args[0] != Ref(reads[0]) or (_is_stitch(node) and node.op == LINEAR):
            return None  # the product of a stitch's two factors would be larger than both
        axis = axes[reads[0]]
        if is_alias(node.op, node.args):
            axis = _axis_behind(node, nodes[reads[0]].shape, axis)
            if axis is None or node.name == output:
                return None
            axes[node.name] = axis
            views.append((node, axis))
        elif input_channels(node, weights) is None or axis != (1 if node.op in CONVOLUTIONS else len(node.shape) - 1):
            return None
        else:
            layers.append(node)
    return views, layers


_SIZED = ("view", "_unsafe_view", "reshape")


def _axis_behind(view: Node, before: Sequence[Any], axis: int) -> int | None:
    """The axis of a view that was this axis of its base; None if the view has not kept it whole."""
    if view.shape is None:
        return None
    if short_name(view.op) in ("permute", "transpose", "t"):
        return permutation(view).index(axis)
    if tuple(view.shape) == tuple(before):
        return axis
    if short_name(view.op) not in (*_SIZED, "flatten"):
        return None
    behind = len(before) - axis
    if tuple(view.shape[: axis + 1]) == tuple(before[: axis + 1]):
        return axis
    return len(view.shape) - behind if tuple(view.shape[-behind:]) == tuple(before[axis:]) else None


def _narrowed(view: Node, axis: int, channels: int) -> Node:
    """A view of a tensor with another number of channels."""
    shape = (*view.shape[:axis], channels, *view.shape[axis + 1 :])
    args = (view.args[0], list(shape), *view.args[2:]) if short_name(view.op) in _SIZED else view.args
    return replace(view, shape=shape, args=args)


def _is_stitch(node: Node) -> bool:
    return node.name.startswith(f"{STITCHES}.")


def _is_map(node: Node, weights: Mapping[str, torch.Tensor]) -> bool:
    """Whether a node is one linear map of the channels, the same at every position."""
    if node.op == LINEAR:
        return input_channels(node, weights) is not None
    if node.op not in CONVOLUTIONS or input_channels(node, weights) is None or _pads(node, weights):
        return False
    stride = node.args[3] if len(node.args) > 3 else 1
    return set(_pair(stride)) == {1} and set(weights[node.args[1].name].shape[2:]) == {1}


def _pads(layer: Node, weights: Mapping[str, torch.Tensor]) -> bool:
    if layer.op == LINEAR:
        return False
    padding = layer.args[4] if len(layer.args) > 4 else "valid" if layer.op.endswith(".padding") else 0
    if isinstance(padding, str):
        return padding != "valid" and set(weights[layer.args[1].name].shape[2:]) != {1}
    return any(_pair(padding))


def _pair(value: int | Sequence[int]) -> Sequence[int]:
    return [value] if isinstance(value, int) else value


def _bias(layer: Node) -> Weight | None:
    return layer.args[2] if len(layer.args) > 2 else None


def _with_weights(
    layer: Node, weight: torch.Tensor, bias: torch.Tensor | None, weights: dict[str, torch.Tensor]
) -> Node:
    """The layer with a weight and a bias of its own, which are added to the weights."""
    names = []
    for name, tensor in (("weight", weight), ("bias", bias)):
        names.append(None if tensor is None else unique_name(f"{layer.name}.{name}", weights))
        if tensor is not None:
            weights[names[-1]] = nn.Parameter(tensor.detach().to(layer.dtype).contiguous(), requires_grad=False)
    return replace(layer, args=(layer.args[0], *(name and Weight(name) for name in names), *layer.args[3:]))
