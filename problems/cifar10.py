"""ResNet-20 and ResNet-56 of He et al. for CIFAR-10, with weights and images from files."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F

from ..network import Network
from ..problem import StitchProblem
from ..supernet import Supernet
from ..task import Task
from . import supernets

RECIPE = 3
"""To be raised when supernets of this problem come out differently, so that kept ones are not used any more."""

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
NETWORKS = {"resnet20": 3, "resnet56": 9}
"""The networks and how many blocks each of their three stages has."""

NORMALIZATION = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""What the images were normalised with in training."""

WEIGHTS_FROM = (
    "Trained weights are at https://github.com/akamaster/pytorch_resnet_cifar10; docs/reproduce-the-paper.md says how "
    "to convert them"
)
IMAGES_FROM = (
    "The binary version of CIFAR-10, cifar-10-binary.tar.gz, is at https://www.cs.toronto.edu/~kriz/cifar.html; unpack "
    "it there"
)
SPLITS = ("train", "validation", "selection", "test")

Images = tuple[torch.Tensor, torch.Tensor]


def problem(
    *,
    data: Path,
    images: int = 1_000,
    selection_images: int = 2_000,
    test_images: int = 4_000,
    samples: int = 2_500,
    supernet: Path | None = None,
) -> StitchProblem:
    """ResNet-20 and ResNet-56 trained on CIFAR-10, from files in a folder.

    :param data: a folder that holds `resnet20.safetensors` and `resnet56.safetensors`, and images: either `images.npz`
        with x_train, y_train, x_validation, … of train, validation, selection and test (uint8 of n×3×32×32, classes),
        or `cifar-10-batches-bin`, the binary version of CIFAR-10. Of that, validation images are the first of the test
        batch, then follow the selection images, then the test images.
    :param images: how many validation images, which the search sees.
    :param selection_images: how many images to choose a network on after the search.
    :param test_images: how many test images.
    :param samples: on how many of the train images stitches are fitted.
    :param supernet: a file from `Supernet.save` to use instead of the networks in `data`.
    """
    given = {"samples": samples, "images": images, "selection_images": selection_images, "test_images": test_images}
    counts = dict(zip(SPLITS, given.values(), strict=True))
    options = dict(zip(SPLITS, given, strict=True))
    for option, count in given.items():
        if count < 1:
            raise ValueError(f"{option} must be a number of images, at least 1, but is {count}.")
    if not data.is_dir():
        raise FileNotFoundError(
            f"there is no folder {data} to read the networks and images of CIFAR-10 from. {IMAGES_FROM}; "
            "`pymoo-stitch info cifar10` says what else it holds."
        )
    found = _splits(data, counts)
    for split, count in counts.items():
        if count > len(found[split][0]):
            raise ValueError(
                f"{options[split]} is {count}, but {data} has {len(found[split][0])} {split} images for it."
            )
    splits: dict[str, Any] = {split: tuple(part[:count] for part in found[split]) for split, count in counts.items()}
    calibration = splits.pop("train")
    if supernet:
        joined = supernets.given(supernet, NETWORKS, (3, 32, 32), len(CLASSES))
    else:
        joined = _supernet(data, calibration[0])
    return StitchProblem(joined, Task(**splits, calibration=calibration, classes=CLASSES))


def _supernet(data: Path, images: torch.Tensor) -> Supernet:
    modules = {name: _load(data / f"{name}.safetensors", blocks) for name, blocks in NETWORKS.items()}

    def make() -> Supernet:
        example = torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))
        networks = [
            Network.from_module(module, example, name=name, normalize=NORMALIZATION) for name, module in modules.items()
        ]
        supernet = Supernet.build(networks)
        supernet.fit(images, batch_size=100, positions=64)
        return supernet

    depends = {
        "recipe": RECIPE,
        "weights": supernets.digest_weights(*modules.values()),
        "images": supernets.digest_weights(images),
    }
    return supernets.cached("cifar10", depends, make)


# -------------------------------------------------------------------------------------------------------- the networks


