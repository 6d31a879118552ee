"""The search for good subnetworks as a pymoo problem.

In: a space and a task. Out: a binary pymoo problem with two objectives.

May import: `util`, `network`, `supernet`, `task`, `algorithms`.
"""

import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from pymoo.core.population import Population
from pymoo.core.problem import Problem
from torch import nn

from .algorithms import BinarySampling
from .network import Network
from .supernet import Outline, Space, Subnetwork
from .task import METRICS, Engine, Outcome, Task
from .task.cascading import Predictions, predict
from .util.fronts import on_front

_UNKNOWN = "unknown"  # not asked for yet

Elsewhere = Callable[[Callable[..., Any], Iterable[np.ndarray]], Sequence[Mapping[str, Any]]]
"""What calls a function for several genotypes and returns what it returns for each: a `Runner`."""


class StitchProblem(Problem):
    """Binary variables, two objectives, both minimised: multiply-adds for one sample, and 1 − the task's metric (or
    the metric itself, if it is minimised).

    Each evaluated individual also carries the `key` of its subnetwork, `active` (which of its variables matter), a
    value for each of the task's metrics under its name, `seconds`, how many `images` were evaluated, and `failed`, the
    reason why there is no result, else empty. What has failed has the worst objectives there are, so it is on no
    front.

    Images come hardest first (`ease`). Asked for what is `needed`, an evaluation stops when the subnetwork can no
    longer reach it: it is *bounded*, its second objective is an estimate, and its `bound` is the smallest that it can
    be.

    Deep copies are the problem itself: algorithms copy what they hold, and supernets are large.

    >>> supernet = get_problem("digits").space
    >>> task = Task(validation=(torch.rand(20, 1, 8, 8), torch.arange(20) % 10))
    >>> problem = StitchProblem(supernet, task)
    >>> result = minimize(problem, nsga2(pop_size=20), ("n_evals", 40), seed=1)
    >>> result.F.shape[1], [str(name) for name in problem.references().get("name")]
    (2, ['inverted', 'residual', 'ensemble'])

    `origin` is what `problems.get_problem` made it from, `{"name": …, "options": {…}}` as JSON; None for a problem
    that was made in another way.

    :param space: a supernet, a family, a chain space, or another `Space`.
    :param task: the data and the metric.
    :param min_accuracy: adds the constraint that the metric reaches this value.
    :param split: which of the task's splits is evaluated on.
    :param device, batch_size, memory: as in `task.Engine`.
    """

    def __init__(
        self,
        space: Space,
        task: Task,
        *,
        min_accuracy: float | None = None,
        split: str = "validation",
        device: torch.device | str | None = None,
        batch_size: int = 32,
        memory: int | None = None,
    ):
        if not isinstance(space, Space):
            raise TypeError(
                f"genotypes select from a Space, such as a Supernet, not from {type(space).__name__}. Your own "
                "inherits from pymoo_stitch.Space."
            )
        if not isinstance(task, Task):
            raise TypeError(f"the data and the metric are given as a Task, not as {type(task).__name__}.")
        if min_accuracy is not None and not 0 <= min_accuracy <= 1:
            raise ValueError(f"min_accuracy must be between 0 and 1, but is {min_accuracy}.")
        super().__init__(
            n_var=space.n_var, n_obj=2, n_ieq_constr=0 if min_accuracy is None else 1, xl=0, xu=1, vtype=bool
        )
        self.space, self.task, self.split, self.min_accuracy = space, task, split, min_accuracy
        self.metric = METRICS[task.metric]
        if min_accuracy is not None and self.metric.best < self.metric.worst:
            raise ValueError(f"min_accuracy needs a metric that is maximised; {task.metric} is minimised.")
        self._engine_options: dict[str, Any] = {"device": device, "batch_size": batch_size, "memory": memory}
        self._references: dict[str, Population] = {}
        self._ease: Any = _UNKNOWN
        self.origin: dict[str, Any] | None = None
        references = [self.subnetwork(x) for x in space.references.values()]
        networks = list(dict.fromkeys(network for reference in references for network in reference.outputs))
        task[split]
        task.check(networks)
        _warn_of_other_sizes(networks)
        if not space.is_fitted:
            warnings.warn("no stitch of this supernet has been fitted: call supernet.fit(images) first.", stacklevel=2)
        self.engine.check(reference for reference in references if len(reference.outputs) == 1)

    @cached_property
    def engine(self) -> Engine:
        return Engine(**self._engine_options)

    # -------------------------------------------------------------------------------------------------- the genotypes

    def subnetwork(self, x: Sequence[bool] | np.ndarray) -> Subnetwork:
        """The subnetwork that a genotype selects."""
        subnetwork = self.space.subnetwork(_binary(x))
        if self.task.head is not None:
            subnetwork.make_head = partial(self.head, subnetwork)
        return subnetwork

    def outline(self, x: Sequence[bool] | np.ndarray) -> Outline:
        """Key, active mask and cost of what a genotype selects: all that is known without evaluating it."""
        return self.space.outline(_binary(x))

    def active(self, x: Sequence[bool] | np.ndarray) -> np.ndarray:
        """A mask over the variables: which matter in this genotype."""
        return self.space.active(_binary(x))

    def cost(self, x: Sequence[bool] | np.ndarray) -> float:
        """The first objective, multiply-adds for one sample: exact, and without evaluating anything."""
        return float(self.outline(x).cost)

    def key(self, x: Sequence[bool] | np.ndarray) -> str:
        """The same for all genotypes that select the same subnetwork."""
        return self.subnetwork(x).key

    @property
    def codes(self) -> np.ndarray | None:
        """The genotypes [n, n_var] of all subnetworks, if the space can list them."""
        return self.space.codes

    @cached_property
    def sampling(self) -> BinarySampling:
        """[G] 7: each variable is 1 with the space's density; all outputs of the output switch are equally frequent.
        Before these come the genotypes that the space would begin with."""
        return BinarySampling(self.space.density, self.space.n_choices, self.space.first)

    # ------------------------------------------------------------------------------------------------------- evaluating

    def _evaluate(
        self,
        X: np.ndarray,
        out: dict[str, Any],
        *args: Any,
        needed: Sequence[float | None] | None = None,
        stopped: Callable[[int], None] = lambda count: None,
        **kwargs: Any,
    ) -> None:
        if self.ease is None:  # nothing to expect of images that were not seen
            needed = None
        if needed is not None:  # metrics, not errors
            needed = [None if error is None else self.metric.error(error) for error in needed]
        options = {"ease": self.ease, "needed": needed, "stopped": stopped}
        out.update(self._results(X, self.split, self.task.metrics, **options))

    @property
    def ease(self) -> np.ndarray | None:
        """How easy each image of the search's split is [n], in [0, 1], with four decimals: what the references make of
        it on average, the probability of its class, or of labels per pixel the fraction that is right. None if that is
        not known: then images come in their order.

        A run's journal keeps it, so that the order of images is the same wherever the run goes on."""
        if isinstance(self._ease, str):
            try:
                statistics = self.references(self.split).get("each")
            except RuntimeError:  # a reference fails: the search will report it
                self._ease = None
            else:
                self._ease = np.mean([_ease(each) for each in statistics], axis=0).round(4)
        return self._ease

    @ease.setter
    def ease(self, ease: Sequence[float] | None) -> None:
        n = len(self.task[self.split])
        if ease is not None and np.shape(ease) != (n,):
            raise ValueError(f"ease has the shape {np.shape(ease)}, but there are {n} images: give a number for each.")
        self._ease = None if ease is None else np.asarray(ease, dtype=float)

    @ease.deleter
    def ease(self) -> None:
        self._ease = _UNKNOWN

    @property
    def can_stop(self) -> bool:
        """Whether evaluations can stop when they cannot reach what is needed any more: not if the metric is no mean
        over images of values in [0, 1], or if a head has to be fitted to each subnetwork."""
        return self.metric.is_mean and (self.task.head is None or self.task.head.n_classes is not None)

    def exhaust(self, split: str | None = None) -> Population:
        """Every subnetwork that the space can list, evaluated by every metric that fits the task; `on_front` marks
        those that no other dominates. (With a journal, on a cluster:
        `minimize(problem, algorithms.Exhaustive(), …)`.)"""
        if self.codes is None:
            raise TypeError(
                f"{type(self.space).__name__} cannot list its subnetworks: it has {self.n_var} variables to search. A "
                "Family does."
            )
        return self.reevaluate(self.codes, split or self.split)

    def references(self, split: str | None = None, runner: Elsewhere | None = None) -> Population:
        """Each network alone and their ensemble, evaluated by every metric that fits the task, with its `name`. They
        do not count towards a search's budget.

        :param runner: as in `reevaluate`.
        """
        split = split or self.split
        if split not in self._references:
            named = self.space.references
            pop = self._evaluated(np.array(list(named.values())), split, runner)
            pop.set("name", list(named))
            for name, reason in zip(named, pop.get("failed"), strict=True):
                if reason:
                    raise RuntimeError(f"the reference {name} cannot be evaluated on the {split} split: {reason}.")
            self._references[split] = pop
        return self._references[split]

    def reevaluate(self, X: np.ndarray, split: str = "test", runner: Elsewhere | None = None) -> Population:
        """Genotypes evaluated on another split by every metric that fits the task, calibration error included.
        `on_front` marks those that no other dominates there.

        :param runner: where that happens, such as a `DaskRunner`; by default in this process.
        """
        pop = self._evaluated(np.atleast_2d(X), split, runner)
        pop.set("on_front", on_front(pop.get("F"), np.array([not reason for reason in pop.get("failed")])))
        return pop

    def predictions(
        self, subnetworks: Sequence[Subnetwork], split: str, runner: Elsewhere | None = None
    ) -> Predictions:
        """What subnetworks predict for the images of a split, with the task's head.

        :param runner: as in `reevaluate`. It knows subnetworks by their genotypes, as they were before any retraining.
        """
        metric = self.task.metric
        if runner is None:
            return predict(self.engine, subnetworks, self.task[split], heads=self.heads(subnetworks), metric=metric)
        rows = self._elsewhere(runner, [subnetwork.x for subnetwork in subnetworks], split, wants_scores=True)
        scores = torch.stack([torch.from_numpy(row["scores"]) for row in rows])
        return Predictions(scores, self.task[split].labels(), metric)

    def _elsewhere(
        self, runner: Elsewhere, X: Iterable[np.ndarray], split: str, *, wants_scores: bool = False
    ) -> Sequence[Mapping[str, Any]]:
        number = list(self.task.splits).index(split)
        return runner(self._asked, [np.array([number, wants_scores, *x], dtype=np.uint8) for x in X])

    @cached_property
    def _asked(self) -> "_Asked":
        """Always the same object, so that workers get the problem once."""
        return _Asked(self)

    def _evaluated(self, X: np.ndarray, split: str, runner: Elsewhere | None = None) -> Population:
        pop = Population.new("X", X)
        if runner is None:
            results = self._results(X, split, self.task.all_metrics, each=True, progress=True)
        else:
            self.task[split]  # an error here, not there
            rows = self._elsewhere(runner, X, split)
            names = set(rows[0]) - {"worker", "begun", "ended"}
            results = {name: _column([row[name] for row in rows]) for name in names}
        for name, values in results.items():
            pop.set(name, values)
        pop.apply(lambda individual: individual.evaluated.update(results))
        return pop

    def _results(self, X: np.ndarray, split: str, metrics: tuple[str, ...], **options: Any) -> dict[str, np.ndarray]:
        """Everything that is known of each genotype, a row for each.

        :param options: of `Engine.evaluate`.
        """
        subnetworks = [self.subnetwork(x) for x in X]
        options["heads"] = self.heads(subnetworks)
        outcomes = self.engine.evaluate(subnetworks, self.task[split], metrics, **options)
        results = {
            "F": np.array([self._objectives(*pair) for pair in zip(subnetworks, outcomes, strict=True)]),
            "key": np.array([subnetwork.key for subnetwork in subnetworks]),
            "active": _objects(self.space.active(x) for x in X),
            "seconds": np.array([outcome.seconds for outcome in outcomes]),
            "images": np.array([outcome.images for outcome in outcomes]),
            "failed": np.array([outcome.failed for outcome in outcomes]),
        }
        results |= {name: np.array([outcome.metrics[name] for outcome in outcomes]) for name in metrics}
        if options.get("each"):
            results["each"] = _objects(outcome.each for outcome in outcomes)
        if options.get("needed"):
            bounds = [None if outcome.bound is None else self.metric.error(outcome.bound) for outcome in outcomes]
            results["bound"] = _objects(bounds)
        if self.min_accuracy is not None:
            results["G"] = self.min_accuracy - results[self.task.metric][:, None]
        return results

    def heads(self, subnetworks: Sequence[Subnetwork]) -> list[nn.Module | None] | None:
        """The task's head for each subnetwork, fitted where it has to be, None where that cannot be done. None for all
        if the task has no head."""
        head = self.task.head
        if head is None:
            return None
        if head.n_classes is not None:
            return [head] * len(subnetworks)  # type: ignore[list-item]  # such a head is a module
        outputs = self.engine.outputs(subnetworks, self.task["calibration"])
        labels = self.task["calibration"].labels()
        return [
            head.fit(rows, labels, self.task.n_classes) if rows is not None and rows.isfinite().all() else None
            for rows in outputs
        ]

    def head(self, subnetwork: Subnetwork) -> nn.Module | None:
        """The task's head for a subnetwork, which its `export` puts after it; None if the task has none."""
        heads = self.heads([subnetwork])
        if heads == [None]:
            raise ValueError(
                f"no head can be fitted to {subnetwork}: its outputs for the calibration split are not finite."
            )
        return heads[0] if heads else None

    def _objectives(self, subnetwork: Subnetwork, outcome: Outcome) -> tuple[float, float]:
        cost = subnetwork.space.max_cost if outcome.failed else subnetwork.cost
        return cost, self.metric.error(outcome.metrics[self.task.metric])

    def identity(self) -> dict[str, Any]:
        """What the results depend on, for a journal: the space with its weights, the data, the metrics and the
        batches."""
        return {
            "space": self.space.digest(),
            "task": {"data": self.task[self.split].digest(), "split": self.split, "metrics": list(self.task.metrics)}
            | self._head_identity(),
            "batch_size": self._engine_options["batch_size"],
            "min_accuracy": self.min_accuracy,
        }

    def in_words(self) -> dict[str, str]:
        """The parts of the identity that are digests, in words, for messages."""
        return {
            "problem.space": f"{type(self.space).__name__} of {', '.join(n.name for n in self.space.networks)}",
            "problem.task.data": f"{len(self.task[self.split]):,} {self.split} images",
        }

    def _head_identity(self) -> dict[str, str]:
        """Empty without a head, so that journals of earlier versions can be resumed."""
        if self.task.head is None:
            return {}
        learnt = {} if self.task.head.n_classes else {"calibration": self.task["calibration"].digest()}
        return {"head": repr(self.task.head)} | learnt

    # ------------------------------------------------------------------------------------------------------- comparing

    @cached_property
    def hv_ref_point(self) -> np.ndarray:
        """The reference point of the hypervolume, in units of F: 1.1 times the cost of the most expensive reference,
        and the error of the worst one, rounded up to a multiple of 0.1 ([G] 15)."""
        worst = self.references().get("F").max(axis=0)
        return np.array([1.1 * worst[0], max(0.1, math.ceil(round(10 * worst[1], 6)) / 10)])

    def normalize(self, F: np.ndarray) -> np.ndarray:
        """Objectives as fractions of `hv_ref_point`, for hypervolumes and plots."""
        return np.asarray(F, dtype=float) / self.hv_ref_point

    def scale(self) -> dict[str, Any] | None:
        """What results are compared with, as JSON takes it, so that a journal can be looked at without networks and
        images: name and objectives of each reference, the hypervolume's reference point, and how many of the variables
        are links (None of a code's). None if a reference fails."""
        try:
            references = self.references()
        except RuntimeError:  # the search will report it
            return None
        named = zip(references.get("name"), references.get("F").tolist(), strict=True)
        return {
            "references": [[str(name), *f] for name, f in named],
            "ref_point": self.hv_ref_point.tolist(),
            "links": self.n_var - self.space.n_choices if self.codes is None else None,
        }

    # ---------------------------------------------------------------------------------------------------------- copying

    def __deepcopy__(self, memo: dict[int, Any]) -> "StitchProblem":
        return self

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__ | {"_references": {}}  # large, and workers need none
        for name in ("engine", "_asked"):
            state.pop(name, None)
        return state


