"""Fitting: closed form equals brute force, learning learns, the networks never change, bad data is refused."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import IMAGE, Residual, imported, rows
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler, TensorDataset

from pymoo_stitch import Link, Network, Supernet
from pymoo_stitch.fitting import Execution, adapter_of, solve_factors, solve_rows, solving
from pymoo_stitch.fitting._batches import Data
from pymoo_stitch.fitting.genotypes import random_genotype
from pymoo_stitch.fitting.solving import (
    RIDGES,
    SAFE,
    Moments,
    NormalEquations,
    RowEquations,
    _gram,
    choose_ridge,
    pool,
)
from pymoo_stitch.supernet import FitReport

CPU = torch.device("cpu")


def noise(number, seed=0):
    return torch.rand(number, *IMAGE, generator=torch.Generator().manual_seed(seed))


def fresh(supernet):
    """The same supernet with stitches of its own, unfitted."""
    return Supernet(supernet.networks, supernet.links)


def tap_tensors(network, images):
    """Every tap's tensor, from the network's own module."""
    module = network.module()
    found = {}

    class Recorder(torch.fx.Interpreter):
        def run_node(self, n):
            result = super().run_node(n)
            if "node" in n.meta and isinstance(result, torch.Tensor):
                found[n.meta["node"].name] = result.clone()
            return result

    with torch.no_grad():
        Recorder(module).run(images)
    return found


def test_the_taps_of_all_links_are_the_networks_own_tensors(supernet, images):
    own = {network.name: tap_tensors(network, images) for network in supernet.networks}
    numbers = []
    for number, source, target in Execution(supernet, CPU).taps(images):
        link = supernet.links[number]
        numbers.append(number)
        torch.testing.assert_close(source, own[link.source.network][link.source.name])
        torch.testing.assert_close(target, own[link.target.network][link.target.name])
    assert numbers == list(range(len(supernet.links)))


@given(seed=st.integers(0, 1000))
@settings(deadline=None, max_examples=20)
def test_running_a_subnetwork_node_by_node_gives_what_its_module_gives(supernet, images, seed):
    """At once, or from what comes before its stitches, which no stitch is needed for."""
    subnetwork = supernet.subnetwork(random_genotype(supernet, np.random.default_rng(seed)))
    execution = Execution(supernet, CPU)
    with torch.no_grad():
        expected, before = subnetwork.module()(images), execution.before_stitches(subnetwork, images)
        assert torch.equal(execution.run(subnetwork, images, supernet.stitches), expected)
        assert torch.equal(execution.run(subnetwork, images, supernet.stitches, before), expected)
    assert before.keys().isdisjoint(subnetwork.after_stitches())


# -------------------------------------------------------------------------------------------------------- least squares


def by_lstsq(x, y):
    solution = torch.linalg.lstsq(torch.cat([x, torch.ones(len(x), 1, dtype=x.dtype)], 1), y).solution
    return solution[:-1].T, solution[-1]


def test_least_squares_recovers_a_known_affine_map():
    class Affine(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.map, self.head = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 7, 1), nn.Linear(7, 2)

        def forward(self, x):
            return self.head(torch.tanh(self.map(self.first(x))).mean((2, 3)))

    network = imported(Affine, "affine")
    supernet = Supernet([network], [Link(network.tap("first"), network.tap("map"))])
    report = supernet.fit(noise(100))
    stitch = next(iter(supernet.stitches.values()))
    torch.testing.assert_close(stitch.weight, network.weights["map.weight"], rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(stitch.bias, network.weights["map.bias"], rtol=1e-3, atol=1e-3)
    assert max(report.errors.values()) < 1e-6


@pytest.mark.parametrize("batch_size", [7, 64])
def test_least_squares_equals_lstsq_on_all_samples(pair, batch_size):
    supernet = fresh(pair)
    images = noise(64)
    held_out = set(range(0, 64, 8))
    used = images[[i for i in range(64) if i not in held_out]]
    supernet.fit(images, positions=10_000, ridge=1e-10, restore=0, batch_size=batch_size)
    own = {network.name: tap_tensors(network, used) for network in supernet.networks}
    for link in supernet.links:
        x, y = (rows(own[end.network][end.name]) for end in (link.source, link.target))
        weight, bias = by_lstsq(x, y)
        stitch = supernet.stitches[link.stitch]
        given_, best = (
            x @ w.flatten(1).double().T + b.double() for w, b in ((stitch.weight, stitch.bias), (weight, bias))
        )
        variances = torch.linalg.eigvalsh(torch.cov(x.T).reshape(x.shape[1], -1))
        # Where channels depend on each other, what lstsq gains from the rounding noise in float32 is no fit.
        tolerance = 1e-6 if variances[0] > 1e-9 * variances[-1] else 1e-3
        assert (given_ - y).square().mean() <= (1 + tolerance) * (best - y).square().mean() + 1e-12, str(link)


@pytest.mark.parametrize("kind", ["linear", "matrix"])
def test_least_squares_fits_a_matrix_without_bias_and_vectors_of_means(residual, gated, kind):
    images = noise(68)
    links = [Link(residual.tap("relu"), gated.tap("mul"), kind), Link(residual.tap("relu"), gated.tap("view"), kind)]
    supernet = Supernet([residual, gated], links)
    report = supernet.fit(list(images.split(7)), positions=10_000, ridge=1e-10, restore=0)
    assert all(np.isfinite(list(report.errors.values())))
    used = images[[i for i in range(68) if i % 8 != 7]]
    own = {network.name: tap_tensors(network, used) for network in supernet.networks}
    for link in supernet.links:
        x, y = (own[end.network][end.name] for end in (link.source, link.target))
        x, y = (x.mean((2, 3)).double(), y.double()) if y.ndim == 2 else (rows(x), rows(y))
        weight, bias = (torch.linalg.lstsq(x, y).solution.T, 0) if kind == "matrix" else by_lstsq(x, y)
        adapter = adapter_of(supernet.stitches[link.stitch])
        torch.testing.assert_close(adapter.weight.flatten(1).double(), weight, rtol=1e-3, atol=1e-3)
        assert adapter.bias is None if kind == "matrix" else torch.allclose(adapter.bias.double(), bias, atol=1e-3)


@given(n=st.integers(1, 12), c=st.integers(1, 12), d=st.integers(1, 5), centred=st.booleans(), seed=st.integers(0, 99))
@settings(deadline=None, max_examples=60)
def test_the_smaller_of_two_systems_has_the_solution_of_either(n, c, d, centred, seed):
    rng = torch.Generator().manual_seed(seed)
    x, y = (torch.randn(n, size, generator=rng, dtype=torch.float64) + 1 for size in (c, d))
    weight, bias = solve_rows(x, y, 1e-3, centred)
    deviations = [rows - rows.mean(0) for rows in (x, y)]
    moments = Moments(n, x.mean(0), y.mean(0), *(deviations[0].T @ rows / n for rows in deviations))
    torch.testing.assert_close(moments.equations(centred).weight(1e-3), weight)
    if n <= c:
        down, up, shift = solve_factors(x, y, 1e-3, centred)
        torch.testing.assert_close((up @ down, shift), (weight, bias))
        torch.testing.assert_close(down @ down.T, torch.eye(n, dtype=x.dtype))
    if not centred:
        assert not bias.any()
        weight, _ = solve_rows(x, y, 1e-12, centred)
        torch.testing.assert_close(weight, y.T @ torch.linalg.pinv(x.T), rtol=1e-3, atol=1e-3)  # [SF]: A = Yᵀ(Xᵀ)⁺


def test_few_samples_of_wide_taps_are_kept_as_they_are_with_the_same_result(residual, gated, monkeypatch):
    """From a dataset, whose length is known, the smaller system is solved; from batches the normal equations."""
    ends = residual.tap("relu"), gated.tap("mul")
    links = [Link(*ends), Link(*ends[::-1]), Link(ends[0], gated.tap("view"))]
    images = noise(8)
    kept, summed = (Supernet([residual, gated], links) for _ in range(2))
    options = {"positions": 1, "ridge": 1e-3, "restore": 0, "batch_size": 3}
    solved = []
    monkeypatch.setattr(
        RowEquations, "weight", lambda self, *a, of=RowEquations.weight: solved.append(self) or of(self, *a)
    )
    kept.fit(images, **options)
    assert solved
    solved.clear()
    order = [*range(1, 8), 0]  # of batches the eighth is kept back, of a dataset the first
    summed.fit([images[order]], **options)
    assert not solved
    assert min(link.source.channels for link in links) <= 7 < max(link.source.channels for link in links)
    for name, tensor in kept.stitches.state_dict().items():
        torch.testing.assert_close(tensor, summed.stitches.state_dict()[name], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("channels", [40, 80])
@pytest.mark.parametrize("noise_", [0.1, 0.001])
@pytest.mark.parametrize("ridge", RIDGES)
def test_rows_in_float32_of_correlated_channels_predict_as_least_squares_written_down_in_float64(
    channels, noise_, ridge
):
    """Both systems, at each ridge that is tried: wide products where they are needed."""
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(60, 10, generator=rng) @ torch.randn(10, channels, generator=rng)
    x, y = x + noise_ * torch.randn(60, channels, generator=rng), torch.randn(60, 5, generator=rng)
    x, y = x - x.mean(0), y - y.mean(0)
    wide = x.double(), y.double()
    matrix = wide[0].T @ wide[0] / 60
    penalty = ridge * matrix.diagonal().mean() * torch.eye(channels, dtype=torch.float64)
    weight = torch.linalg.solve(matrix + penalty, wide[0].T @ wide[1] / 60).T
    found = RowEquations(x, y).weight(ridge)
    assert found.dtype == (torch.float64 if ridge < SAFE else torch.float32)
    tolerance = 1e-4 if ridge < SAFE else 5e-4  # of a standard deviation
    torch.testing.assert_close(wide[0] @ found.double().T, wide[0] @ weight.T, rtol=0, atol=tolerance)


@given(n=st.integers(1, 700), c=st.integers(1, 4), seed=st.integers(0, 99))
@settings(deadline=None, max_examples=20)
def test_products_of_rows_are_those_below_the_diagonal(n, c, seed):
    rows_ = torch.randn(n, c, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    torch.testing.assert_close(_gram(rows_).tril(), (rows_ @ rows_.T).tril())
    torch.testing.assert_close(_gram(rows_.T).tril(), (rows_.T @ rows_).tril())


def test_a_fit_in_float32_where_that_is_safe_reports_what_one_in_float64_does(pair, monkeypatch):
    images, options = noise(16), {"positions": 2, "restore": 0}
    supernet, precise = fresh(pair), fresh(pair)
    used = []
    monkeypatch.setattr(
        RowEquations, "weight", lambda self, *a, of=RowEquations.weight: used.append(of(self, *a)) or used[-1]
    )
    report = supernet.fit(images, **options)
    assert torch.float32 in {weight.dtype for weight in used}
    used.clear()
    monkeypatch.setattr(solving, "SAFE", 1)
    expected = precise.fit(images, **options)
    assert {weight.dtype for weight in used} == {torch.float64}
    assert report.errors == pytest.approx(expected.errors, rel=1e-4)
    assert report.variances == pytest.approx(expected.variances, rel=1e-4)


@given(seed=st.integers(0, 999), parts=st.lists(st.integers(1, 9), min_size=1, max_size=4), centred=st.booleans())
@settings(deadline=None, max_examples=40)
def test_moments_of_parts_are_pooled_to_those_of_all(seed, parts, centred):
    rng = torch.Generator().manual_seed(seed)
    x, y = (torch.randn(sum(parts), size, generator=rng, dtype=torch.float64) + 2 for size in (4, 3))

    def moments(x, y):
        a, b = x - x.mean(0), y - y.mean(0)
        return Moments(len(x), x.mean(0), y.mean(0), a.T @ a / len(x), a.T @ b / len(x))

    whole = pool([moments(a, b) for a, b in zip(x.split(parts), y.split(parts), strict=True)])
    for name, value in vars(moments(x, y)).items():
        torch.testing.assert_close(getattr(whole, name), value)
    torch.testing.assert_close(whole.equations(centred).weight(1e-3), solve_rows(x, y, 1e-3, centred)[0])


@pytest.mark.parametrize(
    ("n", "signal", "least", "most"), [(30, 0.3, 1e-2, 1), (30, 1e-9, 1e-1, 1), (4_000, 0.3, 0, 1e-5)]
)
def test_the_ridge_is_the_one_that_misses_least_of_samples_kept_back(n, signal, least, most):
    rng = torch.Generator().manual_seed(0)
    truth = signal * torch.randn(5, 20, generator=rng, dtype=torch.float64)

    def draw(number):
        x = torch.randn(number, 20, generator=rng, dtype=torch.float64)
        return x, x @ truth.T + torch.randn(number, 5, generator=rng, dtype=torch.float64)

    (x, y), (kept_x, kept_y) = draw(n), draw(500)
    equations = NormalEquations(n, x.T @ x / n, x.T @ y / n)
    ridge = choose_ridge(equations, kept_x, kept_y)
    assert least <= ridge <= most
    if n < 100:
        missed = [(kept_x @ equations.weight(r).T - kept_y).square().sum() for r in RIDGES]
        assert ridge == RIDGES[int(np.argmin(missed))]
        assert ridge == choose_ridge(RowEquations(x, y), kept_x, kept_y)


def test_links_that_share_a_stitch_are_fitted_together(by_hand):
    supernet = fresh(by_hand)
    images = noise(8)
    supernet.fit(images, method="least-squares", positions=10_000, ridge=1e-10, restore=0)
    own = {network.name: tap_tensors(network, images[1:]) for network in supernet.networks}  # the first is kept back
    links = [link for link in supernet.links if link.stitch == "shared"]
    x, y = (
        torch.cat([rows(own[end.network][end.name]) for end in ends])
        for ends in zip(*((k.source, k.target) for k in links), strict=True)
    )
    weight, bias = by_lstsq(x, y)
    stitch = supernet.stitches["shared"]
    torch.testing.assert_close(stitch.weight.flatten(1).double(), weight, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(stitch.bias.double(), bias, rtol=1e-3, atol=1e-3)


def test_a_stitch_from_a_tap_to_itself_becomes_the_identity_on_live_channels():
    class Dying(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.head = nn.Conv2d(3, 5, 3), nn.Linear(5, 2)
            with torch.no_grad():
                self.conv.weight[2] = 0
                self.conv.bias.fill_(0.3)
                self.conv.bias[2] = -1  # never passes the ReLU

        def forward(self, x):
            return self.head(F.relu(self.conv(x)).mean((2, 3)))

    network = imported(Dying, "dying")
    supernet = Supernet([network], [Link(network.tap("relu"), network.tap("relu"))])
    supernet.fit(noise(100))
    stitch = supernet.stitches[supernet.links[0].stitch]
    live = [0, 1, 3, 4]
    weight = stitch.weight.flatten(1)
    torch.testing.assert_close(weight[live][:, live], torch.eye(4), rtol=0, atol=1e-3)
    torch.testing.assert_close(weight[2], torch.zeros(5))
    torch.testing.assert_close(stitch.bias, torch.zeros(5), rtol=0, atol=1e-3)


def test_fewer_samples_than_features_and_constant_taps_give_finite_stitches():
    class Wide(nn.Module):
        def __init__(self, scale):
            super().__init__()
            self.scale, self.up, self.head = scale, nn.Linear(3, 50), nn.Linear(50, 2)

        def forward(self, x):
            return self.head(self.up(x.mean((2, 3)) * self.scale))

    supernet = Supernet.build([imported(lambda: Wide(1.0), "live"), imported(lambda: Wide(0.0), "dead", 1)])
    report = supernet.fit(noise(20))
    assert all(tensor.isfinite().all() for tensor in supernet.stitches.state_dict().values())
    assert report.samples == 18
    constant = [link for link in supernet.links if link.target.network == "dead" and link.target.name != "mean"]
    assert [report.errors[link.stitch] for link in constant] == [0, 0]


def test_the_order_of_batches_matters_only_by_rounding(pair):
    first, second = fresh(pair), fresh(pair)
    batches = list(noise(8 * 6).split(8))  # the last of each is kept back
    first.fit(batches)
    second.fit(batches[::-1])
    for name, tensor in first.stitches.state_dict().items():
        torch.testing.assert_close(tensor, second.stitches.state_dict()[name], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("method", ["least-squares", "adam"])
@pytest.mark.parametrize("place", [0, 1])  # kept back, or not
def test_values_that_are_not_finite_name_the_tap(pair, method, place):
    images, options = noise(8), {} if method == "least-squares" else {"samples": 64}
    images[place, 0] = 3e38  # too large for a sum of them
    with pytest.raises(ValueError, match=r"the tap (residual:stem.0|gated:left|gated:mul) has NaN or infinite values"):
        fresh(pair).fit(images, method, **options)
    images[place, 0] = torch.nan
    with pytest.raises(ValueError, match="a batch that stitches are to be fitted on has images with NaN"):
        fresh(pair).fit(images, method, **options)


def test_positions_are_subsampled_to_the_budget(pair):
    few, all_ = fresh(pair), fresh(pair)
    images = noise(160)
    errors = [supernet.fit(images, positions=p).errors for supernet, p in ((few, 4), (all_, 10_000))]
    ratio = np.median([errors[0][name] / errors[1][name] for name in errors[0] if errors[1][name] > 1e-9])
    assert 1 <= ratio < 1.3


# ------------------------------------------------------------------------------------------------------------- learning


@pytest.mark.slow
def test_adam_comes_near_least_squares(pair):
    images = noise(256)
    exact, learned = fresh(pair), fresh(pair)
    best = exact.fit(images, positions=10_000)
    before = learned.fit(images, "adam", samples=1)
    after = learned.fit(images, "adam", samples=6_000, lr=1e-2)
    names = list(best.errors)
    assert np.median([after.errors[name] for name in names]) < 0.5 * np.median([before.errors[name] for name in names])
    assert np.median([best.errors[n] / after.errors[n] for n in names if after.errors[n] > 1e-6]) <= 1.001
    assert after.losses[-1] < after.losses[0]


def test_kinds_that_are_not_affine_are_fitted_by_adam_beside_least_squares(residual, gated):
    ends = residual.tap("relu"), gated.tap("mul")
    supernet = Supernet([gated, residual], [Link(*ends, kind) for kind in ("linear", "conv3x3", "bottleneck")])
    report = supernet.fit(noise(64), samples=320)
    assert report.method == "least squares and adam"
    assert set(report.errors) == set(supernet.stitches)
    assert not any(module.training for module in supernet.stitches.modules())
    with pytest.raises(ValueError, match=r"least squares fits affine kinds only, and the links are of \['conv3x3'\]"):
        Supernet([gated, residual], [Link(*ends, "conv3x3")]).fit(noise(8), "least-squares")


def divergence(supernet, images, genotypes):
    """How far the class probabilities of subnetworks are from the ensemble's."""
    with torch.no_grad():
        truth = supernet.subnetwork(supernet.references["ensemble"]).module()(images).softmax(1)
        given_ = [supernet.subnetwork(x).module()(images).log_softmax(1) for x in genotypes]
    return np.mean([F.kl_div(g, truth, reduction="batchmean").item() for g in given_])


