"""Which taps of two networks belong together: an alignment of their topological orders."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import networkx as nx
import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching

from ..network import Network, Tap
from .kinds import KINDS
from .link import Link, are_alike, working_layout
from .wiring import Wiring

Match = tuple[Tap, Tap]
Weight = Callable[[Sequence[Tap], Sequence[Tap]], np.ndarray]
"""How well each tap of one network goes with each of another, in [0, 1], as an array with a row per tap of the
first."""


@dataclass(frozen=True)
class Matching:
    """`matches` in topological order; `bound`, which no number of matches can exceed; `dropped`, the matches left out
    because they would close a cycle."""

    matches: tuple[Match, ...]
    bound: int
    dropped: tuple[Match, ...] = ()
    kind: str = "linear"

    @property
    def links(self) -> list[Link]:
        """Two links for each match, one each way."""
        return [link for pair in self.matches for link in both_ways(pair, self.kind)]


def relative_depth(first: Sequence[Tap], second: Sequence[Tap]) -> np.ndarray:
    """1 for taps equally deep among those of the same layout and size in their own networks, 0 for the first of one
    and the last of the other: spreads the matches over the networks. (The depth in the whole network would bunch them
    where one network spends its multiply-adds at other sizes than the other.)"""
    a, b = _depth_at_own_size(first), _depth_at_own_size(second)
    return 1 - np.abs(a[:, None] - b[None, :])


def network_depth(first: Sequence[Tap], second: Sequence[Tap]) -> np.ndarray:
    """1 for taps equally deep in their networks, 0 for the beginning of one and the end of the other: where sizes may
    differ, it keeps them from differing much."""
    a, b = (np.array([tap.depth for tap in taps]) for taps in (first, second))
    return 1 - np.abs(a[:, None] - b[None, :])


def _depth_at_own_size(taps: Sequence[Tap]) -> np.ndarray:
    depths: dict[tuple, list[float]] = {}
    for tap in taps:
        depths.setdefault((tap.layout, tap.positions), []).append(tap.depth)
    ranges = {size: (min(values), max(values)) for size, values in depths.items()}
    lows, highs = np.array([ranges[tap.layout, tap.positions] for tap in taps]).reshape(-1, 2).T
    own = np.array([tap.depth for tap in taps])
    return np.divide(own - lows, highs - lows, out=np.full(len(taps), 0.5), where=highs > lows)


def match(
    networks: Sequence[Network],
    *,
    pairs: str = "neighbours",
    kind: str = "linear",
    resize: bool = False,
    weight: Weight | None = None,
) -> Matching:
    """Match the taps of networks so that as many as possible are matched, and among such matchings the sum of weights
    is largest.

    Each pair of networks is aligned in the order of their nodes: a tap is in at most one match with another network,
    and links both ways through all matches leave the supernet acyclic.

    :param pairs: `"neighbours"`: each network with the next more expensive one. `"all"`: every two networks, the
        neighbours first; a later match that would close a cycle is dropped.
    :param kind: what the stitches are made of.
    :param resize: match taps of different layouts and sizes too, where the kind can join them.
    :param weight: `relative_depth` by default, with `resize` `network_depth`.
    """
    check_options(pairs, kind)
    for network in networks:
        if not isinstance(network, Network):
            raise TypeError(
                f"Network objects are matched, not {type(network).__name__}. Use Network.from_module first."
            )
    weight = weight or (network_depth if resize else relative_depth)
    by_cost = sorted(networks, key=lambda network: network.cost)
    neighbours = list(pairwise(by_cost))
    others = [pair for pair in combinations(by_cost, 2) if pair not in neighbours] if pairs == "all" else []
    bound, matches, dropped = 0, [], []
    for first, second in neighbours + others:
        compatible = _compatible(first.taps, second.taps, kind, resize)
        bound += _bound(compatible)
        found = [(first.taps[i], second.taps[j]) for i, j in align(compatible, weight(first.taps, second.taps))]
        if (first, second) in neighbours:  # a chain of alignments has no cycle
            matches += found
        else:
            kept = _acyclic(networks, matches, found, kind)
            matches += kept
            dropped += [pair for pair in found if pair not in kept]
    return Matching(tuple(matches), bound, tuple(dropped), kind)


def check_options(pairs: str, kind: str) -> None:
    if pairs not in ("neighbours", "all"):
        raise ValueError(f"pairs must be 'neighbours' or 'all', but is {pairs!r}.")
    if kind not in KINDS:
        raise ValueError(f"there is no kind of stitch {kind!r}; choose from {', '.join(sorted(KINDS))}.")


def align(compatible: np.ndarray, weight: np.ndarray) -> list[tuple[int, int]]:
    """Pairs (i, j), increasing in both, of compatible rows and columns: as many as possible, then of the largest sum of
    weights.

    Dynamic programming over all beginnings of the two orders; a pair counts for more than any sum of weights."""
    rows, columns = compatible.shape
    if weight.shape != compatible.shape or not np.isfinite(weight[compatible]).all():
        raise ValueError(
            f"weights must be finite numbers of shape {compatible.shape}, but are of shape {weight.shape}."
        )
    gain = np.where(compatible, min(rows, columns) + 1.0 + np.clip(weight, 0, 1), -np.inf)
    best = np.zeros((rows + 1, columns + 1))
    for i in range(rows):
        best[i + 1, 1:] = np.maximum(best[i, 1:], best[i, :-1] + gain[i])
        np.maximum.accumulate(best[i + 1], out=best[i + 1])
    pairs, i, j = [], rows, columns
    while i and j:
        if best[i, j] == best[i - 1, j]:
            i -= 1
        elif best[i, j] == best[i, j - 1]:
            j -= 1
        else:
            i, j = i - 1, j - 1
            pairs.append((i, j))
    return pairs[::-1]


def _compatible(first: Sequence[Tap], second: Sequence[Tap], kind: str, resize: bool) -> np.ndarray:
    """Where a stitch can lead both ways. Checked once for each pair of shapes, not for each pair of taps."""

    def joins(a: Tap, b: Tap) -> bool:
        if not are_alike(a, b) and (not resize or 1 in (*a.positions, *b.positions)):
            return False  # what is pooled to one position has nothing to resize
        return bool(working_layout(KINDS[kind], a, b) and working_layout(KINDS[kind], b, a))

    shapes_a, index_a = _distinct(first)
    shapes_b, index_b = _distinct(second)
    table = np.array([[joins(a, b) for b in shapes_b] for a in shapes_a], dtype=bool)
    return table.reshape(len(shapes_a), len(shapes_b))[np.ix_(index_a, index_b)]


def _distinct(taps: Sequence[Tap]) -> tuple[list[Tap], list[int]]:
    """One tap for each layout and shape, and for each tap the one of these that it is like."""
    examples: dict[tuple, int] = {}
    index = [examples.setdefault((tap.layout, tap.shape), len(examples)) for tap in taps]
    chosen: dict[int, Tap] = {}
    for tap, number in zip(taps, index, strict=True):
        chosen.setdefault(number, tap)
    return [chosen[number] for number in range(len(chosen))], index


def _bound(compatible: np.ndarray) -> int:
    """The most matches there could be if order did not matter."""
    return int((maximum_bipartite_matching(csr_array(compatible)) >= 0).sum())


def _acyclic(
    networks: Sequence[Network], matches: Sequence[Match], candidates: Sequence[Match], kind: str
) -> list[Match]:
    """The candidates that can be added to the matches, one after another, without a cycle."""
    wiring = Wiring(networks, [link for pair in [*matches, *candidates] for link in both_ways(pair, kind)])
    graph = wiring.graph
    edges = {pair: [wiring.edge(link) for link in both_ways(pair, kind)] for pair in candidates}
    for pair in candidates:
        graph.remove_edges_from(edges[pair])
    kept = []
    for pair in candidates:
        if not any(nx.has_path(graph, switch, source) for source, switch in edges[pair]):
            graph.add_edges_from(edges[pair])
            kept.append(pair)
    return kept


def both_ways(pair: Match, kind: str) -> tuple[Link, Link]:
    return Link(*pair, kind), Link(*pair[::-1], kind)
