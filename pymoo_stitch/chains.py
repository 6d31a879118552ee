"""Chains: networks composed of fragments of trained networks, one behind another, without training ([SF])."""

import hashlib
import math
import weakref
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn

from . import storage
from .execution import outputs_of
from .fitting import adapter_of, solve_factors, solve_rows, source_rows, target_rows
from .fragments import Fragment, fragments
from .fusing import as_network, folded, fused
from .graph import INPUT
from .layout import Layout
from .network import Network
from .selection import Step
from .similarity import LEAST, hsic, kernel
from .stitches import KINDS, Link, build_stitch, channels_read, is_direct, working_layout
from .subnetwork import Subnetwork, key
from .supernet import check_networks
from .task import are_unit_images

BATCH = 8
"""How many images run through a fragment at a time. It is part of what is computed: another number rounds otherwise."""

Prefix = tuple[tuple[int, bool], ...]
"""The beginning of a chain: for each fragment its place in the pool, and whether there is a stitch before it."""


class Pool:
    """Fragments of trained networks, and images to fit the stitches between them.

    >>> networks = get_problem("digits").space.networks
    >>> pool = Pool(networks, torch.rand(32, 1, 8, 8))
    >>> pool
    Pool(inverted with 5 fragments, residual with 3 fragments; 32 images)
    >>> chain = pool.chain([*pool["inverted"][:2], *pool["residual"][1:]])
    >>> chain
    Chain(inverted[0] inverted[1] → residual[1] residual[2], 1 stitch, 281,544 multiply-adds)
    >>> chain.module()(torch.rand(5, 1, 8, 8)).shape
    torch.Size([5, 10])

    A chain begins with a network's first fragment and ends with a network's last. Fragments that follow one another in their network
    are joined as they were, all others by a linear map of the channels, fitted in closed form: it turns what the chain gives so far
    into what the fragment reads in its own network, for the same images. What a chain so far gives is kept for
    the chains that begin as it does, as long as there is room; copies in other processes begin with nothing, and compute the same.

    :param networks: one or more with equal input and output shapes and different names.
    :param images: N×…, without labels, as the networks take them. ([SF]: 32)
    :param bias: stitches are affine maps, with a bias. It improves them, yet not all of them can be fused then.
    :param positions: how many positions of each image are used at most to fit a stitch.
    :param ridge: as in `fitting.least_squares`.
    :param memory: how many bytes of tensors and stitches are kept at most, besides what each fragment reads in its own network.
    """

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
                f"positions must be at least 1, ridge and memory at least 0, but they are {positions}, {ridge} and {memory}."
            )
        self.images = _checked_images(self.networks, images)
        self.kind = "linear" if bias else "matrix"
        self.positions, self.ridge, self.memory = positions, ridge, memory
        self._by_network = {network.name: fragments(network) for network in self.networks}
        self.fragments: tuple[Fragment, ...] = tuple(f for found in self._by_network.values() for f in found)
        self._place = {fragment: i for i, fragment in enumerate(self.fragments)}
        nodes = [(network.name, node.name) for network in self.networks for node in network.nodes]
        self._ids = {names: i for i, names in enumerate(nodes)}
        self._forget()

    def __getitem__(self, network: str) -> tuple[Fragment, ...]:
        """The fragments of a network, by its name."""
        if network not in self._by_network:
            raise KeyError(f"there is no network {network!r} in the pool; there are {', '.join(self._by_network)}.")
        return self._by_network[network]

    def chain(
        self,
        fragments: Iterable[Fragment],
        *,
        restitch: bool = False,
        x: np.ndarray | None = None,
        active: np.ndarray | None = None,
    ) -> "Chain":
        """The network that these fragments are, one behind another.

        :param restitch: also put a stitch between fragments that follow one another in their network.
        :param x, active: the genotype that selects this chain, and which of its variables matter; where there is none, what
            the chain is as booleans.
        """
        return Chain(self, self._checked(fragments), restitch, x, active)

    def self_stitched(self, network: str) -> "Chain":
        """A network with a stitch at each of its cuts: what there is to gain or lose without any other network."""
        return self.chain(self[network], restitch=True)

    def joins(self, first: Fragment, second: Fragment) -> bool:
        """Whether a fragment can follow another."""
        if first.is_end or second.is_start or first == second:
            return False
        return follows(first, second) or working_layout(KINDS[self.kind], first.last, second.first) is not None

    @property
    def input_shape(self) -> tuple[int, ...]:
        return self.networks[0].input_shape

    @cached_property
    def max_cost(self) -> int:
        """The multiply-adds of all fragments, each with the dearest stitch before it: more than those of any chain."""
        stitches = (
            max(
                (self.link_cost(self.link(first, second)) for first in self.fragments if self.joins(first, second)),
                default=0,
            )
            for second in self.fragments
        )
        return sum(fragment.cost for fragment in self.fragments) + sum(stitches)

    @cached_property
    def structure(self) -> bytes:
        """A digest of networks and the kind of stitches, not of the weights. Part of every key."""
        own = storage.structure(self.networks, ()) + self.kind.encode()
        return hashlib.blake2b(own, digest_size=16).digest()

    def digest(self) -> str:
        """A name for what the chains of this pool compute: weights, images and how stitches are fitted."""
        contents = storage.Contents(self.networks, (), {"images": self.images})
        own = f"{storage.digest(contents)} {self.kind} {self.positions} {self.ridge} {BATCH}"
        return hashlib.blake2b(own.encode(), digest_size=32).hexdigest()

    def link(self, first: Fragment, second: Fragment, stitch: str | None = None) -> Link:
        """The connection through a stitch from one fragment to another."""
        return Link(first.last, second.first, self.kind, stitch)

    def link_cost(self, link: Link) -> int:
        """The multiply-adds of a link's stitch, which is one map of channels at each of the target's positions."""
        channels, rank, target = channels_read(link), self._rank(link), link.target
        if rank is not None:
            return rank * (channels + target.channels)
        return channels * target.channels * math.prod(target.positions if is_direct(link) else target.grid or ())

    def _rank(self, link: Link) -> int | None:
        """How many dimensions are enough for a stitch between vectors: it is fitted to one for each image, and wide ones would
        make it a huge matrix of low rank. None where a whole matrix is smaller than its two factors."""
        rank, channels, given = len(self.images), channels_read(link), link.target.channels
        is_less = rank * (channels + given) < channels * given
        return rank if link.target.layout is Layout.VECTOR and is_less else None

    def _checked(self, given: Iterable[Fragment]) -> tuple[Fragment, ...]:
        given = tuple(given)
        for fragment in given:
            if not isinstance(fragment, Fragment):
                raise TypeError(
                    f"a chain is made of fragments, such as pool['name'][0], not of {type(fragment).__name__}."
                )
            if fragment not in self._place:
                raise ValueError(f"the fragment {fragment} is not one of this pool's.")
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

    # ------------------------------------------------------------------------------------------------- what chains give

    def similarity(self, beginning: Sequence[Fragment], candidate: Fragment) -> float:
        """The CKA, without bias, of what a beginning of a chain gives and what a fragment reads in its own network."""
        if len(self.images) < LEAST:
            raise ValueError(f"CKA needs {LEAST} images or more, but the pool has {len(self.images)}.")
        own = self._natural(self._place[candidate] - 1)
        values = hsic(np.stack([self._kernel(self._prefix(beginning)), self._kernel(own)]))
        norm = values[0, 0] * values[1, 1]
        return float(values[0, 1] / math.sqrt(norm)) if norm > 0 and math.isfinite(norm) else 0.0

    def stitch(self, prefix: Prefix, source: torch.Tensor | None = None) -> nn.Module:
        """The stitch before the last fragment of a chain's beginning, fitted; `source` is what the chain gives before it,
        if that is known."""
        stitch = self._recent.get(("stitch", prefix)) or self._stitches.get(prefix)
        if stitch is None:
            source = self._output(prefix[:-1]) if source is None else source
            self._stitches[prefix] = stitch = self._fitted(prefix, source)
            self._recent.add(("stitch", prefix), stitch, sum(p.numel() * p.itemsize for p in stitch.parameters()))
        return stitch

    @torch.no_grad()
    def _fitted(self, prefix: Prefix, source: torch.Tensor) -> nn.Module:
        before, fragment = self.fragments[prefix[-2][0]], self.fragments[prefix[-1][0]]
        link = self.link(before, fragment)
        rank, y = self._rank(link), self._expected(fragment, is_direct(link))
        with torch.device("meta"):  # without drawing random numbers
            stitch = build_stitch(link).eval()
            if rank is not None:
                factors = Factors(channels_read(link), rank, link.target.channels, adapter_of(stitch).bias is not None)
                stitch = factors if is_direct(link) else nn.Sequential(*stitch[:-2], factors, stitch[-1])
        stitch.to_empty(device="cpu")
        adapter = adapter_of(stitch)
        if y is None or not source.isfinite().all():  # a chain is at fault, or a network: what is predicted will say so
            for parameter in adapter.parameters():
                parameter.fill_(math.nan)
            return stitch
        x = torch.cat([source_rows(link, stitch, part, self.positions) for part in source.split(BATCH)])
        centred = adapter.bias is not None
        if rank is None:
            weight, bias = solve_rows(x, y, self.ridge, centred)
            adapter.weight.copy_(weight.view_as(adapter.weight))
        else:
            down, up, bias = solve_factors(x, y, self.ridge, centred)
            adapter.down.weight.copy_(down)
            adapter.up.weight.copy_(up)
        if centred:
            adapter.bias.copy_(bias)
        return stitch

    def _expected(self, fragment: Fragment, direct: bool) -> torch.Tensor | None:
        """What the fragment reads in its own network, as rows for a stitch to give; None if that is not finite."""
        at = self._place[fragment], direct
        if at not in self._rows:
            self._output(self._natural(at[0] - 1))
        return self._rows[at].double() if at in self._rows else None

    def _kernel(self, prefix: Prefix) -> np.ndarray:
        if prefix == self._natural(prefix[-1][0]):
            if prefix not in self._kernels:
                self._output(prefix)
            return self._kernels[prefix]
        known = self._recent.get(("kernel", prefix))
        if known is None:
            known = kernel(self._output(prefix))
            self._recent.add(("kernel", prefix), known, known.nbytes)
        return known

    def _output(self, prefix: Prefix) -> torch.Tensor:
        """What a chain gives so far, for all images."""
        known = self._recent.get(("output", prefix))
        if known is not None:
            return known
        place, stitched = prefix[-1]
        fragment = self.fragments[place]
        source = self.images if len(prefix) == 1 else self._output(prefix[:-1])
        stitch = self.stitch(prefix, source) if stitched else None
        parts = []
        with torch.no_grad():
            for part in source.split(BATCH):
                part = part if stitch is None else stitch(part)
                given = INPUT if fragment.first is None else fragment.first.name
                outputs = outputs_of(fragment.network, part, nodes=fragment.nodes, given=given)
                parts += [output for _, output in deque(outputs, maxlen=1)]  # of the last node
        output = torch.cat(parts)
        self._recent.add(("output", prefix), output, output.numel() * output.itemsize)
        if prefix == self._natural(place):
            self._remember(prefix, output)
        return output

    def _remember(self, prefix: Prefix, output: torch.Tensor) -> None:
        """Keep of a network's own tensor at a cut its kernel, and what stitches that lead there are to give: all tokens, or
        those without the class token, which a stitch from another layout makes itself."""
        self._kernels[prefix] = kernel(output)
        place, tap = prefix[-1][0] + 1, self.fragments[prefix[-1][0]].last
        if tap is None or not output.isfinite().all():
            return
        link = Link(tap, tap, self.kind)
        self._rows[place, True] = self._rows[place, False] = target_rows(link, output, self.positions).float()
        if tap.layout is Layout.CLASS_TOKENS:
            image = output[:, output.shape[1] - math.prod(tap.grid) :]
            self._rows[place, False] = target_rows(link, image, self.positions).float()

    def _natural(self, place: int) -> Prefix:
        """The beginning of a network up to a fragment."""
        return tuple((i, False) for i in range(place - self.fragments[place].number, place + 1))

    def _prefix(self, beginning: Sequence[Fragment], restitch: bool = False) -> Prefix:
        before = [None, *beginning]
        return tuple(
            (self._place[fragment], previous is not None and (restitch or not follows(previous, fragment)))
            for previous, fragment in zip(before, beginning, strict=False)
        )

    def _forget(self) -> None:
        self._recent = _Recent(self.memory)
        self._stitches: weakref.WeakValueDictionary[Prefix, nn.Module] = weakref.WeakValueDictionary()
        self._rows: dict[tuple[int, bool], torch.Tensor] = {}
        self._kernels: dict[Prefix, np.ndarray] = {}

    def __getstate__(self) -> dict[str, Any]:
        forgotten = ("_recent", "_stitches", "_rows", "_kernels")
        return {name: value for name, value in self.__dict__.items() if name not in forgotten}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()

    def __repr__(self) -> str:
        parts = ", ".join(f"{name} with {len(found)} fragments" for name, found in self._by_network.items())
        return f"Pool({parts}; {len(self.images)} images)"