def test_finetuning_brings_stitched_networks_nearer_to_the_ensemble(pair):
    supernet = fresh(pair)
    images = noise(256)
    supernet.fit(images)
    rng = np.random.default_rng(5)
    genotypes = [random_genotype(supernet, rng) for _ in range(20)]
    before = divergence(supernet, noise(200, seed=9), genotypes)
    report = supernet.finetune(images, samples=6_000, lr=3e-3)
    after = divergence(supernet, noise(200, seed=9), genotypes)
    assert np.mean(report.losses[-30:]) < np.mean(report.losses[:30])
    assert after < before


def test_finetuning_on_labels_needs_them(pair):
    supernet = fresh(pair)
    images, labels = noise(64), torch.arange(64) % 5
    assert supernet.finetune((images, labels), labels=True, distillation=0.0, samples=64).losses
    with pytest.raises(ValueError, match=r"labels=True needs batches of \(images, labels\)"):
        supernet.finetune(images, labels=True)
    with pytest.raises(ValueError, match="nothing to learn from"):
        supernet.finetune(images, distillation=0.0)


def test_one_subnetwork_is_retrained_without_touching_the_supernet(pair, images):
    supernet = fresh(pair)
    supernet.fit(noise(64))
    before = {name: tensor.clone() for name, tensor in supernet.stitches.state_dict().items()}
    x = np.zeros(supernet.n_var, dtype=bool)
    x[[2, 8]] = True
    subnetwork = supernet.subnetwork(x)
    module = subnetwork.module()
    report = subnetwork.retrain(noise(64), samples=640)
    assert np.mean(report.losses[-3:]) < np.mean(report.losses[:3])
    assert set(report.errors) == {link.stitch for link in subnetwork.links}
    assert not torch.equal(subnetwork.module()(images), module(images))
    assert torch.equal(supernet.subnetwork(x).module()(images), module(images))
    assert all(torch.equal(before[name], tensor) for name, tensor in supernet.stitches.state_dict().items())
    with pytest.raises(ValueError, match="uses no stitch"):
        supernet.subnetwork(np.zeros(supernet.n_var, dtype=bool)).retrain(noise(8))


