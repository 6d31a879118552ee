"""Matching: as many matches as the orders allow, spread, acyclic, symmetric, injective."""

from functools import cache
from itertools import combinations, pairwise, permutations

import networkx as nx
import numpy as np
import pytest
import timm
import torch
import torchvision
from conftest import imported
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from pymoo_stitch import Network, Supernet, match
from pymoo_stitch.stitches.matching import align, both_ways, relative_depth


@st.composite
def two_orders(draw, most=5):
    """Which of two short orders are compatible, by a label each, and weights for all pairs."""
    a, b = (draw(st.lists(st.integers(0, 2), min_size=1, max_size=most)) for _ in range(2))
    compatible = np.array([[x == y for y in b] for x in a])
    seed = draw(st.integers(0, 2**32 - 1))
    return compatible, np.random.default_rng(seed).random(compatible.shape)


def every_alignment(compatible):
    rows, columns = compatible.shape
    for size in range(min(rows, columns) + 1):
        for i in combinations(range(rows), size):
            for j in combinations(range(columns), size):
                if compatible[i, j].all():
                    yield list(zip(i, j, strict=True))


@given(two_orders())
def test_an_alignment_equals_brute_force_over_the_same_orders(case):
    compatible, weight = case
    found = align(compatible, weight)
    best = max(every_alignment(compatible), key=lambda pairs: (len(pairs), sum(weight[pair] for pair in pairs)))
    assert len(found) == len(best)
    assert sum(weight[pair] for pair in found) == pytest.approx(sum(weight[pair] for pair in best))
    assert all(compatible[pair] for pair in found)
    assert all(i < k and j < m for (i, j), (k, m) in pairwise(found))


def test_no_sum_of_weights_outweighs_one_more_pair():
    compatible = np.ones((3, 3), dtype=bool)
    weight = np.zeros((3, 3))
    weight[0, 2] = 1.0  # alone it would leave room for nothing else
    assert align(compatible, weight) == [(0, 0), (1, 1), (2, 2)]


def random_dag(rng, size):
    graph = nx.DiGraph()
    graph.add_nodes_from(range(size))
    graph.add_edges_from((i, j) for i, j in combinations(range(size), 2) if rng.random() < 0.4)
    return graph


def contracted(first, second, pairs):
    """Both graphs with every matched pair made one node: what must stay acyclic."""
    merged = {("b", j): ("a", i) for i, j in pairs}
    graph = nx.DiGraph()
    for name, part in (("a", first), ("b", second)):
        for u, v in part.edges:
            graph.add_edge(merged.get((name, u), (name, u)), merged.get((name, v), (name, v)))
    return graph


def best_of_all_acyclic(first, second, compatible):
    rows, columns = compatible.shape
    for size in range(min(rows, columns), 0, -1):
        for i in combinations(range(rows), size):
            for j in permutations(range(columns), size):
                pairs = list(zip(i, j, strict=True))
                if compatible[i, j].all() and nx.is_directed_acyclic_graph(contracted(first, second, pairs)):
                    return size
    return 0


def test_the_gap_to_the_best_of_all_acyclic_matchings_is_small():
    rng = np.random.default_rng(0)
    gaps = []
    for _ in range(100):
        first, second = (random_dag(rng, rng.integers(2, 6)) for _ in range(2))
        labels = [rng.integers(0, 2, len(graph)) for graph in (first, second)]
        compatible = labels[0][:, None] == labels[1][None, :]
        found = align(compatible, np.zeros(compatible.shape))
        assert nx.is_directed_acyclic_graph(contracted(first, second, found))
        gaps.append(best_of_all_acyclic(first, second, compatible) - len(found))
    print(
        f"matches missed on {len(gaps)} pairs of random graphs: "
        f"{dict(zip(*np.unique(gaps, return_counts=True), strict=True))}"
    )
    assert min(gaps) >= 0
    assert np.mean(gaps) < 0.75


@settings(deadline=None, max_examples=20)
@given(st.permutations(["residual", "gated", "deep"]))
def test_matchings_are_acyclic_symmetric_and_injective_between_any_two(networks, order):
    chosen = [networks[name] for name in order]
    for pairs in ("neighbours", "all"):
        found = match(chosen, pairs=pairs)
        assert len(found.matches) + len(found.dropped) <= found.bound
        directions = {(link.source, link.target) for link in found.links}
        assert directions == {(b, a) for a, b in directions}
        for tap in {a for a, _ in directions}:
            partners = [target.network for source, target in directions if source == tap]
            assert len(partners) == len(set(partners))
        supernet = Supernet(chosen, found.links)  # an error if there were a cycle
        assert supernet.n_matches == len(found.matches)
        assert [network.name for network in supernet.networks] == order


@pytest.fixture(scope="session")
def networks(residual, gated, deep):
    return {network.name: network for network in (residual, gated, deep)}


def test_neighbours_in_cost_are_linked_whatever_the_order_given(networks):
    by_cost = sorted(networks.values(), key=lambda network: network.cost)
    cheap, middle, dear = (network.name for network in by_cost)
    linked = {frozenset((link.source.network, link.target.network)) for link in match([*networks.values()]).links}
    assert linked == {frozenset((cheap, middle)), frozenset((middle, dear))}
    linked = {frozenset((a.network, b.network)) for a, b in match([*networks.values()], pairs="all").matches}
    assert len(linked) == 3


