"""Variance restored: channels vary as much as what they replace, around the same mean; the degree is chosen by the
data."""

import numpy as np
import pytest
import torch
from conftest import IMAGE
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from pymoo_stitch import Link, Supernet
from pymoo_stitch.fitting import Execution, adapter_of
from pymoo_stitch.fitting.least_squares import _examples, _tried
from pymoo_stitch.fitting.restoring import LEAST, Restoration, distance, remaining_variance


def noise(number, seed=0):
    return torch.rand(number, *IMAGE, generator=torch.Generator().manual_seed(seed))


def fitted(supernet, images, **options):
    """The same supernet with stitches of its own, and the report on them."""
    supernet = Supernet(supernet.networks, supernet.links)
    return supernet, supernet.fit(images, progress=False, **options)


def outputs(supernet, images):
    """What each stitch gives and what it replaces, as rows of channels, by its name."""
    found = {}
    for number, source, target in Execution(supernet, torch.device("cpu")).taps(images):
        link = supernet.links[number]
        with torch.no_grad():
            given_ = supernet.stitches[link.stitch](source)
        found[link.stitch] = [
            (t.movedim(1, -1) if t.ndim == 4 else t).reshape(-1, link.target.channels) for t in (given_, target)
        ]
    return found


def test_restored_stitches_vary_as_much_as_what_they_replace_around_the_same_mean(pair):
    images = noise(2_000)
    plain, _ = fitted(pair, images, restore=0, positions=64)
    restored, report = fitted(pair, images, restore=1, positions=64)
    fresh = noise(1_000, seed=1)
    before, after = outputs(plain, fresh), outputs(restored, fresh)
    gains = []
    for name, error in report.errors.items():
        given_, target = after[name]
        live = target.std(0) > 1e-3
        if error > 0.95 or not live.any():
            continue
        shrunk = before[name][0].std(0)[live] / target.std(0)[live]
        ratio = given_.std(0)[live] / target.std(0)[live]
        assert (shrunk <= 1.1).all(), name
        if shrunk.median() < 0.9:  # of 64 images kept back, a channel's variance is known to a tenth or so
            gains.append(((ratio - 1).abs().median() / (shrunk - 1).abs().median()).item())
            assert gains[-1] < 1, name
        torch.testing.assert_close(given_.mean(0), before[name][0].mean(0), rtol=0.1, atol=0.1)
    assert len(gains) > 5
    assert np.median(gains) < 0.3


@pytest.mark.parametrize("degree", [0.0, 0.5, 1.0])
def test_a_stitch_is_scaled_by_the_root_of_what_is_left_to_any_degree_and_back(degree):
    torch.manual_seed(0)
    stitches = nn.ModuleDict({"a": nn.Conv2d(3, 4, 1), "b": nn.Linear(3, 4, bias=False)})
    before = {name: tensor.clone() for name, tensor in stitches.state_dict().items()}
    left, mean = torch.tensor([1.0, 0.25, 0.01, 0.5]), torch.arange(4.0)
    restoration = Restoration(stitches, dict.fromkeys(stitches, (left, mean)))
    restoration.restore(degree)
    scale = left ** (-degree / 2)
    torch.testing.assert_close(stitches["a"].weight.flatten(1), before["a.weight"].flatten(1) * scale[:, None])
    torch.testing.assert_close(stitches["a"].bias, mean + scale * (before["a.bias"] - mean))
    torch.testing.assert_close(stitches["b"].weight, before["b.weight"] * scale[:, None])
    restoration.restore(0.0)
    torch.testing.assert_close(dict(stitches.state_dict()), before)


@given(
    n=st.integers(2, 400), d=st.integers(1, 6), scale=st.floats(0, 3), centred=st.booleans(), seed=st.integers(0, 99)
)
@settings(deadline=None, max_examples=60)
def test_what_is_left_of_the_variance_is_between_its_limits_and_1_for_channels_that_do_not_vary(
    n, d, scale, centred, seed
):
    rng = torch.Generator().manual_seed(seed)
    expected = torch.randn(n, d, generator=rng)
    expected[:, 0] = 0
    left = remaining_variance(expected * scale, expected, centred)
    assert left.shape == (d,)
    assert left[0] == 1
    assert ((left >= LEAST) & (left <= 1)).all()
    torch.testing.assert_close(
        left[1:].float(), torch.full((d - 1,), min(max(scale**2, LEAST), 1.0)), rtol=1e-3, atol=1e-4
    )


def test_few_rows_draw_a_channel_towards_the_others():
    rng = torch.Generator().manual_seed(0)
    expected = torch.randn(4_000, 2, generator=rng)
    given_ = expected * torch.tensor([1.0, 0.1])
    many, few = remaining_variance(given_, expected), remaining_variance(given_[:8], expected[:8])
    assert many[1] < 0.02
    assert many[1] < 0.2 < few[1] < few[0]


@given(seed=st.integers(0, 99), scale=st.floats(0.01, 100), shift=st.floats(-10, 10))
@settings(deadline=None, max_examples=30)
def test_the_distance_of_class_scores_knows_no_scale(seed, scale, shift):
    scores, others = torch.randn(2, 20, 7, generator=torch.Generator().manual_seed(seed))
    assert distance(scores * scale + shift, scores).item() == pytest.approx(0, abs=1e-3)
    assert distance(scores * scale + shift, others).item() == pytest.approx(distance(scores, others).item(), abs=1e-3)
    assert distance(-scores, scores) > distance(others, scores) > 0.1


