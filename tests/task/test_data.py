"""Folders of images, of ImageNetV2 and of VOC, as they lie on disk."""

import numpy as np
import pytest
import torch
from PIL import Image

from pymoo_stitch import Task
from pymoo_stitch.task.data import image_files, image_folder, voc

HALF = ((0.5,) * 3, (0.5,) * 3)


def picture(path, size=(40, 30), mode="RGB", seed=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(pixels).convert(mode).save(path)


def folders(root, names, **options):
    for number, name in enumerate(names):
        picture(root / name / "a.png", seed=number, **options)
    return root


@pytest.mark.parametrize(
    ("names", "labels"),
    [
        (["10", "2", "0", "999"], [0, 10, 2, 999]),  # ImageNetV2: by number, whatever their order by name
        (["n01440764", "n15075141", "n01443537"], [0, 1, 999]),  # some of ImageNet's
        (["dog", "cat"], [0, 1]),
        (["n00000001", "n01440764"], [0, 1]),  # not ImageNet's
    ],
)
def test_classes_of_folders(tmp_path, names, labels):
    assert [label for _, label in image_folder(folders(tmp_path, names), size=16).samples] == labels


def test_images_are_resized_cropped_and_read_as_bytes(tmp_path):
    folders(tmp_path / "rgb", ["a", "b"])
    folders(tmp_path / "grey", ["a"], mode="L")
    (images, labels), *others = Task(validation=image_folder(tmp_path / "rgb", size=16))["validation"].batches(9)
    assert not others
    assert (images.dtype, tuple(images.shape), labels.tolist()) == (torch.uint8, (2, 3, 16, 16), [0, 1])
    ((grey, _),) = Task(validation=image_folder(tmp_path / "grey", size=(16, 8)))["validation"].batches(9)
    assert tuple(grey.shape) == (1, 3, 16, 8)
    ((normal, _),) = Task(validation=image_folder(tmp_path / "rgb", size=16, normalize=HALF))["validation"].batches(9)
    torch.testing.assert_close(normal, images / 255 * 2 - 1, rtol=0, atol=1e-6)


def test_files_are_read_in_the_order_given(tmp_path):
    folder = image_folder(folders(tmp_path, ["a", "b", "c"]), size=16)
    files = image_files([(path, label + 5) for path, label in reversed(folder.samples)], size=16)
    assert len(files) == 3
    for (image, label), (expected, number) in zip(files, reversed(list(folder)), strict=False):
        assert torch.equal(image, expected)
        assert label == number + 5
    (tmp_path / "b" / "a.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"sample 1 \(.*b/a.png\) of the validation split cannot be read"):
        Task(validation=files)


def test_the_crop_is_the_centre_of_the_resized_image(tmp_path):
    Image.fromarray(np.pad(np.full((28, 28, 3), 200, np.uint8), ((2, 2), (2, 2), (0, 0)))).save(tmp_path / "x.png")
    (tmp_path / "a").mkdir()
    (tmp_path / "x.png").rename(tmp_path / "a" / "x.png")
    image, _ = image_folder(tmp_path, size=28, crop=0.875)[0]
    assert (image == 200).all()


def test_an_unreadable_file_is_named(tmp_path):
    folders(tmp_path, ["a", "b"])
    (tmp_path / "b" / "a.png").write_bytes((tmp_path / "a" / "a.png").read_bytes()[:200])
    with pytest.raises(ValueError, match=r"sample 1 \(.*b/a.png\) of the validation split cannot be read"):
        Task(validation=image_folder(tmp_path, size=16))


def test_a_crop_is_a_part(tmp_path):
    with pytest.raises(ValueError, match="at most 1, but is 2"):
        image_folder(folders(tmp_path, ["a"]), crop=2)


def test_missing_folders_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*nowhere"):
        image_folder(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="one for each class"):
        image_folder(tmp_path)
    (tmp_path / "a").mkdir()
    with pytest.raises(FileNotFoundError, match="no valid file for the classes a"):
        image_folder(tmp_path)


@pytest.fixture
def devkit(tmp_path):
    root = tmp_path / "VOCdevkit" / "VOC2012"
    for number, name in enumerate(["one", "two"]):
        picture(root / "JPEGImages" / f"{name}.jpg", seed=number)
        mask = np.full((30, 40), number, np.uint8)
        mask[:5] = 255
        (root / "SegmentationClass").mkdir(exist_ok=True)
        image = Image.fromarray(mask)
        image.putpalette([value for value in range(256) for _ in range(3)])  # as VOC's own masks are stored
        image.save(root / "SegmentationClass" / f"{name}.png")
    sets = root / "ImageSets" / "Segmentation"
    sets.mkdir(parents=True)
    (sets / "val.txt").write_text("one\ntwo\n")
    return tmp_path


def test_voc(devkit):
    task = Task(validation=voc(devkit, "val", size=24))
    assert task.metric == "pixel_accuracy"
    ((images, masks),) = task["validation"].batches(4)
    assert (tuple(images.shape), tuple(masks.shape)) == ((2, 3, 24, 24), (2, 24, 24))
    assert [sorted(set(mask.flatten().tolist())) for mask in masks] == [[0, 255], [1, 255]]


def test_voc_that_is_not_there(devkit):
    with pytest.raises(ValueError, match=r"no segmentation set 'train' of VOC 2012 .*VOCdevkit/VOC2012"):
        voc(devkit, "train")
    with pytest.raises(ValueError, match="'test' of VOC 2007"):
        voc(devkit, "test", year=2007)
