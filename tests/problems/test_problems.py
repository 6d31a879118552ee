"""Ready-made problems: by name, from one's own file, with options as text, and from data as it lies on disk."""

import json
import os
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import cloudpickle
import numpy as np
import pytest
import torch
from conftest import DATA, ROOT
from PIL import Image
from pymoo_stitch.problems import PROBLEMS, get_problem, parse_options, supernets
from safetensors.torch import save_file
from torch import nn

from pymoo_stitch import StitchProblem, problems

REAL = DATA / "cifar10"


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PYMOO_STITCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


# --------------------------------------------------------------------------------------------------- names and options


def test_what_a_problem_needs_is_imported_when_it_is_looked_up():
    code = """
import sys
from pymoo_stitch.problems import PROBLEMS
assert not {"torch", "sklearn", "timm", "torchvision"} & set(sys.modules)
assert list(PROBLEMS) == ["digits", "cifar10", "imagenet-a", "imagenet-b", "voc"] and len(PROBLEMS) == 5
assert "voc" in PROBLEMS and "coco" not in PROBLEMS and "voc" in repr(PROBLEMS)
assert not {"torch", "sklearn", "timm", "torchvision"} & set(sys.modules)
assert PROBLEMS["digits"] is PROBLEMS["digits"]
assert "torch" in sys.modules and "pymoo_stitch.problems.voc" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", PROBLEMS)
def test_every_problem_says_what_it_is_and_what_its_options_are(name):
    from inspect import Parameter, signature

    function = PROBLEMS[name]
    assert re.match(r"[A-Z(].*\.\n", function.__doc__)
    parameters = signature(function).parameters
    assert all(p.kind is Parameter.KEYWORD_ONLY and problems._types(name, function, k) for k, p in parameters.items())
    assert parameters["supernet"].default is None
    assert re.findall(r":param (\w+):", function.__doc__) == list(parameters)
    assert function.__doc__.startswith(f"{problems.SUMMARIES[name]}\n")
    source = problems.source_of(name)  # what can be said without importing it
    assert [*source.options] == [*parameters]
    assert all(said for _, _, said in source.options.values())
    assert not source.takes_any


def test_options_are_read_as_their_annotations_say():
    options = parse_options("cifar10", ["images=5", "data=some=folder", "supernet=none"])
    assert options == {"images": 5, "data": Path("some=folder"), "supernet": None}
    assert parse_options("voc", ["pretrained=False", "fit=adam", "supernet=a.safetensors"]) == {
        "pretrained": False,
        "fit": "adam",
        "supernet": Path("a.safetensors"),
    }
    assert parse_options("digits", []) == {}


@pytest.mark.parametrize(
    ("name", "texts", "message"),
    [
        ("digits", ["sede=1"], "digits has no option 'sede'. The options of digits are seed, supernet."),
        ("digits", ["seed"], "given as name=value, but 'seed' is not. The options"),
        ("digits", ["=1"], "given as name=value, but '=1' is not"),
        ("digits", ["seed=one"], "the option seed of digits is a whole number, but 'one' is given."),
        ("digits", ["seed=1.5"], "a whole number, but '1.5'"),
        ("digits", ["seed=1", "seed=2"], "seed is given more than once"),
        ("voc", ["pretrained=1"], "true or false, but '1'"),
        ("cifar10", ["data="], "a path, but ''"),
        (
            "cifar",
            ["data=x"],
            "no problem 'cifar'; choose from digits, cifar10, imagenet-a, imagenet-b, voc, and your own",
        ),
    ],
)
def test_wrong_options_as_text_name_what_there_is(name, texts, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        parse_options(name, texts)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("mnist", {}, "there is no problem 'mnist'; choose from digits"),
        ("digits", {"images": 3}, "digits has no option 'images'. The options of digits are seed, supernet."),
        ("digits", {"seed": "1"}, "seed of digits is a whole number, but '1' is given"),
        ("digits", {"seed": True}, "a whole number, but True"),
        ("digits", {"seed": -1}, "the seed must be a whole number from 0 on"),
        ("digits", {"supernet": 3}, "a path or none, but 3"),
        ("cifar10", {}, "cifar10 needs the option data. The options of cifar10 are data, images"),
        ("imagenet-a", {"images": 3}, "imagenet-a needs the options imagenet and imagenetv2."),
    ],
)
def test_wrong_options_name_what_there_is(name, options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        get_problem(name, **options)


# ------------------------------------------------------------------------------------------------------ one's own file

OWN = """
from pathlib import Path