@cache
def crossing():
    """Three networks whose pairwise alignments cannot all hold: the two branches run in opposite orders."""

    class Branches(nn.Module):
        def __init__(self, first, second, widths):
            super().__init__()
            self.order = first, second
            self.parts = nn.ModuleDict(
                {"a": nn.Conv2d(3, widths, 1), "b": nn.Conv2d(widths, widths, 3, stride=2, padding=1)}
            )
            self.parts["c"] = nn.ConvTranspose2d(widths, widths, 2, stride=2)
            self.head = nn.Linear(widths, 2)

        def forward(self, x):
            x = self.parts["a"](x)
            for name in self.order:
                x = self.parts[name](x)
            return self.head(x.mean((2, 3)))

    return [imported(lambda: Branches("b", "c", 3), "down"), imported(lambda: Branches("c", "b", 4), "up"),
            imported(lambda: Branches("b", "c", 6), "wide")]  # fmt: skip


def test_matches_that_would_close_a_cycle_are_dropped_and_listed():
    found = match(crossing(), pairs="all")
    assert len(found.matches) + len(found.dropped) == sum(
        len(match(pair).matches) for pair in combinations(crossing(), 2)
    )
    supernet = Supernet(crossing(), found.links, dropped=found.dropped)
    for a, b in found.dropped:
        assert f"{a} ↔ {b}" in str(supernet)
        with pytest.raises(ValueError, match="the links close a cycle"):
            Supernet(crossing(), [*found.links, *both_ways((a, b), "linear")])


def test_depth_spreads_the_matches_over_the_deeper_network():
    class Chain(nn.Module):
        def __init__(self, layers):
            super().__init__()
            self.layers = nn.ModuleList(nn.Conv2d(3, 3, 3, padding=1) for _ in range(layers))

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return x.mean((2, 3))

    short, long = (imported(lambda n=n: Chain(n), f"chain{n}") for n in (4, 12))
    found = [int(b.name.split(".")[1]) for _, b in match([short, long]).matches]
    assert found == [0, 4, 7, 11]
    early = match([short, long], weight=lambda a, b: np.zeros((len(a), len(b)))).matches
    assert [int(b.name.split(".")[1]) for _, b in early] == [0, 1, 2, 3]
    weights = relative_depth(short.taps, long.taps)
    assert (weights[0, 0], weights[0, -1], weights[-1, -1]) == (1, 0, 1)


def test_weights_that_are_not_finite_are_errors(residual, gated):
    with pytest.raises(ValueError, match="weights must be finite numbers"):
        match([residual, gated], weight=lambda a, b: np.full((len(a), len(b)), np.nan))
    with pytest.raises(TypeError, match="Network objects are matched, not Linear"):
        match([residual, nn.Linear(2, 2)])


def test_unknown_names_are_errors(residual, gated):
    with pytest.raises(ValueError, match="pairs must be 'neighbours' or 'all', but is 'every'"):
        match([residual, gated], pairs="every")
    with pytest.raises(ValueError, match=r"there is no kind of stitch 'cubic'; choose from .*linear"):
        match([residual, gated], kind="cubic")


# ---------------------------------------------------------------------------------------------------- published numbers


def timm_networks(*names):
    return [Network.from_module(timm.create_model(name), torch.rand(1, 3, 224, 224)) for name in names]


def check_matching(networks, expected):
    found = match(networks)
    Supernet(networks, found.links)
    assert len(found.matches) == found.bound == expected


@pytest.mark.slow
def test_resnet50_and_resnext50_have_174_matches():
    networks = timm_networks("resnet50", "resnext50_32x4d")
    assert networks[0].cost == 4_089_184_256
    check_matching(networks, 174)


@pytest.mark.slow
def test_resnet152_and_efficientnet_b4_have_227_matches():
    check_matching(timm_networks("resnet152", "efficientnet_b4"), 227)


class WithAuxiliary(nn.Module):
    """Both outputs in one tensor, so that the auxiliary head stays in the graph."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        outputs = self.module(x)
        return torch.cat([outputs["out"], outputs["aux"]], 1)


@pytest.mark.slow
@pytest.mark.parametrize(("auxiliary", "expected"), [(False, 53), (True, 59)])
def test_the_two_deeplabs_have_all_the_matches_there_can_be(auxiliary, expected):
    """53 in what reaches the main output; 4 more and two interpolations to full size, of which one is then no longer
    the excluded output, with the auxiliary heads: 58 as published but for that one."""
    names = ("deeplabv3_mobilenet_v3_large", "deeplabv3_resnet50")
    modules = [
        getattr(torchvision.models.segmentation, name)(weights=None, weights_backbone=None, aux_loss=True)
        for name in names
    ]
    modules = [WithAuxiliary(module) if auxiliary else module for module in modules]
    image = torch.rand(1, 3, 520, 520)
    check_matching([Network.from_module(m, image, name=n) for m, n in zip(modules, names, strict=True)], expected)
