"""A subnetwork or a cascade as a file that runs without this package: a `torch.export` program (`.pt2`) or ONNX
(`.onnx`).

With the network goes what there is to know about it, as JSON: what it is made of, what input it takes, what it costs
and how good it is. `read_about` reads that from a file and nothing else."""

import importlib
import io
import json
import math
import os
import re
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from .. import __version__
from ..network import INPUT, first_lines, quiet
from ..stitches import Link
from ..util.files import check_exported, check_place, no_constant, written_whole
from ..util.versions import OWN
from .cascade import top_probability
from .sharing import Sharing
from .summary import describe_input

if TYPE_CHECKING:
    from .cascade import Cascade
    from .space import Space
    from .subnetwork import Step, Subnetwork

FORMAT = "pymoo-stitch network 1"

ABOUT = "network.json"
"""The extra file of a `.pt2` archive that says what the network is."""

ABOUT_KEY = "pymoo_stitch"
"""The key among the metadata of an ONNX model that says the same."""

BATCHES = (1, 3)
"""The batch sizes on which a file is verified: not the one that it was traced with."""

TOLERANCE = 1e-5
"""How far ONNX Runtime may be from torch, as a fraction of the largest output: it fuses and orders sums differently."""

ONNX_LIMIT = 2**31 - 2**24
"""An ONNX file holds less than 2 GiB, the graph included."""


def export(
    subnetwork: "Subnetwork",
    path: str | os.PathLike,
    *,
    classes: Sequence[str] | None = None,
    metrics: Mapping[str, Mapping[str, float]] | None = None,
    head: nn.Module | None = None,
) -> dict[str, Any]:
    """Write a subnetwork to a file of its own, for any batch size from 1.

    The file is read back and compared with `subnetwork.module()` on two batches before it is put in place: a `.pt2`
    file returns the same bits, an `.onnx` file under ONNX Runtime the same up to 1e-5 of the largest output. It appears
    whole or not at all.

    A `.pt2` file needs torch alone: `torch.export.load(path).module()(images)`. It holds no pickle, and therefore no
    example input; but `torch.export.load` unpickles what it finds in a file, so load none from a source you do not
    trust. torch does not promise that later versions of it read the file. An `.onnx` file is data. Its input is called
    "input", its output "output".

    :param path: ends in `.pt2` or `.onnx`. ONNX needs `pip install "pymoo-stitch[onnx]"`.
    :param classes: the names of the classes, in the order of the outputs.
    :param metrics: what is known of its quality, as `{"test": {"accuracy": 0.9}}`.
    :param head: what turns its outputs into scores for other classes, see `StitchProblem.head`; part of the file.
    :return: what was written about the network, as `read_about` returns it.
    """
    check_path(path)
    _warn_if_not_fitted([subnetwork])
    module = subnetwork.module(head=head).requires_grad_(False)
    text = json.dumps(describe(subnetwork, module, classes, metrics, head), ensure_ascii=False, allow_nan=False)
    with written_whole(path) as temporary, torch.no_grad():
        expected = _expected(subnetwork, module)
        read, tolerance = _WRITERS[Path(path).suffix](_program(module, subnetwork), text, temporary)
        _compare(path, read({}), expected, tolerance)
    return json.loads(text)


def export_cascade(
    cascade: "Cascade",
    path: str | os.PathLike,
    *,
    classes: Sequence[str] | None = None,
    metrics: Mapping[str, Mapping[str, float]] | None = None,
) -> dict[str, Any]:
    """Write a cascade to a file of its own, for any batch size from 1: as `export` does for a subnetwork, with the same
    guarantees. It is also verified with other thresholds than its own, with which none, some and all of the images are
    deferred.

    A loaded `.pt2` file has its thresholds as buffers: `module.threshold1.fill_(0.9)` changes one.

    :param path, classes, metrics: as in `export`.
    :return: what was written about the cascade. Beside what there is for a subnetwork, `cascade` says what its stages
        are, and after which threshold each of them runs. `multiply_adds` are those of the worst case.
    """
    check_path(path)
    _warn_if_not_fitted(cascade.stages)
    module = cascade.module().requires_grad_(False)
    with torch.no_grad():
        about = describe_cascade(cascade, module, classes, metrics)
    text = json.dumps(about, ensure_ascii=False, allow_nan=False)
    with written_whole(path) as temporary, torch.no_grad():
        others = list(_other_thresholds(cascade, module))
        expected = [_expected(cascade, _with_tensors(module, tensors)) for tensors in others]
        _with_tensors(module, _thresholds(cascade.thresholds))
        others, expected = [{}, *others], [_expected(cascade, module), *expected]
        read, tolerance = _WRITERS[Path(path).suffix](_program(module, cascade), text, temporary)
        for tensors, outputs in zip(others, expected, strict=True):
            _compare(path, read(tensors), outputs, tolerance)
    return json.loads(text)


