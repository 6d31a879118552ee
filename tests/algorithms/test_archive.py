"""The archive and the weights: brute force beside them."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from pymoo.core.individual import Individual

from pymoo_stitch.algorithms.archive import Archive
from pymoo_stitch.algorithms.scalarization import reassign, spread_weights, tschebysheff

points = st.lists(st.tuples(*[st.integers(0, 6)] * 3), min_size=1, max_size=30)


def dominates(a, b):
    return all(x <= y for x, y in zip(a, b, strict=True)) and a != b


@given(points, st.integers(0, 6))
@settings(max_examples=200, deadline=None)
def test_the_front_is_the_non_dominated_set_of_all_that_meet_the_slack(points, slack):
    archive = Archive(n_obj=2)
    for *f, violation in points:
        archive.insert(Individual(F=np.array(f, float)), violation)
    met = {tuple(f) for *f, violation in points if violation <= slack}
    expected = {a for a in met if not any(dominates(b, a) for b in met)}
    found = [tuple(member.F.astype(int).tolist()) for member in archive.front(slack)]
    assert set(found) == expected
    assert len(found) == len(expected)
    ideal = archive.ideal(slack)
    assert ideal is None if not met else ideal.tolist() == np.min(list(met), axis=0).tolist()


@given(points)
@settings(max_examples=100, deadline=None)
def test_members_are_the_non_dominated_ones_and_entering_says_so(points):
    archive = Archive(n_obj=2)
    seen = set()
    for point in points:
        entered = archive.insert(Individual(F=np.array(point[:2], float)), point[2])
        assert entered == (point not in seen and not any(dominates(other, point) for other in seen))
        seen.add(point)
    assert len(archive) == sum(not any(dominates(b, a) for b in seen) for a in seen)


@given(st.integers(2, 30), st.integers(0, 2**32 - 1))
@settings(max_examples=100, deadline=None)
def test_reassignment_is_a_bijection_and_the_axes_get_the_best(n, seed):
    rng = np.random.default_rng(seed)
    f, weights = rng.random((n, 2)), spread_weights(n, 2, rng)
    excess = np.where(rng.random(n) < 0.5, 0, rng.random(n))
    assigned = reassign(f, excess, weights, f.min(0), f.max(0), rng)
    assert sorted(assigned) == list(range(n))
    tolerated = np.flatnonzero(excess == 0)
    if len(tolerated) >= 3:
        for axis in range(2):
            weight = int(np.flatnonzero(weights[:, axis] == 1)[0])
            holder = np.flatnonzero(assigned == weight)[0]
            assert f[holder, axis] <= np.sort(f[tolerated, axis])[1]


def test_weights_are_even_and_hold_the_axes():
    weights = spread_weights(5, 2, np.random.default_rng(0))
    assert weights.tolist() == [[0, 1], [0.25, 0.75], [0.5, 0.5], [0.75, 0.25], [1, 0]]
    assert np.allclose(spread_weights(7, 3, np.random.default_rng(0)).sum(1), 1)


def test_tschebysheff_without_a_range_is_finite():
    f = np.array([[1.0, 2.0], [1.0, 3.0]])
    assert tschebysheff(f, np.array([0.5, 0.5]), f.min(0), f.max(0)).tolist() == [0, 0.5]
