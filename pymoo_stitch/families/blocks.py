"""The blocks and stages of a network, found in its graph: the places at which a family joins its networks."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ..network import Network, Tap


@dataclass(frozen=True)
class Stage:
    """Consecutive blocks that end in tensors of one layout and shape: `ends`, a tap for each block. `start` is the tap
    that the first block reads, None where that has another layout or shape."""

    start: Tap | None
    ends: tuple[Tap, ...]

    def before(self, block: int) -> Tap | None:
        """The tap that a block reads."""
        return self.ends[block - 1] if block else self.start

    def __len__(self) -> int:
        return len(self.ends)


def stages(network: Network, names: Sequence[str] | None = None) -> list[Stage]:
    """The stages of a network.

    A block is a numbered module (`blocks.3`, `layer1.0`, `encoder_layer_5`) whose last tap is a cut while other
    tensors in it are not: something runs beside the main stream and rejoins it. Of modules inside one another the
    innermost is the block. Raises a ValueError if there is none.

    :param names: the modules that are blocks, in their order, where they are not numbered or not residual; the only
        condition is that each ends in a cut."""
    along = {tap.name for tap in network.cuts}
    found = _numbered(network, along) if names is None else _named(network, along, names)
    if not found:
        raise ValueError(
            f"no blocks are found in {network.name}: no numbered module with a residual inside ends in a tensor "
            "through which everything passes. Name its blocks: blocks={'" + network.name + "': ['module', …]}."
        )
    taps = {tap.name: tap for tap in network.taps}
    groups: list[list[tuple[int, Tap]]] = []
    for first, end in found:
        if groups and _form(groups[-1][-1][1]) == _form(taps[end]):
            groups[-1].append((first, taps[end]))
        else:
            groups.append([(first, taps[end])])
    return [Stage(_start(network, along, *group[0]), tuple(tap for _, tap in group)) for group in groups]


Found = tuple[int, str]
"""Of a block: where its first node is among the network's, and the name of the tap in which it ends."""


def _numbered(network: Network, along: set[str]) -> list[Found]:
    taps = {tap.name for tap in network.taps}
    inside: dict[str, list[int]] = {}
    for i, node in enumerate(network.nodes):
        parts = (node.path or "").split(".")
        for length in range(1, len(parts) + 1):
            if re.search(r"\d$", parts[length - 1]):
                inside.setdefault(".".join(parts[:length]), []).append(i)
    blocks: dict[str, Found] = {}
    for module, places in inside.items():
        own = [name for i in places if (name := network.nodes[i].name) in taps]
        if own and own[-1] in along and not along.issuperset(own):
            blocks[module] = places[0], own[-1]
    outer = {module for module in blocks for other in blocks if other.startswith(f"{module}.")}
    return sorted(found for module, found in blocks.items() if module not in outer)


def _named(network: Network, along: set[str], names: Sequence[str]) -> list[Found]:
    if isinstance(names, str):
        raise TypeError(f"the blocks of {network.name} are a list of names of modules, not the string {names!r}.")
    taps = {tap.name for tap in network.taps}
    found = []
    for name in names:
        places = [i for i, node in enumerate(network.nodes) if f"{node.path}.".startswith(f"{name}.")]
        own = [network.nodes[i].name for i in places if network.nodes[i].name in taps]
        if not own:
            network.tap(name)  # its error names the nearest
            raise ValueError(f"{name!r} is a tap of {network.name}, not a module with taps of its own.")
        if own[-1] not in along:
            raise ValueError(
                f"{name!r} is not a block of {network.name}: its last tensor, {own[-1]}, does not lie on every path "
                "from the input to the output. Name a module at whose end the paths have rejoined."
            )
        found.append((places[0], own[-1]))
    if found != sorted(found):
        raise ValueError(f"the blocks of {network.name} must be named in the order in which they run.")
    return found


def _start(network: Network, along: set[str], first: int, end: Tap) -> Tap | None:
    """The last cut before a node, if it is of the form of `end`."""
    before = {node.name for node in network.nodes[:first]} & along
    tap = next((tap for tap in reversed(network.taps) if tap.name in before), None)
    return tap if tap is not None and _form(tap) == _form(end) else None


def _form(tap: Tap) -> tuple:
    return tap.layout, tap.shape
