"""Journals: what is on disk, runs that are cut anywhere and go on as if nothing had happened, and what is refused."""

import copy
import json
import os
import pickle
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from contextlib import closing, suppress
from functools import cache
from pathlib import Path

import journaled_run
import numpy as np
import pytest
from binary_problems import TwoChains, ZeromaxOnemax
from hypothesis import given, settings
from hypothesis import strategies as st
from journaled_run import SEARCHES, SIZE, Chains, lognormal, search
from pymoo.core.problem import Problem
from pymoo.operators.crossover.pntx import TwoPointCrossover
from pymoo.optimize import minimize
from pymoo.util.nds.non_dominated_sorting import find_non_dominated

from pymoo_stitch import Evaluations, Journal, JournalError
from pymoo_stitch.algorithms import GOMEA, LKGOMEA, AsyncGA, Threshold, nsga2
from pymoo_stitch.journal import Row
from pymoo_stitch.runners import SerialRunner, SimulatedRunner

OURS = [name for name in SEARCHES if not name.startswith("NSGA-II")]
FOUR = ["AsyncGA", "GOMEA, few workers", "LK-GOMEA", "NSGA-II"]


def read(path):
    with closing(Journal(path, create=False)) as journal:
        return list(journal.rows())


def sequence(path, times=False):
    """All that a journal says of the search, and also when and where if those times are virtual."""
    return [
        (row.request, row.x.tobytes(), tuple(row.result["F"]), row.threshold, row.result["failed"], row.key)
        + (tuple(row.result[name] for name in ("worker", "begun", "ended")) if times else ())
        for row in read(path)
    ]


def outcome(result):
    """All that a run has come to."""
    algorithm, evaluator = result.algorithm, result.algorithm.evaluator
    archive = result.pop if result.archive is None else result.archive
    return {
        "F": result.F.tolist(),
        "X": result.X.tolist(),
        "archive": archive.get("X").tolist(),
        "population": result.pop.get("X").tolist(),
        "counters": [getattr(evaluator, name) for name in ("n_eval", "requested", "real", "skipped", "failed")],
        "random": algorithm.random_state.bit_generator.state["state"],
    }


@cache
def uninterrupted(name, budget=150):
    """The journal, the outcome and the number of evaluations of a run that nothing disturbs."""
    with tempfile.TemporaryDirectory() as folder:
        problem = Chains()
        result = search(name, f"{folder}/whole", budget, problem)
        return sequence(f"{folder}/whole", times="workers" in name), outcome(result), len(problem.evaluated)


class Cut(BaseException):
    """What no runner takes for a failed evaluation."""


def attempt(name, path, limit=None, error=None, **options):
    """A run that may be cut. What was committed before must not be evaluated again. How much it evaluated."""
    known = {row.key for row in read(path)} if Path(path).exists() else set()
    problem = Chains(limit=limit, error=error)
    with warnings.catch_warnings(), suppress(Cut):
        warnings.filterwarnings("ignore", "interrupted: the run ends")
        search(name, path, problem=problem, **options)
    assert known.isdisjoint(problem.evaluated)
    return len(problem.evaluated)


# --------------------------------------------------------------------------------------------------------------- rows


def same(a, b):
    """Equal in value and kind, NaN equal to itself."""
    if isinstance(a, np.ndarray):
        kinds = isinstance(b, np.ndarray) and a.dtype == b.dtype and a.shape == b.shape
        return kinds and (np.array_equal(a, b, equal_nan=True) if a.dtype.kind == "f" else np.array_equal(a, b))
    return type(a) is type(b) and (a == b or a != a and b != b)


arrays = st.one_of(
    st.lists(st.booleans(), max_size=8).map(lambda values: np.array(values, dtype=bool)),
    st.lists(st.floats(), max_size=5).map(lambda values: np.array(values, dtype=float)),
    st.lists(st.floats(width=32), max_size=5).map(lambda values: np.array(values, dtype=np.float32)),
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5).map(lambda values: np.array(values, dtype=np.int64)),
    st.lists(st.tuples(st.floats(), st.floats()), min_size=1, max_size=4).map(np.array),
    st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=4).map(np.array),
    st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5), min_size=1).map(np.array),
    st.floats().map(np.array),
)
numbers = st.floats(allow_nan=False)
times = st.none() | st.floats(0, 1e10)


