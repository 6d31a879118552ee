"""Exported files: they run without this package, give what the subnetwork gives, and say what they are."""

import io
import json
import os
import re
import subprocess
import sys
import textwrap
import zipfile
from dataclasses import replace

import numpy as np
import pytest
import timm
import torch
from conftest import IMAGE, Gated, imported, seeded
from torch import nn
from torch.nn import functional as F

from pymoo_stitch import KINDS, Kind, Layout, Link, Network, Supernet, read_about
from pymoo_stitch.network import Trained
from pymoo_stitch.supernet import export

CLASSES = ["ant", "bee", "čmelák", "dog", "eel"]


def batch(size, shape=IMAGE):
    return torch.rand(size, *shape, generator=torch.Generator().manual_seed(size))


def random_subnetwork(supernet, seed=0, ensemble=False):
    """One with stitches."""
    rng = np.random.default_rng(seed)
    while True:
        x = rng.random(supernet.n_var) < 0.3
        x[len(supernet.links) :] = False
        x[-1] = ensemble
        if supernet.subnetwork(x).n_stitches:
            return supernet.subnetwork(x)


def check_program(subnetwork, path):
    """The file gives the subnetwork's outputs to the bit, for other batches than those it was verified on too."""
    about = subnetwork.export(path)
    program = torch.export.load(path).module()
    module = subnetwork.module().requires_grad_(False)
    for size in (1, 7):
        images = batch(size, subnetwork.space.input_shape)
        assert torch.equal(program(images), module(images))
    assert read_about(path) == about
    return about


