"""Which blocks of a family's anchors are joined ([SN])."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, pairwise

from ..network import Network, Tap, is_alias, short_name
from ..stitches import Link, are_alike, check_options
from .blocks import Stage, stages


def _by_cost(networks: Iterable[Network]) -> list[Network]:
    return sorted(networks, key=lambda network: network.cost)


# ---------------------------------------------------------------------------------------------------------------- links


def family_links(
    networks: Sequence[Network],
    *,
    window: int = 2,
    stride: int = 1,
    pairs: str = "neighbours",
    kind: str = "linear",
    blocks: Mapping[str, Sequence[str]] | None = None,
) -> list[Link]:
    """[SN]: links from the ends of a cheaper anchor's blocks to what the blocks of a more expensive one read.

    Networks of one stage and equal depth: windows of `window` blocks at every `stride`-th block; each block of a window
    is joined with each other of the same window, those of one window share a stitch, and two blocks that are in several
    windows together belong to the first. Networks of several stages: the same inside each stage but the last, and only
    from a block to later ones. Stages of unequal depth: block i of the more expensive network, of L₂ blocks, goes with
    block ⌊i·L₁/L₂⌋ of the cheaper one, if that is an earlier one; links from one block share a stitch.

    :param networks: of the same number of stages, alike in layout and size.
    :param pairs: `"neighbours"`: each anchor with the next more expensive one. `"all"`: with every more expensive one.
    :param kind: what the stitches are made of.
    :param blocks: for networks whose blocks are not found, the names of the modules that are blocks, by the network's
        name: see `families.stages`.
    """
    check_options(pairs, kind)
    for name, value in (("window", window), ("stride", stride)):
        if not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} must be a number of blocks, at least 1, but is {value!r}.")
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
            for j, k, shared in _pairs(len(both[0]), len(both[1]), window, stride, several):
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
                    f"stage {number} of {first} is {forms[0]} and of {name} {forms[1]}. The networks of a family are "
                    "alike in layout and size; others are joined by Supernet.build(…, resize=True)."
                )


def _around_final_norm(network: Network, last: Stage) -> Link:
    """A link from the input of the norm after the last block to its output."""
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
