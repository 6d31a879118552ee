"""The supernet: networks joined by links, and the subnetworks its genotypes select."""

import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import nn

from ..network import ENSEMBLE, Network, Normalization, check_networks, import_networks
from ..stitches import Link, Match, Weight, Wiring, check_options, is_switch, match, node_of
from . import storage
from ._links import check_links, ends_of, given_stitches, in_order, link_costs, named_stitches, new_stitches
from .fit_report import FitReport
from .selection import Selection, Selector
from .space import Space, check_genotype
from .subnetwork import Step, Subnetwork, key
from .summary import summary

FEW = 4
"""With fewer matches, the user is told how to get more."""


class Supernet(Space):
    """Networks, links between their taps, and at each tap with links arriving a switch: its consumers read the original
    tensor or one of the links.

    >>> def network(n):
    ...     return nn.Sequential(nn.Conv2d(3, n, 3), nn.ReLU(), nn.Flatten(), nn.Linear(36 * n, 2))
    >>> small, large = network(4), network(8)
    >>> supernet = Supernet.build([small, large], torch.rand(1, 3, 8, 8))
    >>> supernet
    Supernet(sequential_402, sequential_802; 3 matches, 8 variables)
    >>> report = supernet.fit(torch.rand(100, 3, 8, 8), progress=False)
    >>> subnetwork = supernet.subnetwork([0, 1, 0, 0, 0, 0, 0, 0])
    >>> subnetwork.n_stitches, subnetwork.module()(torch.rand(5, 3, 8, 8)).shape
    (1, torch.Size([5, 2]))

    A genotype has one boolean per link, in the order of `links`, and after them one per network for the output switch:
    the second network, the third, …, the ensemble of all (the mean of their outputs). A switch takes the first of its
    inputs whose variable is 1, the original if none is; so the all-zero genotype is the first network, untouched.

    :param networks: one or more with equal input and output shapes and different names.
    :param links: any that leave the supernet acyclic. They are put into topological order, those between the same two
        taps side by side.
    :param stitches: their tensors, as `supernet.stitches.state_dict()` returns them. Without them, all stitches are
        new, and `is_fitted` is False until `fit` has been called.
    :param bound: the largest number of matches there could have been, and
    :param dropped: the matches left out for a cycle, where a matcher made the links.
    :param fit_report: what is known of the stitches given; `fit` and `finetune` replace it.
    """

    networks: tuple[Network, ...] = ()
    is_fitted: bool = False

    def __init__(
        self,
        networks: Iterable[Network],
        links: Iterable[Link],
        *,
        stitches: Mapping[str, torch.Tensor] | None = None,
        bound: int | None = None,
        dropped: Iterable[Match] = (),
        fit_report: FitReport | None = None,
    ):
        self.networks = tuple(networks)
        check_networks(self.networks)
        links = check_links(self.networks, links)
        self.bound, self.dropped, self.fit_report = bound, tuple(dropped), fit_report
        self._wiring = Wiring(self.networks, links)
        self._order = self._wiring.order()
        self.links = named_stitches(in_order(links, self._wiring, self._order))
        self._selector = Selector(self._wiring, self.links, self._order)
        self.stitches = new_stitches(self.links) if stitches is None else given_stitches(self.links, stitches)
        self.is_fitted = stitches is not None
        self._link_costs = link_costs(self.links)
        self._node_costs = np.array(
            [node.cost for node in self._wiring.nodes] + [0] * (-len(self._wiring.nodes) % 8), dtype=np.int64
        )

    @classmethod
    def build(
        cls,
        networks: Iterable[Network | nn.Module],
        example_input: torch.Tensor | None = None,
        *,
        normalize: Normalization | str | None = None,
        output: str | int | None = None,
        pairs: str = "neighbours",
        kind: str = "linear",
        resize: bool = False,
        weight: Weight | None = None,
        progress: bool | None = None,
    ) -> "Supernet":
        """Import what is not imported yet, match, and link each match both ways.

        :param networks: modules, or networks imported before. They keep their order.
        :param example_input, normalize, output: for the modules, as in `Network.from_module`.
        :param pairs, kind, resize, weight: as in `stitches.match`.
        :param progress: a progress bar over the imports; None shows one on a terminal.
        """
        check_options(pairs, kind)
        imported = import_networks(networks, example_input, normalize=normalize, output=output, progress=progress)
        matching = match(imported, pairs=pairs, kind=kind, resize=resize, weight=weight)
        if not matching.matches:
            raise ValueError(
                f"no tap of {' or '.join(n.name for n in imported)} can be matched with one of another by a {kind!r} "
                "stitch: no two have the same layout and size. Use resize=True, compare `network.taps`, or give links "
                "yourself: Supernet(networks, links)."
            )
        if len(matching.matches) < FEW:
            _hint_at_more(imported, len(matching.matches), pairs, kind, resize)
        return cls(imported, matching.links, bound=matching.bound, dropped=matching.dropped)

    @property
    def n_var(self) -> int:  # type: ignore[override]  # an attribute elsewhere
        return self._selector.n_var

    @cached_property
    def n_matches(self) -> int:
        """The number of pairs of taps that are linked, one way or both."""
        return len({ends_of(link) for link in self.links})

    @property
    def n_switches(self) -> int:
        """Taps at which links arrive, and the output of several networks."""
        return len(self._wiring.switched) + (len(self.networks) > 1)

    @property
    def n_choices(self) -> int:  # type: ignore[override]  # an attribute elsewhere
        return self.n_var - len(self.links)

    @property
    def basis(self) -> "Supernet":
        return self

    @property
    def max_cost(self) -> int:
        """The multiply-adds of everything there is, more than those of any subnetwork."""
        return int(self._node_costs.sum()) + sum(self._link_costs)

    @property
    def references(self) -> dict[str, np.ndarray]:
        """The genotypes of each network alone, by its name, and of their "ensemble"."""
        genotypes = np.zeros((self.n_choices + 1, self.n_var), dtype=bool)
        genotypes[1:, len(self.links) :] = np.eye(self.n_choices, dtype=bool)
        return dict(zip([*(network.name for network in self.networks), ENSEMBLE], genotypes, strict=False))

    def subnetwork(self, x: Sequence[bool] | np.ndarray) -> Subnetwork:
        return _Selected(self, x)

    def switch_places(self) -> list[int]:
        """For each link where in topological order its switch is: what is read earlier has a lower place."""
        place = {i: number for number, i in enumerate(self._order)}
        return [place[self._wiring.switch(link)] for link in self.links]

    def fit(self, images: Any, method: str | None = None, **options: Any) -> FitReport:
        """Fit each stitch, in place, to the tensor that it replaces, and report their errors on images kept back. The
        networks stay as they are.

        :param images: a tensor, a Dataset, or a DataLoader or another iterable of batches; labels are ignored where
            they are not needed. About an eighth, 64 at most, is kept back.
        :param method: `"least-squares"` or `"adam"`; by default least squares for affine kinds and Adam for the others.
        :param options: those of `fitting.least_squares` or `fitting.adam`.
        """
        from ..fitting import fit

        self.fit_report = fit(self, images, method, **options)
        self.is_fitted = True
        return self.fit_report

    def finetune(self, images: Any, **options: Any) -> FitReport:
        """Train all stitches together, in place, in random subnetworks or in those given.

        :param images: as in `fit`.
        :param options: those of `fitting.finetune`.
        """
        from ..fitting import finetune

        self.fit_report = finetune(self, images, **options)
        self.is_fitted = True
        return self.fit_report

    def take_networks(self, networks: Iterable[Network]) -> None:
        """Replace its networks by others that differ only in their weights. Its subnetworks then use these; whoever
        else holds the former ones keeps those."""
        networks = tuple(networks)
        if storage.structure(networks, self.links) != self.structure:
            raise ValueError("only networks of the same structure and order can replace its own.")
        self.networks, self._wiring = networks, Wiring(networks, self.links)

    def save(self, path: str | os.PathLike) -> None:
        """Write everything to one file: tensors as safetensors, the rest as JSON inside it. The file appears whole or
        not at all."""
        storage.save(self._contents(), path)

    def digest(self) -> str:
        """A name for what this supernet computes, weights included: two that compute the same have the same."""
        return storage.digest_contents(self._contents())

    def _contents(self) -> storage.Contents:
        return storage.Contents(
            self.networks, self.links, self.stitches.state_dict(), self.bound, self.dropped, self.fit_report
        )

    @staticmethod
    def load(path: str | os.PathLike) -> "Supernet":
        """Read a file that `save` wrote. It is data: whatever it holds, nothing in it is executed."""
        contents = storage.load(path)
        try:
            return Supernet(
                contents.networks,
                contents.links,
                stitches=contents.stitches,
                bound=contents.bound,
                dropped=contents.dropped,
                fit_report=contents.fit_report,
            )
        except Exception as error:  # as in `storage.load`
            raise ValueError(f"{path} is not a supernet that can be loaded: {error}") from error

    def summary(self) -> str:
        """A table of what this supernet is made of."""
        return summary(self)

    def __str__(self) -> str:
        return self.summary()

    def __repr__(self) -> str:
        names = ", ".join(network.name for network in self.networks)
        return f"Supernet({names}; {self.n_matches} matches, {self.n_var} variables)"

    @cached_property
    def structure(self) -> bytes:
        """A digest of networks, nodes and links, not of the weights. Part of every key."""
        return storage.structure(self.networks, self.links)


