"""From a trained PyTorch module to a graph: `torch.export`, then a translation into nodes."""

import io
import keyword
import logging
import operator
import re
import traceback
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import fx, nn
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from .functional import make_functional
from .graph import INPUT, Batch, Device, Node, Ref, Weight, run_without_computing, substitute
from .operators import GETITEM, OPERATORS, lookup, short_name

ENSEMBLE = "ensemble"
"""The name of the mean of all networks' outputs; no network may have it."""

Normalization = tuple[tuple[float, ...], tuple[float, ...]]
"""Mean and standard deviation per channel, of images in [0, 1]."""


@dataclass(frozen=True)
class Trained:
    """The images that a network was trained on: their normalisation, and their height and width, None if unknown."""

    normalization: Normalization
    size: tuple[int, int] | None


@dataclass(frozen=True)
class Imported:
    """A module's graph, and the module's own outputs for two batches, to verify it with."""

    nodes: tuple[Node, ...]
    weights: dict[str, torch.Tensor]
    input_shape: tuple[int, ...]
    output: str
    normalization: Normalization | None
    batches: tuple[torch.Tensor, torch.Tensor]
    expected: tuple[torch.Tensor, torch.Tensor]


def import_module(
    module: nn.Module,
    example: torch.Tensor,
    name: str,
    output: str | int | None,
    normalize: Normalization | str | None,
) -> Imported:
    """Export a module and translate its graph; the parameters are those of `Network.from_module`."""
    if not isinstance(module, nn.Module):
        raise TypeError(f"a network is imported from a torch.nn.Module, not from {type(module).__name__}.")
    check_name(name)
    _check_example(name, example)
    with _evaluating(module), torch.no_grad():
        normalization = _normalization(name, module, normalize, example)
        with torch.device(example.device):
            main = _Main(module, normalization, output, name).eval()
        batches = _two_batches(example)
        expected = _reference(main, batches[0], name), _reference(main, batches[1], name)
        program = _export(main, batches[1], name)
    nodes, weights, input_shape, output_node = _translate(program, name)
    return Imported(nodes, weights, input_shape, output_node, normalization, batches, expected)


def default_name(module: nn.Module) -> str:
    """timm's name of the architecture, else that of the class."""
    config = getattr(module, "pretrained_cfg", None) or {}
    name = re.sub(r"\W", "_", config.get("architecture") or type(module).__name__.lower(), flags=re.ASCII)
    return name if _is_free(name) else f"network_{name}"


def default_names(modules: Sequence[nn.Module]) -> list[str]:
    """The default name of each; those that share one get the number of their parameters as a suffix: resnet_11_7M."""
    names = [default_name(module) for module in modules]
    return [
        f"{name}_{_in_words(sum(p.numel() for p in module.parameters()))}" if names.count(name) > 1 else name
        for name, module in zip(names, modules, strict=True)
    ]


def _in_words(number: int) -> str:
    """A number of parameters with two or three digits, as part of a name: 640k, 11_7M."""
    if number < 1_000:
        return str(number)
    value, unit = (number / 1e6, "M") if number >= 999_500 else (number / 1e3, "k")
    return f"{value:.0f}{unit}" if value >= 99.95 else f"{value:.1f}{unit}".replace(".", "_")


def trained_on(module: nn.Module) -> Trained | None:
    """What a timm model's configuration says about its images; None for other modules."""
    config = getattr(module, "pretrained_cfg", None)
    if not isinstance(config, dict) or not config.get("mean") or not config.get("std"):
        return None
    mean, std = (tuple(map(float, config[key])) for key in ("mean", "std"))
    size = config.get("input_size")
    return Trained((mean, std), size and tuple(size[-2:]))


def check_name(name: str) -> None:
    """Raise a ValueError unless a network can have this name: it becomes an attribute of modules."""
    if not isinstance(name, str) or not _is_free(name):
        raise ValueError(
            "a network's name must consist of letters, digits and underscores, begin with a letter, and not be one "
            f"that Python or modules use themselves, but is {name!r}. Give another: Network.from_module(…, name=…)."
        )


_EMPTY = fx.GraphModule({}, fx.Graph())


def _is_free(name: str) -> bool:
    reserved = (
        name in (INPUT, ENSEMBLE, "stitches", "head", "normalization")
        or keyword.iskeyword(name)
        or hasattr(_EMPTY, name)
    )
    return bool(re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII)) and not reserved