class _Asked:
    """What a runner calls for other splits than the search's: one function for all of them, so that a worker holds the
    problem once. A genotype is preceded by the number of the split, and by whether scores are wanted instead of
    metrics."""

    def __init__(self, problem: StitchProblem):
        self._problem = problem

    def __call__(self, x: np.ndarray) -> dict[str, Any]:
        return self.group(x[None])[0]

    def group(self, X: np.ndarray, *_: Any) -> list[dict[str, Any]]:
        results: list[dict[str, Any]] = [{} for _ in X]
        for number, wants_scores in {(int(x[0]), bool(x[1])) for x in X}:
            rows = [i for i, x in enumerate(X) if (x[0], x[1]) == (number, wants_scores)]
            for i, result in zip(rows, self._answers(X[rows, 2:] > 0, number, wants_scores), strict=True):
                results[i] = result
        return results

    def _answers(self, X: np.ndarray, number: int, wants_scores: bool) -> list[dict[str, Any]]:
        problem, split = self._problem, list(self._problem.task.splits)[number]
        if wants_scores:
            predictions = problem.predictions([problem.subnetwork(x) for x in X], split)
            return [{"scores": scores.numpy()} for scores in predictions.scores]
        found = problem._results(X, split, problem.task.all_metrics, each=True)
        return [{name: values[i] for name, values in found.items()} for i in range(len(X))]