class _Block(nn.Module):
    """Two convolutions beside a shortcut without parameters: every second pixel, and zeros for the channels that are
    new (option A of He et al.)."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.step, self.new = (1 if inputs == outputs else 2), outputs - inputs
        self.conv1 = nn.Conv2d(inputs, outputs, 3, self.step, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(inner)) + self._shortcut(x))

    def _shortcut(self, x: torch.Tensor) -> torch.Tensor:
        if not self.new:
            return x
        before = self.new // 2
        return F.pad(x[..., :: self.step, :: self.step], (0, 0, 0, 0, before, self.new - before))


class _ResNet(nn.Module):
    """A convolution, three stages of 16, 32 and 64 channels, each with this many blocks, and a linear layer."""

    def __init__(self, blocks: int):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        widths = (16, 16, 32, 64)
        for stage in (1, 2, 3):
            before, width = widths[stage - 1], widths[stage]
            blocks_of_stage = [_Block(before if i == 0 else width, width) for i in range(blocks)]
            self.add_module(f"layer{stage}", nn.Sequential(*blocks_of_stage))
        self.linear = nn.Linear(64, len(CLASSES))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.bn1(self.conv1(x)))
        for stage in (1, 2, 3):
            x = self.get_submodule(f"layer{stage}")(x)
        return self.linear(x.mean((2, 3)))


def _load(path: Path, blocks: int) -> nn.Module:
    if not path.is_file():
        raise FileNotFoundError(f"there is no {path.name} in {path.parent}. {WEIGHTS_FROM}.")
    module = _ResNet(blocks)
    try:
        weights = load_file(path)
        module.load_state_dict({k: v.float() if v.is_floating_point() else v for k, v in weights.items()})
    except Exception as error:  # whatever a file makes go wrong, the file is at fault
        raise ValueError(f"{path} does not hold the weights of {path.stem}: {error} {WEIGHTS_FROM}.") from error
    return module.eval()


# ---------------------------------------------------------------------------------------------------------- the images


def _splits(data: Path, counts: dict[str, int]) -> dict[str, Images]:
    """Images of each split, uint8 of n×3×32×32, and their classes."""
    archive, batches = data / "images.npz", data / "cifar-10-batches-bin"
    if archive.is_file():
        return {split: _from_archive(archive, split) for split in SPLITS}
    if batches.is_dir():
        numbers = range(1, min(5, -(-counts["train"] // 10_000)) + 1)
        train = [_from_batch(batches / f"data_batch_{number}.bin") for number in numbers]
        images, labels = _from_batch(batches / "test_batch.bin")
        all_images, all_labels = zip(*train, strict=True)
        found, begin = {"train": (torch.cat(all_images), torch.cat(all_labels))}, 0
        for split in SPLITS[1:]:
            end = begin + counts[split]
            found[split] = (images[begin:end], labels[begin:end])
            begin = end
        return found
    python = data / "cifar-10-batches-py"
    unsafe = f" {python} is not read: its files are pickles, which may execute anything." if python.is_dir() else ""
    raise FileNotFoundError(f"there is neither images.npz nor cifar-10-batches-bin in {data}.{unsafe} {IMAGES_FROM}.")


def _from_archive(path: Path, split: str) -> Images:
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
            images, labels = arrays[f"x_{split}"], arrays[f"y_{split}"]
    except Exception as error:  # as above
        raise ValueError(f"{path} cannot be read: {error}. It must hold x_{split} and y_{split}.") from error
    if images.dtype != np.uint8 or images.shape[1:] != (3, 32, 32):
        raise ValueError(f"x_{split} in {path} is {images.dtype} of shape {images.shape}, not uint8 of n×3×32×32.")
    if labels.dtype.kind not in "iu" or labels.shape != images.shape[:1]:
        raise ValueError(
            f"y_{split} in {path} is {labels.dtype} of shape {labels.shape}, not a whole number for each of "
            f"{len(images)} images."
        )
    return torch.from_numpy(images), torch.from_numpy(labels.astype(np.int64))


def _from_batch(path: Path) -> Images:
    """A file of 3,073 bytes for each image: its class, then the pixels by channel, row and column."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no {path.name} in {path.parent}. {IMAGES_FROM}.")
    content = np.fromfile(path, dtype=np.uint8)
    if not len(content) or len(content) % 3_073:
        raise ValueError(
            f"{path} has {len(content):,} bytes, which is not a multiple of 3,073: it is damaged. {IMAGES_FROM}."
        )
    rows = content.reshape(-1, 3_073)
    images = rows[:, 1:].reshape(-1, 3, 32, 32)
    return torch.from_numpy(images.copy()), torch.from_numpy(rows[:, 0].astype(np.int64))
