"""Linkage: mutual information and UPGMA equal slow and obvious ones, and the tree is a proper family of subsets."""

import math
from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pymoo_stitch.algorithms import linkage
from pymoo_stitch.algorithms.linkage import linkage_tree, normalized_mutual_information


@st.composite
def populations(draw, most=12):
    n, n_var, seed = draw(st.integers(1, 40)), draw(st.integers(1, most)), draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    x = rng.random((n, n_var)) < rng.random()
    copies = rng.integers(n_var, size=n_var)  # some variables follow others
    return np.where(rng.random(n_var) < 0.5, x[:, copies], x)


def entropy(values):
    counts = Counter(values).values()
    return -sum(c / len(values) * math.log(c / len(values)) for c in counts)


@given(populations())
@settings(max_examples=50, deadline=None)
def test_mutual_information_equals_its_definition(x):
    n = len(x)
    found = normalized_mutual_information(x)
    for a, b in combinations(range(x.shape[1]), 2):
        both = entropy(list(zip(x[:, a].tolist(), x[:, b].tolist(), strict=True)))
        mutual = entropy(x[:, a].tolist()) + entropy(x[:, b].tolist()) - both
        bound = min(linkage.SIGNIFICANT, n * math.log(2))
        if abs(2 * n * mutual - bound) > 1e-6:  # beside the bound, rounding decides
            expected = mutual / both if 2 * n * mutual > bound and both > 0 else 0
            assert found[a, b] == found[b, a] == pytest.approx(expected, abs=1e-7)


def naive_tree(x):
    """UPGMA by the book, as a set of subsets; assumes that no two merges tie."""
    varying = [i for i in range(x.shape[1]) if x[:, i].any() and not x[:, i].all()]
    similarity = normalized_mutual_information(x)
    clusters = [frozenset([i]) for i in varying]
    kept = set(clusters)
    while len(clusters) > 1:
        (a, b), best = max(
            (((a, b), np.mean([similarity[i, j] for i in a for j in b])) for a, b in combinations(clusters, 2)),
            key=lambda pair: pair[1],
        )
        clusters = [c for c in clusters if c not in (a, b)] + [a | b]
        if best > 1e-9 and len(clusters) > 1:
            kept.add(a | b)
            if best > 1 - 1e-9:
                kept -= {a, b}
    return kept


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=30, deadline=None)
def test_the_tree_equals_upgma_by_the_book(seed):
    rng = np.random.default_rng(seed)
    hidden = rng.random((60, 3)) < rng.uniform(0.3, 0.7, 3)
    x = hidden[:, rng.integers(3, size=9)] ^ (rng.random((60, 9)) < rng.uniform(0, 0.15, 9))
    similarity = normalized_mutual_information(x)[np.triu_indices(9, 1)]
    positive = similarity[similarity > 0]
    if len(np.unique(positive.round(9))) == len(positive):  # ties may be broken either way
        assert {frozenset(s.tolist()) for s in linkage_tree(x, rng)} == naive_tree(x)


@given(populations())
@settings(max_examples=100, deadline=None)
def test_the_tree_is_a_proper_family_of_subsets(x):
    subsets = [frozenset(s.tolist()) for s in linkage_tree(x, np.random.default_rng(0))]
    varying = {i for i in range(x.shape[1]) if x[:, i].any() and not x[:, i].all()}
    assert len(set(subsets)) == len(subsets)
    assert set().union(*subsets) == varying
    assert all(subsets)
    assert len(varying) < 2 or frozenset(varying) not in subsets
    for a, b in combinations(subsets, 2):
        assert a.isdisjoint(b) or a < b or b < a


def test_blocks_are_found_and_what_determines_one_another_is_not_split():
    rng = np.random.default_rng(1)
    x = np.repeat(rng.random((100, 4)) < 0.5, 3, axis=1)
    found = {frozenset(s.tolist()) for s in linkage_tree(x, rng)}
    assert found == {frozenset(range(3 * b, 3 * b + 3)) for b in range(4)}


def test_a_random_population_has_no_linkage():
    x = np.random.default_rng(1).random((200, 30)) < 0.5
    assert sum(len(s) > 1 for s in linkage_tree(x, np.random.default_rng(1))) <= 1


def test_ties_are_broken_at_random():
    x = np.random.default_rng(1).random((100, 1)) < 0.5
    x = x ^ np.eye(100, 6, dtype=bool)  # six variables, every two equally alike
    trees = {frozenset(frozenset(s.tolist()) for s in linkage_tree(x, np.random.default_rng(i))) for i in range(10)}
    assert len(trees) > 5
