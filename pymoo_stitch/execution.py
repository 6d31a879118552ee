"""Running the nodes of a supernet one by one: its networks as they are, or one subnetwork with stitches that can learn."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import torch
from torch import nn

from .graph import INPUT, resolver, substitute
from .network import Network
from .operators import lookup

if TYPE_CHECKING:
    from .supernet import Subnetwork, Supernet


class Execution:
    """The networks of a supernet with their weights on a device. A tensor is kept until the last that reads it is done."""

    def __init__(self, supernet: "Supernet", device: torch.device):
        self.supernet, self.device = supernet, device
        self._wiring = supernet._wiring
        self._weights = {
            network.name: {name: weight.detach().to(device) for name, weight in network.weights.items()}
            for network in supernet.networks
        }

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
            name = wiring.owners[last].name
            for i in range(starts[name], last + 1):
                made[i] = self._node(i, images, made.__getitem__)
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
        wiring, selection = self._wiring, subnetwork._selection
        arriving = {wiring.index(link.target): link for link in subnetwork.links}
        made: dict[int, torch.Tensor] = {}
        readers = Counter(wiring.index(link.source) for link in subnetwork.links)
        used = [i for i in range(len(wiring.nodes)) if selection.nodes >> i & 1]
        readers += Counter((~i if i in arriving else i) for node in used for i in wiring.inputs[node])
        readers += Counter(wiring.outputs[n] for n in selection.outputs)

        def take(i: int) -> torch.Tensor:
            readers[i] -= 1
            return made[i] if readers[i] else made.pop(i)

        for i in self.supernet._order:
            if i >= 0 and selection.nodes >> i & 1:
                read = {j: take(~j if j in arriving else j) for j in wiring.inputs[i]}
                made[i] = self._node(i, images, read.__getitem__)
            elif i < 0 and ~i in arriving:
                link = arriving[~i]
                made[i] = stitches[link.stitch](take(wiring.index(link.source)))
        outputs = [made[wiring.outputs[n]] for n in selection.outputs]
        return outputs[0] if len(outputs) == 1 else sum(outputs[1:], start=outputs[0]) / len(outputs)

    def _node(self, i: int, images: torch.Tensor, read) -> torch.Tensor:
        owner: Network = self._wiring.owners[i]
        node, index = self._wiring.nodes[i], self._wiring.index_of
        resolve = resolver(
            lambda name: images if name == INPUT else read(index(owner.name, name)),
            self._weights[owner.name].__getitem__,
            lambda multiple: multiple * len(images),
            self.device,
        )
        return lookup(node.op)(*substitute(node.args, resolve), **substitute(node.kwargs, resolve))
