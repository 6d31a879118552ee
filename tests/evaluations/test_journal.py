"""Journals: what is on disk, runs that are cut anywhere and go on as if nothing had happened, and what is refused."""

import copy
import gc
import json
import os
import pickle
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections import deque
from contextlib import closing, suppress
from functools import cache
from pathlib import Path

import journaled_run
import numpy as np
import pytest
from binary_problems import TwoChains, ZeromaxOnemax
from hypothesis import given, settings
from hypothesis import strategies as st
from journaled_run import BUDGET, SEARCHES, SIZE, Chains, make, search
from pymoo.core.individual import Individual
from pymoo.core.population import Population
from pymoo.core.problem import Problem
from pymoo.operators.crossover.pntx import TwoPointCrossover
from pymoo.optimize import minimize
from pymoo.util.nds.non_dominated_sorting import find_non_dominated

from pymoo_stitch import Evaluations, Journal, JournalError, Run, __version__
from pymoo_stitch.algorithms import GOMEA, LKGOMEA, AsyncGA, AsyncNSGA2, Threshold, nsga2
from pymoo_stitch.evaluations import Row, is_bounded
from pymoo_stitch.evaluations.evaluations import says_more
from pymoo_stitch.runners import SerialRunner

OURS = [name for name in SEARCHES if not name.startswith("NSGA-II")]
FIVE = ["AsyncNSGA2", "AsyncGA", "GOMEA, few workers", "LK-GOMEA", "NSGA-II"]
EIGHT = [*FIVE, "AsyncNSGA2, few workers", "AsyncGA, many workers", "NSGA-II, runner"]


def read(path):
    with closing(Journal(path, create=False)) as journal:
        return list(journal.rows())


def sequence(path, times=False):
    """All that a journal says of the search, and also when and where if those times are virtual."""
    return [
        (row.request, row.x.tobytes(), tuple(row.result["F"]), row.threshold, row.result["failed"], row.key, row.notes)
        + (tuple(row.result.get(name) for name in ("worker", "begun", "ended")) if times else ())
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
def uninterrupted(name, budget=BUDGET, size=SIZE):
    """The journal, the outcome and the number of evaluations of a run that nothing disturbs."""
    with tempfile.TemporaryDirectory() as folder:
        problem = Chains()
        result = search(name, f"{folder}/whole", budget, problem, size=size)
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
    return type(a) is type(b) and (a == b or (a != a and b != b))


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


@settings(max_examples=60, deadline=None)
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


@pytest.mark.parametrize("name", FIVE)
def test_a_run_ends_at_what_cannot_be_written_and_keeps_what_was(tmp_path, name):
    with pytest.raises(JournalError, match="the problem returned a"):
        search(name, tmp_path / "journal", problem=Secretive())
    whole, result, _ = uninterrupted(name)
    assert 16 <= len(read(tmp_path / "journal")) <= 40
    assert outcome(search(name, tmp_path / "journal")) == result
    assert sequence(tmp_path / "journal", "workers" in name) == whole


# ------------------------------------------------------------------------------------------------------ cut and resumed


@pytest.mark.parametrize("name", SEARCHES)
def test_a_journal_changes_nothing(name):
    whole, result, evaluated = uninterrupted(name)
    assert outcome(search(name, None)) == result
    assert len(whole) == len({row[0] for row in whole}) == evaluated == result["counters"][2]
    assert evaluated == BUDGET if name in OURS else BUDGET <= evaluated < BUDGET + SIZE
    assert 0 < sum(row[4] != "" for row in whole) == result["counters"][4]


cuts = st.lists(st.tuples(st.integers(0, 70), st.sampled_from([Cut, KeyboardInterrupt])), min_size=1, max_size=4)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name not in EIGHT)) for name in SEARCHES]
)
@settings(max_examples=3, deadline=None)
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
            lost = total + len(problem.evaluated) - evaluated
            assert (
                lost == 0 if "workers" not in name else lost >= 0
            )  # which of two stops first takes both results to know


@pytest.mark.parametrize("name", ["AsyncNSGA2", "AsyncGA", "GOMEA", "LK-GOMEA", "NSGA-II, runner"])
def test_each_evaluation_is_committed_before_the_next_one_begins(tmp_path, name):
    path, total = tmp_path / "journal", 0
    for _ in range(20):
        total += attempt(name, path, 3, Cut)
        assert len(read(path)) == total
    assert sequence(path) == uninterrupted(name)[0][:total]


def test_skipped_evaluations_count_after_a_cut_as_before(tmp_path):
    options = {"evaluations": {"count_skipped": True}}
    whole = search("GOMEA", tmp_path / "whole", **options)
    attempt("GOMEA", tmp_path / "cut", 30, Cut, **options)
    assert outcome(search("GOMEA", tmp_path / "cut", **options)) == outcome(whole)
    assert whole.algorithm.evaluator.n_eval == BUDGET > whole.algorithm.evaluator.real


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