def unique_name(name: str, taken: Container[str]) -> str:
    """The name itself, or the name with the first number that makes it new."""
    number, unique = 1, name
    while unique in taken:
        number += 1
        unique = f"{name}_{number}"
    return unique


# ------------------------------------------------------------------------------------------------------- before export


class _OutputError(ValueError):
    """Raised if the module ran, but returned no main output."""


class _Main(nn.Module):
    """A module with its normalisation before it and the choice of its main output after it."""

    mean: torch.Tensor
    std: torch.Tensor

    def __init__(self, module: nn.Module, normalization: Normalization | None, output: str | int | None, name: str):
        super().__init__()
        self.module, self.normalization, self.output, self.name = module, normalization, output, name
        for key, values in zip(("mean", "std"), normalization or (), strict=False):
            self.register_buffer(key, torch.tensor(values).view(-1, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.select(self.module((x - self.mean) / self.std if self.normalization else x))

    def select(self, result: Any) -> torch.Tensor:
        if isinstance(result, torch.Tensor) and self.output is None:
            return result
        items = dict(result.items()) if hasattr(result, "items") else dict(enumerate(_sequence(result)))
        key = self.output
        if key is None:
            key = next((k for k in ("out", "logits", 0) if k in items), next(iter(items)) if len(items) == 1 else None)
        if key not in items or not isinstance(items[key], torch.Tensor):
            raise _OutputError(
                f"{self.name}: the module returns {type(result).__name__} with items {list(items)}, and no tensor is "
                f"at {key!r}. Name the main one with output=…"
            )
        return items[key]


def _sequence(result: Any) -> Sequence[Any]:
    return result if isinstance(result, (tuple, list)) else ()


@contextmanager
def _evaluating(module: nn.Module) -> Iterator[None]:
    """Eval mode inside; after it, every submodule has its own mode again, and every buffer its value."""
    modes = [(part, part.training) for part in module.modules()]
    buffers = [(buffer, buffer.detach().clone()) for buffer in module.buffers()]
    module.eval()
    try:
        yield
    finally:
        for buffer, value in buffers:
            with torch.no_grad():
                buffer.copy_(value)
        for part, training in modes:
            part.training = training


def _check_example(name: str, example: Any) -> None:
    if not isinstance(example, torch.Tensor) or example.dtype is not torch.float32:
        kind = f"a tensor of {example.dtype}" if isinstance(example, torch.Tensor) else type(example).__name__
        raise TypeError(
            f"{name}: the example input must be a tensor of float32 numbers, but is {kind}. "
            "Give one, e.g. torch.rand(1, 3, 224, 224), and a module in float32."
        )
    if example.ndim < 2 or 0 in example.shape:
        raise ValueError(
            f"{name}: the example input must be a batch of samples, but its shape is {tuple(example.shape)}. "
            "Give one with the batch first, e.g. of shape (1, 3, 224, 224)."
        )


def _normalization(name: str, module: nn.Module, normalize: Any, example: torch.Tensor) -> Normalization | None:
    if normalize is None:
        return None
    if isinstance(normalize, str):
        if normalize != "timm":
            raise ValueError(f"{name}: normalize must be (mean, std), 'timm' or None, but is {normalize!r}.")
        found = trained_on(module)
        if found is None:
            raise ValueError(
                f"{name}: normalize='timm' reads mean and std from the module's pretrained_cfg, and it has none. "
                "Give normalize=(mean, std)."
            )
        normalize = found.normalization
    try:
        mean, std = (tuple(float(value) for value in values) for values in normalize)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name}: normalize must be a pair (mean, std) with a number per channel, but is {normalize!r}."
        ) from error
    channels = example.shape[1]
    if example.ndim != 4 or len(mean) != channels or len(std) != channels or min(std) <= 0:
        raise ValueError(
            f"{name}: normalize needs images and a mean and a positive std for each of their channels, but the input "
            f"is {tuple(example.shape)}, mean {mean} and std {std}."
        )
    return mean, std