def _hint_at_more(networks: Sequence[Network], found: int, pairs: str, kind: str, resize: bool) -> None:
    """Warn of few matches, where there are many taps."""
    names, fewest = " and ".join(network.name for network in networks), min(len(network.taps) for network in networks)
    only = f"there {'is only 1 match' if found == 1 else f'are only {found} matches'} between the taps of {names}"
    more = 0 if resize else len(match(networks, pairs=pairs, kind=kind, resize=True).matches)
    if more >= 2 * found:
        warnings.warn(
            f"{only}. With resize=True, which joins other sizes and layouts too, there are {more}.", stacklevel=3
        )
    elif fewest >= 10 * found:
        warnings.warn(f"{only}. Links that you choose yourself may be more: Supernet(networks, links).", stacklevel=3)


class _Selected(Subnetwork):
    """What a genotype selects: the nodes and links that reach the output."""

    space: Supernet

    def __init__(self, supernet: Supernet, x: Sequence[bool] | np.ndarray):
        self.space = supernet
        self.x = check_genotype(x, supernet.n_var)
        self.stitches = supernet.stitches
        self._selection: Selection = supernet._selector(self.x)

    @property
    def active(self) -> np.ndarray:
        return self._selection.active

    @cached_property
    def key(self) -> str:
        return key(self.space.structure, self.x & self.active)

    @cached_property
    def cost(self) -> int:
        costs = self.space._node_costs
        used = np.unpackbits(
            np.frombuffer(self._selection.nodes.to_bytes(len(costs) // 8, "little"), dtype=np.uint8), bitorder="little"
        )
        return int(costs @ used) + sum(self.space._link_costs[i] for i in self._selection.links)

    @property
    def links(self) -> list[Link]:
        return [self.space.links[i] for i in self._selection.links]

    @property
    def outputs(self) -> list[Network]:
        return [self.space.networks[n] for n in self._selection.outputs]

    def _steps(self) -> Iterator[Step]:
        wiring = self.space._wiring
        taken = {wiring.switch(self.space.links[variable]): variable for variable in self._selection.links}
        replaced = {node_of(switch): switch for switch in taken}
        for number in self.space._order:
            if number in taken:
                link, cost = self.space.links[taken[number]], self.space._link_costs[taken[number]]
                yield Step(number, {link.source.name: wiring.index(link.source)}, cost, link=link)
            elif not is_switch(number) and self._selection.nodes >> number & 1:
                node = wiring.nodes[number]
                reads = {wiring.nodes[i].name: replaced.get(i, i) for i in wiring.inputs[number]}
                yield Step(number, reads, node.cost, wiring.owners[number], node)

    @property
    def results(self) -> list[int]:
        return [self.space._wiring.outputs[n] for n in self._selection.outputs]
