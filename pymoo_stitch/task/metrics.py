"""How good predictions are. A metric is made of statistics of single images, which add up."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn import functional as F

IGNORED = 255
"""In segmentation, the label of pixels that are not counted. (For whole images it is a class like any other.)"""

BINS = 15
"""Of the calibration error."""


@dataclass(frozen=True)
class Metric:
    """`each(outputs, labels)` are the statistics of each image of a batch [B, …], `values(sums)` is the metric [n] on n
    sets of images, given their sums over images [n, …].

    Outputs are logits, classes in the second dimension; labels are one class per image [B] or per pixel [B, H, W].
    `best` and `worst` are the ends of its range. `is_mean`: it is the mean over images of values in [0, 1], and its
    statistics are the value and whether the image counts. Its best possible value is then known before all images are
    seen."""

    each: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    values: Callable[[torch.Tensor], torch.Tensor]
    best: float = 1.0
    worst: float = 0.0
    dense: bool | None = None  # for labels per pixel only, per image only, or both
    is_mean: bool = False

    def sums(self, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The statistics of a batch."""
        return self.each(outputs, labels).sum(0)

    def value(self, sums: torch.Tensor) -> float:
        """The metric, given the sum of the statistics over images."""
        return self.values(sums[None]).item()

    def error(self, value: float) -> float:
        """The error, to be minimised: 1 − value for a metric that is maximised, else the value."""
        return 1 - value if self.best > self.worst else value


def _counted(labels: torch.Tensor) -> torch.Tensor:
    """Which labels count, for each image [B, pixels], of labels per image [B, 1]."""
    return torch.ones_like(labels, dtype=torch.bool)[:, None] if labels.ndim == 1 else (labels != IGNORED).flatten(1)


def _mean(sums: torch.Tensor) -> torch.Tensor:
    total, count = sums.unbind(1)
    return torch.where(count > 0, total / count, 0.0)


def _accuracy(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    right = outputs.argmax(1) == labels
    return torch.stack([right, torch.ones_like(right)], 1).double()


def _pixel_accuracy(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    counts = _counted(labels)
    right = ((outputs.argmax(1) == labels).flatten(1) & counts).sum(1)
    pixels = counts.sum(1)
    return torch.stack([right.double() / pixels.clamp_min(1), pixels > 0], 1)


def _confusion(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    images, classes, counts = len(labels), outputs.shape[1], labels != IGNORED
    image = torch.arange(images, device=labels.device).view(-1, 1, 1).expand_as(labels)
    places = (image * classes + labels) * classes + outputs.argmax(1)
    return torch.bincount(places[counts], minlength=images * classes**2).view(images, classes, classes)


def _mean_iou(confusion: torch.Tensor) -> torch.Tensor:
    both = confusion.diagonal(dim1=1, dim2=2).double()
    either = confusion.sum(1) + confusion.sum(2) - both
    return torch.where(either > 0, both / either, torch.nan).nanmean(1).nan_to_num()


def _bounded_mean(sums: torch.Tensor) -> torch.Tensor:
    return _mean(sums).clamp_max(_WORST_CROSS_ENTROPY)


_WORST_CROSS_ENTROPY = 100.0


def _cross_entropy(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    counts = _counted(labels)
    valid = labels.where(counts.view_as(labels), 0)
    loss = F.cross_entropy(outputs, valid, reduction="none").view_as(counts).double()
    return torch.stack([loss.where(counts, 0).sum(1), counts.sum(1)], 1)


def _reliability(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    images, counts = len(labels), _counted(labels)
    probability, predicted = outputs.softmax(1).max(1)
    bins = (probability.nan_to_num() * BINS).long().clamp_max(BINS - 1).view_as(counts)
    places = bins + BINS * torch.arange(images, device=labels.device)[:, None]
    columns = (
        torch.stack([torch.ones_like(probability), probability, predicted == labels]).double().view(3, *counts.shape)
    )
    sums = torch.zeros(3, images * BINS, dtype=torch.float64, device=outputs.device)
    return sums.index_add_(1, places[counts], columns[:, counts]).view(3, images, BINS).movedim(1, 0)


def reliability(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """For each of `BINS` equal bins of the predicted class's probability: predictions, the sum of their probabilities,
    right ones, [3, BINS]. They add up over batches; the calibration error is made of them, and
    `report.plot_reliability` shows them. Logits and labels are as in `Metric`."""
    return _reliability(outputs, labels).sum(0)


def _calibration_error(sums: torch.Tensor) -> torch.Tensor:
    count, probability, right = sums.unbind(1)
    return _mean(torch.stack([(probability - right).abs().sum(1), count.sum(1)], 1))


METRICS: dict[str, Metric] = {
    "accuracy": Metric(_accuracy, _mean, dense=False, is_mean=True),
    "pixel_accuracy": Metric(_pixel_accuracy, _mean, dense=True, is_mean=True),
    "mean_iou": Metric(_confusion, _mean_iou, dense=True),
    "cross_entropy": Metric(_cross_entropy, _bounded_mean, best=0.0, worst=_WORST_CROSS_ENTROPY),
    "calibration_error": Metric(_reliability, _calibration_error, best=0.0, worst=1.0),
}
"""Top-1 accuracy; [G]'s accuracy of segmentations, the mean over images of the fraction of pixels that are right; the
mean over classes of intersection over union; mean cross-entropy in nats, at most 100; expected calibration error."""
