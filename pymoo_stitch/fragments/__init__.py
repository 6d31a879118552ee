"""Networks put together from pieces of others, without training ([SF]).

In: networks, and some images without labels. Out: a `Pool` of their fragments, `Chain`s of these, the published search
for them, and all chains as a space (`ChainSpace`).

May import: `util`, `network`, `stitches`, `supernet`, `fitting`, `task`.
"""

from .chain import Chain
from .fragment import Fragment, fragments, fusible_cuts
from .pool import Pool
from .search import RANKINGS, Composed, compose, search_chains
from .space import ChainSpace

__all__ = [
    "RANKINGS",
    "Chain",
    "ChainSpace",
    "Composed",
    "Fragment",
    "Pool",
    "compose",
    "fragments",
    "fusible_cuts",
    "search_chains",
]
