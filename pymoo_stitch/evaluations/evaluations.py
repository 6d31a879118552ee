"""The service between an algorithm and what evaluates: no subnetwork is evaluated twice in a run, budgets count real
evaluations, and with a journal every result is on disk."""

import copy
import os
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import numpy as np
from pymoo.core.algorithm import Algorithm
from pymoo.core.evaluator import Evaluator
from pymoo.core.individual import Individual
from pymoo.core.population import Population
from pymoo.core.problem import Problem

from ..runners import Result, Runner, check_runner
from ..util.versions import OWN, versions
from .budget import budget_of
from .description import described, differences, identity, problem_differences, restore, words
from .evaluate import Evaluate, Together
from .interrupts import HeldInterrupt, end_interrupted
from .journal import Journal, JournalError, Row, covered, write_genotype
from .progress import Progress
from .replay import Replay

Wait = Callable[[Runner], tuple[int, Result] | None]
"""How a runner's next completion is waited for; None if there is none yet."""


@dataclass(eq=False)
class _Request:
    """A subnetwork whose result is asked for: the individuals that select it, the first one first."""

    number: int
    key: Any
    individuals: list[Individual]

    @property
    def x(self) -> np.ndarray:
        return self.individuals[0].X

    @property
    def needed(self) -> float | None:
        """The second objective that it must reach to matter; None if it is to be evaluated in full."""
        return self.individuals[0].get("needed")