@pytest.mark.parametrize(
    "kind", [*(pytest.param(kind, marks=pytest.mark.slow) for kind in (AsyncGA, GOMEA)), LKGOMEA, nsga2]
)
def test_a_run_that_had_ended_goes_on_with_a_larger_budget(tmp_path, kind):
    def run(path, budget):
        problem = Chains()
        options = {} if kind is nsga2 else {"screen": None}  # what is screened near the end depends on the budget
        return search(kind(pop_size=20, threshold=None, **options), path, budget, problem), problem

    whole, _ = run(tmp_path / "whole", 240)
    first, _ = run(tmp_path / "extended", 120)
    second, problem = run(tmp_path / "extended", 240)
    assert outcome(second) == outcome(whole)
    assert sequence(tmp_path / "extended") == sequence(tmp_path / "whole")
    assert len(problem.evaluated) == whole.algorithm.evaluator.real - first.algorithm.evaluator.real
    again, problem = run(tmp_path / "extended", 120)  # a smaller one is there already
    assert outcome(again)["counters"] == outcome(first)["counters"]
    assert problem.evaluated == []
    assert sequence(tmp_path / "extended") == sequence(tmp_path / "whole")


@pytest.mark.parametrize("name", ["AsyncGA", "LK-GOMEA"])
def test_a_run_of_many_workers_goes_on_with_a_budget_below_what_was_in_flight(tmp_path, name):
    attempt(f"{name}, many workers", tmp_path / "journal", 5, Cut)
    before = read(tmp_path / "journal")
    n = len(before)
    assert 0 < n <= 5
    assert max(row.request for row in before) > 6  # the workers were not equally fast
    problem = Chains()
    result = search(name, tmp_path / "journal", 6, problem)
    assert (result.algorithm.evaluator.real, result.algorithm.evaluator.replayed, len(problem.evaluated)) == (
        6,
        n,
        6 - n,
    )
    assert sequence(tmp_path / "journal")[:n] == [
        (row.request, row.x.tobytes(), tuple(row.result["F"]), row.threshold, row.result["failed"], row.key, row.notes)
        for row in before
    ]


def test_a_run_on_a_virtual_clock_cannot_be_extended(tmp_path):
    """At the end of a budget its workers run idle, which they would not have done with a larger one."""
    name = "AsyncGA, many workers"
    first = search(name, tmp_path / "journal")
    with pytest.raises(JournalError, match="does not fit this run"):
        search(name, tmp_path / "journal", 250)
    assert outcome(search(name, tmp_path / "journal")) == outcome(first)


@pytest.mark.slow
def test_an_extended_run_keeps_its_size_and_its_threshold(tmp_path):
    def run(budget):
        return search(AsyncGA(), tmp_path / "journal", budget, Chains(depth=12))

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


def sized(kind=GOMEA, pop_size=SIZE, **options):
    return kind(pop_size=pop_size, **options)


OTHERS = {
    "seed": (sized(), {"seed": 4}, "seed is 3 in the journal and 4 here"),
    "pop_size": (sized(pop_size=18), {}, "algorithm.pop_size is 16 in the journal and 18 here"),
    "class": (sized(LKGOMEA), {}, "algorithm is GOMEA in the journal and LKGOMEA here. Start"),
    "option": (sized(closure=False), {}, "algorithm.closure is true in the journal and false here"),
    "threshold": (
        sized(threshold=Threshold(final=0.6)),
        {},
        "algorithm.annealing.threshold.final is 0.5 in the journal and 0.6 here",
    ),
    "size of the problem": (sized(), {"problem": Chains(depth=11)}, "problem.n_var is 22 in the journal and 24 here"),
    "class of problem": (
        sized(),
        {"problem": TwoChains(10, 1)},
        "problem is Chains in the journal and TwoChains here",
    ),
    "what counts": (
        sized(),
        {"evaluations": {"count_skipped": True}},
        "evaluations.count_skipped is false in the journal",
    ),
}


@pytest.mark.parametrize(("algorithm", "options", "difference"), OTHERS.values(), ids=OTHERS)
def test_another_run_is_refused(tmp_path, algorithm, options, difference):
    attempt("GOMEA", tmp_path / "journal", 60, Cut)
    before = sequence(tmp_path / "journal")
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


@pytest.mark.parametrize("name", FIVE)
def test_without_a_seed_there_is_no_journal(tmp_path, name):
    problem = Chains()
    with pytest.raises(ValueError, match=r"a run with a journal needs a seed.*seed=1, not None"):
        search(name, tmp_path / "journal", seed=None, problem=problem)
    assert problem.evaluated == []
    assert outcome(search(name, tmp_path / "journal")) == uninterrupted(name)[1]


