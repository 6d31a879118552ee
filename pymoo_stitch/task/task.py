"""The task the networks are for: images with labels in named splits, and the metrics that count."""

from collections.abc import Sequence
from typing import Any

from ..network import Network
from ..util.words import did_you_mean
from .heads import Head
from .metrics import METRICS
from .split import Split


class Task:
    """Data splits and the metrics by which subnetworks are judged.

    A split is a pair of tensors or arrays (images, labels), a Dataset, or a DataLoader that does not shuffle. Images
    are float32 as the networks take them, or uint8, which become floats in [0, 1]; labels are one class per image, or
    per pixel, where 255 is not counted. Datasets are read, checked and kept in memory at once, that of the calibration
    split when it is first used; another process gets the dataset, not the images.

    :param validation: what a search evaluates on.
    :param selection: what one chooses on among the networks that a search found. Without it, the choice is made on
        images that the search has seen, and looks better than it is.
    :param test: what is reported; nothing is decided on it.
    :param calibration: images to fit stitches on, with or without labels.
    :param metrics: names from `METRICS`, the objective first; "accuracy" by default, of labels per pixel
        "pixel_accuracy".
    :param classes: the names of the classes, in the order of the networks' outputs, or of the head's.
    :param head: for classes that the networks were not trained on: a `ClassMap`, or a head that is fitted to each
        subnetwork on the calibration split, `NearestNeighbours` or `LinearProbe`.
    """

    def __init__(
        self,
        *,
        validation: Any,
        selection: Any = None,
        test: Any = None,
        calibration: Any = None,
        metrics: Sequence[str] | str | None = None,
        classes: Sequence[str] | None = None,
        head: Head | None = None,
    ):
        self.classes = None if classes is None else _class_names(classes)
        given = {"calibration": calibration, "validation": validation, "selection": selection, "test": test}
        self.splits = {name: Split(name, source) for name, source in given.items() if source is not None}
        self._check_order()
        dense = self["validation"].is_dense
        if metrics is None:
            metrics = "pixel_accuracy" if dense else "accuracy"
        self.metrics = (metrics,) if isinstance(metrics, str) else tuple(metrics)
        if not self.metrics:
            raise ValueError("a task needs at least one metric, the objective: name one.")
        fitting = [name for name, metric in METRICS.items() if metric.dense in (None, dense)]
        if wrong := [name for name in self.metrics if name not in fitting]:
            raise ValueError(
                f"there is no metric {wrong[0]!r} for labels per {'pixel' if dense else 'image'}; choose from "
                f"{', '.join(fitting)}." + did_you_mean(wrong[0], fitting)
            )
        self.all_metrics = tuple(dict.fromkeys([*self.metrics, *fitting]))
        if head is not None and (isinstance(head, type) or not hasattr(head, "fit") or not hasattr(head, "n_classes")):
            raise TypeError(f"a head is a ClassMap(…), NearestNeighbours(…) or LinearProbe(…), not {head!r}.")
        self.head = head
        self.n_classes = None if head is None else head.n_classes or self._labelled_classes()
        if head is not None and dense:
            raise ValueError(f"a head scores images, but the labels are per pixel: give no head, not {head!r}.")

    def _labelled_classes(self) -> int:
        """The number of classes by the labels of the calibration split."""
        if "calibration" not in self.splits or (labels := self["calibration"].labels()) is None:
            raise ValueError(f"{self.head!r} learns from labels: give calibration=(images, labels).")
        return max(int(labels.max()) + 1, len(self.classes or ()))

    def _check_order(self) -> None:
        """Raise a ValueError if a dataset numbers the classes in another order than `classes`."""
        for split in self.splits.values():
            names = getattr(split.source, "classes", None)  # of an image folder
            if self.classes and names and sorted(names) == sorted(self.classes) and tuple(names) != self.classes:
                raise ValueError(
                    f"the classes are given as {', '.join(self.classes[:5])}, but the {split.name} split numbers them "
                    f"as {', '.join(names[:5])}. Name them in that order."
                )

    @property
    def metric(self) -> str:
        """The metric that is the objective."""
        return self.metrics[0]

    def check(self, networks: Sequence[Network]) -> None:
        """Raise a ValueError unless these networks can be evaluated on all splits and have as many classes as there are
        names."""
        count = self.n_classes or networks[0].output_shape[0]
        if self.classes is not None and len(self.classes) != count:
            raise ValueError(
                f"the task names {len(self.classes)} classes, but {'the head' if self.head else 'each network'} has "
                f"{count}. "
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


def _class_names(classes: Sequence[str]) -> tuple[str, ...]:
    if isinstance(classes, str) or not all(isinstance(name, str) for name in classes):
        raise TypeError(f"classes are a list of names, such as ['cat', 'dog'], not {classes!r}.")
    return tuple(classes)
