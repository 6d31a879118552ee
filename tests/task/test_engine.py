"""The engine: exact predictions under any grouping and order, shared work, bounded memory, failures with a reason."""

import numpy as np
import pytest
import timm
import torch
from conftest import IMAGE, seeded
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from pymoo_stitch import Engine, Link, Network, Supernet, Task

ANY = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="session")
def photos():
    return torch.rand(11, *IMAGE, generator=torch.Generator().manual_seed(5))


@pytest.fixture(scope="session")
def labels():
    return torch.randint(5, (11,), generator=torch.Generator().manual_seed(6))


def genotypes(supernet, seed, count, density=0.3):
    rng = np.random.default_rng(seed)
    return [supernet.subnetwork(rng.random(supernet.n_var) < density) for _ in range(count)]


def split_of(photos, labels):
    return Task(validation=(photos, labels))["validation"]


# ---------------------------------------------------------------------------------------------------------------- exact


@settings(ANY, max_examples=12)  # with each of three supernets
@given(seed=st.integers(0, 10**6), count=st.integers(1, 9), batch=st.integers(1, 11), density=st.floats(0.02, 0.6))
def test_grouped_is_single_to_the_bit_and_equals_the_module(supernet, photos, seed, count, batch, density):
    engine = Engine(batch_size=batch)
    subnetworks = genotypes(supernet, seed, count, density)
    together = engine.predict(subnetworks, photos)
    order = np.random.default_rng(seed).permutation(count)
    shuffled = dict(zip(order, Engine(batch_size=batch).predict([subnetworks[i] for i in order], photos), strict=True))
    for i, subnetwork in enumerate(subnetworks):
        (alone,) = engine.predict([subnetwork], photos)
        assert torch.equal(together[i], alone)
        assert torch.equal(together[i], shuffled[i])
        with torch.inference_mode():
            expected = subnetwork.module()(photos)
        torch.testing.assert_close(alone, expected, rtol=1e-4, atol=1e-4 * expected.abs().max().item())


@pytest.mark.parametrize("memory", [None, "single"])
def test_evaluations_are_the_same_in_groups_of_any_size(pool, photos, labels, memory):
    subnetworks = genotypes(pool, 1, 12)
    alone = [Engine(batch_size=4).evaluate([s], split_of(photos, labels), ["accuracy"])[0] for s in subnetworks]
    if memory:
        memory = max(plan.memory for s in subnetworks for plan in Engine(batch_size=4).plans([s]))
    engine = Engine(batch_size=4, memory=memory)
    together = engine.evaluate(subnetworks, split_of(photos, labels), ["accuracy"])
    assert [outcome.metrics for outcome in together] == [outcome.metrics for outcome in alone]
    assert [outcome.failed for outcome in together] == [""] * 12
    plans = list(engine.plans(subnetworks))
    assert sorted(number for plan in plans for number in plan.numbers) == list(range(12))
    assert all(plan.memory <= engine.memory for plan in plans)
    assert (len(plans) > 1) == (memory is not None)


def test_a_stitch_between_convolution_and_norm_reads_the_raw_tap(residual, gated, photos):
    """`stem.0` is a convolution whose norm is folded into it, and a stitch reads it, in an ensemble that uses both."""
    supernet = Supernet([residual, gated], [Link(residual.tap("stem.0"), gated.tap("right"))])
    ensemble = supernet.subnetwork([True, False, True])
    assert ensemble.n_stitches == 1
    (found,) = Engine().predict([ensemble], photos)
    with torch.inference_mode():
        torch.testing.assert_close(found, ensemble.module()(photos), rtol=1e-4, atol=1e-5)


def test_a_stitch_fitted_anew_is_used(pair, photos):
    supernet = Supernet(pair.networks, pair.links)
    subnetwork, engine = genotypes(supernet, 3, 1)[0], Engine()
    assert subnetwork.n_stitches
    (before,) = engine.predict([subnetwork], photos)
    supernet.fit(photos)
    (after,) = engine.predict([subnetwork], photos)
    assert not torch.equal(before, after)
    assert torch.equal(after, Engine().predict([subnetwork], photos)[0])
    subnetwork.retrain(photos, samples=22, labels=False)
    assert not torch.equal(after, engine.predict([subnetwork], photos)[0])
    assert torch.equal(after, engine.predict([supernet.subnetwork(subnetwork.x)], photos)[0])


