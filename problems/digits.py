"""Two small networks for scikit-learn's handwritten digits, trained on the spot."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn import functional as F

from ..network import Network
from ..problem import StitchProblem
from ..supernet import Supernet
from ..task import Task
from ..util.progress import shown
from . import supernets

RECIPE = 7
"""To be raised when supernets of this problem come out differently, so that kept ones are not used any more."""

CLASSES = tuple("0123456789")
UNIT = (0.0,), (1.0,)
"""No normalisation, but one that says so: the networks take images in [0, 1]."""

EPOCHS, BATCH, RATE = 20, 32, 0.1
NOISE = 0.1
"""The standard deviation of the noise. With the sizes of the networks and the length of the training chosen on
validation images so that there is something to find: networks that make mistakes, not the same ones."""

SIZES = {"calibration": (497, 4), "validation": (400, 3), "selection": (400, 5), "test": (500, 8)}
"""Of each split: how many of the 1,797 digits it has for itself, and how many copies of each."""

EVALUATED_TOGETHER = 400
"""Images in a batch of an evaluation."""

Images = tuple[torch.Tensor, torch.Tensor]


def problem(*, seed: int = 0, supernet: Path | None = None) -> StitchProblem:
    """Two small networks for scikit-learn's handwritten digits, trained on the spot; needs no download.

    A residual network and one of inverted residuals, trained in a few seconds when the problem is made for the first
    time. The 1,797 digits of 1×8×8 are divided first, and each split then consists of shifted, noisy copies of its own
    digits: 1,988 images to fit stitches on (the networks are trained on other copies of the same digits), 1,200 for
    validation, 2,000 for selection and 4,000 for test.

    :param seed: of the training. The images are the same for all.
    :param supernet: a file from `Supernet.save` to use instead.
    """
    if not 0 <= seed < 2**63:
        raise ValueError(f"the seed must be a whole number from 0 on, below 2^63, but is {seed}.")
    data: dict[str, Any] = splits()
    if supernet:
        joined = supernets.given(supernet, NETWORKS, (1, 8, 8), len(CLASSES))
    else:
        depends = {"recipe": RECIPE, "seed": seed, "images": supernets.digest_weights(*data["calibration"])}
        joined = supernets.cached("digits", depends, lambda: make_supernet(data["calibration"][0], seed))
    return StitchProblem(joined, Task(**data, classes=CLASSES), batch_size=EVALUATED_TOGETHER)


def splits() -> dict[str, Images]:
    """The splits of the task: float32 in [0, 1] of 1×8×8, with their labels, always the same. No digit is in two of
    them."""
    return {
        name: _copies(*digits_of(name), copies, torch.Generator().manual_seed(number))
        for number, (name, (_, copies)) in enumerate(SIZES.items())
    }


def digits_of(split: str) -> Images:
    """The digits of a split as they are in scikit-learn: disjoint, each split with all classes in equal numbers."""
    digits = load_digits()
    images, labels = digits.images.astype(np.float32)[:, None] / 16, digits.target.astype(np.int64)
    left = np.arange(len(labels))
    chosen = {}
    for name in ("test", "selection", "validation"):
        left, chosen[name] = train_test_split(left, test_size=SIZES[name][0], random_state=0, stratify=labels[left])
    chosen["calibration"] = left
    return torch.from_numpy(images[chosen[split]]), torch.from_numpy(labels[chosen[split]])


def _copies(images: torch.Tensor, labels: torch.Tensor, copies: int, generator: torch.Generator) -> Images:
    """This many shifted and noisy copies of all images."""
    return _disturbed(images.repeat(copies, 1, 1, 1), generator), labels.repeat(copies)


def _disturbed(images: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
    """Each image moved by −1, 0 or 1 pixel in both directions, with Gaussian noise."""
    n, size = len(images), images.shape[-1]
    padded = F.pad(images, (1, 1, 1, 1))
    rows, columns = (torch.randint(3, (n, 1), generator=generator) + torch.arange(size) for _ in range(2))
    moved = padded[torch.arange(n)[:, None, None], 0, rows[:, :, None], columns[:, None, :]][:, None]
    return (moved + NOISE * torch.randn(moved.shape, generator=generator)).clamp(0, 1)


def make_supernet(images: torch.Tensor, seed: int) -> Supernet:
    """Both networks trained, joined, and their stitches fitted on these images."""
    modules = train(*digits_of("calibration"), seed)
    with _one_thread():
        load = partial(Network.from_module, example_input=images[:1], normalize=UNIT)
        supernet = Supernet.build([load(module, name=name) for name, module in modules.items()])
        supernet.fit(images, batch_size=100, positions=64)
    return supernet


def train(images: torch.Tensor, labels: torch.Tensor, seed: int) -> dict[str, nn.Module]:
    """The networks, trained; the same every time, without changing the state of torch's random numbers."""
    with _one_thread(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return {name: _trained(make(), name, images, labels) for name, make in NETWORKS.items()}


# -------------------------------------------------------------------------------------------------------- the networks


def _conv(inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    padding = size // 2
    return [nn.Conv2d(inputs, outputs, size, stride, padding, groups=groups, bias=False), nn.BatchNorm2d(outputs)]


class _Residual(nn.Module):
    """Two 3×3 convolutions and a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1):
        super().__init__()
        self.body = nn.Sequential(*_conv(inputs, outputs, 3, stride), nn.ReLU(), *_conv(outputs, outputs, 3))
        self.shortcut = nn.Sequential(*_conv(inputs, outputs, 1, stride)) if stride > 1 else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.body(x) + self.shortcut(x))


class _Inverted(nn.Module):
    """Wider inside than outside, and only there, by a depthwise convolution, looking at neighbours."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1):
        super().__init__()
        inner = 2 * inputs
        self.body = nn.Sequential(
            *_conv(inputs, inner, 1),
            nn.Hardswish(),
            *_conv(inner, inner, 3, stride, groups=inner),
            nn.Hardswish(),
            *_conv(inner, outputs, 1),
        )
        self.adds = stride == 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x) if self.adds else self.body(x)


def _head(channels: int) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, len(CLASSES))]