class Chain(Subnetwork):
    """Fragments of a pool one behind another. Whatever needs no stitch is known at once; stitches are fitted, one after
    another on the chain so far, when they are first asked for."""

    def __init__(
        self,
        pool: Pool,
        fragments: tuple[Fragment, ...],
        restitch: bool = False,
        x: np.ndarray | None = None,
        active: np.ndarray | None = None,
    ):
        self.space, self.fragments = pool, fragments
        self._prefix = pool._prefix(fragments, restitch)
        self.x = self._code if x is None else x
        self._active = np.ones(len(self.x), dtype=bool) if active is None else active

    @property
    def active(self) -> np.ndarray:
        return self._active

    @cached_property
    def key(self) -> str:
        return key(self.space.structure, self._code)

    @cached_property
    def _code(self) -> np.ndarray:
        """The chain as booleans: for each fragment its place, counted from 1, in binary, and whether there is a stitch
        before it. Chains that begin alike have codes that do."""
        total = len(self.space.fragments)
        width = total.bit_length()
        code = np.zeros((total, width + 1), dtype=bool)
        for row, (place, stitched) in zip(code, self._prefix, strict=False):
            row[:] = [*(bit == "1" for bit in f"{place + 1:0{width}b}"), stitched]
        return code.ravel()

    @cached_property
    def cost(self) -> int:
        return sum(step.cost for step in self.steps())

    @cached_property
    def links(self) -> list[Link]:
        return [link for link in self.joins if link is not None]

    @cached_property
    def joins(self) -> list[Link | None]:
        """Before each fragment the link that leads to it, None where there is no stitch."""
        before = [None, *self.fragments]
        return [
            self.space.link(previous, fragment, _stitch_name(self._prefix[: i + 1])) if stitched else None
            for i, (previous, fragment, (_, stitched)) in enumerate(
                zip(before, self.fragments, self._prefix, strict=False)
            )
        ]

    @cached_property
    def stitches(self) -> nn.ModuleDict:
        """Fitted now, if no chain before has needed them."""
        found = {link.stitch: self.space.stitch(self._prefix[: i + 1]) for i, link in enumerate(self.joins) if link}
        return nn.ModuleDict(found)

    @property
    def outputs(self) -> list[Network]:
        return [self.fragments[-1].network]

    def steps(self) -> Iterator[Step]:
        ids, done = self.space._ids, set()
        for fragment, link in zip(self.fragments, self.joins, strict=True):
            name = fragment.network.name
            own = {}
            if link is not None:
                at = ~ids[name, link.target.name]
                own = {link.target.name: at}
                source = ids[link.source.network, link.source.name]
                yield Step(at, {link.source.name: source}, self.space.link_cost(link), link=link)
            for node in fragment.nodes:
                i = ids[name, node.name]
                if i not in done:  # made of weights alone, and read by an earlier fragment too
                    done.add(i)
                    reads = {of: own.get(of, ids[name, of]) for of in dict.fromkeys(node.inputs()) if of != INPUT}
                    yield Step(i, reads, node.cost, fragment.network, node)

    @property
    def results(self) -> list[int]:
        network = self.fragments[-1].network
        return [self.space._ids[network.name, network.output]]

    def fit(self, images: Any, **options: Any) -> Any:
        """A chain takes no training: a ValueError that says what to do instead."""
        raise ValueError(
            "the stitches of a chain are fitted in closed form to the images of its pool, and not trained. Make a pool with "
            "more images or bias=True, or train chain.module() as any other module."
        )

    def fused(self, name: str = "chain") -> Network:
        """The chain as a network of its own, batch norms folded into the convolutions before them, and each stitch fused
        into the layers behind it where that is exact: see `fusing.fused`. Its `difference` is that from `module()` on two
        images."""
        found = fused(folded(as_network(self, name)))
        images = self.space.images[:2]
        with torch.no_grad():
            difference = (found.module()(images) - self.module()(images)).abs().max().item()
        return replace(found, difference=difference)

    def __repr__(self) -> str:
        parts = "".join(f" {'→ ' if link else ''}{f}" for f, link in zip(self.fragments, self.joins, strict=True))
        stitches = f"{self.n_stitches} stitch{'es' * (self.n_stitches != 1)}"
        return f"Chain({parts.strip()}, {stitches}, {self.cost:,} multiply-adds)"


