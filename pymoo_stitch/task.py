"""The task the networks are for: images with labels in named splits, and the metrics that count."""

import hashlib
import itertools
import math
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, SequentialSampler, Subset
from tqdm import tqdm

from .heads import Head
from .metrics import IGNORED, METRICS
from .network import Network

CACHE = 2**31
"""A dataset whose decoded images take no more bytes than this is read once per process; a larger one at every pass."""

Batch = tuple[torch.Tensor, torch.Tensor | None]


class Task:
    """Data splits and the metrics by which subnetworks are judged.

    A split is a pair of tensors or arrays (images, labels), a Dataset, or a DataLoader that does not shuffle. Images are float32 as
    the networks take them, or uint8, which become floats in [0, 1]; labels are one class per image, or per pixel, where
    255 counts nowhere. Datasets are read, checked and kept in memory at once, that of the calibration split when it is first
    used; what is sent to another process is the dataset, not the images.

    :param validation: what a search evaluates on.
    :param test: what its front is evaluated on again.
    :param calibration: images to fit stitches on, with or without labels.
    :param metrics: names from `METRICS`, the objective first; "accuracy" by default, of labels per pixel
        "pixel_accuracy".
    :param classes: the names of the classes, in the order of the networks' outputs, or of the head's.
    :param head: for classes that the networks were not trained on: a `heads.ClassMap`, or a head that is fitted to each
        subnetwork on the calibration split, `heads.NearestNeighbours` or `heads.LinearProbe`.
    """

    def __init__(
        self,
        *,
        validation: Any,
        test: Any = None,
        calibration: Any = None,
        metrics: Sequence[str] | str | None = None,
        classes: Sequence[str] | None = None,
        head: Head | None = None,
    ):
        self.classes = None if classes is None else _class_names(classes)
        given = {"calibration": calibration, "validation": validation, "test": test}
        self.splits = {name: Split(name, source) for name, source in given.items() if source is not None}
        self._check_order()
        dense = self["validation"].is_dense
        if metrics is None:
            metrics = "pixel_accuracy" if dense else "accuracy"
        self.metrics = (metrics,) if isinstance(metrics, str) else tuple(metrics)
        if not self.metrics:
            raise ValueError("the objective is a metric: name at least one.")
        fitting = [name for name, metric in METRICS.items() if metric.dense in (None, dense)]
        if wrong := [name for name in self.metrics if name not in fitting]:
            raise ValueError(
                f"there is no metric {wrong[0]!r} for labels per {'pixel' if dense else 'image'}; there are {', '.join(fitting)}."
            )
        self.all_metrics = tuple(dict.fromkeys([*self.metrics, *fitting]))
        if head is not None and (isinstance(head, type) or not hasattr(head, "fit") or not hasattr(head, "n_classes")):
            raise TypeError(f"a head is a ClassMap(…), NearestNeighbours(…) or LinearProbe(…), not {head!r}.")
        self.head = head
        self.n_classes = None if head is None else head.n_classes or self._labelled_classes()
        if head is not None and dense:
            raise ValueError(f"a head scores images, but the labels are per pixel: give no head, not {head!r}.")

    def _labelled_classes(self) -> int:
        """How many classes the labels of the calibration split tell of."""
        if "calibration" not in self.splits or (labels := self["calibration"].labels()) is None:
            raise ValueError(f"{self.head!r} learns from labels: give calibration=(images, labels).")
        return max(int(labels.max()) + 1, len(self.classes or ()))

    def _check_order(self) -> None:
        """A ValueError if a dataset numbers the classes otherwise than their names are given."""
        for split in self.splits.values():
            names = getattr(split.source, "classes", None)  # of an image folder
            if self.classes and names and sorted(names) == sorted(self.classes) and tuple(names) != self.classes:
                raise ValueError(
                    f"the classes are given as {', '.join(self.classes[:5])}, but the {split.name} split numbers them as "
                    f"{', '.join(names[:5])}. Name them in that order."
                )

    @property
    def metric(self) -> str:
        """The one that is the objective."""
        return self.metrics[0]

    def check(self, networks: Sequence[Network]) -> None:
        """A ValueError unless these networks can be evaluated on all splits and have as many classes as there are
        names."""
        count = self.n_classes or networks[0].output_shape[0]
        if self.classes is not None and len(self.classes) != count:
            raise ValueError(
                f"the task names {len(self.classes)} classes, but {'the head' if self.head else 'each network'} has {count}. "
                "Name each of them."
            )
        largest, given = max(getattr(self.head, "members", [0])), networks[0].output_shape[0]
        if largest >= given:
            raise ValueError(f"the class map names class {largest}, but the networks have {given}, counted from 0.")
        for split in self.splits.values():
            split.check(networks, count)

    def __getitem__(self, name: str) -> "Split":
        if name not in self.splits:
            raise ValueError(f"the task has no {name!r} split; it has {', '.join(map(repr, self.splits))}.")
        return self.splits[name]

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name} {len(split):,}" for name, split in self.splits.items())
        return f"Task({', '.join(self.metrics)}; {sizes} images)"