def alter(path, statement, *values):
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(statement, values)


@pytest.mark.parametrize("name", FIVE)
def test_genotypes_that_do_not_fit_are_refused(tmp_path, name):
    path = tmp_path / "journal"
    attempt(name, path, 60, Cut)
    genotype = "".join("01"[value] for value in read(path)[20].x.tolist())
    other = genotype[:-1] + "10"[int(genotype[-1])]
    alter(path, "UPDATE evaluations SET genotype = ? WHERE sequence = 20", other)
    with pytest.raises(
        JournalError, match=r"does not fit this run: request \d+ .*versions of the libraries are the same"
    ):
        search(name, path)
    alter(path, "UPDATE evaluations SET genotype = ? WHERE sequence = 20", genotype)
    assert outcome(search(name, path)) == uninterrupted(name)[1]
    assert sequence(path, "workers" in name) == uninterrupted(name)[0]


def test_only_the_same_version_in_development_goes_on(tmp_path):
    path = tmp_path / "run.sqlite"
    search("GOMEA", path, 20)
    versions = "UPDATE run SET value = json_set(value, '$.pymoo-stitch', '{}') WHERE name = 'versions'"
    alter(path, versions.format("0.2.0.dev1"))
    with pytest.raises(JournalError, match=rf"was written by pymoo-stitch 0\.2\.0\.dev1, .* {__version__}"):
        search("GOMEA", path, 30)
    assert len(Run.read(path)) == 20
    alter(path, versions.format("0.1.0"))
    search("GOMEA", path, 30)
    assert len(Run.read(path)) == 30


@pytest.mark.parametrize("name", FIVE)
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
    messages = {text: "not a journal", database: "a database of another program", broken: "not a journal"}
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
    attempt(name, path, 80, Cut)
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
    assert len(read(path)) == len(before) >= 70
    assert outcome(search(name, path)) == uninterrupted(name)[1]


def test_a_missing_folder_is_told(tmp_path):
    with pytest.raises(FileNotFoundError, match=f"there is no folder {tmp_path / 'missing'}"):
        search("GOMEA", tmp_path / "missing" / "journal")
    (tmp_path / "missing").mkdir()
    assert outcome(search("GOMEA", tmp_path / "missing" / "journal")) == uninterrupted("GOMEA")[1]


@pytest.mark.parametrize("name", FIVE)
def test_a_full_disk_costs_nothing_that_was_committed(tmp_path, name):
    def fill(algorithm):
        db = algorithm.evaluator._journal._db
        (pages,) = db.execute("PRAGMA page_count").fetchone()
        db.execute(f"PRAGMA max_page_count = {pages}")

    with pytest.raises(
        JournalError, match=r"full. There is no space left on the disk. Free some, and start the same run"
    ):
        search(name, tmp_path / "journal", callback=fill)
    whole, result, _ = uninterrupted(name)
    before = sequence(tmp_path / "journal", "workers" in name)
    assert before == whole[: len(before)]
    assert SIZE // 2 < len(before) < len(whole)
    assert outcome(search(name, tmp_path / "journal")) == result
    assert sequence(tmp_path / "journal", "workers" in name) == whole


@pytest.mark.parametrize("name", FIVE)
def test_a_locked_journal_is_told(tmp_path, name, monkeypatch):
    monkeypatch.setattr(Journal, "timeout", 0.1)
    other = sqlite3.connect(tmp_path / "journal", isolation_level=None)

    def lock(algorithm):
        if algorithm.n_gen == 3:
            other.execute("BEGIN EXCLUSIVE")

    with closing(other):
        with pytest.raises(
            JournalError, match=r"locked. Another process has locked it. Stop that process, and start the same run"
        ):
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


@pytest.mark.parametrize("name", FIVE)
def test_of_two_who_write_the_same_journal_one_is_stopped(tmp_path, name):
    others = []

    def intrude(algorithm):
        if algorithm.n_gen == 3 and not others:
            others.append(search(name, tmp_path / "journal"))

    with pytest.raises(JournalError, match=r"another process is writing to it. End one of them"):
        search(name, tmp_path / "journal", callback=intrude)
    whole, result, _ = uninterrupted(name)
    assert outcome(others[0]) == outcome(search(name, tmp_path / "journal")) == result
    assert sequence(tmp_path / "journal", "workers" in name) == whole


# ---------------------------------------------------------------------------------------------------- what others know


def front(rows):
    """The non-dominated objectives of what meets the threshold in the end, found the slow way."""
    points = {tuple(row.result["F"]) for row in rows if not row.result["failed"] and row.result["F"][1] <= 0.5}
    return {p for p in points if not any(q != p and all(a <= b for a, b in zip(q, p, strict=True)) for q in points)}


