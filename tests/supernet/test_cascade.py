"""Cascades: what they predict, defer and cost is what a slow, obvious implementation does; their files do the same."""

import copy
import json
import os

import numpy as np
import pytest
import torch
from conftest import IMAGE, imported
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from test_export import CLASSES, Segmenter
from torch import nn

from pymoo_stitch import ChainSpace, ClassMap, LinearProbe, Link, Pool, StitchProblem, Supernet, Task, read_about
from pymoo_stitch.supernet import Cascade, JointCosts
from pymoo_stitch.util.digests import digest

ANY = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="session")
def photos():
    return 2 * torch.rand(9, *IMAGE, generator=torch.Generator().manual_seed(5))


def subnetworks(space, seed, count, density=0.2):
    rng = np.random.default_rng(seed)
    return [space.subnetwork(rng.random(space.n_var) < density) for _ in range(count)]


# ------------------------------------------------------------------------------------------------ the slow, obvious way


def top(answer):
    probabilities = answer.softmax(1).max(1).values
    return probabilities.mean().item()


def answers(cascade, modules, image):
    """What the cascade would answer after each of its stages, for one image."""
    scores = []
    for stage, module in zip(cascade.stages, modules, strict=True):
        output = module(image[None])
        scores.append(output if stage.make_head is None else stage.make_head()(output))
        yield scores[-1] if cascade.combine == "last" else torch.stack(scores).mean(0)


@torch.no_grad()
def slowly(cascade, images):
    """Image by image: the answer, and at which stage it was found."""
    modules = [stage.module() for stage in cascade.stages]
    found = []
    for image in images:
        for number, answer in enumerate(answers(cascade, modules, image)):
            if number == len(modules) - 1 or top(answer) >= cascade.thresholds[number]:
                found.append((answer, number))
                break
    return torch.cat([answer for answer, _ in found]), np.array([number for _, number in found])


def costs_slowly(stages):
    """By the names of all that is computed, spelled out from the input on."""
    seen, costs = {}, []
    for number, stage in enumerate(stages):
        names = {}
        for step in stage.steps():
            what = step.link.stitch if step.link else f"{step.network.name} {step.node.name}"
            own = number if step.own or (step.link and stage.retrained) else ""
            names[step.id] = digest([repr([what, step.id, own, [names[i] for i in step.reads.values()]])])
            seen[names[step.id]] = step.cost
        costs.append(sum(seen.values()))
    return tuple(costs)


@torch.no_grad()
def thresholds_between(stages, combine, images, places):
    """For each stage but the last a threshold between the top probabilities of its answers, at that place of their
    order; None where that is so near to one of them that it depends on rounding."""
    whole = Cascade(stages, [1.0] * (len(stages) - 1), combine=combine)
    modules = [stage.module() for stage in stages]
    tops = np.array([[top(answer) for answer in answers(whole, modules, image)] for image in images])
    found = []
    for column, place in zip(np.sort(tops, axis=0).T, places, strict=False):
        edges = np.array([0.0, *column, 1.0])
        if edges[place + 1] - edges[place] < 1e-5:
            return None
        found.append((edges[place] + edges[place + 1]) / 2)
    return found


def check(cascade, images):
    expected, last = slowly(cascade, images)
    module = cascade.module()
    with torch.no_grad():
        found = module(images)
        alone = torch.cat([module(image[None]) for image in images])
        module(images)
    atol = 1e-4 * expected.abs().max().item()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=atol)
    torch.testing.assert_close(alone, expected, rtol=1e-4, atol=atol)
    assert module.deferred == tuple((last > stage).sum() for stage in range(len(cascade.stages) - 1))
    return module.deferred


# --------------------------------------------------------------------------------------------- predictions and deferral