class Split:
    """Images and labels in a fixed order, whatever they come from."""

    def __init__(self, name: str, source: Any):
        if isinstance(source, (torch.Tensor, np.ndarray)):
            source = (source,)
        if isinstance(source, (tuple, list)) and any(isinstance(part, np.ndarray) for part in source):
            source = tuple(torch.as_tensor(part) for part in source)
        items = source.dataset if isinstance(source, DataLoader) else source
        if isinstance(source, (tuple, list)) and len(source) in (1, 2) and all(map(torch.is_tensor, source)):
            source = tuple(source)
        elif not isinstance(items, Dataset) or not hasattr(items, "__len__"):
            raise TypeError(
                f"the {name} split is a {type(source).__name__}; give a pair of tensors (images, labels), a Dataset with "
                "a length, or a DataLoader."
            )
        if isinstance(source, DataLoader) and not _is_plain(source):
            raise ValueError(
                f"the {name} split is a DataLoader that does not give all samples in their order, in batches. Give it "
                "shuffle=False, drop_last=False, a batch_size and no sampler, or give its dataset."
            )
        self.name, self.source = name, source
        self._limits: _Limits | None = None
        if len(self) == 0:
            raise ValueError(f"the {name} split is empty.")
        first = next(self._pieces())
        self.is_dense = first[1] is not None and first[1].ndim > 1
        sample = sum(part[0].nbytes for part in first if part is not None)
        self._fits = isinstance(source, tuple) or len(self) * sample <= CACHE
        self._kept: Batch | None = None
        if name != "calibration":  # a search never reads it, and it may be the largest
            self._load()

    def __len__(self) -> int:
        source = self.source.dataset if isinstance(self.source, DataLoader) else self.source
        return len(source[0]) if isinstance(source, tuple) else len(source)

    def batches(self, batch_size: int) -> Iterator[Batch]:
        """Images and labels, always in the same batches."""
        self._load()
        for images, labels in self._rebatched(batch_size) if self._kept is None else _cut(self._kept, batch_size):
            yield images, None if labels is None else labels.long()

    def digest(self) -> str:
        """A name for all images and labels, the same in every process."""
        state = hashlib.blake2b(digest_size=16)
        for images, labels in self.batches(256):
            for part in (images, labels) if labels is not None else (images,):
                state.update(f"{part.dtype} {tuple(part.shape)}\n".encode())
                state.update(part.contiguous().numpy())
        return state.hexdigest()

    def labels(self) -> torch.Tensor | None:
        """All labels, if there are any."""
        parts = [labels for _, labels in self.batches(256)]
        return None if parts[0] is None else torch.cat(parts)

    def check(self, networks: Sequence[Network], n_classes: int) -> None:
        """A ValueError unless these networks can be evaluated on all of it. What is too large to be kept is checked
        when it is read."""
        self._limits = _Limits(networks, n_classes)
        if self.name != "calibration":
            self._load()
        images, labels = next(self._pieces()) if self._kept is None else self._kept
        self._check("the", images, labels)
        if self._limits.takes_normalized and self._kept is not None and are_unit_images(images):
            warnings.warn(
                f"all images of the {self.name} split are in [0, 1], but networks were trained on normalised images. "
                "Normalise them, or import the networks with normalize='timm'.",
                stacklevel=5,
            )

    def _load(self) -> None:
        if self._kept is not None or not self._fits:
            return
        if isinstance(self.source, tuple):
            (self._kept,) = self._pieces()
            return
        pieces = []
        with tqdm(total=len(self), desc=f"read {self.name}", disable=None, delay=2, leave=False) as bar:
            for piece in self._pieces():
                pieces.append(piece)
                self._check("a sample of the", *piece)
                bar.update(len(piece[0]))
        self._kept = _joined(pieces)

    def _rebatched(self, batch_size: int) -> Iterator[Batch]:
        waiting: list[Batch] = []
        for piece in self._pieces():
            self._check("a sample of the", *piece)
            waiting.append(piece)
            if sum(len(images) for images, _ in waiting) >= batch_size:
                *whole, last = _cut(_joined(waiting), batch_size)
                yield from whole
                waiting = [last]
                if len(last[0]) == batch_size:
                    yield last
                    waiting = []
        if waiting:
            yield _joined(waiting)

    # ------------------------------------------------------------------------------------------------------- reading

    def _pieces(self) -> Iterator[Batch]:
        """Everything in order, in pieces of any size."""
        if isinstance(self.source, tuple):
            yield self._piece(self.source, f"the {self.name} split")
            return
        single = not isinstance(self.source, DataLoader)
        items = (self.source[i] for i in range(len(self))) if single else iter(self.source)
        kind = None
        for number in itertools.count():
            try:
                item = next(items)
            except StopIteration:
                return
            except Exception as error:
                where = f"sample {number}{_path(self.source, number)}" if single else f"batch {number}"
                raise ValueError(f"{where} of the {self.name} split cannot be read: {error}") from error
            where = f"{'sample' if single else 'batch'} {number} of the {self.name} split"
            piece = self._piece(item, where, single)
            if kind not in (None, _kind(piece)):
                raise ValueError(
                    f"{where} is {_kind(piece)}, others are {kind}. Resize, crop and convert all to one kind."
                )
            kind = _kind(piece)
            yield piece

    def _piece(self, item: Any, where: str, single: bool = False) -> Batch:
        images, labels = (*item, None)[:2] if isinstance(item, (tuple, list)) else (item, None)
        if not isinstance(images, torch.Tensor):
            raise ValueError(
                f"{where} is a {type(images).__name__}, not a tensor. Give the dataset a transform that makes one, such "
                "as torchvision.transforms.PILToTensor()."
            )
        if images.dtype not in (torch.float32, torch.uint8):
            raise ValueError(f"{where} has images of {images.dtype}; give float32 (`.float()`) or uint8.")
        if labels is None:
            return (images[None] if single else images), None
        try:
            labels = torch.as_tensor(labels)
        except (TypeError, ValueError, RuntimeError):
            raise ValueError(f"{where} has a {type(labels).__name__} as its label; labels are integers.") from None
        if labels.is_floating_point() or labels.is_complex() or labels.dtype is torch.bool:
            raise ValueError(f"{where} has labels of {labels.dtype}; labels are integers.")
        if single:
            images, labels = images[None], labels[None]
        if labels.ndim == 4 and labels.shape[1] == 1:
            labels = labels[:, 0]
        if len(images) != len(labels) or labels.ndim not in (1, 3):
            raise ValueError(
                f"{where} has images of shape {tuple(images.shape)} and labels of shape {tuple(labels.shape)}; labels are "
                "one class per image, or one per pixel."
            )
        return images, labels

    def _check(self, what: str, images: torch.Tensor, labels: torch.Tensor | None) -> None:
        problem = self._limits and self._limits.broken_by(images, labels, required=self.name != "calibration")
        if problem:
            raise ValueError(f"{what} {self.name} split {problem}")

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_kept": None}


