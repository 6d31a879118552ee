"""The paper's two pairs of timm networks for ImageNet ([G] 14)."""

import os
import warnings
from collections.abc import Callable, Iterator
from inspect import getdoc
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import timm
import torch
from timm.data import ImageNetInfo
from torch import nn
from torch.utils.data import Dataset

from ..network import Network
from ..problem import StitchProblem
from ..supernet import Supernet
from ..task import Task
from ..task.data import image_files, image_folder
from ..util.digests import digest
from ..util.progress import shown
from . import supernets
from .paper import check_counts, fit_options, said_sizes, seeded

RECIPE = 3
"""To be raised when supernets of these problems come out differently, so that kept ones are not used any more."""

PAIRS = {"imagenet-a": ("resnet152", "efficientnet_b4"), "imagenet-b": ("resnet50", "resnext50_32x4d")}
BATCH = 32
CLASSES = 1_000
VARIANTS = ("matched-frequency", "threshold0.7", "top-images")
SUFFIXES = (".jpeg", ".jpg", ".png")

IMAGENET_FROM = (
    "Download ILSVRC2012_img_train.tar and ILSVRC2012_img_val.tar from https://image-net.org/download-images and "
    "unpack them into a folder per class, train/<WordNet id> and val/<WordNet id>, as torchvision reads them"
)
BOXES_FROM = (
    "Download the bounding boxes of the train set of ILSVRC 2012 from https://image-net.org/download-bboxes, or take "
    "Annotations/CLS-LOC/train of the ILSVRC archive, and name the folder in the option annotations"
)
V2_FROM = "Download it from https://github.com/modestyachts/ImageNetV2 and unpack it there"


def _pair(name: str, about: str) -> Callable[..., StitchProblem]:
    """The function that makes the problem of one of `PAIRS`. Both take the same options and data.

    :param about: how its docstring begins.
    """

    def problem(
        *,
        imagenet: Path,
        imagenetv2: Path,
        annotations: Path | None = None,
        images: int = 1_000,
        selection_images: int = 2_000,
        samples: int = 16_384,
        size: int = 224,
        fit: str = "least-squares",
        seed: int = 0,
        pretrained: bool = True,
        supernet: Path | None = None,
    ) -> StitchProblem:
        """Stitches are fitted on images of ImageNet's train set that have a bounding box, validation images are of
        ImageNetV2, test images are ImageNet's validation set. Selection images are those of ImageNetV2 that follow,
        which the paper does not use.

        :param imagenet: a folder with `train` and `val`, each with a folder for each class that has its WordNet id as
            its name. Without `val` the problem has no test split, and says so.
        :param imagenetv2: a folder with `imagenetv2-matched-frequency-format-val`. Beyond 10,000 images
            `imagenetv2-threshold0.7-format-val` and `imagenetv2-top-images-format-val` follow, each image once. The
            order is the first image of every class, by name, then the second of every class, and so on.
        :param annotations: the bounding boxes of the train set, a folder with an xml file for each image that has one,
            at any depth. Needed unless `supernet` is given.
        :param images: how many validation images.
        :param selection_images: at most how many images to choose a network on after the search.
        :param samples: on how many images stitches are fitted.
        :param size: height and width of images.
        :param fit: how stitches are fitted: least-squares, or adam as in the paper (learning rate 1e-3, each image
            once).
        :param seed: of the choice of images to fit on, of Adam, and of random weights.
        :param pretrained: whether timm loads trained weights, from Hugging Face when they are not there yet; else they
            are random.
        :param supernet: a file from `Supernet.save` to use instead.
        """
        check_counts(images=images, selection_images=selection_images, samples=samples, size=size)
        options = fit_options(fit, samples=samples, lr=1e-3, batch_size=BATCH, seed=seed)
        first = _first_of_v2(imagenetv2, images, selection_images)
        validation = image_files(first[:images], size=size)
        selection = image_files(first[images:], size=size) if len(first) > images else None
        test = _test(imagenet / "val", size)
        calibration = None
        if annotations is not None:
            calibration = image_files(_with_boxes(imagenet / "train", annotations, samples, seed), size=size)
        if supernet:
            joined = supernets.given(supernet, PAIRS[name], (3, size, size), CLASSES)
        elif calibration is None:
            raise ValueError(
                f"{name} fits its stitches on the images of ImageNet that have a bounding box, and needs the option "
                f"annotations to know which. {BOXES_FROM}."
            )
        else:
            joined = _supernet(name, calibration, size, options, seed, pretrained)
        classes = list(ImageNetInfo("imagenet-1k").label_descriptions())
        splits: dict[str, Any] = {
            "calibration": calibration,
            "validation": validation,
            "selection": selection,
            "test": test,
        }
        task = Task(**splits, metrics="accuracy", classes=classes)
        with said_sizes():
            return StitchProblem(joined, task, batch_size=BATCH)

    problem.__doc__ = f"{about}\n\n{getdoc(problem)}"
    return problem


pair_a = _pair("imagenet-a", "Pair (a) of the paper: timm's ResNet-152 and EfficientNet-B4 on ImageNet, at 224.")
pair_b = _pair(
    "imagenet-b",
    "Pair (b) of the paper: timm's ResNet-50 and ResNeXt-50 (32×4d) on ImageNet, at 224.\n\n"
    "The options and the data are those of imagenet-a.",
)


