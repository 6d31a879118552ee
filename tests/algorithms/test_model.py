"""The model of the error equals a slow and obvious one, and depends on the evaluations alone."""

import copy
import itertools
import pickle
import statistics

import numpy as np
import pytest
from binary_problems import TwoChains
from hypothesis import given, settings
from hypothesis import strategies as st

from pymoo_stitch.algorithms import model as module
from pymoo_stitch.algorithms.model import ESTIMATE_NOISE, NOISE, ErrorModel


def evaluated(n, depth=8, seed=0):
    """Genotypes, masks and errors of a synthetic stitching space."""
    problem = TwoChains(depth, seed=seed)
    x = np.random.default_rng(seed).random((n, problem.n_var)) < 0.3
    return x, np.array([problem.active(row) for row in x]), problem.f(x)[:, 1]


def taught(*rows):
    model = ErrorModel(rows[0].shape[1])
    for row in zip(*rows, strict=True):
        model.add(*row)
    return model


def bits(x, active):
    return [
        [float(a and b) for a, b in zip(x, active, strict=True)]
        + [float(a and not b) for a, b in zip(active, x, strict=True)]
    ]


def slow(x, active, errors, noises, points, tuned, new):
    """Mean and spread for new genotypes by the formulas, with dense inverses.

    :param noises: the variance of each evaluation that no decision explains.
    :param points: which evaluations the process holds, given how many there are.
    :param tuned: how many evaluations there were when length and slope were chosen.
    """
    z = np.array([bits(*row)[0] for row in zip(x, active, strict=True)])

    def kernel(a, b, length, slope):
        return 100 + slope * np.dot(a, b) / x.shape[1] + np.exp(-np.sum(a != b) / length)

    def fitted(n, pairs):
        held = points(n)
        y = np.log(errors[held] + 0.01)
        best = None
        for pair in pairs:
            k = np.array([[kernel(a, b, *pair) for b in z[held]] for a in z[held]]) + np.diag(noises[held])
            inverse = np.linalg.inv(k)
            variance = y @ inverse @ y / len(k)
            likelihood = -0.5 * np.linalg.slogdet(variance * k)[1]  # but for a constant
            if best is None or likelihood > best[0]:
                best = likelihood, pair, z[held], inverse, y, variance
        return best[1:]

    pair = fitted(tuned, itertools.product(module.LENGTHS, module.SLOPES))[0]
    _, held, inverse, y, variance = fitted(len(x), [pair])
    means, spreads = [], []
    for row in zip(*new, strict=True):
        b = np.array(bits(*row)[0])
        k = np.array([kernel(b, other, *pair) for other in held])
        logarithm = k @ inverse @ y
        means.append(np.exp(logarithm) - 0.01)
        left = kernel(b, b, *pair) + 1e-3 - k @ inverse @ k
        spreads.append(np.sqrt(max(0, variance * left)) * np.exp(logarithm))
    return means, spreads


@pytest.mark.parametrize(("n", "tuned"), [(50, 50), (70, 50), (80, 80), (110, 80)])
def test_predictions_equal_slow_ones(n, tuned):
    *rows, errors = evaluated(n)
    *new, _ = evaluated(6, seed=1)
    new[0][0], new[1][0] = rows[0][-1], rows[1][-1]  # one that is known
    noises = np.where(np.arange(n) % 3 == 1, ESTIMATE_NOISE, NOISE)
    noises[-1] = NOISE
    model = taught(*rows, errors, noises)
    mean, spread = model.predict(*new)
    expected = slow(*rows, errors, noises, np.arange, tuned, new)
    np.testing.assert_allclose(mean, expected[0], rtol=1e-6)
    np.testing.assert_allclose(spread, expected[1], rtol=1e-5)
    np.testing.assert_allclose(mean, model.mean(*new)[0], rtol=1e-12)
    assert abs(mean[0] - errors[-1]) < 0.01
    assert spread[0] < np.median(spread[1:])


