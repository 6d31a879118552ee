"""Non-dominated solutions."""

import numpy as np
from pymoo.util.nds.non_dominated_sorting import NonDominatedSorting


def on_front(F: np.ndarray, sound: np.ndarray | None = None) -> np.ndarray:
    """A mask over the rows of F: those that no other row dominates. Equal rows are all on the front, or none is.

    :param sound: a mask over the rows: those that count.
    """
    mask = np.zeros(len(F), dtype=bool)
    rows = np.arange(len(F)) if sound is None else np.flatnonzero(sound)
    if len(rows):
        mask[rows[NonDominatedSorting().do(F[rows], only_non_dominated_front=True)]] = True
    return mask


def front_of(F: np.ndarray, sound: np.ndarray | None = None) -> np.ndarray:
    """The rows of F that no other dominates, of equal ones the first, by the first objective."""
    rows = np.flatnonzero(on_front(F, sound))
    _, first = np.unique(F[rows], axis=0, return_index=True)
    return rows[first]


def dominates(f: np.ndarray, other: np.ndarray) -> bool:
    """Whether objectives are nowhere worse and somewhere better than others."""
    return bool((f <= other).all() and (f < other).any())