class Factors(nn.Module):
    """An affine map of vectors whose matrix is of low rank, as the product of two."""

    def __init__(self, channels_in: int, rank: int, channels_out: int, bias: bool):
        super().__init__()
        self.down, self.up = nn.Linear(channels_in, rank, bias=False), nn.Linear(rank, channels_out, bias=bias)

    @property
    def bias(self) -> nn.Parameter | None:
        return self.up.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.up(self.down(x))


def _stitch_name(prefix: Prefix) -> str:
    """A name for the stitch before the last fragment of a beginning: no other has the same."""
    return "join_" + "_".join(f"{'s' * stitched}{place}" for place, stitched in prefix)


def follows(first: Fragment, second: Fragment) -> bool:
    """Whether a fragment comes behind another in their network."""
    return first.network is second.network and first.number + 1 == second.number


class _Recent:
    """What was used last, as much as there is room for."""

    def __init__(self, room: int):
        self.room = room
        self._held: OrderedDict[Any, tuple[Any, int]] = OrderedDict()

    def get(self, name: Any) -> Any:
        if name not in self._held:
            return None
        self._held.move_to_end(name)
        return self._held[name][0]

    def add(self, name: Any, value: Any, size: int) -> None:
        self._held[name] = value, size
        self.room -= size
        while self.room < 0:
            _, (_, freed) = self._held.popitem(last=False)
            self.room += freed


def _checked_images(networks: Sequence[Network], images: Any) -> torch.Tensor:
    shape = networks[0].input_shape
    is_tensor = isinstance(images, torch.Tensor)
    if is_tensor and images.dtype is torch.uint8:
        images = images.float() / 255
    if not is_tensor or images.dtype is not torch.float32 or tuple(images.shape[1:]) != shape or not len(images):
        given = f"{images.dtype} of shape {tuple(images.shape)}" if is_tensor else type(images).__name__
        raise ValueError(
            f"stitches are fitted on a tensor of one or more float32 images of shape {shape}, but {given} is given."
        )
    if any(network.takes_unit_images for network in networks) and not are_unit_images(images):
        raise ValueError(
            f"the images have values from {images.min():.3g} to {images.max():.3g}, but the networks take images in [0, 1] "
            "and normalise them themselves."
        )
    return images.detach().cpu().contiguous()
