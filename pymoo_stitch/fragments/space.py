"""All chains of a pool as a space that genotypes select from, for a search by evolution ([SF], in binary)."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np

from ..supernet import Space, check_genotype
from ..util.digests import digest
from .chain import Chain
from .fragment import Fragment, follows
from .pool import Pool


class ChainSpace(Space):
    """At the end of each fragment a switch: the chain goes on with the next fragment of the same network, or with
    another fragment through a stitch. A genotype has one boolean per such *jump*, and after them one for each network
    but the first, which says where the chain starts. A switch takes the first of its jumps whose variable is 1, and
    goes on in the same network if none is; so the all-zero genotype is the first network, untouched.

    Every genotype is a chain: a jump to a fragment that the chain has used already, or from which it could not come to
    an end, is passed over; a chain that cannot go on in its network, because it has been there or has no room, ends
    with that network's last fragment, or with the first of another that it can be joined to. Variables that are passed
    over are not active.

    >>> pool = Pool(get_problem("digits").space.networks, torch.rand(32, 1, 8, 8))
    >>> space = ChainSpace(pool)
    >>> space
    ChainSpace(inverted, residual; 8 fragments, 19 variables)
    >>> x = space.references["residual"].copy()
    >>> x[space.jumps.index((pool["residual"][0], pool["inverted"][3]))] = True
    >>> space.subnetwork(x)
    Chain(residual[0] → inverted[3] inverted[4], 1 stitch, 350,272 multiply-adds)

    :param pool: whose fragments are put together.
    :param candidates: to how many fragments a chain can jump from each: those whose inputs are the most similar, by CKA
        in the networks as they are, to the fragment's output.
    :param length: how many fragments a chain has at most, not less than each network has; by default 16, or as many as
        the longest network has.
    :param include: chains, such as `search_chains` finds, whose jumps are then all possible, and with which every
        search begins: the first of each initial population.
    """

    def __init__(self, pool: Pool, *, candidates: int = 4, length: int | None = None, include: Iterable[Chain] = ()):
        longest = max(len(pool[network.name]) for network in pool.networks)
        length = max(16, longest) if length is None else length
        if candidates < 0:
            raise ValueError(
                f"candidates, the number of jumps from each fragment, must be at least 0, but is {candidates}."
            )
        if length < longest:
            raise ValueError(
                f"length is {length}, but a network of the pool, which is a chain too, has {longest} fragments."
            )
        self.pool, self.length = pool, length
        include = list(include)
        if wrong := [chain for chain in include if not isinstance(chain, Chain)]:
            raise TypeError(
                f"include is a list of chains, but {wrong[0]!r} is among them. Of what search_chains finds, take the "
                "first of each pair: [chain for chain, score in search_chains(pool)]."
            )
        if any(chain.space is not pool for chain in include):
            raise ValueError("a chain to include belongs to another pool; build it from this one.")
        wanted = {pair for chain in include for pair in _jumps(chain)}
        self.jumps: tuple[tuple[Fragment, Fragment], ...] = tuple(
            (fragment, target)
            for fragment in pool.fragments
            for rank, target in enumerate(_candidates(pool, fragment))
            if rank < candidates or (fragment, target) in wanted
        )
        self._switches: dict[Fragment, list[tuple[int, Fragment]]] = {fragment: [] for fragment in pool.fragments}
        for variable, (source, target) in enumerate(self.jumps):
            self._switches[source].append((variable, target))
        self.n_choices = len(pool.networks) - 1
        self.n_var = len(self.jumps) + self.n_choices
        self._starts = [fragment for fragment in pool.fragments if fragment.is_start]
        self._ends = {fragment: _end_behind(pool, fragment) for fragment in pool.fragments}
        self._next = dict(zip(pool.fragments, pool.fragments[1:], strict=False))
        self.first = np.array([self.genotype(chain) for chain in include]).reshape(-1, self.n_var)

    @property
    def basis(self) -> Pool:
        return self.pool

    def subnetwork(self, x: Sequence[bool] | np.ndarray) -> Chain:
        """The chain that a genotype selects."""
        x = check_genotype(x, self.n_var)
        fragments, active = self._decoded(x)
        return self.pool.chain(fragments, x=x, active=active)

    def _decoded(self, x: np.ndarray) -> tuple[list[Fragment], np.ndarray]:
        values = x.tolist()
        active = np.zeros(self.n_var, dtype=bool)
        start = 0
        for number, variable in enumerate(range(len(self.jumps), self.n_var), 1):
            active[variable] = True
            if values[variable]:
                start = number
                break
        chain = [self._starts[start]]
        while not chain[-1].is_end:
            following = self._following(chain)
            for variable, target in self._switches[chain[-1]]:
                if target != following and self._may_jump(chain, target):
                    active[variable] = True
                    if values[variable]:
                        following = target
                        break
            chain.append(following)
        return chain, active

    def _following(self, chain: Sequence[Fragment]) -> Fragment | None:
        """The fragment that follows without a jump; None if the chain can neither go on nor end."""
        own = self._next[chain[-1]]
        return own if self._has_room(chain, own) else self._ends[chain[-1]]

    def _has_room(self, chain: Sequence[Fragment], target: Fragment) -> bool:
        return target.is_end or (len(chain) < self.length - 1 and target not in chain)

    def _may_jump(self, chain: Sequence[Fragment], target: Fragment) -> bool:
        """Whether the chain has room for a fragment, and comes to an end after it."""
        if not self._has_room(chain, target):
            return False
        longer = [*chain, target]
        while longer[-1] is not None and not longer[-1].is_end:
            longer.append(self._following(longer))
        return longer[-1] is not None

    def genotype(self, chain: Chain) -> np.ndarray:
        """The genotype that selects a chain, with as few ones as that takes. Raises a ValueError if none does."""
        if chain.space is not self.pool:
            raise ValueError(f"{chain} is of another pool than this space.")
        numbers = {pair: variable for variable, pair in enumerate(self.jumps)}
        x = np.zeros(self.n_var, dtype=bool)
        for source, target in _jumps(chain):
            if (source, target) in numbers:
                x[numbers[source, target]] = True
            elif target != self._ends[source]:
                raise ValueError(
                    f"{chain} jumps from {source} to {target}, which no genotype does. Make the space with "
                    "include=[chain]."
                )
        if start := self._starts.index(chain.fragments[0]):
            x[len(self.jumps) + start - 1] = True
        if (found := self.subnetwork(x)).key != chain.key:
            raise ValueError(f"no genotype selects {chain}; the nearest is {found}.")
        return x

    def repaired(self, x: Sequence[bool] | np.ndarray) -> np.ndarray:
        """A genotype of the same chain in which only the variables that the chain uses are 1."""
        return self.genotype(self.subnetwork(x))

    @cached_property
    def references(self) -> dict[str, np.ndarray]:
        """The genotypes of each network alone, by its name."""
        genotypes = np.zeros((len(self._starts), self.n_var), dtype=bool)
        genotypes[1:, len(self.jumps) :] = np.eye(self.n_choices, dtype=bool)
        return {start.network.name: x for start, x in zip(self._starts, genotypes, strict=True)}

    def digest(self) -> str:
        """A name for what the chains compute, weights and images included."""
        own = (
            self.pool.digest(),
            self.length,
            [f"{source} {target}" for source, target in self.jumps],
            self.first.tolist(),
        )
        return digest([repr(own)])

    def __repr__(self) -> str:
        names = ", ".join(network.name for network in self.pool.networks)
        return f"ChainSpace({names}; {len(self.pool.fragments)} fragments, {self.n_var} variables)"


def _jumps(chain: Chain) -> list[tuple[Fragment, Fragment]]:
    return [pair for pair in pairwise(chain.fragments) if not follows(*pair)]


def _end_behind(pool: Pool, fragment: Fragment) -> Fragment | None:
    """The last fragment with which a chain can end after a fragment, that of its own network if possible."""
    ends = [pool[fragment.network.name][-1], *(end for end in pool.fragments if end.is_end)]
    return next((end for end in ends if pool.joins(fragment, end)), None)


def _candidates(pool: Pool, fragment: Fragment) -> list[Fragment]:
    """The fragments to which a chain can jump from another, those that read the most similar tensors first."""
    own = pool[fragment.network.name][: fragment.number + 1]
    found = [target for target in pool.fragments if pool.joins(fragment, target) and not follows(fragment, target)]
    return sorted(found, key=lambda target: -pool.similarity(own, target))
