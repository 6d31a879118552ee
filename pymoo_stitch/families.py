"""Families ([SN]): networks of one design and different size, stitched fast-to-slow at the ends of their blocks, and the
list of networks that this gives.

A family is a supernet with particular links. What it adds is the list: few enough networks to evaluate them all, in the
order of their cost, one of which is chosen by a number."""

import hashlib
import math
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import torch
from torch import nn

from .blocks import Stage, stages
from .fitting import FitReport
from .importing import Normalization
from .matching import check_options
from .network import Network, Tap
from .operators import is_alias, short_name
from .stitches import Link, are_alike
from .subnetwork import Subnetwork
from .supernet import Supernet, import_networks
from .switching import Switchable, dearest
from .tables import table

MOST = 100_000
"""The longest list there may be. Supernets with links everywhere have more subnetworks than can be listed."""


class Family:
    """The networks of a supernet whose links lead fast-to-slow: each network alone, an *anchor*, and all that begin in one
    and end in a dearer one. Networks have ids from 0, in the order of cost; of equal cost, those with fewer stitches
    first, then in the order of their genotypes.

    >>> import timm
    >>> models = [
    ...     timm.models.VisionTransformer(img_size=8, patch_size=2, embed_dim=n, depth=3, num_heads=2, num_classes=10)
    ...     for n in (8, 16, 24)
    ... ]
    >>> family = Family.build(models, torch.rand(1, 3, 8, 8))
    >>> family
    Family(visiontransformer, visiontransformer_2, visiontransformer_3; 17 networks)
    >>> report = family.fit(torch.rand(32, 3, 8, 8), progress=False)
    >>> family[family.at_most(200_000)].module()(torch.rand(2, 3, 8, 8)).shape
    torch.Size([2, 10])
    >>> network = family.module()
    >>> network.at_most(200_000).selected == family.at_most(200_000)
    True

    It is a space for `StitchProblem`, in which a genotype is an id, Gray-coded in as few bits as it takes; what lies
    beyond the last id counts back from there. So codes that differ in a bit that matters little are networks of similar
    cost. The *open* space, with every combination of links, is the family's `supernet`.

    :param supernet: whose links lead from cheaper to dearer networks. Those of kind `identity` are no stitches: they are
        switched on in every network that uses a stitch, where it meets them, and in no anchor.
    :param chains: whether networks with several stitches, one behind another, are listed. By default they are if some
        link joins networks that are not neighbours in cost, as `pairs="all"` makes them.
    """

    def __init__(self, supernet: Supernet, *, chains: bool | None = None):
        if not isinstance(supernet, Supernet):
            raise TypeError(
                f"a family is made of a Supernet, not of {type(supernet).__name__}. Use Family.build for modules."
            )
        rank = {network.name: i for i, network in enumerate(_by_cost(supernet.networks))}
        steps = [rank[link.target.network] - rank[link.source.network] for link in _stitches(supernet)]
        if not steps or min(steps) < 1:
            wrong = next((link for link, step in zip(_stitches(supernet), steps, strict=True) if step < 1), None)
            raise ValueError(
                f"a family's links lead from a cheaper network to a dearer one, but {wrong} does not."
                if wrong
                else "a family needs links, and this supernet has none. Use Family.build, or family_links."
            )
        self.supernet = supernet
        self.chains = max(steps) > 1 if chains is None else chains
        listed = sorted(_listed(supernet, self.chains), key=lambda s: (s.cost, s.n_stitches, s.x.tolist()))
        self.genotypes = np.array([subnetwork.x for subnetwork in listed])
        self.costs = np.array([subnetwork.cost for subnetwork in listed])
        for array in (self.genotypes, self.costs):
            array.setflags(write=False)

    @classmethod
    def build(
        cls,
        networks: Iterable[Network | nn.Module],
        example_input: torch.Tensor | None = None,
        *,
        normalize: Normalization | str | None = None,
        output: str | int | None = None,
        window: int = 2,
        stride: int = 1,
        pairs: str = "neighbours",
        kind: str = "linear",
        blocks: Mapping[str, Sequence[str]] | None = None,
        final_norm: bool = True,
        progress: bool | None = None,
    ) -> "Family":
        """Import what is not imported yet, find the blocks, and link them.

        :param networks, example_input, normalize, output, progress: as in `Supernet.build`.
        :param window, stride, pairs, kind, blocks: as in `family_links`.
        :param final_norm: False leaves out the norm behind the last block in all networks but the anchors, as the
            published code of [SN] does; for comparisons with it.
        """
        check_options(pairs, kind)
        options = {"normalize": normalize, "output": output, "progress": progress}
        imported = import_networks(networks, example_input, **options, of="family")
        links = family_links(imported, window=window, stride=stride, pairs=pairs, kind=kind, blocks=blocks)
        if not final_norm:
            links += [_around_final_norm(network, _stages(network, blocks)[-1]) for network in imported]
        return cls(Supernet(imported, links), chains=pairs == "all")

    # ------------------------------------------------------------------------------------------------------ the networks

    def __len__(self) -> int:
        return len(self.genotypes)

    def __getitem__(self, id: int) -> Subnetwork:
        """The network of that id."""
        return self.supernet.subnetwork(self.genotypes[self._checked(id)])

    def __iter__(self) -> Iterator[Subnetwork]:
        return (self[id] for id in range(len(self)))

    def _checked(self, id: int) -> int:
        if not isinstance(id, (int, np.integer)) or isinstance(id, bool) or not 0 <= id < len(self):
            raise IndexError(f"there is no network {id!r} in this family; ids go from 0 to {len(self) - 1}.")
        return int(id)

    def at_most(self, multiply_adds: float) -> int:
        """The id of the dearest network that costs at most that."""
        return dearest(self.costs, multiply_adds)

    @cached_property
    def anchors(self) -> dict[str, int]:
        """The id of each network alone, by its name, from the cheapest to the dearest."""
        alone = {name: x.tobytes() for name, x in self.supernet.references.items()}
        ids = {x.tobytes(): id for id, x in enumerate(self.genotypes)}
        return {network.name: ids[alone[network.name]] for network in _by_cost(self.supernet.networks)}

    @property
    def networks(self) -> tuple[Network, ...]:
        return self.supernet.networks

    @property
    def n_parameters(self) -> int:
        """Those of all networks and all stitches."""
        stitches = sum(parameter.numel() for parameter in self.supernet.stitches.parameters())
        return stitches + sum(network.n_parameters for network in self.networks)

    def module(self, ids: Iterable[int] | None = None, device: torch.device | str | None = None) -> Switchable:
        """One module that is any of the networks, all by default: see `Switchable`."""
        if not self.is_fitted:
            warnings.warn("no stitch of this family has been fitted: call family.fit(images) first.", stacklevel=2)
        chosen = range(len(self)) if ids is None else [self._checked(id) for id in ids]
        return Switchable({id: self[id] for id in chosen}, device)

    def save(self, path: str | os.PathLike) -> None:
        """Write everything to one file, as `Supernet.save` does."""
        self.supernet.save(path)

    @classmethod
    def load(cls, path: str | os.PathLike) -> "Family":
        """Read a file that `save` wrote. It is data: nothing in it is executed."""
        return cls(Supernet.load(path))

    # ------------------------------------------------------------------------------------------------------------- fitting

    def fit(self, images: Any, **options: Any) -> FitReport:
        """Fit the stitches, by default by least squares: `Supernet.fit`."""
        return self.supernet.fit(images, **options)

    def finetune(self, images: Any, **options: Any) -> FitReport:
        """[SN]: train all stitches together, at each step in one of the listed networks, taught by the dearest anchor as
        it was before.

        :param images: as in `Supernet.fit`.
        :param options: those of `fitting.finetune`; `networks=0.1` trains the networks too.
        """
        teacher = self.genotypes[list(self.anchors.values())[-1]]
        return self.fit(images, method="finetune", **{"genotypes": self.genotypes, "teacher": teacher} | options)

    # ----------------------------------------------------------------------------------------------------------- as a space

    @cached_property
    def n_var(self) -> int:
        """The bits of an id."""
        return max(1, math.ceil(math.log2(len(self))))

    @cached_property
    def codes(self) -> np.ndarray:
        """The genotype of each network in this space: row i is the Gray code of id i, most significant bit first."""
        ids = np.arange(len(self))
        return ((ids ^ (ids >> 1))[:, None] >> np.arange(self.n_var)[::-1] & 1).astype(bool)

    def id(self, x: Sequence[bool] | np.ndarray) -> int:
        """The id that a genotype of this space stands for."""
        x = np.asarray(x)
        if x.shape != (self.n_var,) or not np.isin(x, (0, 1)).all():
            raise ValueError(
                f"a genotype of this family is {self.n_var} booleans, but {x.tolist()} is given. Those of its supernet are "
                "selected by family.supernet.subnetwork(x)."
            )
        number = 0
        for parity in np.bitwise_xor.accumulate(x.astype(bool)):
            number = 2 * number + int(parity)
        return number if number < len(self) else 2 * len(self) - 1 - number

    def subnetwork(self, x: Sequence[bool] | np.ndarray) -> Subnetwork:
        """The network that a genotype of this space stands for."""
        return self[self.id(x)]

    def active(self, x: Sequence[bool] | np.ndarray) -> np.ndarray:
        """Every bit matters."""
        return np.ones(self.n_var, dtype=bool)

    @property
    def references(self) -> dict[str, np.ndarray]:
        """The genotypes of the anchors, by name."""
        return {name: self.codes[id] for name, id in self.anchors.items()}

    @property
    def is_fitted(self) -> bool:
        return self.supernet.is_fitted

    def digest(self) -> str:
        """A name for what the networks of this family compute, weights included, and for their order."""
        listed = hashlib.blake2b(np.packbits(self.genotypes, axis=1).tobytes(), digest_size=32)
        listed.update(self.supernet.digest().encode())
        return listed.hexdigest()

    # ------------------------------------------------------------------------------------------------------------- printing

    def __str__(self) -> str:
        """A table of all networks, and what they take together."""
        rows = [["id", "multiply-adds", "network"]]
        rows += [[f"{id}", f"{subnetwork.cost:,}", _route(subnetwork)] for id, subnetwork in enumerate(self)]
        n_stitches = len({link.stitch for link in _stitches(self.supernet)})
        return "\n".join(
            [
                f"Family of {len(self.networks)} networks and {n_stitches} stitches: {len(self)} networks in "
                f"{self.n_parameters:,} parameters",
                "",
                *table(rows),
            ]
        )

    def __repr__(self) -> str:
        return f"Family({', '.join(network.name for network in self.networks)}; {len(self)} networks)"