def check_onnx(subnetwork, path):
    onnxruntime = pytest.importorskip("onnxruntime")
    about = subnetwork.export(path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert session.get_inputs()[0].shape[0] == session.get_outputs()[0].shape[0] == "batch"
    module = subnetwork.module().requires_grad_(False)
    for size in (1, 7):
        images = batch(size, subnetwork.space.input_shape)
        (found,) = session.run(["output"], {"input": images.numpy()})
        torch.testing.assert_close(torch.from_numpy(found), module(images), rtol=1e-4, atol=1e-5)
    assert read_about(path) == about
    assert json.loads(session.get_modelmeta().custom_metadata_map["pymoo_stitch"]) == about
    return about


@pytest.fixture(scope="session", params=["pt2", "onnx"])
def suffix(request):
    if request.param == "onnx":
        pytest.importorskip("onnxruntime")
        pytest.importorskip("onnxscript")
    return request.param


@pytest.fixture
def check(suffix):
    return {"pt2": check_program, "onnx": check_onnx}[suffix]


@pytest.fixture(scope="session")
def exported(pair, suffix, tmp_path_factory):
    """The content of a file, and what it says of itself."""
    path = tmp_path_factory.mktemp("exported") / f"network.{suffix}"
    about = random_subnetwork(pair).export(path)
    return path.read_bytes(), about


# ----------------------------------------------------------------------------------------------------- what it computes


def test_every_sort_of_supernet_is_exported(supernet, tmp_path):
    about = check_program(random_subnetwork(supernet, ensemble=True), tmp_path / "network.pt2")
    assert about["stitches"]
    assert about["outputs"] == [network.name for network in supernet.networks]


@pytest.mark.slow
def test_images_and_tokens_are_exported_as_onnx(by_hand, tmp_path):
    pytest.importorskip("onnxscript")
    about = check_onnx(random_subnetwork(by_hand, ensemble=True), tmp_path / "network.onnx")
    assert about["stitches"]


@pytest.mark.parametrize("name", ["residual", "ensemble"])
def test_references_are_exported(pair, name, tmp_path):
    about = check_program(pair.subnetwork(pair.references[name]), tmp_path / "network.pt2")
    assert about["stitches"] == []
    assert [network["name"] for network in about["networks"]] == (
        ["residual"] if name == "residual" else ["residual", "gated"]
    )


class Segmenter(nn.Module):
    """A backbone, a head, and its scores resized to the image, as torchvision's are; gives a dict."""

    def __init__(self, width=4):
        super().__init__()
        self.one, self.two = nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.norm, self.head = nn.BatchNorm2d(2 * width), nn.Conv2d(2 * width, 5, 1)

    def forward(self, x):
        scores = self.head(F.relu(self.norm(self.two(F.relu(self.one(x))))))
        return {"out": F.interpolate(scores, size=x.shape[-2:], mode="bilinear", align_corners=False)}


@pytest.fixture(scope="module")
def segmenters():
    return Supernet.build([imported(Segmenter, "one"), imported(lambda: Segmenter(6), "two", seed=1)])


def test_outputs_per_pixel_are_exported(segmenters, check, suffix, tmp_path):
    about = check(random_subnetwork(segmenters, ensemble=True), tmp_path / f"network.{suffix}")
    assert about["output"] == {"shape": [5, 8, 8], "dtype": "float32"}


@pytest.mark.slow
def test_timm_models_of_convolutions_and_of_tokens_are_exported(tmp_path):
    example = torch.rand(1, 3, 64, 64)
    models = {"resnet": timm.create_model("test_resnet"), "vit": timm.create_model("test_vit", img_size=64)}
    resnet, vit = (Network.from_module(module, example, name=name, normalize="timm") for name, module in models.items())
    links = [Link(vit.tap("blocks.1"), resnet.tap("layer3")), Link(resnet.tap("layer2"), vit.tap("blocks.0"))]
    supernet = Supernet([resnet, vit], links)
    about = check_program(supernet.subnetwork([1, 1, 0, 1]), tmp_path / "network.pt2")
    assert len(about["stitches"]) == 2
    assert about["input"]["values"] == "images in [0, 1], normalised in the graph"


@pytest.mark.slow
@pytest.mark.parametrize(
    "names", ["test_efficientnet test_convnext", "test_vit test_vit2", "swin_tiny_patch4_window7_224 resnet18"]
)
def test_larger_timm_models_are_exported(names, check, suffix, tmp_path):
    size = 160 if names.startswith("test") else 224
    models = [seeded(lambda name=name: timm.create_model(name)) for name in names.split()]
    supernet = Supernet.build(models, torch.rand(1, 3, size, size), normalize="timm", resize=True)
    check(random_subnetwork(supernet, ensemble=True), tmp_path / f"network.{suffix}")


def test_a_supernet_from_a_file_exports_the_same_file(pair, tmp_path):
    pair.save(tmp_path / "supernet")
    x = random_subnetwork(pair).x
    for name, supernet in (("a", pair), ("b", Supernet.load(tmp_path / "supernet"))):
        supernet.subnetwork(x).export(tmp_path / f"{name}.pt2")
    assert (tmp_path / "a.pt2").read_bytes() == (tmp_path / "b.pt2").read_bytes()


def test_one_subnetwork_is_one_file_without_a_word(pair, exported, suffix, tmp_path, capfd):
    random_subnetwork(pair).export(tmp_path / f"another_name.{suffix}")
    assert capfd.readouterr() == ("", "")
    content, _ = exported
    assert (tmp_path / f"another_name.{suffix}").read_bytes() == content
    for folder in (os.getcwd(), os.path.dirname(torch.__file__)):
        assert folder.encode() not in content


def test_retrained_stitches_are_what_is_exported(pair, tmp_path):
    subnetwork, images = random_subnetwork(pair), batch(32)
    before = check_program(subnetwork, tmp_path / "before.pt2")
    subnetwork.retrain(images, samples=64, progress=False)
    after = check_program(subnetwork, tmp_path / "after.pt2")
    outputs = [torch.export.load(tmp_path / f"{name}.pt2").module()(images) for name in ("before", "after")]
    assert not torch.allclose(*outputs)
    assert (before["retrained"], after["retrained"]) == (False, True)


PLAIN = """
    import sys

    class Refuse:
        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] in ("pymoo_stitch", "timm", "torchvision", "pymoo"):
                raise ImportError(name)

    sys.meta_path.insert(0, Refuse())
    import torch

    about = {"network.json": ""}
    module = torch.export.load(sys.argv[1], extra_files=about).module()
    for images, expected in torch.load(sys.argv[2]):
        outputs = module(images)
        assert torch.equal(outputs, expected) and not outputs.requires_grad
    print(about["network.json"])
"""


@pytest.mark.slow
def test_a_program_runs_where_there_is_torch_alone(pair, tmp_path):
    subnetwork = random_subnetwork(pair)
    about = subnetwork.export(tmp_path / "network.pt2", classes=CLASSES)
    with torch.no_grad():
        torch.save([(batch(n), subnetwork.module()(batch(n))) for n in (1, 7)], tmp_path / "expected.pt")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    found = subprocess.run(
        [
            sys.executable,
            "-X",
            "utf8",
            "-c",
            textwrap.dedent(PLAIN),
            tmp_path / "network.pt2",
            tmp_path / "expected.pt",
        ],
        env=environment | {"OMP_NUM_THREADS": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        encoding="utf8",
    )
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout) == about
    assert found.stderr == ""


def test_a_program_holds_no_pickle(pair, tmp_path):
    random_subnetwork(pair).export(tmp_path / "network.pt2")
    with zipfile.ZipFile(tmp_path / "network.pt2") as archive:
        content = {item.filename: archive.read(item) for item in archive.infolist()}
    assert content["archive/data/sample_inputs/model.pt"] == b""
    assert not any(name.endswith(".pkl") for name in content)
    for name, text in content.items():
        if name.endswith("_config.json"):
            assert not any(item["use_pickle"] for item in json.loads(text)["config"].values())


# --------------------------------------------------------------------------------------------------- what it says of it


def test_it_says_what_it_is(pair, tmp_path):
    subnetwork = random_subnetwork(pair)
    metrics = {"validation": {"accuracy": np.float64(0.75)}, "test": {"accuracy": 0.5, "cross_entropy": 2}}
    about = subnetwork.export(tmp_path / "network.pt2", classes=CLASSES, metrics=metrics)
    assert about == read_about(tmp_path / "network.pt2")
    assert about["format"] == "pymoo-stitch network 1"
    assert (about["classes"], about["metrics"]) == (CLASSES, metrics)
    assert (about["key"], about["multiply_adds"]) == (subnetwork.key, subnetwork.cost)
    again = pair.subnetwork([bit == "1" for bit in about["genotype"]])
    assert again.key == subnetwork.key
    assert about["parameters"] == sum(weight.numel() for weight in subnetwork.module().parameters())
    assert about["stitches"] == [
        {"source": f"{link.source.network}:{link.source.name}", "target": str(link.target), "kind": "linear"}
        for link in subnetwork.links
    ]
    parts = sum(network["multiply_adds"] for network in about["networks"])
    stitches = sum(step.cost for step in subnetwork.steps() if step.link)
    assert parts + stitches == subnetwork.cost
    assert about["input"] == {"shape": [3, 8, 8], "dtype": "float32", "values": "as the module takes it"}
    assert about["output"] == {"shape": [5], "dtype": "float32"}
    assert about["versions"]["torch"] == torch.__version__


def test_it_says_what_the_images_must_be(residual, gated):
    half, third = (Trained(((value,) * 3, (0.25,) * 3), None) for value in (0.5, 0.3))
    plain = replace(residual, trained=half)
    unit = Network.from_module(seeded(Gated), batch(1), name="unit", normalize=half.normalization)

    def values(*networks, of="ensemble"):
        supernet = Supernet(networks, [])
        subnetwork = supernet.subnetwork(supernet.references[of])
        return export.describe(subnetwork, subnetwork.module())["input"]

    same = values(plain, replace(gated, trained=half))
    assert (same["mean"], same["std"]) == ([0.5] * 3, [0.25] * 3)
    different = values(plain, replace(gated, trained=third))
    assert re.fullmatch("residual: images normalised with .*; gated: images normalised with .*", different["values"])
    assert "mean" not in different
    assert values(unit, plain, of="unit")["values"] == "images in [0, 1], normalised in the graph"
    assert values(unit, plain, of="residual")["mean"] == [0.5] * 3


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"classes": CLASSES[:4]}, ValueError, "4 classes are named, but the network has 5 outputs"),
        ({"classes": "abcde"}, TypeError, "classes are a list of names, but are 'abcde'"),
        ({"classes": [1, 2, 3, 4, 5]}, TypeError, "classes are a list of names"),
        ({"metrics": {"accuracy": 0.5}}, TypeError, "metrics are given for each split, .* but 'accuracy' is 0.5"),
        ({"metrics": {"test": {"accuracy": np.nan}}}, ValueError, "the accuracy on the test split is nan"),
    ],
)
def test_what_is_wrong_about_it_is_refused(pair, tmp_path, given, error, message):
    with pytest.raises(error, match=message):
        random_subnetwork(pair).export(tmp_path / "network.pt2", **given)
    assert not os.listdir(tmp_path)


