"""The pymoo problem: stock pymoo works on it unchanged, results are exact and reproducible."""

import copy
import json
import pickle
import warnings

import numpy as np
import pytest
import torch
from conftest import IMAGE
from pymoo.algorithms.moo.nsga2 import NSGA2
from pymoo.core.callback import Callback
from pymoo.core.evaluator import Evaluator
from pymoo.indicators.hv import HV
from pymoo.operators.crossover.pntx import TwoPointCrossover
from pymoo.operators.mutation.bitflip import BitflipMutation
from pymoo.operators.sampling.rnd import BinaryRandomSampling
from pymoo.optimize import minimize
from pymoo.util.nds.non_dominated_sorting import NonDominatedSorting
from torch import nn

from pymoo_stitch import (
    ClassMap,
    Evaluations,
    JournalError,
    NearestNeighbours,
    Report,
    Run,
    Space,
    StitchProblem,
    Supernet,
    Task,
)
from pymoo_stitch.algorithms import LKGOMEA, AsyncGA, AsyncNSGA2, BinarySampling, ProblemSampling, nsga2
from pymoo_stitch.evaluations import identity, problem_differences


@pytest.fixture(scope="module")
def task(pair):
    """Labels that the first network gets right in three of four cases."""
    rng = torch.Generator().manual_seed(0)
    images = torch.rand(3, 16, *IMAGE, generator=rng)
    with torch.no_grad():
        labels = [pair.networks[0].module()(part).argmax(1) for part in images]
    for part in labels:
        part[::4] = (part[::4] + 1) % 5
    splits = dict(zip(("calibration", "validation", "test"), zip(images, labels, strict=True), strict=True))
    return Task(**splits)


@pytest.fixture
def problem(pair, task):
    return StitchProblem(pair, task, batch_size=8)


def sample(problem, n, seed=0):
    return problem.sampling.do(problem, n, random_state=np.random.default_rng(seed)).get("X")


# ----------------------------------------------------------------------------------------------------------- evaluating


def test_objectives_are_multiply_adds_and_error(problem, pair, task):
    X = sample(problem, 12)
    out = problem.evaluate(X, return_as_dictionary=True)
    images, labels = next(task["validation"].batches(16))
    for i, x in enumerate(X):
        subnetwork = pair.subnetwork(x)
        with torch.inference_mode():
            right = (subnetwork.module()(images).argmax(1) == labels).float().mean().item()
        np.testing.assert_allclose(out["F"][i], [subnetwork.cost, 1 - right])
        assert out["key"][i] == subnetwork.key == problem.key(x)
        np.testing.assert_array_equal(out["active"][i], subnetwork.active)
        np.testing.assert_array_equal(problem.active(x), subnetwork.active)
        assert problem.cost(x) == out["F"][i, 0]
        assert out["accuracy"][i] == pytest.approx(right)
        assert out["seconds"][i] > 0
        assert out["failed"][i] == ""


def test_one_at_a_time_is_the_same(problem):
    X = sample(problem, 6)
    together = problem.evaluate(X)
    np.testing.assert_array_equal([problem.evaluate(x) for x in X], together)
    np.testing.assert_array_equal(problem.evaluate(X.astype(float)), together)
    individual = Evaluator().eval(problem, problem.sampling.do(problem, 1, random_state=np.random.default_rng(1)))[0]
    assert individual.get("active").dtype == bool
    assert isinstance(individual.get("key"), str)


def test_what_fails_is_worse_than_everything(pair, task):
    supernet = Supernet(pair.networks, pair.links)
    with torch.no_grad():
        for parameter in supernet.stitches.parameters():
            parameter.fill_(float("nan"))
    problem, evaluations = StitchProblem(supernet, task), Evaluations()
    X = sample(problem, 20)
    pop = evaluations.eval(problem, problem.sampling.do(problem, 20, random_state=np.random.default_rng(0)))
    stitched = np.array([supernet.subnetwork(x).n_stitches > 0 for x in X])
    assert stitched.any()
    assert [bool(reason) for reason in pop.get("failed")] == stitched.tolist()
    assert evaluations.failed == len({problem.key(x) for x in X[stitched]})
    np.testing.assert_array_equal(pop.get("F")[stitched], np.tile([supernet.max_cost, 1.0], (stitched.sum(), 1)))
    references = problem.references().get("F")
    assert (references < [supernet.max_cost, 1.0]).all()
    again = problem.reevaluate(X)
    assert not again.get("on_front")[stitched].any()


