"""Many cascades scored at once: each as a slow, obvious implementation scores it."""

from itertools import permutations

import numpy as np
import pytest
import torch
from conftest import IMAGE
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pymoo_stitch import METRICS, ClassMap, Engine, StitchProblem, Subnetwork, Task
from pymoo_stitch.supernet import Cascade, JointCosts
from pymoo_stitch.task import cascading
from pymoo_stitch.task.cascading import (
    DEFERRED,
    Predictions,
    all_cascades,
    each_image,
    evaluate,
    extend,
    follow,
    joined,
    predict,
    single_networks,
)
from pymoo_stitch.util.fronts import on_front

ANY = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
N = 40
"""Images."""


def random_predictions(seed, candidates, metric="accuracy", pixels=(), n=N):
    """Scores of which some are surer than others, and often right."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(4, (n, *pixels), generator=generator)
    scores = torch.randn(candidates, n, 4, *pixels, generator=generator)
    right = torch.nn.functional.one_hot(labels, 4).movedim(-1, 1).float()
    sure = 1.5 * torch.rand(candidates, n, 1, *[1] * len(pixels), generator=generator)
    return Predictions(scores + sure * right, labels, metric)


def slowly(predictions, stages, thresholds, combine):
    """Image by image: the answer, and after how many stages it was found."""
    answers, counts = [], []
    for image in range(predictions.n_images):
        scores = []
        for number, stage in enumerate(stages):
            scores.append(predictions.scores[stage, image])
            answer = scores[-1] if combine == "last" else torch.stack(scores).mean(0)
            top = answer.softmax(0).max(0).values.mean()
            if number == len(stages) - 1 or top >= thresholds[number]:
                break
        answers.append(answer)
        counts.append(number + 1)
    return torch.stack(answers), np.array(counts)


def value_of(predictions, answers):
    metric = METRICS[predictions.metric]
    return metric.value(metric.sums(answers, predictions.labels))


@pytest.fixture(scope="module")
def candidates(pool):
    rng = np.random.default_rng(0)
    return [pool.subnetwork(rng.random(pool.n_var) < 0.1) for _ in range(5)]


@pytest.fixture(scope="module")
def costs(candidates):
    return JointCosts(candidates)


def check_row(table, row, predictions, candidates):
    """What a row says of its cascade is what the cascade does, image by image."""
    count = table.n_stages[row]
    stages, thresholds = table.stages[row, :count], table.thresholds[row, : count - 1]
    answers, counts = slowly(predictions, stages, thresholds, table.combine)
    assert table.values[row] == pytest.approx(value_of(predictions, answers))
    reached = np.array([(counts > stage).mean() for stage in range(count)])
    assert table.fractions[row, :count] == pytest.approx(reached)
    built = table.build(row, candidates)
    if count == 1:
        assert isinstance(built, Subnetwork)
        assert table.costs[row] == built.cost
    else:
        assert table.costs[row] == pytest.approx(built.expected_cost(reached))
        assert built.cost == pytest.approx(table.costs[row])
        assert built.thresholds == tuple(thresholds)
        assert built.combine == table.combine


@ANY
@given(
    seed=st.integers(0, 10**6),
    combine=st.sampled_from(["mean", "last"]),
    kind=st.sampled_from([("accuracy", ()), ("cross_entropy", ()), ("pixel_accuracy", (2, 3)), ("mean_iou", (2, 2))]),
)
def test_every_pair_and_triple_is_scored_as_the_slow_way_does(candidates, costs, seed, combine, kind):
    predictions = random_predictions(seed, 5, *kind)
    alone = single_networks(predictions, costs, combine)
    pairs = extend(alone, predictions, costs)
    triples = extend(pairs.take([0, len(pairs) - 1]), predictions, costs, by=[1, 3], deferred=[0.3, 0.6])
    table = joined([alone, pairs, triples])
    assert (table.n_stages == [*[1] * 5, *[2] * len(pairs), *[3] * len(triples)]).all()
    assert {tuple(stages) for stages in pairs.stages} == {(a, b) for a in range(5) for b in range(5) if a != b}
    rng = np.random.default_rng(seed)
    for row in {0, *rng.integers(len(table), size=10), len(table) - 1}:
        check_row(table, row, predictions, candidates)
    assert on_front(np.column_stack([table.costs, table.errors]))[table.front()].all()
    assert (np.diff(table.costs[table.front()]) > 0).all()
    assert (np.diff(table.errors[table.front()]) < 0).all()
    others = on_front(np.column_stack([table.costs, table.errors]))
    assert {(c, e) for c, e in zip(table.costs[others], table.errors[others], strict=True)} == {
        (c, e) for c, e in zip(table.costs[table.front()], table.errors[table.front()], strict=True)
    }


@ANY
@given(seed=st.integers(0, 10**6), combine=st.sampled_from(["mean", "last"]))
def test_all_cascades_are_all_ordered_choices_of_stages(candidates, costs, seed, combine):
    """Of up to three of four candidates with every threshold, each as the slow way scores it; none that costs too
    much."""
    predictions, of = random_predictions(seed, 5), [0, 2, 3, 4]
    table = all_cascades(predictions, costs, of=of, n_stages=3, combine=combine)
    stages = {tuple(int(i) for i in row if i >= 0) for row in table.stages}
    assert stages == {order for n in (1, 2, 3) for order in permutations(of, n)}
    pair = table.take((table.stages[:, :2] == [0, 2]).all(1) & (table.n_stages == 2))
    assert len(pair) == len({round(fraction * N) for fraction in DEFERRED} - {0})
    rng = np.random.default_rng(seed)
    for row in rng.integers(len(table), size=10):
        check_row(table, row, predictions, candidates)
    limit = np.median(table.costs)
    cheap = all_cascades(predictions, costs, of=of, n_stages=3, at_most=limit, combine=combine)
    kept = table.take(table.costs <= limit)
    for name in ("stages", "thresholds", "costs", "values"):
        np.testing.assert_array_equal(getattr(cheap, name), getattr(kept, name))


def test_more_cascades_than_memory_holds_are_refused(candidates, costs, monkeypatch):
    monkeypatch.setattr(cascading, "MOST", 20_000)
    with pytest.raises(
        ValueError, match=r"cascades of 4 stages are more than the 20,000 that can be scored at once: name"
    ):
        all_cascades(random_predictions(0, 5, n=400), costs, n_stages=4)


@pytest.mark.parametrize("n", [N, 400])
def test_thresholds_defer_the_fractions_asked_for(candidates, costs, n):
    predictions = random_predictions(1, 5, n=n)
    pairs = extend(single_networks(predictions, costs), predictions, costs, by=[1])
    of_first = pairs.fractions[pairs.stages[:, 0] == 0, 1]
    expected = sorted({round(fraction * n) / n for fraction in DEFERRED} - {0})
    assert of_first == pytest.approx(expected)


def test_images_that_are_equally_sure_are_deferred_together_or_not_at_all(costs):
    """Ten images on which it is sure to the last bit, and two on which it is not."""
    scores = torch.zeros(5, 12, 3)
    scores[:, :, 0] = 200.0
    scores[:, 10:, 0] = 1.0
    predictions = Predictions(scores, torch.zeros(12, dtype=torch.long))
    pairs = extend(single_networks(predictions, costs), predictions, costs)
    assert set(pairs.fractions[:, 1]) <= {1 / 12, 2 / 12}
    nobody = extend(single_networks(predictions.take([0, 1, 2]), costs), predictions.take([0, 1, 2]), costs)
    assert len(nobody) == 0
    assert nobody.stages.shape == (0, 2)


def test_cascades_are_evaluated_on_other_images_with_their_own_thresholds(candidates, costs):
    predictions = random_predictions(3, 5)
    seen, unseen = predictions.take(np.arange(25)), predictions.take(np.arange(25, N))
    alone = single_networks(seen, costs)
    table = joined([alone, extend(alone, seen, costs)])
    again = evaluate(table, seen, costs)
    for name in ("fractions", "costs", "values"):
        np.testing.assert_allclose(getattr(again, name), getattr(table, name))
    rows = [0, 7, len(table) - 1]
    other = evaluate(table.take(rows), unseen, costs)
    for row in range(3):
        check_row(other, row, unseen, candidates)
        answers, _ = slowly(unseen, *_stages(other, row), "mean")
        right = each_image(other, row, unseen)[:, 0].astype(bool)
        assert (right == (answers.argmax(1) == unseen.labels).numpy()).all()


def _stages(table, row):
    return table.stages[row, : table.n_stages[row]], table.thresholds[row]


def test_plain_cascades_are_those_of_references(costs):
    predictions = random_predictions(4, 5)
    alone = single_networks(predictions, costs)
    table = joined([alone, extend(alone, predictions, costs)])
    plain = table.take(table.made_of([0, 2]))
    assert {tuple(stages) for stages in plain.stages} == {(0, -1), (2, -1), (0, 2), (2, 0)}
    with pytest.raises(ValueError, match="same number of stages"):
        extend(table, predictions, costs)


def test_the_table_says_what_the_modules_do(pool, candidates, costs):
    """From the images on: the engine's outputs, scored by arrays, against the module of the same cascade."""
    generator = torch.Generator().manual_seed(0)
    images, labels = 2 * torch.rand(30, *IMAGE, generator=generator), torch.arange(30) % 3
    task = Task(validation=(images, labels), head=ClassMap([[0, 1], 2, [3, 4]]))
    problem = StitchProblem(pool, task)
    chosen = [problem.subnetwork(candidate.x) for candidate in candidates]
    predictions = predict(Engine(), chosen, task["validation"], heads=problem.heads(chosen))
    table = extend(single_networks(predictions, costs), predictions, costs)
    for row in np.random.default_rng(0).integers(len(table), size=6):
        cascade = table.build(row, chosen)
        module = cascade.module()
        with torch.no_grad():
            outputs = module(images)
        followed = follow(predictions, *_stages(table, row))
        torch.testing.assert_close(outputs, followed.answers, rtol=1e-4, atol=1e-4)
        assert module.deferred[0] / 30 == pytest.approx(table.fractions[row, 1])
        assert value_of(predictions, outputs) == pytest.approx(table.values[row])