# ------------------------------------------------------------------------------------------------ whole, or not at all


@pytest.mark.parametrize("name", ["network", "network.pt", "network.safetensors"])
def test_the_suffix_says_the_format(pair, name, tmp_path):
    with pytest.raises(ValueError, match=f"ends in .pt2 or .onnx, but '.*{name}' is given"):
        random_subnetwork(pair).export(tmp_path / name)
    with pytest.raises(ValueError, match=r"ends in .pt2 or .onnx"):
        read_about(tmp_path / name)


def test_folders_must_be_there_and_are_no_files(pair, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"the folder .*nowhere does not exist"):
        random_subnetwork(pair).export(tmp_path / "nowhere" / "network.pt2")
    (tmp_path / "folder.pt2").mkdir()
    with pytest.raises(IsADirectoryError, match="it is a folder"):
        random_subnetwork(pair).export(tmp_path / "folder.pt2")


@pytest.fixture
def existing(tmp_path, suffix):
    path = tmp_path / f"network.{suffix}"
    path.write_text("what was there")
    yield path
    assert path.read_text() == "what was there"
    assert os.listdir(tmp_path) == [path.name]


def test_a_full_disk_leaves_what_was_there(pair, existing):
    resource = pytest.importorskip("resource")  # not on Windows
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4_000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            pair.subnetwork(pair.references["residual"]).export(existing)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_file_that_differs_is_not_written(pair, existing, monkeypatch):
    save = torch.export.save if existing.suffix == ".pt2" else torch.onnx.export

    def wrong(program, *args, **kwargs):
        program.state_dict["residual.head.bias"].add_(1)
        return save(program, *args, **kwargs)

    monkeypatch.setattr(f"torch.{'export.save' if existing.suffix == '.pt2' else 'onnx.export'}", wrong)
    with pytest.raises(ValueError, match=r"for 1 samples .* differs from the subnetwork by up to 1, more than"):
        pair.subnetwork(pair.references["residual"]).export(existing)


