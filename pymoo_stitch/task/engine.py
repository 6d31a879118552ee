"""What subnetworks predict, computed together: an operation on the same inputs is done once for all that need it.

A subnetwork becomes a list of *values*, each an operation and the values it reads. Values of different subnetworks with
the same operation and the same inputs are one value: so the part of a network before its first stitch is shared by all,
and whatever two subnetworks have in common from the input on is computed once for both. How a value is computed depends
on nothing else, least of all on who else needs it: predictions for a batch are the same to the bit, alone or together,
in any order."""

import copy
import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary, ref

import numpy as np
import torch
from torch import nn

from ..network import (
    FRESH,
    IN_PLACE,
    INPUT,
    VIEWS,
    Node,
    Ref,
    as_floats,
    fold,
    foldable,
    is_alias,
    lookup,
    lookup_in_place,
)
from ..supernet import Step, Subnetwork
from ..util.progress import shown
from .metrics import METRICS
from .plan import MEAN, Operation, Plan, Program, Value, bytes_of, channels_last, compiled, needed
from .split import Split
from .stopping import Stopping, hardest_first

_NAN = "nan"
"""Kept with the metrics: whether there was NaN among the predictions."""

_EACH = "each"
"""Before the name of a metric: its statistics of each image."""

_Measure = Callable[[int, torch.Tensor, torch.Tensor], dict[Any, Any]]
"""What is found in a subnetwork's outputs for a batch with its labels: named values that can be added."""


@dataclass(frozen=True)
class Outcome:
    """The result of evaluating one subnetwork: a value for each metric, its share of the time taken, and the
    reason if it failed, else nothing. A failed one has the worst value of every metric. `each` has, if asked for, for
    each metric the statistics of each image [n, …] (see `Metric`).

    `images` is how many were evaluated. One that stopped before the last is *bounded*: `bound` is the best that its
    first metric can be, whose value is an estimate; the other metrics are not known."""

    metrics: dict[str, float]
    seconds: float
    failed: str = ""
    each: dict[str, np.ndarray] = field(default_factory=dict)
    images: int = 0
    bound: float | None = None


