"""Chains of fragments: composed, fitted, fused and searched as the slow and obvious way would."""

import math
import pickle
from itertools import permutations

import numpy as np
import pytest
import torch
import torchvision
from conftest import IMAGE, Residual, imported, rows, seeded
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from pymoo_stitch import Engine, Layout, Network, Pool, Switchable, Task, search_chains
from pymoo_stitch.fitting import adapter_of
from pymoo_stitch.fragments import fragments
from pymoo_stitch.fragments.fragment import follows
from pymoo_stitch.fragments.fusing import as_network, fused
from pymoo_stitch.network import INPUT, outputs_of
from pymoo_stitch.report import describe_subnetwork, draw_subnetwork
from pymoo_stitch.report.segments import segments

ANY = settings(max_examples=15, deadline=None)


class Plain(nn.Module):
    """Convolutions with and without padding, dropout, and two linear layers after a flattened image."""

    def __init__(self, width=5):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(width, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Dropout2d())
        self.third = nn.Sequential(nn.Conv2d(8, 6, 2), nn.ReLU())
        self.head = nn.Sequential(nn.Linear(6 * 9, 7), nn.Tanh(), nn.Dropout(), nn.Linear(7, 5))

    def forward(self, x):
        return self.head(self.third(self.second(self.first(x))).flatten(1))