def _warn_if_not_fitted(subnetworks: "Sequence[Subnetwork]") -> None:
    if any(each.n_stitches and not (each.space.is_fitted or each.retrained) for each in subnetworks):
        warnings.warn("no stitch of this supernet has been fitted: call supernet.fit(images) first.", stacklevel=4)


def _expected(network: "Subnetwork | Cascade", module: nn.Module) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Batches to verify a file on, and what it must return for them."""
    batches = [_noise(size, network.space.input_shape) for size in BATCHES]
    expected = [module(batch.clone()) for batch in batches]
    if not all(output.isfinite().all() for output in expected):
        raise ValueError(
            f"{network} cannot be exported: it returns NaN or infinite values for noise in [0, 1], so that no file can "
            "be compared with it."
        )
    return list(zip(batches, expected, strict=True))


def _thresholds(values: Sequence[float]) -> dict[str, torch.Tensor]:
    """The buffers of a cascade's module that hold its thresholds, with these values."""
    return {f"threshold{number}": torch.tensor(value) for number, value in enumerate(values, 1)}


def _other_thresholds(cascade: "Cascade", module: nn.Module) -> Iterator[dict[str, torch.Tensor]]:
    """Thresholds with which none, all, and some images of a batch of noise are deferred, these to the last stage."""
    count = len(cascade.thresholds)
    yield (none := _thresholds([0.0] * count))
    yield _thresholds([2.0] * count)  # higher than any probability
    first = _with_tensors(module, none)(_noise(max(BATCHES), cascade.space.input_shape))
    low, high = top_probability(first).sort().values[:2].tolist()
    yield _thresholds([(low + high) / 2, *[2.0] * (count - 1)])


def _with_tensors(module: nn.Module, tensors: Mapping[str, torch.Tensor]) -> nn.Module:
    """The module, after some of its buffers have been set to these values."""
    for name, tensor in tensors.items():
        module.get_buffer(name).copy_(tensor)
    return module


def check_path(path: str | os.PathLike) -> None:
    """Raise an error, before any work, if no network can be exported to this path."""
    check_exported(path)
    if Path(path).suffix == ".onnx":
        _require(*ONNX)
    check_place(path)


def read_about(path: str | os.PathLike) -> dict[str, Any]:
    """What an exported file says about its network, without running or unpickling anything in it."""
    path = Path(path)
    check_exported(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path} to read about a network.")
    with open(path, "rb"):
        pass  # not permitted to read it, which says nothing about the file
    try:
        about = json.loads(_READERS[path.suffix](path), parse_constant=no_constant)
        found = about.get("format") if isinstance(about, dict) else None
        if found != FORMAT:
            raise ValueError(f"its format is {found!r}, not {FORMAT!r}")
    except ImportError:
        raise
    except Exception as error:  # whatever else goes wrong, the file is at fault
        raise ValueError(f"{path} is not a network that pymoo-stitch exported: {error}.") from error
    return about