def test_a_reference_that_fails_is_an_error_of_the_problem(pair, task):
    broken = copy.deepcopy(pair.networks[1])
    for weight in broken.weights.values():
        weight.fill_(float("nan"))
    problem = StitchProblem(Supernet([pair.networks[0], broken], pair.links), task)
    with pytest.raises(
        RuntimeError, match="the reference gated cannot be evaluated on the validation split: it predicts NaN"
    ):
        problem.references()
    # A search says how many have failed; what it needs references for, it does without.
    for make in (AsyncNSGA2, LKGOMEA):
        result = minimize(problem, make(), ("n_evals", 120), seed=1)
        assert result.algorithm.evaluator.real == 120
        assert result.algorithm.evaluator.failed > 0


def test_a_run_that_goes_on_evaluates_no_reference(problem, tmp_path, monkeypatch):
    evaluations = lambda: Evaluations(journal=tmp_path / "run.sqlite")  # noqa: E731
    minimize(problem, AsyncNSGA2(), ("n_evals", 80), seed=1, evaluator=evaluations())
    expected = problem.hv_ref_point
    again = StitchProblem(problem.space, problem.task, batch_size=8)
    monkeypatch.setattr(StitchProblem, "references", lambda *given: pytest.fail("references are in the journal"))
    result = minimize(again, AsyncNSGA2(), ("n_evals", 100), seed=1, evaluator=evaluations())
    np.testing.assert_array_equal(result.algorithm._ref_point, expected)


def test_a_single_network_without_variables(pair, task):
    problem = StitchProblem(Supernet(pair.networks[:1], []), task)
    assert problem.sampling.do(problem, 3, random_state=np.random.default_rng(0)).get("X").shape == (3, 0)
    assert problem.references().get("accuracy").tolist() == [0.75]


def test_a_minimum_is_a_constraint(pair, task):
    problem = StitchProblem(pair, task, min_accuracy=0.5)
    X = sample(problem, 8)
    out = problem.evaluate(X, return_as_dictionary=True)
    np.testing.assert_allclose(out["G"][:, 0], 0.5 - out["accuracy"])
    result = minimize(problem, nsga2(pop_size=8), ("n_gen", 3), seed=1)
    assert (result.opt.get("accuracy") >= 0.5).all()


def test_another_metric_as_objective(pair, task):
    splits = {name: split.source for name, split in task.splits.items()}
    problem = StitchProblem(pair, Task(**splits, metrics=["cross_entropy", "accuracy"]))
    out = problem.evaluate(sample(problem, 4), return_as_dictionary=True)
    np.testing.assert_array_equal(out["F"][:, 1], out["cross_entropy"])
    assert "accuracy" in out
    with pytest.raises(ValueError, match="cross_entropy is minimised"):
        StitchProblem(pair, problem.task, min_accuracy=0.5)


class Halved(Space):
    """Another space: the first half of a supernet's links."""

    def __init__(self, supernet):
        self.supernet, self.n_var = supernet, len(supernet.links) // 2

    def subnetwork(self, x):
        full = np.zeros(self.supernet.n_var, dtype=bool)
        full[: self.n_var] = x
        return self.supernet.subnetwork(full)

    def active(self, x):
        return super().active(x)[: self.n_var]