class Shortcut(nn.Module):
    """A tensor that two convolutions read."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 7, 3, stride=2, padding=1)
        self.main, self.norm, self.side = nn.Conv2d(7, 9, 3, padding=1), nn.BatchNorm2d(9), nn.Conv2d(7, 9, 1)
        self.head = nn.Linear(9, 5)

    def forward(self, x):
        x = F.silu(self.stem(x))
        return self.head(F.relu(self.norm(self.main(x)) + self.side(x)).mean((2, 3)))


class Tokens(nn.Module):
    """Patches as tokens, as channels-last images and with a class token, all without a residual stream."""

    def __init__(self, width=6):
        super().__init__()
        self.patches, self.token = nn.Conv2d(3, width, 2, stride=2), nn.Parameter(torch.randn(1, 1, width))
        self.mix, self.norm = nn.Linear(width, width + 2), nn.LayerNorm(width + 2)
        self.down, self.up = nn.Conv2d(width + 2, width, 2, padding=1), nn.Linear(width, width)
        self.head = nn.Linear(width, 5)

    def forward(self, x):
        x = F.gelu(self.patches(x)).permute(0, 2, 3, 1)
        x = F.relu(self.down(self.norm(self.mix(x)).permute(0, 3, 1, 2))).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), torch.tanh(x)], 1)
        return self.head(F.gelu(self.up(x)).mean(1))


MAKERS = {"plain": Plain, "shortcut": Shortcut, "tokens": Tokens}
PHOTOS = torch.rand(24, *IMAGE, generator=torch.Generator().manual_seed(3))


@pytest.fixture(scope="module")
def networks():
    return [imported(make, name) for name, make in MAKERS.items()]


@pytest.fixture(scope="module", params=[False, True], ids=["matrix", "linear"])
def mixed(request, networks):
    return Pool(networks, PHOTOS, bias=request.param, positions=10_000, ridge=1e-9)


@pytest.fixture(scope="module", params=[False, True], ids=["matrix", "linear"])
def smooth(request, networks):
    """Of stitches with small weights, through which rounding errors do not grow."""
    return Pool(networks, PHOTOS, bias=request.param, ridge=1e-3)


def random_chain(pool, seed, restitch=False):
    rng = np.random.default_rng(seed)
    while True:
        chosen = [pool[pool.networks[rng.integers(len(pool.networks))].name][0]]
        while not chosen[-1].is_end:
            free = [f for f in pool.fragments if f not in chosen and pool.joins(chosen[-1], f)]
            if not free:
                break
            chosen.append(free[rng.integers(len(free))])
        if chosen[-1].is_end:
            return pool.chain(chosen, restitch=restitch)


def run(fragment, tensor):
    given_ = INPUT if fragment.first is None else fragment.first.name
    return dict(outputs_of(fragment.network, tensor, nodes=fragment.nodes, given=given_))[fragment.nodes[-1].name]


def original(fragment, images):
    """What a fragment reads in its own network."""
    return dict(outputs_of(fragment.network, images))[fragment.first.name]


# ------------------------------------------------------------------------------------------------------------ composing


def test_the_pool_has_cuts_of_every_sort(networks):
    layouts = [fragment.first.layout for network in networks for fragment in fragments(network)[1:]]
    assert set(layouts) == set(Layout) - {Layout.TOKENS}


def test_the_fragments_of_one_network_are_the_network(mixed):
    for network in mixed.networks:
        chain = mixed.chain(mixed[network.name])
        assert (chain.n_stitches, chain.cost, chain.outputs) == (0, network.cost, [network])
        assert torch.equal(chain.module()(PHOTOS), network.module()(PHOTOS))


@ANY
@given(seed=st.integers(0, 10**6), restitch=st.booleans())
def test_a_chain_is_its_fragments_and_stitches_one_behind_another(mixed, seed, restitch):
    chain = random_chain(mixed, seed, restitch)
    stitches, tensor = iter(chain.stitches.values()), PHOTOS
    with torch.no_grad():
        for previous, fragment in zip([None, *chain.fragments], chain.fragments, strict=False):
            if previous and (restitch or not follows(previous, fragment)):
                tensor = next(stitches)(tensor)
            tensor = run(fragment, tensor)
        torch.testing.assert_close(chain.module()(PHOTOS), tensor, rtol=1e-4, atol=1e-5)
    assert next(stitches, None) is None


@ANY
@given(seed=st.integers(0, 10**6), restitch=st.booleans())
def test_multiply_adds_are_those_of_the_module(mixed, seed, restitch):
    chain = random_chain(mixed, seed, restitch)
    module = chain.module()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        module(PHOTOS[:1])
    assert 2 * chain.cost == counter.get_total_flops()
    assert chain.cost <= mixed.max_cost


def test_nothing_is_computed_until_a_stitch_is_needed(networks):
    pool = Pool(networks, PHOTOS)
    chain = pool.self_stitched("plain")
    assert (len(chain.key), chain.active.all(), len(chain.links), chain.cost > 0) == (33, True, 4, True)
    assert len(list(chain.steps())) > 4
    assert not pool.beginnings._stitches
    assert not pool.beginnings._rows
    assert list(chain.stitches) == [link.stitch for link in chain.links]
    assert pool.beginnings._stitches


def test_one_module_switches_between_chains(mixed):
    chains = [random_chain(mixed, seed) for seed in range(6)]
    network = Switchable(chains)
    for i, chain in enumerate(chains):
        with torch.no_grad():
            assert torch.equal(network.select(i)(PHOTOS), chain.module()(PHOTOS))


def test_keys_tell_chains_apart_and_are_the_same_everywhere(networks):
    pool, same = Pool(networks, PHOTOS), pickle.loads(pickle.dumps(Pool(networks, PHOTOS)))
    chains = [random_chain(pool, seed) for seed in range(60)]
    names = {tuple(map(str, chain.fragments)) for chain in chains}
    assert len({chain.key for chain in chains}) == len(names) > 20
    assert [random_chain(same, seed).key for seed in range(60)] == [chain.key for chain in chains]
    assert pool.chain(pool["plain"]).key != pool.self_stitched("plain").key
    assert Pool(networks, PHOTOS, bias=True).chain(pool["plain"]).key != pool.chain(pool["plain"]).key


def test_a_genotype_of_ones_own(networks):
    pool = Pool(networks, PHOTOS)
    x, active = np.array([True, False]), np.array([True, True])
    chain = pool.chain(pool["plain"], x=x, active=active)
    assert (chain.x is x, chain.active is active, chain.key) == (True, True, pool.chain(pool["plain"]).key)


def test_chains_that_begin_alike_share_what_they_compute(mixed):
    engine, plain, tokens = Engine(), mixed["plain"], mixed["tokens"]
    beginning = [plain[0], plain[1], *mixed["shortcut"][1:2]]
    chains = [mixed.chain([*beginning, end]) for end in (mixed["shortcut"][2], tokens[-1], plain[-1])]
    (plan,) = engine.plans(chains)
    shared = sum(fragment.cost for fragment in beginning) + mixed.joints.cost(chains[0].links[0])
    assert plan.cost == sum(chain.cost for chain in chains) - 2 * shared
    for chain, output in zip(chains, engine.predict(chains, PHOTOS), strict=True):
        with torch.no_grad():
            torch.testing.assert_close(output, chain.module()(PHOTOS), rtol=1e-4, atol=1e-5)


def test_a_chain_is_described_drawn_and_exported_as_any_subnetwork(mixed, tmp_path):
    chain = mixed.chain([mixed["plain"][0], mixed["tokens"][1], mixed["shortcut"][-1]])
    assert sum(part.cost for part in segments(chain)) == chain.cost
    assert "stitch" in describe_subnetwork(chain)
    assert draw_subnetwork(chain)
    about = chain.export(tmp_path / "chain.pt2")
    assert (about["multiply_adds"], len(about["stitches"])) == (chain.cost, 2)
    with torch.no_grad():
        given_ = torch.export.load(tmp_path / "chain.pt2").module()(PHOTOS)
        torch.testing.assert_close(given_, chain.module()(PHOTOS), rtol=1e-4, atol=1e-5)


# -------------------------------------------------------------------------------------------------------------- fitting


@ANY
@given(seed=st.integers(0, 10**6))
def test_each_stitch_is_the_best_for_the_chain_before_it(smooth, seed):
    chain = random_chain(smooth, seed)
    tensor = PHOTOS
    for fragment, link in zip(chain.fragments, chain.joins, strict=True):
        if link is not None:
            stitch, truth = chain.stitches[link.stitch], original(fragment, PHOTOS)
            with torch.no_grad():
                if Layout.CLASS_TOKENS not in (link.source.layout, link.target.layout):
                    _check_best(adapter_of(stitch), link, tensor, truth, smooth.beginnings.ridge)
                tensor = stitch(tensor)
        tensor = run(fragment, tensor)


def _check_best(adapter, link, x, y, ridge):
    def image(tensor, tap):
        return tensor.movedim(-1, 1) if tap.layout is Layout.IMAGE_LAST else tensor

    source, truth = image(x, link.source), image(y, link.target)
    if truth.ndim == 2:
        source = source.mean((2, 3)) if source.ndim == 4 else source
    elif source.shape[2:] != truth.shape[2:]:
        source = F.interpolate(source, size=truth.shape[2:], mode="bilinear")
    a, b = rows(source), rows(truth)
    bias = adapter.bias is not None
    mean_a, mean_b = (a.mean(0), b.mean(0)) if bias else (0, 0)
    a, b = a - mean_a, b - mean_b
    more = (ridge * a.square().mean() * len(a)).sqrt() * torch.eye(a.shape[1])  # rows that ask for zero weights
    a, b = torch.cat([a, more]), torch.cat([b, b.new_zeros(a.shape[1], b.shape[1])])
    best = torch.linalg.lstsq(a, b).solution.T
    weight = adapter.weight.flatten(1).double()
    # Not the weights themselves: where channels hardly vary, rounding before the stitch makes others as good.
    least, found = ((a @ w.T - b).square().sum().item() for w in (best, weight))
    assert found <= 1.01 * least + 1e-6 * b.square().sum().item(), str(link)
    if bias:
        shift = mean_b - weight @ mean_a
        largest = max(1.0, shift.abs().max().item())
        torch.testing.assert_close(adapter.bias.double(), shift, rtol=1e-3, atol=1e-3 * largest, msg=str(link))


def test_stitches_are_the_same_in_any_order_in_any_process_and_with_any_memory(networks):
    pool, without_memory = Pool(networks, PHOTOS), Pool(networks, PHOTOS, memory=0)
    chains = [random_chain(pool, seed, restitch=seed % 2 == 0) for seed in range(12)]
    expected = [chain.stitches.state_dict() for chain in chains]
    copies = pickle.loads(pickle.dumps([*chains][::-1]))[::-1]
    assert len(pickle.dumps(pool)) < len(pickle.dumps(Pool(networks, PHOTOS))) + 1_000
    for i in reversed(range(12)):
        again = without_memory.chain(chains[i].fragments, restitch=i % 2 == 0)
        for found in (copies[i].stitches.state_dict(), again.stitches.state_dict()):
            assert list(found) == list(expected[i])
            assert all(torch.equal(found[name], tensor) for name, tensor in expected[i].items())
    assert not without_memory.beginnings._recent._held


def test_memory_is_bounded_and_what_is_in_use_is_not_fitted_twice(networks):
    pool = Pool(networks, PHOTOS, memory=50_000)
    chains = [random_chain(pool, seed) for seed in range(20)]
    for chain in chains:
        assert chain.stitches is not None
        assert sum(size for _, size in pool.beginnings._recent._held.values()) <= 50_000
    for chain in chains:
        again = pool.chain(chain.fragments)
        assert all(again.stitches[name] is stitch for name, stitch in chain.stitches.items())


def test_fitting_leaves_random_numbers_alone(networks):
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    assert Pool(networks, PHOTOS).self_stitched("plain").stitches
    assert torch.equal(torch.rand(1), expected)


def test_a_network_stitched_to_itself_is_nearly_the_network(mixed):
    for network in mixed.networks:
        chain = mixed.self_stitched(network.name)
        assert chain.n_stitches == len(mixed[network.name]) - 1
        expected = network.module()(PHOTOS)
        assert (chain.module()(PHOTOS) - expected).abs().max() < 1e-2 * expected.std()


@pytest.mark.parametrize("bias", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_stitches_of_wide_vectors_are_of_low_rank_and_fuse_into_one_layer(networks, bias):
    layers = nn.Conv2d(3, 800, 1), nn.ReLU(), nn.Flatten(), nn.Linear(51_200, 5)
    wide = imported(lambda: nn.Sequential(*layers), "wide")  # a whole matrix would take 10 GiB
    pool = Pool([wide, networks[0]], PHOTOS, bias=bias)
    for chosen in (pool["wide"], [*pool["plain"][:3], pool["wide"][1]], [pool["plain"][0], pool["wide"][1]]):
        chain = pool.chain(chosen, restitch=True)
        network = chain.fused()
        stitch = chain.stitches[chain.links[-1].stitch]
        assert sum(p.numel() for p in stitch.parameters()) <= 24 * 2 * 51_200 + 51_200
        with torch.no_grad():
            expected = chain.module()(PHOTOS)
            torch.testing.assert_close(network.module()(PHOTOS), expected, rtol=1e-4, atol=1e-4)
        last = chain.links[-1].stitch
        assert not [node for node in left_over(network) if node.name.split(".")[1] == last]
        assert network.nodes[-1].op == "aten.linear.default"
        assert not network.nodes[-2].name.startswith("stitches.") or network.nodes[-2].op == "aten.mean.dim"


def test_a_chain_that_overflows_is_a_failure_with_a_reason():
    class Loud(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.head = nn.Conv2d(3, 4, 1), nn.Conv2d(4, 4, 1), nn.Linear(4, 5)

        def forward(self, x):
            return self.head((self.second(self.first(x)) ** 15).mean((2, 3)))

    quiet, loud = imported(Loud, "quiet", 1), imported(Loud, "loud")
    loud.weights["second.bias"].fill_(1e6)
    pool = Pool([quiet, loud], PHOTOS)
    good, bad = pool.chain(pool["quiet"]), pool.chain([pool["loud"][0], pool["loud"][1], pool["quiet"][2]])
    into = pool.chain([pool["quiet"][0], pool["quiet"][1], pool["loud"][2]])
    split = Task(validation=(PHOTOS, torch.arange(24) % 5))["validation"]
    outcomes = Engine().evaluate([good, bad, into], split, ["accuracy"])
    assert [outcome.failed for outcome in outcomes] == ["", "it predicts NaN", "it predicts NaN"]


@pytest.mark.parametrize("bias", [False, True])
def test_without_ridge_or_memory_a_network_stitched_to_itself_is_itself(networks, bias):
    for name in ("plain", "shortcut"):
        pool = Pool(networks, PHOTOS, bias=bias, ridge=0, memory=0)
        with torch.no_grad():
            found, expected = pool.self_stitched(name).module()(PHOTOS), pool.chain(pool[name]).module()(PHOTOS)
        assert (found - expected).abs().max() < 1e-2 * expected.std()


# --------------------------------------------------------------------------------------------------------------- fusing


def left_over(network):
    return [n for n in network.nodes if n.name.startswith("stitches.") and n.op.split(".")[1] in ("conv2d", "linear")]


@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 10**6), restitch=st.booleans())
def test_a_fused_chain_gives_what_the_chain_gives(smooth, seed, restitch):
    chain = random_chain(smooth, seed, restitch)
    network = chain.fused("fused")
    with torch.no_grad():
        expected, found = chain.module()(PHOTOS), network.module()(PHOTOS)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4 * expected.abs().max().item())
    assert network.difference <= 1e-4 * expected.abs().max().item()
    assert not any(node.op == "aten.batch_norm.default" for node in network.nodes)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network.module()(PHOTOS[:1])
    assert 2 * network.cost == counter.get_total_flops()
    assert {node.name: node.shape[1:] for node in network.nodes} == {
        name: tuple(tensor.shape[1:]) for name, tensor in outputs_of(network, PHOTOS[:2])
    }
    class_tokens = [link for link in chain.links if link.target.layout is Layout.CLASS_TOKENS]
    tails = {link.stitch for link in class_tokens if link.source.layout is not Layout.CLASS_TOKENS}
    kept = {node.name.split(".")[1] for node in left_over(network)}
    padded = (
        {("plain", "first.2"), ("shortcut", "silu"), ("tokens", "norm")} if smooth.joints.kind == "linear" else set()
    )
    assert kept == {s.stitch for s in chain.links if s.stitch in tails or (s.target.network, s.target.name) in padded}


def test_a_fused_chain_is_a_network_like_any_other(mixed):
    chain = mixed.chain([mixed["plain"][0], *mixed["shortcut"][1:]])
    network = chain.fused()
    pool = Pool([network, *mixed.networks], PHOTOS)
    assert len(pool["chain"]) >= 3
    assert pool.self_stitched("chain").module()(PHOTOS).shape == (24, 5)
    assert Network.from_module(network.module(), PHOTOS, name="again").cost == network.cost


def test_a_chain_as_a_network_computes_the_same_to_the_bit(mixed):
    for seed in range(2):
        chain = random_chain(mixed, seed)
        network = as_network(chain, "whole")
        assert (network.cost, len(left_over(network))) == (chain.cost, chain.n_stitches)
        with torch.no_grad():
            assert torch.equal(network.module()(PHOTOS), chain.module()(PHOTOS))
        assert [node.name for node in fused(network).nodes if node.path is None] == []


def test_an_ensemble_does_not_become_a_network(pair):
    with pytest.raises(ValueError, match="is an ensemble: only what has one network's output becomes a network"):
        as_network(pair.subnetwork(pair.references["ensemble"]), "both")


# ------------------------------------------------------------------------------------------------------------ searching


def unbiased_cka(x, y):
    """As Song et al. write it down, from kernels without their diagonals."""

    def hsic(k, m):
        n = len(k)
        ones = torch.ones(n, dtype=torch.float64)
        trace = (k @ m).trace() + (ones @ k @ ones) * (ones @ m @ ones) / ((n - 1) * (n - 2))
        return (trace - 2 / (n - 2) * (ones @ k @ m @ ones)) / (n * (n - 3))

    k, m = (t.flatten(1).double() @ t.flatten(1).double().T for t in (x, y))
    k, m = (kernel - kernel.diag().diag() for kernel in (k, m))
    return (hsic(k, m) / (hsic(k, k) * hsic(m, m)).sqrt()).item()


def beginning_output(pool, chosen):
    """By an end that the chain does not have, or else as it is."""
    tensor = run(chosen[0], PHOTOS)
    for i, fragment in enumerate(chosen[1:], 1):
        if not follows(chosen[i - 1], fragment):
            stitch = pool.beginnings.stitch(pool.beginnings.prefix(chosen[: i + 1]))
            tensor = stitch(tensor)
        tensor = run(fragment, tensor)
    return tensor


@torch.no_grad()
def test_similarity_is_cka_of_the_chain_and_the_network(mixed):
    plain, shortcut, tokens = (mixed[name] for name in MAKERS)
    for chosen, candidate in [
        ([plain[0]], shortcut[1]),
        ([plain[0], shortcut[1]], plain[4]),
        ([tokens[0], plain[2]], tokens[2]),
    ]:
        expected = unbiased_cka(beginning_output(mixed, chosen), original(candidate, PHOTOS))
        assert mixed.similarity(chosen, candidate) == pytest.approx(expected, abs=1e-5)
    assert mixed.similarity(plain[:2], plain[2]) == pytest.approx(1)


@pytest.mark.parametrize("by", ["cka", "parameters", "cost"])
@pytest.mark.parametrize(("k", "threshold", "length"), [(2, 0.3, 4), (1, -9.0, 16), (3, 0.1, 3), (2, 1.5, 4)])
def test_the_search_finds_what_trying_everything_finds(networks, by, k, threshold, length):
    pool = Pool(networks[:2], PHOTOS)
    everything = [
        chosen
        for size in range(2, min(length, len(pool.fragments)) + 1)
        for chosen in permutations(pool.fragments, size)
        if chosen[0].is_start and chosen[-1].is_end and all(map(pool.joins, chosen, chosen[1:]))
    ]

    def ranks_and_score(chosen):
        """The rank of each choice among the candidates there were, and the product of their similarities, both None if
        the search would not have come here."""
        ranks, score = [pool.fragments.index(chosen[0])], 1.0
        for i in range(1, len(chosen)):
            candidates = [f for f in pool.fragments if pool.joins(chosen[i - 1], f) and f not in chosen[:i]]
            if i == length - 1:
                candidates = [f for f in candidates if f.is_end]
            value = {"cka": lambda f: -pool.similarity(chosen[:i], f)}.get(by, lambda f: getattr(f, by))  # noqa: B023
            ranks.append(sorted(candidates, key=value).index(chosen[i]))
            score *= pool.similarity(chosen[:i], chosen[i])
            if ranks[-1] >= k or score < threshold:
                return None
        return ranks, score

    expected = sorted(
        (found[0], names(chosen), found[1]) for chosen in everything if (found := ranks_and_score(chosen))
    )
    found = list(search_chains(Pool(networks[:2], PHOTOS), k=k, threshold=threshold, length=length, by=by))
    assert [(names(chain.fragments), score) for chain, score in found] == [item[1:] for item in expected]
    assert bool(found) is (threshold < 1)


def names(chosen):
    return [str(fragment) for fragment in chosen]


def test_the_search_is_lazy_and_begins_where_it_is_told(networks):
    pool = Pool(networks, PHOTOS)
    chains = search_chains(pool, start=pool["shortcut"][0], threshold=-math.inf, k=20, length=20)
    assert [names(next(chains)[0].fragments[:1]) for _ in range(5)] == [["shortcut[0]"]] * 5
    assert len(pool.beginnings._stitches) < 60


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_a_pool_is_a_space_in_which_a_chain_is_spelled_out(mixed, seed):
    chain = random_chain(mixed, seed)
    again = mixed.subnetwork(chain.x)
    assert (again.key, again.fragments) == (chain.key, chain.fragments)
    key, active, cost = mixed.outline(chain.x)
    assert (key, cost, active.all()) == (chain.key, chain.cost, True)
    stitched = mixed.self_stitched("plain")
    assert mixed.subnetwork(stitched.x).key == stitched.key != mixed.chain(mixed["plain"]).key
    for name, x in mixed.references.items():
        assert mixed.subnetwork(x).fragments == mixed[name]
    other = chain.x.copy()
    other[-1] = True  # a stitch before a fragment that is not there
    with pytest.raises(ValueError, match=r"spells no chain. Search the chains of a pool with ChainSpace"):
        mixed.subnetwork(other)
    with pytest.raises(ValueError, match="a chain goes from a network's first fragment"):
        mixed.subnetwork(np.zeros(mixed.n_var, dtype=bool))


# ------------------------------------------------------------------------------------------------------------ bad input


def test_chains_that_cannot_be_are_errors(networks):
    pool = Pool(networks, PHOTOS)
    plain, shortcut, tokens = (pool[name] for name in MAKERS)
    for chosen, message in [
        ([], "from a network's first fragment to a network's last, but nothing is given"),
        (plain[1:], r"from a network's first fragment to a network's last, but plain\[1\] "),
        (plain[:-1], r"from a network's first fragment to a network's last"),
        ([*plain[:2], plain[1], plain[-1]], r"plain\[1\] is given more than once"),
        ([plain[0], shortcut[0], plain[-1]], r"shortcut\[0\] cannot follow plain\[0\]: a first fragment has no input"),
        ([plain[0], plain[-1], tokens[-1]], r"tokens\[\d\] cannot follow plain\[\d\]: a first fragment has no input"),
        ([*plain[:3], shortcut[1], plain[-1]], r"no stitch leads from vector \(54,\) to image \(7, 4, 4\)"),
        ([*fragments(imported(Residual, "residual"))], r"residual\[0\] is not in this pool"),
    ]:
        with pytest.raises(ValueError, match=message):
            pool.chain(chosen)
    with pytest.raises(TypeError, match=r"a chain is made of fragments, such as pool\['name'\]\[0\], not of str"):
        pool.chain(["plain"])
    with pytest.raises(ValueError, match="fitted in closed form to the images of its pool, and not trained"):
        pool.chain(plain).retrain(PHOTOS)
    with pytest.raises(KeyError, match="there is no network 'simple' in the pool; choose from plain, shortcut, tokens"):
        pool["simple"]


def test_pools_that_cannot_be_are_errors(networks):
    other_task = imported(lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(144, 6)), "other")
    other_size = Network.from_module(seeded(Shortcut), torch.rand(1, 3, 9, 9), name="larger")
    for given_, message in [
        ([], "no network is given; a pool is made of one or more"),
        ([networks[0], networks[0]], "2 networks are named 'plain'. Give each its own name"),
        ([networks[0], other_task], r"the networks differ in output shape: plain \(5,\), other \(6,\)"),
        ([networks[0], other_size], r"the networks differ in input shape: plain \(3, 8, 8\), larger \(3, 9, 9\)"),
    ]:
        with pytest.raises(ValueError, match=message):
            Pool(given_, PHOTOS)
    with pytest.raises(TypeError, match="a pool is made of Network objects, not of Plain"):
        Pool([Plain()], PHOTOS)
    for images, message in [
        (PHOTOS[:0], "what stitches are to be fitted on has no images"),
        (PHOTOS[:, :, 1:], r"has images of shape \(3, 7, 8\), but the networks were imported for \(3, 8, 8\)"),
        (PHOTOS.double(), "has images of torch.float64"),
        ([1], "is a list, not a tensor of images"),
    ]:
        with pytest.raises(ValueError, match=message):
            Pool(networks, images)
    with pytest.raises(ValueError, match="positions must be at least 1, ridge and memory at least 0"):
        Pool(networks, PHOTOS, positions=0)
    normalised = Network.from_module(seeded(Plain), PHOTOS[:1], name="unit", normalize=((0.5,) * 3, (0.2,) * 3))
    with pytest.raises(ValueError, match=r"values from -1 to .*, but the networks take images in \[0, 1\]"):
        Pool([normalised], PHOTOS.clone().index_fill_(0, torch.tensor([0]), -1.0))


def test_searches_that_cannot_be_are_errors(networks):
    pool = Pool(networks, PHOTOS[:3])
    for options, message in [
        ({"k": 0}, "k and length must be at least 1, but are 0 and 16"),
        ({"by": "luck"}, "candidates are ranked by 'cka', 'parameters', 'cost', not by 'luck'"),
        ({"start": pool["plain"][1]}, r"such as plain\[0\], not with plain\[1\]"),
        ({}, "CKA needs 4 images or more, but the pool has 3"),
    ]:
        with pytest.raises(ValueError, match=message):
            next(search_chains(pool, **options))


def test_the_digest_names_what_chains_compute(networks):
    first = Pool(networks, PHOTOS)
    others = [
        Pool(networks, PHOTOS, bias=True),
        Pool(networks, PHOTOS[1:]),
        Pool(networks[:2], PHOTOS),
        Pool(networks, PHOTOS, ridge=1e-3),
        Pool(networks, PHOTOS, positions=4),
    ]
    assert Pool(networks, PHOTOS, memory=10).digest() == first.digest()
    assert len({pool.digest() for pool in [first, *others]}) == 6


def test_images_of_bytes_are_taken_as_the_engine_takes_them(networks):
    bytes_ = (PHOTOS * 255).to(torch.uint8)
    assert torch.equal(Pool(networks, bytes_).images, bytes_.float() / 255)


# ----------------------------------------------------------------------------------------------------------------- real


@pytest.mark.slow
@pytest.mark.parametrize("bias", [False, True])
def test_real_architectures_are_chained_and_fused(bias):
    images = torch.rand(6, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    names_ = ["alexnet", "densenet121", "mobilenet_v3_small", "resnet18", "resnext50_32x4d"]
    found = [
        Network.from_module(
            seeded(lambda name=name: getattr(torchvision.models, name)(weights=None)), images[:1], name=name
        )
        for name in names_
    ]
    pool = Pool(found, images, bias=bias, ridge=1e-2)  # six images: larger weights would let rounding errors grow
    for seed in range(8):
        chain = random_chain(pool, seed)
        network = chain.fused()
        with torch.no_grad():
            expected = chain.module()(images)
        assert network.difference <= 1e-4 * expected.abs().max().item(), str(chain)
        assert bias or not left_over(network)
