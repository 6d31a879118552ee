"""What asynchronous search algorithms have in common: no generation to wait for."""

import warnings
from abc import abstractmethod
from collections import deque
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

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
from .archive import Archive, hypervolume_gains
from .options import check_options
from .sampling import ProblemSampling
from .screen import Outlines, Prediction, Screen
from .threshold import Annealing, Choice


class Asynchronous(Algorithm):
    """The base: proposes genotypes, waits for their evaluation, uses the result, and proposes the next.

    `n_pending` proposals are pending at any time. Completions are processed one by one, each followed at once by the
    next proposal, so that what happens depends on the seed and the order of completions alone. A generation, for
    display, callback, history and `("n_gen", N)`, is `pop_size` completions.

    With ask and tell, `ask` returns all proposals made since it was last called, none if all are pending, and `tell`
    takes any of them in any order; evaluate them with `algorithm.evaluator.eval(problem, population)`.

    Where the problem has the exact `cost(x)` and the mask `active(x)` of a genotype, a model that learns from all
    evaluations *screens* what is proposed: what it predicts cannot matter is not evaluated, except for a few.

    Where the problem also says that its evaluations can stop (`can_stop`), a proposal beyond the first population is
    evaluated with *early stopping*: that ends when it can no longer be as good as the best in the archive that costs
    no more, and is then *bounded*. A bounded one has an estimate as its second objective. It may be in the population,
    never in the archive or the result.

    A subclass defines how it begins (`_begin`), what it does with a result (`_use`, `_lose`) and what it then proposes
    (`_fill`).
    """

    earlier: ClassVar = {"early_stopping": False}

    proposes_no_key_twice: ClassVar[bool] = False
    """Then nothing but what is needed depends on when a proposal is submitted: that waits until the runner can use
    it."""

    def __init__(
        self,
        *,
        pop_size: int | None = None,
        runner: Runner | None = None,
        threshold: Choice = "auto",
        n_pending: int | None = None,
        screen: Literal["auto"] | None = "auto",
        early_stopping: bool = True,
        **options: Any,
    ):
        """
        :param pop_size: by default as large as the budget allows, see the algorithm.
        :param runner: where evaluations happen; by default where the evaluator says, or one after the other in this
            process.
        :param threshold: a `Threshold`, None, or "auto": one for stitch problems, none for others.
        :param n_pending: how many evaluations are requested at a time, however many workers there are; by default
            `pop_size`.
        :param screen: "auto", which screens proposals where the problem has what that needs, or None.
        :param early_stopping: whether evaluations end when they can no longer matter, where the problem allows it; not
            while skipped evaluations count, as in [G].
        :param options: anything else that pymoo's `Algorithm` takes.
        """
        check_options(type(self), options)
        for name, value, least in (("pop_size", pop_size, 2), ("n_pending", n_pending, 1)):
            if value is not None and value < least:
                raise ValueError(f"{name} must be at least {least}, but is {value}.")
        if screen not in ("auto", None):
            raise ValueError(f"screen must be 'auto' or None, but is {screen!r}.")
        check_runner(runner)
        super().__init__(**({"evaluator": Evaluations(), "output": SearchOutput()} | options))
        self.pop_size, self.n_pending = pop_size, n_pending
        self.runner = runner
        self.threshold = threshold
        self.screen = screen
        self.early_stopping = early_stopping

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
            self.n_pending = self._default_n_pending()
        budget = self.evaluator.budget(budget_of(self.termination, self.pop_size))
        self.annealing = Annealing(self.threshold, problem, budget)
        if self.annealing.threshold is not None and self.annealing.budget is None:
            warnings.warn(
                "the termination has no budget of evaluations: the accuracy threshold is "
                f"{self.annealing.threshold.final} "
                "from the start. To let it rise, say how many you expect: threshold=Threshold(budget=...).",
                RuntimeWarning,
                stacklevel=2,
            )
        self.archive = Archive(problem.n_obj)
        self._worst = np.full(problem.n_obj, -np.inf)  # of each objective, among all that was evaluated
        self.pending: dict[int, Individual] = {}  # proposals without a result, by number
        self._proposed = self._completed = 0
        self._queue: deque[Individual] = deque()  # pending ones that are not submitted yet
        self._ref_point: np.ndarray | None = None  # of the hypervolume, once the run has begun
        self._outlines = Outlines(problem)
        self._screen = Screen(problem, self._outlines) if self.screen and Screen.suits(problem) else None
        self._stops = self.early_stopping and not self.evaluator.count_skipped and _can_stop(problem)

    def _initialize_infill(self) -> Population:
        self.is_initialized = True  # so that the first completion, as every other, comes to _advance
        self.evaluator.begin(self)
        if self._screen is not None:
            self._screen.remember(self.evaluator.journaled_notes())
            self._ref_point = self.evaluator.ref_point()
        self._begin()
        self._fill()
        return self._infill()

    def _infill(self) -> Population:
        return Population.create(*(self._released() for _ in range(len(self._queue))))

    def run(self) -> Result:
        with HeldInterrupt() as interrupt:  # Ctrl-C may come between one completion and the next
            result = super().run()
            interrupt.noted = False  # it has been obeyed
        return result

    def next(self) -> None:
        """Process one completion. Ctrl-C ends the run with what there is."""
        with HeldInterrupt() as interrupt:
            if not self.is_initialized:
                self._queue.extend(self.infill())
            limit = max_evals(self.termination)
            while self._queue and self.evaluator.room(limit) and self._is_wanted():
                self.evaluator.submit(self.problem, self._released())
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
                f"nothing new is left to propose: the run ends after {self.evaluator.real:,} evaluations. The space "
                "may hold no more, or the population has converged; a larger pop_size keeps its diversity longer.",
                RuntimeWarning,
                stacklevel=2,
            )
            self.termination.terminate()
        over = self.termination.force_termination or is_over(self.termination, self)
        return over or self._completed // self.pop_size > generations

    def _set_optimum(self) -> None:
        self.pop = Population.create(*self._population())
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

    # ---- what a subclass does

    @abstractmethod
    def _begin(self) -> None:
        """Make the first population; nothing is proposed yet."""

    @abstractmethod
    def _population(self) -> list[Individual]:
        """The evaluated individuals of the population."""

    @abstractmethod
    def _use(self, individual: Individual, violation: float, entered: bool) -> None:
        """Use an evaluated proposal, which has not failed.

        :param entered: whether it entered the archive and meets the threshold.
        """

    def _lose(self, individual: Individual) -> None:
        """Go on without a proposal whose evaluation has failed."""

    @abstractmethod
    def _fill(self) -> None:
        """Propose while fewer than `n_pending` are pending and there is something to propose."""

    @abstractmethod
    def _default_pop_size(self, budget: int) -> int:
        """How large a population this budget of evaluations suits."""

    def _default_n_pending(self) -> int:
        return self.pop_size

    # ---- proposals

    @property
    def slack(self) -> float:
        """The violation that is tolerated now."""
        return self.annealing.slack(self.evaluator.n_eval)

    @property
    def screened(self) -> int:
        """How many candidates were screened out."""
        return 0 if self._screen is None else self._screen.screened

    def notes(self, individual: Individual, row: int) -> Mapping[str, Any]:
        """What goes into the journal's row of this number beside the evaluation of this individual."""
        if self._screen is None:
            return {}
        prediction = individual.get("prediction")
        predicted = {} if prediction is None else {"predicted": prediction.error, "spread": prediction.spread}
        return predicted | self._screen.notes(row)

    def _propose(
        self, x: np.ndarray, prediction: Prediction | None = None, accepted: float | None = None, **attributes: Any
    ) -> None:
        """
        :param accepted: the second objective with which it matters whatever the archive holds, −∞ if there is none;
            None to evaluate it in full.
        :param attributes: of the individual.
        """
        individual = Individual(X=x, proposal=self._proposed, prediction=prediction, accepted=accepted, **attributes)
        individual.set("n_gen", self.n_iter)
        individual.set("n_iter", self.n_iter)
        self.pending[self._proposed] = individual
        self._queue.append(individual)
        self._proposed += 1
        self._outlines.propose(x)

    def _is_wanted(self) -> bool:
        """Whether the runner, or the journal, can use another proposal now. The later it gets one, the more is known
        about what is needed of it."""
        if not self._stops or not self.proposes_no_key_twice or self.evaluator.lacks_request:
            return True
        ahead = self.runner.ahead  # not the same all the time: workers join late, and leave
        return ahead is None or len(self.pending) - len(self._queue) < ahead

    def _released(self) -> Individual:
        """The next proposal, with what is needed of it now."""
        individual = self._queue.popleft()
        individual.set("needed", self._needed(individual.X, individual.get("accepted")))
        return individual

    def _needed(self, x: np.ndarray, accepted: float | None) -> float | None:
        """The second objective that a genotype must reach to matter; None to evaluate it in full.

        :param accepted: as in `_propose`.
        """
        if not self._stops or accepted is None:
            return None
        needed = max(self.archive.least_error(self._outlines(x).cost), accepted)
        return float(needed) if np.isfinite(needed) else None

    def _gain(self, costs: np.ndarray, errors: np.ndarray) -> np.ndarray:
        """What candidates of these costs (n,) add to the archive's hypervolume in expectation over their equally likely
        errors (n, q); if nothing, how far they are from the front at best, as a negative number."""
        f = np.column_stack([np.repeat(costs, errors.shape[1]), errors.ravel()])
        gains = hypervolume_gains(f, self.archive.front_f(self.slack), self._limit()).reshape(errors.shape)
        expected = np.maximum(gains, 0).mean(1)
        return np.where(expected > 0, expected, gains.max(1))

    def _limit(self) -> np.ndarray:
        """The objectives from which on a solution adds nothing (n_obj,): the worst that were evaluated, those of the
        problem's reference point, and the error that the threshold tolerates now."""
        limits = [self._worst, self._worst if self._ref_point is None else self._ref_point]
        level = self.annealing.level(self.evaluator.n_eval)
        if level is not None:
            limits.append(np.array([np.inf, 1 - level]))
        return np.minimum.reduce(limits)

    def _receive(self, individual: Individual) -> None:
        if individual.get("proposal") not in self.pending:
            raise ValueError(
                "this individual was not asked for, or was told before. Tell each that ask() returned, once."
            )
        if np.size(individual.F) != self.problem.n_obj:
            raise ValueError("this individual has no F. Evaluate it: algorithm.evaluator.eval(problem, individuals).")
        del self.pending[individual.get("proposal")]
        self._completed += 1
        if individual.get("failed") or not np.isfinite(individual.F).all():
            self._lose(individual)
        else:
            bounded = individual.get("bound") is not None
            if self._screen is not None:
                self._screen.learn(individual.X, individual.F[1], bounded)
            violation = float(self.annealing.violation(individual.F, individual.CV[0]))
            entered = not bounded and self.archive.insert(individual, violation) and violation <= self.slack
            self._worst = np.maximum(self._worst, individual.F)
            self._use(individual, violation, entered)
        self._fill()

    def _sample(self, n: int) -> np.ndarray:
        sample = ProblemSampling().do(self.problem, n, random_state=self.random_state)
        return sample.get("X").astype(bool)