class Norms(nn.Module):
    """Convolutions and norms in every relation: with bias, without affine, grouped, padded by name, read twice."""

    def __init__(self):
        super().__init__()
        self.a, self.norm_a = nn.Conv2d(3, 6, 3, padding="same"), nn.BatchNorm2d(6, affine=False)
        self.b, self.norm_b = nn.Conv2d(6, 6, 3, padding=1, groups=3, bias=False), nn.BatchNorm2d(6, eps=1e-2)
        self.c, self.norm_c = nn.Conv2d(6, 6, 1), nn.BatchNorm2d(6)
        self.norm_alone, self.head = nn.BatchNorm2d(6), nn.Linear(6 * 64, 5)

    def forward(self, x):
        x = self.norm_a(self.a(x)).relu()
        x = self.norm_b(self.b(x))
        y = self.c(x)
        x = self.norm_c(y) + y
        return self.head(self.norm_alone(x).flatten(1))


def test_folding_of_every_relation(photos):
    norms = Network.from_module(seeded(Norms, 3), torch.rand(1, *IMAGE), name="norms")
    supernet = Supernet([norms], [])
    (found,) = Engine().predict([supernet.subnetwork([])], photos)
    with torch.inference_mode():
        torch.testing.assert_close(found, norms.module()(photos), rtol=1e-4, atol=1e-5)
    (plan,) = Engine().plans([supernet.subnetwork([])])
    assert len(plan._steps) == len(norms.nodes) - 2  # two norms are folded; the third one's convolution is read as well
    assert plan.cost == norms.cost


class Positions(nn.Module):
    """A weight that comes first in a sum, and operations that give several tensors."""

    def __init__(self):
        super().__init__()
        self.pool, self.embed = nn.MaxPool2d(2, return_indices=True), nn.Linear(3, 6)
        self.positions, self.head = nn.Parameter(torch.randn(1, 16, 6)), nn.Linear(6, 5)

    def forward(self, x):
        x, _ = self.pool(x)
        x = self.positions + self.embed(x.flatten(2).transpose(1, 2))
        a, b = x.chunk(2, dim=1)
        return self.head((a.relu() * b).topk(3, dim=1).values.mean(1))


@pytest.fixture(scope="session")
def positions():
    return Network.from_module(seeded(Positions, 4), torch.rand(1, *IMAGE), name="positions")


@pytest.mark.parametrize("batch", [1, 2, 5])
def test_weights_are_never_written_over(positions, photos, batch):
    supernet = Supernet([positions], [])
    before = {name: weight.clone() for name, weight in positions.weights.items()}
    (found,) = Engine(batch_size=batch).predict([supernet.subnetwork([])], photos)
    with torch.inference_mode():
        torch.testing.assert_close(found, positions.module()(photos), rtol=1e-4, atol=1e-5)
    for name, weight in positions.weights.items():
        assert torch.equal(weight, before[name]), name


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    "test_vit test_convnext test_mambaout mobilenetv3_small_050 densenet121 ghostnet_050 "
    "regnety_002 swin_tiny_patch4_window7_224 vit_tiny_patch16_224 convnext_atto mobilevit_xxs coat_lite_tiny".split(),
)
def test_architectures_of_all_sorts(name):
    torch.manual_seed(0)
    module = timm.create_model(name).eval()
    images = torch.rand(3, *module.pretrained_cfg["input_size"])
    network = Network.from_module(module, images[:1])
    (found,) = Engine(batch_size=2).predict([Supernet([network], []).subnetwork([])], images)
    with torch.inference_mode():
        expected = module(images)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4 * max(1, expected.abs().max().item()))


# --------------------------------------------------------------------------------------------------------------- shared


def slow_cost(subnetworks):
    """Multiply-adds of a group by the obvious way: every step named by all that is computed before it. A convolution
    that a norm reads and a stitch as well is computed twice."""
    costs, readers = {}, {}
    for subnetwork in subnetworks:
        names = {}
        for step in subnetwork.steps():
            what = (step.network.name, step.node.name) if step.link is None else (step.link.stitch,)
            name = names[step.id] = (what, tuple(names[i] for i in step.reads.values()))
            costs[name] = step.cost
            for source in name[1]:
                readers.setdefault(source, set()).add("stitch" if step.link is not None else step.node.op)
    twice = [name for name, found in readers.items() if found >= {"stitch", "aten.batch_norm.default"}]
    return sum(costs.values()) + sum(costs[name] for name in twice)


@ANY
@given(seed=st.integers(0, 10**6), count=st.integers(1, 12), density=st.floats(0.02, 0.5))
def test_work_is_shared_as_far_as_it_is_the_same(pool, seed, count, density):
    subnetworks = genotypes(pool, seed, count, density)
    (plan,) = Engine(memory=2**40).plans(subnetworks)
    assert plan.cost == slow_cost(subnetworks)


