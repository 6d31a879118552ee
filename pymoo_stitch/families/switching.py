"""One module that is any of several subnetworks, one at a time."""

import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import nn

from ..network import GraphBuilder
from ..supernet import Subnetwork


class Switchable(nn.Module):
    """A module, in eval mode, that holds the weights of several subnetworks, each once, and runs the one that is
    selected. Selecting another allocates and copies no weights, so it can be done between any two batches.

    What a subnetwork needs to run is written when it is first selected, which takes as long as `Subnetwork.module()`
    without its copies; after that, selecting it is a lookup. For that it keeps the subnetworks and their space alive.

    >>> supernet = get_problem("digits").space
    >>> network = Switchable([supernet.subnetwork(x) for x in supernet.references.values()])
    >>> network.costs.tolist(), network.selected
    ([99904, 633840, 733744], 2)
    >>> network.at_most(200_000).selected, network.select(1).selected
    (0, 1)
    >>> network(torch.rand(5, 1, 8, 8)).shape
    torch.Size([5, 10])

    :param subnetworks: of one space, by their ids; those of a list are numbered. The most expensive is selected first.
    :param device: where the weights are held; the CPU by default. `to(device)` moves them like those of any module.
    """

    def __init__(
        self, subnetworks: Mapping[int, Subnetwork] | Sequence[Subnetwork], device: torch.device | str | None = None
    ):
        super().__init__()
        given = dict(subnetworks if isinstance(subnetworks, Mapping) else enumerate(subnetworks))
        _check(list(given.values()))
        self._subnetworks = dict(sorted(given.items(), key=lambda item: item[1].cost))
        self._programs: dict[int, Callable[[nn.Module, torch.Tensor], torch.Tensor]] = {}
        self.weights = nn.Module()
        self.costs = np.array([subnetwork.cost for subnetwork in self._subnetworks.values()])
        builder = GraphBuilder(device, self.weights)
        for subnetwork in given.values():
            for step in subnetwork.steps():
                if step.link is not None:
                    builder.hold(f"stitches.{step.link.stitch}", subnetwork.stitches[step.link.stitch])
                for name in step.node.weights() if step.node is not None else ():
                    builder.hold(f"{step.network.name}.{name}", step.network.weights[name])
        self.eval()
        self.select(self.ids[-1])

    @property
    def ids(self) -> list[int]:
        """The ids in the order of `costs`, their multiply-adds."""
        return list(self._subnetworks)

    @property
    def selected(self) -> int:
        """The id of the subnetwork that runs."""
        return self._selected

    def select(self, id: int) -> "Switchable":
        """Run this subnetwork from now on."""
        if isinstance(id, bool) or id not in self._subnetworks:
            raise KeyError(f"there is no subnetwork {id!r} in this module; choose from {_some(self.ids)}.")
        self._selected = id
        self._program()
        return self

    def at_most(self, multiply_adds: float) -> "Switchable":
        """Run the most expensive subnetwork that costs at most this from now on."""
        return self.select(self.ids[most_expensive(self.costs, multiply_adds)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self._program()(self.weights, x)

    def _program(self) -> Callable[[nn.Module, torch.Tensor], torch.Tensor]:
        """The code of the selected subnetwork, as a function of the weights and the input."""
        if self._selected not in self._programs:
            builder = GraphBuilder(root=self.weights)
            module = builder.module(self._subnetworks[self._selected].write(builder), "Subnetwork")
            self._programs[self._selected] = type(module).forward
        return self._programs[self._selected]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_programs": {}}

    def __repr__(self) -> str:
        cost = self._subnetworks[self._selected].cost
        return f"Switchable({len(self.ids)} subnetworks; {self._selected} selected, {cost:,} multiply-adds)"


def most_expensive(costs: Sequence[int] | np.ndarray, multiply_adds: float) -> int:
    """The position, in a sorted list of costs, of the last one of at most this many multiply-adds."""
    if not isinstance(multiply_adds, Real) or isinstance(multiply_adds, bool):
        raise TypeError(f"a cost is a number of multiply-adds, such as 3e9, not {multiply_adds!r}.")
    place = int(np.searchsorted(costs, multiply_adds, side="right")) - 1
    if place < 0 or math.isnan(multiply_adds):
        raise ValueError(
            f"no subnetwork costs at most {multiply_adds:,} multiply-adds; the cheapest costs {costs[0]:,}."
        )
    return place


def _check(subnetworks: Sequence[Subnetwork]) -> None:
    if not subnetworks:
        raise ValueError("no subnetwork is given to switch between.")
    for subnetwork in subnetworks:
        if not isinstance(subnetwork, Subnetwork):
            raise TypeError(f"a Switchable switches between subnetworks, not {type(subnetwork).__name__}.")
        if subnetwork.space is not subnetworks[0].space:
            raise ValueError("subnetworks of different spaces share no weights. Give each space a module of its own.")
        if subnetwork.retrained or subnetwork.norms:
            what = "stitches" if subnetwork.retrained else "statistics"
            raise ValueError(
                f"{subnetwork!r} has {what} of its own since it was fitted alone, and shares none. Use its own "
                "module()."
            )


def _some(ids: Sequence[int]) -> str:
    return ", ".join(map(repr, ids)) if len(ids) <= 10 else f"{len(ids)}, from {min(ids)!r} to {max(ids)!r}"