@st.composite
def journals(draw):
    """The numbers of objectives and constraints, and rows that have so many."""
    counts = [draw(st.integers(1, 3)), draw(st.integers(0, 2)), draw(st.integers(0, 2))]
    genes = draw(st.sampled_from([st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False)]))
    own = ("F", "G", "H", "failed", "worker", "begun", "ended")
    others = st.text(min_size=1).filter(lambda name: name not in own)
    values = st.one_of(st.floats(), st.text(), st.integers(), st.booleans(), st.none(), arrays)
    rows = []
    for request in draw(st.lists(st.integers(0, 2**40), unique=True, min_size=1, max_size=5)):
        result = {"failed": draw(st.just("") | st.text())} | draw(st.dictionaries(others, values, max_size=4))
        for name, count in zip("FGH", counts, strict=True):
            result[name] = np.array(draw(st.lists(numbers, min_size=count, max_size=count)), dtype=float)
        for name, some in (("worker", st.none() | st.text()), ("begun", times), ("ended", times)):
            if (value := draw(some)) is not None:
                result[name] = value
        x = np.array(draw(st.lists(genes, min_size=1, max_size=12)))
        rows.append(Row(request, x, draw(st.text()), result, draw(st.none() | st.floats(0, 1))))
    return counts, rows


@settings(max_examples=100, deadline=None)
@given(journals(), st.integers(1, 5))
def test_rows_come_back_as_they_were(counts_and_rows, at_a_time):
    counts, rows = counts_and_rows
    with tempfile.TemporaryDirectory() as folder:
        with closing(Journal(f"{folder}/journal")) as journal:
            journal.begin({"budget": 7}, *counts)
            for first in range(0, len(rows), at_a_time):
                journal.append(first, rows[first : first + at_a_time])
        for row, back in zip(rows, read(f"{folder}/journal"), strict=True):
            assert (row.request, row.key, row.threshold) == (back.request, back.key, back.threshold)
            assert same(row.x, back.x)
            assert row.result.keys() == back.result.keys()
            for name, value in row.result.items():
                assert same(value, back.result[name]), (name, value, back.result[name])
        with closing(sqlite3.connect(f"{folder}/journal")) as db:  # and SQLite understands all of it
            assert db.execute("SELECT min(json_valid(more)) FROM evaluations").fetchone() == (1,)


def row(request=0, **result):
    whole = {"F": np.array([1.0, 2.0]), "G": np.empty(0), "H": np.empty(0), "failed": ""} | result
    return Row(request, np.array([True, False]), "key", whole)


CANNOT = {
    "an object": {"note": object()},
    "a list": {"note": [1, 2]},
    "bytes": {"note": b"1"},
    "a complex number": {"note": 1j},
    "a complex scalar": {"note": np.complex128(1j)},
    "a date": {"note": np.datetime64("2020-01-01")},
    "complex numbers": {"note": np.array([1j])},
    "objects": {"note": np.array([object()], dtype=object)},
    "half a character": {"failed": "\ud800"},
    "a worker that is no text": {"worker": {"name": 1}},
    "an objective that is no number": {"F": ["a", "b"]},
}


@pytest.mark.parametrize("result", CANNOT.values(), ids=CANNOT)
def test_what_cannot_be_written_is_told_and_nothing_of_it_is_written(tmp_path, result):
    with closing(Journal(tmp_path / "journal")) as journal:
        journal.begin({"budget": 7}, 2, 0, 0)
        journal.append(0, [row(0)])
        with pytest.raises(JournalError) as error:
            journal.append(1, [row(1), row(2, **result), row(3)])
        assert "cannot be written" in str(error.value)
        assert [row.request for row in read(tmp_path / "journal")] == [0]
        journal.append(1, [row(1), row(2)])
    assert [row.request for row in read(tmp_path / "journal")] == [0, 1, 2]


class Secretive(Chains):
    """What it says besides objectives cannot be written from some evaluation on."""

    def _evaluate(self, X, out, *args, **kwargs):
        super()._evaluate(X, out, *args, **kwargs)
        if len(self.evaluated) > 40 and self.limit is None:
            out["note"] = np.array([object() for _ in X])


Secretive.__qualname__ = Chains.__qualname__


