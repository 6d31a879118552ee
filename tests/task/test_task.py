"""Splits from whatever a user has, read once, in fixed batches; bad data fails at the door with its name."""

import pickle

import pytest
import torch
from conftest import IMAGE
from PIL import Image
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
)

from pymoo_stitch import StitchProblem, Task
from pymoo_stitch.network import Trained
from pymoo_stitch.task import split as task
from pymoo_stitch.task.data import image_folder


class Counted(Dataset):
    """Counts how often it is read."""

    def __init__(self, images, labels):
        self.images_read, self.pixels, self.labels = 0, images, labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        self.images_read += 1
        return self.pixels[i], int(self.labels[i])


class Mixed(Dataset):
    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


@pytest.fixture
def data():
    return torch.rand(10, *IMAGE), torch.arange(10) % 5


def all_batches(split, size):
    return [(x.clone(), y.clone()) for x, y in split.batches(size)]


@pytest.mark.parametrize("cache", [2**31, 0])
@pytest.mark.parametrize(
    "make",
    [
        lambda x, y: (x, y),
        lambda x, y: [x, y.to(torch.int16)],
        lambda x, y: (x.numpy(), y.numpy()),
        TensorDataset,
        Counted,
        lambda x, y: Subset(Counted(torch.cat([x, x]), torch.cat([y, y])), range(10)),
        lambda x, y: DataLoader(TensorDataset(x, y), batch_size=3),
        lambda x, y: DataLoader(Counted(x, y), batch_size=7),
    ],
)
def test_every_source_gives_the_same_batches(data, make, cache, monkeypatch):
    monkeypatch.setattr(task, "CACHE", cache)
    split = Task(validation=make(*data))["validation"]
    for size in (1, 3, 4, 10, 99):
        found = all_batches(split, size)
        assert [len(x) for x, _ in found] == [min(size, 10 - at) for at in range(0, 10, size)]
        assert torch.equal(torch.cat([x for x, _ in found]), data[0])
        assert torch.equal(torch.cat([y for _, y in found]), data[1])
        assert found[0][1].dtype is torch.int64


def test_a_dataset_is_read_once_per_process_and_sent_unread(data):
    source = Counted(*data)
    split = Task(validation=source)["validation"]
    all_batches(split, 3)
    all_batches(split, 4)
    assert source.images_read == 11  # the first tells how large they are
    sent = pickle.loads(pickle.dumps(split))
    assert sent._kept is None
    assert torch.equal(all_batches(sent, 10)[0][0], data[0])


def test_what_is_too_large_is_read_at_every_pass(data, monkeypatch):
    monkeypatch.setattr(task, "CACHE", 100)
    source = Counted(*data)
    split = Task(validation=source)["validation"]
    before = source.images_read
    all_batches(split, 3)
    all_batches(split, 3)
    assert source.images_read == before + 20


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (lambda x, y: (x[:0], y[:0]), "validation split is empty"),
        (lambda x, y: Counted(x[:0], y[:0]), "validation split is empty"),
        (lambda x, y: (x, y[:3]), r"validation split has images of shape \(10, 3, 8, 8\) and labels of shape \(3,\)"),
        (lambda x, y: (x.double(), y), "validation split has images of torch.float64"),
        (lambda x, y: (x, y.float()), "labels of torch.float32"),
        (lambda x, y: (x, y[:, None]), "one class per image, or one per pixel"),
        (lambda x, y: DataLoader(TensorDataset(x, y), shuffle=True), "shuffle=False"),
        (lambda x, y: DataLoader(TensorDataset(x, y), batch_size=4, drop_last=True), "drop_last=False"),
        (lambda x, y: DataLoader(TensorDataset(x, y), batch_size=None), "a batch_size"),
        (lambda x, y: DataLoader(TensorDataset(x, y), sampler=WeightedRandomSampler([1.0] * 10, 10)), "no sampler"),
        (
            lambda x, y: DataLoader(TensorDataset(x, y), batch_sampler=BatchSampler(RandomSampler(y), 4, False)),
            "in their order",
        ),
        (lambda x, y: Counted([x[0], (255 * x[1]).byte()], [0, 0]), "sample 1 .* is uint8 .*, others are float32"),
        (lambda x, y: Mixed([(x[0], 0), (x[1],)]), "sample 1 .* without labels, others are .* with a label"),
        (lambda x, y: Mixed([(x[0], y), (x[1], y[:4])]), "labels of shape"),
        (lambda x, y: Mixed([(x[0], "cat")]), "sample 0 of the validation split has a str as its label"),
        (
            lambda x, y: Counted([Image.new("RGB", (8, 8))], [0]),
            "sample 0 of the validation split is a Image.*transform",
        ),
        (
            lambda x, y: Counted([x[0], x[1, :, :4]], [0, 0]),
            r"sample 1 .* of shape \(3, 4, 8\)",
        ),
        (lambda x, y: Counted(x[:2], [0, 1, 2]), "sample 2 of the validation split cannot be read: index 2 is out of"),
    ],
)
def test_bad_data_fails_at_construction(data, source, message):
    with pytest.raises(ValueError, match=message):
        Task(validation=source(*data))


