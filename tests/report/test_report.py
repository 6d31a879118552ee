"""Reports: what they say is what the journals and the networks say."""

import csv
import json
import shutil
import sqlite3

import numpy as np
import pytest
from PIL import Image

from pymoo_stitch import Report, Run, StitchProblem, Supernet, compare
from pymoo_stitch.algorithms import LKGOMEA, nsga2
from pymoo_stitch.util.fronts import dominates


@pytest.fixture(scope="module")
def runs(digits, tmp_path_factory):
    algorithms = {"LK-GOMEA": lambda: LKGOMEA(pop_size=20), "NSGA-II": lambda: nsga2(pop_size=20)}
    return compare(digits, algorithms, ("n_evals", 80), seeds=[1, 2], folder=tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def report(digits, runs):
    return Report(runs, digits)


def test_the_front_is_that_of_each_algorithm(report, digits):
    assert report.front == sorted(report.front, key=lambda point: point.multiply_adds)
    for label, group in report.comparison.runs.items():
        F = np.concatenate([run.F for run in group])
        best = {tuple(f) for f in F if not any(dominates(g, f) for g in F)}
        assert {tuple(point.F["validation"]) for point in report.front if label in point.found_by} == best
    for point in report.front:
        subnetwork = digits.subnetwork(point.x)
        assert (point.key, point.multiply_adds, point.stitches) == (
            subnetwork.key,
            subnetwork.cost,
            subnetwork.n_stitches,
        )
        assert point.metrics["validation"]["accuracy"] == pytest.approx(1 - point.F["validation"][1])
        again = digits.reevaluate(point.x, "test")[0]
        assert point.metrics["test"]["accuracy"] == again.get("accuracy")


def test_what_dominates_what(report):
    assert [point.name for point in report.references] == ["inverted", "residual", "ensemble"]
    for point in report.front:
        for split in ("validation", "test"):
            beaten = [r.name for r in report.references if dominates(point.F[split], r.F[split])]
            assert list(point.dominates[split]) == beaten
        assert point.on_front["test"] == (
            not any(dominates(other.F["test"], point.F["test"]) for other in report.front)
        )
    text = str(report)
    for reference in report.references:
        there = [point for point in report.found if reference.name in point.dominates["validation"]]
        assert f"{len(there)} dominate {reference.name} on validation" in text


def test_references_are_not_found(report):
    keys = {point.key for point in report.references}
    for point in report.front:
        best = not any(dominates(other.F["validation"], point.F["validation"]) for other in report.front)
        assert (point in report.found) == (best and point.key not in keys)


def test_choices(report):
    metric = [point.metrics["validation"]["accuracy"] for point in report.front]
    best = max(metric)
    goal = max(point.metrics["validation"]["accuracy"] for point in report.references)
    chosen = report.choose()
    if best >= goal:
        assert chosen.multiply_adds == min(
            p.multiply_adds for p, a in zip(report.front, metric, strict=True) if a >= goal
        )
    else:
        assert chosen.metrics["validation"]["accuracy"] == best
    middle = report.front[len(report.front) // 2]
    assert report.choose(key=middle.key[:10]) is middle
    within = report.choose(at_most=middle.multiply_adds)
    assert within.F["validation"][1] == min(
        p.F["validation"][1] for p in report.front if p.multiply_adds <= middle.multiply_adds
    )
    enough = report.choose(at_least=middle.metrics["validation"]["accuracy"])
    assert enough.multiply_adds <= middle.multiply_adds


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"key": "nothing"}, "no networks on the front have a key like 'nothing'. There are s"),
        ({"key": "s"}, r"\d+ networks on the front have a key like 's'"),
        ({"at_most": 10}, "no network on the front costs at most 10; the cheapest costs"),
        ({"at_least": 1.1}, r"reaches accuracy 1.1; the best has 0\.\d+"),
    ],
)
def test_choices_that_there_are_not(report, choice, message):
    with pytest.raises(ValueError, match=message):
        report.choose(**choice)


