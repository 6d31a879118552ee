"""What subnetworks predict, computed together: an operation on the same inputs is done once for all who need it.

A subnetwork becomes a list of *values*, each an operation and the values it reads. Values of different subnetworks with
the same operation and the same inputs are one value: so the part of a network before its first stitch is shared by all,
and whatever two subnetworks have in common from the input on is computed once for both. How a value is computed depends
on nothing else, least of all on who else needs it: predictions for a batch are the same to the bit, alone or together, in
any order."""

import copy
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, ref

import torch
from torch import nn
from tqdm import tqdm

from .folding import fold, foldable
from .graph import INPUT, Batch, Node, Ref, leaves, resolver, substitute
from .metrics import METRICS
from .operators import FRESH, IN_PLACE, VIEWS, is_alias, lookup, lookup_in_place
from .selection import Step
from .subnetwork import Subnetwork
from .task import Split

_NAN = "nan"
"""Beside the metrics: whether there was NaN among the predictions."""

_Measure = Callable[[int, torch.Tensor, torch.Tensor], dict[str, Any]]
"""What is found in a subnetwork's outputs for a batch with its labels: named values that can be added."""


@dataclass(frozen=True)
class Outcome:
    """What came of evaluating one subnetwork: a value for each metric, its share of the time that was taken, and the
    reason if it failed, else nothing. A failed one has the worst value of every metric."""

    metrics: dict[str, float]
    seconds: float
    failed: str = ""


