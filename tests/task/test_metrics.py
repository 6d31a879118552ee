"""Metrics equal torchmetrics' on random predictions, and add up over batches in whatever way they are cut."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torchmetrics.functional import classification as known

from pymoo_stitch import METRICS
from pymoo_stitch.task.metrics import BINS, IGNORED


def cut(sums, outputs, labels, at):
    return sum(sums(outputs[i:j], labels[i:j]) for i, j in zip([0, *at], [*at, len(labels)], strict=True) if i < j)


def predictions(seed, images, classes, pixels=()):
    rng = torch.Generator().manual_seed(seed)
    outputs = 2 * torch.randn(images, classes, *pixels, generator=rng)
    labels = torch.randint(classes, (images, *pixels), generator=rng)
    easy = torch.rand(labels.shape, generator=rng) < 0.5
    labels[easy] = outputs.argmax(1)[easy]
    if pixels:
        labels[torch.rand(labels.shape, generator=rng) < 0.2] = IGNORED
    return outputs, labels


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(2, 9), st.data())
def test_of_whole_images(seed, images, classes, data):
    outputs, labels = predictions(seed, images, classes)
    at = sorted(data.draw(st.lists(st.integers(0, images), max_size=3)))
    found = {
        name: METRICS[name].value(cut(METRICS[name].sums, outputs, labels, at))
        for name in ("accuracy", "cross_entropy", "calibration_error")
    }
    expected = {
        "accuracy": known.multiclass_accuracy(outputs, labels, classes, average="micro"),
        "cross_entropy": torch.nn.functional.cross_entropy(outputs, labels),
        "calibration_error": known.multiclass_calibration_error(outputs.softmax(1), labels, classes, n_bins=BINS),
    }
    for name, value in expected.items():
        assert found[name] == pytest.approx(value.item(), abs=1e-5), name


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 9), st.integers(2, 6), st.data())
def test_of_pixels(seed, images, classes, data):
    outputs, labels = predictions(seed, images, classes, (4, 5))
    at = sorted(data.draw(st.lists(st.integers(0, images), max_size=3)))
    found = {
        name: METRICS[name].value(cut(METRICS[name].sums, outputs, labels, at))
        for name in ("pixel_accuracy", "mean_iou", "cross_entropy", "calibration_error")
    }
    options = {"ignore_index": IGNORED, "num_classes": classes}
    each = known.multiclass_accuracy(outputs, labels, average="micro", multidim_average="samplewise", **options)
    counted = (labels != IGNORED).flatten(1).any(1)
    expected = {
        "pixel_accuracy": each[counted].mean(),
        "cross_entropy": torch.nn.functional.cross_entropy(outputs, labels, ignore_index=IGNORED),
        "mean_iou": known.multiclass_jaccard_index(outputs, labels, average="macro", **options),
        "calibration_error": known.multiclass_calibration_error(outputs.softmax(1), labels, n_bins=BINS, **options),
    }
    for name, value in expected.items():
        assert found[name] == pytest.approx(value.item(), abs=1e-5), name


def test_label_255_is_a_class_of_whole_images():
    outputs = torch.eye(300)[[255, 255, 0]]
    assert METRICS["accuracy"].value(METRICS["accuracy"].sums(outputs, torch.tensor([255, 255, 255]))) == pytest.approx(
        2 / 3
    )


def test_nothing_to_count_is_no_error():
    outputs, labels = torch.zeros(2, 3, 2, 2), torch.full((2, 2, 2), IGNORED)
    for name, metric in METRICS.items():
        if metric.dense is not False:
            assert np.isfinite(metric.value(metric.sums(outputs, labels))), name


def test_nothing_is_worse_than_the_worst():
    outputs = torch.tensor([[1e30, 0.0]])
    for name in ("accuracy", "cross_entropy", "calibration_error"):
        metric = METRICS[name]
        assert metric.error(metric.value(metric.sums(outputs, torch.tensor([1])))) <= metric.error(metric.worst)


def test_errors_are_to_be_minimised():
    assert METRICS["accuracy"].error(0.9) == pytest.approx(0.1)
    assert METRICS["cross_entropy"].error(0.9) == 0.9
    for name, metric in METRICS.items():
        assert metric.error(metric.best) == 0, name
        assert metric.error(metric.worst) >= 1, name
