"""Pools: the fragments of several networks, and the chains that can be made of them ([SF])."""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np
import torch

from ..network import ImageLimits, Network, as_floats, check_networks
from ..supernet import Contents, Space, check_genotype, digest_contents, structure
from ..util.digests import digest
from ._beginnings import BATCH, Beginnings, Prefix
from ._joints import Joints
from .chain import Chain
from .fragment import Fragment, fragments


class Pool(Space):
    """Fragments of trained networks, and images to fit the stitches between them.

    >>> networks = get_problem("digits").space.networks
    >>> pool = Pool(networks, torch.rand(32, 1, 8, 8))
    >>> pool
    Pool(inverted with 5 fragments, residual with 3 fragments; 32 images)
    >>> chain = pool.chain([*pool["inverted"][:2], *pool["residual"][1:]])
    >>> chain
    Chain(inverted[0] inverted[1] → residual[1] residual[2], 1 stitch, 373,744 multiply-adds)
    >>> chain.module()(torch.rand(5, 1, 8, 8)).shape
    torch.Size([5, 10])

    A chain begins with a network's first fragment and ends with a network's last. Fragments that follow one another in
    their network are joined as they were, all others by a linear map of the channels, fitted in closed form: it turns
    the chain's output so far into what the fragment reads in its own network, for the same images. The output of a
    chain so far is kept for the chains that begin in the same way, as long as there is room; copies in other processes
    begin with nothing, and compute the same.

    As a space, a pool has the chain itself as the genotype, spelled out: for each of its fragments the place in the
    pool, counted from 1, in binary, and whether there is a stitch before it. Most genotypes spell no chain, so a
    search needs a `ChainSpace`.

    :param networks: one or more with equal input and output shapes and different names.
    :param images: N×…, without labels, as the networks take them. ([SF]: 32)
    :param bias: stitches are affine maps, with a bias. It improves them, but then not all of them can be fused.
    :param positions: how many positions of each image are used at most to fit a stitch.
    :param ridge: added to each variance, as a fraction of the mean variance. Keep it small: what it takes away
        accumulates along a chain, since each stitch is fitted to the output of the chain before it.
    :param memory: how many bytes of tensors and stitches are kept at most, besides what each fragment reads in its own
        network.
    """

    networks: tuple[Network, ...] = ()
    is_fitted = True

    def __init__(
        self,
        networks: Iterable[Network],
        images: torch.Tensor,
        *,
        bias: bool = False,
        positions: int = 128,
        ridge: float = 1e-6,
        memory: int = 2**30,
    ):
        self.networks = (networks,) if isinstance(networks, Network) else tuple(networks)
        check_networks(self.networks, "pool")
        if positions < 1 or ridge < 0 or memory < 0:
            raise ValueError(
                f"positions must be at least 1, ridge and memory at least 0, but they are {positions}, {ridge} and "
                f"{memory}."
            )
        in_unit = any(network.takes_unit_images for network in self.networks)
        if wrong := ImageLimits(self.networks[0].input_shape, in_unit).broken_by(images):
            raise ValueError(f"what stitches are to be fitted on {wrong}")
        self.images = as_floats(images).detach().cpu().contiguous()
        self._by_network = {network.name: fragments(network) for network in self.networks}
        self.fragments: tuple[Fragment, ...] = tuple(f for found in self._by_network.values() for f in found)
        self._own = frozenset(self.fragments)
        self.joints = Joints("linear" if bias else "matrix", len(self.images))
        self.beginnings = Beginnings(
            self.fragments, self.joints, self.images, positions=positions, ridge=ridge, memory=memory
        )
        nodes = [(network.name, node.name) for network in self.networks for node in network.nodes]
        self._ids = {names: i for i, names in enumerate(nodes)}

    def __getitem__(self, network: str) -> tuple[Fragment, ...]:
        """The fragments of a network, by its name."""
        if network not in self._by_network:
            raise KeyError(f"there is no network {network!r} in the pool; choose from {', '.join(self._by_network)}.")
        return self._by_network[network]

    def joins(self, first: Fragment, second: Fragment) -> bool:
        """Whether a fragment can follow another."""
        return self.joints.possible(first, second)

    def similarity(self, beginning: Sequence[Fragment], candidate: Fragment) -> float:
        """The CKA, without bias, of the output of a beginning of a chain and what a fragment reads in its own
        network."""
        return self.beginnings.similarity(beginning, candidate)

    # ----------------------------------------------------------------------------------------------------------- chains

    def chain(
        self,
        fragments: Iterable[Fragment],
        *,
        restitch: bool = False,
        x: np.ndarray | None = None,
        active: np.ndarray | None = None,
    ) -> Chain:
        """The network that these fragments are, one after another.

        :param restitch: also put a stitch between fragments that follow one another in their network.
        :param x, active: the genotype of another space that selects this chain, and which of its variables matter;
            where there is none, the chain spelled out.
        """
        return Chain(self, self._checked(fragments), restitch, x, active)

    def self_stitched(self, network: str) -> Chain:
        """A network with a stitch at each of its own cuts: shows what stitches alone gain or lose."""
        return self.chain(self[network], restitch=True)

    def _checked(self, given: Iterable[Fragment]) -> tuple[Fragment, ...]:
        given = tuple(given)
        for fragment in given:
            if not isinstance(fragment, Fragment):
                raise TypeError(
                    f"a chain is made of fragments, such as pool['name'][0], not of {type(fragment).__name__}."
                )
            if fragment not in self._own:
                raise ValueError(f"the fragment {fragment} is not in this pool.")
        if repeated := [fragment for fragment, count in Counter(given).items() if count > 1]:
            raise ValueError(f"the fragment {repeated[0]} is given more than once; a chain uses each once at most.")
        if not given or not given[0].is_start or not given[-1].is_end:
            names = " ".join(map(str, given)) or "nothing"
            raise ValueError(f"a chain goes from a network's first fragment to a network's last, but {names} is given.")
        for first, second in pairwise(given):
            if first.is_end or second.is_start:
                raise ValueError(
                    f"{second} cannot follow {first}: a first fragment has no input to join, and a last no output."
                )
            if not self.joins(first, second):
                ends = f"{first.last.layout} {first.last.shape} to {second.first.layout} {second.first.shape}"
                raise ValueError(f"{second} cannot follow {first}: no stitch leads from {ends}.")
        return given

    # ------------------------------------------------------------------------------------------------------- as a space

    @property
    def basis(self) -> "Pool":
        return self

    @property
    def n_var(self) -> int:  # type: ignore[override]  # an attribute elsewhere
        return len(self.fragments) * (self._width + 1)

    @property
    def _width(self) -> int:
        """The bits of a fragment's place."""
        return len(self.fragments).bit_length()

    def spelled(self, prefix: Prefix) -> np.ndarray:
        """A chain as a genotype. Chains that begin alike have genotypes that begin alike."""
        x = np.zeros((len(self.fragments), self._width + 1), dtype=bool)
        for row, (place, stitched) in zip(x, prefix, strict=False):
            row[:] = [*(bit == "1" for bit in f"{place + 1:0{self._width}b}"), stitched]
        return x.ravel()

    def subnetwork(self, x: Sequence[bool] | np.ndarray) -> Chain:
        """The chain that a genotype spells; a ValueError if it spells none."""
        x = check_genotype(x, self.n_var)
        rows = x.reshape(len(self.fragments), -1)
        places = rows[:, :-1] @ (1 << np.arange(self._width)[::-1])
        given = self._checked(self.fragments[place - 1] for place in places[places > 0] if place <= len(self.fragments))
        for restitch in (False, True):
            chain = Chain(self, given, restitch)
            if (chain.x == x).all():
                return chain
        raise ValueError("this genotype spells no chain. Search the chains of a pool with ChainSpace(pool).")

    @property
    def references(self) -> dict[str, np.ndarray]:
        """The genotypes of each network alone, by its name."""
        return {name: self.chain(found).x for name, found in self._by_network.items()}

    @cached_property
    def max_cost(self) -> int:
        """The multiply-adds of all fragments, each with the most expensive stitch before it: more than those of any
        chain."""

        def dearest_stitch(second: Fragment) -> int:
            links = [self.joints.link(first, second) for first in self.fragments if self.joins(first, second)]
            return max(map(self.joints.cost, links), default=0)

        return sum(fragment.cost + dearest_stitch(fragment) for fragment in self.fragments)

    @cached_property
    def structure(self) -> bytes:
        """A digest of networks and the kind of stitches, not of the weights. Part of every key."""
        return bytes.fromhex(digest([structure(self.networks, ()), self.joints.kind]))

    def digest(self) -> str:
        """A name for what the chains of this pool compute: weights, images and how stitches are fitted."""
        contents = Contents(self.networks, (), {"images": self.images})
        fitted = f"{self.joints.kind} {self.beginnings.positions} {self.beginnings.ridge} {BATCH}"
        return digest([f"{digest_contents(contents)} {fitted}"], size=32)

    def __repr__(self) -> str:
        parts = ", ".join(f"{name} with {len(found)} fragments" for name, found in self._by_network.items())
        return f"Pool({parts}; {len(self.images)} images)"
