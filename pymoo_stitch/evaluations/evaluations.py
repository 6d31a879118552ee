"""The service between an algorithm and what evaluates: no subnetwork is evaluated twice in a run, budgets are honest, and
whatever is known is on disk."""

import copy
import os
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import numpy as np
from pymoo.core.algorithm import Algorithm
from pymoo.core.evaluator import Evaluator
from pymoo.core.individual import Individual
from pymoo.core.population import Population
from pymoo.core.problem import Problem

from .budget import budget_of
from .description import described, differences, identity, versions
from .evaluate import Evaluate
from .interrupts import HeldInterrupt, end_interrupted
from .journal import Journal, JournalError, Row, covered, write_genotype
from .progress import Progress


class Evaluations(Evaluator):
    """Answers requests for evaluations, each subnetwork's once.

    Two individuals are the same if `problem.key(x)` says so; of problems without keys, if their genotypes are equal. The
    second one, whether the first has been evaluated or is still being, gets the first one's result and is *skipped*.
    `n_eval`, what pymoo's `("n_evals", N)` looks at, counts real evaluations only, for every algorithm alike.

    As a pymoo evaluator: `minimize(problem, algorithm, ("n_evals", 2_000), seed=1, evaluator=Evaluations())`. Each run
    needs a new one: the counters go on. An algorithm that does not wait calls `request` and `complete`, which is what
    `eval` does too.

    >>> evaluations = Evaluations()
    >>> result = minimize(get_problem("digits"), GOMEA(pop_size=8), ("n_evals", 20), seed=1, evaluator=evaluations)
    >>> evaluations.real, evaluations.failed
    (20, 0)

    With a journal, every evaluation is on disk before the algorithm sees it. The same run started again, with the same
    journal, is answered by it as far as it goes and ends as if it had never been cut; with a larger budget, a run that had
    ended goes on (but for one on a simulated clock, whose workers had come to rest).

    `requested` = `real` + `skipped` + those in flight; `failed` counts those of the real ones that gave no result: their
    `failed` says why (it is empty for the others), their objectives are the problem's worst, or infinite. `replayed` and
    `shared` count those of the real ones that came from the journal and from the memo. `interrupted` tells whether Ctrl-C
    ended the run.

    A deep copy of one in use shares what was known when it was made, has no journal, and goes its own way from there.

    :param runner: where evaluations happen, for any algorithm; by default in this process.
    :param journal: the path of the run's `Journal`.
    :param memo: paths of other runs' journals, of the same problem. What they know is not computed again, but counts.
    :param progress: whether to show a progress bar.
    :param count_skipped: whether skipped evaluations count towards the budget, as in [G].
    :param patience: a run of an algorithm ends, with a warning, after this many skipped evaluations in a row: its space
        may hold fewer subnetworks than the budget.
    """

    def __init__(
        self,
        *,
        runner: Any = None,
        journal: str | os.PathLike | None = None,
        memo: Iterable[str | os.PathLike] = (),
        progress: bool = False,
        count_skipped: bool = False,
        patience: int = 10_000,
    ):
        super().__init__()
        self.runner, self.journal, self.memo, self.progress = runner, journal, tuple(memo), progress
        self.count_skipped, self.patience = count_skipped, patience
        self.requested = self.real = self.skipped = self.failed = self.replayed = self.shared = 0
        self.skipped_in_a_row = 0
        self.interrupted = False
        self.seconds_before = 0.0  # that the run took before it was cut
        self._requests = 0  # also those that were taken back
        self._problem: Problem | None = None
        self._known: dict[Any, tuple[int, dict[str, Any]]] = {}  # shared with copies, who see the first `real` of it
        self._waiting: dict[Any, list[Individual]] = {}
        self._journal: Journal | None = None
        self._replay: deque[Row] = deque()  # what the journal holds and the algorithm has not seen yet
        self._journaled: dict[int, Mapping[str, Any]] = {}  # by request
        self._shared: dict[str, Mapping[str, Any]] = {}
        self._progress: Progress | None = None
        self._f: Evaluate | None = None

    # ----------------------------------------------------------------------------------------------------- the run

    def begin(self, algorithm: Algorithm) -> None:
        """Open the journal and the memo for a run of this algorithm, which has been set up."""
        problem = algorithm.problem
        self._use(problem)
        own = identity(problem) if self.journal is not None or self.memo else {}  # takes a pass over data and weights
        if self.journal is not None:
            self._open_journal(algorithm, own)
        for path in self.memo:
            other = Journal(path, create=False)
            if other.run is None:  # it was cut before it began
                continue
            about = (other.run or {}).get("problem")
            if found := differences(about, own, "problem"):
                raise JournalError(f"{path} is of another problem and cannot be a memo here: {'; '.join(found)}.")
            self._shared |= {row.key: row.result for row in other.rows() if not row.result["failed"]}
            other.close()
        if self.progress:
            self._progress = Progress(algorithm)

    def budget(self, of_termination: int | None) -> int | None:
        """The evaluations the whole run was planned for: those of the termination, unless a journal says otherwise."""
        if self.journal is not None and self._journal is None:
            self._journal = Journal(self.journal)
        run = self._journal and self._journal.run
        return run.get("budget") if run else of_termination

    def _open_journal(self, algorithm: Algorithm, problem_identity: dict[str, Any]) -> None:
        budget = self.budget(budget_of(algorithm.termination, getattr(algorithm, "pop_size", None)))
        journal = self._journal
        if not isinstance(algorithm.seed, int | np.integer):
            raise ValueError(
                f"a run with a journal needs a seed, so that it can be resumed: seed=1, not {algorithm.seed!r}."
            )
        run = {
            "problem": problem_identity,
            "algorithm": described(algorithm, without=[*vars(Algorithm()), "runner"]),
            "evaluations": {"count_skipped": self.count_skipped, "patience": self.patience},
            "seed": int(algorithm.seed),
        }
        if journal.run is None:
            problem = algorithm.problem
            about = {"budget": budget, "begun": datetime.now(UTC).isoformat(), "versions": versions()}
            about["origin"] = getattr(problem, "origin", None)
            journal.begin(run | about, problem.n_obj, problem.n_ieq_constr, problem.n_eq_constr)
        elif found := [text for name in run for text in differences(journal.run.get(name), run[name], name)]:
            raise JournalError(
                f"{journal.path} is the journal of another run: {'; '.join(found)}. Start that run again to resume it, "
                "or choose another file for this one."
            )
        self._replay = deque(journal.rows())
        begun = datetime.fromisoformat(journal.run["begun"]).timestamp()  # what is older was taken over from other runs
        results = [row.result for row in self._replay if row.result.get("begun", 0.0) >= begun]
        times = [(result["begun"], result["ended"]) for result in results]
        self.seconds_before = float(covered(times)[-1]) if times else 0.0
        self._journaled = {row.request: row.result for row in self._replay}

    def is_replaying(self) -> bool:
        """Whether the journal knows what comes next."""
        return bool(self._replay)

    def next_replayed(self) -> tuple[Individual, Mapping[str, Any]]:
        """The request that was answered next when the journal was written, and its result."""
        row = self._replay[0]
        for individual, *_ in self._waiting.values():
            if individual.get("request") == row.request:
                return individual, row.result
        raise self._astray(row)

    def journaled(self, individual: Individual) -> Callable[[Any], Mapping[str, Any]] | None:
        """A function that gives what the journal holds of this individual, if it does."""
        if not self._replay:
            return None
        result = self._journaled.get(individual.get("request"))
        return None if result is None else lambda x: result

    def share(self, individual: Individual) -> Mapping[str, Any] | None:
        """What the memo knows of an individual that is to be evaluated, if anything."""
        return self._shared.get(self._name(individual)) if self._shared else None

    def _take_replayed(self, individual: Individual) -> Mapping[str, Any]:
        """The journal's next result, which must be that of this individual."""
        row = self._replay.popleft()
        if row.request != individual.get("request") or write_genotype(row.x) != write_genotype(individual.X):
            raise self._astray(row)
        self.replayed += 1
        if not self._replay:
            self._journaled = {}
        return row.result

    def _astray(self, row: Row) -> JournalError:
        then, now = self._journal.run.get("versions"), versions()
        found = "; ".join(differences(then, now)) or "the versions of the libraries are the same"
        return JournalError(
            f"{self._journal.path} does not fit this run: request {row.request:,} was for another genotype. What is "
            f"evaluated must depend on nothing but the seed ({found})."
        )

    # ------------------------------------------------------------------------------------------- as a pymoo evaluator

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
        if self._problem is None and algorithm is not None:
            self.begin(algorithm)
        if self.journal is not None and self._journal is None:
            raise ValueError(
                "with a journal, say of which algorithm: evaluator.eval(problem, pop, algorithm=algorithm)."
            )
        with HeldInterrupt() as interrupt:
            self._eval_held(problem, pop, evaluate_values_of, algorithm, kwargs, interrupt)
        if algorithm is not None:
            self.end_if_exhausted(algorithm)

    def _eval_held(
        self,
        problem: Problem,
        pop: Population,
        names: list[str],
        algorithm: Any,
        kwargs: dict[str, Any],
        interrupt: HeldInterrupt,
    ) -> None:
        new: list[Individual] = []
        results: dict[int, Mapping[str, Any]] = {}  # by request
        threshold = _level(algorithm, self.n_eval)
        try:
            for individual in pop:
                if self.request(problem, individual):
                    new.append(individual)
            waiting = {individual.get("request"): individual for individual in new}
            while self._replay and self._replay[0].request in waiting:
                request = self._replay[0].request
                results[request] = self._take_replayed(waiting.pop(request))
            if waiting and self._replay:
                raise self._astray(self._replay[0])
            for request, individual in list(waiting.items()):
                if (shared := self.share(individual)) is not None:
                    self.shared += 1
                    self._commit([(waiting.pop(request), shared)], threshold, len(results))
                    results[request] = shared
            for answers in self._answers(problem, list(waiting.values()), names, algorithm, kwargs, interrupt):
                answers = [(individual, self._checked(out)) for individual, out in answers]
                self._commit(answers, threshold, len(results))
                results |= {individual.get("request"): out for individual, out in answers}
                if self._progress is not None:
                    self._progress.show(self.real + len(results))
        except BaseException as error:
            unfinished = self._settle_those_of(new, results)
            if algorithm is None or not isinstance(error, KeyboardInterrupt):
                self.forget(unfinished)
                raise
            self._interrupted(algorithm, unfinished)
            interrupt.noted = False
        else:
            self._settle_those_of(new, results)

    def _settle_those_of(self, new: list[Individual], results: Mapping[int, Mapping[str, Any]]) -> list[Individual]:
        """Make known what is committed; the individuals without a result are returned."""
        unfinished = []
        for individual in new:
            if (result := results.get(individual.get("request"))) is None:
                unfinished.append(individual)
            else:
                self._settle(individual, self._checked(result))
        return unfinished

    def _answers(
        self,
        problem: Problem,
        new: list[Individual],
        names: list[str],
        algorithm: Any,
        kwargs: dict[str, Any],
        interrupt: HeldInterrupt,
    ) -> Iterator[list[tuple[Individual, Mapping[str, Any]]]]:
        """Evaluate these: each with its result, as they come."""
        if not new:
            return
        if self.runner is None:
            begun = time.time()
            X = np.array([individual.X for individual in new])
            options = {"return_values_of": names, "return_as_dictionary": True, "algorithm": algorithm, **kwargs}
            out = interrupt.let_through(lambda: problem.evaluate(X, **options))
            if out is None:
                raise KeyboardInterrupt
            times = {"begun": begun, "ended": time.time()}
            results = [{name: values[i] for name, values in out.items() if values is not None} for i in range(len(new))]
            yield [(individual, result | times) for individual, result in zip(new, results, strict=True)]
            return
        if self._f is None:
            self._f = Evaluate(problem)
        running = {self.runner.submit(self._f, individual.X): individual for individual in new}
        try:
            while running:
                done = interrupt.wait_for(self.runner)
                if done is not None:
                    yield [(running.pop(done[0]), done[1])]
                if interrupt.noted:
                    raise KeyboardInterrupt
        finally:
            if running:
                self.runner.cancel()

    def _interrupted(self, algorithm: Algorithm, unfinished: list[Individual]) -> None:
        """End the run with what there is: pymoo goes on with these once more, as if they had failed."""
        for individual in unfinished:
            others = self._waiting.pop(self._key(individual))
            self.requested -= len(others)
            for other in others:
                _answer(other, self._checked({"failed": "interrupted"}))
        end_interrupted(algorithm)

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

    # -------------------------------------------------------------------------------------------------- one by one

    def room(self, limit: float) -> bool:
        """Whether one more request can be made, all those in flight counted, so that `n_eval` ends at most at `limit`."""
        in_flight = self.requested - self.real - self.skipped if self.count_skipped else len(self._waiting)
        return self.n_eval + in_flight < limit

    def request(self, problem: Problem, individual: Individual) -> bool:
        """Whether this individual is to be evaluated. If not, it has its result already, or gets it when the one it
        equals is complete."""
        self._use(problem)
        key = self._key(individual)
        individual.set("request", self._requests)
        self._requests += 1
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

    def complete(
        self, individual: Individual, out: Mapping[str, Any], algorithm: Algorithm | None = None
    ) -> list[Individual]:
        """Take the result of an individual that was to be evaluated: F, G, H and whatever else the problem gives, or
        the reason as `failed`. It is committed to the journal, and all who wait for it are answered; they are returned
        in the order of their requests."""
        if self._replay:
            result = self._checked(self._take_replayed(individual))
        else:
            result = self._checked(out)
            self._commit([(individual, result)], _level(algorithm, self.n_eval))
        answered = self._settle(individual, result)
        if self._progress is not None:
            self._progress.show(self.real)
        return answered

    def _commit(
        self, answers: list[tuple[Individual, Mapping[str, Any]]], threshold: float | None, ahead: int = 0
    ) -> None:
        if self._journal is not None:
            rows = [
                Row(individual.get("request"), individual.X, self._name(individual), result, threshold)
                for individual, result in answers
            ]
            self._journal.append(self.real + ahead, rows)

    def _settle(self, individual: Individual, result: dict[str, Any]) -> list[Individual]:
        key = self._key(individual)
        first, *others = self._waiting.pop(key)
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

    def _use(self, problem: Problem) -> None:
        if self._problem is None:
            self._problem = problem
        elif self._problem is not problem:
            raise ValueError("these evaluations are of another problem. Use a new Evaluations() for each problem.")

    def _key(self, individual: Individual) -> Any:
        if hasattr(self._problem, "key"):
            return self._problem.key(individual.X)
        x = np.asarray(individual.X)
        if x.dtype == object:
            raise TypeError(
                "genotypes are compared by their values, which those of objects do not tell; give the problem a key(x)."
            )
        return x.tobytes()

    def _name(self, individual: Individual) -> str:
        """The key as it stands in a journal."""
        return str(self._problem.key(individual.X)) if hasattr(self._problem, "key") else write_genotype(individual.X)

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

    def close(self) -> None:
        """The run is over: close its files and its bar. Our algorithms call this; pymoo's do not, and it happens with the
        end of this object."""
        if self._journal is not None:
            self._journal.close()
        if self._progress is not None:
            self._progress.close()

    def __repr__(self) -> str:
        return f"Evaluations({self.requested:,} requested, {self.real:,} real, {self.skipped:,} skipped, {self.failed:,} failed)"

    def __deepcopy__(self, memo: dict[int, Any]) -> "Evaluations":
        new = copy.copy(self)
        memo[id(self)] = new
        new._problem = copy.deepcopy(self._problem, memo)
        new._waiting = copy.deepcopy(self._waiting, memo)
        return new

    def __getstate__(self) -> dict[str, Any]:
        # One file has one writer: a copy of what has begun is without.
        journal = self.journal if self._problem is None else None
        return self.__dict__ | {
            "journal": journal,
            "_journal": None,
            "_progress": None,
            "_replay": deque(),
            "_journaled": {},
            "_f": None,
        }


def _answer(individual: Individual, result: Mapping[str, Any]) -> None:
    for name, value in result.items():
        individual.set(name, value.copy() if isinstance(value, np.ndarray) else value)
    individual.evaluated.update(result)


def _level(algorithm: Any, n_eval: int) -> float | None:
    """The accuracy threshold in force in an algorithm, of ours or with a `ThresholdSurvival`."""
    annealing = getattr(algorithm, "annealing", None) or getattr(
        getattr(algorithm, "survival", None), "annealing", None
    )
    return None if annealing is None else annealing.level(n_eval)
