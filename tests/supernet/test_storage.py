"""Files: what is saved comes back, whole or not at all, and a file from anyone is only data."""

import json
import math
import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from conftest import IMAGE, imported
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

from pymoo_stitch import KINDS, Kind, Supernet
from pymoo_stitch.supernet import storage
from pymoo_stitch.supernet.storage import _digest, _dumps


@pytest.fixture
def saved(supernet, tmp_path):
    path = tmp_path / "supernet.safetensors"
    supernet.save(path)
    return path


def test_a_loaded_supernet_is_the_same(supernet, saved, images):
    loaded = Supernet.load(saved)
    assert loaded.links == supernet.links
    assert (loaded.bound, loaded.dropped) == (supernet.bound, supernet.dropped)
    assert str(loaded) == str(supernet)
    assert loaded.networks[0].nodes == supernet.networks[0].nodes
    for x in np.random.default_rng(0).random((5, supernet.n_var)) < 0.3:
        a, b = supernet.subnetwork(x), loaded.subnetwork(x)
        assert (a.key, a.cost) == (b.key, b.cost)
        assert torch.equal(a.module()(images), b.module()(images))
    for ours, theirs in zip(supernet.networks, loaded.networks, strict=True):
        assert {k: type(v) for k, v in ours.weights.items()} == {k: type(v) for k, v in theirs.weights.items()}
        assert ours.difference == theirs.difference


def test_saving_again_gives_the_same_content(saved, tmp_path):
    Supernet.load(saved).save(tmp_path / "again")
    (metadata, tensors), (same_metadata, same_tensors) = read(saved), read(tmp_path / "again")
    assert same_metadata == metadata
    assert all(torch.equal(tensor, same_tensors[name]) for name, tensor in tensors.items())


def test_what_is_known_of_the_stitches_comes_back(pair, tmp_path):
    supernet = Supernet(pair.networks, pair.links)
    supernet.save(tmp_path / "unfitted")
    assert Supernet.load(tmp_path / "unfitted").fit_report is None
    assert "relative error" not in supernet.summary()
    for restore in (0, 1):  # as integers
        supernet.fit(torch.rand(16, *IMAGE), progress=False, restore=restore)
        supernet.save(tmp_path / "fitted")
        assert Supernet.load(tmp_path / "fitted").fit_report == supernet.fit_report
    supernet.fit(torch.rand(16, *IMAGE), progress=False)
    supernet.fit_report = replace(supernet.fit_report, errors=supernet.fit_report.errors | {"link0": math.inf})
    digest = supernet.digest()
    supernet.save(tmp_path / "fitted")
    again = Supernet.load(tmp_path / "fitted")
    assert again.fit_report == supernet.fit_report
    assert again.summary() == supernet.summary()
    assert "(link0 inf" in again.summary()
    assert f"  link0: {again.links[0]}" in again.summary()
    supernet.fit_report = None
    assert supernet.digest() == digest  # what is said of stitches does not make them others


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"samples": "16"}, "samples is '16', a str"),
        ({"errors": {"link 0": 0.5}}, "'link 0' is not a name"),
        ({"errors": {"link0": {"node": "relu"}}}, "errors is"),
        ({"variances": [0.5]}, "variances is"),
        ({"degree": "1"}, "a degree is '1', a str"),
        ({"code": "import os"}, "what is said of the stitches has the fields"),
    ],
)
def test_a_forged_report_on_stitches_is_refused(pair, tmp_path, monkeypatch, change, message):
    supernet = Supernet(pair.networks, pair.links)
    supernet.fit(torch.rand(16, *IMAGE), progress=False)
    written = storage._write_fit(supernet.fit_report) | change
    monkeypatch.setattr(storage, "_write_fit", lambda report: written)
    supernet.save(tmp_path / "file")
    with pytest.raises(ValueError, match=message):
        Supernet.load(tmp_path / "file")


def test_a_network_and_its_copy_can_be_saved(residual, tmp_path):
    supernet = Supernet.build([residual, replace(residual, name="two")])
    supernet.save(tmp_path / "file")
    assert Supernet.load(tmp_path / "file").n_var == supernet.n_var


class Constant(nn.Module):
    """A product that does not depend on the images, as in tables of relative positions."""

    def __init__(self):
        super().__init__()
        self.table, self.map, self.conv = nn.Parameter(torch.rand(4, 6)), nn.Linear(6, 5), nn.Conv2d(3, 4, 3)

    def forward(self, x):
        return self.conv(x).mean((2, 3)) @ self.map(self.table)


