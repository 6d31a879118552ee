"""No search: evaluates everything that a space holds."""

from typing import Any

from pymoo.core.algorithm import Algorithm
from pymoo.core.population import Population

from ..evaluations import Evaluations


class Exhaustive(Algorithm):
    """Evaluates all that a problem can list as its `codes`, such as the networks of a `Family`, as one generation: with
    a journal, on a cluster, and for a report, as with a search.

    :param options: anything that pymoo's `Algorithm` takes.
    """

    seed: int | None

    def __init__(self, **options: Any):
        super().__init__(**({"evaluator": Evaluations()} | options))

    def _setup(self, problem: Any, **kwargs: Any) -> None:
        codes = getattr(problem, "codes", None)
        if codes is None:
            raise TypeError(
                f"{problem.name()} cannot list what it holds: {problem.n_var} variables have to be searched. A Family "
                "can."
            )
        self.pop_size = len(codes)
        self.seed = self.seed or 1  # nothing is random, but a journal asks for one

    def _initialize_infill(self) -> Population:
        return Population.new("X", self.problem.codes)

    def _initialize_advance(self, infills: Population | None = None, **kwargs: Any) -> None:
        self.termination.terminate()