class Evaluations(Evaluator):
    """Answers requests for evaluations, each subnetwork's once.

    Two individuals are the same if `problem.key(x)` says so; of problems without keys, if their genotypes are equal.
    The second one, whether the first has been evaluated or is still being, gets the first one's result and is
    *skipped*. `n_eval`, what pymoo's `("n_evals", N)` looks at, counts real evaluations only, for every algorithm
    alike.

    As a pymoo evaluator: `minimize(problem, algorithm, ("n_evals", 2_000), seed=1, evaluator=Evaluations())`. Each run
    needs a new one, since its counters are not reset. An algorithm that does not wait submits individuals (`submit`)
    and takes them with their results one by one (`next`), which is what `eval` does too.

    >>> evaluations = Evaluations()
    >>> result = minimize(get_problem("digits"), GOMEA(pop_size=8), ("n_evals", 20), seed=1, evaluator=evaluations)
    >>> evaluations.real, evaluations.failed
    (20, 0)

    With a journal, every evaluation is on disk before the algorithm sees it. The same run started again, with the same
    journal, is answered by it as far as it goes, and ends as if it had never been interrupted; with a larger budget, a
    finished run goes on (except on a simulated clock, whose workers had stopped).

    `requested` = `real` + `skipped` + those in flight; `failed` counts the real ones without a result: their `failed`
    says why (it is empty for the others), and their objectives are the problem's worst, or infinite.
    `bounded` counts those that stopped because they could not reach what was needed of them, `images` those that were
    evaluated. `replayed` and `shared` count those of the real ones that came from the journal and from the memo.
    `interrupted` tells whether Ctrl-C ended the run.

    A deep copy of one in use shares what was known when it was made, has no journal, and is independent from then on.

    :param runner: where evaluations happen, for any algorithm; by default in this process.
    :param journal: the path of the run's `Journal`.
    :param memo: paths of other runs' journals, of the same problem. Their results are not computed again, but count.
    :param progress: whether to show a progress bar.
    :param count_skipped: whether skipped evaluations count towards the budget, as in [G].
    :param patience: a run of an algorithm ends, with a warning, after this many skipped evaluations in a row: its space
        may hold fewer subnetworks than the budget.
    """

    def __init__(
        self,
        *,
        runner: Runner | None = None,
        journal: str | os.PathLike | None = None,
        memo: Iterable[str | os.PathLike] = (),
        progress: bool = False,
        count_skipped: bool = False,
        patience: int = 10_000,
    ):
        super().__init__()
        check_runner(runner)
        self.runner, self.journal, self.memo, self.progress = runner, journal, tuple(memo), progress
        self.count_skipped, self.patience = count_skipped, patience
        self.requested = self.real = self.skipped = self.failed = self.bounded = self.replayed = self.shared = 0
        self.images = 0
        self.n_eval: int
        self.skipped_in_a_row = 0
        self.interrupted = False
        self.seconds_before = 0.0  # that the run took before it was interrupted
        self._problem: Problem | None = None
        self._f: Evaluate | None = None
        self._journal: Journal | None = None
        self._progress: Progress | None = None
        # What is known: in this run, shared with copies, which see the first `real` of it; in its journal; in those of
        # others.
        self._known: dict[Any, tuple[int, dict[str, Any]]] = {}
        self._replay = Replay()
        self._others: dict[str, Result] = {}
        # Open requests, by key, and by where they get their answer.
        self._numbered = 0  # requests so far, also those that were taken back
        self._open: dict[Any, _Request] = {}
        self._held: dict[int, _Request] = {}  # by number: not placed yet, or to be answered by the journal
        self._taken: deque[_Request] = deque()  # known from other runs
        self._running: dict[tuple[int, int], _Request] = {}  # by their runner, and their number in it
        # Individuals with results that `next` has still to return: their subnetworks needed no evaluation of their own.
        self._answered: deque[Individual] = deque()
        self._answered_in_a_row = 0

    # ----------------------------------------------------------------------------------------------------- the run

    def begin(self, algorithm: Algorithm) -> None:
        """Open the journal and the memo for a run of this algorithm, which has been set up."""
        problem = algorithm.problem
        self._use(problem)
        has_ease = hasattr(type(problem), "ease")
        if has_ease:
            del problem.ease  # that of an earlier run, whose journal may have had another
        own = identity(problem) if self.journal is not None or self.memo else {}  # takes a pass over data and weights
        if self.journal is not None:
            self._open_journal(algorithm, own)
        for path in self.memo:
            other = Journal(path, create=False)
            if other.run is None:  # it was interrupted before it began
                continue
            if found := problem_differences(other.run, problem, own):
                raise JournalError(f"{path} is of another problem and cannot be a memo here: {'; '.join(found)}.")
            for row in other.rows():
                if not row.result["failed"] and says_more(row.result, self._others.get(row.key)):
                    self._others[row.key] = row.result
            other.close()
        if has_ease:
            _ = problem.ease  # once, before workers get the problem
        if self.progress:
            self._progress = Progress(algorithm)

    def budget(self, of_termination: int | None) -> int | None:
        """The evaluations the whole run was planned for: those of the termination, unless a journal says otherwise."""
        run = self._journaled_run()
        return run.get("budget") if run else of_termination

    def journaled_option(self, name: str) -> Any:
        """The value that an option of the algorithm has in the journal; None if that does not say."""
        run = self._journaled_run()
        return run["algorithm"].get(name) if run else None

    def journaled_notes(self) -> list[Mapping[str, Any]]:
        """What the algorithm noted beside each evaluation that the journal is going to answer."""
        return self._replay.notes()

    def ref_point(self) -> np.ndarray | None:
        """The reference point of the problem's hypervolume (n_obj,), of a run that goes on that of its journal; None if
        the problem has none, or a reference fails."""
        scale = (self._journaled_run() or {}).get("scale")
        if scale:
            return np.array(scale["ref_point"])
        with suppress(RuntimeError):  # the search will report it
            return getattr(self._problem, "hv_ref_point", None)
        return None

    def restore(self, algorithm: Algorithm) -> None:
        """Give the algorithm, before it is set up, the earlier values of those options that its journal does not name:
        see `description.restore`."""
        run = self._journaled_run()
        if run:
            restore(algorithm, run.get("algorithm"))

    def _journaled_run(self) -> Mapping[str, Any] | None:
        """What the journal says of its run, if there is one that has begun."""
        if self.journal is not None and self._journal is None:
            self._journal = Journal(self.journal)
        return None if self._journal is None else self._journal.run

    def _open_journal(self, algorithm: Algorithm, problem_identity: dict[str, Any]) -> None:
        self.restore(algorithm)
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
            about |= {"origin": getattr(problem, "origin", None), "words": words(problem)}
            if hasattr(type(problem), "ease"):
                about["ease"] = None if problem.ease is None else problem.ease.tolist()
            if hasattr(problem, "scale"):  # for readers of the journal
                about["scale"] = problem.scale()
            journal.begin(run | about, problem.n_obj, problem.n_ieq_constr, problem.n_eq_constr)
        elif found := [
            *problem_differences(journal.run, algorithm.problem, problem_identity),
            *(
                text
                for name in run
                if name != "problem"
                for text in differences(journal.run.get(name), run[name], name)
            ),
        ]:
            raise JournalError(
                f"{journal.path} is the journal of another run: {'; '.join(found)}. Start that run again to resume it, "
                "or choose another file for this one."
            )
        else:
            self._check_version(journal)
            if hasattr(type(algorithm.problem), "ease"):
                algorithm.problem.ease = journal.run.get("ease")
        rows = list(journal.rows())
        begun = datetime.fromisoformat(journal.run["begun"]).timestamp()  # what is older was taken over from other runs
        results = [row.result for row in rows if row.result.get("begun", 0.0) >= begun]
        times = [(result["begun"], result["ended"]) for result in results]
        self.seconds_before = float(covered(times)[-1]) if times else 0.0
        self._replay = Replay(rows, journal.path, journal.run.get("versions"))

    @staticmethod
    def _check_version(journal: Journal) -> None:
        """Versions in development propose something else from one to the next; what releases have written, all that
        come later can go on with."""
        own, theirs = versions()[OWN], (journal.run.get("versions") or {}).get(OWN, "")
        if ".dev" in theirs and theirs != own:
            raise JournalError(
                f"{journal.path} was written by {OWN} {theirs}, whose searches propose something else than those of "
                f"{own}. Go on with that version, or choose another file for a new run. It can still be read."
            )

    def is_replaying(self) -> bool:
        """Whether the journal knows what comes next."""
        return bool(self._replay)

    def end_if_exhausted(self, algorithm: Algorithm) -> None:
        """Make the algorithm's next generation its last if many requests in a row brought nothing new."""
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
        """Whether one more individual can be submitted, all those in flight counted, so that `n_eval` ends at most at
        `limit`. What the journal answers next was submitted then, perhaps for a larger budget."""
        if self.lacks_request:
            return True
        in_flight = self.requested - self.real - self.skipped if self.count_skipped else len(self._open)
        return self.n_eval + in_flight < limit

    @property
    def lacks_request(self) -> bool:
        """Whether the journal answers next what is not submitted yet."""
        return bool(self._replay) and self._replay.next_request >= self._numbered

    def submit(self, problem: Problem, individual: Individual) -> bool:
        """Ask for the result of an individual, which `next` returns when it is there. Whether its subnetwork is new,
        and neither known from this run nor asked for already."""
        self._use(problem)
        key = self._key(individual)
        number = self._numbered
        self._numbered += 1
        self.requested += 1
        sequence, result = self._known.get(key, (self.real, None))
        if sequence < self.real:
            self._skip(individual, result)
            self._answered.append(individual)
        elif key in self._open:
            self._open[key].individuals.append(individual)
        else:
            self._open[key] = self._held[number] = _Request(number, key, [individual])
            return True
        return False

    def next(
        self,
        runner: Runner,
        wait: Wait | None = None,
        *,
        algorithm: Algorithm | None = None,
        known_first: int = 1,
    ) -> Individual | None:
        """The next of the submitted individuals, with its result, which is in the journal; None if none came while it
        was waited for. Those of the journal come in its order, then those that other runs know, then those of the
        runner.

        :param runner: where what is not known is evaluated.
        :param wait: how to wait for it; by default until something is complete.
        :param algorithm: whose accuracy threshold and notes go into the journal.
        :param known_first: how many that needed no evaluation may be returned in a row while others wait for theirs.
        """
        wait = wait or (lambda runner: runner.wait())
        return self._next(runner, wait, algorithm, lambda: _level(algorithm, self.n_eval), known_first)

    def _next(
        self,
        runner: Runner,
        wait: Wait,
        algorithm: Algorithm | None,
        threshold: Callable[[], float | None],
        known_first: float,
        keeps_clock: bool = True,
    ) -> Individual | None:
        # While the journal answers, nothing is submitted, unless time is virtual: then a clock has to go on as it went.
        is_journaled = bool(self._replay) and not (keeps_clock and runner.is_virtual)
        if not is_journaled:
            self._place(runner)
        waiting = self._held or self._taken or self._running
        out: Mapping[str, Any]
        if self._answered and (self._answered_in_a_row < known_first or not waiting):
            self._answered_in_a_row += 1
            return self._answered.popleft()
        if is_journaled:
            if self._replay.next_request not in self._held:
                raise self._replay.astray()
            request, out = self._held.pop(self._replay.next_request), {}
        elif self._taken:
            request = self._taken.popleft()
            out = self._others[self._name(request)]
            self.shared += not self._replay
        else:
            done = wait(runner)
            if done is None:
                return None
            request, out = self._running.pop((id(runner), done[0])), done[1]
        try:
            result = self._committed(request, out, threshold(), _notes(algorithm, request.individuals[0], self.real))
        except BaseException:  # the journal cannot be written: it is asked for again
            self._held[request.number] = request
            raise
        first, *others = self._settle(request, result)
        self._answered.extend(others)
        self._answered_in_a_row = 0
        if self._progress is not None:
            self._progress.show(self.real, is_replayed=self.replayed == self.real)
        return first

    def _place(self, runner: Runner) -> None:
        """Decide for each new request where it gets its answer: from other runs' journals, or from the runner."""
        for request in list(self._held.values()):
            if self._others and self._says_enough(self._others.get(self._name(request)), request):
                self._taken.append(request)
            else:
                journaled = self._replay.result(request.number)
                f = self._evaluate if journaled is None else lambda x, needed=None, result=journaled: result
                needed = () if request.needed is None else (request.needed,)  # a user's runner need not know of it
                self._running[id(runner), runner.submit(f, request.x, *needed)] = request
            del self._held[request.number]

    @staticmethod
    def _says_enough(result: Result | None, request: _Request) -> bool:
        """Whether what another run found answers a request: all is known, or that it cannot reach what is needed."""
        if result is None:
            return False
        bound = result.get("bound")
        return bound is None or (request.needed is not None and bound > request.needed)

    @property
    def _evaluate(self) -> Evaluate:
        """What runners call: always the same object, for it is known by its identity."""
        if self._f is None:
            self._f = Evaluate(self._problem)
        return self._f

    def _committed(
        self, request: _Request, out: Result, threshold: float | None, notes: Mapping[str, Any]
    ) -> dict[str, Any]:
        """A result that is in the journal now: either replayed from there, or just committed to it."""
        if self._replay:
            result = self._checked(self._replay.take(request.number, request.x))
            self.replayed += 1
            return result
        result = self._checked(out)
        if self._journal is not None:
            row = Row(request.number, request.x, self._name(request), result, threshold, notes)
            self._journal.append(self.real, [row])
        return result

    def _settle(self, request: _Request, result: dict[str, Any]) -> list[Individual]:
        """Record a result, and answer all that wait for it."""
        if len(self._known) != self.real:  # a copy of this has recorded results of its own
            self._known = dict(islice(self._known.items(), self.real))
        self._known[request.key] = self.real, result
        del self._open[request.key]
        self.real += 1
        self.n_eval += 1
        self.failed += bool(result["failed"])
        self.bounded += is_bounded(result)
        self.images += result.get("images", 0)
        self.skipped_in_a_row = 0
        first, *others = request.individuals
        _answer(first, result)
        for other in others:
            self._skip(other, result)
        return request.individuals

    def withdraw(self, runner: Runner) -> None:
        """Take everything back from the runner. What was submitted to it is submitted again by the next `next`."""
        runner.cancel()
        self._held = self._withdrawn(runner)
        self._running = {key: request for key, request in self._running.items() if key[0] != id(runner)}
        self._taken = deque()

    def _withdrawn(self, runner: Runner | None = None) -> dict[int, _Request]:
        """The requests to place again if a runner, or every runner, is given up: those first that were placed first."""
        running = [request for (owner, _), request in self._running.items() if runner is None or owner == id(runner)]
        return {request.number: request for request in [*running, *self._taken, *self._held.values()]}

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
            raise ValueError("with a journal, name the algorithm: evaluator.eval(problem, pop, algorithm=algorithm).")
        runner = self.runner or Together(problem, evaluate_values_of, algorithm, kwargs)
        level = _level(algorithm, self.n_eval)  # of the whole generation
        with HeldInterrupt() as interrupt:
            waiting, others = Counter(id(individual) for individual in pop), []

            def wait(runner: Runner) -> tuple[int, Result] | None:
                return runner.finished() or interrupt.wait_for(runner)

            try:
                for individual in pop:
                    self.submit(problem, individual)
                while waiting.total():
                    answered = self._next(runner, wait, algorithm, lambda: level, np.inf, keeps_clock=False)
                    if waiting[id(answered)]:
                        waiting[id(answered)] -= 1
                    elif answered is not None:  # that an algorithm, in the middle of which this is called, waits for
                        others.append(answered)
                    elif interrupt.noted:
                        raise KeyboardInterrupt
                self._answered.extend(others)
            except BaseException as error:
                self._answered.extend(others)
                unfinished = self._take_back(pop, runner)
                if algorithm is None or not isinstance(error, KeyboardInterrupt):
                    raise
                for individual in unfinished:  # pymoo goes on with these once more, as if they had failed
                    _answer(individual, self._checked({"failed": "interrupted"}))
                end_interrupted(algorithm)
                interrupt.noted = False
        if algorithm is not None:
            self.end_if_exhausted(algorithm)

    def _take_back(self, pop: Population, runner: Runner) -> list[Individual]:
        """Take back the requests of these individuals: those that have no result."""
        self.withdraw(runner)
        mine = {id(individual) for individual in pop}
        self._answered = deque(individual for individual in self._answered if id(individual) not in mine)
        taken_back = [request for request in self._open.values() if id(request.individuals[0]) in mine]
        for request in taken_back:
            del self._open[request.key]
            self._held.pop(request.number, None)
            self.requested -= len(request.individuals)
        return [individual for request in taken_back for individual in request.individuals]

    # ------------------------------------------------------------------------------------------------------ their parts

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
                "genotypes are compared by their values, which does not work for objects; give the problem a key(x)."
            )
        return x.tobytes()

    def _name(self, request: _Request) -> str:
        """The key as it stands in a journal."""
        return str(request.key) if hasattr(self._problem, "key") else write_genotype(request.x)

    def _skip(self, individual: Individual, result: dict[str, Any]) -> None:
        self.skipped += 1
        self.skipped_in_a_row += 1
        self.n_eval += self.count_skipped
        _answer(individual, result)

    def _checked(self, out: Mapping[str, Any]) -> dict[str, Any]:
        """A result that can be compared with others: NaN counts as failed, and what has failed is worse than everything
        else."""
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
        """Close the files and the progress bar of a run that is over. Our algorithms call this; for pymoo's it happens
        when this object is deleted."""
        if self._journal is not None:
            self._journal.close()
        if self._progress is not None:
            self._progress.close()

    def __repr__(self) -> str:
        names = ("requested", "real", "skipped", "failed", "bounded")
        return f"Evaluations({', '.join(f'{getattr(self, name):,} {name}' for name in names)})"

    def __deepcopy__(self, memo: dict[int, Any]) -> "Evaluations":
        new = copy.copy(self)
        memo[id(self)] = new
        for name in ("_problem", "_open", "_held", "_answered"):
            setattr(new, name, copy.deepcopy(getattr(new, name), memo))
        return new

    def __getstate__(self) -> dict[str, Any]:
        # A file has one writer: a copy of a run that has begun has no journal. What is running here does not run for a
        # copy, which submits it again.
        return self.__dict__ | {
            "journal": self.journal if self._problem is None else None,
            "_journal": None,
            "_progress": None,
            "_replay": Replay(),
            "_f": None,
            "_held": self._withdrawn(),
            "_running": {},
            "_taken": deque(),
        }


def says_more(result: Mapping[str, Any], known: Mapping[str, Any] | None) -> bool:
    """Whether this is known of a subnetwork rather than what was: a complete evaluation, or a larger bound."""
    if known is None or not is_bounded(known):
        return known is None
    return not is_bounded(result) or result["bound"] > known["bound"]


def is_bounded(result: Mapping[str, Any]) -> bool:
    """Whether an evaluation stopped because it could not reach what was needed of it: its second objective is an
    estimate."""
    return result.get("bound") is not None


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


def _notes(algorithm: Any, individual: Individual, row: int) -> Mapping[str, Any]:
    """What an algorithm, if it is one of ours, notes beside an evaluation."""
    return algorithm.notes(individual, row) if hasattr(algorithm, "notes") else {}
