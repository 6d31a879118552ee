"""What asynchronous search algorithms have in common: one loop per individual, and no generation to wait for."""

import inspect
import warnings
from abc import abstractmethod
from collections import deque
from typing import Any

import numpy as np
from pymoo.core.algorithm import Algorithm
from pymoo.core.individual import Individual
from pymoo.core.population import Population
from pymoo.core.problem import Problem
from pymoo.core.result import Result
from pymoo.util.display.column import Column
from pymoo.util.display.output import NumberOfGenerations, Output

from ..evaluations import Evaluations, HeldInterrupt, budget_of, end_interrupted, hypervolume, is_over, max_evals
from ..runners import Runner, SerialRunner, check_runner
from .archive import Archive
from .sampling import ProblemSampling
from .scalarization import reassign, spread_weights, tschebysheff
from .threshold import Annealing, Choice


class Asynchronous(Algorithm):
    """The base: loops that propose a genotype, wait for its evaluation, make use of it, and propose the next.

    `n_pending` proposals are pending at any time. Completions are processed one by one, each followed at once by the next
    proposal, so that what happens depends on the seed and the order of completions alone. A generation, for display,
    callback, history and `("n_gen", N)`, is `pop_size` completions.

    With ask and tell, `ask` gives all proposals made since it was last called, none if all are pending, and `tell` takes
    any of them in any order; evaluate them with `algorithm.evaluator.eval(problem, population)`.

    A subclass says what a loop proposes (`_begin` and `_continue` its turn) and what it does with the result (`_use`).
    """

    def __init__(
        self,
        *,
        pop_size: int | None = None,
        runner: Runner | None = None,
        threshold: Choice = "auto",
        n_pending: int | None = None,
        **options: Any,
    ):
        """
        :param pop_size: by default as large as the budget allows, see the algorithm.
        :param runner: where evaluations happen; by default where the evaluator says, or one after the other in this process.
        :param threshold: a `Threshold`, None, or "auto", which gives stitch problems one and others none.
        :param n_pending: how many evaluations are requested at a time, however many workers there are; by default
            `pop_size`.
        :param options: anything else that pymoo's `Algorithm` takes.
        """
        unknown = options.keys() - inspect.signature(Algorithm.__init__).parameters.keys()
        if unknown:
            raise TypeError(f"{type(self).__name__} has no option {', '.join(sorted(unknown))}.")
        for name, value, least in (("pop_size", pop_size, 2), ("n_pending", n_pending, 1)):
            if value is not None and value < least:
                raise ValueError(f"{name} is at least {least}, but is {value}.")
        check_runner(runner)
        super().__init__(**({"evaluator": Evaluations(), "output": SearchOutput()} | options))
        self.pop_size, self.n_pending = pop_size, n_pending
        self.runner = runner
        self.threshold = threshold

    # ---- pymoo's life-cycle

    def _setup(self, problem: Problem, **kwargs: Any) -> None:
        if not isinstance(self.evaluator, Evaluations):
            raise TypeError(f"the evaluator must be an Evaluations, but is a {type(self.evaluator).__name__}.")
        self.evaluator.restore(self)
        self.runner = self.runner or self.evaluator.runner or SerialRunner()
        if self.pop_size is None:
            budget = self.evaluator.budget(budget_of(self.termination, None))
            self.pop_size = self._default_pop_size(budget or 20_000)
        if self.n_pending is None:
            self.n_pending = self.pop_size
        budget = self.evaluator.budget(budget_of(self.termination, self.pop_size))
        self.annealing = Annealing(self.threshold, problem, budget)
        if self.annealing.threshold is not None and self.annealing.budget is None:
            warnings.warn(
                f"the termination has no budget of evaluations: the accuracy threshold is {self.annealing.threshold.final} "
                "from the start. To let it rise, say how many you expect: threshold=Threshold(budget=...).",
                RuntimeWarning,
                stacklevel=2,
            )
        self.archive = Archive(problem.n_obj)
        self.pending: dict[int, Individual] = {}  # proposals without a result, by number
        self._proposed = self._completed = self._turns = self._since_reassigned = 0
        self._idle: deque[int] = deque()  # loops whose turn is over, the longest waiting first
        self._queue: deque[Individual] = deque()  # pending ones that are not submitted yet

    def _initialize_infill(self) -> Population:
        self.is_initialized = True  # so that the first completion, as every other, comes to _advance
        self.evaluator.begin(self)
        n = self.pop_size
        self._x = self._sample(n)
        self._f = np.full((n, self.problem.n_obj), -np.inf)
        self._violation = np.full(n, np.inf)
        self._members: list[Individual | None] = [None] * n
        self._changes = 0  # of any genotype in the population
        self._weights = self.random_state.permutation(spread_weights(n, self.problem.n_obj, self.random_state))
        self._idle.extend(range(max(n, self.n_pending)))
        self._fill()
        return self._infill()

    def _infill(self) -> Population:
        proposals = Population.create(*self._queue)
        self._queue.clear()
        return proposals

    def run(self) -> Result:
        with HeldInterrupt() as interrupt:  # it may come between one completion and the next
            result = super().run()
            interrupt.noted = False  # what it asks for is done
        return result

    def next(self) -> None:
        """Process one completion. Ctrl-C ends the run with what there is."""
        with HeldInterrupt() as interrupt:
            if not self.is_initialized:
                self._queue.extend(self.infill())
            limit = max_evals(self.termination)
            while self._queue and self.evaluator.room(limit):
                self.evaluator.submit(self.problem, self._queue.popleft())
            # None comes every second, so that a time limit is seen.
            done = self.evaluator.next(self.runner, interrupt.wait_for, algorithm=self, known_first=self.n_pending)
            if interrupt.noted:
                end_interrupted(self)
                interrupt.noted = False
            self.advance(infills=Population.create(*([] if done is None else [done])))

    def _advance(self, infills: Population | None = None, **kwargs: Any) -> bool:
        generations = self._completed // self.pop_size
        for individual in [] if infills is None else infills:
            self._receive(individual)
        self.evaluator.end_if_exhausted(self)
        if not self.pending and not self.termination.force_termination:
            warnings.warn(
                f"the population has converged: the run ends after {self.evaluator.real:,} evaluations. A larger pop_size "
                "keeps its diversity longer.",
                RuntimeWarning,
                stacklevel=2,
            )
            self.termination.terminate()
        over = self.termination.force_termination or is_over(self.termination, self)
        return over or self._completed // self.pop_size > generations

    def _set_optimum(self) -> None:
        self.pop = Population.create(*(member for member in self._members if member is not None))
        front = self.archive.front(self.slack)
        front = front[[individual.feas for individual in front]] if len(front) else front
        self.opt = front if len(front) else self.archive.least_violating()

    def _finalize(self) -> None:
        self.evaluator.withdraw(self.runner)
        self.evaluator.close()

    def result(self) -> Result:
        result = super().result()
        result.archive = Population.create(*self.archive.members)
        return result

    # ---- loops

    @abstractmethod
    def _begin(self, loop: int) -> np.ndarray | None:
        """The first genotype (n_var,) of this loop's turn; None if there is nothing to propose."""

    def _continue(self, loop: int) -> np.ndarray | None:
        """The next genotype of this loop's turn; None if its turn is over."""
        return None

    @abstractmethod
    def _use(self, individual: Individual, violation: float, entered: bool) -> None:
        """Make use of an evaluated proposal, which has not failed.

        :param entered: whether it entered the archive and meets the threshold.
        """

    @abstractmethod
    def _default_pop_size(self, budget: int) -> int:
        """How large a population this budget of evaluations suits."""

    def _receive(self, individual: Individual) -> None:
        if individual.get("proposal") not in self.pending:
            raise ValueError("this individual was not asked for, or was told before. Tell each that ask() gave once.")
        if np.size(individual.F) != self.problem.n_obj:
            raise ValueError("this individual has no F. Evaluate it: algorithm.evaluator.eval(problem, individuals).")
        del self.pending[individual.get("proposal")]
        loop = individual.get("loop")
        first = loop < self.pop_size and self._members[loop] is None
        if individual.get("failed") or not np.isfinite(individual.F).all():
            if first:
                self._x[loop] = self._sample(1)
                self._changes += 1
        else:
            violation = float(self.annealing.violation(individual.F, individual.CV[0]))
            entered = self.archive.insert(individual, violation) and violation <= self.slack
            if first:
                self._place(loop, individual, violation)
            else:
                self._use(individual, violation, entered)
        self._completed += 1
        self._since_reassigned += 1
        proposal = None if first else self._continue(loop)
        if proposal is None:
            self._turns += 1
            self._idle.append(loop)
        else:
            self._propose(loop, proposal)
        n, n_var = self._x.shape
        if self._turns >= n or self._since_reassigned >= n * max(1, n_var / 4):
            self._reassign()
        self._fill()

    def _fill(self) -> None:
        """Let idle loops begin while fewer than `n_pending` proposals are pending."""
        for _ in range(len(self._idle)):
            if len(self.pending) >= self.n_pending:
                break
            loop = self._idle.popleft()
            first = loop < self.pop_size and self._members[loop] is None
            x = self._x[loop].copy() if first else self._begin(loop)
            if x is None:
                self._idle.append(loop)
            else:
                self._propose(loop, x)

    def _propose(self, loop: int, x: np.ndarray) -> None:
        individual = Individual(X=x, loop=loop, proposal=self._proposed)
        individual.set("n_gen", self.n_iter)
        individual.set("n_iter", self.n_iter)
        self.pending[self._proposed] = individual
        self._queue.append(individual)
        self._proposed += 1

    def _sample(self, n: int) -> np.ndarray:
        sample = ProblemSampling().do(self.problem, n, random_state=self.random_state)
        return sample.get("X").astype(bool)

    # ---- the population

    @property
    def slack(self) -> float:
        """The violation that is tolerated now."""
        return self.annealing.slack(self.evaluator.n_eval)

    def _place(self, i: int, individual: Individual, violation: float) -> None:
        """Put an individual into the population."""
        self._changes += not np.array_equal(self._x[i], individual.X)
        self._members[i] = individual
        self._x[i], self._f[i], self._violation[i] = individual.X, individual.F, violation

    def _rank(self, i: int, f: np.ndarray, violation: float) -> tuple[float, float]:
        """How good a solution is for individual i, smaller is better: violation before objectives."""
        ideal, worst = self._bounds()
        return max(0.0, violation - self.slack), float(tschebysheff(f, self._weights[i], ideal, worst))

    def _bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """The best objectives that meet the threshold, and the population's worst."""
        ideal = self.archive.ideal(self.slack)
        if ideal is None:
            ideal = self._f[np.isfinite(self._violation)].min(0)
        return ideal, self._f.max(0)

    def _reassign(self) -> None:
        self._turns = self._since_reassigned = 0
        known = np.isfinite(self._violation)
        if known.any():
            ideal, worst = self._bounds()
            f = np.where(known[:, None], self._f, worst)
            excess = np.maximum(0, self._violation - self.slack)
            assigned = reassign(f, excess, self._weights, ideal, worst, self.random_state)
            self._weights = self._weights[assigned]


class SearchOutput(Output):
    """What pymoo prints of a run with `verbose=True`."""

    def __init__(self) -> None:
        super().__init__()
        self.columns = [
            NumberOfGenerations(width=6),
            Column("real", width=8, func=_real),
            Column("skipped", width=8, func=_skipped),
            Column("hv", width=9, func=hypervolume),
            Column("archive", width=7, func=_archive_size),
            Column("threshold", width=9, func=_threshold),
            Column("pending", width=7, func=_pending),
            Column("utilisation", width=11, func=_utilisation),
        ]


def _real(algorithm: Asynchronous) -> int:
    return algorithm.evaluator.real


def _skipped(algorithm: Asynchronous) -> int:
    return algorithm.evaluator.skipped


def _archive_size(algorithm: Asynchronous) -> int:
    return len(algorithm.archive)


def _threshold(algorithm: Asynchronous) -> float | None:
    return algorithm.annealing.level(algorithm.evaluator.n_eval)


def _pending(algorithm: Asynchronous) -> int:
    return len(algorithm.pending)


def _utilisation(algorithm: Asynchronous) -> float:
    return algorithm.runner.utilisation
