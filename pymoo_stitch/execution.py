"""Running the nodes of a supernet one by one: its networks as they are, or one subnetwork with stitches that can learn."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import nn

from .graph import INPUT, Node, resolver, substitute
from .network import Network
from .operators import lookup

if TYPE_CHECKING:
    from .subnetwork import Subnetwork
    from .supernet import Supernet


def outputs_of(
    network: Network, tensor: torch.Tensor, *, nodes: Sequence[Node] | None = None, given: str = INPUT
) -> Iterator[tuple[str, torch.Tensor]]:
    """The name of each node of a network, in their order, and what it gives; kept until the last that reads it is done.

    :param tensor: a batch of images, or what stands for
    :param given: another tensor than the input.
    :param nodes: those to run, if not all.
    """
    nodes = network.nodes if nodes is None else nodes
    readers = Counter(name for node in nodes for name in dict.fromkeys(node.inputs()))
    made = {given: tensor}
    for node in nodes:
        with torch.no_grad():
            made[node.name] = _output(node, made.__getitem__, network.weights, tensor)
        yield node.name, made[node.name]
        for name in dict.fromkeys(node.inputs()):
            readers[name] -= 1
            if not readers[name]:
                del made[name]


def _output(
    node: Node, read: Callable[[str], torch.Tensor], weights: Mapping[str, torch.Tensor], images: torch.Tensor
) -> torch.Tensor:
    """What a node gives, on the device of the images."""
    resolve = resolver(read, weights.__getitem__, lambda multiple: multiple * len(images), images.device)
    return lookup(node.op)(*substitute(node.args, resolve), **substitute(node.kwargs, resolve))


class Execution:
    """The networks of a supernet with their weights on a device. A tensor is kept until the last that reads it is done.

    `learning`: gradients reach the networks' parameters too, which are then copies."""

    def __init__(self, supernet: "Supernet", device: torch.device, *, learning: bool = False):
        self.supernet, self.device = supernet, device
        self._wiring = supernet._wiring

        def own(weight: torch.Tensor) -> torch.Tensor:
            if learning and isinstance(weight, nn.Parameter):
                return weight.detach().to(device, copy=True).requires_grad_()
            return weight.detach().to(device)

        self._weights = {
            network.name: {name: own(weight) for name, weight in network.weights.items()}
            for network in supernet.networks
        }

    @property
    def parameters(self) -> list[torch.Tensor]:
        """What learns of the networks."""
        return [weight for weights in self._weights.values() for weight in weights.values() if weight.requires_grad]

    def networks(self) -> list[Network]:
        """The networks with what they have learnt."""

        def learnt(network: Network) -> dict[str, torch.Tensor]:
            found = {name: weight.detach().cpu() for name, weight in self._weights[network.name].items()}
            return {
                name: nn.Parameter(found[name], requires_grad=False) if isinstance(weight, nn.Parameter) else weight
                for name, weight in network.weights.items()
            }

        return [replace(network, weights=learnt(network)) for network in self.supernet.networks]

    def taps(self, images: torch.Tensor) -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
        """For each link its index and the original tensors at its source and its target, in topological order, so that
        few are alive at a time."""
        wiring, links = self._wiring, self.supernet.links
        ends = [(wiring.index(link.source), wiring.index(link.target)) for link in links]
        readers = Counter(i for pair in ends for i in pair) + Counter(i for inputs in wiring.inputs for i in inputs)
        made: dict[int, torch.Tensor] = {}
        starts = {network.name: wiring.owners.index(network) for network in self.supernet.networks}

        def release(i: int) -> None:
            readers[i] -= 1
            if not readers[i]:
                made.pop(i, None)

        def advance(last: int) -> None:
            network = wiring.owners[last]
            name = network.name
            for i in range(starts[name], last + 1):
                made[i] = self._node(network, wiring.nodes[i], images, lambda of: made[wiring.index_of(name, of)])
                for source in wiring.inputs[i]:
                    release(source)
            starts[name] = max(starts[name], last + 1)

        for number, (source, target) in enumerate(ends):
            with torch.no_grad():
                advance(source)
                advance(target)
            yield number, made[source], made[target]
            release(source)
            release(target)

    def run(self, subnetwork: "Subnetwork", images: torch.Tensor, stitches: Mapping[str, nn.Module]) -> torch.Tensor:
        """What a subnetwork gives; gradients reach the stitches, through the networks behind them."""
        steps = list(subnetwork.steps())
        readers = Counter(subnetwork.results) + Counter(i for step in steps for i in step.reads.values())
        made: dict[int, torch.Tensor] = {}

        def take(i: int) -> torch.Tensor:
            readers[i] -= 1
            return made[i] if readers[i] else made.pop(i)

        for step in steps:
            read = {name: take(i) for name, i in step.reads.items()}
            if step.node is not None:
                made[step.id] = self._node(step.network, step.node, images, read.__getitem__)
            else:
                made[step.id] = stitches[step.link.stitch](*read.values())
        outputs = [made[i] for i in subnetwork.results]
        return outputs[0] if len(outputs) == 1 else sum(outputs[1:], start=outputs[0]) / len(outputs)

    def _node(
        self, network: Network, node: Node, images: torch.Tensor, read: Callable[[str], torch.Tensor]
    ) -> torch.Tensor:
        return _output(node, lambda name: images if name == INPUT else read(name), self._weights[network.name], images)
