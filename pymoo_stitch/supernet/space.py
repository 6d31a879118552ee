"""Spaces: whatever genotypes select subnetworks from."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from ..network import Network
    from .subnetwork import Subnetwork

ONES = 6.18
"""[G] 7: how many variables of a genotype are 1 at first, on average."""


class Outline(NamedTuple):
    """What is known of a genotype's subnetwork without running it.

    :param key: the same for all genotypes that select the same subnetwork.
    :param active: a mask over the variables: which matter in this genotype.
    :param cost: multiply-adds for one sample.
    """

    key: str
    active: np.ndarray
    cost: int


class Space(ABC):
    """A genotype, a vector of `n_var` booleans, selects a subnetwork from a space: a supernet, a family, all chains of
    a pool, or your own, which defines `n_var` and `subnetwork`.

    The rest has defaults. They suit a space that selects subnetworks of another one (`basis`), such as some of a
    supernet's; one whose subnetworks are its own defines `basis`, `networks`, `max_cost` and `is_fitted` as well.
    Define `active` where the variables that matter are not those of the subnetwork, and `digest` if you keep journals:
    the default does not look at weights."""

    n_var: int
    """The number of variables of a genotype."""

    n_choices: int = 0
    """How many of the variables, the last ones, are the output switch's: all of its inputs should be equally
    frequent."""

    first: np.ndarray | None = None
    """Genotypes [n, n_var] to begin every search with."""

    codes: np.ndarray | None = None
    """The genotypes [n, n_var] of all that the space holds, if it can list them."""

    @abstractmethod
    def subnetwork(self, x: Sequence[bool] | np.ndarray) -> "Subnetwork":
        """The subnetwork that a genotype selects."""

    def outline(self, x: Sequence[bool] | np.ndarray) -> Outline:
        """What a search asks about a genotype, in one walk."""
        subnetwork = self.subnetwork(x)
        is_own = type(self).active is Space.active
        return Outline(subnetwork.key, subnetwork.active if is_own else self.active(x), subnetwork.cost)

    def active(self, x: Sequence[bool] | np.ndarray) -> np.ndarray:
        """A mask over the variables: which matter in a genotype. Flipping any other selects the same subnetwork."""
        return self.subnetwork(x).active

    @property
    def references(self) -> dict[str, np.ndarray]:
        """Named genotypes to compare with: the networks themselves, where the space knows which they are."""
        return {"zeros": np.zeros(self.n_var, dtype=bool)}

    def one_stitch(self) -> np.ndarray:
        """The genotypes [n, n_var] of all subnetworks with exactly one stitch, each subnetwork once: each variable that
        is not the output switch's alone, with each input of the output switch."""
        if self.codes is not None:
            tried = self.codes
        else:
            outputs = np.eye(self.n_choices + 1, self.n_choices, -1, dtype=bool)  # the first is where none is 1
            n_links = self.n_var - self.n_choices
            tried = np.concatenate(
                [np.repeat(np.eye(n_links, dtype=bool), len(outputs), 0), np.tile(outputs, (n_links, 1))], axis=1
            )
        found = {subnetwork.key: x for x in tried if (subnetwork := self.subnetwork(x)).n_stitches == 1}
        return np.array(list(found.values()), dtype=bool).reshape(-1, self.n_var)

    @property
    def density(self) -> float:
        """The fraction of ones in genotypes with which a search begins."""
        return min(0.5, ONES / max(1, self.n_var))

    @property
    def basis(self) -> "Space":
        """The space that its subnetworks belong to (`subnetwork.space`): itself, or one that it selects from by other
        genotypes."""
        return self.subnetwork(np.zeros(self.n_var, dtype=bool)).space

    @property
    def networks(self) -> tuple["Network", ...]:
        """The networks that its subnetworks are made of."""
        return self.basis.networks

    @property
    def input_shape(self) -> tuple[int, ...]:
        return self.networks[0].input_shape

    @property
    def max_cost(self) -> int:
        """At least the multiply-adds of every subnetwork."""
        return self.basis.max_cost

    @property
    def is_fitted(self) -> bool:
        """Whether the stitches have been fitted."""
        return self.basis.is_fitted

    def digest(self) -> str:
        """A name for what the subnetworks compute, weights included, the same in every process; by default that of the
        class."""
        return type(self).__qualname__


def check_genotype(x: Sequence[bool] | np.ndarray, n_var: int) -> np.ndarray:
    try:
        x = np.array(x)
        known = x.dtype == bool or np.isin(x, (0, 1)).all()
    except (TypeError, ValueError) as error:
        raise ValueError(f"a genotype is a vector of booleans or of 0 and 1: {error}.") from error
    if x.shape != (n_var,):
        raise ValueError(f"a genotype of this supernet has {n_var} variables, but one of shape {x.shape} is given.")
    if not known:
        raise ValueError(
            f"a genotype holds booleans or 0 and 1, but {x[~np.isin(x, (0, 1))].tolist()[0]!r} is among its values."
        )
    x = x.astype(bool)
    x.setflags(write=False)
    return x