def _two_batches(example: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The example itself, and a batch of another size, of at least two, around it: a graph that has frozen the batch
    or one sample's values shows it."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.rand(max(2, len(example) + 1), *example.shape[1:], generator=generator).to(example)
    return example, torch.cat([example[:1], noise[1:]])


def _reference(main: nn.Module, batch: torch.Tensor, name: str) -> torch.Tensor:
    try:
        result = main(batch.clone())
    except _OutputError:
        raise
    except Exception as error:
        raise ValueError(
            f"{name} does not run on an input of shape {tuple(batch.shape)}: {first_lines(error)}. "
            "Give an example input of the shape and type it takes."
        ) from error
    if not result.isfinite().all():
        raise ValueError(
            f"{name} cannot be verified: it returns NaN or infinite values for the example input or for noise."
        )
    if not result.is_floating_point() or result.ndim < 2 or len(result) != len(batch):
        raise ValueError(
            f"{name}: the output must be floating-point with the batch first, but is {result.dtype} of shape "
            f"{tuple(result.shape)} for an input of shape {tuple(batch.shape)}."
        )
    return result


def first_lines(error: Exception, number: int = 1) -> str:
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error))  # colours, for a terminal alone
    lines = [line.strip() for line in text.splitlines() if line.strip()][:number]
    return f"{type(error).__name__}: {' '.join(lines).rstrip('.')}" if lines else type(error).__name__


# -------------------------------------------------------------------------------------------------- export, translate


def _export(main: nn.Module, batch: torch.Tensor, name: str) -> torch.export.ExportedProgram:
    """The exported program with a dynamic batch. Most modules need no more than tracing; the strict way, which reads
    their Python code, is for the rest, such as those that ask for `len(x)`."""
    failures = []
    with quiet():
        for strict in (False, True):
            try:
                shapes = ({0: torch.export.Dim.DYNAMIC},)
                return make_functional(torch.export.export(main, (batch,), dynamic_shapes=shapes, strict=strict))
            except Exception as error:
                failures.append(error)
    if isinstance(failures[0], GuardOnDataDependentSymNode):
        raise ValueError(
            f"{name} cannot be imported: its control flow depends on the values of its tensors{_where(failures[0])}. "
            "A graph has no such branch: compute both and choose with torch.where, or keep the one that a trained "
            "network takes."
        ) from failures[0]
    reasons = " and, read as Python code, with ".join(first_lines(failure, 2) for failure in failures)
    raise ValueError(
        f"{name} cannot be imported: torch.export failed with {reasons}. The whole message is in the exception's cause."
    ) from failures[0]


@contextmanager
def quiet() -> Iterator[None]:
    """Inside, torch neither logs nor prints what failed: the exception has it."""
    logger = logging.getLogger("torch")
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        with redirect_stderr(io.StringIO()):
            yield
    finally:
        logger.setLevel(before)


def _where(error: Exception) -> str:
    """The line of the user's code in which an export failed, for a message; empty if there is none."""
    inner = tuple(str(Path(file).parent) for file in (torch.__file__, __file__))
    lines = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith((*inner, "<"))]
    return f", in line {lines[-1].lineno} of {lines[-1].filename}: {lines[-1].line}" if lines else ""


def _translate(
    program: torch.export.ExportedProgram, name: str
) -> tuple[tuple[Node, ...], dict[str, torch.Tensor], tuple[int, ...], str]:
    """Nodes, weights, input shape and output of an exported graph. Only what reaches the output stays."""
    translator = _Translator(program, name)
    results = zip(program.graph_signature.output_specs, program.graph.output_node().args[0], strict=True)
    output = translator.values[next(node.name for spec, node in results if spec.kind is OutputKind.USER_OUTPUT)]
    if not isinstance(output, Ref) or output.node == INPUT:
        raise ValueError(f"{name} cannot be imported: its output is its input or a constant.")
    nodes = _reaching(translator.nodes, output.node)
    for node in nodes:
        try:
            lookup(node.op)
        except ValueError as error:
            raise ValueError(f"{name} cannot be imported: {error}") from None
    used = {weight for node in nodes for weight in node.weights()}
    weights = {key: tensor for key, tensor in translator.weights.items() if key in used}
    costs = [cost for _, _, cost in run_without_computing(nodes, weights, translator.input_shape)]
    counted = tuple(replace(node, cost=cost) for node, cost in zip(nodes, costs, strict=True))
    return counted, weights, translator.input_shape, output.node


def _reaching(nodes: Sequence[Node], output: str) -> list[Node]:
    needed = {output}
    for node in reversed(nodes):
        if node.name in needed:
            needed.update(node.inputs())
    return [node for node in nodes if node.name in needed]


