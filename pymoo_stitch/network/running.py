"""A network's nodes run one by one."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch

from .graph import INPUT, Node, resolver, substitute
from .network import Network
from .operators import lookup


def outputs_of(
    network: Network, tensor: torch.Tensor, *, nodes: Sequence[Node] | None = None, given: str = INPUT
) -> Iterator[tuple[str, torch.Tensor]]:
    """The name of each node of a network, in their order, and its output, which is kept until its last reader is done.

    :param tensor: a batch of images, or what stands for
    :param given: another tensor than the input.
    :param nodes: those to run, if not all.
    """
    nodes = network.nodes if nodes is None else nodes
    readers = Counter(name for node in nodes for name in dict.fromkeys(node.inputs()))
    made = {given: tensor}
    for node in nodes:
        with torch.no_grad():
            made[node.name] = output_of(node, made.__getitem__, network.weights, tensor)
        yield node.name, made[node.name]
        for name in dict.fromkeys(node.inputs()):
            readers[name] -= 1
            if not readers[name]:
                del made[name]


def output_of(
    node: Node, read: Callable[[str], torch.Tensor], weights: Mapping[str, torch.Tensor], images: torch.Tensor
) -> torch.Tensor:
    """The output of a node, on the device of the images."""
    resolve = resolver(read, weights.__getitem__, lambda multiple: multiple * len(images), images.device)
    return lookup(node.op)(*substitute(node.args, resolve), **substitute(node.kwargs, resolve))