def test_a_space_of_ones_own_says_n_var_and_subnetwork(pair, task):
    problem = StitchProblem(Halved(pair), task)
    assert problem.space.basis is pair
    assert len(problem.outline(np.zeros(problem.n_var, dtype=bool)).active) == problem.n_var
    assert (problem.space.networks, problem.space.input_shape) == (pair.networks, pair.input_shape)
    assert (problem.space.max_cost, problem.space.is_fitted) == (pair.max_cost, pair.is_fitted)
    result = minimize(problem, nsga2(pop_size=8), ("n_evals", 20), seed=1)
    assert result.X.shape[1] == len(pair.links) // 2
    assert problem.references().get("name").tolist() == ["zeros"]
    with pytest.raises(TypeError, match="genotypes select from a Space, such as a Supernet, not from Linear"):
        StitchProblem(nn.Linear(1, 1), task)


# --------------------------------------------------------------------------------------------------------- stock pymoo


def test_its_identity_is_what_results_depend_on(pair, task, problem):
    """The same for equal parts in whatever process, another for other weights, images, labels, metrics or batches."""
    images, labels = task["validation"].source
    again = Supernet(pair.networks, pair.links, stitches=pair.stitches.state_dict())
    fitted = Supernet(pair.networks, pair.links)
    fitted.fit(task["calibration"].source[0])

    def identity(space=pair, validation=(images, labels), **options):
        metrics = options.pop("metrics", None)
        return StitchProblem(
            space, Task(validation=validation, metrics=metrics), **({"batch_size": 8} | options)
        ).identity()

    assert identity(again) == identity(validation=(images.clone(), labels.clone())) == problem.identity()
    assert json.loads(json.dumps(problem.identity())) == problem.identity()
    changed = [
        identity(fitted),
        identity(validation=(images.flip(0), labels)),
        identity(validation=(images, labels.flip(0))),
        identity(metrics="cross_entropy"),
        identity(batch_size=4),
        identity(min_accuracy=0.5),
    ]
    named = [json.dumps(each) for each in [problem.identity(), *changed]]
    assert len(set(named)) == len(named)


def algorithm(**options):
    defaults = {
        "sampling": BinaryRandomSampling(),
        "crossover": TwoPointCrossover(),
        "mutation": BitflipMutation(),
    }
    return NSGA2(pop_size=12, **(defaults | options))


@pytest.mark.parametrize("make", [algorithm, lambda: nsga2(pop_size=12)])
def test_the_same_seed_gives_the_same_run(pair, task, make):
    runs = [
        minimize(StitchProblem(pair, task), make(), ("n_gen", 5), seed=3, save_history=True, copy_algorithm=copied)
        for copied in (True, False)
    ]
    for name in ("X", "F"):
        np.testing.assert_array_equal(getattr(runs[0], name), getattr(runs[1], name))
        for first, second in zip(runs[0].history, runs[1].history, strict=True):
            np.testing.assert_array_equal(first.pop.get(name), second.pop.get(name))
    assert runs[0].X.dtype == bool


def test_the_memo_changes_no_result(problem):
    plain = minimize(problem, algorithm(), ("n_gen", 6), seed=5)
    answered = minimize(problem, algorithm(evaluator=Evaluations()), ("n_gen", 6), seed=5)
    np.testing.assert_array_equal(plain.X, answered.X)
    np.testing.assert_array_equal(plain.F, answered.F)
    assert answered.algorithm.evaluator.skipped > 0


def test_history_callbacks_and_copies_share_the_supernet(problem):
    class Seen(Callback):
        def notify(self, algorithm):
            self.data.setdefault("accuracy", []).append(algorithm.pop.get("accuracy").max())

    result = minimize(problem, nsga2(pop_size=8), ("n_gen", 3), seed=1, save_history=True, callback=Seen())
    assert len(result.algorithm.callback.data["accuracy"]) == 3
    assert all(entry.problem is problem for entry in result.history)
    assert copy.deepcopy(problem) is problem
    assert copy.copy(problem).space is problem.space