@ANY
@given(
    seed=st.integers(0, 10**6),
    n_stages=st.integers(2, 3),
    combine=st.sampled_from(["mean", "last"]),
    places=st.tuples(st.integers(0, 9), st.integers(0, 9)),
    density=st.floats(0, 0.4),
)
def test_it_predicts_and_defers_what_the_slow_way_does(supernet, photos, seed, n_stages, combine, places, density):
    stages = subnetworks(supernet, seed, n_stages, density)
    thresholds = thresholds_between(stages, combine, photos, places[: n_stages - 1])
    assume(thresholds is not None)
    deferred = check(Cascade(stages, thresholds, combine=combine), photos)
    assert deferred[0] == places[0]


@pytest.mark.parametrize("size", [0, 1, 9])
@pytest.mark.parametrize(("threshold", "fraction"), [(0.0, 0), (1.0, 1)])
def test_none_and_all_of_a_batch_of_any_size_are_deferred(pool, photos, size, threshold, fraction):
    stages = [pool.subnetwork(x) for x in list(pool.references.values())[:3]]
    cascade = Cascade(stages, [threshold] * 2)
    module = cascade.module()
    outputs = module(photos[:size])
    assert outputs.shape == (size, 5)
    assert module.deferred == (fraction * size,) * 2
    if size:
        check(cascade, photos[:size])


def test_what_is_not_a_number_is_not_sure(pair):
    cascade = Cascade([pair.subnetwork(pair.references[name]) for name in ("gated", "residual")], [0.0])
    module = cascade.module()
    images = torch.full((2, *IMAGE), 0.5)
    images[1] = torch.nan
    module(images)
    assert module.deferred == (1,)


def test_the_whole_plain_cascade_is_the_ensemble(pair, photos):
    names = ("residual", "gated", "ensemble")
    residual, gated, ensemble = (pair.subnetwork(pair.references[name]) for name in names)
    cascade = Cascade([residual, gated], [1.0])
    torch.testing.assert_close(cascade.module()(photos), ensemble.module()(photos))
    assert cascade.worst_cost == ensemble.cost
    over = Cascade([residual, ensemble], [0.3], combine="last")
    torch.testing.assert_close(
        over.module()(photos), Cascade([residual, gated], [0.3]).module()(photos), rtol=1e-4, atol=1e-5
    )
    assert over.costs == cascade.costs


def test_later_stages_run_on_deferred_images_alone_and_on_what_was_computed(pair, photos):
    """Its stitch is the only part of the second stage that the first has not computed, up to where it enters."""
    ensemble = pair.subnetwork(pair.references["ensemble"])
    last = max(range(len(pair.links)), key=lambda i: pair.switch_places()[i])
    x = pair.references["ensemble"].copy()
    x[last] = True
    stitched = pair.subnetwork(x)
    module = Cascade([ensemble, stitched], [0.3]).module()
    seen = []
    module.stages[1].register_forward_pre_hook(lambda stage, tensors: seen.extend(len(each) for each in tensors))
    module(photos)
    assert set(seen) <= {module.deferred[0]}
    computed = [node for node in module.stages[1].graph.nodes if node.op == "call_function"]
    assert 0 < len(computed) < len(list(stitched.steps())) / 2


def test_outputs_per_pixel_are_deferred_by_their_mean(photos):
    supernet = Supernet.build([imported(Segmenter, "one"), imported(lambda: Segmenter(6), "two", seed=1)])
    stages = [supernet.subnetwork(supernet.references[name]) for name in ("one", "two")]
    (threshold,) = thresholds_between(stages, "mean", photos, [4])
    cascade = Cascade(stages, [threshold])
    assert check(cascade, photos) == (4,)


@pytest.mark.parametrize("head", [ClassMap([[0, 1], 3, 4]), LinearProbe()])
def test_heads_score_what_is_decided(pair, photos, head):
    labels = torch.arange(9) % 3
    task = Task(validation=(photos, labels), calibration=(photos, labels), head=head)
    problem = StitchProblem(pair, task)
    stages = [problem.subnetwork(pair.references[name]) for name in ("gated", "residual")]
    thresholds = thresholds_between(stages, "mean", photos, [3])
    cascade = Cascade(stages, thresholds)
    assert check(cascade, photos) == (3,)
    assert cascade.module()(photos).shape == (9, 3)
    with pytest.raises(ValueError, match=r"stage 2 has no head"):
        Cascade([stages[0], pair.subnetwork(stages[1].x)], thresholds)