@pytest.fixture(scope="module")
def gomea(tmp_path_factory):
    """The journal of another run on the same problem."""
    path = tmp_path_factory.mktemp("memo") / "gomea"
    search("GOMEA", path, seed=9)
    return path


def balanced(result, problem):
    """Whether each evaluation that counts came from the journal, from the memo, or was made."""
    evaluator = result.algorithm.evaluator
    return evaluator.real == evaluator.replayed + evaluator.shared + len(problem.evaluated)


@pytest.mark.parametrize("name", ["NSGA-II", "NSGA-II, runner"])
def test_what_another_run_knows_is_not_computed_again_and_changes_nothing(tmp_path, gomea, name):
    problem = Chains()
    result = search(name, tmp_path / "journal", problem=problem, memo=[gomea])
    evaluator = result.algorithm.evaluator
    known = {row.key for row in read(gomea) if not row.result["failed"] and not is_bounded(row.result)}
    assert outcome(result) == uninterrupted(name)[1]
    assert evaluator.shared == len(known & {row.key for row in read(tmp_path / "journal")}) > 0
    assert balanced(result, problem)
    assert known.isdisjoint(problem.evaluated)
    assert sorted(sequence(tmp_path / "journal")) == sorted(uninterrupted(name)[0])


@pytest.mark.parametrize("name", ["AsyncGA, many workers", "GOMEA, few workers", "LK-GOMEA"])
def test_our_algorithms_count_what_another_run_knows(tmp_path, gomea, name):
    problem = Chains()
    result = search(name, tmp_path / "journal", problem=problem, memo=[gomea])
    rows = read(tmp_path / "journal")
    assert len(rows) == result.algorithm.evaluator.real == BUDGET
    assert result.algorithm.evaluator.shared > 0
    assert balanced(result, problem)
    assert {tuple(f) for f in result.F} == front(rows)
    assert find_non_dominated(result.F).tolist() == list(range(len(result.F)))
    truth = Chains().evaluate(np.array([row.x for row in rows]))
    truth[np.isnan(truth)] = np.inf
    bounded = np.array([is_bounded(row.result) for row in rows])
    found = np.array([row.result["F"] for row in rows])
    np.testing.assert_array_equal(found[~bounded], truth[~bounded])
    bounds = [row.result["bound"] for row in rows if is_bounded(row.result)]
    assert len(bounds) > 0
    assert (truth[bounded, 1] >= bounds).all()
    assert (found[bounded, 1] >= bounds).all()


def test_of_bounded_results_others_take_those_that_say_enough(tmp_path):
    """A run that needs less of a subnetwork than the other did evaluates it itself."""
    problem = Chains()
    x = np.flatnonzero([problem.evaluate(x)[1] < 0.5 for x in np.eye(problem.n_var, dtype=bool)])[0]
    x = np.eye(problem.n_var, dtype=bool)[x]
    error = problem.evaluate(x)[1]
    algorithm = AsyncNSGA2(pop_size=2).setup(problem, termination=("n_evals", 4), seed=1)
    for name, needed in (("other", error - 0.1), ("whole", None)):
        other = Evaluations(runner=SerialRunner(), journal=tmp_path / name)
        other.begin(algorithm)
        other.eval(problem, Population.create(Individual(X=x, needed=needed)), algorithm=algorithm)
        other.close()
    (row,) = read(tmp_path / "other")
    assert row.result["bound"] == pytest.approx(error - 0.05)
    one, both = ["other"], ["whole", "other"]
    cases = [(one, error - 0.1, 1), (one, error - 0.04, 0), (one, None, 0), (both, None, 1), (both[::-1], None, 1)]
    for names, needed, shared in cases:
        evaluations = Evaluations(runner=SerialRunner(), memo=[tmp_path / name for name in names])
        evaluations.begin(algorithm)
        evaluations.eval(problem, Population.create(Individual(X=x, needed=needed)), algorithm=algorithm)
        assert evaluations.shared == shared


@given(st.lists(st.one_of(st.none(), st.floats(0, 1)), min_size=1))
def test_of_several_others_the_one_that_says_most_is_known_whatever_their_order(bounds):
    results = [{"number": i} | ({} if bound is None else {"bound": bound}) for i, bound in enumerate(bounds)]
    known = None
    for result in results:
        if says_more(result, known):
            known = result
    assert "bound" not in known if None in bounds else known["bound"] == max(bounds)


