"""The supernet: networks joined by links, and the subnetworks its genotypes select."""

import keyword
import os
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import nn
from tqdm import tqdm

from . import fitting, storage
from .graph import run_new_modules
from .importing import ENSEMBLE, Normalization, check_name, default_name, unique_name
from .matching import Match, Weight, check_options, match
from .network import Network, Tap
from .selection import Selection, Selector, Step, Wiring
from .stitches import KINDS, Link, build_stitch, is_direct, working_layout
from .subnetwork import Subnetwork, key
from .summary import summary


class Supernet:
    """Networks, links between their taps, and at each tap with links arriving a switch: its consumers read the original
    tensor or one of the links.

    >>> small, large = (nn.Sequential(nn.Conv2d(3, n, 3), nn.ReLU(), nn.Flatten(), nn.Linear(36 * n, 2)) for n in (4, 8))
    >>> supernet = Supernet.build([small, large], torch.rand(1, 3, 8, 8))
    >>> supernet
    Supernet(sequential, sequential_2; 3 matches, 8 variables)
    >>> report = supernet.fit(torch.rand(100, 3, 8, 8), progress=False)
    >>> subnetwork = supernet.subnetwork([0, 1, 0, 0, 0, 0, 0, 0])
    >>> subnetwork.n_stitches, subnetwork.module()(torch.rand(5, 3, 8, 8)).shape
    (1, torch.Size([5, 2]))

    A genotype has one boolean per link, in the order of `links`, and behind them one per network for the output switch:
    the second network, the third, …, the ensemble of all (the mean of their outputs). A switch takes the first of its
    inputs whose variable is 1, the original if none is; so the all-zero genotype is the first network, untouched.

    :param networks: one or more with equal input and output shapes and different names.
    :param links: any that leave the supernet acyclic. They are put into topological order, those between the same two
        taps side by side.
    :param stitches: their tensors, as `supernet.stitches.state_dict()` gives them. Without, all stitches are new and,
        until `fit` has been called, not `is_fitted`.
    :param bound: the largest number of matches there could have been, and
    :param dropped: the matches left out for a cycle, where a matcher made the links.
    """

    def __init__(
        self,
        networks: Iterable[Network],
        links: Iterable[Link],
        *,
        stitches: Mapping[str, torch.Tensor] | None = None,
        bound: int | None = None,
        dropped: Iterable[Match] = (),
    ):
        self.networks = tuple(networks)
        check_networks(self.networks)
        links = _check_links(self.networks, links)
        self.bound, self.dropped = bound, tuple(dropped)
        self._wiring = Wiring(self.networks, links)
        self._order = self._wiring.order()
        self.links = _named_stitches(_in_order(links, self._wiring, self._order))
        self._selector = Selector(self._wiring, self.links, self._order)
        self.stitches = _new_stitches(self.links) if stitches is None else _given_stitches(self.links, stitches)
        self.is_fitted = stitches is not None
        self._link_costs = _link_costs(self.links)
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
        :param pairs, kind, resize, weight: as in `matching.match`.
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
        return cls(imported, matching.links, bound=matching.bound, dropped=matching.dropped)

    @property
    def n_var(self) -> int:
        """The number of variables of a genotype."""
        return self._selector.n_var

    @cached_property
    def n_matches(self) -> int:
        """The number of pairs of taps that are linked, one way or both."""
        return len({_pair(link) for link in self.links})

    @property
    def n_switches(self) -> int:
        """Taps at which links arrive, and the output of several networks."""
        return len(self._wiring.switched) + (len(self.networks) > 1)

    @property
    def n_choices(self) -> int:
        """How many of the variables, the last ones, are the output switch's."""
        return self.n_var - len(self.links)

    @property
    def max_cost(self) -> int:
        """The multiply-adds of everything there is, more than those of any subnetwork."""
        return int(self._node_costs.sum()) + sum(self._link_costs)

    @property
    def input_shape(self) -> tuple[int, ...]:
        return self.networks[0].input_shape

    @property
    def references(self) -> dict[str, np.ndarray]:
        """The genotypes of each network alone, by its name, and of their "ensemble"."""
        genotypes = np.zeros((self.n_choices + 1, self.n_var), dtype=bool)
        genotypes[1:, len(self.links) :] = np.eye(self.n_choices, dtype=bool)
        return dict(zip([*(network.name for network in self.networks), ENSEMBLE], genotypes, strict=False))

    def subnetwork(self, x: Sequence[bool] | np.ndarray) -> Subnetwork:
        """What a genotype selects."""
        return _Selected(self, x)

    def switch_places(self) -> list[int]:
        """For each link where in topological order its switch is: what is read earlier has a lower place."""
        place = {i: number for number, i in enumerate(self._order)}
        return [place[~self._wiring.index(link.target)] for link in self.links]

    def fit(self, images: Any, method: str | None = None, **options: Any) -> fitting.FitReport:
        """Fit all stitches on images, in place, and report their errors on images kept back. The networks stay as they
        are.

        :param images: a tensor, a Dataset, or a DataLoader or another iterable of batches; labels are ignored where
            they are not needed. About an eighth, 64 at most, is kept back.
        :param method: `"least-squares"`, `"adam"` or `"finetune"`; by default least squares for affine kinds and Adam
            for the others.
        :param options: those of `fitting.least_squares`, `fitting.adam` or `fitting.finetune`.
        """
        report = fitting.fit(self, images, method, **options)
        self.is_fitted = True
        return report

    def take_networks(self, networks: Iterable[Network]) -> None:
        """Put networks that differ in their weights alone in the place of its own. Its subnetworks are then made of
        them; whoever else holds the former ones is left with those."""
        networks = tuple(networks)
        if storage.structure(networks, self.links) != self.structure:
            raise ValueError("only networks of the same structure and order can take the place of others.")
        self.networks, self._wiring = networks, Wiring(networks, self.links)

    def save(self, path: str | os.PathLike) -> None:
        """Write everything to one file: tensors as safetensors, the rest as JSON inside it. The file appears whole or
        not at all."""
        storage.save(self._contents(), path)

    def digest(self) -> str:
        """A name for what this supernet computes, weights included: two that compute the same have the same."""
        return storage.digest(self._contents())

    def _contents(self) -> storage.Contents:
        return storage.Contents(self.networks, self.links, self.stitches.state_dict(), self.bound, self.dropped)

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
            )
        except Exception as error:  # as in `storage.load`
            raise ValueError(f"{path} is not a supernet that can be loaded: {error}") from error

    def summary(self) -> str:
        """A table of what this supernet is made of."""
        return summary(self)

    def __str__(self) -> str:
        return self.summary()

    def __repr__(self) -> str:
        return f"Supernet({', '.join(network.name for network in self.networks)}; {self.n_matches} matches, {self.n_var} variables)"

    @cached_property
    def structure(self) -> bytes:
        """A digest of networks, nodes and links, not of the weights. Part of every key."""
        return storage.structure(self.networks, self.links)


