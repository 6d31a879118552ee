"""Chains: fragments one after another, as a network ([SF])."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from ..network import INPUT, Network
from ..stitches import Link, switch_at
from ..supernet import Step, Subnetwork, key
from ._beginnings import Prefix
from .fragment import Fragment
from .fusing import as_network, folded, fused

if TYPE_CHECKING:
    from .pool import Pool


class Chain(Subnetwork):
    """Fragments of a pool one after another. Whatever needs no stitch is known at once; stitches are fitted, one after
    another on the chain so far, when they are first asked for."""

    space: "Pool"

    def __init__(
        self,
        pool: "Pool",
        fragments: tuple[Fragment, ...],
        restitch: bool = False,
        x: np.ndarray | None = None,
        active: np.ndarray | None = None,
    ):
        self.space, self.fragments = pool, fragments
        self._prefix = pool.beginnings.prefix(fragments, restitch)
        self.x = pool.spelled(self._prefix) if x is None else x
        self._active = np.ones(len(self.x), dtype=bool) if active is None else active

    @property
    def active(self) -> np.ndarray:
        return self._active

    @cached_property
    def key(self) -> str:
        return key(self.space.structure, self.space.spelled(self._prefix))

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
            self.space.joints.link(previous, fragment, _stitch_name(self._prefix[: i + 1])) if stitched else None
            for i, (previous, fragment, (_, stitched)) in enumerate(
                zip(before, self.fragments, self._prefix, strict=False)
            )
        ]

    @cached_property
    def stitches(self) -> nn.ModuleDict:  # type: ignore[override]  # an attribute elsewhere
        """Fitted now, unless an earlier chain has needed them."""
        found = {
            link.stitch: self.space.beginnings.stitch(self._prefix[: i + 1])
            for i, link in enumerate(self.joins)
            if link
        }
        return nn.ModuleDict(found)

    @property
    def outputs(self) -> list[Network]:
        return [self.fragments[-1].network]

    def _steps(self) -> Iterator[Step]:
        ids, done = self.space._ids, set[int]()
        for fragment, link in zip(self.fragments, self.joins, strict=True):
            name = fragment.network.name
            own = {}
            if link is not None:
                at = switch_at(ids[name, link.target.name])
                own = {link.target.name: at}
                source = ids[link.source.network, link.source.name]
                yield Step(at, {link.source.name: source}, self.space.joints.cost(link), link=link)
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

    def retrain(self, images: Any, **options: Any) -> Any:
        """Raises a ValueError that says what to do instead: a chain is not trained."""
        raise ValueError(
            "the stitches of a chain are fitted in closed form to the images of its pool, and not trained. Make a pool "
            "with more images or bias=True, or train chain.module() like any other module."
        )

    def fused(self, name: str = "chain") -> Network:
        """The chain as a network of its own, batch norms folded into the convolutions before them, and each stitch
        fused into the layers after it where that is exact: see `fusing.fused`. Its `difference` is that from
        `module()` on two images."""
        found = fused(folded(as_network(self, name)))
        images = self.space.images[:2]
        with torch.no_grad():
            difference = (found.module()(images) - self.module()(images)).abs().max().item()
        return replace(found, difference=difference)

    def __repr__(self) -> str:
        parts = "".join(f" {'→ ' if link else ''}{f}" for f, link in zip(self.fragments, self.joins, strict=True))
        stitches = f"{self.n_stitches} stitch{'es' * (self.n_stitches != 1)}"
        return f"Chain({parts.strip()}, {stitches}, {self.cost:,} multiply-adds)"


def _stitch_name(prefix: Prefix) -> str:
    """A name for the stitch before the last fragment of a beginning: no other has the same."""
    return "join_" + "_".join(f"{'s' * stitched}{place}" for place, stitched in prefix)