@pytest.mark.parametrize("name", [*FIVE, "NSGA-II, runner"])
def test_a_run_with_a_memo_can_be_cut(tmp_path, gomea, name):
    whole = search(name, tmp_path / "whole", memo=[gomea])
    for limit, error in ((0, Cut), (20, KeyboardInterrupt), (17, Cut)):
        attempt(name, tmp_path / "cut", limit, error, memo=[gomea])
    problem = Chains()
    result = search(name, tmp_path / "cut", problem=problem, memo=[gomea])
    assert outcome(result) == outcome(whole)
    assert sequence(tmp_path / "cut", "workers" in name) == sequence(tmp_path / "whole", "workers" in name)
    assert balanced(result, problem)
    assert result.algorithm.evaluator.replayed > 0


def test_several_memos_and_keys_that_are_no_text(tmp_path):
    class Keyed(ZeromaxOnemax):
        def key(self, x):
            return int("".join("01"[value] for value in x.tolist()), 2)

    def run(seed, memo=()):
        evaluations = Evaluations(journal=tmp_path / f"{seed}", memo=memo)
        return minimize(Keyed(6), nsga2(pop_size=10), ("n_evals", 30), seed=seed, evaluator=evaluations)

    run(1)
    run(2)
    evaluator = run(3, [tmp_path / "1", tmp_path / "2"]).algorithm.evaluator
    first, second, third = ({row.key for row in read(tmp_path / f"{seed}")} for seed in (1, 2, 3))
    assert evaluator.shared == len(third & (first | second)) > len(third & first)


def test_a_memo_of_another_problem_is_refused(tmp_path, gomea):
    with pytest.raises(
        JournalError, match=r"gomea is of another problem.*problem.n_var is 22 in the journal and 24 here"
    ):
        search("NSGA-II", tmp_path / "journal", problem=Chains(depth=11), memo=[gomea])
    with pytest.raises(FileNotFoundError, match=r"there is no journal .*nowhere"):
        search("NSGA-II", None, memo=[tmp_path / "nowhere"])
    assert not (tmp_path / "nowhere").exists()


# ----------------------------------------------------------------------------------------------------- read meanwhile

QUERY = "SELECT count(*), max(sequence), min(F1), count(more ->> 'accuracy'), sum(failed != '') FROM evaluations"


@pytest.mark.parametrize("name", FIVE)
def test_anyone_can_read_the_journal_while_the_run_goes_on(tmp_path, name):
    path, seen = tmp_path / "journal", []

    def look(algorithm):
        with closing(sqlite3.connect(path)) as db:
            count, last, least, *others = db.execute(QUERY).fetchone()
        evaluator = algorithm.evaluator
        assert count == last + 1 == evaluator.real
        assert others == [count, evaluator.failed]
        assert least <= algorithm.opt.get("F")[:, 0].min()
        if algorithm.n_gen == 3:
            code = f"import sqlite3; print(*sqlite3.connect({str(path)!r}).execute({QUERY!r}).fetchone())"
            read = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
            assert int(read.stdout.split()[0]) == count
        seen.append(count)

    assert outcome(search(name, path, callback=look)) == uninterrupted(name)[1]
    assert len(seen) > 3
    with closing(sqlite3.connect(path)) as db:
        run = {name: json.loads(value) for name, value in db.execute("SELECT name, value FROM run")}
    assert (run["seed"], run["budget"], run["problem"]["n_var"]) == (3, BUDGET, 22)
    assert run["algorithm"]["pop_size"] == SIZE
    assert run["versions"].keys() >= {"python", "numpy", "pymoo"}


def test_pandas_can_read_it(tmp_path):
    pandas = pytest.importorskip("pandas")
    search("GOMEA", tmp_path / "journal")
    with closing(sqlite3.connect(tmp_path / "journal")) as db:
        table = pandas.read_sql("SELECT * FROM evaluations", db, index_col="sequence")
    np.testing.assert_array_equal(table[["F1", "F2"]], [row.result["F"] for row in read(tmp_path / "journal")])


# ---------------------------------------------------------------------------------------------- processes and signals


def start(name, path, budget, *options):
    command = [sys.executable, journaled_run.__file__, name, str(path), str(budget), *map(str, options)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1, env=environment
    )


def wait_for(process, text):
    """Read what a process says until it says this."""
    for line in process.stdout:
        if line.strip() == text:
            return
    raise AssertionError(f"{text!r} never came: {process.stderr.read()}")


def ended(process):
    """The last line and the errors of a process."""
    out, errors = process.communicate(timeout=60)
    return process.returncode, out.splitlines()[-1] if out else "", errors