def test_stitches_and_statistics_of_its_own_stay_with_a_stage(pair, photos):
    x = next(x for x in pair.one_stitch() if pair.subnetwork(x).norms_after_stitches())
    plain, retrained, recalibrated = (pair.subnetwork(x) for _ in range(3))
    retrained.retrain(photos, samples=16, progress=False)
    recalibrated.recalibrate(photos, progress=False)
    stages = [plain, retrained, recalibrated]
    cascade = Cascade(stages, [1.0, 1.0])
    check(cascade, photos)
    assert cascade.costs == costs_slowly(stages)
    assert cascade.costs[0] < cascade.costs[1] < cascade.costs[2]
    assert Cascade([plain, plain], [1.0]).costs == (plain.cost, plain.cost)


def test_chains_are_stages(residual, gated, photos):
    space = ChainSpace(Pool([residual, gated], photos))
    stages = [space.subnetwork(space.references["gated"]), space.subnetwork(space.one_stitch()[0])]
    check(Cascade(stages, [1.0]), photos)


class Halves(nn.Module):
    """Two halves of the channels, and windows that are folded into the batch and meet a gate there."""

    def __init__(self):
        super().__init__()
        self.one, self.gate = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(3, 4, 3, padding=1)
        self.mix, self.head = nn.Linear(8, 8), nn.Linear(4, 5)

    def forward(self, x):
        left, right = self.one(x).chunk(2, 1)
        both = torch.cat([left.relu(), right.tanh()], 1)
        windows = self.mix(both.permute(0, 2, 3, 1).reshape(-1, 16, 8))
        gate = self.gate(x).sigmoid()
        mixed = windows[..., :4] * gate.permute(0, 2, 3, 1).reshape(-1, 16, 4)
        return self.head(mixed.reshape(x.shape[0], -1, 4).mean(1))


def test_what_cannot_be_kept_is_computed_again_where_that_is_free(residual, photos):
    halves = imported(Halves, "halves")
    source = residual.tap("stem.2")
    supernet = Supernet([halves, residual], [Link(source, halves.tap("relu")), Link(source, halves.tap("sigmoid"))])
    plain, branch, gate = (supernet.subnetwork(x) for x in ([0, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0]))
    # The second stage reads the left half, of two of which the first has computed, but not read, one.
    check(Cascade([branch, plain], [1.0]), photos)
    # It reads windows that are multiplied with another gate: images cannot be told apart in them.
    with pytest.raises(ValueError, match=r"stage 2 needs mix of halves, .* cannot be told apart"):
        Cascade([plain, gate], [1.0]).module()


def test_a_module_holds_each_weight_once(pair):
    residual, gated, ensemble = (pair.subnetwork(x) for x in pair.references.values())
    module = Cascade([residual, ensemble, gated], [0.5, 0.5]).module()
    count = sum(weight.numel() for weight in module.parameters())
    single = sum(weight.numel() for weight in Cascade([residual, gated], [0.5]).module().parameters())
    assert count == single
    x = pair.one_stitch()[0]
    before = {name: tensor.clone() for name, tensor in pair.stitches.state_dict().items()}
    own = Cascade([pair.subnetwork(x), ensemble], [0.5]).module()
    with torch.no_grad():
        for weight in own.parameters():
            weight.zero_()
    assert all(torch.equal(tensor, before[name]) for name, tensor in pair.stitches.state_dict().items())
    assert not own.training


# ----------------------------------------------------------------------------------------------------------------- cost