class _Selected(Subnetwork):
    """What a genotype selects: the nodes and links that reach the output."""

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

    def steps(self) -> Iterator[Step]:
        wiring = self.space._wiring
        arriving = {wiring.index(self.space.links[variable].target): variable for variable in self._selection.links}
        for i in self.space._order:
            if i >= 0 and self._selection.nodes >> i & 1:
                node = wiring.nodes[i]
                reads = {wiring.nodes[j].name: ~j if j in arriving else j for j in wiring.inputs[i]}
                yield Step(i, reads, node.cost, wiring.owners[i], node)
            elif i < 0 and ~i in arriving:
                link, cost = self.space.links[arriving[~i]], self.space._link_costs[arriving[~i]]
                yield Step(i, {link.source.name: wiring.index(link.source)}, cost, link=link)

    @property
    def results(self) -> list[int]:
        return [self.space._wiring.outputs[n] for n in self._selection.outputs]


# ------------------------------------------------------------------------------------------------------------ importing


def import_networks(
    networks: Iterable[Network | nn.Module],
    example_input: torch.Tensor | None = None,
    *,
    normalize: Normalization | str | None = None,
    output: str | int | None = None,
    progress: bool | None = None,
    of: str = "supernet",
) -> list[Network]:
    """Two or more modules and networks as networks that can be joined, with names of their own; see
    `Supernet.build`."""
    single = isinstance(networks, (Network, nn.Module)) and not isinstance(networks, nn.ModuleList)
    given = [networks] if single else list(networks)
    for item in given:
        if not isinstance(item, (Network, nn.Module)):
            raise TypeError(f"a {of} is built of modules and networks, not of {type(item).__name__}.")
    if len(given) < 2:
        raise ValueError(
            f"a {of} joins two or more networks, but {len(given)} is given."
            + " To bridge one to itself, give the links: Supernet([network], links)." * (of == "supernet")
            if given
            else f"no network is given; a {of} joins two or more."
        )
    modules = [item for item in given if isinstance(item, nn.Module)]
    if modules and example_input is None:
        raise ValueError(
            "modules are imported with an example input, and none is given. Give one, e.g. torch.rand(1, 3, 224, 224)."
        )
    if len(modules) < len(given) and (normalize is not None or output is not None):
        raise ValueError(
            "normalize and output are for modules, and some networks are imported already. "
            "Give the options to Network.from_module."
        )
    imported, names = [], {item.name for item in given if isinstance(item, Network)}
    bar = tqdm(given, desc="import", unit="network", disable=None if progress is None else not progress, leave=False)
    for item in bar:
        if isinstance(item, nn.Module):
            name = unique_name(default_name(item), names)
            names.add(name)
            bar.set_postfix_str(name)
            item = Network.from_module(item, example_input, name=name, output=output, normalize=normalize)
        imported.append(item)
    check_networks(imported)
    _warn_of_different_normalizations(imported)
    return imported


