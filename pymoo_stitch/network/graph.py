"""A network's graph as data: nodes that apply an allowed operator to tensors, weights and constants.

A graph is a list of `Node` in topological order. Nothing in it is code: an operator is a name, looked up among
`operators.OPERATORS` and only there, and an argument is one of the plain values listed at `Value`. That is what lets
a graph be written to a file, read back from an untrusted one, and cut apart by the supernet."""

import copy
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import torch
from torch import fx, nn
from torch._subclasses import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from .operators import FRESH, IN_PLACE, lookup, lookup_in_place

INPUT = "input"
"""The name by which nodes read the network's input."""


@dataclass(frozen=True)
class Ref:
    """The output of another node."""

    node: str


@dataclass(frozen=True)
class Weight:
    """A parameter, buffer or constant of the network."""

    name: str


@dataclass(frozen=True)
class Batch:
    """A size that depends on the batch: `multiple` times the number of samples."""

    multiple: int


@dataclass(frozen=True)
class Device:
    """The device on which the graph runs, wherever that is."""


Value = (
    Ref | Weight | Batch | Device | torch.dtype | torch.memory_format | torch.layout | str | float | int | bool | None
)
"""What an argument consists of; lists and tuples of these nest."""


@dataclass(frozen=True)
class Node:
    """One operation. `shape` and `dtype` are None where it returns several tensors; `path` is the module it came from,
    None for what the import added itself; `cost` is its multiply-adds for one sample."""

    name: str
    op: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    shape: tuple[int | Batch, ...] | None = None
    dtype: torch.dtype | None = None
    path: str | None = None
    cost: int = 0

    @property
    def sample_shape(self) -> tuple[int, ...] | None:
        """The shape without the batch, where the first dimension, and it alone, is the batch; else None."""
        if not self.shape or self.shape[0] != Batch(1) or any(isinstance(size, Batch) for size in self.shape[1:]):
            return None
        return cast(tuple[int, ...], self.shape[1:])

    def values(self) -> Iterator[Value]:
        """Every value in the arguments, lists opened."""
        return leaves((self.args, self.kwargs))

    def inputs(self) -> list[str]:
        """The names of the nodes it reads."""
        return [value.node for value in self.values() if isinstance(value, Ref)]

    def weights(self) -> list[str]:
        return [value.name for value in self.values() if isinstance(value, Weight)]


def raw(tensor: torch.Tensor) -> np.ndarray:
    """The bytes of a tensor, of whatever type."""
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()


def leaves(argument: Any) -> Iterator[Any]:
    if isinstance(argument, (list, tuple)):
        for item in argument:
            yield from leaves(item)
    elif isinstance(argument, dict):
        yield from leaves(tuple(argument.values()))
    else:
        yield argument


def substitute(argument: Any, function: Callable[[Any], Any]) -> Any:
    """The same nesting of plain lists, tuples and dicts, each value replaced by `function(value)`."""
    if isinstance(argument, tuple):
        return tuple(substitute(item, function) for item in argument)
    if isinstance(argument, list):
        return [substitute(item, function) for item in argument]
    if isinstance(argument, dict):
        return {key: substitute(item, function) for key, item in argument.items()}
    return function(argument)


_RESHAPES = ("aten.reshape.default", "aten.view.default", "aten._unsafe_view.default")


def for_empty_batches(node: Node) -> Node:
    """The same node, as torch can export it where the batch may be empty: a size of -1 in a reshape is written out,
    since it cannot be inferred from no values, and pooling to one position is the mean that it is, without a look at
    the strides."""
    if node.op in _RESHAPES and node.shape is not None and -1 in node.args[1]:
        return replace(node, args=(node.args[0], list(node.shape)))
    if node.op == "aten.adaptive_avg_pool2d.default" and list(node.args[1]) == [1, 1]:
        return replace(node, op="aten.mean.dim", args=(node.args[0], [-1, -2], True))
    return node


# -------------------------------------------------------------------------------------------------------------- running


def mean(tensors: Sequence[Any]) -> Any:
    """The output of an ensemble, from its networks' outputs, tensors or nodes of a graph; a single one is returned as
    it is."""
    return tensors[0] if len(tensors) == 1 else sum(tensors[1:], start=tensors[0]) / len(tensors)