def _ease(each: dict[str, np.ndarray]) -> np.ndarray:
    """How easy each image was for a reference [n], given its statistics."""
    if "pixel_accuracy" in each:
        right, counts = each["pixel_accuracy"].T
        return np.where(counts > 0, right, 1)
    return np.exp(-each["cross_entropy"][:, 0])


def _binary(x: Sequence[bool] | np.ndarray) -> np.ndarray:
    x = np.asarray(x)
    if x.dtype.kind == "f" and not np.isin(x, (0, 1)).all():
        raise ValueError(
            f"genotypes are binary, but {x[~np.isin(x, (0, 1))].flat[0]} is among the values of one. Give the "
            "algorithm binary operators: use pymoo_stitch.algorithms.nsga2(), or BinaryRandomSampling, "
            "TwoPointCrossover and BitflipMutation."
        )
    return x


def _warn_of_other_sizes(networks: Iterable[Network]) -> None:
    others = [n for n in networks if n.trained and n.trained.size not in (None, n.input_shape[-2:])]
    if others:
        described = ", ".join("{} on {}×{}".format(network.name, *network.trained.size) for network in others)
        size = "×".join(map(str, others[0].input_shape[-2:]))
        warnings.warn(f"images are {size}, but these networks were trained on other sizes: {described}.", stacklevel=3)


def _column(values: list[Any]) -> np.ndarray:
    """One value per individual: numbers and texts as such, arrays of numbers as rows."""
    is_plain = all(isinstance(value, np.ndarray | np.generic) and value.dtype != bool for value in values)
    return np.array(values) if is_plain else _objects(values)


def _objects(values: Iterable[Any]) -> np.ndarray:
    """One object per individual: pymoo would turn arrays of booleans into floats."""
    values = list(values)
    array = np.empty(len(values), dtype=object)
    for i, value in enumerate(values):
        array[i] = value
    return array
