"""Heads for tasks that networks were not trained for: against scikit-learn and by hand, in a search, and exported."""

import numpy as np
import pytest
import torch
from conftest import IMAGE
from pymoo.optimize import minimize
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from torch import nn

from pymoo_stitch import (
    ClassMap,
    Evaluations,
    LinearProbe,
    NearestNeighbours,
    Report,
    Run,
    StitchProblem,
    Task,
    read_about,
)
from pymoo_stitch.algorithms import nsga2


def clouds(seed, count=60, width=7, classes=4):
    """Points around a centre for each class, and their classes."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (count,), generator=generator)
    centres = torch.randn(classes, width, generator=torch.Generator().manual_seed(1))
    return centres[labels] + torch.randn(count, width, generator=generator), labels


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("k", [1, 5])
def test_neighbours_vote_as_those_of_scikit_learn(seed, k):
    (x, y), (new, _) = clouds(seed), clouds(seed + 100)
    head = NearestNeighbours(k).fit(x, y, 4)
    reference = KNeighborsClassifier(k).fit(x.numpy(), y.numpy())
    votes = torch.from_numpy(reference.predict_proba(new.numpy()))
    found = head(new).argmax(1)
    # Of the classes with the most votes; which of them, is ours to say.
    assert (votes[torch.arange(len(new)), found] == votes.max(1).values).all()
    torch.testing.assert_close(head(new).softmax(1).sum(1), torch.ones(len(new)))


@pytest.mark.parametrize("shift", [1e2, 1e4])
def test_neighbours_far_from_zero_are_the_same(shift):
    (x, y), (new, _) = clouds(1), clouds(101)
    near, far = (NearestNeighbours(1).fit(x + s, y, 4)(new + s).argmax(1) for s in (0, shift))
    assert (near == far).float().mean() > 0.95


def test_a_probe_is_fitted_in_inference_mode_too():
    x, y = clouds(0)
    with torch.inference_mode():
        inside = LinearProbe().fit(x * 1, y, 4)(x)
    torch.testing.assert_close(inside, LinearProbe().fit(x, y, 4)(x))


def test_of_equal_votes_the_nearer_win():
    known, labels = torch.tensor([[0.0], [3.0], [4.0], [9.0]]), torch.tensor([2, 1, 0, 0])
    head = NearestNeighbours(3).fit(known, labels, 3)
    assert head(torch.tensor([[0.5], [3.6]])).argmax(1).tolist() == [2, 0]


@pytest.mark.parametrize("seed", range(3))
def test_the_probe_is_logistic_regression(seed):
    x, y = clouds(seed)
    rows = (x - x.mean(0)) / x.std(0, correction=0)
    probe = LinearProbe(penalty=0.05).fit(x, y, 4)
    reference = LogisticRegression(C=1 / (0.05 * len(x)), tol=1e-8, max_iter=1_000).fit(rows.numpy(), y.numpy())
    expected = torch.from_numpy(reference.predict_proba(rows.numpy()))
    torch.testing.assert_close(probe(x).softmax(1).double(), expected.double(), atol=2e-3, rtol=0)


def test_classes_without_an_image_are_classes_all_the_same():
    x, y = clouds(0)
    for head in (NearestNeighbours(), LinearProbe()):
        assert head.fit(x, y, 6)(x).shape == (60, 6)


def test_a_class_map_adds_probabilities():
    logits = torch.randn(9, 6)
    scores = ClassMap([[0, 2], 5, (1, 3, 4)])(logits).softmax(1)
    p = logits.softmax(1)
    torch.testing.assert_close(scores, torch.stack([p[:, 0] + p[:, 2], p[:, 5], p[:, 1] + p[:, 3] + p[:, 4]], 1))


def test_classes_may_be_arrays_and_must_be_numbers():
    for classes in (np.array([1, 2]), torch.tensor([1, 2]), [np.int64(1), np.array([2])], [1, 2]):
        assert ClassMap(classes).classes == ((1,), (2,))
    with pytest.raises(TypeError, match="numbers of classes"):
        ClassMap(["cat", "dog"])


@pytest.mark.parametrize("head", [nn.Linear(5, 3), LinearProbe, 5])
def test_what_is_no_head_is_refused(head):
    with pytest.raises(TypeError, match="a head is a ClassMap"):
        task_with(head)


@pytest.mark.parametrize("classes", [[], [3], [[], 1], [1, 1], [-1, 2], [[0, 1], 1]])
def test_maps_that_are_none_are_refused(classes):
    with pytest.raises(ValueError, match="a class map names for each of two or more classes"):
        ClassMap(classes)


@pytest.mark.parametrize(
    "make", [lambda: NearestNeighbours(0), lambda: LinearProbe(0.0), lambda: NearestNeighbours(2.5)]
)
def test_settings_that_make_no_sense_are_refused(make):
    with pytest.raises(ValueError, match=r"but is|without"):
        make()


def task_with(head, n_classes=3):
    generator = torch.Generator().manual_seed(3)
    images = torch.rand(24, *IMAGE, generator=generator)
    labels = torch.arange(24) % n_classes
    return Task(validation=(images[:9], labels[:9]), calibration=(images[9:], labels[9:]), head=head)


@pytest.mark.parametrize("head", [ClassMap([0, 3, [1, 4]]), NearestNeighbours(3), LinearProbe()], ids=repr)
def test_a_search_evaluates_and_exports_with_the_head(pair, head, tmp_path):
    task = task_with(head)
    problem = StitchProblem(pair, task)
    X = np.random.default_rng(0).random((6, problem.n_var)) < 0.2
    pop = problem.reevaluate(X, "validation")
    images, labels = next(task["validation"].batches(99))
    for x, accuracy in zip(X, pop.get("accuracy"), strict=True):
        subnetwork = problem.subnetwork(x)
        with torch.no_grad():
            outputs = subnetwork.module()(task["calibration"].source[0])
            fitted = head.fit(outputs, task["calibration"].labels(), 3)
            predicted = fitted(subnetwork.module()(images)).argmax(1)
        assert accuracy == pytest.approx((predicted == labels).float().mean().item())
    journal = tmp_path / "run.sqlite"
    minimize(problem, nsga2(pop_size=6), ("n_evals", 12), seed=1, evaluator=Evaluations(journal=journal))
    report = Report([Run.read(journal)], problem, test=False)
    for point in report.references:
        measured = report.measure(problem.subnetwork(point.x))
        assert measured["validation"] == pytest.approx(point.metrics["validation"])
        sums = report.reliability(point)[point.name]
        assert sums[2].sum() / sums[0].sum() == pytest.approx(point.metrics["validation"]["accuracy"])
    subnetwork = problem.subnetwork(X[0])
    about = subnetwork.export(tmp_path / "network.pt2", classes=["a", "b", "c"])
    assert about["output"]["shape"] == [3]
    assert read_about(tmp_path / "network.pt2")["head"]
    with torch.no_grad():
        found = torch.export.load(tmp_path / "network.pt2").module()(images)
        expected = subnetwork.module(head=problem.head(subnetwork))(images)
    assert torch.equal(found, expected)
    assert found.shape == (9, 3)


def test_heads_are_part_of_a_problems_identity(pair):
    heads = [None, ClassMap([0, 1, 2]), ClassMap([0, 1, 3]), NearestNeighbours(3), NearestNeighbours(4)]
    identities = [repr(StitchProblem(pair, task_with(head)).identity()) for head in heads]
    assert len(set(identities)) == len(heads)


def test_a_head_that_learns_needs_labels(pair):
    images = torch.rand(6, *IMAGE)
    for calibration in (None, images):
        with pytest.raises(ValueError, match="learns from labels"):
            Task(validation=(images, torch.arange(6) % 2), calibration=calibration, head=NearestNeighbours())


def test_labels_beyond_the_head_are_refused(pair):
    with pytest.raises(ValueError, match="labels from 0 to 2, but the classes are 0 to 1"):
        StitchProblem(pair, task_with(ClassMap([0, 1])))


def test_a_class_map_beyond_the_networks_is_refused(pair):
    with pytest.raises(ValueError, match="class 9, but the networks have 5"):
        StitchProblem(pair, task_with(ClassMap([0, 1, 9])))


def test_what_gives_no_number_fails_with_a_reason(pair):
    problem = StitchProblem(pair, task_with(NearestNeighbours(3)))
    sound = problem.references().get("F")
    x = np.zeros(problem.n_var, dtype=bool)
    x[next(i for i in range(problem.n_var) if problem.active(x)[i])] = True
    subnetwork = problem.subnetwork(x)
    stitch = pair.stitches[subnetwork.links[0].stitch]
    kept = stitch.bias.detach().clone()
    try:
        with torch.no_grad():
            stitch.bias.fill_(torch.nan)
        pop = problem.reevaluate(np.array([x, *(r.X for r in problem.references())]), "validation")
    finally:
        with torch.no_grad():
            stitch.bias.copy_(kept)
    assert "no head can be fitted" in pop[0].get("failed")
    assert np.array_equal(pop[1:].get("F"), sound)