def describe(
    subnetwork: "Subnetwork",
    module: nn.Module,
    classes: Sequence[str] | None = None,
    metrics: Mapping[str, Mapping[str, float]] | None = None,
    head: nn.Module | None = None,
) -> dict[str, Any]:
    """What there is to know about a subnetwork, as JSON takes it. Shapes are without the batch, multiply-adds those for
    one sample; `retrained` tells whether its stitches are its own, and no longer the supernet's, `recalibrated` whether
    statistics of batch norms are."""
    output_shape = subnetwork.outputs[0].output_shape
    if head is not None:
        with torch.no_grad():
            output_shape = tuple(head.cpu()(torch.zeros(1, *output_shape)).shape[1:])
    return {
        "format": FORMAT,
        "networks": _networks(subnetwork.steps()),
        "stitches": _stitches(subnetwork.links),
        "retrained": subnetwork.retrained,
        "recalibrated": bool(subnetwork.norms),
        "outputs": [network.name for network in subnetwork.outputs],
        "head": head and type(head).__name__.removeprefix("_"),
        "genotype": _bits(subnetwork),
        "key": subnetwork.key,
        "multiply_adds": subnetwork.cost,
        "parameters": sum(parameter.numel() for parameter in module.parameters()),
        "input": _input(subnetwork.space, subnetwork.steps()),
        "output": {"shape": list(output_shape), "dtype": "float32"},
        "classes": _checked_classes(classes, output_shape),
        "metrics": _checked_metrics(metrics),
        "versions": _versions(),
    }


def describe_cascade(
    cascade: "Cascade",
    module: nn.Module,
    classes: Sequence[str] | None = None,
    metrics: Mapping[str, Mapping[str, float]] | None = None,
) -> dict[str, Any]:
    """What there is to know about a cascade, as `describe` does for a subnetwork; `cascade` holds its stages, each with
    the multiply-adds for an image that gets there and, where it is known, the fraction of images that does."""
    steps = [computation.step for computation in Sharing(cascade.stages).computations]
    links = dict.fromkeys(link for stage in cascade.stages for link in stage.links)
    make_head = cascade.stages[0].make_head
    output_shape = tuple(module(_noise(1, cascade.space.input_shape)).shape[1:])
    stages = [
        {
            "outputs": [network.name for network in stage.outputs],
            "genotype": _bits(stage),
            "key": stage.key,
            "retrained": stage.retrained,
            "recalibrated": bool(stage.norms),
            "multiply_adds": cost,
            "fraction": None if cascade.fractions is None else cascade.fractions[number],
        }
        for number, (stage, cost) in enumerate(zip(cascade.stages, cascade.costs, strict=True))
    ]
    return {
        "format": FORMAT,
        "networks": _networks(steps),
        "stitches": _stitches(links),
        "retrained": any(stage.retrained for stage in cascade.stages),
        "recalibrated": any(stage.norms for stage in cascade.stages),
        "cascade": {"stages": stages, "thresholds": list(cascade.thresholds), "combine": cascade.combine},
        "head": make_head and type(make_head()).__name__.removeprefix("_"),
        "key": cascade.key,
        "multiply_adds": cascade.worst_cost,
        "expected_multiply_adds": None if cascade.fractions is None else cascade.cost,
        "parameters": sum(parameter.numel() for parameter in module.parameters()),
        "input": _input(cascade.space, steps),
        "output": {"shape": list(output_shape), "dtype": "float32"},
        "classes": _checked_classes(classes, output_shape),
        "metrics": _checked_metrics(metrics),
        "versions": _versions(),
    }


def _networks(steps: Iterable["Step"]) -> list[dict[str, Any]]:
    costs: dict[str, int] = {}
    for step in steps:
        if step.network is not None:
            costs[step.network.name] = costs.get(step.network.name, 0) + step.cost
    return [{"name": name, "multiply_adds": cost} for name, cost in costs.items()]


def _stitches(links: Iterable[Link]) -> list[dict[str, str]]:
    return [{"source": str(link.source), "target": str(link.target), "kind": link.kind} for link in links]


def _bits(subnetwork: "Subnetwork") -> str:
    return "".join("01"[bit] for bit in subnetwork.x.tolist())


def _input(space: "Space", steps: Iterable["Step"]) -> dict[str, Any]:
    """Shape, type and values of the input; with `mean` and `std` where images in [0, 1] must be normalised first."""
    reading = list(
        {step.network.name: step.network for step in steps if step.node and INPUT in step.node.inputs()}.values()
    )
    values = {describe_input(network): network for network in reading}
    about = {"shape": list(space.input_shape), "dtype": "float32", "values": "; ".join(values)}
    if len(values) > 1:
        about["values"] = "; ".join(f"{network.name}: {describe_input(network)}" for network in reading)
    elif reading[0].takes_unit_images is False:
        about["mean"], about["std"] = map(list, reading[0].trained.normalization)
    return about