@pytest.mark.parametrize("name", FOUR)
def test_a_run_ends_at_what_cannot_be_written_and_keeps_what_was(tmp_path, name):
    with pytest.raises(JournalError, match="the problem gave a"):
        search(name, tmp_path / "journal", problem=Secretive())
    whole, result, _ = uninterrupted(name)
    assert 16 <= len(read(tmp_path / "journal")) <= 40
    assert outcome(search(name, tmp_path / "journal")) == result
    assert sequence(tmp_path / "journal", "workers" in name) == whole


# ------------------------------------------------------------------------------------------------------- cut and resumed


@pytest.mark.parametrize("name", SEARCHES)
def test_a_journal_changes_nothing(name):
    whole, result, evaluated = uninterrupted(name)
    assert outcome(search(name, None)) == result
    assert len(whole) == len({row[0] for row in whole}) == evaluated == result["counters"][2]
    assert evaluated == 150 if name in OURS else 150 <= evaluated < 150 + SIZE
    assert 0 < sum(row[4] != "" for row in whole) == result["counters"][4]


cuts = st.lists(st.tuples(st.integers(0, 70), st.sampled_from([Cut, KeyboardInterrupt])), min_size=1, max_size=4)


@pytest.mark.parametrize("name", SEARCHES)
@settings(max_examples=5, deadline=None)
@given(cuts)
def test_a_run_that_is_cut_ends_as_if_it_had_not_been(name, cuts):
    whole, result, evaluated = uninterrupted(name)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/journal"
        total = sum(attempt(name, path, limit, error) for limit, error in cuts)
        before, problem = len(read(path)), Chains()
        final = search(name, path, problem=problem)
        assert final.algorithm.evaluator.replayed == before
        assert len(problem.evaluated) == evaluated - before
        assert outcome(final) == result
        assert sequence(path, times="workers" in name) == whole
        if name != "NSGA-II":  # whose generations are evaluated and committed as a whole
            assert total + len(problem.evaluated) == evaluated


@pytest.mark.parametrize("name", ["AsyncGA", "GOMEA, few workers", "LK-GOMEA", "NSGA-II, runner"])
def test_each_evaluation_is_committed_before_the_next_one_begins(tmp_path, name):
    path, total = tmp_path / "journal", 0
    for _ in range(20):
        total += attempt(name, path, 3, Cut)
        assert len(read(path)) == total
    assert sequence(path, "workers" in name) == uninterrupted(name)[0][:total]


def test_skipped_evaluations_count_after_a_cut_as_before(tmp_path):
    options = {"evaluations": {"count_skipped": True}}
    whole = search("GOMEA", tmp_path / "whole", **options)
    attempt("GOMEA", tmp_path / "cut", 30, Cut, **options)
    assert outcome(search("GOMEA", tmp_path / "cut", **options)) == outcome(whole)
    assert whole.algorithm.evaluator.n_eval == 150 > whole.algorithm.evaluator.real


class Constrained(Problem):
    """Integer variables without keys, and constraints of both kinds."""

    def __init__(self):
        super().__init__(n_var=6, n_obj=3, n_ieq_constr=2, n_eq_constr=1, xl=0, xu=9, vtype=int)
        self.limit = None

    def _evaluate(self, X, out, *args, **kwargs):
        if self.limit is not None:
            self.limit -= len(X)
            if self.limit < 0:
                raise Cut
        out["F"] = np.column_stack([X.sum(1), -X[:, 0], (X % 3).sum(1)])
        out["G"] = np.column_stack([X[:, 0] - 5, 2 - X[:, 1]])
        out["H"] = X[:, 2] % 2


def test_integers_and_constraints_go_on_too(tmp_path):
    from pymoo.algorithms.moo.nsga2 import NSGA2
    from pymoo.operators.repair.rounding import RoundingRepair
    from pymoo.operators.sampling.rnd import IntegerRandomSampling

    def run(path, limit=None):
        problem = Constrained()
        problem.limit = limit
        algorithm = NSGA2(pop_size=10, sampling=IntegerRandomSampling(), repair=RoundingRepair())
        return minimize(problem, algorithm, ("n_evals", 200), seed=1, evaluator=Evaluations(journal=path))

    whole = run(tmp_path / "whole")
    for limit in (25, 60, 41):
        with pytest.raises(Cut):
            run(tmp_path / "cut", limit)
    assert outcome(run(tmp_path / "cut")) == outcome(whole)
    assert sequence(tmp_path / "cut") == sequence(tmp_path / "whole")
    for row in read(tmp_path / "cut"):
        out = Constrained().evaluate(row.x[None], return_as_dictionary=True, return_values_of=["F", "G", "H"])
        assert all(np.array_equal(row.result[part], out[part][0]) for part in "FGH")