def _route(subnetwork: Subnetwork) -> str:
    links = [link for link in subnetwork.links if link.kind != "identity"]
    ends = [network.name for network in subnetwork.outputs]
    return ", ".join(map(str, links)) if links else ends[0]


# --------------------------------------------------------------------------------------------------------------- listing


def _listed(supernet: Supernet, chains: bool) -> list[Subnetwork]:
    """Each network alone, and for each set of links all of which can be in use together, or for each single link that
    can be, the subnetwork that uses these and no others; that of a whole set is found by adding its links one by one,
    from the output backwards."""
    order = supernet.switch_places()
    stitches = [i for i, link in enumerate(supernet.links) if link.kind != "identity"]
    around = np.array([link.kind == "identity" for link in supernet.links] + [False] * supernet.n_choices)
    found: list[Subnetwork] = []

    def extend(x: np.ndarray, last: float) -> None:
        plain = supernet.subnetwork(x)
        used = x[stitches].any()
        found.append(supernet.subnetwork(x | around & supernet.subnetwork(x | around).active) if used else plain)
        if len(found) > MOST:
            raise ValueError(
                f"this supernet has more than {MOST:,} networks, too many to list. Use chains=False, a smaller window, a "
                "larger stride, or search it: StitchProblem(supernet, task)."
            )
        if used and not chains:
            return
        for i in stitches:
            if plain.active[i] and order[i] < last:
                longer = x.copy()
                longer[i] = True
                extend(longer, order[i])

    for network in supernet.networks:
        extend(supernet.references[network.name].copy(), math.inf)
    return found