def _supernet(name: str, images: Any, size: int, options: dict, seed: int, pretrained: bool) -> Supernet:
    with seeded(seed):
        modules = {network: _module(network, pretrained) for network in PAIRS[name]}

    def make() -> Supernet:
        example = torch.rand(1, 3, size, size, generator=torch.Generator().manual_seed(0))
        networks = [
            Network.from_module(module, example, name=network, normalize="timm")
            for network, module in shown(modules.items(), len(modules), "import", "network")
        ]
        supernet = Supernet.build(networks)
        supernet.fit(images, **options)
        return supernet

    # Names and sizes stand for the images: to read all of them would take minutes every time.
    chosen = [(Path(path).name, os.stat(path).st_size) for path, _ in images.samples]
    depends = {
        "recipe": RECIPE,
        "weights": supernets.digest_weights(*modules.values()),
        "images": digest([repr(chosen)]),
        "size": size,
        "fit": {key: value for key, value in options.items() if key != "device"},
    }
    return supernets.cached(name, depends, make)


def _module(name: str, pretrained: bool) -> nn.Module:
    try:
        return timm.create_model(name, pretrained=pretrained).eval()
    except Exception as error:  # whatever a failed download raises
        if not pretrained:
            raise
        raise OSError(
            f"timm cannot load the trained weights of {name}: {error}. They come from https://huggingface.co/timm. "
            f"Where there is a connection, run `python -c \"import timm; timm.create_model('{name}', "
            'pretrained=True)"`, and copy ~/.cache/huggingface here, to the same place or to the folder that $HF_HOME '
            "names."
        ) from error


# ---------------------------------------------------------------------------------------------------------- the images


def _with_boxes(train: Path, annotations: Path, count: int, seed: int) -> list[tuple[str, int]]:
    """This many random ones of the train images for which there is an xml file."""
    if not annotations.is_dir():
        raise FileNotFoundError(f"there is no folder {annotations} to find bounding boxes in. {BOXES_FROM}.")
    if not train.is_dir():
        raise FileNotFoundError(f"there is no folder {train}. {IMAGENET_FROM}.")
    boxed = {Path(file).stem for _, _, files in os.walk(annotations) for file in files if file.lower().endswith(".xml")}
    if not boxed:
        raise FileNotFoundError(f"there is no xml file in {annotations}. {BOXES_FROM}.")
    found = []
    for number, folder in enumerate(ImageNetInfo("imagenet-1k").label_names()):
        if (train / folder).is_dir():
            files = sorted(file for file in os.listdir(train / folder) if _is_image(file))
            found += [(str(train / folder / file), number) for file in files if Path(file).stem in boxed]
    if len(found) < count:
        raise ValueError(
            f"{train} holds {len(found):,} images that have an xml file in {annotations}, and {count:,} are needed. "
            f"Give samples={len(found)}, or more images. {IMAGENET_FROM}."
        )
    chosen = np.random.default_rng(seed).permutation(len(found))[:count]
    return [found[i] for i in chosen]


def _first_of_v2(root: Path, count: int, more: int) -> list[tuple[str, int]]:
    """The first unique images of ImageNetV2, and as many of the following as are asked for. Its variants overlap: what
    has the same content as an earlier image is left out."""
    if not root.is_dir():
        raise FileNotFoundError(f"there is no folder {root} to read ImageNetV2 from. {V2_FROM}.")
    found: dict[str, tuple[str, int]] = {}
    try:
        for path, label in _all_of_v2(root):
            found.setdefault(digest([Path(path).read_bytes()]), (path, label))
            if len(found) == count + more:
                break
    except FileNotFoundError:  # a variant that only those beyond `count` would come from
        if len(found) < count:
            raise
    if len(found) < count:
        raise ValueError(f"ImageNetV2 in {root} has {len(found):,} different images, but images is {count:,}.")
    return list(found.values())


def _all_of_v2(root: Path) -> Iterator[tuple[str, int]]:
    """By variant, then by the image's rank in its class, then by class: sorted by class alone, the first 1,000 images
    would be of 100 classes."""
    for variant in VARIANTS:
        folder = root / f"imagenetv2-{variant}-format-val"
        if not folder.is_dir():
            raise FileNotFoundError(f"there is no folder {folder} of ImageNetV2. {V2_FROM}.")
        classes = {entry.name: int(entry.name) for entry in os.scandir(folder) if entry.name.isdecimal()}
        if not classes:
            raise FileNotFoundError(f"{folder} holds no folder with a class's number as its name. {V2_FROM}.")
        ranked = [
            (rank, number, str(folder / name / file))
            for name, number in classes.items()
            for rank, file in enumerate(sorted(filter(_is_image, os.listdir(folder / name))))
        ]
        yield from ((path, number) for _, number, path in sorted(ranked))


def _test(folder: Path, size: int) -> Dataset | None:
    if not folder.is_dir():
        warnings.warn(f"there is no test split, for there is no folder {folder}. {IMAGENET_FROM}.", stacklevel=4)
        return None
    names = [entry.name for entry in islice(os.scandir(folder), 10) if entry.is_dir()]
    if not names:
        raise FileNotFoundError(f"{folder} must hold a folder for each class. {IMAGENET_FROM}.")
    return image_folder(folder, size=size)


def _is_image(file: str) -> bool:
    return file.lower().endswith(SUFFIXES)