# ------------------------------------------------------------------------------------------------------------- extended


@pytest.mark.parametrize("make", [AsyncGA, GOMEA, LKGOMEA, nsga2])
def test_a_run_that_had_ended_goes_on_with_a_larger_budget(tmp_path, make):
    def run(path, budget):
        problem = Chains()
        return search(make(pop_size=20, threshold=None), path, budget, problem), problem

    whole, _ = run(tmp_path / "whole", 400)
    first, _ = run(tmp_path / "extended", 200)
    second, problem = run(tmp_path / "extended", 400)
    assert outcome(second) == outcome(whole)
    assert sequence(tmp_path / "extended") == sequence(tmp_path / "whole")
    assert len(problem.evaluated) == whole.algorithm.evaluator.real - first.algorithm.evaluator.real
    again, problem = run(tmp_path / "extended", 200)  # a smaller one is there already
    assert outcome(again)["counters"] == outcome(first)["counters"]
    assert problem.evaluated == []
    assert sequence(tmp_path / "extended") == sequence(tmp_path / "whole")


def test_an_extended_run_keeps_its_size_and_its_threshold(tmp_path):
    def run(budget):
        return search(AsyncGA(), tmp_path / "journal", budget, Chains(depth=20))

    first, second = run(1_700), run(1_800)
    assert first.algorithm.pop_size == second.algorithm.pop_size == 34 < AsyncGA()._default_pop_size(1_800)
    assert first.algorithm.annealing.budget == second.algorithm.annealing.budget == 1_700
    assert (first.algorithm.evaluator.real, second.algorithm.evaluator.real) == (1_700, 1_800)
    for number, row in enumerate(read(tmp_path / "journal")):
        assert row.threshold == pytest.approx(min(0.5, 0.5 * number / 850))


def test_nsga2_keeps_its_threshold_too(tmp_path):
    for budget in (200, 400):
        result = search("NSGA-II", tmp_path / "journal", budget)
        assert result.algorithm.survival.annealing.budget == 200


# ------------------------------------------------------------------------------------------------------------- refused


def crossed(prob):
    return nsga2(pop_size=SIZE, threshold="auto", crossover=TwoPointCrossover(prob=prob))


OTHERS = {
    "seed": (GOMEA, {"seed": 4}, "seed is 3 in the journal and 4 here"),
    "pop_size": (lambda: GOMEA(pop_size=18), {}, "algorithm.pop_size is 16 in the journal and 18 here"),
    "class": (LKGOMEA, {}, r"algorithm.class is .*GOMEA.* in the journal and .*LKGOMEA.* here"),
    "option": (lambda: GOMEA(pop_size=SIZE, closure=False), {}, "algorithm.closure is true in the journal and false"),
    "threshold": (
        lambda: GOMEA(pop_size=SIZE, threshold=Threshold(final=0.6)),
        {},
        r"algorithm.annealing.threshold.final is 0.5 in the journal and 0.6 here",
    ),
    "size of the problem": (GOMEA, {"problem": Chains(depth=11)}, "problem.n_var is 22 in the journal and 24 here"),
    "class of problem": (GOMEA, {"problem": TwoChains(10, 1)}, 'problem.class is "Chains" in the journal and "TwoChains"'),
    "what counts": (GOMEA, {"evaluations": {"count_skipped": True}}, "evaluations.count_skipped is false in"),
}


@pytest.mark.parametrize(("make", "options", "difference"), OTHERS.values(), ids=OTHERS)
def test_another_run_is_refused(tmp_path, make, options, difference):
    attempt("GOMEA", tmp_path / "journal", 60, Cut)
    before = sequence(tmp_path / "journal")
    algorithm = make(pop_size=SIZE) if isinstance(make, type) else make()
    with pytest.raises(JournalError, match=rf"is the journal of another run: (.*; )?{difference}"):
        search(algorithm, tmp_path / "journal", **options)
    assert sequence(tmp_path / "journal") == before
    assert len(before) == 60
    assert outcome(search("GOMEA", tmp_path / "journal")) == uninterrupted("GOMEA")[1]