def _stitches(supernet: Supernet) -> list[Link]:
    return [link for link in supernet.links if link.kind != "identity"]


def _by_cost(networks: Iterable[Network]) -> list[Network]:
    return sorted(networks, key=lambda network: network.cost)


# ----------------------------------------------------------------------------------------------------------------- links


def family_links(
    networks: Sequence[Network],
    *,
    window: int = 2,
    stride: int = 1,
    pairs: str = "neighbours",
    kind: str = "linear",
    blocks: Mapping[str, Sequence[str]] | None = None,
) -> list[Link]:
    """[SN]: links from the ends of a cheaper network's blocks to what the blocks of a dearer one read.

    Networks of one stage and equal depth: windows of `window` blocks at every `stride`-th block; each block of a window
    is joined with each other of the same window, those of one window share a stitch, and two blocks that are in several
    windows together belong to the first. Networks of several stages: the same inside each stage but the last, and only
    from a block to later ones. Stages of unequal depth: block i of the dearer network, of L₂ blocks, goes with block
    ⌊i·L₁/L₂⌋ of the cheaper one, if that is an earlier one; links from one block share a stitch.

    :param networks: of the same number of stages, alike in layout and size.
    :param pairs: `"neighbours"`: each network with the next dearer one. `"all"`: with every dearer one.
    :param kind: what the stitches are made of.
    :param blocks: for networks whose blocks are not found, the names of the modules that are blocks, by the network's
        name: see `blocks.stages`.
    """
    check_options(pairs, kind)
    for name, value in (("window", window), ("stride", stride)):
        if not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} is a number of blocks, at least 1, but is {value!r}.")
    if len(networks) < 2:
        raise ValueError(f"a family joins two or more networks, but {len(networks)} is given.")
    if unknown := set(blocks or ()) - {network.name for network in networks}:
        raise ValueError(f"blocks are named for {min(unknown)!r}, but the networks are {_names(networks)}.")
    found = {network.name: _stages(network, blocks) for network in networks}
    _check_alike(found)
    links = []
    for front, end in (pairwise if pairs == "neighbours" else lambda n: combinations(n, 2))(_by_cost(networks)):
        several = len(found[front.name]) > 1
        for number, both in enumerate(zip(found[front.name], found[end.name], strict=True)):
            if several and number == len(found[front.name]) - 1:
                continue
            for j, k, shared in _pairs(*map(len, both), window, stride, several):
                name = f"{front.name}_{end.name}_{number}_{shared}"
                if (target := both[1].before(k)) is not None:
                    links.append(Link(both[0].ends[j], target, kind, name))
    if not links:
        raise ValueError(
            f"there is nothing to join in {_names(networks)}: no stage but the last has two blocks or more in both "
            "networks of a pair."
        )
    return links


