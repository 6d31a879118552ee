"""One split of a task: images and labels in a fixed order, whatever they come from."""

import copy
import itertools
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, SequentialSampler, Subset

from ..network import ImageLimits, Network, are_unit_images, raw
from ..util.digests import digest
from ..util.progress import Progress
from .metrics import IGNORED

CACHE = 2**31
"""A dataset whose decoded images take no more bytes than this is read once per process; a larger one at every pass."""

Batch = tuple[torch.Tensor, torch.Tensor | None]


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
                f"the {name} split is a {type(source).__name__}; give a pair of tensors (images, labels), a Dataset "
                "with a length, or a DataLoader."
            )
        if isinstance(source, DataLoader) and not _is_plain(source):
            raise ValueError(
                f"the {name} split is a DataLoader that does not return all samples in their order, in batches. Give "
                "it shuffle=False, drop_last=False, a batch_size and no sampler, or give its dataset."
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
        return len(source[0] if isinstance(source, tuple) else source)  # type: ignore[arg-type]  # checked: it has one

    @property
    def is_kept(self) -> bool:
        """Whether it is in memory, and not read again at every pass."""
        self._load()
        return self._kept is not None

    @property
    def nbytes(self) -> int:
        """Of a split that is kept."""
        return sum(part.nbytes for part in self._kept if part is not None)

    def to(self, device: torch.device) -> "Split":
        """A split that is kept, on a device."""
        new = copy.copy(self)
        images, labels = self._kept
        images = images.to(device, non_blocking=True)
        new._kept = images, None if labels is None else labels.to(device, non_blocking=True)
        return new

    def batches(self, batch_size: int, order: np.ndarray | None = None) -> Iterator[Batch]:
        """Images and labels, always in the same batches.

        :param order: which image comes first, second, … [n], of a split that is kept; by default as they are.
        """
        if not self.is_kept:
            batches = self._rebatched(batch_size)
        else:
            device = self._kept[0].device
            batches = _cut(self._kept, batch_size, None if order is None else torch.as_tensor(order, device=device))
        for images, labels in batches:
            yield images, None if labels is None else labels.long()

    def digest(self) -> str:
        """A name for all images and labels, the same in every process."""
        tensors = (part for batch in self.batches(256) for part in batch if part is not None)
        return digest(part for tensor in tensors for part in (f"{tensor.dtype} {tuple(tensor.shape)}\n", raw(tensor)))

    def labels(self) -> torch.Tensor | None:
        """All labels, if there are any."""
        parts = [labels for _, labels in self.batches(256)]
        return None if parts[0] is None else torch.cat(parts)

    def check(self, networks: Sequence[Network], n_classes: int) -> None:
        """Raise a ValueError unless these networks can be evaluated on all of it. What is too large to be kept is
        checked when it is read."""
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
        with Progress(len(self), f"read {self.name}", "image", delay=2) as bar:
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
                f"{where} is a {type(images).__name__}, not a tensor. Give the dataset a transform that makes one, "
                "such as torchvision.transforms.PILToTensor()."
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
                f"{where} has images of shape {tuple(images.shape)} and labels of shape {tuple(labels.shape)}; labels "
                "are one class per image, or one per pixel."
            )
        return images, labels

    def _check(self, what: str, images: torch.Tensor, labels: torch.Tensor | None) -> None:
        problem = self._limits and self._limits.broken_by(images, labels, required=self.name != "calibration")
        if problem:
            raise ValueError(f"{what} {self.name} split {problem}")

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_kept": None}


class _Limits:
    """The images and labels that networks can be evaluated on."""

    def __init__(self, networks: Sequence[Network], n_classes: int):
        self.images, self.classes, self.pixels = ImageLimits.of(networks), n_classes, networks[0].output_shape[1:]
        self.takes_normalized = any(network.takes_unit_images is False for network in networks)

    def broken_by(self, images: torch.Tensor, labels: torch.Tensor | None, required: bool) -> str | None:
        """The problem with a batch, as the end of a sentence."""
        if wrong := self.images.broken_by(images):
            return wrong
        if labels is None:
            return "has no labels." if required else None
        if tuple(labels.shape[1:]) != tuple(self.pixels):
            one = f"labels of {'×'.join(map(str, self.pixels))} pixels" if self.pixels else "one label per image"
            return f"has labels of shape {tuple(labels.shape)}, but the networks' outputs need {one}."
        counted = labels if not self.pixels else labels[labels != IGNORED]
        if counted.numel() and not 0 <= counted.min() <= counted.max() < self.classes:
            return f"has labels from {counted.min()} to {counted.max()}, but the classes are 0 to {self.classes - 1}."
        return None


def _is_plain(loader: DataLoader) -> bool:
    """Whether a loader returns batches of all samples in their order."""
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


def _cut(batch: Batch, size: int, order: torch.Tensor | None = None) -> Iterator[Batch]:
    images, labels = batch
    for at in range(0, len(images), size):
        part = slice(at, at + size) if order is None else order[at : at + size]
        yield images[part], None if labels is None else labels[part]


def _path(dataset: Any, number: int) -> str:
    """The file of a sample in parentheses, if the dataset knows it."""
    while isinstance(dataset, Subset):
        dataset, number = dataset.dataset, dataset.indices[number]
    for files in (getattr(dataset, "samples", None), getattr(dataset, "images", None)):
        if isinstance(files, list) and number < len(files):
            return f" ({files[number][0] if isinstance(files[number], tuple) else files[number]})"
    return ""