class Endless(IterableDataset):
    def __iter__(self):
        yield torch.rand(*IMAGE), 0


@pytest.mark.parametrize(
    "source",
    [3, "folder", Endless(), DataLoader(Endless()), (), [torch.rand(2, *IMAGE), [0, 1]], (torch.rand(2, *IMAGE),) * 3],
)
def test_what_is_no_data_fails_at_construction(source):
    with pytest.raises(TypeError, match="give a pair of tensors"):
        Task(validation=source)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, y: (x, y + 1), "labels from 1 to 5, but the classes are 0 to 4"),
        (lambda x, y: (x, y - 1), "labels from -1 to 3"),
        (lambda x, y: (x[:, :, :4], y), r"images of shape \(3, 4, 8\), but the networks were imported for \(3, 8, 8\)"),
        (lambda x, y: (x / 0, y), "NaN or infinite"),
        (lambda x, y: (x,), "has no labels"),
        (lambda x, y: (x, y[:, None, None].expand(10, 8, 8)), "need one label per image"),
    ],
)
@pytest.mark.parametrize("name", ["validation", "test"])
@pytest.mark.parametrize("cache", [2**31, 0])
def test_what_does_not_fit_the_networks_fails_with_the_problem(pair, data, change, message, name, cache, monkeypatch):
    monkeypatch.setattr(task, "CACHE", cache)
    metrics = "pixel_accuracy" if name == "validation" and "per image" in message else None
    given = Task(**({"validation": data, "test": data} | {name: change(*data)}), metrics=metrics)
    with pytest.raises(ValueError, match=f"the {name} split .*{message}"):
        StitchProblem(pair, given)


def test_labels_that_are_too_many_to_keep_are_checked_when_they_are_read(pair, data, monkeypatch):
    monkeypatch.setattr(task, "CACHE", 0)
    images, labels = data
    problem = StitchProblem(pair, Task(validation=Counted(images, [*labels[:9], 99])))
    with pytest.raises(ValueError, match="a sample of the validation split has labels from 99 to 99"):
        problem.references()


def test_images_that_overshoot_a_little_are_in_the_range(pair, data):
    images, labels = data
    images[0, 0, 0, 0] = 1.0001
    StitchProblem(copied(pair, normalization=HALF), Task(validation=(images, labels)))


def test_calibration_images_need_no_labels(pair, data, monkeypatch):
    monkeypatch.setattr(task, "CACHE", 0)
    (batch,) = Task(validation=data, calibration=Mixed(list(data[0])))["calibration"].batches(10)
    assert torch.equal(batch[0], data[0])
    assert batch[1] is None
    given = Task(validation=data, calibration=data[0])
    StitchProblem(pair, given)
    assert repr(given) == "Task(accuracy; calibration 10, validation 10 images)"
    with pytest.raises(ValueError, match="no 'test' split; it has 'calibration', 'validation'"):
        given["test"]