def _checked_classes(classes: Sequence[str] | None, output_shape: tuple[int, ...]) -> list[str] | None:
    if classes is None:
        return None
    names = list(classes)
    if isinstance(classes, str) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"classes are a list of names, but are {str(classes)[:80]!r}.")
    if len(names) != output_shape[0]:
        raise ValueError(f"{len(names)} classes are named, but the network has {output_shape[0]} outputs.")
    return names


def _checked_metrics(metrics: Mapping[str, Mapping[str, float]] | None) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for split, values in (metrics or {}).items():
        if not isinstance(values, Mapping):
            raise TypeError(
                f"metrics are given for each split, as {{'test': {{'accuracy': 0.9}}}}, but {split!r} is {values!r}."
            )
        found[split] = {name: float(value) for name, value in values.items()}
        if wrong := [name for name, value in found[split].items() if not math.isfinite(value)]:
            raise ValueError(f"the {wrong[0]} on the {split} split is {values[wrong[0]]}; leave out what is not known.")
    return found


def _versions() -> dict[str, str]:
    return {OWN: __version__, "torch": torch.__version__}


# -------------------------------------------------------------------------------------------------------------- writing

Forward = Callable[[torch.Tensor], torch.Tensor]

Read = Callable[[Mapping[str, torch.Tensor]], Forward]
"""What a file holds as a function, with other values for some of its tensors from now on."""


def _noise(size: int, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.rand(size, *shape, generator=torch.Generator().manual_seed(size))


def _program(module: nn.Module, network: "Subnetwork | Cascade") -> torch.export.ExportedProgram:
    """The exported program, without what would make two files of one network differ or tell of the machine: example
    inputs, stack traces, and the addresses of graphs."""
    example = _noise(2, network.space.input_shape)
    shapes = ({0: torch.export.Dim("batch", min=1)},)
    try:
        with quiet():
            program = torch.export.export(module, (example,), dynamic_shapes=shapes, strict=False)
    except Exception as error:
        raise ValueError(
            f"{network} cannot be exported: torch.export failed with {first_lines(error, 2)}. The whole message is in "
            "the exception's cause."
        ) from error
    program.example_inputs = None
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)
        node.meta.pop("from_node", None)
    return program


def _compare(
    path: str | os.PathLike, run: Forward, expected: Sequence[tuple[torch.Tensor, torch.Tensor]], tolerance: float
) -> None:
    """Raise a ValueError unless what a file returns differs by no more than `tolerance` times the largest output."""
    for batch, output in expected:
        try:
            found = run(batch.clone())
        except Exception as error:
            raise ValueError(
                f"{path} was not written: what was to be written does not run on {len(output)} samples: "
                f"{first_lines(error)[:300]}. The other format may do."
            ) from error
        difference = (found - output).abs().max().item() if found.shape == output.shape else math.inf
        allowed = tolerance * output.abs().max().item()
        if not difference <= allowed:
            raise ValueError(
                f"{path} was not written: for {len(output)} samples what was to be written differs from the subnetwork "
                f"by up to {difference:.3g}, more than {allowed:.3g}. The other format may work."
            )


def _write_pt2(program: torch.export.ExportedProgram, about: str, path: Path) -> tuple[Read, float]:
    buffer = io.BytesIO()  # torch's own writer ends the process when a disk is full, and writes the file's name into it
    torch.export.save(program, buffer, extra_files={ABOUT: about})
    path.write_bytes(buffer.getbuffer())
    with open(path, "rb") as file:
        loaded = torch.export.load(file).module()  # once: it takes longer than all that follows
    return partial(_with_tensors, loaded), 0.0