def test_of_many_the_newest_and_those_of_least_error_are_held(monkeypatch):
    monkeypatch.setattr(module, "POINTS", 30)
    *rows, errors = evaluated(80)
    *new, _ = evaluated(6, seed=1)

    def points(n):
        others = sorted(range(n - 15), key=lambda i: errors[i])
        return sorted(others[:15]) + list(range(n - 15, n))

    expected = slow(*rows, errors, np.full(80, NOISE), points, 80, new)
    np.testing.assert_allclose(taught(*rows, errors).predict(*new), expected, rtol=1e-5)


@given(st.lists(st.integers(50, 400), min_size=1, max_size=6))
@settings(max_examples=10, deadline=None)
def test_when_it_was_asked_makes_no_difference(asked):
    rows, (*new, _) = evaluated(400), evaluated(4, seed=1)
    model = ErrorModel(rows[0].shape[1])
    for i, row in enumerate(zip(*rows, strict=True)):
        model.add(*row)
        if i + 1 in asked:
            model.mean(*new)
    np.testing.assert_array_equal(model.predict(*new), taught(*rows).predict(*new))


@pytest.mark.parametrize(
    "way", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))], ids=["deepcopy", "pickle"]
)
def test_a_copy_goes_its_own_way(way):
    rows, (*new, _) = evaluated(300), evaluated(4, seed=1)
    first, rest = [values[:120] for values in rows], [values[120:] for values in rows]
    model = taught(*first)
    before = model.predict(*new)
    other = way(model)
    for row in zip(*rest, strict=True):
        other.add(*row)
    np.testing.assert_array_equal(other.predict(*new), taught(*rows).predict(*new))
    np.testing.assert_array_equal(model.predict(*new), before)
    assert (len(model), len(other)) == (120, 300)


def test_no_spread_is_larger_than_it_can_be():
    model = taught(*evaluated(100))
    *new, _ = evaluated(200, seed=2)
    _, at_most = model.mean(*new)
    spread = model.predict(*new)[1]
    assert (spread <= at_most * (1 + 1e-9)).all()
    assert spread.max() > 0


def test_a_few_evaluations_do_not_make_it_sure_of_others():
    """With fewer evaluations than decisions there are effects that explain them all; predictions must not be taken
    for as good as that."""
    deviations = []
    for seed in range(6):
        problem = TwoChains(50, seed=seed)
        x = np.random.default_rng(seed).random((160, problem.n_var)) < 0.06
        active, errors = np.array([problem.active(row) for row in x]), problem.f(x)[:, 1]
        mean, spread = taught(x[:60], active[:60], errors[:60]).predict(x[60:], active[60:])
        deviations.append((np.log(errors[60:] + 0.01) - np.log(mean + 0.01)) / (spread / (mean + 0.01)))
    assert 0.5 < np.std(deviations) < 1.6


def test_quantiles_are_those_of_what_is_predicted():
    model = taught(*evaluated(100))
    *new, _ = evaluated(50, seed=2)
    errors, spreads = model.predict(*new)
    found = model.quantiles(*new)
    assert (np.diff(found, axis=1) > 0).all()
    np.testing.assert_allclose(found[:, found.shape[1] // 2], errors)
    deviations = np.log(found + module.OFFSET) - np.log(errors + module.OFFSET)[:, None]
    normal = statistics.NormalDist()
    expected = [normal.inv_cdf((i + 0.5) / found.shape[1]) for i in range(found.shape[1])]
    np.testing.assert_allclose(deviations, np.outer(spreads / (errors + module.OFFSET), expected), rtol=1e-6)


def test_it_predicts_what_was_not_evaluated():
    *rows, errors = evaluated(400, depth=20)
    *new, truth = (values[:200] for values in (*rows, errors))
    model = taught(*[values[200:] for values in (*rows, errors)])
    mean, spread = model.predict(*new)
    assert np.corrcoef(mean, truth)[0, 1] > 0.8
    assert 0.4 < np.mean(np.abs(mean - truth) <= spread) < 0.95


def test_negative_errors_are_refused():
    with pytest.raises(ValueError, match=r"the second objective is -0\.5\. Use screen=None"):
        taught(*[values[:1] for values in evaluated(1)[:2]], np.array([-0.5]))