class Engine:
    """Evaluates subnetworks on one device, without gradients.

    Convolutions run channels-last, and a batch norm behind a convolution is folded into it, unless others in the network
    read what lies between. Where a stitch reads it, the convolution is computed by itself as well: if it was not folded for
    some subnetworks and folded for others, these would share nothing from there on.

    :param device: by default a GPU if there is one, else the CPU.
    :param batch_size: of how many images a batch consists. What is evaluated together changes no result, but the size
        of batches may change how they are rounded.
    :param memory: how many bytes a batch may take, not counting weights and what metrics take. Subnetworks that would need more
        together are evaluated in several groups; one that would need more alone fails. By default 2 GiB, or a quarter
        of what the device has if that is less.
    """

    def __init__(self, device: torch.device | str | None = None, *, batch_size: int = 32, memory: int | None = None):
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        for name, value in (("batch_size", batch_size), ("memory", memory)):
            if value is not None and (not isinstance(value, int) or value < 1):
                raise ValueError(f"{name} must be a whole number, at least 1, but is {value!r}.")
        self.batch_size = batch_size
        self.memory = min(2**31, _device_memory(self.device) // 4) if memory is None else memory
        self._operations: dict[tuple, _Operation] = {}
        self._foldable: dict[int, dict[str, str]] = {}
        self._stitches: WeakKeyDictionary[nn.Module, tuple[list, _Operation]] = WeakKeyDictionary()

    def evaluate(
        self,
        subnetworks: Sequence[Subnetwork],
        split: Split,
        metrics: Iterable[str],
        *,
        heads: Sequence[nn.Module | None] | None = None,
        progress: bool = False,
    ) -> list[Outcome]:
        """The metrics of each subnetwork on a split, in the order given, in one pass over it. A subnetwork that raises
        an error or predicts NaN is an outcome with a reason.

        :param heads: for each subnetwork what turns its outputs into scores, None where there is no such thing; by
            default outputs are scores.
        :param progress: shows a progress bar on a terminal, if it takes more than two seconds.
        """
        start, metrics = time.perf_counter(), tuple(metrics)
        if unknown := [name for name in metrics if name not in METRICS]:
            raise ValueError(f"there is no metric {unknown[0]!r}; there are {', '.join(METRICS)}.")

        def measure(number: int, output: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            if heads is not None and heads[number] is None:
                raise ValueError("no head can be fitted to it: what it gives for the calibration split is not finite")
            scores = output if heads is None else heads[number].to(output.device)(output)
            return {_NAN: output.isnan().any()} | {name: METRICS[name].sums(scores, labels) for name in metrics}

        sums, failed = self._sums(subnetworks, split, measure, progress)
        values = [
            {name: METRICS[name].value(sums[number, name].cpu()) for name in metrics if not failed[number]}
            for number in range(len(subnetworks))
        ]
        seconds = (time.perf_counter() - start) / max(1, len(subnetworks))
        outcomes = []
        for number, found in enumerate(values):
            broken = not failed[number] and sums[number, _NAN].item()
            wrong = [f"its {name} is {value}" for name, value in found.items() if not math.isfinite(value)]
            reason = failed[number] or ("it predicts NaN" if broken else ", ".join(wrong))
            worst = {name: METRICS[name].worst for name in metrics}
            outcomes.append(Outcome(worst, seconds, reason) if reason else Outcome(found, seconds))
        return outcomes

    def outputs(self, subnetworks: Sequence[Subnetwork], split: Split) -> list[torch.Tensor | None]:
        """What each subnetwork gives for all images of a split, on the CPU; None where it raises an error."""
        rows, failed = self._sums(subnetworks, split, lambda number, output, labels: {"rows": [output.cpu()]})
        return [None if failed[number] else torch.cat(rows[number, "rows"]) for number in range(len(subnetworks))]

    def _sums(
        self, subnetworks: Sequence[Subnetwork], split: Split, measure: _Measure, progress: bool = False
    ) -> tuple[dict[tuple[int, str], Any], dict[int, str]]:
        """Whatever `measure` finds in the outputs of each subnetwork, added up over a split, by its number and name; and
        why there is nothing of some."""
        plans = list(self.plans(subnetworks))
        failed = {number: self._too_large(plan) for plan in plans for number in plan.numbers}
        sums: dict[tuple[int, str], Any] = {}
        bar = tqdm(
            split.batches(self.batch_size) if plans else (),
            desc=f"evaluate on {split.name}",
            total=math.ceil(len(split) / self.batch_size),
            unit="batch",
            disable=None if progress else True,
            delay=2,
            leave=False,
        )
        for images, labels in bar:
            if labels is None:
                raise ValueError(f"the {split.name} split has no labels to evaluate on.")
            images, labels = self._prepared(images), labels.to(self.device)
            for i, plan in enumerate(plans):
                for key, value in self._batch_sums(plan, images, labels, measure, failed).items():
                    sums[key] = sums[key] + value if key in sums else value
                if any(failed[number] for number in plan.numbers):
                    plans[i] = Plan([program for program in plan.programs if not failed[program.number]])
        return sums, failed

    def _batch_sums(
        self, plan: "Plan", images: torch.Tensor, labels: torch.Tensor, measure: _Measure, failed: dict[int, str]
    ) -> dict[tuple[int, str], Any]:
        """What a batch adds. Why a subnetwork cannot goes to `failed`."""
        found: dict[tuple[int, str], Any] = {}

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
        if len(plan.programs) > 1:  # whose fault it is shows when each is alone
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
        """What each subnetwork gives for the images, on the CPU."""
        given: list[list[torch.Tensor]] = [[] for _ in subnetworks]
        for plan in self.plans(subnetworks):
            for batch in images.split(self.batch_size):
                plan.run(self._prepared(batch), lambda number, output: given[number].append(output.cpu()))
        return [torch.cat(parts) for parts in given]

    def check(self, networks: Iterable[Subnetwork]) -> None:
        """A ValueError if these need more memory side by side than there is for a batch. So much may a subnetwork need
        that runs through all of them."""
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

        Those that part early come first: then what is kept for the others is little. Genotypes are in topological
        order, so that is the descending order of their active parts."""
        programs = [_Program(number, *self._lowered(subnetwork)) for number, subnetwork in enumerate(subnetworks)]
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

    def _prepared(self, images: torch.Tensor) -> torch.Tensor:
        images = _channels_last(images, self.device)
        return images.float() / 255 if images.dtype is torch.uint8 else images

    # ----------------------------------------------------------------------------------------------------- lowering

    def _lowered(self, subnetwork: Subnetwork) -> tuple[bytes, list["_Value"]]:
        """A subnetwork's decisions, and the values it needs in topological order, the last its output. A value names
        those it reads by their place in the list counted from 1; 0 is the input."""
        values: list[_Value] = []
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
                size = _bytes(step.node, self.batch_size)
                if size is None:  # several tensors, at most values and indices of all that is read
                    image = 4 * self.batch_size * math.prod(step.network.input_shape)
                    size = 3 * sum(values[i - 1].size if i else image for i in reads)
            values.append(_Value(operation, reads, cost, size))
            place[step.id] = len(values)
        results = tuple(place[i] for i in subnetwork.results)
        if len(results) > 1:
            values.append(_Value(_MEAN, results, 0, values[results[0] - 1].size))
            results = (len(values),)
        decisions = (subnetwork.x & subnetwork.active).tobytes()
        return decisions, _needed(values, results[0])

    def _node(self, step: Step) -> "_Operation":
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

    def _folded(self, convolution: Step, norm: Step) -> "_Operation":
        key = id(norm.network), norm.node.name, "folded"
        if key not in self._operations:
            self._operations[key] = self._operation(
                *fold(convolution.node, norm.node, norm.network.weights), norm.network
            )
        return self._operations[key]

    def _operation(self, node: Node, weights: dict[str, torch.Tensor], owner: Any) -> "_Operation":
        held = {name: _channels_last(weights[name].detach(), self.device) for name in node.weights()}
        names = tuple(dict.fromkeys(node.inputs()))
        op = node.op
        return _Operation(
            _compiled(lookup(op), node, names, held, self.device),
            owner,
            node.cost,
            names,
            _compiled(lookup_in_place(op), node, names, held, self.device)
            if op in IN_PLACE and isinstance(node.args[0], Ref)
            else None,
            (node.shape, node.dtype) if op in FRESH or op in IN_PLACE else None,
            op in FRESH,
            op not in VIEWS,
            op in VIEWS or is_alias(op, node.args),
        )

    def _stitch(self, stitch: nn.Module) -> "_Operation":
        """A stitch may be fitted anew while the engine lives: its tensors' versions tell."""
        tensors = stitch.state_dict(keep_vars=True).values()
        version = [(tensor.data_ptr(), 0 if tensor.is_inference() else tensor._version) for tensor in tensors]
        if stitch not in self._stitches or self._stitches[stitch][0] != version:
            if self.device.type == "cpu" and all(_channels_last(p, self.device) is p for p in stitch.parameters()):
                held = ref(stitch)  # its subnetwork holds it; spaces may let go of stitches, and so does this
            else:
                own = copy.deepcopy(stitch).to(self.device, memory_format=torch.channels_last)
                held = lambda: own  # noqa: E731
            self._stitches[stitch] = version, _Operation(lambda read, images: held()(*read), None)
        return self._stitches[stitch][1]


def _device_memory(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not every system tells
        return 2**33


# -------------------------------------------------------------------------------------------------------------- programs


class _Operation(NamedTuple):
    """A function of the tensors it reads, in the order of `names`, and of the number of images. `in_place` is the same
    and writes over the first; it may if that one is `fresh`, a new tensor, of the same `shape` and type. `allocates` and
    `keeps`: whether the result may be new memory, and whether it may be that of what was read. `owner` is what the
    operation's identity rests on, here so that nothing else takes its place."""

    run: Callable[[list[Any], int], Any]
    owner: Any
    cost: int = 0
    names: tuple[str, ...] = ()
    in_place: Callable[[list[Any], int], Any] | None = None
    shape: tuple | None = None
    fresh: bool = False
    allocates: bool = True
    keeps: bool = False


_MEAN = _Operation(lambda read, images: sum(read[1:], start=read[0]) / len(read), None)
"""Of the outputs of an ensemble."""


class _Value(NamedTuple):
    """What an operation gives for the values it reads; `cost` in multiply-adds for one image, `size` in bytes for a
    batch."""

    operation: _Operation
    reads: tuple[int, ...]
    cost: int
    size: int


class _Program(NamedTuple):
    number: int
    decisions: bytes
    values: list[_Value]


def _needed(values: list[_Value], result: int) -> list[_Value]:
    """Those values that the result needs, each behind what it reads, their reads numbered anew. One branch is finished
    before the next is begun: so little is alive at a time. (Folding has left convolutions unread.)"""
    place = {0: 0}
    ordered: list[_Value] = []
    pending = [result]
    while pending:
        value = values[pending[-1] - 1]
        missing = [i for i in value.reads if i not in place]
        if missing:
            pending += reversed(missing)
        else:
            i = pending.pop()
            if i not in place:
                ordered.append(value._replace(reads=tuple(place[j] for j in value.reads)))
                place[i] = len(ordered)
    return ordered


def _bytes(node: Node, images: int) -> int | None:
    if node.shape is None:
        return None
    return node.dtype.itemsize * math.prod(
        size.multiple * images if isinstance(size, Batch) else size for size in node.shape
    )


def _channels_last(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    return tensor.to(device, memory_format=torch.channels_last if tensor.ndim == 4 else torch.contiguous_format)


def _compiled(
    function: Callable[..., Any],
    node: Node,
    names: Sequence[str],
    weights: dict[str, torch.Tensor],
    device: torch.device,
) -> Callable[[list[Any], int], Any]:
    """The call of a node, with everything that is always the same looked up beforehand."""
    slots = {name: slot for slot, name in enumerate(names)}

    def resolved(argument: Any, read: Sequence[Any] = (), images: int = 0) -> Any:
        return substitute(
            argument,
            resolver(lambda name: read[slots[name]], weights.__getitem__, lambda multiple: multiple * images, device),
        )

    def varies(argument: Any) -> bool:
        return any(isinstance(value, (Ref, Batch)) for value in leaves(argument))

    plain = [(at, slots[argument.node]) for at, argument in enumerate(node.args) if isinstance(argument, Ref)]
    nested = [
        (at, argument) for at, argument in enumerate(node.args) if not isinstance(argument, Ref) and varies(argument)
    ]
    fixed = [None if varies(argument) else resolved(argument) for argument in node.args]
    named = {} if varies(node.kwargs) else resolved(node.kwargs)

    def call(read: list[Any], images: int) -> Any:
        arguments = fixed.copy()
        for at, slot in plain:
            arguments[at] = read[slot]
        for at, argument in nested:
            arguments[at] = resolved(argument, read, images)
        return function(*arguments, **named)

    def call_with_varying_names(read: list[Any], images: int) -> Any:
        return function(*resolved(node.args, read, images), **resolved(node.kwargs, read, images))

    return call_with_varying_names if varies(node.kwargs) else call


# ----------------------------------------------------------------------------------------------------------------- plans


class _Memory:
    """Which values are alive, and whose memory they live in: a view keeps that of its base."""

    def __init__(self):
        self.peak = self._held = 0
        self._sizes: dict[int, int] = {}
        self._homes: dict[int, set[int]] = {0: set()}
        self._users: Counter[int] = Counter()

    def add(self, value: int, size: int, within: Iterable[int]) -> None:
        """A value in new memory of that size, or within the memory of others."""
        homes = set().union(*(self._homes[i] for i in within))
        if size:
            self._sizes[value] = size
            self._held += size
            homes.add(value)
        self._homes[value] = homes
        self._users.update(homes)
        self.peak = max(self.peak, self._held)

    def release(self, value: int) -> None:
        for home in self._homes.pop(value):
            self._users[home] -= 1
            if not self._users[home]:
                self._held -= self._sizes[home]


class Plan:
    """Several subnetworks, each operation on the same inputs once.

    `numbers` are those of the subnetworks in the list they came from, `cost` the multiply-adds for one image, and
    `memory` the bytes that a batch takes at most: its tensors, and a quarter more for scratch space inside operations and
    for what the allocator wastes."""

    def __init__(self, programs: Sequence[_Program]):
        self.programs = programs
        self.numbers = [program.number for program in programs]
        values: list[_Value] = []
        known: dict[tuple[int, tuple[int, ...]], int] = {}
        results: dict[int, list[int]] = {}
        for program in programs:
            place = [0]
            for value in program.values:
                reads = tuple(place[i] for i in value.reads)
                key = id(value.operation), reads
                if key not in known:
                    values.append(value._replace(reads=reads))
                    known[key] = len(values)
                place.append(known[key])
            results.setdefault(place[-1], []).append(program.number)
        self.cost = sum(value.cost for value in values)
        self._size = len(values) + 1
        self._schedule(values, results)

    def _schedule(self, values: list[_Value], results: dict[int, list[int]]) -> None:
        """The steps one by one, each with what can be forgotten behind it, and the memory this takes."""
        readers = Counter(i for value in values for i in set(value.reads))
        last = {i: at for at, value in enumerate(values, 1) for i in value.reads}
        memory = _Memory()
        self._steps = []
        for at, (operation, reads, _, size) in enumerate(values, 1):
            done = [i for i in dict.fromkeys(reads) if last[i] == at and i > 0]
            output = results.get(at, [])
            if output and at not in last:
                done.append(at)
            over = reads[0] if operation.in_place is not None else 0
            source = values[over - 1].operation
            in_place = (
                over > 0
                and readers[over] == reads.count(over) == 1
                and over not in results
                and source.fresh
                and source.shape == operation.shape
            )
            memory.add(at, 0 if in_place or not operation.allocates else size, reads * (in_place or operation.keeps))
            for i in done:
                memory.release(i)
            self._steps.append((operation.in_place if in_place else operation.run, reads, at, output, done))
        self.memory = memory.peak + memory.peak // 4

    @torch.inference_mode()
    def run(self, images: torch.Tensor, sink: Callable[[int, torch.Tensor], None]) -> None:
        """Compute a batch. As soon as a subnetwork's output is there, `sink` gets its number and the output."""
        count = len(images)
        made: list[Any] = [None] * self._size
        made[0] = images
        for run, reads, at, output, done in self._steps:
            made[at] = run([made[i] for i in reads], count)
            for number in output:
                sink(number, made[at])
            for i in done:
                made[i] = None
