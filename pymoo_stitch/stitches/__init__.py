"""What joins two taps, and which taps are joined.

In: networks. Out: kinds of stitches (`KINDS`), links between taps, the matching that makes them, and the wiring that
results.

May import: `network`.
"""

from .conversions import as_image
from .kinds import KINDS, Kind
from .link import Link, Modules, are_alike, build_stitch, channels_read, is_direct, working_layout
from .matching import Match, Matching, Weight, check_options, match
from .similarity import CKA, LEAST, hsic, kernel
from .wiring import Wiring, is_switch, node_of, switch_at

__all__ = [
    "CKA",
    "KINDS",
    "LEAST",
    "Kind",
    "Link",
    "Match",
    "Matching",
    "Modules",
    "Weight",
    "Wiring",
    "are_alike",
    "as_image",
    "build_stitch",
    "channels_read",
    "check_options",
    "hsic",
    "is_direct",
    "is_switch",
    "kernel",
    "match",
    "node_of",
    "switch_at",
    "working_layout",
]
