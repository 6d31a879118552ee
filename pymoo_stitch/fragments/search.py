"""The published search for chains: depth first, led by how similar a chain's output is to what the next fragment reads
in its own network."""

import math
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import nn

from ..network import Network
from ..task import Engine
from .chain import Chain
from .fragment import Fragment
from .pool import Pool

RANKINGS = {
    "cka": lambda pool, beginning, fragment: -pool.similarity(beginning, fragment),
    "parameters": lambda pool, beginning, fragment: fragment.parameters,
    "cost": lambda pool, beginning, fragment: fragment.cost,
}
"""How candidates are ranked, the smallest value first; add your own as functions of the pool, the chain so far and the
candidate."""


def search_chains(
    pool: Pool, *, k: int = 2, threshold: float = 0.5, length: int = 16, by: str = "cka", start: Fragment | None = None
) -> Iterator[tuple[Chain, float]]:
    """Chains and their scores, as they are found, always in the same order ([SF]).

    A chain grows by one fragment at a time, not used before, the next of its network among the candidates. Of all that
    can follow, the best `k` are tried, the best first, each with all that can follow it before the next. The score is
    the product over all joins of the CKA between the chain's output so far and what the fragment reads in its own
    network.

    >>> pool = Pool(get_problem("digits").space.networks, torch.rand(32, 1, 8, 8))
    >>> for chain, score in search_chains(pool, k=1, start=pool["residual"][0]):
    ...     print(f"{score:.2f}", chain)
    1.00 Chain(residual[0] residual[1] residual[2], 0 stitches, 633,840 multiply-adds)

    :param threshold: chains with a lower score are not extended.
    :param length: how many fragments a chain has at most; the last place is for a network's last fragment.
    :param by: how candidates are ranked: by `"cka"`, the largest first, or by `"parameters"` or `"cost"`, the least
        first.
    :param start: the fragment to begin with; all first ones by default, one after another.
    """
    if k < 1 or length < 1:
        raise ValueError(f"k and length must be at least 1, but are {k} and {length}.")
    if math.isnan(threshold):
        raise ValueError("threshold is a score, such as 0.5, but is nan.")
    if by not in RANKINGS:
        raise ValueError(f"candidates are ranked by {', '.join(map(repr, RANKINGS))}, not by {by!r}.")
    if start is not None and (start not in pool.fragments or not start.is_start):
        raise ValueError(
            f"a chain begins with a first fragment of the pool, such as {pool.fragments[0]}, not with {start}."
        )

    def grown(beginning: tuple[Fragment, ...], score: float) -> Iterator[tuple[Chain, float]]:
        last = beginning[-1]
        if last.is_end:
            yield pool.chain(beginning), score
            return
        places = length - len(beginning)
        candidates = [
            fragment
            for fragment in pool.fragments
            if pool.joins(last, fragment) and fragment not in beginning and (places > 1 or fragment.is_end)
        ]
        candidates.sort(key=lambda fragment: RANKINGS[by](pool, beginning, fragment))
        for fragment in candidates[: k if places else 0]:
            product = score * pool.similarity(beginning, fragment)
            if product >= threshold:
                yield from grown((*beginning, fragment), product)

    for first in [fragment for fragment in pool.fragments if fragment.is_start] if start is None else [start]:
        yield from grown((first,), 1.0)


@dataclass(frozen=True)
class Composed:
    """A chain that was made for some images, its score, and its outputs for them."""

    chain: Chain
    score: float
    outputs: torch.Tensor


def compose(
    networks: Iterable[Network], images: torch.Tensor, *, count: int = 8, head: nn.Module | None = None, **options: Any
) -> list[Composed]:
    """Networks made for images, on the fly, and their predictions ([SF]): chains that `search_chains` finds, with
    stitches fitted on these very images, which need no labels; the highest score first.

    >>> images = torch.rand(32, 1, 8, 8)
    >>> best, *others = compose(get_problem("digits").space.networks, images)
    >>> best.outputs.argmax(1).shape
    torch.Size([32])

    :param count: how many. Equally many begin with each network's first fragment, the first that are found; the
        networks themselves, which have no stitch, are left out.
    :param head: what turns outputs into scores for other classes, such as a `ClassMap`.
    :param options: those of `search_chains` but `start`.
    """
    if count < 1:
        raise ValueError(f"count, the number of networks to make, must be at least 1, but is {count}.")
    if head is not None and not isinstance(head, nn.Module):
        raise TypeError(
            f"without labels a head is a module, such as a ClassMap, not {head!r}. Fitted heads: Task(head=…)."
        )
    pool = Pool(networks, images)
    starts = [fragment for fragment in pool.fragments if fragment.is_start]
    searches = [
        (pair for pair in search_chains(pool, start=start, **options) if pair[0].n_stitches) for start in starts
    ]
    found = list(islice(_in_turn(searches), count))
    outputs = Engine().predict([chain for chain, _ in found], pool.images)
    if head is not None:
        outputs = [head(output) for output in outputs]
    made = [Composed(chain, score, output) for (chain, score), output in zip(found, outputs, strict=True)]
    return sorted(made, key=lambda composed: -composed.score)


def _in_turn(iterators: Iterable[Iterator[Any]]) -> Iterator[Any]:
    """One of each in turn, as long as any has more."""
    waiting = deque(iterators)
    while waiting:
        iterator = waiting.popleft()
        for item in iterator:
            yield item
            waiting.append(iterator)
            break
