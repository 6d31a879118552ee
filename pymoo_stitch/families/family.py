"""Families ([SN]): networks of one design and different size, stitched fast-to-slow at the ends of their blocks, and
the list of its members.

A family is a supernet with particular links. What it adds is the list: few enough members to evaluate them all, in the
order of their cost, each selected by a number."""

import math
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import nn

from ..network import Network, Normalization, import_networks
from ..stitches import Link, check_options
from ..supernet import FitReport, Space, Subnetwork, Supernet
from ..util.digests import digest
from ..util.tables import table
from .links import _around_final_norm, _by_cost, _stages, family_links
from .switching import Switchable, most_expensive

MOST = 100_000
"""The longest list there may be. Supernets with links everywhere have more subnetworks than can be listed."""


class Family(Space):
    """A supernet whose links lead fast-to-slow. Its networks are *anchors*. Its *members* are the anchors alone, and
    all subnetworks that begin in one anchor and end in a more expensive one. Members have ids from 0, in the order of
    cost; of equal cost, those with fewer
    stitches first, then in the order of their genotypes.

    >>> import timm
    >>> models = [
    ...     timm.models.VisionTransformer(img_size=8, patch_size=2, embed_dim=n, depth=3, num_heads=2, num_classes=10)
    ...     for n in (8, 16, 24)
    ... ]
    >>> family = Family.build(models, torch.rand(1, 3, 8, 8))
    >>> family
    Family(visiontransformer_3_0k, visiontransformer_10_5k, visiontransformer_22_7k; 17 members)
    >>> report = family.fit(torch.rand(32, 3, 8, 8), progress=False)
    >>> family[family.at_most(200_000)].module()(torch.rand(2, 3, 8, 8)).shape
    torch.Size([2, 10])
    >>> network = family.module()
    >>> network.at_most(200_000).selected == family.at_most(200_000)
    True

    It is a space for `StitchProblem`, in which a genotype is an id, Gray-coded in as few bits as it takes; numbers
    beyond the last id count back from it. So codes that differ in a bit that matters little select members of similar
    cost. The *open* space, with every combination of links, is the family's `supernet`.

    :param supernet: whose links lead from cheaper to more expensive anchors. Those of kind `identity` are not
        stitches: they are switched on in every member that uses a stitch, where it meets them, and in no anchor.
    :param chains: whether members with several stitches, one after another, are listed. By default they are if some
        link joins anchors that are not neighbours in cost, as `pairs="all"` makes them.
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
                f"a family's links lead from a cheaper anchor to a more expensive one, but {wrong} does not."
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
        :param final_norm: False leaves out the norm after the last block in all members but the anchors, as the
            published code of [SN] does; for comparisons with it.
        """
        check_options(pairs, kind)
        options: dict[str, Any] = {"normalize": normalize, "output": output, "progress": progress}
        imported = import_networks(networks, example_input, **options, of="family")
        links = family_links(imported, window=window, stride=stride, pairs=pairs, kind=kind, blocks=blocks)
        if not final_norm:
            links += [_around_final_norm(network, _stages(network, blocks)[-1]) for network in imported]
        return cls(Supernet(imported, links), chains=pairs == "all")

    # ----------------------------------------------------------------------------------------------------- the networks

    def __len__(self) -> int:
        return len(self.genotypes)

    def __getitem__(self, id: int) -> Subnetwork:
        """The member with this id."""
        return self.supernet.subnetwork(self.genotypes[self._checked(id)])

    def __iter__(self) -> Iterator[Subnetwork]:
        return (self[id] for id in range(len(self)))

    def _checked(self, id: int) -> int:
        if not isinstance(id, (int, np.integer)) or isinstance(id, bool) or not 0 <= id < len(self):
            raise IndexError(f"there is no member {id!r} in this family; ids go from 0 to {len(self) - 1}.")
        return int(id)

    def at_most(self, multiply_adds: float) -> int:
        """The id of the most expensive member that costs at most this."""
        return most_expensive(self.costs, multiply_adds)

    @cached_property
    def anchors(self) -> dict[str, int]:
        """The id of each anchor, by its name, from the cheapest to the most expensive."""
        alone = {name: x.tobytes() for name, x in self.supernet.references.items()}
        ids = {x.tobytes(): id for id, x in enumerate(self.genotypes)}
        return {network.name: ids[alone[network.name]] for network in _by_cost(self.supernet.networks)}

    @property
    def n_parameters(self) -> int:
        """The parameters of all anchors and all stitches."""
        stitches = sum(parameter.numel() for parameter in self.supernet.stitches.parameters())
        return stitches + sum(network.n_parameters for network in self.networks)

    def module(self, ids: Iterable[int] | None = None, device: torch.device | str | None = None) -> Switchable:
        """One module that is any of these members, all by default: see `Switchable`."""
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

    # ---------------------------------------------------------------------------------------------------------- fitting

    def fit(self, images: Any, **options: Any) -> FitReport:
        """Fit the stitches, by default by least squares: `Supernet.fit`. The degree to which variance is restored is
        chosen on the members."""
        return self.supernet.fit(images, **{"genotypes": self.genotypes} | options)

    def finetune(self, images: Any, **options: Any) -> FitReport:
        """[SN]: train all stitches together, at each step in one of the members, taught by the most expensive
        anchor as it was before.

        :param images: as in `Supernet.fit`.
        :param options: those of `fitting.finetune`, lr being 1e-3; `networks=0.1` trains the anchors too.
        """
        teacher = self.genotypes[list(self.anchors.values())[-1]]
        return self.supernet.finetune(images, **{"genotypes": self.genotypes, "teacher": teacher, "lr": 1e-3} | options)

    # ------------------------------------------------------------------------------------------------------- as a space

    @property
    def basis(self) -> Supernet:
        return self.supernet

    @cached_property
    def n_var(self) -> int:  # type: ignore[override]  # an attribute elsewhere
        """The bits of an id."""
        return max(1, math.ceil(math.log2(len(self))))

    @cached_property
    def codes(self) -> np.ndarray:  # type: ignore[override]  # an attribute elsewhere
        """The genotype of each member in this space: row i is the Gray code of id i, most significant bit first."""
        ids = np.arange(len(self))
        return ((ids ^ (ids >> 1))[:, None] >> np.arange(self.n_var)[::-1] & 1).astype(bool)

    def id(self, x: Sequence[bool] | np.ndarray) -> int:
        """The id that a genotype of this space stands for."""
        x = np.asarray(x)
        if x.shape != (self.n_var,) or not np.isin(x, (0, 1)).all():
            raise ValueError(
                f"a genotype of this family is {self.n_var} booleans, but {x.tolist()} is given. Those of its supernet "
                "are selected by family.supernet.subnetwork(x)."
            )
        number = 0
        for parity in np.bitwise_xor.accumulate(x.astype(bool)):
            number = 2 * number + int(parity)
        return number if number < len(self) else 2 * len(self) - 1 - number

    def subnetwork(self, x: Sequence[bool] | np.ndarray) -> Subnetwork:
        """The member that a genotype of this space stands for."""
        return self[self.id(x)]

    def active(self, x: Sequence[bool] | np.ndarray) -> np.ndarray:
        """Every bit of an id matters."""
        return np.ones(self.n_var, dtype=bool)

    @property
    def references(self) -> dict[str, np.ndarray]:
        """The genotypes of the anchors, by name."""
        return {name: self.codes[id] for name, id in self.anchors.items()}

    def one_stitch(self) -> np.ndarray:
        """The genotypes of the members with exactly one stitch, those of kind `identity` not counted."""
        counts = np.array([sum(link.kind != "identity" for link in subnetwork.links) for subnetwork in self])
        return self.codes[counts == 1]

    def digest(self) -> str:
        """A name for what the members of this family compute, weights included, and for their order."""
        return digest([np.packbits(self.genotypes, axis=1), self.supernet.digest()], size=32)

    # --------------------------------------------------------------------------------------------------------- printing

    def __str__(self) -> str:
        """A table of all members, and what they take together."""
        rows = [["id", "multiply-adds", "member"]]
        rows += [[f"{id}", f"{subnetwork.cost:,}", _route(subnetwork)] for id, subnetwork in enumerate(self)]
        n_stitches = len({link.stitch for link in _stitches(self.supernet)})
        return "\n".join(
            [
                f"Family of {len(self.networks)} anchors and {n_stitches} stitches: {len(self)} members in "
                f"{self.n_parameters:,} parameters",
                "",
                *table(rows),
            ]
        )

    def __repr__(self) -> str:
        return f"Family({', '.join(network.name for network in self.networks)}; {len(self)} members)"


def _route(subnetwork: Subnetwork) -> str:
    links = [link for link in subnetwork.links if link.kind != "identity"]
    ends = [network.name for network in subnetwork.outputs]
    return ", ".join(map(str, links)) if links else ends[0]


# -------------------------------------------------------------------------------------------------------------- listing


def _listed(supernet: Supernet, chains: bool) -> list[Subnetwork]:
    """Each anchor alone, and for each set of links all of which can be in use together, or for each single link that
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
                f"this family has more than {MOST:,} members, too many to list. Use chains=False, a smaller window, "
                "a larger stride, or search it: StitchProblem(supernet, task)."
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
