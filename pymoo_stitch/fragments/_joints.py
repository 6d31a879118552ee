"""Where fragments can be joined, and what the stitches there cost."""

import math

from ..network import Layout
from ..stitches import KINDS, Link, channels_read, is_direct, working_layout
from .fragment import Fragment, follows


class Joints:
    """How the fragments of a pool are joined: by linear maps of channels, with or without bias.

    :param kind: `"linear"`, or `"matrix"` without bias.
    :param n_images: on how many images the maps are fitted.
    """

    def __init__(self, kind: str, n_images: int):
        self.kind, self.n_images = kind, n_images

    def possible(self, first: Fragment, second: Fragment) -> bool:
        """Whether a fragment can follow another."""
        if first.is_end or second.is_start or first == second:
            return False
        return follows(first, second) or working_layout(KINDS[self.kind], first.last, second.first) is not None

    def link(self, first: Fragment, second: Fragment, stitch: str | None = None) -> Link:
        """The connection through a stitch from one fragment to another."""
        return Link(first.last, second.first, self.kind, stitch)

    def cost(self, link: Link) -> int:
        """The multiply-adds of a link's stitch, which is one map of channels at each of the target's positions."""
        channels, rank, target = channels_read(link), self.rank(link), link.target
        if rank is not None:
            return rank * (channels + target.channels)
        return channels * target.channels * math.prod(target.positions if is_direct(link) else target.grid or ())

    def rank(self, link: Link) -> int | None:
        """How many dimensions are enough for a stitch between vectors: it is fitted to one for each image, and wide
        ones would make it a huge matrix of low rank. None where a whole matrix is smaller than its two factors."""
        rank, channels, given = self.n_images, channels_read(link), link.target.channels
        is_less = rank * (channels + given) < channels * given
        return rank if link.target.layout is Layout.VECTOR and is_less else None