def _made_of_weights(calls: Sequence[fx.Node], weights: Container[fx.Node]) -> list[fx.Node]:
    """The calls that return tensors and depend on weights alone, neither on the input and its batch size nor on random
    numbers."""
    known: set[fx.Node] = set()
    for call in calls:
        value = call.meta.get("val")
        is_tensors = isinstance(value, torch.Tensor) or (isinstance(value, (tuple, list)) and len(value) > 0)
        is_random = torch.Tag.nondeterministic_seeded in getattr(call.target, "tags", ())
        if is_tensors and not is_random and all(i in known or i in weights for i in call.all_input_nodes):
            known.add(call)
    return [call for call in calls if call in known]


def _beyond_graphs(constants: Sequence[fx.Node]) -> set[fx.Node]:
    """Those of the calls made of weights that a graph cannot hold: the results of operators that graphs may not use,
    and what is made of these; and those that nothing else reads."""
    found: set[fx.Node] = set()
    for call in constants:
        if _operator(call) not in OPERATORS or not found.isdisjoint(call.all_input_nodes):
            found.add(call)
    for call in reversed(constants):
        if call.users and found.issuperset(call.users):
            found.add(call)
    return found


def _operator(call: fx.Node) -> str:
    return GETITEM if call.target is operator.getitem else str(call.target)