import torch
from torch.utils.data import Dataset

from pymoo_stitch import StitchProblem, Supernet, Task


class Noise(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        return torch.rand(3, 8, 8, generator=torch.Generator().manual_seed(i)), i % 4


def problem(*, images: int = 6, data: Path | None = None, rate: "float" = 0.5, tag="x"):
    supernet = Supernet.load(Path(__file__).with_name("pair.safetensors"))
    return StitchProblem(supernet, Task(validation=Noise(images)))
"""


@pytest.fixture
def own(tmp_path, pair):
    pair.save(tmp_path / "pair.safetensors")
    path = tmp_path / "my_pair.py"
    path.write_text(OWN)
    return path


def test_a_file_of_ones_own_is_a_problem(own, monkeypatch):
    monkeypatch.chdir(own.parent)
    options = parse_options("my_pair.py", ["images=5", "data=photos", "rate=1", "tag=7"])
    assert options == {"images": 5, "data": Path("photos"), "rate": 1.0, "tag": "7"}
    problem = get_problem("my_pair.py", **options)
    assert len(problem.task["validation"]) == 5
    assert problem.origin == {"name": str(own), "options": options | {"data": str(own.parent / "photos")}}
    assert json.loads(json.dumps(problem.origin)) == problem.origin
    assert get_problem(own).origin == {"name": str(own), "options": {}}


@pytest.mark.slow
def test_what_a_file_defines_travels_to_processes_that_cannot_import_it(own, tmp_path):
    problem = get_problem(own)
    (tmp_path / "sent").write_bytes(cloudpickle.dumps(problem))
    own.unlink()
    code = (
        "import pickle, sys; p = pickle.load(open(sys.argv[1], 'rb')); print(p.references().get('accuracy').tolist())"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "sent"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == problem.references().get("accuracy").tolist()


def test_a_changed_file_is_imported_anew(own):
    assert len(get_problem(own).task["validation"]) == 6
    own.write_text(OWN.replace("images: int = 6", "images: int = 7"))
    assert len(get_problem(own).task["validation"]) == 7


@pytest.mark.parametrize(
    ("code", "options", "error", "message"),
    [
        ("x = 1", {}, ValueError, r"my_pair\.py defines no function problem"),
        ("problem = 1", {}, ValueError, "defines no function problem"),
        ("def problem(:", {}, ValueError, r"my_pair\.py cannot be imported: SyntaxError"),
        ("import not_there", {}, ValueError, "cannot be imported: ModuleNotFoundError: No module named 'not_there'"),
        ("def problem(): return 3", {}, TypeError, "must return a StitchProblem, but returned int"),
        ("def problem(a): return 3", {}, ValueError, "needs the option a"),
        ("def problem(a: list): return 3", {"a": []}, ValueError, "annotates the option a with <class 'list'>"),
        ("def problem(a: 'lst'): return 3", {"a": 1}, ValueError, "the annotation 'lst' of the option a .* is wrong"),
        ("def problem(a=1): return 3", {"a": []}, ValueError, r"the option a .*, but \[\] is given"),
        ("def problem(): return 3", {"b": 1}, ValueError, r"no option 'b'. .*my_pair.py has no options"),
        ("def problem(**more): return 3", {"b": 1}, TypeError, "but returned int"),
    ],
)
def test_a_file_that_is_no_problem_is_named(tmp_path, code, options, error, message):
    (tmp_path / "my_pair.py").write_text(code)
    with pytest.raises(error, match=message):
        get_problem(tmp_path / "my_pair.py", **options)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no file .*nowhere\.py to take a problem from"):
        get_problem(tmp_path / "nowhere.py")


# -------------------------------------------------------------------------------------------------------------- digits


def test_digits(digits):
    assert digits.origin == {"name": "digits", "options": {}}
    assert digits.task.classes == tuple("0123456789")
    assert 30 <= digits.n_var <= 80
    sizes = {name: len(split) for name, split in digits.task.splits.items()}
    assert sizes == {"calibration": 1_988, "validation": 1_200, "selection": 2_000, "test": 4_000}
    for split in ("validation", "selection"):
        (cheap, worst), (dear, _), (ensemble, best) = digits.references(split).get("F")
        assert cheap < dear < ensemble
        assert worst > best + 2 * np.sqrt(0.1 / sizes[split])
    # Training rounds differently on other processors, so how far apart the networks are is judged on all images
    # together.
    weights = np.array([sizes["validation"], sizes["selection"]])
    worst, middle, best = (
        weights @ [digits.references(s).get("F")[:, 1] for s in ("validation", "selection")] / weights.sum()
    )
    error = np.sqrt(0.1 / weights.sum())  # of a difference between networks that disagree on a tenth of the images
    assert 0.2 > worst > middle + 2 * error
    assert worst > best + 3 * error


def test_splits_of_digits_are_copies_of_different_digits(digits):
    from pymoo_stitch.problems import digits as module

    seen = set()
    for name, split in digits.task.splits.items():
        images, labels = module.digits_of(name)
        assert np.abs(np.bincount(labels) / len(labels) - 0.1).max() < 0.01
        seen |= {image.numpy().tobytes() for image in images}
        ((copies, copied_labels),) = split.batches(4_000)
        assert torch.equal(copied_labels.view(-1, len(labels)), labels.expand(len(copies) // len(labels), -1))
        blurred = torch.nn.functional.avg_pool2d(copies.view(-1, len(images), 8, 8).mean(0), 3, 1)
        original = torch.nn.functional.avg_pool2d(images[:, 0], 3, 1)
        assert np.corrcoef(blurred.flatten(), original.flatten())[0, 1] > 0.8
        assert len({image.numpy().tobytes() for image in copies}) == len(copies)
    assert len(seen) == 1_797


def test_digits_are_made_once(digits, cache, monkeypatch):
    from pymoo_stitch.problems import digits as module

    monkeypatch.setattr(module, "make_supernet", lambda *_: pytest.fail("it is trained again"))
    again = get_problem("digits")
    assert again.space.digest() == digits.space.digest()
    assert again.identity() == digits.identity()


def test_training_is_deterministic_and_leaves_no_trace(monkeypatch):
    from pymoo_stitch.problems import digits as module

    monkeypatch.setattr(module, "EPOCHS", 1)
    data = module.digits_of("calibration")
    torch.manual_seed(5)
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    first = supernets.digest_weights(*module.train(*data, 0).values())
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == threads
    torch.rand(3)
    assert supernets.digest_weights(*module.train(*data, 0).values()) == first
    assert supernets.digest_weights(*module.train(*data, 1).values()) != first


@pytest.mark.slow
def test_stitched_networks_for_digits_lie_between_and_beyond_the_networks(digits):
    from pymoo.indicators.hv import HV
    from pymoo.optimize import minimize

    from pymoo_stitch.algorithms import AsyncNSGA2

    front = minimize(digits, AsyncNSGA2(), ("n_evals", 300), seed=1).F
    hypervolume = HV(ref_point=np.ones(2))
    alone, found = (hypervolume(digits.normalize(F)) for F in (digits.references().get("F"), front))
    assert found > alone


# ----------------------------------------------------------------------------------------------------------- the cache


def test_where_supernets_are_kept(monkeypatch):
    monkeypatch.delenv("PYMOO_STITCH_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/somewhere")
    assert supernets.cache_folder() == Path("/somewhere/.cache/pymoo-stitch")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert supernets.cache_folder() == Path("/xdg/pymoo-stitch")
    monkeypatch.setenv("PYMOO_STITCH_CACHE", "~/own")
    assert supernets.cache_folder() == Path("/somewhere/own")


def test_a_supernet_is_kept_by_what_it_depends_on(pair, empty_cache):
    made = []

    def make():
        made.append(1)
        return pair

    first = supernets.cached("some", {"seed": 0}, make)
    again = supernets.cached("some", {"seed": 0}, make)
    assert first.digest() == again.digest()
    assert len(made) == 1
    supernets.cached("some", {"seed": 1}, make)
    supernets.cached("other", {"seed": 0}, make)
    assert len(made) == 3
    assert sorted(path.name.rpartition("-")[0] for path in empty_cache.iterdir()) == ["other", "some", "some"]


@pytest.mark.parametrize("damage", [lambda b: b"", lambda b: b[: len(b) // 2], lambda b: b[:-8] + b"damaged!"])
def test_a_damaged_supernet_is_made_anew(pair, empty_cache, damage):
    supernets.cached("some", {}, lambda: pair)
    (file,) = empty_cache.iterdir()
    file.write_bytes(damage(file.read_bytes()))
    with pytest.warns(UserWarning, match=r"the cached supernet is made again: .*some-.*cannot|not a supernet"):
        assert supernets.cached("some", {}, lambda: pair) is pair
    assert supernets.cached("some", {}, lambda: pytest.fail("it was not repaired")).digest() == pair.digest()


def test_a_cache_that_cannot_be_written_is_no_end(pair, empty_cache):
    empty_cache.write_text("a file where the folder should be")
    with pytest.warns(UserWarning, match="the supernet cannot be cached: .*PYMOO_STITCH_CACHE"):
        assert supernets.cached("some", {}, lambda: pair) is pair


def test_a_given_supernet_is_used_and_must_fit(digits, pair, tmp_path):
    digits.space.save(tmp_path / "digits.safetensors")
    problem = get_problem("digits", supernet=str(tmp_path / "digits.safetensors"))
    assert problem.space.digest() == digits.space.digest()
    assert problem.origin["options"] == {"supernet": str(tmp_path / "digits.safetensors")}
    pair.save(tmp_path / "pair.safetensors")
    message = "the networks residual and gated, but this problem's has the networks inverted and residual"
    with pytest.raises(ValueError, match=message):
        get_problem("digits", supernet=tmp_path / "pair.safetensors")
    with pytest.raises(FileNotFoundError, match=r"no file .*nowhere"):
        get_problem("digits", supernet=tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"images of 3×8×8, but this problem's has images of 3×9×9"):
        supernets.given(tmp_path / "pair.safetensors", ["residual", "gated"], (3, 9, 9), 5)
    with pytest.raises(ValueError, match=r"5 classes, but this problem's has 6 classes"):
        supernets.given(tmp_path / "pair.safetensors", ["residual", "gated"], (3, 8, 8), 6)


# ------------------------------------------------------------------------------------------------------------- CIFAR-10


@pytest.fixture
def cifar(tmp_path, cache, monkeypatch):
    """A folder like the real one, with shallow random networks and a few random images."""
    from pymoo_stitch.problems import cifar10 as module

    monkeypatch.setattr(module, "NETWORKS", {"resnet20": 1, "resnet56": 1})
    folder = tmp_path / "cifar"
    folder.mkdir()
    with torch.random.fork_rng():
        for seed, name in enumerate(module.NETWORKS):
            torch.manual_seed(seed)
            weights = {k: v.half() for k, v in module._ResNet(1).state_dict().items() if "tracked" not in k}
            save_file(weights, folder / f"{name}.safetensors")
    rng = np.random.default_rng(0)
    arrays = {}
    for split, count in (("train", 40), ("validation", 12), ("selection", 7), ("test", 9)):
        arrays[f"x_{split}"] = rng.integers(0, 256, (count, 3, 32, 32), dtype=np.uint8)
        arrays[f"y_{split}"] = rng.integers(0, 10, count, dtype=np.uint8)
    np.savez(folder / "images.npz", **arrays)
    return folder


SMALL = {"images": 10, "selection_images": 6, "test_images": 8, "samples": 30}


def test_cifar10_from_an_archive(cifar):
    problem = get_problem("cifar10", data=str(cifar), **SMALL)
    assert problem.origin == {"name": "cifar10", "options": {"data": str(cifar), **SMALL}}
    assert problem.task.classes[0] == "airplane"
    assert problem.space.is_fitted
    assert [network.name for network in problem.space.networks] == ["resnet20", "resnet56"]
    with np.load(cifar / "images.npz") as arrays:
        for name, count in {"calibration": 30, "validation": 10, "selection": 6, "test": 8}.items():
            split = "train" if name == "calibration" else name
            ((images, labels),) = problem.task[name].batches(99)
            assert np.array_equal(images, arrays[f"x_{split}"][:count])
            assert np.array_equal(labels, arrays[f"y_{split}"][:count])


def test_cifar10_from_the_binary_version(cifar):
    with np.load(cifar / "images.npz") as arrays:
        x, y = arrays["x_train"], arrays["y_train"]
    rows = np.concatenate([y[:, None], x.reshape(len(x), -1)], axis=1)
    (cifar / "images.npz").unlink()
    folder = cifar / "cifar-10-batches-bin"
    folder.mkdir()
    rows.tofile(folder / "data_batch_1.bin")
    with pytest.raises(FileNotFoundError, match=r"no test_batch.bin in .*cifar-10-batches-bin.*kriz/cifar"):
        get_problem("cifar10", data=cifar, **SMALL)
    rows[::-1].tofile(folder / "test_batch.bin")
    task = get_problem("cifar10", data=cifar, **SMALL).task
    parts = [next(task[split].batches(99)) for split in ("validation", "selection", "test")]
    assert [len(labels) for _, labels in parts] == [10, 6, 8]
    images, labels = (np.concatenate(each) for each in zip(*parts, strict=True))
    assert np.array_equal(images, x[::-1][:24])  # so they are disjoint
    assert np.array_equal(labels, y[::-1][:24])
    (folder / "test_batch.bin").write_bytes(rows.tobytes()[:-5])
    with pytest.raises(ValueError, match=r"test_batch.bin has .* bytes, which is not a multiple of 3,073"):
        get_problem("cifar10", data=cifar, **SMALL)


def archive(path, **changes):
    with np.load(path) as arrays:
        arrays = dict(arrays)
    np.savez(path, **{k: v for k, v in (arrays | changes).items() if v is not None})


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda f: shutil.rmtree(f), FileNotFoundError, "there is no folder .*cifar to read the networks"),
        (lambda f: (f / "resnet56.safetensors").unlink(), FileNotFoundError, r"no resnet56.safetensors in .*akamaster"),
        (lambda f: (f / "images.npz").unlink(), FileNotFoundError, r"neither images.npz nor cifar-10-batches-bin"),
        (
            lambda f: (f / "images.npz").rename(f / "x") and (f / "cifar-10-batches-py").mkdir(),
            FileNotFoundError,
            "cifar-10-batches-py is not read: its files are pickles.*cifar-10-binary.tar.gz",
        ),
        (lambda f: (f / "images.npz").write_bytes((f / "images.npz").read_bytes()[:900]), ValueError, "cannot be read"),
        (lambda f: archive(f / "images.npz", x_test=None), ValueError, "must hold x_test and y_test"),
        (lambda f: archive(f / "images.npz", x_test=np.array([{}])), ValueError, "allow_pickle=False"),
        (
            lambda f: archive(f / "images.npz", x_test=np.zeros((9, 32, 32, 3), "u1")),
            ValueError,
            "not uint8 of n×3×32×32",
        ),
        (lambda f: archive(f / "images.npz", y_test=np.zeros(3, "u1")), ValueError, "for each of 9 images"),
        (lambda f: archive(f / "images.npz", y_test=np.full(9, 10)), ValueError, "labels from 10 to 10"),
        (lambda f: (f / "resnet20.safetensors").write_bytes(b"x"), ValueError, "does not hold the weights of resnet20"),
        (
            lambda f: save_file({"linear.weight": torch.zeros(10, 64)}, f / "resnet20.safetensors"),
            ValueError,
            "does not hold the weights of resnet20: .*Missing key",
        ),
    ],
)
def test_what_is_wrong_with_a_folder_is_said(cifar, change, error, message):
    change(cifar)
    with pytest.raises(error, match=f"(?s){message}"):
        get_problem("cifar10", data=cifar, **SMALL)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"images": 13}, "images is 13, but .* has 12 validation images"),
        ({"samples": 0}, "samples must be a number of images, at least 1, but is 0"),
        ({"selection_images": 8}, "selection_images is 8, but .* has 7 selection images"),
        ({"test_images": 10}, "test_images is 10, but .* has 9 test images"),
    ],
)
def test_more_images_than_there_are(cifar, options, message):
    with pytest.raises(ValueError, match=message):
        get_problem("cifar10", data=cifar, **SMALL | options)


@pytest.mark.slow
def test_the_real_cifar10_pair(empty_cache):
    if not REAL.is_dir():
        pytest.skip(f"there are no trained networks in {REAL}")
    problem = get_problem("cifar10", data=REAL)
    for split in ("validation", "test"):
        small, large, ensemble = problem.references(split).get("accuracy")
        assert 0.9 < small < large < ensemble
    assert get_problem("cifar10", data=REAL).identity() == problem.identity()


# ------------------------------------------------------------------------------------------------------------- ImageNet


def picture(path, seed, size=(40, 36)):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)


@pytest.fixture
def imagenet(tmp_path, cache, monkeypatch):
    """ImageNet, its bounding boxes and ImageNetV2 in small: three classes, and two small networks in place of the
    pair."""
    from pymoo_stitch.problems import imagenet as module

    monkeypatch.setitem(module.PAIRS, "imagenet-b", ("test_resnet", "test_efficientnet"))
    wnids = ["n01440764", "n01443537", "n15075141"]
    for c, wnid in enumerate(wnids):
        for i in range(6):
            picture(tmp_path / "imagenet" / "train" / wnid / f"{wnid}_{i}.JPEG", 10 * c + i)
            if i != 2:
                xml = tmp_path / "boxes" / wnid / f"{wnid}_{i}.xml"
                xml.parent.mkdir(parents=True, exist_ok=True)
                xml.write_text("<annotation><object/></annotation>")
        picture(tmp_path / "imagenet" / "val" / wnid / f"ILSVRC2012_val_{c}.JPEG", 100 + c)
    (tmp_path / "boxes" / wnids[0] / "n01440764_77.xml").write_text("")  # of an image that is not there
    v2 = tmp_path / "v2"
    for v, variant in enumerate(("matched-frequency", "threshold0.7", "top-images")):
        for c in (0, 1, 999):
            for i in range(2):
                name = f"{'ba'[i]}{v}.jpeg"
                picture(v2 / f"imagenetv2-{variant}-format-val" / str(c) / name, 1_000 + c * 10 + i + (v if i else 0))
    return {"imagenet": tmp_path / "imagenet", "annotations": tmp_path / "boxes", "imagenetv2": v2}


TINY = {"images": 4, "samples": 12, "size": 32, "pretrained": False}


@pytest.mark.slow
def test_imagenet(imagenet):
    problem = get_problem("imagenet-b", **imagenet, **TINY)
    sizes = {name: len(split) for name, split in problem.task.splits.items()}
    assert sizes == {"calibration": 12, "validation": 4, "selection": 8, "test": 3}
    images = [path for name in ("validation", "selection") for path, _ in problem.task[name].source.samples]
    assert len(set(images)) == 12
    assert [network.name for network in problem.space.networks] == ["test_resnet", "test_efficientnet"]
    assert problem.task.metrics == ("accuracy",)
    assert len(problem.task.classes) == 1_000
    assert problem.task.classes[0].startswith("tench")
    assert problem.identity()["batch_size"] == 32
    assert all(network.takes_unit_images for network in problem.space.networks)
    again = get_problem("imagenet-b", **imagenet, **TINY)
    assert again.identity() == problem.identity()
    problem.references("test")


def test_images_with_boxes_are_chosen_at_random_but_always_the_same(imagenet):
    from pymoo_stitch.problems.imagenet import _with_boxes

    train, boxes = imagenet["imagenet"] / "train", imagenet["annotations"]
    everything = _with_boxes(train, boxes, 15, 0)
    assert len({path for path, _ in everything}) == 15
    assert not any(path.endswith("_2.JPEG") for path, _ in everything)
    assert {label for _, label in everything} == {0, 1, 999}
    assert _with_boxes(train, boxes, 5, 0) == everything[:5]
    assert _with_boxes(train, boxes, 15, 1) != everything
    with pytest.raises(
        ValueError, match=r"holds 15 images that have an xml file in .*, and 16 are needed. Give samples=15"
    ):
        _with_boxes(train, boxes, 16, 0)


def test_the_first_unique_images_of_imagenet_v2(imagenet):
    from pymoo_stitch.problems.imagenet import _first_of_v2

    found = _first_of_v2(imagenet["imagenetv2"], 12, 0)
    short = [(Path(path).parents[1].name.split("-")[1], Path(path).name, label) for path, label in found]
    first = [("matched", "a0.jpeg", 0), ("matched", "a0.jpeg", 1), ("matched", "a0.jpeg", 999)]
    first += [("matched", "b0.jpeg", 0), ("matched", "b0.jpeg", 1), ("matched", "b0.jpeg", 999)]
    assert short[:6] == first
    assert [variant for variant, *_ in short[6:]] == ["threshold0.7"] * 3 + ["top"] * 3  # "b" is in all variants
    with pytest.raises(ValueError, match="has 12 different images, but images is 13"):
        _first_of_v2(imagenet["imagenetv2"], 13, 0)
    shutil.rmtree(imagenet["imagenetv2"] / "imagenetv2-threshold0.7-format-val")
    assert _first_of_v2(imagenet["imagenetv2"], 4, 5) == found[:6]  # as many as there are
    with pytest.raises(FileNotFoundError, match=r"no folder .*imagenetv2-threshold0.7-format-val .*modestyachts"):
        _first_of_v2(imagenet["imagenetv2"], 7, 0)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"annotations": None}, ValueError, "needs the option annotations .*image-net.org"),
        ({"annotations": "nowhere"}, FileNotFoundError, "no folder nowhere to find bounding boxes in.*image-net.org"),
        ({"annotations": "empty"}, FileNotFoundError, "no xml file in .*empty"),
        ({"imagenetv2": "nowhere"}, FileNotFoundError, "no folder nowhere to read ImageNetV2 from.*modestyachts"),
        ({"imagenetv2": "empty"}, FileNotFoundError, "imagenetv2-matched-frequency-format-val"),
        ({"fit": "sgd"}, ValueError, "by least-squares or adam, but fit is 'sgd'"),
        ({"images": 0}, ValueError, "images must be at least 1, but is 0"),
    ],
)
def test_what_imagenet_misses_is_said(imagenet, change, error, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(error, match=message):
        get_problem("imagenet-b", **imagenet | TINY | change)


def test_imagenet_without_a_train_set(imagenet):
    shutil.rmtree(imagenet["imagenet"] / "train")
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*train. Download ILSVRC2012_img_train.tar"):
        get_problem("imagenet-b", **imagenet, **TINY)


def test_imagenet_without_a_test_set_says_so_and_goes_on(imagenet, tmp_path):
    get_problem("imagenet-b", **imagenet, **TINY).space.save(tmp_path / "pair.safetensors")
    (imagenet["imagenet"] / "val").rename(tmp_path / "away")
    with pytest.warns(UserWarning, match=r"there is no test split, for there is no folder .*val. Download"):
        problem = get_problem(
            "imagenet-b", **imagenet | {"annotations": None}, **TINY, supernet=tmp_path / "pair.safetensors"
        )
    assert list(problem.task.splits) == ["validation", "selection"]
    picture(imagenet["imagenet"] / "val" / "ILSVRC2012_val_00000001.JPEG", 0)
    with pytest.raises(FileNotFoundError, match="val must hold a folder for each class"):
        get_problem("imagenet-b", **imagenet, **TINY)


def test_weights_that_cannot_be_loaded_say_how_to_get_them(imagenet, monkeypatch):
    import timm

    def offline(name, pretrained):
        raise ConnectionError("no route to host")

    monkeypatch.setattr(timm, "create_model", offline)
    with pytest.raises(OSError, match=r"weights of test_resnet: no route to host. .*huggingface.co/timm.*HF_HOME"):
        get_problem("imagenet-b", **imagenet, **TINY | {"pretrained": True})


@pytest.mark.slow
@pytest.mark.parametrize(("name", "matches"), [("imagenet-a", 227), ("imagenet-b", 174)])
def test_the_pairs_of_the_paper(imagenet, name, matches, monkeypatch, empty_cache):
    from pymoo_stitch.problems import imagenet as module

    monkeypatch.setitem(module.PAIRS, "imagenet-b", ("resnet50", "resnext50_32x4d"))
    problem = get_problem(name, **imagenet, **TINY | {"size": 224})
    assert problem.space.n_matches == matches
    problem.references()
    shutil.rmtree(empty_cache)  # it is large


# ------------------------------------------------------------------------------------------------------------------ VOC


class Segmenter(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, width, 3, 2, 1), nn.ReLU(), nn.Conv2d(width, width, 3, 1, 1), nn.ReLU())
        self.head, self.aux = nn.Conv2d(width, classes, 1), nn.Conv2d(width, classes, 1)

    def forward(self, x):
        features = self.body(x)
        out, aux = (
            nn.functional.interpolate(h(features), x.shape[-2:], mode="bilinear") for h in (self.head, self.aux)
        )
        return {"out": out, "aux": aux}


@pytest.fixture
def devkit(tmp_path, cache, monkeypatch):
    """PASCAL VOC in small, and two small networks in place of the pair."""
    from pymoo_stitch.problems import voc as module

    def make(width):
        return lambda weights, weights_backbone, num_classes, aux_loss: Segmenter(width, num_classes)

    networks = {name: (make(4 + 2 * i), None) for i, name in enumerate(module.NETWORKS)}
    monkeypatch.setattr(module, "NETWORKS", networks)
    for year, sets in (("2012", {"train": 9, "val": 5}), ("2007", {"test": 3})):
        root = tmp_path / "VOCdevkit" / f"VOC{year}"
        for folder in ("SegmentationClass", "ImageSets/Segmentation"):
            (root / folder).mkdir(parents=True)
        for name, count in sets.items():
            names = [f"{name}{i}" for i in range(count)]
            (root / "ImageSets" / "Segmentation" / f"{name}.txt").write_text("\n".join(names))
            for i, image in enumerate(names):
                picture(root / "JPEGImages" / f"{image}.jpg", i)
                mask = np.full((36, 40), i, np.uint8)
                mask[:4] = 255
                Image.fromarray(mask).save(root / "SegmentationClass" / f"{image}.png")
    return tmp_path


TINY_VOC = {"images": 4, "samples": 8, "size": 32, "pretrained": False}


@pytest.mark.parametrize("fit", ["least-squares", "adam"])
def test_voc(devkit, fit):
    problem = get_problem("voc", voc=devkit, fit=fit, **TINY_VOC)
    sizes = {name: len(split) for name, split in problem.task.splits.items()}
    assert sizes == {"calibration": 8, "validation": 4, "selection": 1, "test": 3}
    assert problem.task.metric == "pixel_accuracy"
    assert len(problem.task.classes) == 21
    assert problem.identity()["batch_size"] == 4
    ((_, masks),) = problem.task["validation"].batches(9)
    assert [mask[20, 20].item() for mask in masks] == [0, 1, 2, 3]
    assert get_problem("voc", voc=devkit, fit=fit, **TINY_VOC).identity() == problem.identity()
    problem.references("test")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"voc": "nowhere"},
            ValueError,
            "no segmentation set 'val' of VOC 2012 in nowhere.*host.robots.ox.ac.uk/pascal/VOC/voc2012",
        ),
        ({"images": 6}, ValueError, "images is 6, but val of VOC 2012 has 5 images"),
        ({"samples": 10}, ValueError, "samples is 10, but train of VOC 2012 has 9 images"),
        ({"fit": "finetune"}, ValueError, "fit is 'finetune'"),
    ],
)
def test_what_voc_misses_is_said(devkit, options, error, message):
    with pytest.raises(error, match=message):
        get_problem("voc", **{"voc": devkit} | TINY_VOC | options)


def test_voc_without_2007_says_so_and_goes_on(devkit):
    shutil.rmtree(devkit / "VOCdevkit" / "VOC2007")
    with pytest.warns(UserWarning, match=r"no test split, for there is no folder .*VOC2007. Download .*voc2007"):
        assert "test" not in get_problem("voc", voc=devkit, **TINY_VOC).task.splits
    shutil.rmtree(devkit / "VOCdevkit" / "VOC2012")
    with pytest.raises(ValueError, match=r"no segmentation set 'val' of VOC 2012 .*voc2012"):
        get_problem("voc", voc=devkit, **TINY_VOC)


def test_weights_of_torchvision_that_cannot_be_loaded(devkit, monkeypatch):
    from pymoo_stitch.problems import voc as module

    def offline(weights, progress):
        raise ConnectionError("no route to host")

    class Weights:
        url = "https://download.pytorch.org/models/some.pth"

    monkeypatch.setattr(module, "NETWORKS", dict.fromkeys(module.NETWORKS, (offline, Weights)))
    with pytest.raises(OSError, match=r"no route to host. Download https://.*some.pth .*checkpoints"):
        get_problem("voc", voc=devkit, **TINY_VOC | {"pretrained": True})


@pytest.mark.slow
def test_the_voc_pair_of_the_paper(devkit, empty_cache, monkeypatch):
    from pymoo_stitch.problems import voc as module
    from torchvision.models import segmentation

    monkeypatch.setattr(module, "NETWORKS", {name: (getattr(segmentation, name), None) for name in module.NETWORKS})
    problem = get_problem("voc", voc=devkit, **TINY_VOC | {"size": 520, "images": 2})
    assert problem.space.n_matches == 53  # in what reaches the output, as test_matching has it
    shutil.rmtree(empty_cache)  # it is large


# ----------------------------------------------------------------------------------------------------------------- docs


@pytest.mark.slow
def test_the_code_of_own_pair_runs(tmp_path):
    blocks = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs" / "own-pair.md").read_text().replace("160", "64"), re.DOTALL
    )
    (own,) = [block for block in blocks if block.startswith('"""my_pair.py')]
    (script,) = [block for block in blocks if block is not own]
    for c, name in enumerate(("cat", "dog")):
        for split in ("train", "validation", "selection", "test"):
            for i in range(8):
                picture(tmp_path / "photos" / split / name / f"{i}.jpg", 100 * c + i, (64, 64))
    (tmp_path / "my_pair.py").write_text(own)
    (tmp_path / "script.py").write_text(script)
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problem = get_problem(tmp_path / "my_pair.py", data=tmp_path / "photos")
    assert isinstance(problem, StitchProblem)
    assert problem.task.classes == ("cat", "dog")
