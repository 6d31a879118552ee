"""The benchmarks fit the package as it is, and tables can be made of runs that are kept."""

import importlib
import importlib.util
import json
import sys

import pytest
from binary_problems import TwoChains
from conftest import TESTS

from pymoo_stitch import __version__

BENCHMARKS = sorted((TESTS.parent / "benchmarks").glob("*.py"))


@pytest.mark.parametrize("path", BENCHMARKS, ids=lambda path: path.stem)
def test_a_benchmark_can_be_imported(path):
    """By its path: other tests have modules with the same names."""
    spec = importlib.util.spec_from_file_location(f"benchmark_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # as dataclasses need it
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[spec.name]
    assert module.__doc__


def test_tables_of_kept_runs_run_nothing_and_leave_out_forms_that_lack_a_run(tmp_path):
    search = importlib.import_module("search")
    path = tmp_path / "runs.json"
    runs = {"a 1": {"front": [[0.5, 0.5]]}, "a 2": {"front": []}, "b 1": {"front": []}}
    runs = {f"{name}, {__version__}": run for name, run in runs.items()} | {"b 2, 0.1.0": {"front": []}}
    path.write_text(json.dumps(runs))
    kept = search.Results(path, only_kept=True)
    runs = {(form, i): kept(f"{form} {i}", TwoChains(4, seed=i), None, 10, i) for form in "ab" for i in (1, 2)}
    assert set(search.complete(runs)) == {("a", 1), ("a", 2)}


def test_kept_runs_are_not_run_again(tmp_path):
    search = importlib.import_module("search")
    made = []

    def make():
        made.append(1)
        return search.nsga2(pop_size=8)

    first = search.Results(tmp_path / "runs.json")("name", TwoChains(4, seed=1), make, 16, 1)
    again = search.Results(tmp_path / "runs.json")("name", TwoChains(4, seed=1), make, 16, 1)
    assert (again, len(made)) == (first, 1)
    assert first["real"] >= 16
