"""How several subnetworks are computed together: each operation on the same inputs once, in memory that is counted."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from ..network import Batch, Node, Ref, leaves, mean, resolver, substitute

# ------------------------------------------------------------------------------------------------------------- programs


Run = Callable[[list[Any], int], Any]
"""What an operation does: a function of the tensors it reads and of the number of images."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Operation:
    """Something that is done to tensors. Operations are told apart by identity.

    :param run: what is done.
    :param owner: what the operation is made of, held so that nothing else takes its place in memory.
    :param cost: multiply-adds for one image.
    :param names: the nodes whose tensors `run` reads, in this order.
    :param in_place: the same as `run`, written over the first tensor; None where that cannot be.
    :param form: shape and type of the result, where it may be overwritten or may overwrite; else None.
    :param is_fresh: whether the result is a new tensor that may be overwritten.
    :param may_allocate: whether the result may be in memory of its own.
    :param may_share: whether the result may be in the memory of what was read, as that of a view is.
    """

    run: Run
    owner: Any = None
    cost: int = 0
    names: tuple[str, ...] = ()
    in_place: Run | None = None
    form: tuple | None = None
    is_fresh: bool = False
    may_allocate: bool = True
    may_share: bool = False


MEAN = Operation(run=lambda read, images: mean(read))
"""Of the outputs of an ensemble."""


class Value(NamedTuple):
    """The result of an operation on the values it reads; `cost` in multiply-adds for one image, `size` in bytes for a
    batch."""

    operation: Operation
    reads: tuple[int, ...]
    cost: int
    size: int


class Program(NamedTuple):
    number: int
    decisions: bytes
    values: list[Value]


def needed(values: list[Value], result: int) -> list[Value]:
    """Those values that the result needs, each after what it reads, their reads numbered again. One branch is finished
    before the next is begun: so that little is alive at a time. (Folding has left convolutions unread.)"""
    place = {0: 0}
    ordered: list[Value] = []
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


def bytes_of(node: Node, images: int) -> int | None:
    if node.shape is None:
        return None
    return node.dtype.itemsize * math.prod(
        size.multiple * images if isinstance(size, Batch) else size for size in node.shape
    )


def channels_last(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    form = torch.channels_last if tensor.ndim == 4 else torch.contiguous_format
    return tensor.to(device, memory_format=form, non_blocking=True)


def compiled(
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


# ---------------------------------------------------------------------------------------------------------------- plans


class _Memory:
    """Which values are alive, and whose memory they live in: a view keeps that of its base."""

    def __init__(self) -> None:
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
    `memory` the bytes that a batch takes at most: its tensors, and a quarter more for scratch space inside operations
    and for what the allocator wastes."""

    def __init__(self, programs: Sequence[Program]):
        self.programs = programs
        self.numbers = [program.number for program in programs]
        values: list[Value] = []
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

    def _schedule(self, values: list[Value], results: dict[int, list[int]]) -> None:
        """The steps one by one, each with what can be forgotten after it, and the memory this takes."""
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
            overwrites = (
                over > 0
                and readers[over] == reads.count(over) == 1
                and over not in results
                and source.is_fresh
                and source.form == operation.form
            )
            is_new = operation.may_allocate and not overwrites
            memory.add(at, size if is_new else 0, within=reads if operation.may_share or overwrites else ())
            for i in done:
                memory.release(i)
            self._steps.append((operation.in_place if overwrites else operation.run, reads, at, output, done))
        self.memory = memory.peak + memory.peak // 4

    @torch.inference_mode()
    def run(self, images: torch.Tensor, sink: Callable[[int, torch.Tensor], None]) -> None:
        """Compute a batch. As soon as a subnetwork's output is known, `sink` gets its number and the output."""
        count = len(images)
        made: list[Any] = [None] * self._size
        made[0] = images
        for run, reads, at, output, done in self._steps:
            made[at] = run([made[i] for i in reads], count)
            for number in output:
                sink(number, made[at])
            for i in done:
                made[i] = None
