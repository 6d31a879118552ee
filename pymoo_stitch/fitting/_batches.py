"""Batches of images to fit on, from whatever a user gives."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import Dataset, TensorDataset, default_collate
from tqdm import tqdm

from ..network import ImageLimits, as_floats

if TYPE_CHECKING:
    from ..supernet import Supernet


HELD_OUT = 64
"""How many images at most are kept from fitting to measure the stitches on; never more than an eighth."""

Batch = tuple[torch.Tensor, torch.Tensor | None]


class Data:
    """Batches of images on a device, from whatever a user gives, with some kept back and a progress bar.

    Of a dataset, images all over it are kept back; of batches, the last of each until there are enough. Without
    `samples` there is one pass in the order given; with it a dataset is shuffled, and shown again until that many images
    were seen. `seen` and `held_out` are complete when the batches are used up."""

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
        if isinstance(images, torch.Tensor):
            images = TensorDataset(images)
        elif isinstance(images, tuple) and all(isinstance(part, torch.Tensor) for part in images):
            images = TensorDataset(*images)
        self.limits, self.images = ImageLimits.of(supernet.networks), images
        self.batch_size, self.device = batch_size, device
        self.title = title
        self.samples, self.generator = samples, torch.Generator().manual_seed(seed)
        self.seen, self._kept = 0, []
        total = samples or (len(images) if isinstance(images, Dataset) else None)
        self._bar = tqdm(total=total, desc=title, unit=" images", disable=None if progress is None else not progress)

    @property
    def held_out(self) -> torch.Tensor:
        return torch.cat(self._kept)

    def tell(self, **facts: str) -> None:
        self._bar.set_postfix(facts)

    def batches(self) -> Iterator[Batch]:
        with self._bar:
            while True:
                before = self.seen
                for x, y in self._one_pass():
                    if self.samples is not None and self.seen >= self.samples:
                        return
                    self.seen += len(x)
                    self._bar.update(len(x))
                    yield x.to(self.device), y
                if self.seen == 0:
                    raise ValueError("no images are given to fit the stitches on.")
                if self.samples is None or self.seen == before:  # one pass was asked for, or an iterator is used up
                    return

    def _one_pass(self) -> Iterator[Batch]:
        if isinstance(self.images, Dataset):
            yield from self._dataset_pass()
        else:
            quota = HELD_OUT
            first = not self._kept
            for item in self.images:
                x, y = self._checked(item)
                keep = min(quota, len(x) // 8)
                quota -= keep
                if first and (keep or not self._kept):
                    self._kept.append(x[len(x) - keep :] if keep else x)
                yield x[: len(x) - keep], None if y is None else y[: len(x) - keep]

    def _dataset_pass(self) -> Iterator[Batch]:
        total = len(self.images)
        keep = min(HELD_OUT, total // 8)
        kept = set(range(0, total, max(total // keep, 1))[:keep]) if keep else set()
        shown = [i for i in range(total) if i not in kept]
        if not self._kept and total:
            chosen = sorted(kept) or shown[:HELD_OUT]
            self._kept.append(self._take(chosen)[0])
        if self.samples is not None:
            shown = [shown[i] for i in torch.randperm(len(shown), generator=self.generator)]
        for at in range(0, len(shown), self.batch_size):
            yield self._take(shown[at : at + self.batch_size])

    def _take(self, indices: Sequence[int]) -> Batch:
        if isinstance(self.images, TensorDataset):
            return self._checked([tensor[indices] for tensor in self.images.tensors])
        return self._checked(default_collate([self.images[i] for i in indices]))

    def _checked(self, item: Any) -> Batch:
        x, y = (item[0], item[1] if len(item) > 1 else None) if isinstance(item, (tuple, list)) else (item, None)
        if wrong := self.limits.broken_by(x):
            raise ValueError(f"a batch that stitches are to be fitted on {wrong}")
        return as_floats(x), y
