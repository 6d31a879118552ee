"""Networks of one design, stitched fast-to-slow ([SN]).

In: networks of different size. Out: a `Family`, the list of these and of all stitched ones by cost, and a `Switchable`
module that is any of its members.

May import: `util`, `network`, `stitches`, `supernet`.
"""

from .blocks import Stage, stages
from .costs import fvcore_cost
from .family import Family
from .links import family_links
from .switching import Switchable

__all__ = ["Family", "Stage", "Switchable", "family_links", "fvcore_cost", "stages"]