@ANY
@given(seed=st.integers(0, 10**6), n_stages=st.integers(2, 4), density=st.floats(0, 0.5))
def test_its_cost_is_that_of_the_union_of_steps(supernet, seed, n_stages, density):
    stages = subnetworks(supernet, seed, n_stages, density)
    cascade = Cascade(stages, [0.5] * (n_stages - 1))
    assert cascade.costs == costs_slowly(stages)
    assert cascade.costs[0] == stages[0].cost
    assert cascade.worst_cost == cascade.costs[-1] == cascade.cost
    fractions = [1.0, *sorted(np.random.default_rng(seed).random(n_stages - 1), reverse=True)]
    expected = sum(f * (c - b) for f, c, b in zip(fractions, cascade.costs, [0, *cascade.costs], strict=False))
    assert cascade.expected_cost(fractions) == pytest.approx(expected)
    known = Cascade(stages, [0.5] * (n_stages - 1), fractions=fractions)
    assert known.cost == pytest.approx(expected)
    assert known.expected_cost([1] + [0] * (n_stages - 1)) == stages[0].cost
    assert known.expected_cost([1] * n_stages) == known.worst_cost


@ANY
@given(seed=st.integers(0, 10**6), density=st.floats(0, 0.5))
def test_joint_costs_are_those_of_cascades(supernet, seed, density):
    candidates = [*subnetworks(supernet, seed, 6, density), supernet.subnetwork(list(supernet.references.values())[-1])]
    joint = JointCosts(candidates)
    rows = np.random.default_rng(seed).integers(0, 7, (20, 4))
    for row, costs in zip(rows, joint.cumulative(rows), strict=True):
        assert tuple(costs) == costs_slowly([candidates[i] for i in row])
    assert (joint.alone == [candidate.cost for candidate in candidates]).all()
    rows[:, 2:] = -1
    assert (joint.cumulative(rows)[:, 3] == joint.pairs[rows[:, 0], rows[:, 1]]).all()


# ----------------------------------------------------------------------------------------------------- names and errors


def test_keys_are_canonical(pair, residual, gated):
    def cascade(supernet, order=("residual", "gated"), threshold=0.5, **options):
        return Cascade([supernet.subnetwork(supernet.references[name]) for name in order], [threshold], **options)

    key = cascade(pair).key
    assert key == cascade(Supernet.build([residual, gated])).key
    assert key == cascade(pair, fractions=[1, 0.5]).key
    # What does not matter in a genotype does not matter here, nor what float32 does not tell apart.
    x = pair.references["residual"].copy()
    x[np.flatnonzero(~pair.active(x))[0]] = True
    assert key == Cascade([pair.subnetwork(x), pair.subnetwork(pair.references["gated"])], [0.5 + 1e-12]).key
    others = [
        cascade(pair, ("gated", "residual")),
        cascade(pair, threshold=0.6),
        cascade(pair, combine="last"),
    ]
    assert len({key, *(other.key for other in others)}) == 4
    assert key[0] == "c"
    assert repr(cascade(pair)).startswith("Cascade(residual, below 0.5 gated; ")
    assert key in repr(cascade(pair))


def test_a_document_describes_it(pair, pool):
    stages = [pair.subnetwork(x) for x in pair.one_stitch()[:3]]
    cascade = Cascade(stages, [0.1, 0.7], combine="last", fractions=[1, 0.3, 0.2])
    document = json.loads(json.dumps(cascade.document()))
    again = Cascade.from_document(document, pair.subnetwork)
    assert (again.key, again.costs, again.cost) == (cascade.key, cascade.costs, cascade.cost)
    with pytest.raises(ValueError, match="does not describe a cascade: a genotype of this supernet has"):
        Cascade.from_document(document, pool.subnetwork)
    with pytest.raises(ValueError, match="does not describe a cascade: 'combine'"):
        Cascade.from_document({"stages": document["stages"]}, pair.subnetwork)
    with pytest.raises(ValueError, match=f"is not of these networks and links: here it would be {cascade.key}"):
        Cascade.from_document(document | {"key": "c0"}, pair.subnetwork)


@pytest.mark.parametrize(
    ("thresholds", "message"),
    [
        ([1.5], r"in \[0, 1\], but 1.5 is given"),
        ([-0.1], r"in \[0, 1\], but -0.1 is given"),
        ([float("nan")], r"in \[0, 1\], but nan is given"),
        (["high"], r"in \[0, 1\], but 'high' is given"),
        ([True], r"in \[0, 1\], but True is given"),
        ([], r"has 1 threshold, one for each stage but the last, but 0 are given"),
        ([0.5, 0.5], r"has 1 threshold, .* but 2 are given"),
    ],
)
def test_wrong_thresholds_are_refused(pair, thresholds, message):
    stages = [pair.subnetwork(x) for x in list(pair.references.values())[:2]]
    with pytest.raises(ValueError, match=message):
        Cascade(stages, thresholds)