def test_what_gives_nan_is_not_exported(residual, gated, existing):
    supernet = Supernet.build([residual, gated])
    subnetwork = random_subnetwork(supernet)
    for weight in subnetwork.stitches.parameters():
        weight.data.fill_(torch.nan)
    with pytest.raises(ValueError, match=r"Subnetwork\(.*\) cannot be exported: it returns NaN"):
        subnetwork.export(existing)


class Deciding(nn.Conv2d):
    def forward(self, x):
        return super().forward(x) * (2 if x.sum() > 0 else 1)


def test_stitches_that_torch_cannot_export_are_named(residual, gated, existing, monkeypatch, capfd):
    kind = Kind(lambda layout, source, target: Deciding(source, target, 1), frozenset({Layout.IMAGE}))
    monkeypatch.setitem(KINDS, "deciding", kind)
    monkeypatch.setattr(
        "pymoo_stitch.supernet.supernet.link_costs", lambda links: [0] * len(links)
    )  # counted without values
    supernet = Supernet([residual, gated], [Link(residual.tap("stem.2"), gated.tap("left"), "deciding")])
    with pytest.raises(ValueError, match=r"cannot be exported: torch.export failed with"):
        supernet.subnetwork([1, 1, 0]).export(existing)
    assert capfd.readouterr() == ("", "")  # torch would log pages


def test_a_file_that_does_not_run_is_not_written(pair, existing, monkeypatch):
    def fails(batch):
        raise RuntimeError("\x1b[96mno kernel\x1b[0m for this\n\nat step 3")

    monkeypatch.setitem(export._WRITERS, existing.suffix, lambda *_: (lambda _: fails, 0.0))
    with pytest.raises(
        ValueError, match=r"was not written: .* does not run on 1 samples: RuntimeError: no kernel for this\. The other"
    ):
        pair.subnetwork(pair.references["gated"]).export(existing)