def train(supernet, images, method, **options):
    """By a method of fitting, or by fine-tuning."""
    return supernet.finetune(images, **options) if method == "finetune" else supernet.fit(images, method, **options)


@pytest.mark.parametrize("method", ["least-squares", "adam", "finetune"])
def test_no_weight_or_statistic_of_a_network_ever_changes(pair, method):
    supernet = fresh(pair)
    before = [{k: v.clone() for k, v in network.weights.items()} for network in supernet.networks]
    train(supernet, noise(64), method, **({} if method == "least-squares" else {"samples": 64}))
    for network, weights in zip(supernet.networks, before, strict=True):
        assert all(torch.equal(weights[name], weight) for name, weight in network.weights.items())
        assert not any(weight.requires_grad for weight in network.weights.values())


@pytest.mark.parametrize("method", ["least-squares", "adam", "finetune"])
def test_the_same_seed_gives_the_same_stitches(pair, method):
    options = {} if method == "least-squares" else {"samples": 128, "seed": 3}
    results = []
    for _ in range(2):
        supernet = fresh(pair)
        train(supernet, noise(64), method, **options)
        results.append(supernet.stitches.state_dict())
    assert all(torch.equal(results[0][name], tensor) for name, tensor in results[1].items())


@pytest.mark.parametrize("method", ["least-squares", "adam", "finetune"])
def test_an_interrupted_fit_can_be_saved_and_continued(pair, method, tmp_path):
    supernet = fresh(pair)

    def batches():
        yield noise(8)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(supernet, batches(), method)
    assert not any(module.training for module in supernet.stitches.modules())
    assert all(parameter.grad is None for parameter in supernet.stitches.parameters())
    supernet.save(tmp_path / "file")
    again = Supernet.load(tmp_path / "file")
    options = {} if method == "least-squares" else {"samples": 64}
    assert train(again, noise(64), method, **options).errors


