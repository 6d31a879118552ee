"""Batches of images to fit on, from whatever a user passes."""

import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset, default_collate

from ..network import ImageLimits, as_floats
from ..util.progress import Progress

if TYPE_CHECKING:
    from ..supernet import Supernet


HELD_OUT = 64
"""The most images that are kept back from fitting, to measure the stitches on."""
EVERY = 8
"""One in this many is kept back, so there must be at least as many."""

PURPOSE = "a batch that stitches are to be fitted on"

Batch = tuple[torch.Tensor, torch.Tensor | None]


class Data:
    """Batches of images on a device, from whatever a user passes, with some kept back and a progress bar.

    Of a dataset, images all over it are kept back; of batches, every eighth image until there are enough. Without
    `samples` there is one pass in the order given; with it a dataset is shuffled, and shown again until that many
    images were seen. `seen` and `held_out` are complete when the batches are used up; `expected` is how many images one
    pass will show, if that is known."""

    def __init__(
        self,
        supernet: "Supernet",
        images: Any,
        batch_size: int,
        device: torch.device,
        progress: bool | None,
        title: str,
        samples: int | None = None,
        seed: int = 0,
    ):
        if batch_size < 1 or (samples is not None and samples < 1):
            raise ValueError(f"batch_size and samples must be at least 1, but are {batch_size} and {samples}.")
        self.limits, self.images = _limits(supernet), as_dataset(images)
        self.batch_size, self.device = batch_size, device
        self.title = title
        self.samples, self.generator = samples, torch.Generator().manual_seed(seed)
        self.seen = 0
        self._kept: list[torch.Tensor] = []
        number = _number(self.images)
        self.expected = None if number is None else number - _quota(number)
        self._bar = Progress(samples or self.expected, title, "image", progress)

    @property
    def held_out(self) -> torch.Tensor:
        return torch.cat(self._kept)

    def tell(self, **facts: str) -> None:
        self._bar.note(**facts)

    def batches(self) -> Iterator[Batch]:
        with self._bar:
            if isinstance(self.images, Dataset):
                _check_number(len(self.images))  # type: ignore[arg-type]  # torch types it without a length
            while True:
                before = self.seen
                for x, y in self._one_pass():
                    if self.samples is not None and self.seen >= self.samples and self._kept:
                        return
                    self.seen += len(x)
                    self._bar.update(len(x))
                    yield x.to(self.device), y
                _check_number(self.seen + sum(map(len, self._kept)))
                if self.samples is None or self.seen == before:  # one pass was asked for, or an iterator is used up
                    return

    def _one_pass(self) -> Iterator[Batch]:
        if isinstance(self.images, Dataset):
            yield from self._dataset_pass()
        else:
            first, number, quota = not self._kept, 0, HELD_OUT
            for item in self.images:
                x, y = checked(item, self.limits, PURPOSE)
                kept = [i for i in range(len(x)) if (number + i) % EVERY == EVERY - 1][:quota]
                number, quota = number + len(x), quota - len(kept)
                if kept:
                    if first:
                        self._kept.append(x[kept])
                    shown = [i for i in range(len(x)) if i not in kept]
                    x, y = x[shown], None if y is None else y[shown]
                if len(x):
                    yield x, y

    def _dataset_pass(self) -> Iterator[Batch]:
        total = len(self.images)
        keep = _quota(total)
        kept = set(range(0, total, total // keep)[:keep])
        shown = [i for i in range(total) if i not in kept]
        if not self._kept:
            self._kept.append(self._take(sorted(kept))[0])
        if self.samples is not None:
            shown = [shown[i] for i in torch.randperm(len(shown), generator=self.generator)]
        for at in range(0, len(shown), self.batch_size):
            yield self._take(shown[at : at + self.batch_size])

    def _take(self, indices: Sequence[int]) -> Batch:
        return take(self.images, indices, self.limits, PURPOSE)


def as_dataset(images: Any) -> Any:
    """Tensors as a dataset; datasets and iterables of batches as they are."""
    if isinstance(images, torch.Tensor):
        return TensorDataset(images)
    if isinstance(images, tuple) and all(isinstance(part, torch.Tensor) for part in images):
        return TensorDataset(*images)
    return images


def take(dataset: Dataset, indices: Sequence[int], limits: ImageLimits, purpose: str) -> Batch:
    """Samples of a dataset as one batch."""
    if isinstance(dataset, TensorDataset):
        return checked([tensor[indices] for tensor in dataset.tensors], limits, purpose)
    return checked(default_collate([dataset[i] for i in indices]), limits, purpose)


def checked(item: Any, limits: ImageLimits, purpose: str) -> Batch:
    """A batch, with labels or without, as floats and labels; a ValueError, which begins with what the batch is for, if
    the networks cannot take it."""
    x, y = (item[0], item[1] if len(item) > 1 else None) if isinstance(item, (tuple, list)) else (item, None)
    if wrong := limits.broken_by(x):
        raise ValueError(f"{purpose} {wrong}")
    return as_floats(x), y


def _number(images: Any) -> int | None:
    """How many images one pass shows, those kept back included; None if that is not known beforehand."""
    if isinstance(images, Dataset):
        return len(images)  # type: ignore[arg-type]  # torch types it without a length
    if isinstance(images, DataLoader) and images.batch_size is not None:
        try:
            number = len(images.sampler)  # type: ignore[arg-type]  # asked for, since some have none
        except TypeError:  # an iterable dataset has no length
            return None
        return number - number % images.batch_size if images.drop_last else number
    return None


def _quota(total: int) -> int:
    """How many of so many images are kept back."""
    return min(HELD_OUT, total // EVERY)


def _check_number(number: int) -> None:
    if not number:
        raise ValueError("no images are given to fit the stitches on.")
    if number < EVERY:
        raise ValueError(
            f"only {number} image{'s are' if number > 1 else ' is'} given to fit the stitches on, but one in {EVERY} "
            f"is kept back to measure them. Give {EVERY} or more; some hundreds are better."
        )


def _limits(supernet: "Supernet") -> ImageLimits:
    """In [0, 1] if any of the networks normalises them itself, unless another is known to take normalised ones."""
    known = [n.takes_unit_images for n in supernet.networks if n.takes_unit_images is not None]
    return ImageLimits(supernet.input_shape, bool(known) and all(known))


def warn_of_mixed_inputs(supernet: "Supernet") -> None:
    """A warning where some networks normalise images and others do not."""
    inside = [network.name for network in supernet.networks if network.takes_unit_images]
    others = [network.name for network in supernet.networks if not network.takes_unit_images]
    if inside and others:
        warnings.warn(
            f"{', '.join(inside)} normalise{'s' * (len(inside) == 1)} images in the graph, and {', '.join(others)} "
            f"take{'s' * (len(others) == 1)} them as the module does: all get the same images. If that is not what you "
            "want, import all networks with normalize=….",
            stacklevel=4,
        )