def test_another_probability_is_refused(tmp_path):
    first = search(crossed(0.9), tmp_path / "journal")
    with pytest.raises(JournalError, match=r"crossover\.prob\.value is 0\.9 in the journal and 0\.8 here"):
        search(crossed(0.8), tmp_path / "journal")
    assert outcome(search(crossed(0.9), tmp_path / "journal")) == outcome(first)


@pytest.mark.parametrize("name", FOUR)
def test_without_a_seed_there_is_no_journal(tmp_path, name):
    problem = Chains()
    with pytest.raises(ValueError, match="a run with a journal needs a seed.*seed=1, not None"):
        search(name, tmp_path / "journal", seed=None, problem=problem)
    assert problem.evaluated == []
    assert outcome(search(name, tmp_path / "journal")) == uninterrupted(name)[1]


def alter(path, statement, *values):
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(statement, values)


@pytest.mark.parametrize("name", FOUR)
def test_genotypes_that_do_not_fit_are_refused(tmp_path, name):
    path = tmp_path / "journal"
    attempt(name, path, 60, Cut)
    genotype = "".join("01"[value] for value in read(path)[20].x.tolist())
    other = genotype[:-1] + "10"[int(genotype[-1])]
    alter(path, "UPDATE evaluations SET genotype = ? WHERE sequence = 20", other)
    with pytest.raises(JournalError, match=r"does not fit this run: request \d+ .*versions of the libraries are the same"):
        search(name, path)
    alter(path, "UPDATE evaluations SET genotype = ? WHERE sequence = 20", genotype)
    assert outcome(search(name, path)) == uninterrupted(name)[1]
    assert sequence(path, "workers" in name) == uninterrupted(name)[0]


@pytest.mark.parametrize("name", FOUR)
def test_what_differs_is_told_when_a_run_goes_another_way(tmp_path, name):
    path = tmp_path / "journal"
    attempt(name, path, 60, Cut)
    alter(path, "UPDATE run SET value = json_set(value, '$.numpy', '1.0') WHERE name = 'versions'")
    alter(path, "UPDATE evaluations SET request = 1000 WHERE sequence = 20")
    with pytest.raises(JournalError, match=r"numpy is \"1\.0\" in the journal"):
        search(name, path)


DAMAGES = {
    "a row is gone": ("DELETE FROM evaluations WHERE sequence = 20", "lacks evaluation 20: it was altered"),
    "a genotype": ("UPDATE evaluations SET genotype = '01x' WHERE sequence = 20", "evaluation 20 cannot be read"),
    "more": ("UPDATE evaluations SET more = '{' WHERE sequence = 20", "evaluation 20 cannot be read"),
    "a value": ("UPDATE evaluations SET F1 = 'a' WHERE sequence = 20", "evaluation 20 cannot be read"),
    "the run": ("UPDATE run SET value = '{' WHERE name = 'seed'", "seed of its run cannot be read"),
    "version": ("PRAGMA user_version = 99", "is a journal of version 99; this program reads 1"),
}


@pytest.mark.parametrize(("statement", "message"), DAMAGES.values(), ids=DAMAGES)
def test_damaged_rows_are_refused(tmp_path, statement, message):
    path, kept = tmp_path / "journal", tmp_path / "kept"
    attempt("GOMEA", path, 60, Cut)
    with closing(sqlite3.connect(path)) as db, closing(sqlite3.connect(kept)) as copy:
        db.backup(copy)
    alter(path, statement)
    with pytest.raises(JournalError, match=message):
        search("GOMEA", path)
    assert outcome(search("GOMEA", kept)) == uninterrupted("GOMEA")[1]


def test_files_of_others_are_refused_and_left_alone(tmp_path):
    text, database, broken = tmp_path / "text", tmp_path / "database", tmp_path / "broken"
    text.write_text("Dear diary, " * 1_000)
    alter(database, "CREATE TABLE run (name, value)")
    broken.write_bytes(os.urandom(10_000))
    messages = {text: "file is not a database", database: "a database of something else", broken: "not a database"}
    for path, message in messages.items():
        before = path.read_bytes()
        with pytest.raises(JournalError, match=message):
            search("GOMEA", path)
        assert path.read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {"text", "database", "broken"}


def test_an_empty_file_becomes_a_journal(tmp_path):
    (tmp_path / "journal").touch()
    assert outcome(search("GOMEA", tmp_path / "journal")) == uninterrupted("GOMEA")[1]