def _write_onnx(program: torch.export.ExportedProgram, about: str, path: Path) -> tuple[Read, float]:
    onnx, _, onnxruntime = _require(*ONNX)
    size = sum(tensor.nbytes for tensor in [*program.state_dict.values(), *program.constants.values()])
    if size > ONNX_LIMIT:
        raise ValueError(f"an ONNX file holds less than 2 GiB, but the weights take {size:,} bytes. Use .pt2.")
    names: dict[str, Any] = {"input_names": ["input"], "output_names": ["output"]}
    try:
        with quiet():
            model = torch.onnx.export(program, dynamo=True, verbose=False, **names).model_proto
    except Exception as error:
        raise ValueError(
            f"this subnetwork cannot be exported as ONNX: torch.onnx failed with {first_lines(error, 2)}. The whole "
            "message is in the exception's cause. Use .pt2."
        ) from error
    _name_batch(model.graph)
    for part in [*model.graph.node, *model.graph.value_info, *model.graph.input, *model.graph.output]:
        part.ClearField("metadata_props")  # where in torch's code each node was made
    onnx.helper.set_model_props(model, {ABOUT_KEY: about} | _plain(json.loads(about)))
    path.write_bytes(model.SerializeToString(deterministic=True))
    onnx.checker.check_model(str(path), full_check=True)

    def read(tensors: Mapping[str, torch.Tensor]) -> Forward:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # errors: what it says of its own optimisations is not for the user
        given = {name: onnxruntime.OrtValue.ortvalue_from_numpy(tensor.numpy()) for name, tensor in tensors.items()}
        for name, value in given.items():
            options.add_initializer(name, value)
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

        def forward(
            batch: torch.Tensor, given: object = given
        ) -> torch.Tensor:  # it has to live as long as the session
            return torch.from_numpy(session.run(None, {"input": batch.numpy()})[0])

        return forward

    return read, TOLERANCE


def _name_batch(graph: Any) -> None:
    """Give the dimension that torch calls s77 or the like the name `batch`, wherever it is named."""
    numbered = graph.input[0].type.tensor_type.shape.dim[0].dim_param
    if not numbered:
        return
    for value in [*graph.input, *graph.output, *graph.value_info]:
        for dimension in value.type.tensor_type.shape.dim:
            if dimension.dim_param:
                dimension.dim_param = re.sub(rf"\b{re.escape(numbered)}\b", "batch", dimension.dim_param)


def _plain(about: dict[str, Any]) -> dict[str, str]:
    """A few facts as plain strings, which a viewer of ONNX files can show."""
    return {
        "networks": ", ".join(network["name"] for network in about["networks"]),
        "input": "{}: {}".format("×".join(map(str, about["input"]["shape"])), about["input"]["values"]),
        "multiply-adds": str(about["multiply_adds"]),
        "parameters": str(about["parameters"]),
    }


_WRITERS = {".pt2": _write_pt2, ".onnx": _write_onnx}

ONNX = ("onnx", "onnxscript", "onnxruntime")


def _require(*names: str) -> list[ModuleType]:
    try:
        return [importlib.import_module(name) for name in names]
    except ImportError as error:
        raise ImportError(
            f'ONNX files need {" and ".join(names)}: {error}. Install what is missing: pip install "pymoo-stitch[onnx]"'
        ) from error


# -------------------------------------------------------------------------------------------------------------- reading

ABOUT_LIMIT = 2**24
"""No description takes more bytes than this."""


def _read_pt2(path: Path) -> str:
    with zipfile.ZipFile(path) as archive:
        members = [item for item in archive.infolist() if item.filename.split("/")[1:] == ["extra", ABOUT]]
        if len(members) != 1:
            raise ValueError(f"it holds {len(members)} files {ABOUT}, not one")
        if members[0].file_size > ABOUT_LIMIT:
            raise ValueError(f"its {ABOUT} takes {members[0].file_size:,} bytes")
        return archive.read(members[0]).decode()


def _read_onnx(path: Path) -> str:
    (onnx,) = _require("onnx")
    model = onnx.load(path, load_external_data=False)
    found = [item.value for item in model.metadata_props if item.key == ABOUT_KEY]
    if len(found) != 1:
        raise ValueError(f"its metadata holds {len(found)} values for {ABOUT_KEY}, not one")
    return found[0]


_READERS = {".pt2": _read_pt2, ".onnx": _read_onnx}
