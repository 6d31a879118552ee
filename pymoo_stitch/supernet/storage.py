"""A supernet as a file: one safetensors file whose metadata holds everything that is not a tensor, as JSON.

A file is data. Reading one looks operators up among those allowed, builds stitches of registered kinds, and checks
every name, shape and cost against what the operators themselves return; it never executes anything in the file. A
digest over the whole content finds accidental changes."""

import json
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

from ..network import INPUT, Batch, Device, Network, Node, Ref, Tap, Trained, Weight, lookup, raw, run_without_computing
from ..stitches import Link
from ..util.digests import digest, heading
from ..util.files import no_constant, written_whole
from .fit_report import FitReport

FORMAT = "pymoo-stitch supernet 2"


@dataclass(frozen=True)
class Contents:
    """What a file holds: the arguments a supernet is made from, and its stitches' tensors by `stitch.tensor`."""

    networks: tuple[Network, ...]
    links: tuple[Link, ...]
    stitches: dict[str, torch.Tensor]
    bound: int | None = None
    dropped: tuple[tuple[Tap, Tap], ...] = ()
    fit_report: FitReport | None = None


def save(contents: Contents, path: str | os.PathLike) -> None:
    """Write to a temporary file beside `path` and put it in place when it is complete."""
    document = describe(contents.networks, contents.links) | {
        "bound": contents.bound,
        "dropped": [[_write_tap(a), _write_tap(b)] for a, b in contents.dropped],
        "differences": [network.difference for network in contents.networks],
        "trained": [_write_trained(network.trained) for network in contents.networks],
    }
    if contents.fit_report is not None:
        document["fit"] = _write_fit(contents.fit_report)
    tensors = _separate(_tensors(contents))
    text = _dumps(document)
    with written_whole(path) as temporary:
        metadata = {"format": FORMAT, "supernet": text, "digest": _digest(text, tensors)}
        try:
            save_file(tensors, temporary, metadata=metadata)
        except SafetensorError as error:
            raise OSError(f"cannot save to {path}: {error}") from error


def digest_contents(contents: Contents) -> str:
    """A name for the structure and all weights, the same in every process."""
    return _digest(_dumps(describe(contents.networks, contents.links)), _tensors(contents))


def _tensors(contents: Contents) -> dict[str, torch.Tensor]:
    tensors = {
        f"networks.{network.name}.{name}": tensor
        for network in contents.networks
        for name, tensor in network.weights.items()
    }
    tensors |= {f"stitches.{name}": tensor for name, tensor in contents.stitches.items()}
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}


def _separate(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The same tensors, those that share memory copied: safetensors takes no others."""
    first = {tensor.data_ptr(): name for name, tensor in reversed(list(tensors.items()))}
    return {name: t if first[t.data_ptr()] == name else t.clone() for name, t in tensors.items()}


def load(path: str | os.PathLike) -> Contents:
    """Read and check a file. Raises a ValueError that says what is wrong with it."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path} to load a supernet from.")
    with open(path, "rb"):
        pass  # not permitted to read it, which says nothing about the file
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise ValueError(f"its format is {metadata.get('format')!r}, not {FORMAT!r}")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        text = metadata.get("supernet", "")
        if metadata.get("digest") != _digest(text, tensors):
            raise ValueError("its content does not match its digest: it was altered or damaged")
        return _read_document(json.loads(text, parse_constant=no_constant), tensors)
    except Exception as error:  # whatever a file makes go wrong, the file is at fault
        raise ValueError(f"{path} is not a supernet that can be loaded: {error}") from error


def describe(networks: Sequence[Network], links: Iterable[Link]) -> dict[str, Any]:
    """The structure of a supernet as JSON takes it."""
    return {
        "networks": [_write_network(network) for network in networks],
        "links": [
            {"source": _write_tap(k.source), "target": _write_tap(k.target), "kind": k.kind, "stitch": k.stitch}
            for k in links
        ],
    }


