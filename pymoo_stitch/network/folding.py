"""Batch norms as simpler operations: one with the convolution before it, or a product and a sum."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from .graph import Node, Ref, Weight
from .network import Network

CONVOLUTIONS = ("aten.conv2d.default", "aten.conv2d.padding")


def foldable(network: Network) -> dict[str, str]:
    """For each batch norm that can be folded into the convolution before it, the name of that. Nothing else in the
    network reads the convolution."""
    readers = Counter(name for node in network.nodes for name in node.inputs()) + Counter([network.output])
    convolutions = {node.name for node in network.nodes if node.op in CONVOLUTIONS and _are_weights(node.args[1:3])}
    norms = [node for node in network.nodes if is_product(node)]
    before = {norm.name: norm.args[0].node for norm in norms if isinstance(norm.args[0], Ref)}
    return {norm: name for norm, name in before.items() if name in convolutions and readers[name] == 1}


def is_batch_norm(node: Node) -> bool:
    """Whether a node is a batch norm with statistics that do not depend on the batch: arguments 3 and 4, its mean and
    variance."""
    return (
        node.op == "aten.batch_norm.default" and not node.args[5] and all(isinstance(i, Weight) for i in node.args[3:5])
    )


def is_product(node: Node) -> bool:
    """Whether a node is a batch norm that multiplies by constants and adds constants: see `as_product`."""
    return is_batch_norm(node) and _are_weights(node.args[1:3])


def _are_weights(arguments: Sequence[Any]) -> bool:
    return all(argument is None or isinstance(argument, Weight) for argument in arguments)


def fold(convolution: Node, norm: Node, weights: Mapping[str, torch.Tensor]) -> tuple[Node, dict[str, torch.Tensor]]:
    """A convolution and the batch norm after it as one convolution, and its weights."""

    def value(argument: Weight | None, default: float, like: torch.Tensor) -> torch.Tensor:
        return torch.full_like(like, default) if argument is None else weights[argument.name].double()

    # `torch.nn.utils.fusion` multiplies by rsqrt, which rounds some weights differently.
    weight, bias = convolution.args[1], convolution.args[2] if len(convolution.args) > 2 else None
    mean = weights[norm.args[3].name].double()
    gamma, beta = value(norm.args[1], 1, mean), value(norm.args[2], 0, mean)
    scale = gamma / (weights[norm.args[4].name].double() + norm.args[7]).sqrt()
    shift = beta + (value(bias, 0, mean) - mean) * scale
    kernel = weights[weight.name].double() * scale.view(-1, 1, 1, 1)
    args = (convolution.args[0], Weight("weight"), Weight("bias"), *convolution.args[3:])
    folded = replace(convolution, name=norm.name, args=args, shape=norm.shape, dtype=norm.dtype)
    return folded, {"weight": kernel.to(norm.dtype), "bias": shift.to(norm.dtype)}


def as_product(norm: Node, weights: Mapping[str, torch.Tensor]) -> tuple[Node, dict[str, torch.Tensor]]:
    """A batch norm as a multiplication and an addition in one node, and its weights. `torch.export` accepts that for
    batches of unknown size, which it does not for a batch norm."""
    mean, variance = (weights[norm.args[place].name].double() for place in (3, 4))
    gamma, beta = (
        torch.full_like(mean, default) if argument is None else weights[argument.name].double()
        for argument, default in zip(norm.args[1:3], (1, 0), strict=True)
    )
    scale = gamma / (variance + norm.args[7]).sqrt()
    values = {"scale": scale, "shift": beta - mean * scale}
    args = (Weight("shift"), norm.args[0], Weight("scale"))
    node = replace(norm, op="aten.addcmul.default", args=args, kwargs={})
    return node, {name: value.to(norm.dtype).view(-1, *[1] * (len(norm.shape) - 2)) for name, value in values.items()}