def test_wrong_stages_are_refused(pair, pool):
    first, second = (pair.subnetwork(x) for x in list(pair.references.values())[:2])
    with pytest.raises(ValueError, match="two stages or more, but 1 is given"):
        Cascade([first], [])
    with pytest.raises(ValueError, match="are of different spaces"):
        Cascade([first, pool.subnetwork(np.zeros(pool.n_var, dtype=bool))], [0.5])
    with pytest.raises(TypeError, match="subnetworks are expected"):
        Cascade([first, second.module()], [0.5])
    with pytest.raises(ValueError, match="combine must be 'mean' or 'last', but is 'max'"):
        Cascade([first, second], [0.5], combine="max")
    for fractions in ([1], [0.9, 0.5], [1, 1.1], [1, float("nan")], [1, -0.1]):
        with pytest.raises(ValueError, match="fractions are those of the images that get to each of 2 stages"):
            Cascade([first, second], [0.5], fractions=fractions)


# ---------------------------------------------------------------------------------------------------------------- files


def some_deferred(stages, images):
    return thresholds_between(stages, "mean", images, [4] * (len(stages) - 1))


def check_file(cascade, path, photos):
    """The file gives what the module gives, for batches of which none, some and all are deferred."""
    about = cascade.export(path, classes=CLASSES, metrics={"test": {"accuracy": 0.5}})
    assert read_about(path) == about
    module = cascade.module()
    if path.suffix == ".pt2":
        run, tolerance = torch.export.load(path).module(), 0
    else:
        onnxruntime = pytest.importorskip("onnxruntime")
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        run, tolerance = lambda x: torch.from_numpy(session.run(["output"], {"input": x.numpy()})[0]), 1e-5
    with torch.no_grad():
        module(photos)
        _, last = slowly(cascade, photos)
        sizes = set()
        for images in (photos, photos[last == 0], photos[last > 0], photos[:1]):
            expected = module(images)
            sizes.add(module.deferred[0] / len(images))
            torch.testing.assert_close(run(images), expected, rtol=0, atol=tolerance * expected.abs().max().item())
    assert {0, 1} < sizes
    return about


def test_a_cascade_is_exported(pair, photos, tmp_path):
    stages = [pair.subnetwork(pair.references["gated"]), pair.subnetwork(pair.one_stitch()[-1])]
    cascade = Cascade(stages, some_deferred(stages, photos), fractions=[1, 0.25])
    about = check_file(cascade, tmp_path / "cascade.pt2", photos)
    assert os.listdir(tmp_path) == ["cascade.pt2"]
    assert about["format"] == "pymoo-stitch network 1"
    assert about["key"] == cascade.key
    assert about["multiply_adds"] == cascade.worst_cost
    assert about["expected_multiply_adds"] == cascade.cost
    assert (about["classes"], about["metrics"]) == (CLASSES, {"test": {"accuracy": 0.5}})
    assert about["cascade"]["thresholds"] == list(cascade.thresholds)
    assert [stage["key"] for stage in about["cascade"]["stages"]] == [stage.key for stage in stages]
    assert [stage["multiply_adds"] for stage in about["cascade"]["stages"]] == list(cascade.costs)
    again = [pair.subnetwork([bit == "1" for bit in stage["genotype"]]) for stage in about["cascade"]["stages"]]
    assert Cascade(again, about["cascade"]["thresholds"], combine=about["cascade"]["combine"]).key == cascade.key
    assert sum(network["multiply_adds"] for network in about["networks"]) < cascade.worst_cost  # a stitch is no network