class Engine:
    """Evaluates subnetworks on one device, without gradients.

    Convolutions run channels-last, and a batch norm after a convolution is folded into it, unless others in the
    network read what lies between. Where a stitch reads it, the convolution is computed by itself as well: if it was
    not folded for some subnetworks and folded for others, these would share nothing from there on.

    :param device: by default a GPU if there is one, else the CPU.
    :param batch_size: of how many images a batch consists. What is evaluated together changes no result, but the size
        of batches may change how they are rounded.
    :param memory: how many bytes a batch may take, not counting weights and what metrics take. Subnetworks that would
        need more together are evaluated in several groups; one that would need more alone fails. By default 2 GiB, or a
        quarter of what the device has if that is less.
    """

    def __init__(self, device: torch.device | str | None = None, *, batch_size: int = 32, memory: int | None = None):
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        for name, value in (("batch_size", batch_size), ("memory", memory)):
            if value is not None and (not isinstance(value, int) or value < 1):
                raise ValueError(f"{name} must be a whole number, at least 1, but is {value!r}.")
        self.batch_size = batch_size
        self.memory = min(2**31, _device_memory(self.device) // 4) if memory is None else memory
        self._operations: dict[tuple, Operation] = {}
        self._foldable: dict[int, dict[str, str]] = {}
        self._stitches: WeakKeyDictionary[nn.Module, tuple[list, Operation]] = WeakKeyDictionary()
        self._resident: WeakKeyDictionary[Split, Split] = WeakKeyDictionary()  # copies of splits on the device
        self._lock = threading.Lock()  # a worker with a GPU may evaluate several groups at a time

    def evaluate(
        self,
        subnetworks: Sequence[Subnetwork],
        split: Split,
        metrics: Iterable[str],
        *,
        heads: Sequence[nn.Module | None] | None = None,
        each: bool = False,
        progress: bool = False,
        ease: np.ndarray | None = None,
        needed: Sequence[float | None] | None = None,
        stopped: Callable[[int], None] = lambda count: None,
    ) -> list[Outcome]:
        """The metrics of each subnetwork on a split, in the order given, in one pass over it. A subnetwork that raises
        an error or predicts NaN is an outcome with a reason.

        :param heads: for each subnetwork what turns its outputs into scores, None where there is no such thing; by
            default outputs are scores.
        :param each: whether outcomes have the statistics of each image.
        :param progress: shows a progress bar on a terminal, if it takes more than two seconds.
        :param ease: how easy each image is [n]: the hardest are evaluated first. By default in their order, as is a
            split that is not kept in memory.
        :param needed: for each subnetwork the value that the first metric must reach; its evaluation stops when it no
            longer can. None for what is evaluated in full.
        :param stopped: is called with the number of those that have just stopped.
        """
        start, metrics = time.perf_counter(), tuple(metrics)
        if unknown := [name for name in metrics if name not in METRICS]:
            raise ValueError(f"there is no metric {unknown[0]!r}; choose from {', '.join(METRICS)}.")
        if heads is not None and self.device.type != "cpu":  # copies: a task's own also goes to workers without a GPU
            heads = [head and copy.deepcopy(head).to(self.device) for head in heads]

        def measure(number: int, output: torch.Tensor, labels: torch.Tensor) -> dict[Any, Any]:
            if heads is not None and heads[number] is None:
                raise ValueError("no head can be fitted to it: its outputs for the calibration split are not finite")
            scores = output if heads is None else heads[number](output)
            found = {name: METRICS[name].each(scores, labels) for name in metrics}
            kept = {(_EACH, name): [rows.cpu()] for name, rows in found.items()} if each else {}
            return {_NAN: output.isnan().any()} | {name: rows.sum(0) for name, rows in found.items()} | kept

        order = hardest_first(ease) if ease is not None and split.is_kept else None
        stopping = None if needed is None else _stopping(metrics[0], needed, ease, order)

        def is_over(number: int, found: dict[tuple[int, Any], Any], seen: int) -> bool:
            if needed is None or needed[number] is None:  # a GPU is not asked, which would have to be waited for
                return False
            total, count = found[number, metrics[0]].tolist()
            return stopping.is_over(number, total, count, seen)

        sums, failed, seen = self._sums(subnetworks, split, measure, progress, order, is_over, stopped)
        values = [
            {name: METRICS[name].value(sums[number, name].cpu()) for name in metrics if not failed[number]}
            for number in range(len(subnetworks))
        ]
        seconds = (time.perf_counter() - start) / max(1, len(subnetworks))
        worst = {name: METRICS[name].worst for name in metrics}
        outcomes = []
        for number, found in enumerate(values):
            broken = not failed[number] and sums[number, _NAN].item()
            wrong = [f"its {name} is {value}" for name, value in found.items() if not math.isfinite(value)]
            reason = failed[number] or ("it predicts NaN" if broken else ", ".join(wrong))
            if reason:
                outcomes.append(Outcome(worst, seconds, reason, images=seen[number]))
            elif seen[number] == len(split):
                place = slice(None) if order is None else np.argsort(order)  # each image's among those evaluated
                rows = {name: torch.cat(sums[number, (_EACH, name)]).numpy()[place] for name in metrics if each}
                outcomes.append(Outcome(found, seconds, each=rows, images=seen[number]))
            else:
                so_far = *sums[number, metrics[0]].tolist(), seen[number]
                known = dict.fromkeys(metrics, math.nan) | {metrics[0]: stopping.estimate(*so_far)}
                outcomes.append(Outcome(known, seconds, images=seen[number], bound=stopping.bound(*so_far)))
        return outcomes

    def outputs(self, subnetworks: Sequence[Subnetwork], split: Split) -> list[torch.Tensor | None]:
        """The outputs of each subnetwork for all images of a split, on the CPU; None where it raises an error."""
        rows, failed, _ = self._sums(subnetworks, split, lambda number, output, labels: {"rows": [output.cpu()]})
        return [None if failed[number] else torch.cat(rows[number, "rows"]) for number in range(len(subnetworks))]

    def _sums(
        self,
        subnetworks: Sequence[Subnetwork],
        split: Split,
        measure: _Measure,
        progress: bool = False,
        order: np.ndarray | None = None,
        is_over: Callable[[int, dict[tuple[int, Any], Any], int], bool] = lambda number, sums, seen: False,
        stopped: Callable[[int], None] = lambda count: None,
    ) -> tuple[dict[tuple[int, Any], Any], dict[int, str], dict[int, int]]:
        """Whatever `measure` finds in the outputs of each subnetwork, added up over a split, by its number and name;
        why there is nothing of some; and of how many images it is.

        :param order: as in `Split.batches`.
        :param is_over: whether a subnetwork needs no more images, given its number, all that was found, and how many it
            has seen.
        :param stopped: is called with the number of those that have just reached that.
        """
        plans = list(self.plans(subnetworks))
        failed = {number: self._too_large(plan) for plan in plans for number in plan.numbers}
        plans = [plan for plan in plans if not failed[plan.numbers[0]]]
        seen = dict.fromkeys(failed, 0)
        sums: dict[tuple[int, Any], Any] = {}
        batches = self._on_device(split).batches(self.batch_size, order) if plans else ()
        title = f"evaluate {len(subnetworks):,} network{'s' * (len(subnetworks) != 1)} on {split.name}"
        n_batches = math.ceil(len(split) / self.batch_size)
        for images, labels in shown(batches, n_batches, title, "batch", None if progress else False, delay=2):
            if labels is None:
                raise ValueError(f"the {split.name} split has no labels to evaluate on.")
            images, labels = self._prepared(images), labels.to(self.device, non_blocking=True)
            for i, plan in enumerate(plans):
                for key, value in self._batch_sums(plan, images, labels, measure, failed).items():
                    sums[key] = sums[key] + value if key in sums else value
                for number in plan.numbers:
                    seen[number] += len(images)
                over = {number for number in plan.numbers if failed[number] or is_over(number, sums, seen[number])}
                if over:
                    stopped(len(over))
                    plans[i] = Plan([program for program in plan.programs if program.number not in over])
            plans = [plan for plan in plans if plan.programs]
            if not plans:
                break
        return sums, failed, seen

    def _batch_sums(
        self, plan: "Plan", images: torch.Tensor, labels: torch.Tensor, measure: _Measure, failed: dict[int, str]
    ) -> dict[tuple[int, Any], Any]:
        """What a batch adds to the sums. Why a subnetwork failed goes to `failed`."""
        found: dict[tuple[int, Any], Any] = {}

        def add(number: int, output: torch.Tensor) -> None:
            found.update({(number, name): value for name, value in measure(number, output, labels).items()})

        if not plan.programs or failed[plan.numbers[0]]:
            return {}
        try:
            plan.run(images, add)
            return found
        except Exception as raised:
            error, no_memory = f"{type(raised).__name__}: {raised}", isinstance(raised, torch.OutOfMemoryError)
        # What the error held is free now.
        if no_memory and self.device.type == "cuda":
            torch.cuda.empty_cache()
        if len(plan.programs) > 1:  # which one is at fault shows when each is alone
            alone = [self._batch_sums(Plan([program]), images, labels, measure, failed) for program in plan.programs]
            return {key: value for each in alone for key, value in each.items()}
        if no_memory and len(images) > 1:
            halves = [
                self._batch_sums(plan, *half, measure, failed)
                for half in zip(images.tensor_split(2), labels.tensor_split(2), strict=True)
            ]
            return {} if failed[plan.numbers[0]] else {key: halves[0][key] + halves[1][key] for key in halves[0]}
        failed[plan.numbers[0]] = error
        return {}

    def _too_large(self, plan: "Plan") -> str:
        """Why this plan cannot be run, or nothing."""
        if plan.memory <= self.memory:
            return ""
        return f"a batch of {self.batch_size} images takes {plan.memory:,} bytes, and {self.memory:,} are allowed"

    def predict(self, subnetworks: Sequence[Subnetwork], images: torch.Tensor) -> list[torch.Tensor]:
        """The outputs of each subnetwork for the images, on the CPU."""
        given: list[list[torch.Tensor]] = [[] for _ in subnetworks]
        for plan in self.plans(subnetworks):
            for batch in images.split(self.batch_size):
                plan.run(self._prepared(batch), lambda number, output: given[number].append(output.cpu()))
        return [torch.cat(parts) for parts in given]

    def check(self, networks: Iterable[Subnetwork]) -> None:
        """Raise a ValueError if these need more memory side by side than there is for a batch. A subnetwork that runs
        through all of them may need as much."""
        needed = sum(plan.memory for network in networks for plan in self.plans([network]))
        if needed > self.memory:
            fitting = self.memory * self.batch_size // needed
            remedy = f"batch_size={fitting} or less" if fitting else "a smaller batch_size, smaller images"
            raise ValueError(
                f"a batch of {self.batch_size} may take {needed:,} bytes, but memory={self.memory:,}. Use {remedy}, or "
                "allow more memory."
            )

    def plans(self, subnetworks: Sequence[Subnetwork]) -> Iterator["Plan"]:
        """How these subnetworks are computed, in as few groups as the memory allows.

        Those that branch off early come first: then little has to be kept for the others. Genotypes are in topological
        order, so that is the descending order of their active parts."""
        programs = [Program(number, *self._lowered(subnetwork)) for number, subnetwork in enumerate(subnetworks)]
        programs.sort(key=lambda program: program.decisions, reverse=True)
        pending = [programs] if programs else []
        while pending:
            group = pending.pop()
            plan = Plan(group)
            if plan.memory <= self.memory or len(group) == 1:
                yield plan
            else:
                middle = len(group) // 2
                pending += [group[middle:], group[:middle]]

    def _on_device(self, split: Split) -> Split:
        """A split as it is evaluated: a copy on the device, where it fits beside a batch, that is made once."""
        if self.device.type == "cpu" or not split.is_kept or split.nbytes > self.memory:
            return split
        with self._lock:
            try:
                if split not in self._resident:
                    self._resident[split] = split.to(self.device)
            except torch.OutOfMemoryError:  # other processes use the device, too
                return split
            return self._resident[split]

    def _prepared(self, images: torch.Tensor) -> torch.Tensor:
        return as_floats(channels_last(images, self.device))

    # ----------------------------------------------------------------------------------------------------- lowering

    def _lowered(self, subnetwork: Subnetwork) -> tuple[bytes, list["Value"]]:
        """A subnetwork's decisions, and the values it needs in topological order, the last its output. A value names
        those it reads by their place in the list counted from 1; 0 is the input."""
        values: list[Value] = []
        place: dict[int, int] = {}
        steps: dict[int, Step] = {}
        for step in subnetwork.steps():
            steps[step.id] = step
            if step.link is not None:
                operation, cost = self._stitch(subnetwork.stitches[step.link.stitch]), step.cost
                reads = tuple(place[i] for i in step.reads.values())
                size = self.batch_size * 4 * math.prod(step.link.target.shape)
            else:
                convolution = self._convolution_before(step, steps)
                operation = self._node(step) if convolution is None else self._folded(convolution, step)
                named = {name: place[i] for name, i in (convolution or step).reads.items()} | {INPUT: 0}
                reads, cost = tuple(named[name] for name in operation.names), operation.cost
                size = bytes_of(step.node, self.batch_size)
                if size is None:  # several tensors, at most values and indices of all that is read
                    image = 4 * self.batch_size * math.prod(step.network.input_shape)
                    size = 3 * sum(values[i - 1].size if i else image for i in reads)
            values.append(Value(operation, reads, cost, size))
            place[step.id] = len(values)
        results = tuple(place[i] for i in subnetwork.results)
        if len(results) > 1:
            values.append(Value(MEAN, results, 0, values[results[0] - 1].size))
            results = (len(values),)
        decisions = (subnetwork.x & subnetwork.active).tobytes()
        return decisions, needed(values, results[0])

    def _node(self, step: Step) -> "Operation":
        if step.own is not None:  # belongs to one subnetwork alone: not kept
            return self._operation(step.node, step.weights, step)
        key = id(step.network), step.node.name
        if key not in self._operations:
            self._operations[key] = self._operation(step.node, step.network.weights, step.network)
        return self._operations[key]

    def _convolution_before(self, step: Step, steps: dict[int, Step]) -> Step | None:
        """The convolution that is folded into this step, if it is a norm and no stitch has taken its place."""
        if id(step.network) not in self._foldable:
            self._foldable[id(step.network)] = foldable(step.network)
        name = self._foldable[id(step.network)].get(step.node.name)
        source = steps[step.reads[name]] if name else step
        return source if name and source.link is None else None

    def _folded(self, convolution: Step, norm: Step) -> "Operation":
        if norm.own is not None:
            return self._operation(*fold(convolution.node, norm.node, norm.weights), norm)
        key = id(norm.network), norm.node.name, "folded"
        if key not in self._operations:
            self._operations[key] = self._operation(
                *fold(convolution.node, norm.node, norm.network.weights), norm.network
            )
        return self._operations[key]

    def _operation(self, node: Node, weights: Mapping[str, torch.Tensor], owner: Any) -> "Operation":
        held = {name: channels_last(weights[name].detach(), self.device) for name in node.weights()}
        names = tuple(dict.fromkeys(node.inputs()))
        op = node.op
        overwrites = op in IN_PLACE and isinstance(node.args[0], Ref)
        return Operation(
            run=compiled(lookup(op), node, names, held, self.device),
            owner=owner,
            cost=node.cost,
            names=names,
            in_place=compiled(lookup_in_place(op), node, names, held, self.device) if overwrites else None,
            form=(node.shape, node.dtype) if op in FRESH or op in IN_PLACE else None,
            is_fresh=op in FRESH,
            may_allocate=op not in VIEWS,
            may_share=op in VIEWS or is_alias(op, node.args),
        )

    def _stitch(self, stitch: nn.Module) -> "Operation":
        """A stitch may be fitted again while the engine lives: its tensors' versions tell."""
        tensors = stitch.state_dict(keep_vars=True).values()
        version = [(tensor.data_ptr(), 0 if tensor.is_inference() else tensor._version) for tensor in tensors]
        if stitch not in self._stitches or self._stitches[stitch][0] != version:
            if self.device.type == "cpu" and all(channels_last(p, self.device) is p for p in stitch.parameters()):
                held: Callable[[], nn.Module] = ref(
                    stitch
                )  # its subnetwork holds it; spaces may let go of stitches, and so does this
            else:
                own = copy.deepcopy(stitch).to(self.device).to(memory_format=torch.channels_last)
                held = lambda: own  # noqa: E731
            self._stitches[stitch] = version, Operation(run=lambda read, images: held()(*read))
        return self._stitches[stitch][1]


def _stopping(
    metric: str, needed: Sequence[float | None], ease: np.ndarray | None, order: np.ndarray | None
) -> Stopping:
    if not METRICS[metric].is_mean:
        raise ValueError(f"{metric} is known only when all images were evaluated: use needed=None.")
    if ease is None:
        raise ValueError("early stopping needs to know how easy the images are: give ease, too.")
    return Stopping(needed, ease if order is None else ease[order])


def _device_memory(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not every system reports it
        return 2**33