def kill_and_resume(name, path, budget, size, kills, rng):
    """Kill a search again and again, then let it end. How much was committed at each kill."""
    counts = []
    for _ in range(kills):
        process = start(name, path, budget, "--size", size)
        wait_for(process, f"evaluation {rng.randrange(budget // (kills + 1))}")
        time.sleep(rng.uniform(0, 2e-3))
        process.kill()
        assert ended(process)[0] == -signal.SIGKILL
        counts.append(len(read(path)) if path.exists() else 0)
    code, last, errors = ended(start(name, path, budget, "--size", size))
    assert code == 0, errors
    said, (whole, result, _) = json.loads(last), uninterrupted(name, budget, size)
    assert said["replayed"] == counts[-1]
    assert said["F"] == result["F"]
    assert [said[counter] for counter in ("requested", "real", "skipped", "failed")] == result["counters"][1:]
    assert sequence(path, "workers" in name) == whole
    assert counts == sorted(counts)
    return counts


@pytest.mark.parametrize("name", ["LK-GOMEA"])
def test_killed_again_and_again_a_run_ends_as_if_nothing_had_happened(tmp_path, name):
    counts = kill_and_resume(name, tmp_path / "journal", 200, SIZE, 3, random.Random(1))
    assert 0 < counts[-1] < 200


@pytest.mark.slow
@pytest.mark.parametrize("name", ["AsyncGA", "GOMEA", "LK-GOMEA", "NSGA-II", "NSGA-II, runner", "GOMEA, few workers"])
def test_killed_many_times(tmp_path, name):
    counts = kill_and_resume(name, tmp_path / "run", 400, SIZE if name == "NSGA-II" else 48, 8, random.Random(0))
    assert len({count for count in counts if 0 < count < 400}) > 1


def interrupt(name, path, budget, at, pause, seconds, size=SIZE):
    """Interrupt a search at an evaluation. What it says in the end."""
    before = len(read(path)) if path.exists() else 0
    process = start(name, path, budget, "--seconds", seconds, "--size", size)
    wait_for(process, f"evaluation {at}")
    time.sleep(pause)
    process.send_signal(signal.SIGINT)
    code, last, errors = ended(process)
    assert code == 0, errors
    said, rows = json.loads(last), read(path)
    assert f"interrupted: the run ends after {said['real']:,} evaluations" in errors
    assert "If it has a journal, the same run started again goes on from here." in errors
    assert said["real"] == len(rows) < budget
    assert said["replayed"] == before
    assert {tuple(f) for f in said["F"]} <= {tuple(row.result["F"]) for row in rows}
    return said


@pytest.mark.slow
def test_interrupted_by_the_user_a_run_gives_what_it_has_and_can_go_on(tmp_path):
    path, rng = tmp_path / "journal", random.Random(2)
    for _ in range(3):
        interrupt("GOMEA", path, 400, rng.randrange(60), rng.uniform(0, 0.003), 0.001, size=32)
    whole, result, _ = uninterrupted("GOMEA", 400, size=32)
    assert sequence(path) == whole[: len(read(path))]
    assert outcome(search("GOMEA", path, 400, size=32)) == result
    assert sequence(path) == whole


@pytest.mark.parametrize("name", [pytest.param("NSGA-II", marks=pytest.mark.slow), "NSGA-II, runner"])
def test_interrupted_in_an_evaluation_nsga2_gives_what_it_has_and_can_go_on(tmp_path, name):
    path = tmp_path / "journal"
    for at in (20, 10):
        interrupt(name, path, BUDGET, at, 0.005, 0.05)
    whole, result, _ = uninterrupted(name)
    assert sequence(path) == whole[: len(read(path))]
    assert outcome(search(name, path)) == result
    assert sequence(path) == whole


@pytest.mark.slow
@pytest.mark.parametrize("name", ["AsyncGA", "GOMEA", "LK-GOMEA", "GOMEA, few workers"])
def test_interrupted_many_times(tmp_path, name):
    """Evaluations take no time here: most interrupts come while the algorithm keeps its books."""
    rng = random.Random(3)
    for number in range(10):
        path = tmp_path / f"{number}"
        interrupt(name, path, 1_000, rng.randrange(100), rng.uniform(0, 0.01), 0, size=128)
        whole = uninterrupted(name, 1_000, size=128)[0]
        assert sequence(path, "workers" in name) == whole[: len(read(path))]