def test_what_no_sample_changes_is_counted_once_and_comes_back(tmp_path):
    supernet = Supernet([imported(Constant, "one"), imported(Constant, "two")], [])
    assert supernet.networks[0].cost == 4 * 6 * 5 + 3 * 4 * 9 * 36 + 4 * 5
    supernet.save(tmp_path / "file")
    assert Supernet.load(tmp_path / "file").networks[0].cost == supernet.networks[0].cost


def test_a_folder_is_no_file_and_a_link_stays_one(pair, tmp_path):
    with pytest.raises(IsADirectoryError, match="it is a folder"):
        pair.save(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    pair.save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").is_file()


class Attention(nn.Module):
    """Arguments of every sort: infinite numbers, types, tuples, devices, strings."""

    def forward(self, x):
        mask = torch.full((8, 8), float("-inf"), device=x.device).triu(1)
        y = (x + mask).softmax(-1, dtype=torch.float32)
        y = nn.functional.gelu(y, approximate="tanh").to(memory_format=torch.contiguous_format)
        return nn.functional.pad(y, (1, 1, 1, 1), mode="reflect").mean((2, 3))


def test_every_sort_of_argument_comes_back(tmp_path, images):
    networks = [imported(Attention, name) for name in ("one", "two")]
    supernet = Supernet(networks, [])
    supernet.save(tmp_path / "file")
    loaded = Supernet.load(tmp_path / "file")
    x = np.zeros(supernet.n_var, dtype=bool)
    assert torch.equal(loaded.subnetwork(x).module()(images), supernet.subnetwork(x).module()(images))


# -------------------------------------------------------------------------------------------------------- damaged files


def test_a_missing_file_or_folder_is_named(pair, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no file .*nothing.st"):
        Supernet.load(tmp_path / "nothing.st")
    with pytest.raises(FileNotFoundError, match=r"folder .*nowhere does not exist"):
        pair.save(tmp_path / "nowhere" / "file")


@pytest.mark.parametrize("keep", [0, 1, 7, 8, 100, 0.5, -1])
def test_a_truncated_file_is_an_error(pair, tmp_path, keep):
    pair.save(tmp_path / "file")
    content = (tmp_path / "file").read_bytes()
    keep = int(keep * len(content)) if isinstance(keep, float) else keep
    (tmp_path / "file").write_bytes(content[:keep])
    with pytest.raises(ValueError, match="is not a supernet that can be loaded"):
        Supernet.load(tmp_path / "file")


def test_any_changed_byte_is_an_error(pair, tmp_path):
    pair.save(tmp_path / "file")
    content = bytearray((tmp_path / "file").read_bytes())
    for at in np.random.default_rng(0).integers(0, len(content), 60):
        changed = content.copy()
        changed[at] ^= 1 << int(at) % 8
        (tmp_path / "file").write_bytes(changed)
        with pytest.raises(ValueError, match="is not a supernet that can be loaded"):
            Supernet.load(tmp_path / "file")


def test_other_files_are_errors(tmp_path):
    torch.save({"weights": torch.zeros(2)}, tmp_path / "pickle")
    save_file({"weights": torch.zeros(2)}, tmp_path / "safetensors")
    (tmp_path / "text").write_text("supernet")
    for name in ("pickle", "safetensors", "text"):
        with pytest.raises(ValueError, match=f"{name} is not a supernet that can be loaded"):
            Supernet.load(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        Supernet.load(tmp_path)


def test_a_saved_file_has_ordinary_permissions(pair, tmp_path):
    pair.save(tmp_path / "file")
    (tmp_path / "other").touch()
    assert (tmp_path / "file").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_a_crash_while_saving_leaves_the_old_file(pair, tmp_path, monkeypatch):
    path = tmp_path / "file"
    pair.save(path)
    before = path.read_bytes()

    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        pair.save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.slow
def test_a_process_killed_while_saving_leaves_the_old_file(pair, tmp_path):
    path = tmp_path / "file"
    pair.save(path)
    before = path.read_bytes()
    program = textwrap.dedent("""
        import os, signal, sys
        from pymoo_stitch import Supernet
        supernet = Supernet.load(sys.argv[1])
        os.replace = lambda *paths: os.kill(os.getpid(), signal.SIGKILL)
        supernet.save(sys.argv[1])
    """)
    run = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True)
    assert run.returncode == -signal.SIGKILL
    assert path.read_bytes() == before


# -------------------------------------------------------------------------------------------------------- hostile files


def read(path):
    with safe_open(path, framework="pt") as file:
        return file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def write(path, document, tensors, sign=True):
    """A file with any content; signed, its digest is right, as that of a forger who knows the format."""
    metadata, _ = read(path)
    text = _dumps(document)
    digest = _digest(text, tensors) if sign else metadata["digest"]
    save_file(tensors, path, metadata=metadata | {"supernet": text, "digest": digest})


def places(value, path=()):
    """Every field and item of a JSON document."""
    yield path
    if isinstance(value, dict):
        for key, item in value.items():
            yield from places(item, (*path, key))
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from places(item, (*path, i))


def alterations(value):
    """What a field might be changed to."""
    yield from (None, [], {}, "__import__('os').system('touch hacked')", -1, 1e308, True, {"node": "nothing"}, [[[]]])
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, (int, float)):
        yield value + 1
        yield str(value)
    elif isinstance(value, str):
        yield value + "x"
        yield "aten.from_file.default"
    elif isinstance(value, list):
        yield value[:-1]
        yield value + value[-1:]
    elif isinstance(value, dict):
        yield value | {"more": 1}
        yield dict(list(value.items())[:-1])


def altered(document):
    """Every document that differs from the given one in one place."""
    for path in places(document):
        holder, value = None, document
        for step in path:
            holder, value = value, value[step]
        for new in alterations(value):
            if type(new) is type(value) and new == value:
                continue
            if holder is None:
                yield path, new, new
            else:
                holder[path[-1]] = new
                yield path, new, document
                holder[path[-1]] = value


@cache
def tiny():
    class Tiny(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm, self.head = nn.Conv2d(3, 2, 3, padding=1), nn.BatchNorm2d(2), nn.Linear(2, 5)

        def forward(self, x):
            return self.head(nn.functional.relu(self.norm(self.conv(x))).mean((2, 3)))

    return Supernet.build([imported(Tiny, name) for name in ("one", "two")])


class Watch:
    """Notes what would be a sign of code at work while it is on."""

    suspicious = (
        "exec",
        "os.system",
        "subprocess.Popen",
        "os.exec",
        "os.posix_spawn",
        "pickle.find_class",
        "socket.connect",
    )

    def __init__(self):
        self.on, self.seen = False, []
        sys.addaudithook(self)

    def __call__(self, event, arguments):
        if self.on and event in self.suspicious:
            self.seen.append((event, str(arguments)[:200]))

    def __enter__(self):
        self.on = True

    def __exit__(self, *_):
        self.on = False


watch = Watch()


@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.slow), 61])
@pytest.mark.parametrize("sign", [False, pytest.param(True, id="signed")])
def test_a_file_with_any_field_altered_is_refused_or_harmless(tmp_path, monkeypatch, sign, step):
    """Without a right digest every altered file is refused. With one, it is refused or it is another sound supernet:
    nothing but a ValueError comes out, and nothing is executed."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "file"
    tiny().save(path)
    Supernet.load(path)  # whatever torch imports when first used is there now
    metadata, tensors = read(path)
    document = json.loads(metadata["supernet"])
    refused, accepted, messages = 0, 0, []
    for number, (place, new, changed) in enumerate(altered(document)):
        if number % step:
            continue
        write(path, changed, tensors, sign)
        with watch:
            try:
                loaded = Supernet.load(path)
            except ValueError as error:
                refused += 1
                messages.append(str(error))
            else:
                accepted += 1
                assert sign, (place, new)
                assert isinstance(loaded, Supernet)
    print(
        f"every {step}th of {number + 1} alterations tried: {refused} refused, {accepted} gave another sound supernet"
    )
    assert not watch.seen
    assert os.listdir(tmp_path) == ["file"]
    assert all("is not a supernet that can be loaded" in message for message in messages)
    assert refused > 0.8 * (refused + accepted)


def test_altered_tensors_are_refused(tmp_path):
    path = tmp_path / "file"
    tiny().save(path)
    metadata, tensors = read(path)
    document = json.loads(metadata["supernet"])
    for number, (name, tensor) in enumerate(tensors.items()):
        without = {key: value for key, value in tensors.items() if key != name}
        changes = (without, without | {f"{name}x": tensor}, without | {name: torch.cat([tensor, tensor])})
        write(path, document, changes[number % 3])
        with pytest.raises(ValueError, match="is not a supernet that can be loaded"):
            Supernet.load(path)
    write(path, document, tensors | {"more": torch.zeros(1)})
    with pytest.raises(ValueError, match="no network uses the tensor 'more'"):
        Supernet.load(path)


@pytest.mark.parametrize(
    "op",
    [
        "aten.from_file.default", "aten.relu_.default", "aten.rand.default", "os.system", "getattr", "eval",
        "builtins.exec.default",
        "aten.__init__.default", "aten.relu", "aten.relu.default.default", "prims.device_put.default", "",
    ],
)  # fmt: skip
def test_no_operator_that_is_not_allowed_is_ever_looked_up(tmp_path, op):
    path = tmp_path / "file"
    tiny().save(path)
    metadata, tensors = read(path)
    document = json.loads(metadata["supernet"])
    document["networks"][0]["nodes"][2]["op"] = op
    write(path, document, tensors)
    with pytest.raises(ValueError, match="is not among those a graph may use"):
        Supernet.load(path)


@pytest.mark.parametrize("name", ["ensemble", "input", "forward", "1", "a.b", "stitches", "x y"])
def test_a_network_of_a_name_it_must_not_have_is_refused(tmp_path, name):
    path = tmp_path / "file"
    tiny().save(path)
    metadata, tensors = read(path)
    document = json.loads(metadata["supernet"].replace('"one"', json.dumps(name)))
    write(path, document, {key.replace("networks.one.", f"networks.{name}."): value for key, value in tensors.items()})
    with pytest.raises(ValueError, match="is not a supernet that can be loaded"):
        Supernet.load(path)


@pytest.mark.parametrize(
    ("nodes", "input_shape"),
    [
        ([("bmm", [{"node": "input"}, {"node": "input"}], [2**23, 2**23], 2**69)], [2**23, 2**23]),  # costs too much
        ([("unbind.int", [{"node": "input"}, 1], None, 0)], [4]),  # several outputs
        ([("mean", [{"node": "input"}], [], 0)], [4]),  # one for all samples
        ([("relu", [{"node": "input"}], [10**9, 2], 0), ("mean.dim", [{"node": "n0"}, [1]], [2], 0)], [10**9, 2]),
        ([("relu", [{"node": "input"}], [2**33], 0), ("mean.dim", [{"node": "n0"}, [1], True], [1], 0)], [2**33]),
    ],
)
def test_forged_graphs_of_impossible_size_or_output_end_soon_and_properly(tmp_path, nodes, input_shape):
    path = tmp_path / "file"
    tiny().save(path)
    document = json.loads(read(path)[0]["supernet"])
    entries = [
        {
            "name": f"n{i}",
            "op": f"aten.{op}" if "." in op else f"aten.{op}.default",
            "args": args,
            "kwargs": {},
            "shape": None if shape is None else [{"batch": 1}, *shape] if shape else [],
            "dtype": None if shape is None else "torch.float32",
            "path": "",
            "cost": cost,
        }
        for i, (op, args, shape, cost) in enumerate(nodes)
    ]
    common = {"input_shape": input_shape, "output": entries[-1]["name"], "normalization": None, "parameters": []}
    document["networks"] = [common | {"name": name, "nodes": entries} for name in ("one", "two")]
    document["links"] = (
        []
        if len(nodes) == 1
        else [link | {"source": ["one", "n0"], "target": ["two", "n0"]} for link in document["links"][:1]]
    )
    write(path, document, {})
    try:
        assert Supernet.load(path).n_var == 2
    except ValueError as error:
        assert "is not a supernet that can be loaded" in str(error)  # noqa: PT017


def test_deep_nesting_and_odd_numbers_are_refused(tmp_path):
    path = tmp_path / "file"
    tiny().save(path)
    metadata, tensors = read(path)
    for text in (
        "[" * 100_000 + "]" * 100_000,
        "NaN",
        '{"networks": Infinity}',
        "1" * 10_000,
        '"' + "\\ud800" * 3 + '"',
        "",
    ):
        save_file(tensors, path, metadata=metadata | {"supernet": text, "digest": _digest(text, tensors)})
        with pytest.raises(ValueError, match="is not a supernet that can be loaded"):
            Supernet.load(path)


def test_a_kind_that_is_not_registered_is_named(tmp_path, residual, gated):
    KINDS["mine"] = Kind(KINDS["linear"].build)
    try:
        Supernet.build([residual, gated], kind="mine").save(tmp_path / "file")
    finally:
        del KINDS["mine"]
    with pytest.raises(ValueError, match=r"asks for a stitch of kind 'mine'; choose from .*linear"):
        Supernet.load(tmp_path / "file")