# ----------------------------------------------------------------------------------------------------------------- data


def test_images_may_come_in_many_ways(pair):
    images, labels = noise(32), torch.zeros(32, dtype=torch.long)
    dataset = TensorDataset(images, labels)
    forms = [
        images,
        (images, labels),
        dataset,
        DataLoader(dataset, batch_size=16),
        list(images.split(16)),
        (b for b in images.split(16)),
    ]
    for form in forms:
        report = fresh(pair).fit(form)
        assert 24 <= report.samples <= 28
        assert np.isfinite(list(report.errors.values())).all()
    assert fresh(pair).fit((b for b in images.split(16)), "adam").samples == 28  # an iterator is used up after one pass
    assert fresh(pair).fit(list(images.split(16)), "adam", samples=100).samples >= 100
    assert fresh(pair).fit(list(images.split(3)), "adam", samples=3).errors  # goes on until one is kept back


def test_few_images_give_as_many_rows_whatever_they_come_in(pair):
    dataset = TensorDataset(noise(32))
    loaders = {
        "whole": DataLoader(dataset, batch_size=6),
        "cut": DataLoader(dataset, batch_size=6, drop_last=True),  # 30 of 32
        "unknown": DataLoader(dataset, batch_sampler=BatchSampler(SequentialSampler(dataset), 6, drop_last=False)),
    }
    for name, positions in {"whole": 37, "cut": 38, "unknown": 16}.items():  # for 1,024 rows of 28 and 27 images
        by_default, expected = fresh(pair), fresh(pair)
        by_default.fit(loaders[name], restore=0)
        expected.fit(loaders[name], restore=0, positions=positions)
        for key, weight in expected.stitches.state_dict().items():
            torch.testing.assert_close(by_default.stitches.state_dict()[key], weight)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (
            torch.rand(8, 3, 8, 8).double(),
            r"fitted on has images of torch.float64; give float32 \(`.float\(\)`\) or uint8",
        ),
        (
            torch.rand(8, 3, 9, 9),
            r"has images of shape \(3, 9, 9\), but the networks were imported for \(3, 8, 8\). Resize",
        ),
        (torch.rand(7, 3, 8, 8), "only 7 images are given to fit the stitches on, but one in 8 is kept back"),
        (list(torch.rand(7, 3, 8, 8).split(3)), "only 7 images are given to fit the stitches on"),
        (torch.rand(1, 3, 8, 8), "only 1 image is given to fit the stitches on.* Give 8 or more"),
        (torch.rand(0, 3, 8, 8), "no images are given"),
        ([], "no images are given"),
        (["image.png"], "is a str, not a tensor of images"),
    ],
)
def test_images_that_do_not_fit_are_refused(pair, images, message):
    with pytest.raises(ValueError, match=message):
        fresh(pair).fit(images)