def test_unfitted_stitches_are_warned_of(residual, gated, tmp_path):
    supernet = Supernet.build([residual, gated])
    with pytest.warns(UserWarning, match="no stitch of this supernet has been fitted"):
        random_subnetwork(supernet).export(tmp_path / "network.pt2")


@pytest.mark.parametrize("missing", ["onnx", "onnxscript", "onnxruntime"])
def test_without_onnx_the_remedy_is_named(pair, missing, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ImportError, match=r'pip install "pymoo-stitch\[onnx\]"'):
        random_subnetwork(pair).export(tmp_path / "network.onnx")
    assert not os.listdir(tmp_path)


def test_more_than_onnx_holds_is_refused(pair, tmp_path, monkeypatch):
    pytest.importorskip("onnxscript")
    monkeypatch.setattr(export, "ONNX_LIMIT", 1_000)
    with pytest.raises(ValueError, match=r"less than 2 GiB, but the weights take [\d,]+ bytes. Use .pt2"):
        random_subnetwork(pair).export(tmp_path / "network.onnx")
    assert not os.listdir(tmp_path)


# ----------------------------------------------------------------------------------------------------- reading about it


def test_damaged_files_are_refused(exported, tmp_path, suffix):
    path = tmp_path / f"network.{suffix}"
    content, _ = exported
    at = content.index(b"pymoo-stitch network 1")
    damaged = [b"", b"no network", content[: len(content) // 2], content[:at] + b"\xff" + content[at + 1 :]]
    for given in damaged:
        path.write_bytes(given)
        with pytest.raises(ValueError, match=r"network\.\w+ is not a network that pymoo-stitch exported: "):
            read_about(path)
    with pytest.raises(FileNotFoundError, match="there is no file"):
        read_about(tmp_path / f"none.{suffix}")


def archive(**members):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        for name, content in members.items():
            made.writestr(name.replace("__", "/"), content)
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (archive(archive__archive_format="pt2"), "it holds 0 files network.json"),
        (archive(**{"a__extra__network.json": "{}", "b__extra__network.json": "{}"}), "it holds 2 files network.json"),
        (archive(**{"a__extra__network.json": "{}"}), "its format is None"),
        (archive(**{"a__extra__network.json": "[1]"}), "its format is None"),
        (
            archive(**{"a__extra__network.json": '{"format": "pymoo-stitch network 9"}'}),
            "network 9', not 'pymoo-stitch",
        ),
        (archive(**{"a__extra__network.json": '{"format": NaN}'}), "it holds the number NaN"),
        (archive(**{"a__extra__network.json": "[" * 100_000}), "recursion"),
        (archive(**{"a__extra__network.json": " " * (2**24 + 1)}), "takes 16,777,217 bytes"),
    ],
)
def test_foreign_files_are_refused(content, message, tmp_path):
    (tmp_path / "network.pt2").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_about(tmp_path / "network.pt2")


def test_another_program_is_not_ours(tmp_path):
    program = torch.export.export(nn.Linear(2, 2), (torch.rand(1, 2),))
    torch.export.save(program, tmp_path / "network.pt2")
    with pytest.raises(ValueError, match=r"it holds 0 files network.json, not one"):
        read_about(tmp_path / "network.pt2")


def test_another_onnx_model_is_not_ours(tmp_path):
    onnx = pytest.importorskip("onnx")
    onnx.save(onnx.ModelProto(ir_version=10), tmp_path / "network.onnx")
    with pytest.raises(ValueError, match="its metadata holds 0 values for pymoo_stitch, not one"):
        read_about(tmp_path / "network.onnx")


def test_reading_about_it_executes_nothing(exported, tmp_path, monkeypatch, suffix):
    path = tmp_path / f"network.{suffix}"
    content, about = exported
    path.write_bytes(content)

    def forbidden(*args, **kwargs):
        raise AssertionError("the file was loaded")

    for name in ("torch.load", "torch.export.load", "pickle.loads", "pickle.load"):
        monkeypatch.setattr(name, forbidden)
    assert read_about(path) == about
