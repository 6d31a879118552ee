"""The model of the error equals a slow and obvious one, and depends on the evaluations alone."""

import copy
import pickle
import statistics

import numpy as np
import pytest
from binary_problems import TwoChains
from hypothesis import given, settings
from hypothesis import strategies as st

from pymoo_stitch.algorithms import model as module
from pymoo_stitch.algorithms.model import ErrorModel


def evaluated(n, depth=8, seed=0):
    """Genotypes, masks, costs and errors of a synthetic stitching space."""
    problem = TwoChains(depth, seed=seed)
    x = np.random.default_rng(seed).random((n, problem.n_var)) < 0.3
    f = problem.f(x)
    return x, np.array([problem.active(row) for row in x]), f[:, 0], f[:, 1]


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


def slow(x, active, costs, errors, points, tuned, new):
    """Mean and spread for new genotypes by the formulas, with dense inverses.

    :param points: which evaluations the process holds, given how many there are.
    :param tuned: how many evaluations there were when the length was chosen.
    """
    scale = costs[: module.LEAST].max()

    def fitted(n, lengths):
        z = np.array(
            [
                [1.0, *bits(*row)[0], cost / scale]
                for row, cost in zip(zip(x[:n], active[:n], strict=True), costs[:n], strict=True)
            ]
        )
        y = np.log(errors[:n] + 0.01)
        w = np.linalg.solve(z.T @ z + np.diag([1e-6] + [1.0] * (z.shape[1] - 1)), z.T @ y)
        held = points(n)
        residual = (y - z @ w)[held]
        best = None
        for length in lengths:
            k = np.array([[np.exp(-np.sum(a != b) / length) for b in z[held, 1:-1]] for a in z[held, 1:-1]])
            k += 1e-3 * np.eye(len(k))
            variance = residual @ np.linalg.inv(k) @ residual / len(k)
            likelihood = -0.5 * np.linalg.slogdet(variance * k)[1]  # but for a constant
            if best is None or likelihood > best[0]:
                best = likelihood, length, w, z[held, 1:-1], np.linalg.inv(k), residual, variance
        return best[1:]

    length = fitted(tuned, module.LENGTHS)[0]
    _, w, held, inverse, residual, variance = fitted(len(x), [length])
    means, spreads = [], []
    for row, mask, cost in zip(*new, strict=True):
        b = bits(row, mask)[0]
        k = np.array([np.exp(-np.sum(np.array(b) != other) / length) for other in held])
        logarithm = np.array([1.0, *b, cost / scale]) @ w + k @ inverse @ residual
        means.append(np.exp(logarithm) - 0.01)
        spreads.append(np.sqrt(max(0, variance * (1 + 1e-3 - k @ inverse @ k))) * np.exp(logarithm))
    return means, spreads


@pytest.mark.parametrize(("n", "tuned"), [(50, 50), (70, 50), (80, 80), (110, 80)])
def test_predictions_equal_slow_ones(n, tuned):
    *rows, errors = evaluated(n)
    *new, _ = evaluated(6, seed=1)
    new[0][0], new[1][0], new[2][0] = rows[0][-1], rows[1][-1], rows[2][-1]  # one that is known
    mean, spread = taught(*rows, errors).predict(*new)
    expected = slow(*rows, errors, np.arange, tuned, new)
    np.testing.assert_allclose(mean, expected[0], rtol=1e-6)
    np.testing.assert_allclose(spread, expected[1], rtol=1e-5)
    np.testing.assert_allclose(mean, taught(*rows, errors).mean(*new), rtol=1e-12)
    assert abs(mean[0] - errors[-1]) < 0.01
    assert spread[0] < np.median(spread[1:])


def test_of_many_the_newest_and_those_of_least_error_are_held(monkeypatch):
    monkeypatch.setattr(module, "POINTS", 30)
    *rows, errors = evaluated(80)
    *new, _ = evaluated(6, seed=1)

    def points(n):
        others = sorted(range(n - 15), key=lambda i: errors[i])
        return sorted(others[:15]) + list(range(n - 15, n))

    expected = slow(*rows, errors, points, 80, new)
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


def test_no_spread_is_larger_than_the_largest():
    model = taught(*evaluated(100))
    *new, _ = evaluated(200, seed=2)
    mean, spread = model.predict(*new)
    assert (spread <= [model.largest_spread(error) * (1 + 1e-9) for error in mean]).all()
    assert spread.max() > 0


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
        taught(*[values[:1] for values in evaluated(1)[:3]], np.array([-0.5]))