@pytest.fixture
def default_handler():
    """That of a program in a terminal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("name", ["AsyncGA, many workers", "GOMEA, few workers", "LK-GOMEA"])
def test_an_interrupt_while_books_are_kept_is_not_lost(tmp_path, default_handler, name):
    def interrupt(algorithm):
        if algorithm.n_gen == 3:
            signal.raise_signal(signal.SIGINT)

    with pytest.warns(RuntimeWarning, match="interrupted: the run ends after"):
        result = search(name, tmp_path / "journal", callback=interrupt)
    rows = read(tmp_path / "journal")
    assert SIZE <= len(rows) == result.algorithm.evaluator.real < BUDGET
    assert {tuple(f) for f in result.F} <= {tuple(row.result["F"]) for row in rows}
    assert outcome(search(name, tmp_path / "journal")) == uninterrupted(name)[1]
    assert sequence(tmp_path / "journal", "workers" in name) == uninterrupted(name)[0]


def test_an_interrupt_between_completions_is_not_lost(tmp_path, default_handler):
    class Pressed(AsyncGA):
        def has_next(self):
            if self.n_gen == 3:
                signal.raise_signal(signal.SIGINT)
            return super().has_next()

    Pressed.__module__, Pressed.__qualname__ = AsyncGA.__module__, AsyncGA.__qualname__
    with pytest.warns(RuntimeWarning, match="interrupted: the run ends after"):
        result = search(Pressed(pop_size=SIZE), tmp_path / "journal")
    assert SIZE < result.algorithm.evaluator.real < BUDGET
    assert outcome(search("AsyncGA", tmp_path / "journal")) == uninterrupted("AsyncGA")[1]


def test_who_calls_next_gets_an_interrupt_when_the_books_are_kept(tmp_path, default_handler):
    algorithm = set_up("AsyncGA", tmp_path / "journal")
    algorithm.callback = lambda algorithm: algorithm.n_gen == 3 and signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        deque(iter(algorithm.next, "never"))
    assert algorithm.n_gen == 4  # the callback's generation was completed
    assert outcome(run(algorithm)) == uninterrupted("AsyncGA")[1]
    assert sequence(tmp_path / "journal") == uninterrupted("AsyncGA")[0]


def test_two_processes_do_not_mix(tmp_path):
    path = tmp_path / "journal"
    first = start("AsyncGA", path, 200)
    wait_for(first, "evaluation 20")
    second = start("AsyncGA", path, 200)
    ends = [ended(first), ended(second)]
    assert 0 in [code for code, _, _ in ends]
    for code, _, errors in ends:
        assert code == 0 or "another process is writing to it. End one of them" in errors, errors
    assert sequence(path) == uninterrupted("AsyncGA", 200)[0]


def test_a_file_that_may_not_grow_costs_nothing_that_was_committed(tmp_path):
    path = tmp_path / "journal"
    code, _, errors = ended(start("GOMEA", path, BUDGET, "--file-size", 200_000))
    assert code == 1
    assert "The disk cannot be written to. Free some space, or fix the disk, and start the same run again" in errors
    whole, result, _ = uninterrupted("GOMEA")
    before = sequence(path)
    assert before == whole[: len(before)]
    assert 10 < len(before) < BUDGET
    assert outcome(search("GOMEA", path)) == result
    assert sequence(path) == whole


@pytest.mark.parametrize("begun", [False, True])
def test_a_folder_that_may_not_be_written_to_is_told(begun):
    nobody = ["--uid", 65534] if os.getuid() == 0 else []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal"
        if begun:
            attempt("GOMEA", path, 60, Cut)
            before = read(path)
        Path(folder).chmod(0o555)
        code, _, errors = ended(start("GOMEA", path, BUDGET, *nobody))
        assert code == 1
        assert "JournalError: the journal" in errors
        assert "Choose another folder" in errors or "Change its permissions" in errors, errors
        Path(folder).chmod(0o755)
        assert path.exists() == begun
        if begun:
            assert len(read(path)) == len(before) == 60
        assert outcome(search("GOMEA", path)) == uninterrupted("GOMEA")[1]


# ------------------------------------------------------------------------------------------------- copies and the bar


def set_up(name, path, problem=None):
    algorithm, runner = make(name)
    evaluator = Evaluations(journal=path, runner=runner)
    problem = Chains() if problem is None else problem
    return algorithm.setup(problem, termination=("n_evals", BUDGET), seed=3, evaluator=evaluator)


def run(algorithm):
    result = algorithm.run()
    result.algorithm = algorithm
    return result


@pytest.mark.parametrize("name", ["AsyncGA", "LK-GOMEA", "NSGA-II", "NSGA-II, runner"])
@pytest.mark.parametrize("replaying", [False, True])
def test_copies_do_not_write(tmp_path, name, replaying):
    path = tmp_path / "journal"
    if replaying:
        attempt(name, path, 70, Cut)
    algorithm = set_up(name, path)
    for _ in range(3 if name.startswith("NSGA-II") else 50):
        algorithm.next()
    assert algorithm.evaluator.is_replaying() == replaying
    before, (whole, result, _) = read(path), uninterrupted(name)
    for twin in (copy.deepcopy(algorithm), pickle.loads(pickle.dumps(algorithm))):
        assert outcome(run(twin)) == result
        assert len(read(path)) == len(before)
    assert outcome(run(algorithm)) == result
    assert sequence(path) == whole


@pytest.mark.parametrize("name", FIVE)
def test_a_history_can_be_kept(tmp_path, name):
    attempt(name, tmp_path / "journal", 70, Cut, save_history=True)
    final = search(name, tmp_path / "journal", save_history=True)
    assert outcome(final) == uninterrupted(name)[1]
    assert sequence(tmp_path / "journal", "workers" in name) == uninterrupted(name)[0]
    counts = [entry.evaluator.real for entry in final.history]
    assert len(counts) > 3
    assert counts == sorted(counts)
    assert all(entry.evaluator.journal is None for entry in final.history)


@pytest.mark.parametrize("kind", [AsyncGA, GOMEA, LKGOMEA, nsga2])
def test_a_journal_can_be_given_with_the_algorithm(tmp_path, kind):
    algorithm = kind(pop_size=SIZE, evaluator=Evaluations(journal=tmp_path / "journal"))
    results = []
    for _ in range(2):
        problem = Chains()
        results.append(minimize(problem, algorithm, ("n_evals", BUDGET), seed=3))
    assert len(read(tmp_path / "journal")) == results[0].algorithm.evaluator.real >= BUDGET
    assert outcome(results[0]) == outcome(results[1])
    assert problem.evaluated == []


def test_ask_and_tell_go_on_too(tmp_path):
    def run(path, limit=None):
        problem = Chains(limit=limit, error=Cut)
        algorithm = set_up("AsyncGA", path, problem)
        with suppress(Cut):
            while algorithm.has_next():
                asked = algorithm.ask()
                algorithm.evaluator.eval(problem, asked)
                algorithm.tell(infills=asked)
        return len(problem.evaluated), algorithm.evaluator.real

    _, real = run(tmp_path / "whole")
    for limit in (20, 50):
        run(tmp_path / "cut", limit)
    before = len(read(tmp_path / "cut"))
    assert run(tmp_path / "cut") == (real - before, real)
    assert sequence(tmp_path / "cut") == sequence(tmp_path / "whole")


def test_what_is_committed_counts_also_after_an_error(tmp_path):
    problem = Chains(limit=20, error=Cut)
    algorithm = set_up("NSGA-II, runner", tmp_path / "journal", problem)
    with pytest.raises(Cut):
        algorithm.run()
    assert algorithm.evaluator.real == len(read(tmp_path / "journal")) == 20
    problem.limit = None
    algorithm.run()
    assert algorithm.evaluator.real == len(read(tmp_path / "journal")) == len(set(problem.evaluated)) >= BUDGET


def test_a_run_may_be_in_another_thread_than_its_end(tmp_path):
    results = []
    for name in FIVE:
        thread = threading.Thread(target=lambda name=name: results.append(search(name, tmp_path / name)))
        thread.start()
        thread.join()
        assert outcome(results.pop()) == uninterrupted(name)[1]
        gc.collect()  # closes what is open


@pytest.mark.parametrize("name", ["AsyncGA", "GOMEA, few workers", "NSGA-II, runner"])
def test_the_bar_shows_how_far_a_run_is(tmp_path, capfd, name):
    def run(progress):
        problem = Chains(each=lambda number: time.sleep(0.002))
        return search(name, tmp_path / f"{progress}", problem=problem, evaluations={"progress": progress})

    result = run(False)
    assert capfd.readouterr() == ("", "")
    shown = run(True)
    assert outcome(shown) == outcome(result) == uninterrupted(name)[1]
    out, errors = capfd.readouterr()
    first, *_, last = errors.splitlines()
    assert re.fullmatch(r"search: 0 of [\d,]+ evaluations", first)
    assert out == ""
    assert f"{result.algorithm.evaluator.real}" in last
    assert " evaluations" in last
    assert "hypervolume 0." in last
    assert "utilisation " in last
    assert errors.endswith("\n")


def test_the_bar_of_slow_evaluations_is_never_without_hypervolume(capfd, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    problem = Chains(each=lambda number: time.sleep(0.11))
    search(AsyncGA(pop_size=3), None, 9, problem, evaluations={"progress": True})
    frames = capfd.readouterr().err.split("\r")
    assert all("hypervolume " in frame for frame in frames if " 7 of 9 " in frame or " 8 of 9 " in frame)
    assert any(" 8 of 9 " in frame for frame in frames)
    assert not any("left" in frame for frame in frames if " 1 of 9 " in frame)


def test_our_algorithms_close_what_they_opened(tmp_path, capfd):
    for name in ("AsyncGA", "GOMEA, few workers", "LK-GOMEA, many workers", "NSGA-II"):
        result = search(name, tmp_path / name, evaluations={"progress": True})
        assert capfd.readouterr().err.endswith("\n")
        assert {path.name for path in tmp_path.iterdir()} == {name}  # no write-ahead log is left
        assert outcome(result) == uninterrupted(name)[1]
        (tmp_path / name).unlink()