def test_what_cannot_be_scored_is_refused(pair, candidates):
    with pytest.raises(ValueError, match="there is no metric 'luck'"):
        Predictions(torch.rand(2, 3, 4), torch.zeros(3), "luck")
    with pytest.raises(ValueError, match=r"for 3 images with labels, but are of shape \(2, 4, 4\)"):
        Predictions(torch.rand(2, 4, 4), torch.zeros(3))
    images = torch.full((2, *IMAGE), torch.inf)
    split = Task(validation=(images, torch.zeros(2, dtype=torch.long)))["validation"]
    with pytest.raises(ValueError, match="cannot be evaluated on the validation split: omit it"):
        predict(Engine(), candidates, split)
    predictions = random_predictions(0, 5)
    costs = JointCosts(candidates)
    with pytest.raises(ValueError, match="one metric and one rule"):
        joined([single_networks(predictions, costs), single_networks(predictions, costs, "last")])


def test_a_cascade_of_a_table_has_the_stages_of_its_row(candidates, costs):
    predictions = random_predictions(6, 5)
    table = extend(single_networks(predictions, costs), predictions, costs)
    cascade = table.build(3, candidates)
    assert isinstance(cascade, Cascade)
    assert [stage.key for stage in cascade.stages] == [candidates[i].key for i in table.stages[3]]
