"""Subnetworks to train and to try stitches in."""

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ..supernet import Supernet


def random_genotype(supernet: "Supernet", rng: np.random.Generator) -> np.ndarray:
    """A genotype such as a search meets: [G]'s initial density or up to eight times that, the output uniform."""
    density = min(0.5, supernet.density * 2 ** rng.uniform(0, 3))
    x = rng.random(supernet.n_var) < density
    references = list(supernet.references.values())
    x[len(supernet.links) :] = references[rng.integers(len(references))][len(supernet.links) :]
    return x