def test_calibration_images_are_read_when_they_are_used(pair, data):
    source = Counted(data[0], [*data[1][:9], 99])
    given = Task(validation=data, calibration=source)
    StitchProblem(pair, given)
    assert source.images_read == 2  # the first, for its size and for the networks
    with pytest.raises(ValueError, match="a sample of the calibration split has labels from 99 to 99"):
        all_batches(given["calibration"], 4)


def test_classes_have_names_of_which_there_are_as_many(pair, data):
    names = ["ant", "bee", "cat", "dog", "eel"]
    given = Task(validation=data, classes=names)
    StitchProblem(pair, given)
    assert given.classes == tuple(names)
    assert Task(validation=data).classes is None
    with pytest.raises(ValueError, match="the task names 4 classes, but each network has 5"):
        StitchProblem(pair, Task(validation=data, classes=names[:4]))
    for wrong in ("abcde", [0, 1, 2, 3, 4]):
        with pytest.raises(TypeError, match="classes are a list of names"):
            Task(validation=data, classes=wrong)


def test_classes_are_named_in_the_order_of_the_images(tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        Image.new("RGB", (8, 8)).save(tmp_path / name / "image.png")
    images = image_folder(tmp_path, size=8)
    assert Task(validation=images, classes=["cat", "dog"]).classes == ("cat", "dog")
    assert Task(validation=images, classes=["Katze", "Hund"]).classes == ("Katze", "Hund")
    with pytest.raises(ValueError, match="given as dog, cat, but the validation split numbers them as cat, dog"):
        Task(validation=images, classes=["dog", "cat"])


def test_a_problem_made_by_hand_has_no_origin(pair, data):
    assert StitchProblem(pair, Task(validation=data)).origin is None


def test_metrics_are_known_by_name_and_fit_the_labels(data):
    masks = data[1][:, None, None].expand(10, 8, 8)
    assert Task(validation=data).metrics == ("accuracy",)
    assert Task(validation=(data[0], masks)).metric == "pixel_accuracy"
    assert Task(validation=data, metrics=["cross_entropy", "accuracy"]).metric == "cross_entropy"
    for labels, metrics in (
        (data[1], "mean_iou"),
        (masks, "accuracy"),
        (data[1], "top1"),
        (data[1], ["accuracy", "f1"]),
    ):
        with pytest.raises(ValueError, match="there is no metric"):
            Task(validation=(data[0], labels), metrics=metrics)
    with pytest.raises(ValueError, match="at least one"):
        Task(validation=data, metrics=[])


def copied(supernet, **changes):
    from dataclasses import replace

    from pymoo_stitch import Supernet

    return Supernet([replace(network, **changes) for network in supernet.networks], supernet.links)


HALF = ((0.5,) * 3, (0.5,) * 3)


def test_images_normalised_twice_or_never_are_noticed(pair, data):
    unit = copied(pair, normalization=HALF)
    assert "images in [0, 1], normalised in the graph" in str(unit)
    with pytest.raises(ValueError, match=r"values from -.* to .*, but the networks take images in"):
        StitchProblem(unit, Task(validation=(data[0] * 2 - 1, data[1])))
    normalised = copied(pair, trained=Trained(HALF, (8, 8)))
    assert "images normalised with mean (0.5, 0.5, 0.5), std (0.5, 0.5, 0.5)" in str(normalised)
    with pytest.warns(UserWarning, match="trained on normalised images"):
        StitchProblem(normalised, Task(validation=data))
    StitchProblem(normalised, Task(validation=(data[0] * 2 - 1, data[1])))


def test_another_size_than_trained_for_is_said(pair, data):
    with pytest.warns(
        UserWarning, match="images are 8×8, but these networks were trained on other sizes: residual on 16×16, gated on"
    ):
        StitchProblem(copied(pair, normalization=HALF, trained=Trained(HALF, (16, 16))), Task(validation=data))