class GraphBuilder:
    """Writes nodes into a `torch.fx` graph, one after another, and closes it as a plain `nn.Module` that holds the
    weights it uses and no others.

    The module's tensors are copies: whatever happens to it later, the networks and stitches it was made from stay as
    they are. They are on `device` at first and can be moved: tensors that the code makes are on the device of the
    input. `root` is the module that they are put into, and from which those that are there already are taken."""

    def __init__(self, device: torch.device | str | None = None, root: nn.Module | None = None):
        self.device = torch.device(device or "cpu")
        self.root = nn.Module().eval() if root is None else root
        self.graph = fx.Graph()
        self.input = self.graph.placeholder(INPUT)
        self._fetched: dict[str, fx.Node] = {}
        self._batch: dict[int, fx.Node] = {}
        self._place: fx.Node | None = None

    def node(
        self, node: Node, read: Callable[[str], fx.Node], weights: Mapping[str, torch.Tensor], prefix: str
    ) -> fx.Node:
        """Add one node. `read` returns what a node's name stands for; its weights are stored as `prefix.name`."""
        device = self._device() if any(isinstance(value, Device) for value in node.values()) else None
        resolve = resolver(read, lambda name: self._weight(f"{prefix}.{name}", weights[name]), self._size, device)
        arguments = substitute(node.args, resolve), substitute(node.kwargs, resolve)
        made = self.graph.create_node("call_function", lookup(node.op), *arguments, name=node.name.replace(".", "_"))
        made.meta["node"] = node
        return made

    def call(self, name: str, module: nn.Module, source: fx.Node) -> fx.Node:
        """Add `module(source)`, the module held under `name`."""
        self.hold(name, module)
        return self.graph.call_module(name, (source,))

    def mean(self, tensors: list[fx.Node]) -> fx.Node:
        """Add the mean of tensors: the output of an ensemble."""
        return mean([fx.Proxy(tensor) for tensor in tensors]).node

    def module(self, output: fx.Node | tuple[fx.Node, ...], name: str) -> fx.GraphModule:
        self.graph.output(output)
        for node in self.graph.nodes:
            if _may_overwrite(node):
                node.target = lookup_in_place(node.meta["node"].op)
        return fx.GraphModule(self.root, self.graph, class_name=name).train(self.root.training)

    def hold(self, name: str, part: torch.Tensor | nn.Module) -> None:
        """Put a copy of a tensor or module into the root, unless something is held under that name already."""
        *path, last = name.split(".")
        parent = self.root
        for step in path:
            if not hasattr(parent, step):
                parent.add_module(step, nn.Module().eval())
            parent = getattr(parent, step)
        if hasattr(parent, last):
            return
        if isinstance(part, nn.Module):
            parent.add_module(last, copy.deepcopy(part).to(self.device))
        elif isinstance(part, nn.Parameter):
            own = part.detach().to(self.device, copy=True)
            parent.register_parameter(last, nn.Parameter(own, requires_grad=False))
        else:
            parent.register_buffer(last, part.detach().to(self.device, copy=True))

    def _weight(self, name: str, tensor: torch.Tensor) -> fx.Node:
        if name not in self._fetched:
            self.hold(name, tensor)
            self._fetched[name] = self.graph.get_attr(name)
        return self._fetched[name]

    def _size(self, multiple: int) -> fx.Node:
        """`multiple` times the batch size. Written where it is first needed; what is written later may read it."""
        if multiple not in self._batch:
            if multiple == 1:
                self._batch[1] = self.graph.call_function(torch.ops.aten.sym_size.int, (self.input, 0))
            else:
                self._batch[multiple] = self.graph.call_function(operator.mul, (self._size(1), multiple))
        return self._batch[multiple]

    def _device(self) -> fx.Node:
        """The device of the input, written when it is first needed."""
        if self._place is None:
            self._place = self.graph.call_function(getattr, (self.input, "device"))
        return self._place


def _may_overwrite(node: fx.Node) -> bool:
    """Whether an operation can write its result over its first input: an activation or sum after an operation that
    makes a new tensor of the same shape which nothing else reads, and which no gradient needs. Networks are written so,
    and without it the module would be slower than the original."""
    if "node" not in node.meta or node.meta["node"].op not in IN_PLACE:
        return False
    source = node.args[0]
    if not isinstance(source, fx.Node) or "node" not in source.meta or len(source.users) > 1:
        return False
    maker, user = source.meta["node"], node.meta["node"]
    return maker.op in FRESH and (maker.shape, maker.dtype) == (user.shape, user.dtype)


def run_without_computing(
    nodes: Iterable[Node], weights: Mapping[str, torch.Tensor], input_shape: tuple[int, ...], batch: int = 1
) -> Iterator[tuple[Node, Any, int]]:
    """Each node with the fake tensor it returns for `batch` samples, and the multiply-adds that would take.

    This is the one place that says what a multiply-add is: half of what `torch.utils.flop_counter` counts, that is
    products in convolutions, linear layers, matrix products and attention; norms, activations, pooling, interpolation
    and sums are free."""
    with torch.no_grad(), FakeTensorMode(), FlopCounterMode(display=False) as counter:
        fakes = {name: torch.empty_strided(t.shape, t.stride(), dtype=t.dtype) for name, t in weights.items()}
        results: dict[str, Any] = {INPUT: torch.empty(batch, *input_shape)}
        resolve = resolver(
            results.__getitem__, fakes.__getitem__, lambda multiple: multiple * batch, torch.device("cpu")
        )
        before = 0
        for node in nodes:
            results[node.name] = lookup(node.op)(*substitute(node.args, resolve), **substitute(node.kwargs, resolve))
            total = counter.get_total_flops()
            yield node, results[node.name], (total - before) // 2
            before = total


def resolver(
    read: Callable[[str], Any], weight: Callable[[str], Any], size: Callable[[int], Any], device: Any
) -> Callable[[Value], Any]:
    """A function that returns what a value in a node's arguments stands for."""

    def resolve(value: Value) -> Any:
        match value:
            case Ref(name):
                return read(name)
            case Weight(name):
                return weight(name)
            case Batch(multiple):
                return size(multiple)
            case Device():
                return device
            case _:
                return value

    return resolve


def run_new_modules(
    modules: Iterable[tuple[Callable[[], nn.Module], tuple[int, ...]]],
) -> list[tuple[tuple[int, ...], int]]:
    """For modules, each given by a function that makes it and the shape of a sample: the shape of its output and its
    multiply-adds for one sample, counted as for a graph."""
    found, before = [], 0
    with torch.no_grad(), FakeTensorMode(), FlopCounterMode(display=False) as counter:
        for make, sample_shape in modules:
            result = make().eval()(torch.empty(1, *sample_shape))
            total = counter.get_total_flops() // 2
            found.append((tuple(result.shape[1:]), total - before))
            before = total
    return found
