"""Stitch trained neural networks into a supernet and search it with pymoo."""

from .layout import Layout
from .matching import Matching, match
from .network import Network, Tap
from .stitches import KINDS, Kind, Link
from .supernet import Subnetwork, Supernet

__all__ = ["KINDS", "Kind", "Layout", "Link", "Matching", "Network", "Subnetwork", "Supernet", "Tap", "match"]