def test_bytes_are_images_between_0_and_1(pair):
    pixels = torch.randint(256, (24, *IMAGE), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    assert fresh(pair).fit(pixels).errors == fresh(pair).fit(pixels / 255).errors


def test_images_normalised_twice_are_refused(pair):
    unit = Supernet([replace(network, normalization=((0.5,) * 3,) * 2) for network in pair.networks], pair.links)
    with pytest.raises(ValueError, match=r"values from .* to 25.*, but the networks take images in \[0, 1\]"):
        unit.fit(torch.rand(24, *IMAGE) * 255)


def test_networks_of_which_only_some_normalise_are_warned_of_and_get_unit_images(pair):
    first, second = pair.networks
    mixed = Supernet([replace(first, normalization=((0.5,) * 3,) * 2), second], pair.links)
    with pytest.warns(
        UserWarning, match="residual normalises images in the graph, and gated takes them as the module does"
    ):
        mixed.fit(noise(8))
    with (
        pytest.warns(UserWarning, match="residual normalises"),
        pytest.raises(ValueError, match=r"but the networks take images in \[0, 1\]"),
    ):
        mixed.fit(noise(8) * 255)


def test_off_a_terminal_lines_say_how_far_it_is(pair, capsys):
    fresh(pair).fit(noise(64), batch_size=8)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "least squares: 0 of 56 images"
    assert lines[-1].startswith("least squares: 56 of 56 images, ")
    fresh(pair).fit(noise(64), progress=False)
    assert not capsys.readouterr().err


@pytest.mark.parametrize("sizes", [[64], [7, 7, 7, 7, 7], [1] * 20, [3, 30, 1, 9]])
def test_of_batches_every_eighth_image_is_kept_back(pair, sizes):
    images = noise(sum(sizes))
    data = Data(pair, list(images.split(sizes)), 32, CPU, False, "test")
    shown = torch.cat([batch for batch, _ in data.batches()])
    kept = torch.arange(sum(sizes)) % 8 == 7
    assert torch.equal(data.held_out, images[kept])
    assert torch.equal(shown, images[~kept])
    assert data.seen == len(shown)


def test_unknown_methods_and_options_are_refused(pair):
    with pytest.raises(ValueError, match="there is no method 'sgd' of fitting; choose from least-squares, adam"):
        pair.fit(noise(8), "sgd")
    with pytest.raises(TypeError, match="momentum"):
        pair.fit(noise(8), momentum=0.9)
    with pytest.raises(ValueError, match="must be at least 1, but are 0"):
        pair.fit(noise(8), batch_size=0)


def test_a_report_is_readable(pair):
    text = str(fresh(pair).fit(noise(64)))
    assert "relative error on held-out images" in text
    assert "stitches on 56 samples" in text
    assert "of 16 stitches explain at least half of their target's variance" in text
    assert "R², the variance of outputs over that of targets" in text
    report = FitReport("least squares", {"a": 0.1, "b": 0.95, "c": 7.0}, 8, 1.0, {"a": 0.9}, 0.5)
    assert "1 of 3 stitches explain at least half" in str(report)
    assert "hopeless, with errors above 0.9: 2 (c 7, b 0.95)" in str(report)
    assert "restored to degree 0.5" in str(report)
    assert "hopeless" not in str(replace(report, method="finetune"))
    assert "left as it is (degree 0)" in str(replace(report, degree=0.0))


def test_a_diverging_fit_says_what_to_do(pair):
    with pytest.raises(ValueError, match=r"the loss became .* Use a smaller lr than 1e\+30"):
        fresh(pair).fit(noise(64), "adam", lr=1e30)


def test_fitted_stitches_survive_on_networks_imported_again(tmp_path):
    networks = [imported(Residual, name) for name in ("one", "two")]
    supernet = Supernet.build(networks)
    report = supernet.fit(noise(64))
    assert isinstance(networks[0], Network)
    assert max(report.errors.values()) < 1e-4  # the same network twice: every stitch can be the identity
