"""Subnetworks: what genotypes select, as steps that run through networks and stitches."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import fx, nn

from ..network import INPUT, GraphBuilder, Network, Node, is_batch_norm
from ..stitches import Link, Modules
from ..util.digests import digest

if TYPE_CHECKING:
    from ..fitting import Recalibration
    from .fit_report import FitReport
    from .space import Space


@dataclass(frozen=True)
class Step:
    """One step of what a subnetwork computes: a node of a network, or a stitch, which stands for the node it replaces.

    `reads` maps the name of each node that it reads to the earlier step that computes it; the network's input is not
    among them. `own` are weights that the network does not have: statistics of a batch norm for this subnetwork
    alone."""

    id: int
    reads: dict[str, int]
    cost: int
    network: Network | None = None
    node: Node | None = None
    link: Link | None = None
    own: Mapping[str, torch.Tensor] | None = None

    @property
    def weights(self) -> Mapping[str, torch.Tensor]:
        """Where a node finds its weights."""
        return self.network.weights if self.own is None else self.network.weights | dict(self.own)


class Subnetwork(ABC):
    """What the genotype `x` selects from a `space`, such as a supernet; `stitches` are the modules of its links by
    name, the space's own unless `retrain` has made trained copies of them; `norms` are the batch norms, by the id of
    their step, to which `recalibrate` has given statistics of their own. `make_head` returns the module that turns its
    output into scores, where it comes from a problem with a head."""

    space: "Space"
    x: np.ndarray
    stitches: Modules
    retrained: bool = False
    norms: Mapping[int, Step] = MappingProxyType({})
    make_head: Callable[[], nn.Module] | None = None

    @property
    @abstractmethod
    def active(self) -> np.ndarray:
        """A mask over the variables: which matter. Flipping any other selects the same subnetwork."""

    @property
    @abstractmethod
    def key(self) -> str:
        """The canonical name of the active structure: two genotypes of a space have the same key if and only if they
        select the same subnetwork."""

    @property
    @abstractmethod
    def cost(self) -> int:
        """Multiply-adds for one sample."""

    @property
    @abstractmethod
    def links(self) -> list[Link]:
        """The links in use."""

    @property
    @abstractmethod
    def outputs(self) -> list[Network]:
        """The network whose output this returns, or all those whose outputs it averages."""

    @abstractmethod
    def _steps(self) -> Iterator[Step]:
        """What it computes, in topological order, with the weights of the space."""

    @property
    @abstractmethod
    def results(self) -> list[int]:
        """The steps whose mean is the output."""

    def steps(self) -> Iterator[Step]:
        """What it computes, in topological order; `results` are among the last."""
        return (self.norms.get(step.id, step) for step in self._steps())

    @property
    def n_stitches(self) -> int:
        return len(self.links)

    def after_stitches(self) -> set[int]:
        """The ids of stitches and of the steps that read one, directly or not."""
        found: set[int] = set()
        for step in self._steps():
            if step.link is not None or not found.isdisjoint(step.reads.values()):
                found.add(step.id)
        return found

    def norms_after_stitches(self) -> list[Step]:
        """The batch norms that read a stitch's output, directly or not: those that `recalibrate` changes."""
        after = self.after_stitches()
        return [
            step for step in self._steps() if step.id in after and step.node is not None and is_batch_norm(step.node)
        ]

    def retrain(self, images: Any, **options: Any) -> "FitReport":
        """Train the stitches of this subnetwork alone ([G] 15), as copies: the space keeps its own. `module()` then has
        the trained ones. What `recalibrate` did before is undone, since it was for other stitches.

        :param images: as in `Supernet.fit`.
        :param options: those of `fitting.retrain`.
        """
        from ..fitting import retrain

        return retrain(self, images, **options)

    def recalibrate(self, images: Any, **options: Any) -> "Recalibration":
        """Set the mean and variance of the batch norms after a stitch to those of what they read in this subnetwork.
        The networks' own were computed on tensors without stitches. Stitches and all other weights stay, and so do the
        space and its other subnetworks: the statistics are this subnetwork's own, and `module()` has them.

        It mostly helps where many stitches follow one another, but not always. Measure it on images that were not used
        for it, and call `undo_recalibration()` where it does not. After `retrain`, not before. A second call begins
        with the statistics of the networks again.

        :param images: as in `Supernet.fit`.
        :param options: those of `fitting.recalibrate`.
        """
        from ..fitting import recalibrate

        return recalibrate(self, images, **options)

    def undo_recalibration(self) -> None:
        """Use the statistics of the networks again."""
        self.norms = MappingProxyType({})

    def module(self, device: torch.device | str | None = None, *, head: nn.Module | None = None) -> fx.GraphModule:
        """A plain module, in eval mode, that holds copies of what it uses and nothing else. Without a device it is on
        the CPU.

        :param head: what to put after it, such as `StitchProblem.head` returns."""
        builder = GraphBuilder(device)
        output = self.write(builder)
        return builder.module(output if head is None else builder.call("head", head, output), "Subnetwork")

    def write(self, builder: GraphBuilder) -> fx.Node:
        """Write all steps into a graph: its output."""
        made: dict[int, fx.Node] = {}
        for step in self.steps():
            read = {INPUT: builder.input} | {name: made[i] for name, i in step.reads.items()}
            if step.node is not None:
                made[step.id] = builder.node(step.node, read.__getitem__, step.weights, step.network.name)
            else:
                (source,) = (made[i] for i in step.reads.values())
                name = step.link.stitch
                made[step.id] = builder.call(f"stitches.{name}", self.stitches[name], source)
        return builder.mean([made[i] for i in self.results])

    def export(
        self,
        path: str | os.PathLike,
        *,
        classes: Sequence[str] | None = None,
        metrics: Mapping[str, Mapping[str, float]] | None = None,
        head: nn.Module | None = None,
    ) -> dict[str, Any]:
        """Write `module()` to a file that runs without this package, `.pt2` or `.onnx`, verified: see `export.export`.

        >>> problem = get_problem("digits")
        >>> about = problem.subnetwork(np.zeros(72, dtype=bool)).export("network.pt2", classes=problem.task.classes)
        >>> torch.export.load("network.pt2").module()(torch.rand(7, 1, 8, 8)).shape
        torch.Size([7, 10])
        """
        from .export import export

        if head is None and self.make_head is not None:
            head = self.make_head()
        return export(self, path, classes=classes, metrics=metrics, head=head)

    def __repr__(self) -> str:
        outputs = " + ".join(network.name for network in self.outputs)
        return f"Subnetwork({outputs}, {self.n_stitches} stitches, {self.cost:,} multiply-adds, key {self.key})"


def key(structure: bytes, decisions: np.ndarray) -> str:
    """A subnetwork's key, from a digest of what its space is made of and the variables that are active and 1."""
    # A letter first: pymoo turns strings that can be read as numbers into floats, and some digests can.
    return "s" + digest([np.packbits(decisions)], key=structure)
