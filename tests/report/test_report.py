"""Reports: what they say is what the journals and the networks say."""

import csv
import json
import re
import shutil
import sqlite3
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import imported
from PIL import Image
from scipy.stats import binomtest

from pymoo_stitch import Report, Run, StitchProblem, Supernet, Task, compare
from pymoo_stitch.algorithms import LKGOMEA, AsyncNSGA2, nsga2
from pymoo_stitch.report import NothingToRecommendError, cascade_points, noise, read_cascade, with_new_thresholds
from pymoo_stitch.report import report as report_module
from pymoo_stitch.report.cascade_points import cascades_document
from pymoo_stitch.util.fronts import dominates
from pymoo_stitch.util.statistics import holm

SIZES = {"validation": 400, "selection": 1_000, "test": 800}


@pytest.fixture(scope="module")
def problem(digits):
    """The default problem with fewer images."""
    images = {name: tuple(part[:n] for part in digits.task[name].source) for name, n in SIZES.items()}
    problem = StitchProblem(digits.space, Task(**images, calibration=digits.task["calibration"].source), batch_size=400)
    problem.origin = digits.origin
    return problem


@pytest.fixture(scope="module")
def runs(problem, tmp_path_factory):
    algorithms = {"LK-GOMEA": lambda: LKGOMEA(pop_size=20), "NSGA-II": lambda: nsga2(pop_size=20)}
    return compare(problem, algorithms, ("n_evals", 80), seeds=[1, 2], folder=tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def report(problem, runs):
    return Report(runs, problem)


SPLITS = tuple(SIZES)


def dominated(point, others, split):
    return any(dominates(other.F[split], point.F[split]) for other in others)


def test_the_front_is_that_of_each_algorithm_and_that_on_selection(report, problem, runs):
    assert report.front == sorted(report.front, key=lambda point: point.multiply_adds)
    evaluated = {row.key: (x, f) for run in runs for row, x, f in zip(run.rows, run.X, run.F, strict=True)}
    shown = {point.key for point in report.front}
    for label, group in report.comparison.runs.items():
        F = np.concatenate([run.F for run in group])
        best = {tuple(f) for f in F if not any(dominates(g, f) for g in F)}
        assert best <= {tuple(point.F["validation"]) for point in report.front if label in point.found_by}
    for point in report.front:
        x, f = evaluated[point.key]
        assert tuple(point.F["validation"]) == tuple(f)
        subnetwork = problem.subnetwork(point.x)
        assert (point.key, point.multiply_adds, point.stitches) == (
            subnetwork.key,
            subnetwork.cost,
            subnetwork.n_stitches,
        )
        assert point.metrics["validation"]["accuracy"] == pytest.approx(1 - point.F["validation"][1])
        again = problem.reevaluate(point.x, "test")[0]
        assert point.metrics["test"]["accuracy"] == again.get("accuracy")
    # What is near the front on validation, and on the front on selection, is there too.
    F = np.array([f for _, f in evaluated.values()])
    floor = problem.hv_ref_point[1]
    near = []
    for key, (x, (cost, error)) in evaluated.items():
        best = F[F[:, 0] <= cost, 1].min()
        if error <= floor and error - best <= 0.5 * np.sqrt(best * (1 - best) / 400):
            near.append((key, x))
    again = problem.reevaluate(np.array([x for _, x in near]), "selection")
    assert {key for (key, _), kept in zip(near, again.get("on_front"), strict=True) if kept} <= shown


def test_what_stopped_near_a_front_is_looked_at_again_by_its_estimate(problem, tmp_path):
    small = StitchProblem(problem.space, problem.task, batch_size=20)  # evaluations stop between batches
    run = compare(small, {"async-NSGA-II": AsyncNSGA2}, ("n_evals", 250), seeds=[1], folder=tmp_path)[0]
    own = Report([run], small, test=False)
    cost, error = run.F.T
    near = {}
    for row, f, bounded in zip(run.rows, run.F, run.is_bounded, strict=True):
        best = error[~run.is_bounded & (cost <= f[0])].min(initial=np.inf)
        if f[1] <= small.hv_ref_point[1] and np.isfinite(best):
            distance = (f[1] - best) / np.sqrt(best * (1 - best) / 400)
            if distance <= 0.5:
                near[row.key] = row.x, bounded, distance
    assert any(bounded for _, bounded, _ in near.values())
    assert len(near) - len(run.front) <= 50  # or some would be left out
    again = small.reevaluate(np.array([x for x, _, _ in near.values()]), "selection")
    best_there = {key for key, kept in zip(near, again.get("on_front"), strict=True) if kept}
    assert {point.key for point in own.front} == best_there | {run.rows[i].key for i in run.front}
    for point in own.front:  # nothing that is shown is an estimate
        assert tuple(point.F["validation"]) == tuple(small.reevaluate(point.x, "validation").get("F")[0])


def test_an_estimate_is_no_reason_to_show_what_does_not_meet_the_constraint(problem, tmp_path):
    strict = StitchProblem(problem.space, problem.task, batch_size=20, min_accuracy=0.9)
    run = compare(strict, {"async-NSGA-II": AsyncNSGA2}, ("n_evals", 60), seeds=[1], folder=tmp_path)[0]
    report = Report([run], strict, test=False)
    X = strict.sampling.do(strict, 30, random_state=np.random.default_rng(1)).get("X")
    flattered = {
        strict.key(x): report_module._Candidate(strict.key(x), x, strict.cost(x), ("a",), 0.1, True) for x in X
    }
    meets = {key: strict.evaluate(one.x, return_values_of=["G"])[0] <= 0 for key, one in flattered.items()}
    assert 0 < sum(meets.values()) < len(meets)
    assert {one.key for one in report._sound(list(flattered.values()))} == {key for key in meets if meets[key]}
    assert all(point.metrics["validation"]["accuracy"] >= 0.9 for point in report.front)


def test_what_one_run_knows_in_full_no_other_estimates(problem, tmp_path, monkeypatch):
    small = StitchProblem(problem.space, problem.task, batch_size=20)
    run = compare(small, {"async-NSGA-II": AsyncNSGA2}, ("n_evals", 150), seeds=[1], folder=tmp_path)[0]
    flattered = run.F.copy()
    for i in np.flatnonzero(run.is_bounded):
        flattered[i, 1] = run.F[run.is_sound & (run.F[:, 0] <= run.F[i, 0]), 1].min(initial=1)
    monkeypatch.setitem(run.__dict__, "F", flattered)
    estimated = {one.key for one in Report([run], small, test=False)._candidates() if one.is_estimated}
    known = [row for row in run.rows if row.key in sorted(estimated)[::2]]
    assert 0 < len(known) < len(estimated)
    in_full = [
        replace(row, result={k: v for k, v in row.result.items() if k != "bound"} | {"F": small.evaluate(row.x)})
        for row in known
    ]
    other = replace(run, about=run.about | {"seed": 2}, rows=tuple(in_full))
    now = {one.key: one for one in Report([run, other], small, test=False)._candidates()}
    assert not any(now[row.key].is_estimated for row in known if row.key in now)
    assert any(one.is_estimated for one in now.values())


def test_of_what_is_near_to_a_front_fifty_are_candidates_also_of_equals(problem, runs, monkeypatch):
    report = Report(runs, problem)
    monkeypatch.setattr(report, "_gaps", lambda F, sound, estimated: np.full(len(F), 1e-9))
    assert sum(one.gap > 0 for one in report._candidates()) == 50


def test_the_images_of_each_algorithm_are_counted(report, runs):
    text = str(report.comparison)
    for label, group in report.comparison.runs.items():
        n = np.median([sum(row.result["images"] for row in run.rows) for run in group])
        (line,) = [line for line in text.splitlines() if line.startswith(label) and "against" not in line]
        assert f" {n:,.0f} " in line


def test_what_dominates_what(report):
    assert [point.name for point in report.references] == ["inverted", "residual", "ensemble"]
    for point in report.front:
        for split in SPLITS:
            beaten = [r.name for r in report.references if dominates(point.F[split], r.F[split])]
            assert list(point.dominates[split]) == beaten
            assert point.on_front[split] == (not dominated(point, [*report.front, *report.references], split))
    text = str(report)
    for reference in report.references:
        there = [point for point in report.found if reference.name in point.dominates["selection"]]
        assert f"{len(there)} dominate {reference.name} on selection" in text


def test_references_are_not_found(report):
    keys = {point.key for point in report.references}
    for point in report.front:
        assert (point in report.found) == (not dominated(point, report.front, "selection") and point.key not in keys)


def test_every_accuracy_has_an_interval_and_a_paired_test(report):
    right = {
        split: {
            point.key: point.measured[split].each["accuracy"][:, 0] > 0 for point in [*report.references, *report.front]
        }
        for split in SPLITS
    }
    for split, n in SIZES.items():
        for point in [*report.references, *report.front]:
            mine = right[split][point.key]
            assert point.metrics[split]["accuracy"] == pytest.approx(mine.mean())
            expected = binomtest(int(mine.sum()), n).proportion_ci(method="wilson")
            assert point.interval(split, "accuracy") == pytest.approx((expected.low, expected.high))
        for reference in report.references:
            theirs = right[split][reference.key]
            p_values = []
            for point in report.front:
                mine = right[split][point.key]
                won, lost = int((mine & ~theirs).sum()), int((theirs & ~mine).sum())
                p_values.append(binomtest(won, won + lost).pvalue if won + lost else 1.0)
            for point, p, corrected in zip(report.front, p_values, holm(p_values), strict=True):
                against = point.against[split][reference.name]
                assert (against.paired.p_value, against.corrected) == (p, corrected)
                difference = point.metrics[split]["accuracy"] - reference.metrics[split]["accuracy"]
                assert against.paired.difference == pytest.approx(difference)
                expected = "better than" if difference > 0 else "worse than"
                assert against.verdict == (expected if corrected < 0.05 else "not distinguishable from")
    low, high = report.references[0].interval("test", "cross_entropy")
    assert low < report.references[0].metrics["test"]["cross_entropy"] < high
    assert "95 % intervals" in str(report)


def is_suitable(report, point):
    """As good as the best reference, better than all that cost no more."""
    best = min(report.references, key=lambda other: other.F["selection"][1])
    against = point.against["selection"]
    return against[best.name].paired.low >= -0.0025 and all(
        against[other.name].verdict == "better than"
        for other in report.references
        if other.F["selection"][0] <= point.F["selection"][0]
    )


def test_what_is_recommended_is_as_good_as_the_best_and_better_than_what_is_cheaper(report):
    plain = [point for point in report.plain_cascades if is_suitable(report, point)]
    if plain:
        assert report.recommended.multiply_adds <= min(point.multiply_adds for point in plain)
        assert is_suitable(report, report.recommended)
    else:
        suitable = [point for point in report.found if is_suitable(report, point)]
        assert report.recommended is min(suitable, key=lambda point: point.multiply_adds, default=None)
    if report.recommended is None:
        with pytest.raises(
            NothingToRecommendError, match=r"surely as good as \w+, to 0.0025, on 1,000 selection images"
        ):
            report.choose()
    else:
        assert report.choose() is report.recommended


@pytest.mark.parametrize("n", [60, 1_000])
def test_where_nothing_is_recommended_the_cheapest_reference_that_is_as_good_is_named(problem, runs, n):
    images = {name: tuple(part[:n] for part in problem.task[name].source) for name in ("selection", "test")}
    task = Task(validation=problem.task["validation"].source, **images)
    report = Report(runs, StitchProblem(problem.space, task, batch_size=400))
    rows = {point.name: point.measured["selection"].each["accuracy"][:, 0] for point in report.references}
    best = rows[report.best_reference.name]
    named = re.search(r"Use (\w+)", report._nothing())[1]
    for name, right in rows.items():  # by their cost
        if name == named:
            break
        low = np.mean(right - best) - 1.96 * np.std(right - best) / np.sqrt(n)
        assert low < -0.0025
    is_best = named == report.best_reference.name
    assert is_best or "as good as" in report._nothing()
    assert is_best or n > 800


def test_plain_cascades_are_what_one_gets_by_hand(report, problem):
    """Run the first network; where its top probability is below the threshold, the other one too, and average."""
    assert len(report.plain_cascades) > 2
    for point in report.plain_cascades[1::5]:
        first, second = point.network.stages
        assert point.network.n_stitches == 0
        for split in SPLITS:
            ((images, labels),) = problem.task[split].batches(9_999)
            with torch.inference_mode():
                one, other = first.module()(images), second.module()(images)
            deferred = one.softmax(1).amax(1) < point.network.thresholds[0]
            answers = torch.where(deferred[:, None], (one + other) / 2, one)
            accuracy = (answers.argmax(1) == labels).double().mean().item()
            assert point.metrics[split]["accuracy"] == pytest.approx(accuracy, abs=2 / len(labels))
            first_cost, both = point.network.costs
            expected = first_cost + deferred.double().mean().item() * (both - first_cost)
            assert point.F[split][0] == pytest.approx(expected, rel=0.01)


def test_plain_cascades_have_three_stages_where_asked(problem, runs):
    """A third stage makes more of them, so that none of two stages is better and cheaper than all of these."""
    two, three = (Report(runs[:1], problem, n_stages=n).plain_cascades for n in (2, 3))
    assert max(len(point.network.stages) for point in two) == 2
    assert max(len(point.network.stages) for point in three) == 3
    for point in two:
        assert any((other.F["selection"] <= point.F["selection"]).all() for other in three)


class Field(torch.nn.Sequential):
    """Which of three classes each pixel is of."""

    def __init__(self, width):
        first, last = torch.nn.Conv2d(3, width, 3, padding=1), torch.nn.Conv2d(width, 3, 1)
        super().__init__(first, torch.nn.ReLU(), torch.nn.Conv2d(width, width, 3, padding=1), torch.nn.ReLU(), last)


@pytest.fixture(scope="module")
def pixels(tmp_path_factory):
    """The report of a search in which pixels are classified, as the larger of two networks does, but for a tenth."""
    supernet = Supernet.build([imported(lambda: Field(4), "small"), imported(lambda: Field(12), "large", seed=1)])
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(120, 3, 8, 8, generator=generator)
    supernet.fit(images, batch_size=40, positions=16, progress=False)
    with torch.inference_mode():
        labels = supernet.subnetwork(supernet.references["large"]).module()(images).argmax(1)
    wrong = torch.rand(labels.shape, generator=generator) < 0.1
    labels = torch.where(wrong, torch.randint(3, labels.shape, generator=generator), labels)
    names = ("validation", "selection", "test")
    parts = zip(images.split(40), labels.split(40), strict=True)
    problem = StitchProblem(supernet, Task(**dict(zip(names, parts, strict=True))))
    folder = tmp_path_factory.mktemp("pixels")
    return Report(
        compare(problem, {"n": lambda: nsga2(pop_size=8)}, ("n_evals", 16), seeds=[1], folder=folder), problem
    )


def test_images_of_dense_tasks_are_deferred_by_the_mean_over_pixels(pixels, tmp_path):
    assert len(pixels.plain_cascades) > 2
    for point in pixels.plain_cascades:
        first, second = point.network.stages
        ((images, labels),) = pixels.problem.task["test"].batches(40)
        with torch.inference_mode():
            one, other = first.module()(images), second.module()(images)
        deferred = one.softmax(1).amax(1).mean((1, 2)) < point.network.thresholds[0]
        answers = torch.where(deferred[:, None, None, None], (one + other) / 2, one)
        accuracy = (answers.argmax(1) == labels).double().mean().item()
        assert point.metrics["test"]["pixel_accuracy"] == pytest.approx(accuracy, abs=0.002)
    assert "cascades.json" in {path.name for path in pixels.write(tmp_path)}


def test_cascades_whose_scores_take_too_much_memory_are_left_out_and_the_report_says_so(pixels, monkeypatch):
    assert "Cascades were left out" not in str(pixels)  # what it holds is decided here, before there is less memory
    monkeypatch.setattr(cascade_points, "MEMORY", 3 * 40 * 3 * 8 * 8 * 4 - 1)
    report = Report(pixels.runs, pixels.problem)
    assert report.plain_cascades == report.cascades == []
    assert "Cascades were left out: the references' scores take" in str(report)


def test_cascades_are_read_again_from_their_file(report, problem, digits, tmp_path):
    path = tmp_path / "cascades.json"
    path.write_text(json.dumps(cascades_document(report.cascades, problem)))
    for point in report.cascades[:3]:
        assert point.cost < point.worst_cost == point.network.costs[-1]
        again = read_cascade(path, point.key[:12], problem)
        assert (again.key, again.cost) == (point.key, point.network.cost)
        assert report.choose(key=point.key) is point
    assert read_cascade(path, "s", problem) is None
    if len(report.cascades) > 1:
        with pytest.raises(ValueError, match="have a key that begins with 'c': give more characters"):
            read_cascade(path, "c", problem)
    for text in ("", "[]", "{}", json.dumps({"space": problem.space.digest(), "cascades": [{"key": "c1"}]})):
        path.write_text(text)
        with pytest.raises(ValueError, match=r"cascades.json is not a file of cascades that can be read"):
            read_cascade(path, "c", problem)
    path.write_text(json.dumps({"space": "another", "cascades": [{"key": "c1"}]}))
    with pytest.raises(ValueError, match="of other networks than those of this problem"):
        read_cascade(path, "c", problem)


def test_thresholds_of_changed_stages_defer_as_many_images(report, problem):
    point = report.plain_cascades[len(report.plain_cascades) // 2]
    again = with_new_thresholds(problem, point.network, "selection")
    assert again.fractions == pytest.approx(point.network.fractions, abs=2 / 1_000)
    other = with_new_thresholds(problem, point.network, "test")
    assert other.fractions == pytest.approx(point.network.fractions, abs=2 / 800)
    assert other.thresholds != point.network.thresholds


def test_choices(report):
    middle = report.front[len(report.front) // 2]
    assert report.choose(key=middle.key[:10]) is middle
    assert report.choose(key="ensemble") is report.references[-1]
    everything = [*report.front, *report.cascades, *report.references]
    for point in everything:
        within = report.choose(at_most=point.multiply_adds)
        assert (within.F["selection"][1], within.multiply_adds) == min(
            (p.F["selection"][1], p.multiply_adds) for p in everything if p.multiply_adds <= point.multiply_adds
        )
    assert len(repr(middle)) < 400
    assert repr(middle).startswith(f"Point({middle.name!r}, {middle.multiply_adds:,} multiply-adds, ")
    enough = report.choose(at_least=middle.metrics["selection"]["accuracy"])
    assert enough.multiply_adds <= middle.multiply_adds
    assert enough.F["selection"][1] <= middle.F["selection"][1]


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"key": "nothing"}, "no network or cascade has a name or key that begins with 'nothing'. There are inverted"),
        ({"key": "s"}, r"\d+ networks and cascades have a name or key that begins with 's'"),
        ({"at_most": 10}, "no network or cascade costs at most 10; the cheapest costs"),
        ({"at_least": 1.1}, r"reaches accuracy 1.1; the best has 0\.\d+"),
    ],
)
def test_choices_that_there_are_not(report, choice, message):
    with pytest.raises(ValueError, match=message):
        report.choose(**choice)