class Tokens(nn.Module):
    """A class token, and what torch cannot export of an empty batch as it is written: sizes of -1, and pooling of what
    was permuted."""

    def __init__(self, width=8):
        super().__init__()
        self.patches, self.token = nn.Conv2d(3, width, 4, stride=4), nn.Parameter(torch.randn(1, 1, width))
        self.mix, self.head = nn.Linear(width, width), nn.Linear(2 * width, 5)

    def forward(self, x):
        x = self.patches(x).permute(0, 2, 3, 1)
        x = torch.cat([self.token.expand(len(x), -1, -1), x.reshape(len(x), -1, x.shape[3])], 1)
        x = x + torch.relu(self.mix(x))
        image = x[:, 1:].reshape(-1, 2, 2, x.shape[2]).permute(0, 3, 1, 2)
        return self.head(torch.cat([x[:, 0], nn.functional.adaptive_avg_pool2d(image, 1).flatten(1)], 1))


@pytest.mark.parametrize("suffix", ["pt2", "onnx"])
def test_what_torch_cannot_infer_of_no_images_is_exported_behind_a_convolutional_network(
    residual, photos, suffix, tmp_path
):
    if suffix == "onnx":
        pytest.importorskip("onnxscript")
    tokens = imported(Tokens, "tokens")
    supernet = Supernet([residual, tokens], [Link(tokens.tap("mix"), tokens.tap("relu"))])
    stages = [supernet.subnetwork(supernet.references[name]) for name in ("residual", "tokens")]
    check_file(Cascade(stages, some_deferred(stages, photos)), tmp_path / f"cascade.{suffix}", photos)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["pt2", "onnx"])
def test_cascades_of_every_sort_are_exported(supernet, photos, suffix, tmp_path):
    if suffix == "onnx":
        pytest.importorskip("onnxscript")
    for seed in range(3):
        stages = [supernet.subnetwork(next(iter(supernet.references.values()))), *subnetworks(supernet, seed, 2)]
        check_file(Cascade(stages, some_deferred(stages, photos)), tmp_path / f"{seed}.{suffix}", photos)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["pt2", "onnx"])
def test_heads_norms_and_stitches_of_its_own_are_exported(pair, photos, suffix, tmp_path):
    if suffix == "onnx":
        pytest.importorskip("onnxscript")
    x = next(x for x in pair.one_stitch() if pair.subnetwork(x).norms_after_stitches())
    labels = torch.arange(9) % 5
    task = Task(validation=(photos, labels), calibration=(photos, labels), head=LinearProbe())
    problem = StitchProblem(pair, task)
    first, second, third = (problem.subnetwork(x) for x in (pair.references["gated"], x, x))
    second.recalibrate(photos, progress=False)
    third.retrain(photos, samples=16, progress=False)
    stages = [first, second, third]
    about = check_file(Cascade(stages, some_deferred(stages, photos)), tmp_path / f"cascade.{suffix}", photos)
    assert about["head"] == "Linear"
    assert (about["retrained"], about["recalibrated"]) == (True, True)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["pt2", "onnx"])
@pytest.mark.parametrize("place", [0, 1])
def test_a_file_that_differs_in_one_stage_is_not_written(pair, photos, suffix, place, tmp_path, monkeypatch):
    """Whatever the cascade's own thresholds defer, all stages of its file are compared."""
    if suffix == "onnx":
        pytest.importorskip("onnxscript")
    stages = [pair.subnetwork(pair.references[name]) for name in ("gated", "residual")]
    cascade = Cascade(stages, [float(1 - place)])
    save = torch.export.save if suffix == "pt2" else torch.onnx.export

    def wrong(program, *args, **kwargs):
        program = copy.deepcopy(program)
        name = next(name for name in program.state_dict if name.startswith(f"stages.{place}") and "head.bias" in name)
        program.state_dict[name].add_(1)
        return save(program, *args, **kwargs)

    monkeypatch.setattr(f"torch.{'export.save' if suffix == 'pt2' else 'onnx.export'}", wrong)
    with pytest.raises(ValueError, match="was not written"):
        cascade.export(tmp_path / f"cascade.{suffix}")
    assert not os.listdir(tmp_path)
