"""What images networks take, said once for fitting, pools and tasks."""

import numpy as np
import pytest
import torch
from conftest import IMAGE, Residual, seeded

from pymoo_stitch import Network
from pymoo_stitch.network import ImageLimits, are_unit_images, as_floats


@pytest.fixture(scope="module")
def unit():
    return Network.from_module(seeded(Residual), torch.rand(1, *IMAGE), name="unit", normalize=((0.5,) * 3, (0.2,) * 3))


def test_bytes_become_floats_in_the_unit_interval():
    pixels = torch.tensor([0, 51, 255], dtype=torch.uint8)
    assert as_floats(pixels).tolist() == pytest.approx([0, 0.2, 1])
    assert as_floats(pixels / 255).equal(pixels / 255)
    assert are_unit_images(pixels)
    assert are_unit_images(torch.tensor([-0.005, 1.005]))
    assert not are_unit_images(torch.tensor([0.0, 1.1]))


def test_what_networks_can_take(unit, residual):
    good = [torch.rand(2, *IMAGE), torch.randint(256, (1, *IMAGE), dtype=torch.uint8)]
    for images in good:
        assert ImageLimits.of([unit]).broken_by(images) is None
    assert ImageLimits.of([unit, residual]).broken_by(2 * good[0]) is None  # nothing is known of the second
    assert ImageLimits.of([unit]) == ImageLimits(IMAGE, True)


@pytest.mark.parametrize(
    ("images", "reason"),
    [
        ("cat.png", "is a str, not a tensor"),
        (np.zeros((1, *IMAGE)), "is a ndarray, not a tensor"),
        (torch.zeros(1, *IMAGE).double(), r"has images of torch.float64; give float32 \(`.float\(\)`\) or uint8"),
        (torch.zeros(1, *IMAGE).long(), "has images of torch.int64"),
        (torch.zeros(*IMAGE), r"has images of shape \(8, 8\), but the networks were imported for \(3, 8, 8\)"),
        (torch.zeros(0, *IMAGE), "has no images"),
        (torch.full((1, *IMAGE), torch.inf), "has images with NaN or infinite values"),
        (torch.full((1, *IMAGE), torch.nan), "has images with NaN or infinite values"),
        (torch.full((1, *IMAGE), 2.0), r"values from 2 to 2, but the networks take images in \[0, 1\]"),
    ],
)
def test_what_they_cannot(unit, images, reason):
    wrong = ImageLimits.of([unit]).broken_by(images)
    with pytest.raises(ValueError, match=reason):
        raise ValueError(wrong)