def test_files_hold_everything(report, runs, tmp_path):
    chosen = report.choose(at_most=300_000)
    written = report.write(tmp_path / "new" / "folder", chosen)
    assert sorted(path.name for path in written) == sorted(path.name for path in (tmp_path / "new/folder").iterdir())
    assert {path.name for path in written} == {
        *(
            "front.csv",
            "cascades.json",
            "evaluations.csv",
            "report.json",
            "report.html",
            "fronts.png",
            "hypervolume.png",
            "hypervolume-computation.png",
            "hypervolume-time.png",
        ),
        *("stitches.png", "predictions.png", "reliability.png", "subnetwork.png"),
    }
    for path in written:
        if path.suffix == ".png":
            with Image.open(path) as image:
                assert image.width > 600
                assert len(set(image.convert("L").resize((64, 64)).tobytes())) > 5
    page = (tmp_path / "new/folder/report.html").read_text()
    (text,) = re.findall(r'<script type="application/json" id="document">(.*?)</script>', page, re.DOTALL)
    shown = json.loads(text)
    assert [run["evaluations"]["key"][0] for run in shown["runs"]] == [run.rows[0].key[:12] for run in report.runs]
    points = [*report.references, *report.cascades, *report.front]
    assert [member["key"] for member in shown["members"]] == [point.key for point in points]
    for member, point in zip(shown["members"], points, strict=True):
        for split in SPLITS:
            expected = [point.metrics[split]["accuracy"], *point.interval(split, "accuracy")]
            assert member["on"][split]["metrics"]["accuracy"] == pytest.approx(expected, abs=1e-6)
            for name, against in member["on"][split]["against"].items():
                assert against["verdict"] == point.against[split][name].verdict
        assert f"--key {point.name if member['kind'] == 'reference' else point.key}" in member["commands"][0]
    with open(tmp_path / "new/folder/evaluations.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == sum(map(len, runs))
    for run in runs:
        own = [row for row in rows if (row["algorithm"], int(row["seed"])) == (run.algorithm, run.seed)]
        assert [float(row["error"]) for row in own] == run.F[:, 1].tolist()
        assert [row["key"] for row in own] == [row.key for row in run.rows]
        assert all(int(row["active_stitches"]) <= int(row["nonzero_stitches"]) for row in own)
        last = own[report.comparison.evaluations - 1]
        assert float(last["hypervolume"]) == report.comparison.hypervolumes[run.algorithm][run.seed]
        assert [float(row["worked"]) for row in own] == pytest.approx(run.worked().tolist(), abs=1e-4)
        assert bool(own[-1]["elapsed"]) == run.has_own_times
    document = json.loads((tmp_path / "new/folder/report.json").read_text())
    assert len(document["front"]) == len(report.front)
    assert document["compared_after"] == report.comparison.evaluations
    for run in document["runs"]:
        assert run["hypervolume"] == report.comparison.hypervolumes[run["algorithm"]][run["seed"]]
    for point in [*report.references, chosen]:
        counts, probabilities, right = np.array(document["reliability"][point.name])
        assert counts.sum() == 800
        error = np.abs(probabilities - right).sum() / 800
        assert error == pytest.approx(point.metrics["test"]["calibration_error"], abs=1e-6)
    assert document["problem"]["origin"] == {"name": "digits", "options": {}}
    assert {d["first"] for d in document["differences"]} == {"LK-GOMEA"}
    with open(tmp_path / "new/folder/front.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    points = [*report.cascades, *report.front]
    assert [row["name"] for row in rows] == [point.name for point in [*report.references, *points]]
    for row, point in zip(rows[3:], points, strict=True):
        assert float(row["selection_accuracy_low"]) == point.interval("selection", "accuracy")[0]
        assert float(row["test_multiply_adds"]) == point.F["test"][0] <= float(row["multiply_adds_at_most"])
        for name, value in point.metrics["test"].items():
            assert float(row[f"test_{name}_low"]) < value < float(row[f"test_{name}_high"]), name
        assert float(row["test_p_residual"]) == point.against["test"]["residual"].corrected
        assert row["test_verdict_ensemble"] == f"{point.against['test']['ensemble'].verdict} ensemble"
    assert chosen.module()(torch.rand(3, 1, 8, 8)).shape == (3, 10)


def test_a_file_in_place_of_the_folder_is_named(report, tmp_path):
    (tmp_path / "report").write_text("mine")
    with pytest.raises(NotADirectoryError, match=r"cannot write to the folder \S*report: \S*report is a file"):
        report.write(tmp_path / "report")


def test_a_task_without_test_images(problem, runs):
    report = Report(runs[:1], problem, test=False)
    assert "on test" not in str(report)
    assert all(set(point.metrics) == {"validation", "selection"} for point in report.front)


def test_a_task_without_selection_images_is_judged_on_what_was_searched(problem, runs):
    splits = {name: problem.task[name].source for name in ("validation", "test")}
    without = StitchProblem(problem.space, Task(**splits), batch_size=400)
    report = Report(runs[:1], without)  # another split makes no other problem
    assert (report.splits, report.deciding) == (("validation", "test"), "validation")
    assert {tuple(point.F["validation"]) for point in report.front} == {tuple(f) for f in runs[0].F[runs[0].front]}
    assert "images that the search has seen, so it is optimistic: give the task a selection split" in str(report)


def test_time_is_the_runs_own_unless_it_took_results_over(problem, runs):
    assert runs[0].has_own_times
    assert Report(runs[:1], problem).plot_hypervolume("time").axes[0].get_xlabel() == "time (seconds)"
    assert not all(run.has_own_times for run in runs)  # they share a memo
    assert Report(runs, problem).plot_hypervolume("time").axes[0].get_xlabel() == "workers' time (seconds)"


def test_what_was_searched_is_what_counts(problem, tmp_path):
    on_test = StitchProblem(problem.space, problem.task, split="test", batch_size=400)
    (run,) = compare(on_test, {"NSGA-II": lambda: nsga2(pop_size=20)}, ("n_evals", 20), seeds=[1], folder=tmp_path)
    report = Report([run], on_test)
    assert report.splits == ("test", "selection")
    assert {tuple(point.F["test"]) for point in report.front} >= {tuple(f) for f in run.F[run.front]}


def test_runs_in_which_all_failed(problem, runs, tmp_path):
    shutil.copy(runs[0].path, tmp_path / "failed.sqlite")
    with sqlite3.connect(tmp_path / "failed.sqlite") as db:
        db.execute("update evaluations set failed = 'no memory'")
    db.close()
    report = Report([Run.read(tmp_path / "failed.sqlite")], problem)
    assert "Found: 0 networks on the front on selection, 0 of them above the floor" in str(report)
    assert report.write(tmp_path / "report")
    with pytest.raises(ValueError, match="found no network"):
        report.choose()


def test_runs_of_another_problem_are_refused(problem, runs, tmp_path):
    with pytest.raises(ValueError, match="needs at least one run"):
        Report([], problem)
    other = Supernet(problem.space.networks, problem.space.links[:10], stitches=None)
    with pytest.warns(UserWarning, match="no stitch"):
        another = StitchProblem(other, problem.task)
    with pytest.raises(ValueError, match=r"is a run of another problem: .*problem\.n_var is 72"):
        Report(runs, another)


def test_a_retrained_subnetwork_is_measured_with_its_own_stitches(problem, report):
    chosen = next(point for point in report.front if point.stitches)
    subnetwork = problem.subnetwork(chosen.x)
    assert report.measure(subnetwork) == {split: pytest.approx(values) for split, values in chosen.metrics.items()}
    subnetwork.retrain(problem.task["calibration"].source, samples=640, lr=0.01, progress=False)
    assert report.measure(subnetwork)["test"]["cross_entropy"] != chosen.metrics["test"]["cross_entropy"]


def noise_problem(supernet, seed):
    """Labels that have nothing to do with the images: all subnetworks have the same true accuracy."""
    rng = torch.Generator().manual_seed(seed)
    split = lambda n: (torch.rand(n, 3, 8, 8, generator=rng), torch.randint(5, (n,), generator=rng))  # noqa: E731
    return StitchProblem(supernet, Task(validation=split(200), selection=split(2_000), test=split(500)), batch_size=250)


@pytest.mark.parametrize(
    ("seeds", "most"), [(range(3), 1), pytest.param(range(20), 2, marks=pytest.mark.slow)], ids=["3", "20"]
)
def test_of_pure_noise_nothing_is_recommended(seeds, most, pair, tmp_path):
    recommended = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # stitches that are not fitted
        for seed in seeds:
            problem = noise_problem(pair, seed)
            folder = tmp_path / str(seed)
            algorithms = {"NSGA-II": lambda: nsga2(pop_size=20)}
            report = Report(compare(problem, algorithms, ("n_evals", 60), seeds=[seed], folder=folder), problem)
            assert report.front
            recommended += report.recommended is not None
    assert recommended <= most


def test_what_the_images_of_a_search_can_tell(digits):
    lines = noise(digits)
    names, F = digits.references().get("name"), digits.references().get("F")
    for i, j in ((0, 1), (0, 2), (1, 2)):
        rights = [digits.references()[k].get("each")["accuracy"][:, 0] for k in (i, j)]
        chance = 2 * np.sqrt((rights[0] != rights[1]).mean() / 1_200)
        difference = abs(F[i, 1] - F[j, 1])
        told = [line for line in lines if f"{names[i]} and {names[j]} differ by {difference:.4f}" in line]
        assert bool(told) == (difference < chance)
        if told:
            needed = 1_200 * (chance / difference) ** 2
            said = int(re.search(r"about ([\d,]+) images would tell", told[0])[1].replace(",", ""))
            assert said == pytest.approx(needed, rel=0.1)
    assert lines, "residual and ensemble are near each other"
