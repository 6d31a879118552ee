"""The tables of README and docs are what the committed data say; what moved beyond noise is told."""

import json

import pytest
import record as recording
import run_all
from figures import BLOCK, PAGES, TABLES, rendered, written

BLOCKS = [(page, name) for page in PAGES for _, name, _, _ in BLOCK.findall(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_tables_of_a_page_are_made_from_the_data(page):
    text = page.read_text(encoding="utf-8")
    assert written(text) == text, "run `python benchmarks/figures.py`"


def test_there_are_tables_and_each_has_its_command_and_date():
    assert len(BLOCKS) >= 7
    for _, name in BLOCKS:
        document = recording.read(TABLES[name].data)
        assert f"`{document['command']}`, {document['date']}" in rendered(name)
        assert {"torch", "pymoo", "python"} <= document["versions"].keys()


def test_a_changed_figure_changes_the_table(tmp_path):
    _, name = BLOCKS[0]
    document = recording.read(TABLES[name].data)
    row = document["rows"][0]
    column = next(column for column, value in row.items() if isinstance(value, float))
    row[column] = row[column] * 3 + 7
    (tmp_path / f"{TABLES[name].data}.json").write_text(json.dumps(document))
    assert rendered(name, tmp_path) != rendered(name)


def test_no_data_are_committed_that_no_table_shows():
    assert {path.stem for path in recording.DATA.glob("*.json")} <= {table.data for table in TABLES.values()}


def test_recorded_figures_come_back(tmp_path, monkeypatch):
    monkeypatch.setenv("BENCHMARK_DATA", str(tmp_path))
    recording.record("some", [{"form": "a", "value": 1.5}], by=("form",), noise={"value": 0.1}, seeds=[0, 9])
    document = recording.read("some", tmp_path)
    assert document["rows"] == [{"form": "a", "value": 1.5}]
    assert document["settings"] == {"seeds": [0, 9]}


@pytest.mark.parametrize(("now", "lines"), [(1.04, 0), (0.96, 0), (1.2, 1), (None, 1)])
def test_what_moved_beyond_noise_is_told(tmp_path, monkeypatch, now, lines):
    old, new = tmp_path / "old", tmp_path / "new"
    for folder, value in ((old, 1.0), (new, now)):
        monkeypatch.setenv("BENCHMARK_DATA", str(folder))
        rows = [{"form": "a", "value": value, "seconds": value and 99 * value}]
        recording.record("some", rows, by=("form",), noise={"value": 0.1})
    found = run_all.moved("some", new, old)
    assert len(found) == lines
    assert all("some ('a',): value was 1.0" in line for line in found)


def test_what_was_never_committed_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("BENCHMARK_DATA", str(tmp_path / "new"))
    recording.record("some", [{"value": 1.0}])
    assert "nothing is committed" in run_all.moved("some", tmp_path / "new", tmp_path / "old")[0]
