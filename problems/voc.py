"""The paper's pair of torchvision networks for PASCAL VOC ([G] 14)."""

import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset, Subset
from torchvision.models import WeightsEnum
from torchvision.models.segmentation import (
    DeepLabV3_MobileNet_V3_Large_Weights,
    DeepLabV3_ResNet50_Weights,
    deeplabv3_mobilenet_v3_large,
    deeplabv3_resnet50,
)

from ..network import Network
from ..problem import StitchProblem
from ..supernet import Supernet
from ..task import Task, data
from ..util.progress import shown
from . import supernets
from .paper import check_counts, fit_options, seeded

RECIPE = 3
"""To be raised when supernets of this problem come out differently, so that kept ones are not used any more."""

BATCH, EPOCHS = 4, 10
NORMALIZATION = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
CLASSES = (
    "background aeroplane bicycle bird boat bottle bus car cat chair cow diningtable dog horse motorbike person "
    "pottedplant sheep sofa train tvmonitor"
).split()
NETWORKS: dict[str, tuple[Callable[..., nn.Module], WeightsEnum]] = {
    "deeplabv3_mobilenet_v3_large": (
        deeplabv3_mobilenet_v3_large,
        DeepLabV3_MobileNet_V3_Large_Weights.COCO_WITH_VOC_LABELS_V1,
    ),
    "deeplabv3_resnet50": (deeplabv3_resnet50, DeepLabV3_ResNet50_Weights.COCO_WITH_VOC_LABELS_V1),
}
"""The networks: what makes them, and their trained weights."""

FROM = "Download it from http://host.robots.ox.ac.uk/pascal/VOC/voc{} and unpack it there"


def problem(
    *,
    voc: Path,
    images: int = 64,
    selection_images: int = 200,
    samples: int = 1_464,
    size: int = 520,
    fit: str = "least-squares",
    seed: int = 0,
    pretrained: bool = True,
    supernet: Path | None = None,
) -> StitchProblem:
    """The paper's segmentation pair: DeepLabV3 with MobileNetV3-Large and ResNet-50 on PASCAL VOC, at 520.

    Stitches are fitted on VOC 2012 train, validation images are the first of VOC 2012 val, selection images those that
    follow, which the paper does not use, test images are VOC 2007 test; the metric is the mean accuracy of an image's
    pixels. As in the paper: some images of VOC 2007 test are in VOC 2012 too, under other names, so that gains on test
    may be a little too large.

    :param voc: a folder with `VOCdevkit/VOC2012`, and for the test split `VOCdevkit/VOC2007`. Without that, the problem
        has no test split, and says so.
    :param images: how many validation images.
    :param selection_images: at most how many images to choose a network on after the search.
    :param samples: on how many images, the first of train, stitches are fitted.
    :param size: height and width to which images and masks are resized.
    :param fit: how stitches are fitted: least-squares, or adam as in the paper (learning rate 1e-2, 10 epochs).
    :param seed: of Adam, and of random weights.
    :param pretrained: whether torchvision loads trained weights, from pytorch.org when they are not there yet; else
        they are random.
    :param supernet: a file from `Supernet.save` to use instead.
    """
    check_counts(images=images, selection_images=selection_images, samples=samples, size=size)
    val = _voc(voc, "val", 2012, size)
    validation = _first(val, images, "images", "val")
    following = range(images, min(images + selection_images, len(val)))  # type: ignore[arg-type]  # it has a length
    selection = Subset(val, following) if following else None
    test = None
    if (voc / "VOCdevkit" / "VOC2007").is_dir():
        test = _voc(voc, "test", 2007, size)
    else:
        missing = voc / "VOCdevkit" / "VOC2007"
        warnings.warn(f"there is no test split, for there is no folder {missing}. {FROM.format(2007)}.", stacklevel=3)
    if supernet:
        joined = supernets.given(supernet, NETWORKS, (3, size, size), len(CLASSES))
        calibration = None
    else:
        calibration = _first(_voc(voc, "train", 2012, size), samples, "samples", "train")
        options = fit_options(fit, samples=EPOCHS * samples, lr=1e-2, batch_size=BATCH, seed=seed)
        joined = _supernet(calibration, size, options, seed, pretrained)
    splits: dict[str, Any] = {
        "calibration": calibration,
        "validation": validation,
        "selection": selection,
        "test": test,
    }
    task = Task(**splits, metrics="pixel_accuracy", classes=CLASSES)
    return StitchProblem(joined, task, batch_size=BATCH)


def _supernet(images: Any, size: int, options: dict, seed: int, pretrained: bool) -> Supernet:
    with seeded(seed):
        modules = {name: _module(name, pretrained) for name in NETWORKS}

    def make() -> Supernet:
        example = torch.rand(1, 3, size, size, generator=torch.Generator().manual_seed(0))
        load = partial(Network.from_module, example_input=example, output="out", normalize=NORMALIZATION)
        pairs = shown(modules.items(), len(modules), "import", "network")
        supernet = Supernet.build([load(module, name=name) for name, module in pairs])
        supernet.fit(images, **options)
        return supernet

    chosen = [Path(images.dataset.images[i]) for i in images.indices]
    depends = {
        "recipe": RECIPE,
        "weights": supernets.digest_weights(*modules.values()),
        "images": [(path.name, path.stat().st_size) for path in chosen],  # instead of reading all, as for ImageNet
        "size": size,
        "fit": {key: value for key, value in options.items() if key != "device"},
    }
    return supernets.cached("voc", depends, make)


def _module(name: str, pretrained: bool) -> nn.Module:
    make, weights = NETWORKS[name]
    if not pretrained:
        return make(weights=None, weights_backbone=None, num_classes=len(CLASSES), aux_loss=True).eval()
    try:
        return make(weights=weights, progress=True).eval()
    except Exception as error:  # whatever a failed download raises
        raise OSError(
            f"torchvision cannot load the trained weights of {name}: {error}. Download {weights.url} where there is a "
            f"connection, and put it into {torch.hub.get_dir()}/checkpoints."
        ) from error


def _voc(root: Path, image_set: str, year: int, size: int) -> Dataset:
    try:
        return data.voc(root, image_set, year=year, size=size)
    except (OSError, ValueError) as error:
        raise type(error)(f"{error} {FROM.format(year)}.") from error


def _first(dataset: Any, count: int, option: str, image_set: str) -> Subset:
    if count > len(dataset):
        raise ValueError(f"{option} is {count}, but {image_set} of VOC 2012 has {len(dataset)} images.")
    return Subset(dataset, range(count))
