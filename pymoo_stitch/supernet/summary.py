"""A supernet as a table a person can read."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..network import Network, Tap
from ..util.tables import table

if TYPE_CHECKING:
    from .supernet import Supernet


def summary(supernet: "Supernet") -> str:
    networks = supernet.networks
    rows = [["network", "taps", "parameters", "multiply-adds", "input"]]
    rows += [[n.name, f"{len(n.taps)}", f"{n.n_parameters:,}", f"{n.cost:,}", describe_input(n)] for n in networks]
    total = sum(parameter.numel() for parameter in supernet.stitches.parameters())
    bound = "" if supernet.bound is None else f" of at most {supernet.bound}"
    several = f", the output's with {len(networks)} networks and their ensemble" if len(networks) > 1 else ""
    lines = [
        f"Supernet of {len(networks)} network{'s' * (len(networks) > 1)} for inputs of {_sizes(supernet.input_shape)}",
        "",
        *table(rows),
        "",
        *table(_scales(supernet)),
        "",
        f"matches            {supernet.n_matches:,}{bound}",
        f"links              {len(supernet.links):,}",
        f"switches           {supernet.n_switches:,}{several}",
        f"variables          {supernet.n_var:,}",
        f"stitch parameters  {total:,} in {len(supernet.stitches):,} stitches",
    ]
    if supernet.fit_report is not None:
        worst = supernet.fit_report.hopeless[:3]
        lines += ["", *str(supernet.fit_report).splitlines()]
        lines += [f"  {link.stitch}: {link}" for name in worst for link in supernet.links if link.stitch == name]
    if supernet.dropped:
        lines += [
            "",
            f"{len(supernet.dropped)} matches were left out because they would close a cycle:",
            *(f"  {a} ↔ {b}" for a, b in supernet.dropped[:10]),
        ]
        if len(supernet.dropped) > 10:
            lines.append(f"  … and {len(supernet.dropped) - 10} more: `supernet.dropped` lists all")
    return "\n".join(lines)


def describe_input(network: Network) -> str:
    """What values a network takes."""
    if network.takes_unit_images:
        return "images in [0, 1], normalised in the graph"
    if network.takes_unit_images is None:
        return "as the module takes it"
    return "images normalised with mean {}, std {}".format(*network.trained.normalization)


def _scales(supernet: "Supernet") -> list[list[str]]:
    """Matches for each layout and size, with how many taps of each network are there."""
    pairs = {frozenset((link.source, link.target)): link.target for link in supernet.links}
    matches = Counter(_scale(tap) for tap in pairs.values())
    per_network = [Counter(_scale(tap) for tap in network.taps) for network in supernet.networks]
    rows = [["matches at", "matches", *(f"taps of {network.name}" for network in supernet.networks)]]
    order = list(dict.fromkeys(_scale(tap) for network in supernet.networks for tap in network.taps))
    return rows + [
        [scale, f"{matches[scale]}", *(f"{taps[scale]}" for taps in per_network)] for scale in order if matches[scale]
    ]


def _scale(tap: Tap) -> str:
    return f"{tap.layout} {_sizes(tap.positions)}".strip()


def _sizes(sizes: Sequence[int]) -> str:
    return "×".join(map(str, sizes))