def test_equal_subnetworks_cost_nothing_more(pair):
    x = np.zeros(pair.n_var, dtype=bool)
    (one,) = Engine().plans([pair.subnetwork(x)])
    (three,) = Engine().plans([pair.subnetwork(x)] * 3)
    assert one.cost == three.cost == pair.networks[0].cost


# --------------------------------------------------------------------------------------------------------------- memory


def measured(plan, images):
    """The most bytes alive at a time: the plan's steps by hand, looking at the memory behind every tensor held."""
    made, most = {0: images}, 0
    outside = images.untyped_storage().data_ptr()
    with torch.inference_mode():
        for run, reads, at, _, done in plan._steps:
            made[at] = run([made[i] for i in reads], len(images))
            tensors = [t for held in made.values() for t in (held if isinstance(held, (tuple, list)) else [held])]
            storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
            most = max(most, sum(size for pointer, size in storages.items() if pointer != outside))
            for i in done:
                del made[i]
    assert set(made) <= {0}
    return most


@ANY
@given(seed=st.integers(0, 10**6), count=st.integers(1, 9))
def test_memory_is_at_least_what_is_alive(supernet, photos, seed, count):
    (plan,) = Engine(batch_size=11, memory=2**40).plans(genotypes(supernet, seed, count))
    assert 0 < measured(plan, photos) <= plan.memory


def test_memory_of_operations_that_give_several_tensors(positions, photos):
    (plan,) = Engine(batch_size=11).plans([Supernet([positions], []).subnetwork([])])
    assert 0 < measured(plan, photos) <= plan.memory


