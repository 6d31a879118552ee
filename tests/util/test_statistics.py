"""Intervals and tests agree with scipy's, and hold their level where there is no difference."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, norm

from pymoo_stitch.util.statistics import Paired, bootstrap, decimals, mcnemar, paired_bootstrap, wilson


@given(st.integers(1, 5_000), st.floats(0, 1))
def test_wilson_is_scipys(n, fraction):
    successes = round(n * fraction)
    expected = binomtest(successes, n).proportion_ci(method="wilson")
    assert wilson(successes, n) == pytest.approx((expected.low, expected.high), abs=1e-12)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=80))
def test_mcnemar_is_the_binomial_test_of_those_that_differ(pairs):
    first, second = np.array(pairs).T
    found = mcnemar(first, second)
    won, lost = (first > second).sum(), (first < second).sum()
    assert found.p_value == (binomtest(won, won + lost, 0.5).pvalue if won + lost else 1)
    assert found.difference == pytest.approx(first.mean() - second.mean())
    assert found.low < found.difference < found.high
    other = mcnemar(second, first)
    assert (other.difference, other.low, other.high) == pytest.approx((-found.difference, -found.high, -found.low))


def right(rng, n, accuracy, disagreement):
    """Who of two networks of the same true accuracy is right on n images, and how often they disagree."""
    both = rng.random(n) < (accuracy - disagreement / 2) / (1 - disagreement)
    winner, differ = rng.random(n) < 0.5, rng.random(n) < disagreement
    return np.where(differ, winner, both), np.where(differ, ~winner, both)


def ratio(sums):
    return sums[:, 0] / sums[:, 1]


@pytest.mark.parametrize("n", [100, 500, 2_000])
@pytest.mark.parametrize("disagreement", [0.02, 0.06, 0.15])
def test_mcnemar_holds_its_level(n, disagreement):
    rng, rounds = np.random.default_rng(1), 400
    found = [mcnemar(*right(rng, n, 0.9, disagreement)) for _ in range(rounds)]
    assert sum(each.p_value < 0.05 for each in found) <= 0.06 * rounds
    assert sum(not each.low <= 0 <= each.high for each in found) <= 0.07 * rounds


def test_a_paired_bootstrap_holds_its_level():
    rng, rounds = np.random.default_rng(2), 200
    found = 0
    for _ in range(rounds):
        rows = [np.stack([each, np.ones(500)], 1) for each in right(rng, 500, 0.9, 0.1)]
        found += paired_bootstrap(*rows, ratio).p_value < 0.05
    assert found <= 0.06 * rounds


def test_a_bootstrap_of_means_is_near_the_normal_interval():
    rng = np.random.default_rng(3)
    values = rng.gamma(2, size=800)
    low, high = bootstrap(np.stack([values, np.ones(800)], 1), ratio)
    half = norm.ppf(0.975) * values.std() / np.sqrt(800)
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.1 * half)
    assert bootstrap(np.stack([values, np.ones(800)], 1), ratio) == (low, high)


@pytest.mark.parametrize("off", [0.0, 0.05])
def test_a_bootstrap_of_what_chance_makes_larger_covers_what_other_images_show(off):
    """As a calibration error is: the mean over bins of how far the bin is off."""
    rng, n, rounds = np.random.default_rng(4), 400, 200
    rows = rng.normal(off, 1, size=(rounds, n, 15))
    measured = np.abs(rows.mean(1)).mean(1)
    found = np.array([bootstrap(each, lambda sums: np.abs(sums / n).mean(1)) for each in rows])
    assert ((found[:, 0] < measured) & (measured < found[:, 1])).all()
    assert ((found[:, 0] < measured.mean()) & (measured.mean() < found[:, 1])).mean() >= 0.92


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6))
def test_a_difference_that_is_there_is_found(seed):
    rng = np.random.default_rng(seed)
    first, second = rng.random(2_000) < 0.95, rng.random(2_000) < 0.85
    assert mcnemar(first, second).verdict() == "better than"
    assert mcnemar(second, first).verdict() == "worse than"
    rows = [np.stack([each, np.ones(2_000)], 1) for each in (first, second)]
    assert paired_bootstrap(*rows, ratio).verdict() == "better than"
    assert paired_bootstrap(rows[0], rows[0], ratio).verdict() == "not distinguishable from"


def test_a_corrected_p_value_decides():
    found = Paired(0.01, 0.001, 0.02, 0.03)
    assert found.verdict() == "better than"
    assert found.verdict(0.09) == "not distinguishable from"


def test_as_many_decimals_are_shown_as_images_support():
    assert [decimals(n) for n in (50, 150, 1_200, 4_000, 50_000)] == [2, 3, 3, 3, 4]
    assert [decimals(n, paired=True) for n in (50, 150, 1_200, 50_000)] == [2, 3, 4, 5]