def _residual(width: int = 12) -> nn.Module:
    return nn.Sequential(
        *_conv(1, width, 3),
        nn.ReLU(),
        _Residual(width, width),
        _Residual(width, width),
        _Residual(width, 2 * width, 2),
        _Residual(2 * width, 2 * width),
        *_head(2 * width),
    )


def _inverted(width: int = 8) -> nn.Module:
    return nn.Sequential(
        *_conv(1, width, 3),
        nn.Hardswish(),
        _Inverted(width, width),
        _Inverted(width, width),
        _Inverted(width, 2 * width, 2),
        _Inverted(2 * width, 2 * width),
        *_conv(2 * width, 4 * width, 1),
        nn.Hardswish(),
        *_head(4 * width),
    )


NETWORKS = {"inverted": _inverted, "residual": _residual}


# -------------------------------------------------------------------------------------------------------- the training


def _trained(module: nn.Module, name: str, images: torch.Tensor, labels: torch.Tensor) -> nn.Module:
    """Trained by SGD with one cycle of the learning rate, on copies of the images that are new every time."""
    steps = -(-len(images) // BATCH)
    optimizer = torch.optim.SGD(module.parameters(), lr=RATE, momentum=0.9, nesterov=True, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, epochs=EPOCHS, steps_per_epoch=steps)
    module.train()
    for _ in shown(range(EPOCHS), EPOCHS, f"train {name}", "epoch", delay=1):
        for chosen in torch.randperm(len(images)).split(BATCH):
            loss = F.cross_entropy(module(_disturbed(images[chosen])), labels[chosen], label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return module.eval()


@contextmanager
def _one_thread() -> Iterator[None]:
    """More are slower on images this small, and round differently from machine to machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