def test_files_hold_everything(report, runs, tmp_path):
    written = report.write(tmp_path / "new" / "folder")
    assert sorted(path.name for path in written) == sorted(path.name for path in (tmp_path / "new/folder").iterdir())
    assert {path.name for path in written} == {
        *("front.csv", "evaluations.csv", "report.json", "fronts.png", "hypervolume.png", "hypervolume-time.png"),
        *("stitches.png", "predictions.png", "reliability.png", "subnetwork.png"),
    }
    for path in written:
        if path.suffix == ".png":
            with Image.open(path) as image:
                assert image.width > 600
                assert len(set(image.convert("L").resize((64, 64)).tobytes())) > 5
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
    for point in [*report.references, report.choose()]:
        counts, probabilities, right = np.array(document["reliability"][point.name])
        assert counts.sum() == 500
        error = np.abs(probabilities - right).sum() / 500
        assert error == pytest.approx(point.metrics["test"]["calibration_error"], abs=1e-6)
    assert document["problem"]["origin"] == {"name": "digits", "options": {}}
    assert {d["first"] for d in document["differences"]} == {"LK-GOMEA"}
    with open(tmp_path / "new/folder/front.csv", newline="") as file:
        names = [row["name"] for row in csv.DictReader(file)]
    assert names == [point.name for point in [*report.references, *report.front]]


def test_a_task_without_test_images(digits, runs):
    report = Report(runs[:1], digits, test=False)
    assert "test" not in str(report)
    assert all(set(point.metrics) == {"validation"} for point in report.front)


def test_time_is_the_runs_own_unless_it_took_results_over(digits, runs):
    assert runs[0].has_own_times
    assert Report(runs[:1], digits).plot_hypervolume(over_time=True).axes[0].get_xlabel() == "time (seconds)"
    assert not all(run.has_own_times for run in runs)  # they share a memo
    assert Report(runs, digits).plot_hypervolume(over_time=True).axes[0].get_xlabel() == "workers' time (seconds)"


def test_what_was_searched_is_what_counts(digits, tmp_path):
    problem = StitchProblem(digits.space, digits.task, split="test", batch_size=500)
    (run,) = compare(problem, {"NSGA-II": lambda: nsga2(pop_size=20)}, ("n_evals", 20), seeds=[1], folder=tmp_path)
    report = Report([run], problem)
    assert report.splits == ("test",)
    assert {tuple(point.F["test"]) for point in report.front} == {tuple(f) for f in run.F[run.front]}
    assert report.choose() in report.front


def test_runs_in_which_all_failed(digits, runs, tmp_path):
    shutil.copy(runs[0].path, tmp_path / "failed.sqlite")
    with sqlite3.connect(tmp_path / "failed.sqlite") as db:
        db.execute("update evaluations set failed = 'no memory'")
    db.close()
    report = Report([Run.read(tmp_path / "failed.sqlite")], digits)
    assert "Found on the front: 0, of which 0" in str(report)
    assert report.write(tmp_path / "report")
    with pytest.raises(ValueError, match="found no network"):
        report.choose()


def test_runs_of_another_problem_are_refused(digits, runs, tmp_path):
    with pytest.raises(ValueError, match="one run or more"):
        Report([], digits)
    other = Supernet(digits.space.networks, digits.space.links[:10], stitches=None)
    with pytest.warns(UserWarning, match="no stitch"):
        problem = StitchProblem(other, digits.task)
    with pytest.raises(ValueError, match=r"is a run of another problem: .*problem\.n_var is 72"):
        Report(runs, problem)


def test_a_retrained_subnetwork_is_measured_with_its_own_stitches(digits, report):
    chosen = next(point for point in report.front if point.stitches)
    subnetwork = digits.subnetwork(chosen.x)
    assert report.measure(subnetwork) == chosen.metrics
    subnetwork.retrain(digits.task["calibration"].source, samples=640, lr=0.01, progress=False)
    assert report.measure(subnetwork)["test"]["cross_entropy"] != chosen.metrics["test"]["cross_entropy"]