def structure(networks: Sequence[Network], links: Iterable[Link]) -> bytes:
    """A digest of the structure, the same in every process."""
    return bytes.fromhex(digest([_dumps(describe(networks, links))]))


def _dumps(document: Mapping[str, Any]) -> str:
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _digest(text: str, tensors: Mapping[str, torch.Tensor]) -> str:
    parts = (part for name in sorted(tensors) for part in ("\n", heading(name, tensors[name]), raw(tensors[name])))
    return digest(chain([text], parts), size=32)


# -------------------------------------------------------------------------------------------------------------- writing


def _write_tap(tap: Tap) -> list[str]:
    return [tap.network, tap.name]


def _write_network(network: Network) -> dict[str, Any]:
    return {
        "name": network.name,
        "input_shape": list(network.input_shape),
        "output": network.output,
        "normalization": network.normalization and [list(values) for values in network.normalization],
        "parameters": sorted(name for name, tensor in network.weights.items() if isinstance(tensor, nn.Parameter)),
        "nodes": [_write_node(node) for node in network.nodes],
    }


def _write_trained(trained: Trained | None) -> dict[str, Any] | None:
    if trained is None:
        return None
    mean, std = trained.normalization
    return {"mean": list(mean), "std": list(std), "size": trained.size and list(trained.size)}


def _write_fit(report: FitReport) -> dict[str, Any]:
    """Without the losses, of which there may be many."""
    return {
        "method": report.method,
        "errors": {name: _write(value) for name, value in report.errors.items()},
        "samples": report.samples,
        "seconds": report.seconds,
        "variances": {name: _write(value) for name, value in report.variances.items()},
        "degree": report.degree,
    }


def _write_node(node: Node) -> dict[str, Any]:
    return {
        "name": node.name,
        "op": node.op,
        "args": _write(list(node.args)),
        "kwargs": {key: _write(value) for key, value in node.kwargs.items()},
        "shape": None if node.shape is None else _write(list(node.shape)),
        "dtype": None if node.dtype is None else str(node.dtype),
        "path": node.path,
        "cost": node.cost,
    }


def _write(value: Any) -> Any:
    match value:
        case Ref(name):
            return {"node": name}
        case Weight(name):
            return {"weight": name}
        case Batch(multiple):
            return {"batch": multiple}
        case Device():
            return {"device": None}
        case torch.dtype() | torch.memory_format() | torch.layout():
            return {"torch": str(value)}
        case float() if not math.isfinite(value):
            return {"number": str(value)}
        case tuple():
            return {"tuple": [_write(item) for item in value]}
        case list():
            return [_write(item) for item in value]
    return value


# -------------------------------------------------------------------------------------------------------------- reading

_TORCH = {
    str(value): value
    for value in vars(torch).values()
    if isinstance(value, (torch.dtype, torch.memory_format, torch.layout))
}
_NAME = re.compile(r"\w+(\.\w+)*", re.ASCII)


def _read_document(document: Any, tensors: Mapping[str, torch.Tensor]) -> Contents:
    fit = document.pop("fit", None) if isinstance(document, dict) else None  # files of 0.1 have none
    _fields(document, "the file", "networks", "links", "bound", "dropped", "differences", "trained")
    unused = dict(tensors)
    columns = (_typed(document[field], list, field) for field in ("networks", "differences", "trained"))
    networks = tuple(
        _read_network(item, _typed(difference, float, "a difference"), _read_trained(trained), unused)
        for item, difference, trained in zip(*columns, strict=True)
    )
    taps = {(tap.network, tap.name): tap for network in networks for tap in network.taps}

    def tap(item: Any) -> Tap:
        if tuple(_typed(item, list, "a tap")) not in taps:
            raise ValueError(f"there is no tap {item}")
        return taps[tuple(item)]

    links = []
    for item in _typed(document["links"], list, "links"):
        _fields(item, "a link", "source", "target", "kind", "stitch")
        links.append(
            Link(tap(item["source"]), tap(item["target"]), _typed(item["kind"], str, "a kind"), _name(item["stitch"]))
        )
    dropped = tuple((tap(a), tap(b)) for a, b in _typed(document["dropped"], list, "dropped"))
    bound = document["bound"] if document["bound"] is None else _typed(document["bound"], int, "bound")
    stray = [name for name in unused if not name.startswith("stitches.")]
    if stray:
        raise ValueError(f"no network uses the tensor {stray[0]!r}")
    return Contents(
        networks,
        tuple(links),
        {name.removeprefix("stitches."): tensor for name, tensor in unused.items()},
        bound,
        dropped,
        None if fit is None else _read_fit(fit),
    )