class _Limits:
    """What networks can be evaluated on."""

    def __init__(self, networks: Sequence[Network], n_classes: int):
        self.input_shape, self.classes, self.pixels = networks[0].input_shape, n_classes, networks[0].output_shape[1:]
        self.takes_unit = all(network.takes_unit_images for network in networks)
        self.takes_normalized = any(network.takes_unit_images is False for network in networks)

    def broken_by(self, images: torch.Tensor, labels: torch.Tensor | None, required: bool) -> str | None:
        """What is wrong, as the end of a sentence."""
        if tuple(images.shape[1:]) != self.input_shape:
            return (
                f"has images of shape {tuple(images.shape[1:])}, but the networks were imported for {self.input_shape}. "
                "Resize and crop the images, or import the networks with an example of their size."
            )
        least, most = images.min().item(), images.max().item()
        if not math.isfinite(least + most):
            return "has images with NaN or infinite values."
        if self.takes_unit and not are_unit_images(images):
            return (
                f"has images with values from {least:.3g} to {most:.3g}, but the networks take images in [0, 1] and "
                "normalise them themselves."
            )
        if labels is None:
            return "has no labels." if required else None
        if tuple(labels.shape[1:]) != tuple(self.pixels):
            one = f"labels of {'×'.join(map(str, self.pixels))} pixels" if self.pixels else "one label per image"
            return f"has labels of shape {tuple(labels.shape)}, but the networks' outputs need {one}."
        counted = labels if not self.pixels else labels[labels != IGNORED]
        if counted.numel() and not 0 <= counted.min() <= counted.max() < self.classes:
            return f"has labels from {counted.min()} to {counted.max()}, but the classes are 0 to {self.classes - 1}."
        return None