# --------------------------------------------------------------------------------------------------------------- checks


def check_networks(networks: Sequence[Network], of: str = "supernet") -> None:
    """An error unless a supernet, or a pool, can be made of these."""
    if not networks:
        raise ValueError(f"no network is given; a {of} is made of one or more.")
    for network in networks:
        if not isinstance(network, Network):
            raise TypeError(
                f"a {of} is made of Network objects, not of {type(network).__name__}. Import modules with Network.from_module"
                f"{' or Supernet.build' * (of == 'supernet')}."
            )
        check_name(network.name)
    for name, count in Counter(network.name for network in networks).items():
        if count > 1:
            raise ValueError(
                f"{count} networks are named {name!r}. Give each its own name: Network.from_module(…, name=…)."
            )
    for what, remedy in (
        ("input_shape", "Import them with example inputs of one shape"),
        ("output_shape", "Only networks for the same task can be joined"),
    ):
        shapes = {network.name: getattr(network, what) for network in networks}
        if len(set(shapes.values())) > 1:
            described = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
            raise ValueError(f"the networks differ in {what.replace('_', ' ')}: {described}. {remedy}.")


def _check_links(networks: Sequence[Network], links: Iterable[Link]) -> list[Link]:
    links = list(links)
    for link in links:
        if not isinstance(link, Link) or not isinstance(link.source, Tap) or not isinstance(link.target, Tap):
            raise TypeError(f"links are Link(source, target) between taps, such as network.tap(name), not {link!r}.")
    taps = {(tap.network, tap.name): tap for network in networks for tap in network.taps}
    shared: dict[str, Link] = {}
    for link in links:
        for tap in (link.source, link.target):
            if taps.get((tap.network, tap.name)) != tap:
                raise ValueError(
                    f"the link {link} uses a tap {tap} that is not among the taps of the networks {', '.join(n.name for n in networks)}."
                )
        if link.kind not in KINDS:
            raise ValueError(
                f"the link {link} asks for a stitch of kind {link.kind!r}; there are {', '.join(sorted(KINDS))}."
            )
        if working_layout(KINDS[link.kind], link.source, link.target) is None:
            ends = f"{link.source.layout} {link.source.shape} to {link.target.layout} {link.target.shape}"
            raise ValueError(f"a stitch of kind {link.kind!r} cannot lead from {ends}, as the link {link} asks.")
        if link.stitch is not None:
            first = shared.setdefault(link.stitch, link)
            if (first.kind, _ends(first)) != (link.kind, _ends(link)):
                raise ValueError(
                    f"the links {first} and {link} cannot share the stitch {link.stitch!r}: their kinds, layouts or channels differ."
                )
            free = isinstance(link.stitch, str) and link.stitch.isidentifier() and link.stitch.isascii()
            if not free or keyword.iskeyword(link.stitch) or hasattr(_EMPTY, link.stitch):
                raise ValueError(
                    "a stitch's name must be letters, digits and underscores, begin with a letter, and be none that "
                    f"Python or modules use themselves, but is {link.stitch!r}."
                )
    repeated = [link for link, count in Counter(links).items() if count > 1]
    if repeated:
        raise ValueError(f"the link {repeated[0]} is given more than once.")
    return links


_EMPTY = nn.ModuleDict()


def _ends(link: Link) -> tuple:
    """What must be the same for two links to share a stitch: sizes too, where the stitch resizes."""
    sizes = () if is_direct(link) else (link.source.positions, link.target.positions)
    return link.source.layout, link.source.channels, link.target.layout, link.target.channels, sizes