def _read_fit(item: Any) -> FitReport:
    _fields(item, "what is said of the stitches", "method", "errors", "samples", "seconds", "variances", "degree")
    return FitReport(
        _typed(item["method"], str, "a method"),
        _read_numbers(item["errors"], "errors"),
        _typed(item["samples"], int, "samples"),
        _typed(item["seconds"], float, "seconds"),
        _read_numbers(item["variances"], "variances"),
        _typed(item["degree"], (float, type(None)), "a degree"),
    )


def _read_numbers(item: Any, what: str) -> dict[str, float]:
    return {_name(name): _typed(_read(value), float, what) for name, value in _typed(item, dict, what).items()}


def _read_network(item: Any, difference: float, trained: Trained | None, tensors: dict[str, torch.Tensor]) -> Network:
    _fields(item, "a network", "name", "input_shape", "output", "normalization", "parameters", "nodes")
    name = _name(item["name"])
    parameters = set(_typed(item["parameters"], list, "parameters"))
    weights = {}
    for key in [key for key in tensors if key.startswith(f"networks.{name}.")]:
        short = key.removeprefix(f"networks.{name}.")
        tensor = tensors.pop(key)
        weights[_name(short)] = nn.Parameter(tensor, requires_grad=False) if short in parameters else tensor
    if parameters - set(weights):
        raise ValueError(f"network {name} lacks the parameter {min(parameters - set(weights))!r}")
    nodes = tuple(_read_node(entry) for entry in _typed(item["nodes"], list, "nodes"))
    shape = tuple(cast(int, _size(size)) for size in _typed(item["input_shape"], list, "input_shape"))
    _check_nodes(name, nodes, weights, shape, item["output"])
    normalization = item["normalization"]
    if normalization is not None:
        normalization = tuple(
            tuple(_typed(value, float, "a normalisation") for value in values) for values in normalization
        )
        if [len(values) for values in normalization] != [shape[0], shape[0]]:
            raise ValueError(f"network {name} has a normalisation of the wrong length")
    return Network(name, nodes, weights, shape, item["output"], normalization, difference, trained)


def _read_trained(item: Any) -> Trained | None:
    if item is None:
        return None
    _fields(item, "what a network was trained on", "mean", "std", "size")
    mean, std = (
        tuple(_typed(value, float, "a normalisation") for value in _typed(item[field], list, field))
        for field in ("mean", "std")
    )
    if item["size"] is None:
        return Trained((mean, std), None)
    height, width = (cast(int, _size(size)) for size in _typed(item["size"], list, "size"))
    return Trained((mean, std), (height, width))