def _class_names(classes: Sequence[str]) -> tuple[str, ...]:
    if isinstance(classes, str) or not all(isinstance(name, str) for name in classes):
        raise TypeError(f"classes are a list of names, such as ['cat', 'dog'], not {classes!r}.")
    return tuple(classes)


def are_unit_images(images: torch.Tensor) -> bool:
    """Whether images are in [0, 1], as bytes always are. Resizing may overshoot a little."""
    return images.dtype is torch.uint8 or bool(images.min() >= -0.01 and images.max() <= 1.01)


def _is_plain(loader: DataLoader) -> bool:
    """Whether a loader gives batches of all samples in their order."""
    if loader.batch_sampler is None or loader.drop_last:
        return False
    return all(
        isinstance(s, SequentialSampler) for s in (loader.sampler, getattr(loader.batch_sampler, "sampler", None))
    )


def _kind(piece: Batch) -> str:
    images, labels = piece
    image = f"{str(images.dtype).removeprefix('torch.')} of shape {tuple(images.shape[1:])}"
    if labels is None:
        return f"{image} without labels"
    return f"{image} with labels of shape {tuple(labels.shape[1:])}" if labels.ndim > 1 else f"{image} with a label"


def _joined(pieces: Sequence[Batch]) -> Batch:
    images, labels = zip(*pieces, strict=True)
    return torch.cat(images), None if labels[0] is None else torch.cat(labels)


def _cut(batch: Batch, size: int) -> Iterator[Batch]:
    images, labels = batch
    for at in range(0, len(images), size):
        yield images[at : at + size], None if labels is None else labels[at : at + size]


def _path(dataset: Any, number: int) -> str:
    """The file of a sample, where a dataset tells, in parentheses."""
    while isinstance(dataset, Subset):
        dataset, number = dataset.dataset, dataset.indices[number]
    for files in (getattr(dataset, "samples", None), getattr(dataset, "images", None)):
        if isinstance(files, list) and number < len(files):
            return f" ({files[number][0] if isinstance(files[number], tuple) else files[number]})"
    return ""
