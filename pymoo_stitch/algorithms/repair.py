"""Clears what a genotype does not use."""

from typing import Any

import numpy as np
from pymoo.core.problem import Problem
from pymoo.core.repair import Repair


class ChainRepair(Repair):
    """For pymoo's algorithms, as in `NSGA2(repair=ChainRepair())`: sets variables of a genotype that are 1 but not used
    to 0. The chains stay the same."""

    def _do(self, problem: Problem, X: np.ndarray, **kwargs: Any) -> np.ndarray:
        return np.array([problem.space.repaired(x) for x in X]).reshape(X.shape)
