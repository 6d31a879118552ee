"""Examples in docstrings: they run, and give what they say."""

import doctest
import importlib
import pkgutil

import pytest
import torch
from pymoo.optimize import minimize
from pymoo_stitch.problems import get_problem

import pymoo_stitch
from pymoo_stitch import Evaluations, algorithms

MODULES = [
    m.name for m in pkgutil.walk_packages(pymoo_stitch.__path__, "pymoo_stitch.") if not m.name.endswith("__main__")
]
EXAMPLES = [
    example
    for name in ["pymoo_stitch.problems", *MODULES]
    for example in doctest.DocTestFinder(exclude_empty=True).find(importlib.import_module(name))
    if example.examples
]
KNOWN = {name: getattr(algorithms, name) for name in algorithms.__all__}
KNOWN |= {"minimize": minimize, "get_problem": get_problem, "Evaluations": Evaluations, "torch": torch}


def test_there_are_examples():
    assert len(EXAMPLES) >= 10


def marked(example):
    """Examples that search take seconds each."""
    searches = any("minimize(" in line.source for line in example.examples)
    return pytest.param(example, id=example.name, marks=pytest.mark.slow if searches else ())


@pytest.mark.parametrize("example", [marked(example) for example in EXAMPLES])
def test_examples_in_docstrings(example, cache, digits, workers, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    example.globs = KNOWN | example.globs
    for line in example.examples:
        if "DaskRunner(n_workers=2)" in line.source:
            line.source = line.source.replace("DaskRunner(n_workers=2)", "DaskRunner(workers)")
            example.globs["workers"] = workers()
    failed, _ = doctest.DocTestRunner().run(example)
    assert not failed, capsys.readouterr().out