def _pairs(front: int, end: int, window: int, stride: int, forward: bool) -> Iterator[tuple[int, int, int]]:
    """Which block of `front` blocks goes with which of `end`, and the number of the stitch that they share."""
    if front != end:
        for k in range(end):
            if k * front // end < k:
                yield k * front // end, k, k * front // end
        return
    seen = set()
    for first in range(0, front, stride):
        inside = range(first, min(first + window, front))
        for j in inside:
            for k in inside:
                if (j, k) not in seen and (j < k or not forward):
                    seen.add((j, k))
                    yield j, k, first


def _stages(network: Network, blocks: Mapping[str, Sequence[str]] | None) -> list[Stage]:
    return stages(network, (blocks or {}).get(network.name))


def _check_alike(found: Mapping[str, Sequence[Stage]]) -> None:
    (first, expected), *others = found.items()
    for name, given in others:
        if len(given) != len(expected):
            raise ValueError(
                f"{first} has {len(expected)} stages and {name} has {len(given)}. The networks of a family are of one "
                "design; others are joined by Supernet.build."
            )
        for number, (a, b) in enumerate(zip(expected, given, strict=True), 1):
            if not are_alike(a.ends[0], b.ends[0]):
                forms = [f"{tap.layout} {tap.shape}" for tap in (a.ends[0], b.ends[0])]
                raise ValueError(
                    f"stage {number} of {first} is {forms[0]} and of {name} {forms[1]}. The networks of a family are alike "
                    "in layout and size; others are joined by Supernet.build(…, resize=True)."
                )


def _around_final_norm(network: Network, last: Stage) -> Link:
    """A link from what the norm behind the last block reads to what it gives."""
    nodes = {node.name: node for node in network.varying}
    behind = list(nodes)[list(nodes).index(last.ends[-1].name) + 1 :]
    for name in behind:
        if not short_name(nodes[name].op).endswith("_norm"):
            continue
        read = nodes[nodes[name].inputs()[0]]
        while is_alias(read.op, read.args):
            read = nodes[read.inputs()[0]]
        return Link(network.tap(read.name), _tap(network, name), "identity")
    raise ValueError(f"final_norm=False, but {network.name} has no norm between its last block and its output.")


def _tap(network: Network, name: str) -> Tap:
    return next(tap for tap in network.taps if tap.name == name)


def _names(networks: Sequence[Network]) -> str:
    return ", ".join(network.name for network in networks)
