"""Initial populations of binary problems."""

from typing import Any

import numpy as np
from pymoo.core.problem import Problem
from pymoo.core.sampling import Sampling


class BinarySampling(Sampling):
    """Each variable is 1 in `p`·n of the n individuals, rounded up or down at random, in an order of its own.

    :param p: the density of ones.
    :param n_choices: the last `n_choices` variables are one switch, of which the first 1 selects: all of its
        `n_choices` + 1 inputs are equally frequent.
    :param first: genotypes with which every population begins; if they are more than half its size, half its size of
        them, evenly spread.
    """

    def __init__(self, p: float = 0.5, n_choices: int = 0, first: np.ndarray | None = None):
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"p, the density of ones, must be between 0 and 1, but is {p}.")
        self.p, self.n_choices, self.first = p, n_choices, first

    def _do(
        self, problem: Problem, n_samples: int, *args: Any, random_state: np.random.Generator, **kwargs: Any
    ) -> np.ndarray:
        expected = self.p * n_samples
        ones = int(expected) + (random_state.random(problem.n_var) < expected % 1)
        x = random_state.permuted(np.arange(n_samples)[:, None] < ones, axis=0)
        if self.n_choices:
            chosen = random_state.permutation(np.arange(n_samples) % (self.n_choices + 1))
            x[:, -self.n_choices :] = chosen[:, None] == np.arange(1, self.n_choices + 1)
        if self.first is not None and len(self.first):
            most = min(len(self.first), max(1, n_samples // 2))
            x[:most] = self.first[np.linspace(0, len(self.first) - 1, most).round().astype(int)]
        return x


class ProblemSampling(Sampling):
    """Uses the problem's own `sampling`, so that every algorithm can start from it; `BinarySampling()` if it has
    none."""

    def _do(self, problem: Problem, n_samples: int, *args: Any, **kwargs: Any) -> np.ndarray:
        sampling: Sampling = getattr(problem, "sampling", BinarySampling())
        return sampling._do(problem, n_samples, *args, **kwargs)
