"""Files of version 0.1.0: a supernet loads as it was, and runs over it that were cut go on as they would have then."""

import json
import shutil
import sqlite3
from contextlib import closing

import numpy as np
import pytest
import torch
from conftest import TESTS
from pymoo.optimize import minimize

from pymoo_stitch import Evaluations, JournalError, Run, StitchProblem, Supernet, Task
from pymoo_stitch.algorithms import GOMEA, LKGOMEA, AsyncGA, nsga2

FILES = TESTS / "fixtures"
EXPECTED = json.loads((FILES / "expected.json").read_text())
ALGORITHMS = {"lk-gomea": LKGOMEA, "gomea": GOMEA, "ga": AsyncGA, "nsga-ii": nsga2}


def images(count):
    """Noise in which one of five places, that of the class, is a little brighter, and the classes."""
    numbers = np.arange(count * 192, dtype=np.uint64) * np.uint64(2_654_435_761) >> np.uint64(13)
    pixels = (numbers & np.uint64(255)).astype(float).reshape(count, 3, 8, 8) * 0.75
    classes = np.arange(count) % 5
    for image, number in zip(pixels, classes, strict=True):
        row, column = [(0, 0), (0, 4), (4, 0), (4, 4), (2, 2)][number]
        image[:, row : row + 4, column : column + 4] += 9
    return torch.from_numpy(pixels.astype(np.uint8)), torch.from_numpy(classes)


@pytest.fixture(scope="module")
def problem():
    return StitchProblem(Supernet.load(FILES / "supernet.safetensors"), Task(validation=images(60)))


def resume(problem, journal, name, **options):
    options |= {"threshold": "auto"} if name == "nsga-ii" else {}
    algorithm = ALGORITHMS[name](pop_size=12, **options)
    return minimize(problem, algorithm, ("n_evals", 80), seed=1, evaluator=Evaluations(journal=journal))


def test_a_supernet_is_what_it_was(problem):
    assert problem.space.digest() == EXPECTED["digest"]
    assert problem.space.is_fitted


@pytest.mark.parametrize("name", ALGORITHMS)
def test_keys_are_the_same_in_every_process_and_version(problem, name):
    rows = Run.read(FILES / f"{name}.sqlite").rows
    assert [problem.key(row.x) for row in rows] == [row.key for row in rows]
    assert all((problem.active(row.x) == row.result["active"]).all() for row in rows)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_run_goes_on_as_it_would_have_earlier(problem, name, tmp_path):
    journal, expected = tmp_path / "run.sqlite", EXPECTED["runs"][name]
    shutil.copy(FILES / f"{name}.sqlite", journal)
    before = len(Run.read(journal))
    assert before < len(expected["rows"])
    result = resume(problem, journal, name)
    assert result.algorithm.evaluator.replayed == before
    found = [
        [row.request, "".join("01"[int(bit)] for bit in row.x), *row.result["F"]] for row in Run.read(journal).rows
    ]
    assert found == expected["rows"]
    _, first = np.unique(expected["F"], axis=0, return_index=True)  # earlier, NSGA-II had copies in its result
    first = np.sort(first) if name == "nsga-ii" else range(len(expected["F"]))
    np.testing.assert_array_equal(result.F, [expected["F"][i] for i in first])
    assert ["".join("01"[int(bit)] for bit in x) for x in result.X] == [expected["X"][i] for i in first]


class Later(LKGOMEA):
    """The algorithm of a later version, with an option that was not there."""

    earlier = {"boldness": 0.0}  # noqa: RUF012

    def __init__(self, *, boldness=0.5, **options):
        super().__init__(**options)
        self.boldness = boldness

    def _mixed(self, loop, subset, mixing):
        child = super()._mixed(loop, subset, mixing)
        return child if child is None or not self.boldness else ~child


Later.__module__, Later.__qualname__ = "pymoo_stitch.algorithms.elsewhere", "LKGOMEA"


def test_an_option_that_a_journal_does_not_name_has_the_value_of_earlier(problem, tmp_path, monkeypatch):
    journal, expected = tmp_path / "run.sqlite", EXPECTED["runs"]["lk-gomea"]
    shutil.copy(FILES / "lk-gomea.sqlite", journal)
    monkeypatch.setitem(ALGORITHMS, "lk-gomea", Later)
    with pytest.raises(JournalError, match=r"algorithm\.boldness is null in the journal and 0\.7 here"):
        resume(problem, journal, "lk-gomea", boldness=0.7)
    result = resume(problem, journal, "lk-gomea")
    assert result.algorithm.boldness == 0.0
    np.testing.assert_array_equal(result.F, expected["F"])
    new = resume(problem, tmp_path / "new.sqlite", "lk-gomea")  # a new run has the default
    assert new.algorithm.boldness == 0.5
    assert resume(problem, tmp_path / "new.sqlite", "lk-gomea").algorithm.evaluator.replayed == 80


def test_another_class_is_another_run(problem, tmp_path):
    shutil.copy(FILES / "lk-gomea.sqlite", journal := tmp_path / "run.sqlite")
    for path, refused in (("elsewhere.LKGOMEA", True), ("pymoo_stitch.anywhere.at.all.LKGOMEA", False)):
        with closing(sqlite3.connect(journal)) as db, db:
            db.execute("UPDATE run SET value = json_set(value, '$.class', ?) WHERE name = 'algorithm'", (path,))
        if refused:
            with pytest.raises(JournalError, match=r"algorithm is elsewhere\.LKGOMEA in the journal and pymoo_stitch"):
                resume(problem, journal, "lk-gomea")
        else:
            assert resume(problem, journal, "lk-gomea").algorithm.evaluator.replayed == 40