class _Translator:
    """Reads an exported graph from top to bottom. `values` maps each of its names to what it stands for.

    What is made of weights alone, with the help of an operator that graphs may not use, is computed here, once, and is
    a weight from then on: the convolution weights of NFNets and BiT ResNets, which a batch norm standardises. What
    allowed operators make of weights alone stays in the graph. It costs little, and without it old journals would not
    recognise their networks."""

    def __init__(self, program: torch.export.ExportedProgram, name: str):
        self.name = name
        self.values: dict[str, Any] = {}
        self.nodes: list[Node] = []
        self.weights: dict[str, torch.Tensor] = {}
        self._seen_tensors: dict[tuple, str] = {}
        self._batch_norms: set[Ref] = set()
        self._tensors: dict[fx.Node, torch.Tensor] = {}
        self._signature(program)
        calls = [node for node in program.graph.nodes if node.op == "call_function"]
        computed = self._compute(calls)
        calls = [call for call in calls if call not in computed]
        self._per_path = Counter(_path(call) for call in calls if isinstance(call.meta.get("val"), torch.Tensor))
        self._names = {INPUT}
        for call in calls:
            self._call(call)

    def _signature(self, program: torch.export.ExportedProgram) -> None:
        placeholders = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
        for spec in program.graph_signature.input_specs:
            if spec.kind is InputKind.USER_INPUT:
                shape = placeholders[spec.arg.name].meta["val"].shape
                self._batch = shape[0].node.expr
                self.input_shape = tuple(int(size) for size in shape[1:])
                self.values[spec.arg.name] = Ref(INPUT)
            else:
                tensor = program.state_dict.get(spec.target)
                tensor = program.constants[spec.target] if tensor is None else tensor
                self._tensors[placeholders[spec.arg.name]] = tensor
                self.values[spec.arg.name] = Weight(self._store(spec.target, tensor, spec.kind is InputKind.PARAMETER))

    def _compute(self, calls: Sequence[fx.Node]) -> set[fx.Node]:
        """Compute what a graph cannot hold and is made of weights alone, and keep as weights what the graph reads of
        it: as a parameter, if it is made of one, and once, if a module that is called twice computes it twice."""
        constants = _made_of_weights(calls, self._tensors)
        computed = _beyond_graphs(constants)
        tensors: dict[fx.Node, Any] = dict(self._tensors)
        learnt = {i for i in self._tensors if isinstance(self.weights[self.values[i.name].name], nn.Parameter)}
        names = {i: self.values[i.name].name for i in self._tensors}  # the same for all calls that compute the same
        first: dict[str, str] = {}
        for call in constants if computed else ():
            args, kwargs = fx.map_arg((call.args, call.kwargs), tensors.__getitem__)
            with torch.no_grad():
                tensors[call] = call.target(*args, **kwargs)  # type: ignore[operator]  # a function in such calls
                if isinstance(
                    tensors[call], torch.Tensor
                ):  # `_store` knows tensors by where they are: each stays alive
                    tensors[call] = tensors[call].contiguous()
            if not learnt.isdisjoint(call.all_input_nodes):
                learnt.add(call)
            term = repr((_operator(call), fx.map_arg((call.args, call.kwargs), names.__getitem__)))
            names[call] = first.setdefault(term, call.name)
            if call in computed and not computed.issuperset(call.users):
                if names[call] not in self.values:
                    is_parameter = call in learnt and tensors[call].is_floating_point()
                    target = f"module.{_path(call) or 'normalization'}.computed"
                    self.values[names[call]] = Weight(self._store(target, tensors[call], is_parameter))
                self.values[call.name] = self.values[names[call]]
        return computed

    def _store(self, target: str, tensor: torch.Tensor, is_parameter: bool) -> str:
        """Keep a copy of a tensor; one that a module holds under two names is kept once."""
        identity = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype) if tensor.numel() else (target,)
        if identity not in self._seen_tensors:
            own_name = target.removeprefix("module.") if target.startswith("module.") else f"normalization.{target}"
            key = unique_name(_clean(own_name), self.weights)
            own = tensor.detach().to("cpu", copy=True)
            self.weights[key] = nn.Parameter(own, requires_grad=False) if is_parameter else own
            self._seen_tensors[identity] = key
        return self._seen_tensors[identity]

    def _call(self, call: fx.Node) -> None:
        value = call.meta.get("val")
        if isinstance(value, (torch.SymInt, int)):
            self.values[call.name] = self._size(value)
            return
        if value is None or isinstance(value, (torch.SymBool, torch.SymFloat, bool, float)):
            return  # assertions and comparisons of sizes; nothing a tensor is made of
        op = _operator(call)
        args, kwargs = substitute(call.args, self._value), substitute(call.kwargs, self._value)
        if op == GETITEM and args[0] in self._batch_norms:
            self.values[call.name] = args[0]
            return
        is_batch_norm = op == "aten._native_batch_norm_legit_no_training.default"
        if is_batch_norm:  # what batch_norm in eval mode has become; the two statistics after the result are empty
            op, args, value = "aten.batch_norm.default", (*args[:5], False, *args[5:7], True), value[0]
        elif op == "aten.batch_norm.default":
            args = (*args[:8], True)
        shape, dtype = None, None
        if isinstance(value, torch.Tensor):
            shape, dtype = tuple(self._size(size) for size in value.shape), value.dtype
        path = _path(call)
        node = Node(self._node_name(path, op), op, args, kwargs, shape, dtype, path)
        self.nodes.append(node)
        self.values[call.name] = Ref(node.name)
        if is_batch_norm:
            self._batch_norms.add(Ref(node.name))

    def _value(self, value: Any) -> Any:
        match value:
            case fx.Node():
                if value.name not in self.values:
                    raise ValueError(
                        f"{self.name} cannot be imported: {value.format_node()} depends on values, not only on shapes."
                    )
                return self.values[value.name]
            case torch.SymInt():
                return self._size(value)
            case torch.device():
                return Device()
            case None | bool() | int() | float() | str() | torch.dtype() | torch.memory_format() | torch.layout():
                return value
        raise ValueError(
            f"{self.name} cannot be imported: an argument of its graph is {value!r}, a {type(value).__name__}."
        )

    def _size(self, size: int | torch.SymInt) -> int | Batch:
        if isinstance(size, int):
            return size
        multiple = size.node.expr / self._batch
        if not multiple.is_Integer:
            raise ValueError(
                f"{self.name} cannot be imported: a size inside it is {size.node.expr}, where only multiples of the "
                f"batch size {self._batch} can be."
            )
        return Batch(int(multiple))

    def _node_name(self, path: str | None, op: str) -> str:
        operation = short_name(op)
        if path is None:
            base = f"normalization.{operation}"
        elif path and self._per_path[path] == 1:
            base = path
        else:
            base = f"{path}.{operation}" if path else operation
        name = unique_name(_clean(base), self._names)
        self._names.add(name)
        return name


def _path(call: fx.Node) -> str | None:
    """The module that called an operation, as the user's module names it; None for what `_Main` does itself."""
    stack = list((call.meta.get("nn_module_stack") or {}).values())
    path = stack[-1][0] if stack else ""
    return None if not path else path.removeprefix("module").removeprefix(".")


def _clean(name: str) -> str:
    return re.sub(r"[^\w.]", "_", name, flags=re.ASCII)