def _can_stop(problem: Problem) -> bool:
    """Whether a problem's evaluations can stop early: it has costs and says so, and no constraint depends on anything
    but the error, so that what is dominated is no more feasible than what dominates it."""
    on_error = getattr(problem, "min_accuracy", None) is not None
    is_plain = problem.n_eq_constr == 0 and problem.n_ieq_constr == on_error
    return is_plain and Screen.suits(problem) and getattr(problem, "can_stop", False)


class SearchOutput(Output):
    """What pymoo prints of a run with `verbose=True`."""

    def __init__(self) -> None:
        super().__init__()
        self.columns = [
            NumberOfGenerations(width=6),
            Column("real", width=8, func=_real),
            Column("skipped", width=8, func=_skipped),
            Column("bounded", width=8, func=_bounded),
            Column("images", width=9, func=_images),
            Column("screened", width=8, func=_screened),
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


def _bounded(algorithm: Asynchronous) -> int | None:
    return algorithm.evaluator.bounded if algorithm._stops else None  # shown as "-": all are evaluated in full


def _images(algorithm: Asynchronous) -> int:
    return algorithm.evaluator.images


def _screened(algorithm: Asynchronous) -> int:
    return algorithm.screened


def _archive_size(algorithm: Asynchronous) -> int:
    return len(algorithm.archive)


def _threshold(algorithm: Asynchronous) -> float | None:
    return algorithm.annealing.level(algorithm.evaluator.n_eval)


def _pending(algorithm: Asynchronous) -> int:
    return len(algorithm.pending)


def _utilisation(algorithm: Asynchronous) -> float:
    return algorithm.runner.utilisation