def test_a_checkpoint_in_a_file_continues_as_the_run_itself(problem, tmp_path):
    whole = nsga2(pop_size=8).setup(problem, termination=("n_gen", 6), seed=2)
    for _ in range(3):
        whole.next()
    (tmp_path / "checkpoint").write_bytes(pickle.dumps(whole))
    whole.run()
    resumed = pickle.loads((tmp_path / "checkpoint").read_bytes())
    assert "engine" not in resumed.problem.__dict__
    resumed.run()
    np.testing.assert_array_equal(whole.pop.get("X"), resumed.pop.get("X"))
    np.testing.assert_array_equal(whole.pop.get("F"), resumed.pop.get("F"))


def test_without_binary_operators_the_error_says_what_to_use(problem):
    for evaluator in (Evaluator(), Evaluations()):
        with pytest.raises(ValueError, match=r"is among the values.*nsga2\(\)"):
            minimize(problem, NSGA2(pop_size=4), ("n_gen", 2), seed=1, evaluator=evaluator)


# ------------------------------------------------------------------------------------------------------------ comparing


def test_references_are_the_networks_and_their_ensemble(problem, pair):
    references = problem.references()
    assert references.get("name").tolist() == ["residual", "gated", "ensemble"]
    np.testing.assert_array_equal(references.get("F")[:2, 0], [network.cost for network in pair.networks])
    assert references[0].get("accuracy") == 0.75
    assert {"cross_entropy", "calibration_error"} <= set(references[0].data)
    assert problem.references() is references
    assert problem.references("test").get("accuracy")[0] == 0.75


def test_the_reference_point_lies_behind_all_references(problem):
    worst = problem.references().get("F").max(axis=0)
    assert (problem.hv_ref_point >= worst).all()
    assert problem.hv_ref_point[1] * 10 == pytest.approx(round(problem.hv_ref_point[1] * 10))
    np.testing.assert_allclose(problem.normalize(problem.hv_ref_point), [1, 1])
    np.testing.assert_allclose(problem.normalize([0, 0]), [0, 0])
    F = problem.evaluate(sample(problem, 8))
    raw = HV(ref_point=problem.hv_ref_point)(F) / problem.hv_ref_point.prod()
    assert HV(ref_point=np.ones(2))(problem.normalize(F)) == pytest.approx(raw)


def test_a_front_is_evaluated_again_on_another_split(problem, pair, task):
    X = sample(problem, 10)
    found = problem.reevaluate(X)
    images, labels = next(task["test"].batches(16))
    with torch.inference_mode():
        right = [(pair.subnetwork(x).module()(images).argmax(1) == labels).float().mean().item() for x in X]
    np.testing.assert_allclose(found.get("accuracy"), right)
    assert (found.get("calibration_error") > 0).all()
    front = NonDominatedSorting().do(found.get("F"), only_non_dominated_front=True)
    np.testing.assert_array_equal(np.flatnonzero(found.get("on_front")), np.sort(front))
    np.testing.assert_array_equal(problem.reevaluate(X[0]).get("F"), found[:1].get("F"))
    with pytest.raises(ValueError, match="no 'holdout' split"):
        problem.reevaluate(X, split="holdout")


# ------------------------------------------------------------------------------------------------------------- sampling


@pytest.mark.parametrize(
    ("n", "n_var", "p", "choices"), [(50, 40, 0.1, 3), (7, 13, 0.5, 0), (1, 5, 0.3, 2), (90, 9, 1.0, 1)]
)
def test_samples_have_the_density_asked_for(n, n_var, p, choices):
    from pymoo.core.problem import Problem

    problem = Problem(n_var=n_var, n_obj=2)
    x = BinarySampling(p, choices).do(problem, n, random_state=np.random.default_rng(4)).get("X")
    assert x.dtype == bool
    ones = x[:, : n_var - choices].sum(axis=0)
    assert set(ones) <= {int(np.floor(p * n)), int(np.ceil(p * n))}
    chosen = x[:, n_var - choices :]
    assert (chosen.sum(axis=1) <= 1).all()
    counts = [*chosen.sum(axis=0), (~chosen.any(axis=1)).sum()]
    assert max(counts) - min(counts) <= 1 or not choices


