"""The links of a supernet: checked, ordered, named, and the stitches they need."""

import keyword
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import nn

from ..network import Network, Tap, run_new_modules, unique_name
from ..stitches import KINDS, Link, Wiring, build_stitch, is_direct, working_layout


def check_links(networks: Sequence[Network], links: Iterable[Link]) -> list[Link]:
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
                    f"the link {link} uses a tap {tap} that is not among the taps of the networks "
                    f"{', '.join(n.name for n in networks)}."
                )
        if link.kind not in KINDS:
            raise ValueError(
                f"the link {link} asks for a stitch of kind {link.kind!r}; choose from {', '.join(sorted(KINDS))}."
            )
        if working_layout(KINDS[link.kind], link.source, link.target) is None:
            ends = f"{link.source.layout} {link.source.shape} to {link.target.layout} {link.target.shape}"
            raise ValueError(f"a stitch of kind {link.kind!r} cannot lead from {ends}, as the link {link} asks.")
        if link.stitch is not None:
            first = shared.setdefault(link.stitch, link)
            if (first.kind, _ends(first)) != (link.kind, _ends(link)):
                raise ValueError(
                    f"the links {first} and {link} cannot share the stitch {link.stitch!r}: their kinds, layouts or "
                    "channels differ."
                )
            free = isinstance(link.stitch, str) and link.stitch.isidentifier() and link.stitch.isascii()
            if not free or keyword.iskeyword(link.stitch) or hasattr(_EMPTY, link.stitch):
                raise ValueError(
                    "a stitch's name must consist of letters, digits and underscores, begin with a letter, and not be "
                    f"one that Python or modules use themselves, but is {link.stitch!r}."
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


# ------------------------------------------------------------------------------------------------------ links, stitches


def ends_of(link: Link) -> frozenset:
    return frozenset((end.network, end.name) for end in (link.source, link.target))


def in_order(links: Sequence[Link], wiring: Wiring, order: Sequence[int]) -> list[Link]:
    """Links in topological order, those between the same two taps together, each where the first of its switches is."""
    place = {i: number for number, i in enumerate(order)}
    first: dict[frozenset, int] = {}
    for link in links:
        at = place[wiring.switch(link)]
        first[ends_of(link)] = min(first.get(ends_of(link), at), at)
    given = {pair: number for number, pair in enumerate(first)}
    return sorted(links, key=lambda link: (first[ends_of(link)], given[ends_of(link)]))


def named_stitches(links: Sequence[Link]) -> tuple[Link, ...]:
    """Name the stitch of each link that does not name one."""
    given = {link.stitch for link in links}
    return tuple(
        link if link.stitch else replace(link, stitch=unique_name(f"link{i}", given)) for i, link in enumerate(links)
    )


def new_stitches(links: Sequence[Link]) -> nn.ModuleDict:
    """A stitch for each name, unfitted, the same in every process."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = {link.stitch: link for link in reversed(links)}
        return nn.ModuleDict({name: build_stitch(link) for name, link in made.items()}).eval()


def given_stitches(links: Sequence[Link], tensors: Mapping[str, torch.Tensor]) -> nn.ModuleDict:
    with torch.device("meta"):
        stitches = new_stitches(links)
    for name, expected in stitches.state_dict().items():
        found = tensors.get(name)
        if found is None or (found.shape, found.dtype) != (expected.shape, expected.dtype):
            given = "it is missing" if found is None else f"{found.dtype} of shape {tuple(found.shape)} is given"
            raise ValueError(
                f"the stitches need a tensor {name!r} of {expected.dtype} and shape {tuple(expected.shape)}; {given}."
            )
    if unknown := set(tensors) - set(stitches.state_dict()):
        raise ValueError(f"no stitch uses the tensor {min(unknown)!r}.")
    stitches.load_state_dict({name: tensor.detach().clone() for name, tensor in tensors.items()}, assign=True)
    return stitches


def link_costs(links: Sequence[Link]) -> list[int]:
    """Multiply-adds of each link's stitch, measured once for each pair of shapes."""
    examples = {_shapes(link): link for link in links}
    found = run_new_modules((partial(build_stitch, link), link.source.shape) for link in examples.values())
    known = {}
    for (shapes, link), (shape, cost) in zip(examples.items(), found, strict=True):
        if shape != link.target.shape:
            raise ValueError(
                f"a stitch of kind {link.kind!r} returns {shape} where the link {link} needs {link.target.shape}."
            )
        known[shapes] = cost
    return [known[_shapes(link)] for link in links]


def _shapes(link: Link) -> tuple:
    return link.kind, link.source.layout, link.source.shape, link.target.layout, link.target.shape