def check_genotype(x: Sequence[bool] | np.ndarray, n_var: int) -> np.ndarray:
    try:
        x = np.array(x)
        known = x.dtype == bool or np.isin(x, (0, 1)).all()
    except (TypeError, ValueError) as error:
        raise ValueError(f"a genotype is a vector of booleans or of 0 and 1: {error}.") from error
    if x.shape != (n_var,):
        raise ValueError(f"a genotype of this supernet has {n_var} variables, but one of shape {x.shape} is given.")
    if not known:
        raise ValueError(
            f"a genotype holds booleans or 0 and 1, but {x[~np.isin(x, (0, 1))].tolist()[0]!r} is among its values."
        )
    x = x.astype(bool)
    x.setflags(write=False)
    return x


def _warn_of_different_normalizations(networks: Sequence[Network]) -> None:
    """A warning where networks will get the same input although they were trained on different ones."""
    plain = [network for network in networks if network.takes_unit_images is False]
    mixed = plain and len(plain) < len(networks) and any(network.normalization for network in networks)
    if mixed or len({network.trained.normalization for network in plain}) > 1:
        described = "; ".join("{}: mean {}, std {}".format(n.name, *n.trained.normalization) for n in plain)
        warnings.warn(
            f"these timm models were trained on images that were normalised ({described}), yet all networks will get the "
            "same input. Use normalize='timm' to make each one's normalisation part of its graph, and give images in "
            "[0, 1].",
            stacklevel=3,
        )


# ------------------------------------------------------------------------------------------------------ links, stitches


def _pair(link: Link) -> frozenset:
    return frozenset((end.network, end.name) for end in (link.source, link.target))


def _in_order(links: Sequence[Link], wiring: Wiring, order: Sequence[int]) -> list[Link]:
    """Links in topological order, those between the same two taps together, each where the first of its switches is."""
    place = {i: number for number, i in enumerate(order)}
    first: dict[frozenset, int] = {}
    for link in links:
        at = place[~wiring.index(link.target)]
        first[_pair(link)] = min(first.get(_pair(link), at), at)
    given = {pair: number for number, pair in enumerate(first)}
    return sorted(links, key=lambda link: (first[_pair(link)], given[_pair(link)]))


def _named_stitches(links: Sequence[Link]) -> tuple[Link, ...]:
    """A name for the stitch of each link that gives none."""
    given = {link.stitch for link in links}
    return tuple(
        link if link.stitch else replace(link, stitch=unique_name(f"link{i}", given)) for i, link in enumerate(links)
    )


def _new_stitches(links: Sequence[Link]) -> nn.ModuleDict:
    """A stitch for each name, unfitted, the same in every process."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = {link.stitch: link for link in reversed(links)}
        return nn.ModuleDict({name: build_stitch(link) for name, link in made.items()}).eval()


def _given_stitches(links: Sequence[Link], tensors: Mapping[str, torch.Tensor]) -> nn.ModuleDict:
    with torch.device("meta"):
        stitches = _new_stitches(links)
    for name, expected in stitches.state_dict().items():
        found = tensors.get(name)
        if found is None or (found.shape, found.dtype) != (expected.shape, expected.dtype):
            given = "it is missing" if found is None else f"{found.dtype} of shape {tuple(found.shape)} is given"
            raise ValueError(
                f"the stitches need a tensor {name!r} of {expected.dtype} and shape {tuple(expected.shape)}; {given}."
            )
    if unknown := set(tensors) - set(stitches.state_dict()):
        raise ValueError(f"no stitch has a use for the tensor {min(unknown)!r}.")
    stitches.load_state_dict({name: tensor.detach().clone() for name, tensor in tensors.items()}, assign=True)
    return stitches


def _link_costs(links: Sequence[Link]) -> list[int]:
    """Multiply-adds of each link's stitch, counted once for each two shapes."""
    examples = {_shapes(link): link for link in links}
    found = run_new_modules((lambda link=link: build_stitch(link), link.source.shape) for link in examples.values())
    known = {}
    for (shapes, link), (shape, cost) in zip(examples.items(), found, strict=True):
        if shape != link.target.shape:
            raise ValueError(
                f"a stitch of kind {link.kind!r} gives {shape} where the link {link} needs {link.target.shape}."
            )
        known[shapes] = cost
    return [known[_shapes(link)] for link in links]


def _shapes(link: Link) -> tuple:
    return link.kind, link.source.layout, link.source.shape, link.target.layout, link.target.shape