def test_the_problem_starts_as_the_paper_does(problem):
    assert problem.sampling.p == pytest.approx(min(0.5, 6.18 / problem.n_var))
    assert problem.sampling.n_choices == 2
    rngs = [np.random.default_rng(1) for _ in range(2)]
    own, general = (
        s.do(problem, 9, random_state=r) for s, r in zip((problem.sampling, ProblemSampling()), rngs, strict=True)
    )
    np.testing.assert_array_equal(own.get("X"), general.get("X"))
    with pytest.raises(ValueError, match="between 0 and 1"):
        BinarySampling(1.5)


# ---------------------------------------------------------------------------------------------------------------- doors


def test_unknown_keywords_are_rejected(pair, task):
    with pytest.raises(TypeError, match="n_objs"):
        StitchProblem(pair, task, n_objs=3)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"min_accuracy": 50}, ValueError, "between 0 and 1, but is 50"),
        ({"split": "holdout"}, ValueError, "no 'holdout' split"),
        ({"batch_size": 0}, ValueError, "batch_size must be a whole number"),
        ({"memory": 100}, ValueError, "but memory=100"),
    ],
)
def test_bad_options(pair, task, options, error, message):
    with pytest.raises(error, match=message):
        StitchProblem(pair, task, **options)


def test_a_supernet_that_was_not_fitted_is_noticed(pair, task):
    supernet = Supernet(pair.networks, pair.links)
    with pytest.warns(UserWarning, match=r"call supernet.fit\(images\) first"):
        StitchProblem(supernet, task)
    supernet.fit(next(task["calibration"].batches(16))[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        StitchProblem(supernet, task)


def test_data_without_a_task(pair):
    with pytest.raises(TypeError, match="as a Task, not as tuple"):
        StitchProblem(pair, (torch.rand(2, *IMAGE), torch.zeros(2)))


def test_the_journal_of_other_data_is_refused_in_words(pair, tmp_path):
    rng = torch.Generator().manual_seed(0)
    images, labels = torch.rand(12, *IMAGE, generator=rng), torch.randint(5, (12,), generator=rng)
    few, all_of_them = (StitchProblem(pair, Task(validation=(images[:n], labels[:n]))) for n in (8, 12))
    others = StitchProblem(pair, Task(validation=(images.flip(0), labels)))

    def search(problem, **options):
        return minimize(problem, nsga2(pop_size=4), ("n_evals", 4), seed=1, evaluator=Evaluations(**options))

    search(all_of_them, journal=tmp_path / "run.sqlite")
    for option in ({"journal": tmp_path / "run.sqlite"}, {"memo": [tmp_path / "run.sqlite"]}):
        with pytest.raises(JournalError, match="12 validation images in the journal and 8 validation images here"):
            search(few, **option)
        with pytest.raises(JournalError, match=": not the same 12 validation images"):
            search(others, **option)
    with pytest.raises(ValueError, match="12 validation images in the journal and 8 validation images here"):
        Report([Run.read(tmp_path / "run.sqlite")], few)


def test_where_a_journal_is_of_other_options_both_are_named(digits):
    own = identity(digits)
    theirs = {"problem": own | {"space": "another"}, "origin": {"name": "digits", "options": {"seed": 1}}}
    *_, said = problem_differences(theirs, digits)
    assert said == "the journal's was made from digits with seed=1, this one from digits"
    assert problem_differences(theirs | {"problem": own}, digits) == []
    assert len(problem_differences(theirs | {"origin": digits.origin}, digits)) == 1


# ------------------------------------------------------------------------------------------------------ stopping early


def test_images_are_as_easy_as_the_references_find_them(problem, pair, task):
    images, labels = next(task["validation"].batches(16))
    with torch.inference_mode():
        outputs = [pair.subnetwork(x).module()(images) for x in pair.references.values()]
    expected = torch.stack([output.softmax(1)[torch.arange(16), labels] for output in outputs]).mean(0)
    np.testing.assert_allclose(problem.ease, expected.numpy(), atol=1e-4)
    with pytest.raises(ValueError, match=r"ease has the shape \(3,\), but there are 16 images"):
        problem.ease = [0.1, 0.2, 0.3]
    X = sample(problem, 6)
    ordered = problem.evaluate(X)
    problem.ease = None  # as they are
    np.testing.assert_allclose(problem.evaluate(X), ordered)


def test_only_means_over_images_can_stop(pair, task, problem):
    assert problem.can_stop
    images, labels = next(task["validation"].batches(16))
    assert not StitchProblem(pair, Task(validation=(images, labels), metrics="cross_entropy")).can_stop
    head = NearestNeighbours(k=1)
    fitted = Task(validation=(images, labels), calibration=(images, labels), head=head)
    assert not StitchProblem(pair, fitted).can_stop
    mapped = Task(validation=(images, labels), head=ClassMap([0, 1, 2, 3, 4]))
    assert StitchProblem(pair, mapped).can_stop


def test_a_search_that_stops_early_is_exact_where_it_counts(digits, tmp_path):
    evaluations = Evaluations(journal=tmp_path / "journal")
    algorithm = AsyncNSGA2(pop_size=16, n_pending=16)
    result = minimize(digits, algorithm, ("n_evals", 120), seed=1, evaluator=evaluations)
    run, n = Run.read(tmp_path / "journal"), len(digits.task["validation"])
    assert evaluations.bounded == run.is_bounded.sum() > 10
    assert not run.is_bounded[:16].any()
    assert evaluations.images == run.images.sum() < 0.9 * n * 120
    assert (run.images[~run.is_bounded] == n).all()
    assert all(individual.get("bound") is None for individual in [*result.opt, *result.archive])
    assert sorted(result.F.tolist()) == run.F[run.front].tolist()
    in_full = digits.evaluate(run.X)
    np.testing.assert_array_equal(run.F[~run.is_bounded], in_full[~run.is_bounded])
    bounds = np.array([row.result["bound"] for row in run.rows if "bound" in row.result])
    assert (in_full[run.is_bounded, 1] >= bounds - 1e-9).all()
    assert (run.F[run.is_bounded, 1] >= bounds - 1e-9).all()
    assert np.corrcoef(run.F[run.is_bounded, 1], in_full[run.is_bounded, 1])[0, 1] > 0.5


def test_the_same_run_elsewhere_has_the_same_order_of_images(digits, tmp_path):
    def run(budget):
        evaluations = Evaluations(journal=tmp_path / "journal")
        minimize(digits, AsyncNSGA2(pop_size=8, n_pending=8), ("n_evals", budget), seed=1, evaluator=evaluations)

    ease = digits.ease
    run(4)
    try:
        digits.ease = np.random.default_rng(0).random(len(ease))  # as if another machine rounded otherwise
        run(5)
        np.testing.assert_array_equal(digits.ease, ease)
    finally:
        digits.ease = ease


def test_without_knowing_how_easy_images_are_all_are_evaluated(problem):
    problem.ease = None
    out = {}
    problem._evaluate(sample(problem, 3), out, needed=[0.0, None, 0.0])
    assert out["images"].tolist() == [16, 16, 16]
    assert "bound" not in out
    assert not out["failed"].any()


def test_a_copy_in_another_process_finds_out_for_itself_how_easy_images_are(problem):
    X = sample(problem, 3)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(problem)).evaluate(X), problem.evaluate(X))


@pytest.mark.parametrize("kind", ["early", "late"])
def test_a_run_without_ease_leaves_none_to_the_next(problem, tmp_path, kind):
    """As of a journal of an earlier version."""
    ease = problem.ease
    if kind == "early":
        problem.ease = None
    minimize(problem, AsyncGA(pop_size=4, n_pending=6), ("n_evals", 12), seed=1)
    np.testing.assert_array_equal(problem.ease, ease)
