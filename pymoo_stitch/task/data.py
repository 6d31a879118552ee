"""Images from folders, as torchvision reads them, for the splits of a task.

Without `normalize` they are uint8 and become images in [0, 1], for networks that normalise in their graphs; with (mean,
std) they are normalised once, when they are read."""

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from timm.data import ImageNetInfo
from torch.utils.data import Dataset
from torchvision.datasets import ImageFolder, VOCSegmentation
from torchvision.datasets.folder import default_loader
from torchvision.transforms import v2

from ..network import Normalization


def image_folder(
    root: str | os.PathLike,
    *,
    size: int | tuple[int, int] = 224,
    crop: float = 0.875,
    normalize: Normalization | None = None,
) -> Dataset:
    """A folder for each class, with images in it.

    Folders that are all numbers are class numbers (ImageNetV2), and folders that are all WordNet ids get their number
    among the classes of ImageNet-1k, also if only some are there. Otherwise classes are numbered by name.

    :param size: height and width of the images. For a square the shorter side is resized and the centre taken; for
        another size both sides are resized.
    :param crop: the fraction of the resized image that the crop from its centre takes.
    """
    return _Folder(_existing(root), _cropped(size, crop, normalize))


def image_files(
    samples: Iterable[tuple[str | os.PathLike, int]],
    *,
    size: int | tuple[int, int] = 224,
    crop: float = 0.875,
    normalize: Normalization | None = None,
) -> Dataset:
    """Files with their classes, in the order given; `size` and `crop` as in `image_folder`."""
    return _Files([(os.fspath(path), label) for path, label in samples], _cropped(size, crop, normalize))


def voc(
    root: str | os.PathLike,
    image_set: str,
    *,
    year: str | int = "2012",
    size: int | tuple[int, int] = 520,
    normalize: Normalization | None = None,
) -> Dataset:
    """Images and class masks of PASCAL VOC segmentation, from a folder that holds `VOCdevkit`, resized to one size.

    :param image_set: `"train"`, `"val"`, `"trainval"`, or of year 2007 `"test"`.
    """
    sides = (size, size) if isinstance(size, int) else tuple(size)
    image = v2.Compose([v2.Resize(sides, antialias=True), _tensor(normalize)])
    mask = v2.Compose(
        [
            v2.Resize(sides, interpolation=v2.InterpolationMode.NEAREST),
            v2.PILToTensor(),
            v2.Lambda(_without_channel),
        ]
    )
    try:
        return VOCSegmentation(_existing(root), str(year), image_set, transform=image, target_transform=mask)
    except (RuntimeError, OSError, ValueError) as error:
        raise ValueError(
            f"there is no segmentation set {image_set!r} of VOC {year} in {root}. It must hold VOCdevkit/VOC{year} "
            "with JPEGImages, SegmentationClass and ImageSets/Segmentation."
        ) from error


class _Files(Dataset):
    def __init__(self, samples: list[tuple[str, int]], transform: Callable[[Any], torch.Tensor]):
        self.samples, self.transform = samples, transform

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, number: int) -> tuple[torch.Tensor, int]:
        path, label = self.samples[number]
        return self.transform(default_loader(path)), label


class _Folder(ImageFolder):
    def find_classes(self, directory: str) -> tuple[list[str], dict[str, int]]:
        names = sorted(entry.name for entry in os.scandir(directory) if entry.is_dir())
        if not names:
            raise FileNotFoundError(f"{directory} holds no folder: there must be one for each class.")
        if all(name.isascii() and name.isdigit() for name in names):
            return names, {name: int(name) for name in names}
        if all(re.fullmatch(r"n\d{8}", name) for name in names):
            known = {name: number for number, name in enumerate(ImageNetInfo("imagenet-1k").label_names())}
            if set(names) <= set(known):
                return names, {name: known[name] for name in names}
        return names, {name: number for number, name in enumerate(names)}


def _cropped(
    size: int | tuple[int, int], crop: float, normalize: Normalization | None
) -> Callable[[Any], torch.Tensor]:
    if not 0 < crop <= 1:
        raise ValueError(
            f"crop is the fraction of the resized image that is taken, above 0 and at most 1, but is {crop}."
        )
    height, width = (size, size) if isinstance(size, int) else size
    resized = [round(side / crop) for side in (height, width)]
    return v2.Compose(
        [
            v2.Resize(resized[0] if height == width else resized, antialias=True),
            v2.CenterCrop((height, width)),
            _tensor(normalize),
        ]
    )


def _tensor(normalize: Normalization | None) -> Any:
    if normalize is None:
        return v2.PILToTensor()
    return v2.Compose([v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(*normalize)])


def _without_channel(mask: torch.Tensor) -> torch.Tensor:
    return mask[0]


def _existing(root: str | os.PathLike) -> Path:
    root = Path(root)
    if not root.is_dir():
        raise FileNotFoundError(f"there is no folder {root} to read images from.")
    return root
