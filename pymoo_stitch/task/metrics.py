"""How good predictions are. A metric is made of sums over the images, so that batches can be added up where they are."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn import functional as F

IGNORED = 255
"""The label of pixels that count nowhere, in segmentation. (Of whole images it is a class like any other.)"""

BINS = 15
"""Of the calibration error."""


@dataclass(frozen=True)
class Metric:
    """`sums(outputs, labels)` are the statistics of a batch, which add up over batches; `value(sums)` is the metric.

    Outputs are logits, classes in the second dimension; labels are one class per image [B] or per pixel [B, H, W]. `best`
    and `worst` are the ends of its range."""

    sums: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    value: Callable[[torch.Tensor], float]
    best: float = 1.0
    worst: float = 0.0
    dense: bool | None = None  # for labels per pixel only, per image only, or both

    def error(self, value: float) -> float:
        """What is to be minimised: 1 − value of a metric that should be large, else the value."""
        return 1 - value if self.best > self.worst else value


def _rows(outputs: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits [N, C] and labels [N] of all images, or of all pixels that count."""
    if labels.ndim == 1:
        return outputs, labels
    counts = labels != IGNORED
    return outputs.movedim(1, -1)[counts], labels[counts]


def _mean(sums: torch.Tensor) -> float:
    total, count = sums.tolist()
    return total / count if count else 0.0


def _pair(total: torch.Tensor, count: torch.Tensor | int) -> torch.Tensor:
    return torch.stack([total.double(), torch.as_tensor(count, dtype=torch.float64, device=total.device)])


def _accuracy(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return _pair((outputs.argmax(1) == labels).sum(), len(labels))


def _pixel_accuracy(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    counts = labels != IGNORED
    right = ((outputs.argmax(1) == labels) & counts).flatten(1).sum(1)
    pixels = counts.flatten(1).sum(1)
    return _pair((right.double() / pixels.clamp_min(1)).sum(), (pixels > 0).sum())


def _confusion(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    classes, counts = outputs.shape[1], labels != IGNORED
    pairs = labels[counts] * classes + outputs.argmax(1)[counts]
    return torch.bincount(pairs, minlength=classes**2).view(classes, classes)


def _mean_iou(confusion: torch.Tensor) -> float:
    both = confusion.diagonal().double()
    either = confusion.sum(0) + confusion.sum(1) - both
    present = either > 0
    return (both[present] / either[present]).mean().item() if present.any() else 0.0


def _bounded_mean(sums: torch.Tensor) -> float:
    return min(_mean(sums), _WORST_CROSS_ENTROPY)


_WORST_CROSS_ENTROPY = 100.0


def _cross_entropy(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    logits, labels = _rows(outputs, labels)
    return _pair(F.cross_entropy(logits, labels, reduction="sum"), len(labels))


def reliability(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """For each of `BINS` equal bins of the predicted class's probability: predictions, the sum of their probabilities,
    right ones, [3, BINS]. They add up over batches; the calibration error is made of them, and `report.plot_reliability`
    shows them. Logits and labels are as in `Metric`."""
    logits, labels = _rows(outputs, labels)
    probability, predicted = logits.softmax(1).max(1)
    bins = (probability.nan_to_num() * BINS).long().clamp_max(BINS - 1)
    columns = torch.stack([torch.ones_like(probability), probability, predicted == labels]).double()
    return torch.zeros(3, BINS, dtype=torch.float64, device=outputs.device).index_add_(1, bins, columns)


def _calibration_error(sums: torch.Tensor) -> float:
    count, probability, right = sums
    return ((probability - right).abs().sum() / count.sum()).item() if count.sum() else 0.0


METRICS: dict[str, Metric] = {
    "accuracy": Metric(_accuracy, _mean, dense=False),
    "pixel_accuracy": Metric(_pixel_accuracy, _mean, dense=True),
    "mean_iou": Metric(_confusion, _mean_iou, dense=True),
    "cross_entropy": Metric(_cross_entropy, _bounded_mean, best=0.0, worst=_WORST_CROSS_ENTROPY),
    "calibration_error": Metric(reliability, _calibration_error, best=0.0, worst=1.0),
}
"""Top-1 accuracy; [G]'s accuracy of segmentations, the mean over images of the part of pixels that are right; the mean
over classes of intersection over union; mean cross-entropy in nats, at most 100; expected calibration error."""
