"""CKA: what slow, obvious formulas say, and what it is for."""

import itertools

import numpy as np
import pytest
import torch
from conftest import IMAGE
from hypothesis import given
from hypothesis import strategies as st

from pymoo_stitch import CKA, Supernet, match
from pymoo_stitch.network import outputs_of
from pymoo_stitch.stitches import hsic


@pytest.fixture(scope="module")
def networks(pair):
    return pair.networks


@pytest.fixture(scope="module")
def images():
    return torch.rand(24, *IMAGE, generator=torch.Generator().manual_seed(1))


def u_statistic(k, m):
    """HSIC as the mean over all four different samples of what defines it."""
    terms = [k[i, j] * (m[i, j] + m[q, r] - 2 * m[i, q]) for i, j, q, r in itertools.permutations(range(len(k)), 4)]
    return np.mean(terms)


@given(st.integers(4, 6), st.integers(0, 99))
def test_hsic_is_the_u_statistic(n, seed):
    rng = np.random.default_rng(seed)
    kernels = np.array([x @ x.T for x in (rng.normal(size=(n, 3)), rng.normal(size=(n, 5)))])
    expected = [[u_statistic(a, b) for b in kernels] for a in kernels]
    assert np.allclose(hsic(kernels), expected)


def test_noise_is_not_alike_though_features_outnumber_samples():
    rng = np.random.default_rng(0)
    found, plain = [], []
    for _ in range(50):
        x, y = rng.normal(size=(2, 16, 500))
        estimate = hsic(np.array([x @ x.T, y @ y.T]))
        found.append(estimate[0, 1] / np.sqrt(estimate[0, 0] * estimate[1, 1]))
        centre = np.eye(16) - 1 / 16
        k, m = (centre @ z @ z.T @ centre for z in (x, y))
        plain.append((k * m).sum() / np.sqrt((k * k).sum() * (m * m).sum()))
    assert abs(np.mean(found)) < 0.05
    assert np.mean(plain) > 0.9  # what the unbiased estimator is for


def test_every_pair_is_what_its_features_say(networks, images):
    a, b = networks
    values = CKA(networks, images, batch_size=8)(a.taps, b.taps)
    features = [{name: output.flatten(1).double() for name, output in outputs_of(n, images)} for n in networks]
    for i, j in [(0, 0), (1, 2), (len(a.taps) - 1, len(b.taps) - 1), (3, 1)]:
        x, y = features[0][a.taps[i].name], features[1][b.taps[j].name]
        sums = np.zeros((2, 2))
        for at in range(0, 24, 8):
            sums += hsic(np.array([(z[at : at + 8] @ z[at : at + 8].T).numpy() for z in (x, y)]))
        assert values[i, j] == pytest.approx(sums[0, 1] / np.sqrt(sums[0, 0] * sums[1, 1]), abs=1e-6)


def test_the_networks_are_run_as_they_are(networks, images):
    for network in networks:
        outputs = dict(outputs_of(network, images))
        assert torch.equal(outputs[network.output], network.module()(images))


def test_alike_is_what_turns_and_stretches_alike(networks, images):
    a, b = networks
    similarity = CKA(networks, images, batch_size=12)
    assert np.allclose(np.diag(similarity(a.taps, a.taps)), 1)
    assert np.allclose(similarity(a.taps, b.taps), similarity(b.taps, a.taps).T)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(12, 6))
    turned = 3.0 * x @ np.linalg.qr(rng.normal(size=(6, 6)))[0] + 7
    estimate = hsic(np.array([x @ x.T, turned @ turned.T]))
    assert estimate[0, 1] / np.sqrt(estimate[0, 0] * estimate[1, 1]) == pytest.approx(1)


def test_matches_are_of_what_is_alike(networks, images):
    similarity = CKA(networks, images)
    by_depth, by_cka = match(networks), match(networks, weight=similarity)
    assert len(by_cka.matches) == len(by_depth.matches) == by_cka.bound

    def alike(matching):
        return sum(np.clip(similarity([a], [b]), 0, 1).item() for a, b in matching.matches)

    assert alike(by_cka) >= alike(by_depth)
    assert Supernet.build(networks, weight=similarity).n_matches == len(by_cka.matches)


def test_batches_and_bad_input(networks, images):
    cut = CKA(networks, list(images.split(8)))
    whole = CKA(networks, images, batch_size=8)
    taps = networks[0].taps
    assert np.array_equal(cut(taps, taps), whole(taps, taps))
    assert CKA(networks, images[:19], batch_size=8).batches == 2  # three images are too few for a batch
    with pytest.raises(ValueError, match="a batch of 4 images or more"):
        CKA(networks, images[:3])
    with pytest.raises(ValueError, match=f"not computed for {networks[1].name}:"):
        CKA(networks[:1], images)(taps, networks[1].taps)
