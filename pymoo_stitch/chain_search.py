"""The published search for chains: depth first, led by how alike a chain's output is to what a fragment is used to read."""

from collections.abc import Iterator

from .chains import Chain, Pool
from .fragments import Fragment

RANKINGS = {
    "cka": lambda pool, beginning, fragment: -pool.similarity(beginning, fragment),
    "parameters": lambda pool, beginning, fragment: fragment.parameters,
    "cost": lambda pool, beginning, fragment: fragment.cost,
}
"""By what candidates are ranked, the least first; yours are added as functions of the pool, the chain so far and the candidate."""


def search_chains(
    pool: Pool, *, k: int = 2, threshold: float = 0.5, length: int = 16, by: str = "cka", start: Fragment | None = None
) -> Iterator[tuple[Chain, float]]:
    """Chains and their scores, as they are found, always in the same order ([SF]).

    A chain grows by one fragment at a time, not used before, the next of its network among the candidates. Of all that can
    follow, the best `k` are tried, the best first, each with all that can follow it before the next. The score is the
    product over all joins of the CKA between what the chain gives so far and what the fragment reads in its own network.

    >>> pool = Pool(get_problem("digits").space.networks, torch.rand(32, 1, 8, 8))
    >>> for chain, score in search_chains(pool, k=1, start=pool["residual"][0]):
    ...     print(f"{score:.2f}", chain)
    1.00 Chain(residual[0] residual[1] residual[2], 0 stitches, 441,160 multiply-adds)

    :param threshold: what scores less is not pursued.
    :param length: how many fragments a chain has at most; the last place is for a network's last fragment.
    :param by: how candidates are ranked: by `"cka"`, the largest first, or by `"parameters"` or `"cost"`, the least first.
    :param start: the fragment to begin with; all first ones by default, one after another.
    """
    if k < 1 or length < 1:
        raise ValueError(f"k and length must be at least 1, but are {k} and {length}.")
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