def _check_nodes(
    name: str, nodes: Sequence[Node], weights: Mapping[str, torch.Tensor], input_shape: tuple[int, ...], output: Any
) -> None:
    """Raise a ValueError unless every node reads only what comes before it, has the shape, type and cost that the file
    says (found without computing it), and reaches the output."""
    seen, read = {INPUT}, {output}
    for node in nodes:
        if node.name in seen:
            raise ValueError(f"network {name} has two nodes {node.name!r}")
        if missing := [source for source in node.inputs() if source not in seen] + [
            key for key in node.weights() if key not in weights
        ]:
            raise ValueError(f"node {node.name!r} of network {name} reads {missing[0]!r}, which is not there before it")
        seen.add(node.name)
        read.update([*node.inputs(), *node.weights()])
    if not any(node.name == output and node.sample_shape for node in nodes):
        raise ValueError(f"network {name} has no node {output!r} that returns an output for each sample")
    if unread := (seen - {INPUT} | set(weights)) - read:
        raise ValueError(f"nothing in network {name} reads {min(unread)!r}")
    for batch in (1, 2, 3):
        said: Any
        for node, result, cost in run_without_computing(nodes, weights, input_shape, batch):
            if node.shape is None:
                said, fits = "several tensors", isinstance(result, (list, tuple)) and len(result) <= 10_000
            else:
                said = (
                    tuple(size.multiple * batch if isinstance(size, Batch) else size for size in node.shape),
                    node.dtype,
                )
                fits = isinstance(result, torch.Tensor) and (tuple(result.shape), result.dtype) == said
            if not fits or (batch == 1 and cost != node.cost):  # what no sample changes is counted once
                raise ValueError(
                    f"node {node.name!r} of network {name} does not return what the file says: {said}, {node.cost} "
                    "multiply-adds"
                )


def _read_node(item: Any) -> Node:
    _fields(item, "a node", "name", "op", "args", "kwargs", "shape", "dtype", "path", "cost")
    op = _typed(item["op"], str, "an operator")
    lookup(op)
    kwargs = {_name(key): _read(value) for key, value in _typed(item["kwargs"], dict, "kwargs").items()}
    shape = (
        None if item["shape"] is None else tuple(_size(_read(size)) for size in _typed(item["shape"], list, "a shape"))
    )
    dtype = None if item["dtype"] is None else _torch(item["dtype"], torch.dtype)
    path = None if item["path"] is None else _typed(item["path"], str, "a path")
    cost = _typed(item["cost"], int, "a cost")
    return Node(
        _name(item["name"]),
        op,
        tuple(_read(value) for value in _typed(item["args"], list, "args")),
        kwargs,
        shape,
        dtype,
        path,
        cost,
    )


def _read(value: Any) -> Any:
    if isinstance(value, list):
        return [_read(item) for item in value]
    if not isinstance(value, dict):
        return _typed(value, (str, int, float, bool, type(None)), "an argument")
    if len(value) != 1:
        raise ValueError(f"{str(value)[:80]} is not an argument")
    ((tag, content),) = value.items()
    match tag:
        case "node":
            return Ref(_name(content))
        case "weight":
            return Weight(_name(content))
        case "batch":
            return Batch(_typed(content, int, "a batch"))
        case "device" if content is None:
            return Device()
        case "torch":
            return _torch(content, (torch.dtype, torch.memory_format, torch.layout))
        case "number" if content in ("inf", "-inf", "nan"):
            return float(content)
        case "tuple":
            return tuple(_read(item) for item in _typed(content, list, "a tuple"))
    raise ValueError(f"{str(value)[:80]} is not an argument")


def _torch(name: Any, types: Any) -> Any:
    value = _TORCH.get(name) if isinstance(name, str) else None
    if not isinstance(value, types):
        raise ValueError(f"{name!r} is not a type of torch")
    return value


def _fields(item: Any, what: str, *names: str) -> None:
    if not isinstance(item, dict) or set(item) != set(names):
        raise ValueError(
            f"{what} has the fields {sorted(item) if isinstance(item, dict) else type(item).__name__}, not "
            f"{sorted(names)}"
        )


def _typed(value: Any, types: Any, what: str) -> Any:
    allowed = types if isinstance(types, tuple) else (types,)
    if type(value) not in allowed:
        raise ValueError(f"{what} is {str(value)[:80]!r}, a {type(value).__name__}")
    return value


def _name(value: Any) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ValueError(f"{str(value)[:80]!r} is not a name")
    return value


def _size(value: Any) -> int | Batch:
    if isinstance(value, Batch) or (type(value) is int and 0 <= value < 2**31):
        return value
    raise ValueError(f"{str(value)[:80]!r} is not a size")