def test_the_degree_is_the_one_with_which_subnetworks_come_nearest_to_the_ensemble(pair):
    images = noise(160)
    supernet, report = fitted(pair, images)
    assert report.degree in (0.0, 0.5, 1.0)
    by_degree = {degree: fitted(pair, images, restore=degree)[0].stitches.state_dict() for degree in (0.0, 0.5, 1.0)}
    chosen = supernet.stitches.state_dict()
    for name, tensor in by_degree[report.degree].items():
        torch.testing.assert_close(chosen[name], tensor, rtol=1e-4, atol=1e-5)

    kept = _tried(images[::8], seen=140)
    assert len(kept) >= 4
    ensemble = supernet.subnetwork(supernet.references["ensemble"]).module()(kept)
    distances = {}
    for degree, stitches in by_degree.items():
        again = Supernet(pair.networks, pair.links, stitches=stitches)
        given_ = [subnetwork.module()(kept) for subnetwork in _examples(again, None, 4)]
        distances[degree] = np.mean([distance(output, ensemble).item() for output in given_])
    assert report.degree == min(distances, key=distances.get)


def test_stitches_that_explain_all_are_left_as_they_are(residual):
    supernet = Supernet([residual], [Link(residual.tap("relu"), residual.tap("relu"))])
    report = supernet.fit(noise(64), progress=False, restore=1)
    weight = adapter_of(next(iter(supernet.stitches.values()))).weight.flatten(1)
    live = weight.diagonal() > 0.5
    torch.testing.assert_close(weight[live][:, live], torch.eye(int(live.sum())), rtol=0, atol=1e-2)
    assert next(iter(report.variances.values())) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"restore": 1.5}, "restore must be a degree from 0 .* to 1, but is 1.5"),
        ({"restore": -1}, "restore must be a degree"),
        ({"ridge": -1e-3}, "ridge must be a fraction of the mean variance of a tap, such as 1e-3, but is -0.001"),
        ({"positions": 0}, "positions must be at least 1, but is 0"),
    ],
)
def test_options_outside_their_limits_are_refused(pair, options, message):
    with pytest.raises(ValueError, match=message):
        fitted(pair, noise(16), **options)


@pytest.mark.parametrize("kind", ["linear", "matrix"])
def test_vectors_of_means_and_maps_without_bias_are_restored_too(residual, gated, kind):
    links = [Link(residual.tap("relu"), gated.tap("mul"), kind), Link(residual.tap("relu"), gated.tap("view"), kind)]
    supernet = Supernet([residual, gated], links)
    powers = {}
    for degree in (0, 1):
        report = supernet.fit(noise(2_000), progress=False, restore=degree, positions=64)
        for name, (given_, target) in outputs(supernet, noise(500, seed=1)).items():
            centre = target.mean(0) * (kind == "linear")
            powers[degree, name] = (given_ - centre).square().mean() / (target - centre).square().mean()
    for name, variance in report.variances.items():
        assert variance < 1
        assert abs(powers[1, name] - 1) < max(0.1, 0.5 * abs(powers[0, name] - 1)), name


def test_stitches_across_sizes_and_layouts_are_restored_too(residual, gated, mixer):
    """From one size to another and from images to tokens; where the maps are resized first, what is left is taken after
    that."""
    links = [
        Link(residual.tap("down"), gated.tap("left")),
        Link(gated.tap("left"), residual.tap("down")),
        Link(gated.tap("left"), mixer.tap("norm")),
        Link(mixer.tap("norm"), gated.tap("left")),
    ]
    supernet = Supernet([residual, gated, mixer], links)
    ratios = {}
    for degree in (0, 1):
        report = supernet.fit(noise(2_000), progress=False, restore=degree, positions=64)
        for number, source, target in Execution(supernet, torch.device("cpu")).taps(noise(500, seed=1)):
            link = supernet.links[number]
            with torch.no_grad():
                ends = supernet.stitches[link.stitch](source), target
            given_, replaced = (t[:, 1:] if t.ndim == 3 else t.movedim(1, -1) for t in ends)  # no class token
            spread = [t.reshape(-1, link.target.channels).std(0) for t in (given_, replaced)]
            ratios[degree, link] = (spread[0] / spread[1]).median().item()
    assert report.degree == 1
    for link in supernet.links:
        assert ratios[0, link] < 0.9, link
        assert ratios[1, link] == pytest.approx(1, abs=0.15), link


def test_where_all_degrees_are_as_good_or_as_bad_variance_is_restored(pair):
    stitches = Supernet(pair.networks, pair.links).stitches
    restoration = Restoration(stitches, {})
    execution = Execution(pair, torch.device("cpu"))
    restoration.choose(execution, [], [noise(4)])
    assert restoration.degree == 1
    with torch.no_grad():
        for parameter in stitches.parameters():
            parameter.fill_(torch.nan)
    x = np.zeros(pair.n_var, dtype=bool)
    x[0] = True
    restoration.choose(execution, [pair.subnetwork(x)], [noise(4)])
    assert restoration.degree in (0.0, 1.0)


def test_the_degree_is_chosen_by_the_genotypes_given(pair, monkeypatch):
    tried = []
    monkeypatch.setattr(Restoration, "choose", lambda self, execution, some, batches: tried.extend(s.key for s in some))
    x = np.zeros(pair.n_var, dtype=bool)
    x[[2, 8]] = True
    fitted(pair, noise(16), genotypes=[x])
    assert tried == [pair.subnetwork(x).key]
    with pytest.raises(ValueError, match="genotypes is empty"):
        fitted(pair, noise(16), genotypes=[])