@pytest.mark.parametrize("name", ["LK-GOMEA", "NSGA-II"])
@pytest.mark.parametrize("damage", ["overwritten", "truncated"])
def test_a_corrupt_file_is_refused(tmp_path, name, damage):
    path, kept = tmp_path / "journal", tmp_path / "kept"
    attempt(name, path, 120, Cut)
    before = read(path)  # and what is in the write-ahead log is in the file now
    shutil.copy(path, kept)
    size = path.stat().st_size
    with path.open("r+b") as file:
        if damage == "truncated":
            file.truncate(size // 2)
        else:
            file.seek(size // 2 // 4096 * 4096)
            file.write(random.Random(1).randbytes(4 * 4096))
    with pytest.raises(JournalError, match=r"malformed. It is damaged. Restore a copy, or choose another file"):
        search(name, path)
    shutil.copy(kept, path)
    assert len(read(path)) == len(before) >= 100
    assert outcome(search(name, path)) == uninterrupted(name)[1]


def test_a_missing_folder_is_told(tmp_path):
    with pytest.raises(FileNotFoundError, match=f"there is no folder {tmp_path / 'missing'}"):
        search("GOMEA", tmp_path / "missing" / "journal")
    (tmp_path / "missing").mkdir()
    assert outcome(search("GOMEA", tmp_path / "missing" / "journal")) == uninterrupted("GOMEA")[1]


@pytest.mark.parametrize("name", FOUR)
def test_a_full_disk_costs_nothing_that_was_committed(tmp_path, name):
    def fill(algorithm):
        db = algorithm.evaluator._journal._db
        (pages,) = db.execute("PRAGMA page_count").fetchone()
        db.execute(f"PRAGMA max_page_count = {pages}")

    with pytest.raises(JournalError, match="full. There is no room left on the disk. Make room, and start the same run"):
        search(name, tmp_path / "journal", callback=fill)
    whole, result, _ = uninterrupted(name)
    before = sequence(tmp_path / "journal", "workers" in name)
    assert before == whole[: len(before)]
    assert SIZE <= len(before) < len(whole)
    assert outcome(search(name, tmp_path / "journal")) == result
    assert sequence(tmp_path / "journal", "workers" in name) == whole


@pytest.mark.parametrize("name", FOUR)
def test_a_locked_journal_is_told(tmp_path, name, monkeypatch):
    monkeypatch.setattr(Journal, "timeout", 0.1)
    other = sqlite3.connect(tmp_path / "journal", isolation_level=None)

    def lock(algorithm):
        if algorithm.n_gen == 3:
            other.execute("BEGIN EXCLUSIVE")

    with closing(other):
        with pytest.raises(JournalError, match="locked. Another process holds it. End that, and start the same run"):
            search(name, tmp_path / "journal", callback=lock)
        other.execute("ROLLBACK")
        before = sequence(tmp_path / "journal", "workers" in name)
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(JournalError, match="locked"):  # to replay needs no lock, to go on does
            search(name, tmp_path / "journal")
    whole, result, _ = uninterrupted(name)
    assert before == whole[: len(before)]
    assert SIZE <= len(before) < len(whole)
    assert outcome(search(name, tmp_path / "journal")) == result
    assert sequence(tmp_path / "journal", "workers" in name) == whole


def test_a_short_lock_is_waited_for(tmp_path):
    other = sqlite3.connect(tmp_path / "journal", isolation_level=None, check_same_thread=False)

    def lock(algorithm):
        if algorithm.n_gen == 3:
            other.execute("BEGIN EXCLUSIVE")
            threading.Timer(0.3, other.execute, ("ROLLBACK",)).start()

    with closing(other):
        assert outcome(search("GOMEA", tmp_path / "journal", callback=lock)) == uninterrupted("GOMEA")[1]


@pytest.mark.parametrize("name", FOUR)
def test_of_two_who_write_the_same_journal_one_is_stopped(tmp_path, name):
    others = []

    def intrude(algorithm):
        if algorithm.n_gen == 3 and not others:
            others.append(search(name, tmp_path / "journal"))

    with pytest.raises(JournalError, match="another process is writing to it. End one of them"):
        search(name, tmp_path / "journal", callback=intrude)
    whole, result, _ = uninterrupted(name)
    assert outcome(others[0]) == outcome(search(name, tmp_path / "journal")) == result
    assert sequence(tmp_path / "journal", "workers" in name) == whole
