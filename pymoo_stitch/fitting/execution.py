"""Running the nodes of a supernet one by one: its networks as they are, or one subnetwork with stitches that can
learn."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import nn

from ..network import INPUT, Network, Node, mean, output_of
from ..stitches import Modules

if TYPE_CHECKING:
    from ..supernet import Step, Subnetwork, Supernet


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

    def run(
        self,
        subnetwork: "Subnetwork",
        images: torch.Tensor,
        stitches: Modules,
        before: Mapping[int, torch.Tensor] | None = None,
    ) -> torch.Tensor:
        """A subnetwork's output; gradients reach the stitches, through the networks after them.

        :param before: what `before_stitches` returned for these images, so that it is not computed again.
        """
        steps = list(subnetwork.steps())
        if before:
            after = subnetwork.after_stitches()
            steps = [step for step in steps if step.id in after]
        made = self._made(steps, subnetwork.results, images, stitches, before or {})
        return mean([made[i] for i in subnetwork.results])

    def before_stitches(self, subnetwork: "Subnetwork", images: torch.Tensor) -> dict[int, torch.Tensor]:
        """The tensors before any stitch that are read by stitches or by steps after them. They do not depend on the
        stitches."""
        after, steps = subnetwork.after_stitches(), list(subnetwork.steps())
        read = {*subnetwork.results, *(i for step in steps if step.id in after for i in step.reads.values())}
        first = [step for step in steps if step.id not in after]
        return self._made(first, [step.id for step in first if step.id in read], images, {}, {})

    def _made(
        self,
        steps: "Sequence[Step]",
        wanted: Sequence[int],
        images: torch.Tensor,
        stitches: Modules,
        given: Mapping[int, torch.Tensor],
    ) -> dict[int, torch.Tensor]:
        """The tensors wanted, by the ids of the steps that make them, from others given."""
        readers = Counter(wanted) + Counter(i for step in steps for i in step.reads.values())
        made = dict(given)

        def take(i: int) -> torch.Tensor:
            readers[i] -= 1
            return made[i] if readers[i] else made.pop(i)

        for step in steps:
            read = {name: take(i) for name, i in step.reads.items()}
            if step.node is not None:
                made[step.id] = self._node(step.network, step.node, images, read.__getitem__)
            else:
                made[step.id] = stitches[step.link.stitch](*read.values())
        return made

    def _node(
        self, network: Network, node: Node, images: torch.Tensor, read: Callable[[str], torch.Tensor]
    ) -> torch.Tensor:
        return output_of(
            node, lambda name: images if name == INPUT else read(name), self._weights[network.name], images
        )