def test_too_little_memory_for_one_is_an_outcome_and_fails_at_the_door(pair, photos, labels):
    engine = Engine(batch_size=8, memory=1_000)
    (outcome,) = engine.evaluate([pair.subnetwork(pair.references["gated"])], split_of(photos, labels), ["accuracy"])
    assert "1,000 are allowed" in outcome.failed
    with pytest.raises(ValueError, match="a smaller batch_size, smaller images, or allow more memory"):
        engine.check([pair.subnetwork(pair.references["gated"])])
    (plan,) = Engine(batch_size=8).plans([pair.subnetwork(pair.references["gated"])])
    with pytest.raises(ValueError, match="batch_size=4 or less"):
        Engine(batch_size=8, memory=plan.memory // 2 + 1).check([pair.subnetwork(pair.references["gated"])])


# ------------------------------------------------------------------------------------------------------------- failures


class Broken(nn.Module):
    def __init__(self, stitch, kind):
        super().__init__()
        self.stitch, self.kind = stitch, kind

    def forward(self, x):
        if self.kind == "raises":
            raise RuntimeError("out of order")
        return self.stitch(x) * float("nan")


@pytest.mark.parametrize(("kind", "reason"), [("raises", "RuntimeError: out of order"), ("nan", "it predicts NaN")])
def test_a_failure_is_an_outcome_with_a_reason_and_concerns_nobody_else(pair, photos, labels, kind, reason):
    supernet = Supernet(pair.networks, pair.links)
    subnetworks = genotypes(supernet, 7, 10)
    sound = Engine(batch_size=4).evaluate(subnetworks, split_of(photos, labels), ["accuracy", "cross_entropy"])
    name = next(s for s in subnetworks if s.n_stitches).links[0].stitch
    supernet.stitches[name] = Broken(supernet.stitches[name], kind).eval()
    outcomes = Engine(batch_size=4).evaluate(subnetworks, split_of(photos, labels), ["accuracy", "cross_entropy"])
    hit = [name in [link.stitch for link in s.links] for s in subnetworks]
    assert any(hit)
    assert not all(hit)
    for outcome, expected, is_hit in zip(outcomes, sound, hit, strict=True):
        assert outcome.failed == (reason if is_hit else "")
        assert outcome.metrics == ({"accuracy": 0.0, "cross_entropy": 100.0} if is_hit else expected.metrics)


class Hungry(nn.Module):
    """Has no memory for more than some images at a time."""

    given: list[int]  # of all copies

    def __init__(self, stitch, most):
        super().__init__()
        self.stitch, self.most, Hungry.given = stitch, most, []

    def forward(self, x):
        self.given.append(len(x))
        if len(x) > self.most:
            raise torch.OutOfMemoryError(f"no memory for {len(x)}")
        return self.stitch(x)


@pytest.mark.parametrize("most", [3, 1, 0])
def test_what_has_no_memory_for_a_batch_is_tried_alone_and_then_in_smaller_ones(pair, photos, labels, most):
    supernet = Supernet(pair.networks, pair.links)
    subnetworks = genotypes(supernet, 7, 10)
    sound = Engine(batch_size=8).evaluate(subnetworks, split_of(photos, labels), ["accuracy", "cross_entropy"])
    name = next(s for s in subnetworks if s.n_stitches).links[0].stitch
    supernet.stitches[name] = Hungry(supernet.stitches[name], most).eval()
    outcomes = Engine(batch_size=8).evaluate(subnetworks, split_of(photos, labels), ["accuracy", "cross_entropy"])
    hit = [name in [link.stitch for link in s.links] for s in subnetworks]
    for outcome, expected, is_hit in zip(outcomes, sound, hit, strict=True):
        assert outcome.failed == ("OutOfMemoryError: no memory for 1" if is_hit and not most else "")
        if not outcome.failed:
            assert outcome.metrics == pytest.approx(expected.metrics, abs=1e-5)
    assert min(Hungry.given) == max(1, min(most, 2))


def test_one_pass_over_the_data_whatever_the_groups(pool, photos, labels, monkeypatch):
    split, passes = split_of(photos, labels), []
    batches = split.batches
    monkeypatch.setattr(split, "batches", lambda *options: passes.append(options) or batches(*options))
    subnetworks = genotypes(pool, 1, 12)
    engine = Engine(
        batch_size=4, memory=max(plan.memory for s in subnetworks for plan in Engine(batch_size=4).plans([s]))
    )
    assert len(list(engine.plans(subnetworks))) > 1
    engine.evaluate(subnetworks, split, ["accuracy"])
    assert passes == [(4, None)]


def test_what_cannot_be_measured_is_said(pair, photos, labels):
    with pytest.raises(ValueError, match="no metric 'f1'; choose from accuracy"):
        Engine().evaluate(genotypes(pair, 1, 2), split_of(photos, labels), ["f1"])
    unlabelled = Task(validation=(photos, labels), calibration=photos)["calibration"]
    with pytest.raises(ValueError, match="calibration split has no labels"):
        Engine().evaluate(genotypes(pair, 1, 2), unlabelled, ["accuracy"])
    assert Engine().evaluate([], split_of(photos, labels), ["accuracy"]) == []


def test_ctrl_c_is_no_outcome(pair, photos, labels):
    class Interrupted(nn.Module):
        def forward(self, x):
            raise KeyboardInterrupt

    supernet = Supernet(pair.networks, pair.links)
    for name in supernet.stitches:
        supernet.stitches[name] = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        Engine().evaluate(genotypes(supernet, 7, 4), split_of(photos, labels), ["accuracy"])


def test_no_gradients_are_kept(pair, photos):
    (plan,) = Engine().plans(genotypes(pair, 2, 5))
    outputs = []
    plan.run(photos, lambda number, output: outputs.append(output))
    assert len(outputs) == 5
    assert all(output.is_inference() for output in outputs)


def test_uint8_images_are_divided_by_255(pair):
    pixels = torch.randint(256, (3, *IMAGE), dtype=torch.uint8)
    subnetworks = genotypes(pair, 2, 3)
    for a, b in zip(Engine().predict(subnetworks, pixels), Engine().predict(subnetworks, pixels / 255), strict=True):
        assert torch.equal(a, b)


def test_everything_is_on_the_engines_device(by_hand, photos):
    """As on a GPU, but nothing is computed: an operation on tensors of two devices would be refused."""
    (plan,) = Engine("meta").plans(genotypes(by_hand, 2, 8))
    outputs = []
    plan.run(photos.to("meta"), lambda number, output: outputs.append(output))
    assert {(output.device.type, tuple(output.shape)) for output in outputs} == {("meta", (11, 5))}


def test_a_metric_that_is_not_finite_is_a_failure(pair, photos, labels):
    supernet = Supernet(pair.networks, pair.links)
    with torch.no_grad():
        for parameter in supernet.stitches.parameters():
            parameter.fill_(1e30)
    subnetworks = [s for s in genotypes(supernet, 7, 10) if s.n_stitches]
    outcomes = Engine().evaluate(subnetworks, split_of(photos, labels), ["accuracy", "cross_entropy"])
    assert {outcome.failed for outcome in outcomes} <= {"", "it predicts NaN", "its cross_entropy is inf"}
    assert any(outcome.failed for outcome in outcomes)
    assert all(np.isfinite(list(outcome.metrics.values())).all() for outcome in outcomes)


@pytest.mark.parametrize("options", [{"batch_size": 0}, {"memory": 0}, {"memory": "2GB"}])
def test_bad_options(options):
    with pytest.raises(ValueError, match=f"{next(iter(options))} must be a whole number, at least 1"):
        Engine(**options)
