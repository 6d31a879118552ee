"""The service between an algorithm and what evaluates: no subnetwork is evaluated twice in a run, and budgets are honest."""

import copy
import warnings
from collections.abc import Mapping
from itertools import islice
from typing import Any

import numpy as np
from pymoo.core.algorithm import Algorithm
from pymoo.core.evaluator import Evaluator
from pymoo.core.individual import Individual
from pymoo.core.population import Population
from pymoo.core.problem import Problem


class Evaluations(Evaluator):
    """Answers requests for evaluations, each subnetwork's once.

    Two individuals are the same if `problem.key(x)` says so; of problems without keys, if their genotypes are equal. The
    second one, whether the first has been evaluated or is still being, gets the first one's result and is *skipped*.
    `n_eval`, what pymoo's `("n_evals", N)` looks at, counts real evaluations only, for every algorithm alike.

    As a pymoo evaluator: `minimize(problem, algorithm, ("n_evals", 2_000), evaluator=Evaluations())`. Each run needs a new
    one: the counters go on. An algorithm that
    does not wait calls `request` and `complete`, which is what `eval` does too.

    `requested` = `real` + `skipped` + those in flight; `failed` counts those of the real ones that gave no result: their
    `failed` says why (it is empty for the others), their objectives are the problem's worst, or infinite.

    A deep copy shares what was known when it was made and goes its own way from there.

    :param count_skipped: whether skipped evaluations count towards the budget, as in [G].
    :param patience: a run of an algorithm ends, with a warning, after this many skipped evaluations in a row: its space
        may hold fewer subnetworks than the budget.
    """

    def __init__(self, *, count_skipped: bool = False, patience: int = 10_000):
        super().__init__()
        self.count_skipped, self.patience = count_skipped, patience
        self.requested = self.real = self.skipped = self.failed = 0
        self.skipped_in_a_row = 0
        self._problem: Problem | None = None
        self._known: dict[Any, tuple[int, dict[str, Any]]] = {}  # shared with copies, who see the first `real` of it
        self._waiting: dict[Any, list[Individual]] = {}

    def eval(
        self, problem: Problem, pop: Population | Individual, count_evals: bool = True, **kwargs: Any
    ) -> Population | Individual:
        """Evaluate what is new among the individuals, together, and answer all."""
        before = self.n_eval
        pop = super().eval(problem, pop, count_evals=False, **kwargs)
        if not count_evals:
            self.n_eval = before
        return pop

    def _eval(
        self, problem: Problem, pop: Population, evaluate_values_of: list[str], algorithm: Any = None, **kwargs: Any
    ) -> None:
        new: list[Individual] = []
        try:
            for individual in pop:
                if self.request(problem, individual):
                    new.append(individual)
            out = {}
            if new:
                out = problem.evaluate(
                    np.array([individual.X for individual in new]),
                    return_values_of=evaluate_values_of,
                    return_as_dictionary=True,
                    algorithm=algorithm,
                    **kwargs,
                )
        except BaseException:
            self.forget(new)
            raise
        for i, individual in enumerate(new):
            self.complete(individual, {name: values[i] for name, values in out.items() if values is not None})
        if algorithm is not None:
            self.end_if_exhausted(algorithm)

    def end_if_exhausted(self, algorithm: Algorithm) -> None:
        """Make the algorithm's next generation its last if a long row of requests brought nothing new."""
        if self.skipped_in_a_row >= self.patience:
            warnings.warn(
                f"none of the last {self.skipped_in_a_row:,} individuals was new: the run ends after {self.real:,} "
                "evaluations. The space may hold no more, or the algorithm has converged.",
                RuntimeWarning,
                stacklevel=2,
            )
            algorithm.termination.terminate()

    def room(self, limit: float) -> bool:
        """Whether one more request can be made, all those in flight counted, so that `n_eval` ends at most at `limit`."""
        in_flight = self.requested - self.real - self.skipped if self.count_skipped else len(self._waiting)
        return self.n_eval + in_flight < limit

    def request(self, problem: Problem, individual: Individual) -> bool:
        """Whether this individual is to be evaluated. If not, it has its result already, or gets it when the one it
        equals is complete."""
        if self._problem is None:
            self._problem = problem
        elif self._problem is not problem:
            raise ValueError("these evaluations are of another problem. Use a new Evaluations() for each problem.")
        key = self._key(individual)
        self.requested += 1
        number, result = self._known.get(key, (self.real, None))
        if number < self.real:
            self._skip(individual, result)
        elif key in self._waiting:
            self._waiting[key].append(individual)
        else:
            self._waiting[key] = [individual]
            return True
        return False

    def complete(self, individual: Individual, out: Mapping[str, Any]) -> list[Individual]:
        """Take the result of an individual that was to be evaluated: F, G, H and whatever else the problem gives, or
        the reason as `failed`. All who wait for it are answered; they are returned in the order of their requests."""
        key = self._key(individual)
        first, *others = self._waiting.pop(key)
        result = self._checked(out)
        if len(self._known) != self.real:  # a copy of this has gone another way
            self._known = dict(islice(self._known.items(), self.real))
        self._known[key] = self.real, result
        self.real += 1
        self.n_eval += 1
        self.failed += bool(result["failed"])
        self.skipped_in_a_row = 0
        _answer(first, result)
        for other in others:
            self._skip(other, result)
        return [first, *others]

    def forget(self, individuals: list[Individual]) -> None:
        """Take back requests that will never be complete."""
        for individual in individuals:
            self.requested -= len(self._waiting.pop(self._key(individual)))

    def _key(self, individual: Individual) -> Any:
        if hasattr(self._problem, "key"):
            return self._problem.key(individual.X)
        x = np.asarray(individual.X)
        if x.dtype == object:
            raise TypeError(
                "genotypes are compared by their values, which those of objects do not tell; give the problem a key(x)."
            )
        return x.tobytes()

    def _skip(self, individual: Individual, result: dict[str, Any]) -> None:
        self.skipped += 1
        self.skipped_in_a_row += 1
        self.n_eval += self.count_skipped
        _answer(individual, result)

    def _checked(self, out: Mapping[str, Any]) -> dict[str, Any]:
        """A result that can be compared with others: NaN counts as failed, and what has failed is worse than all."""
        reason = out.get("failed")
        result = dict(out) | {"failed": reason if isinstance(reason, str) else ""}
        sizes = {"F": self._problem.n_obj, "G": self._problem.n_ieq_constr, "H": self._problem.n_eq_constr}
        for name, size in sizes.items():
            values = result.get(name)
            if values is None:
                result[name] = np.full(size, np.inf)
                if name == "F":
                    result["failed"] = result["failed"] or "it has no objective values"
            elif np.isnan(values).any():
                result[name] = np.where(np.isnan(values), np.inf, values)
                result["failed"] = result["failed"] or f"{name} is {np.asarray(values).tolist()}"
        return result

    def __repr__(self) -> str:
        return f"Evaluations({self.requested:,} requested, {self.real:,} real, {self.skipped:,} skipped, {self.failed:,} failed)"

    def __deepcopy__(self, memo: dict[int, Any]) -> "Evaluations":
        new = copy.copy(self)
        memo[id(self)] = new
        new._problem = copy.deepcopy(self._problem, memo)
        new._waiting = copy.deepcopy(self._waiting, memo)
        return new


def evaluate_one(problem: Problem, x: np.ndarray) -> dict[str, Any]:
    """All that the problem says about one genotype. It does not use the problem's own runner, so that a runner may call
    it."""
    out: dict[str, Any] = {}
    if problem.elementwise:
        problem._evaluate(x, out)
        out = {name: np.array([value]) for name, value in out.items()}
    else:
        problem._evaluate(x[None], out)
    return {name: values[0] for name, values in problem._format_dict(out, 1, ["F", "G", "H"]).items()}


def _answer(individual: Individual, result: Mapping[str, Any]) -> None:
    for name, value in result.items():
        individual.set(name, value.copy() if isinstance(value, np.ndarray) else value)
    individual.evaluated.update(result)
