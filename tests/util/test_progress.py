"""How far work is: told early, with units that are words, and never two bars at a time."""

import re
import sys

import pytest

from pymoo_stitch.util import progress
from pymoo_stitch.util.progress import Progress, shown


@pytest.fixture
def clock(monkeypatch):
    """A clock that a test sets."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_off_a_terminal_there_is_a_line_before_the_first_result_and_one_now_and_then(clock, capfd):
    with Progress(20, "search", "evaluation") as bar:
        for _ in range(20):
            clock[0] += 1.5
            bar.update(1)
    lines = capfd.readouterr().err.splitlines()
    assert lines[0] == "search: 0 of 20 evaluations"
    assert lines[1] == "search: 7 of 20 evaluations, 1.5 s per evaluation, 00:20 left"
    assert len(lines) == 4
    assert lines[-1] == "search: 20 of 20 evaluations, 1.5 s per evaluation"


def test_nothing_is_foretold_from_a_single_evaluation_nor_from_what_was_read_from_a_journal(clock):
    bar = Progress(100, "search", "evaluation", False)
    bar.update(50, at_once=True)
    clock[0] += 60
    bar.update(1)
    assert str(bar) == "search: 51 of 100 evaluations"
    clock[0] += 60
    bar.update(1)
    assert str(bar) == "search: 52 of 100 evaluations, 60.0 s per evaluation"
    clock[0] += 180
    bar.update(3)
    assert str(bar) == "search: 55 of 100 evaluations, 60.0 s per evaluation, 45:00 left"


def test_a_bar_goes_on_beyond_its_total(monkeypatch, capfd):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with Progress(2, "search", "evaluation") as bar:
        for _ in range(3):
            bar.update(1)
        assert str(bar).startswith("search: 3 of 3 evaluations")
    last = re.split("[\r\n]+", capfd.readouterr().err.strip())[-1]
    assert "3 of 3 evaluations" in last
    assert "█" in last


def test_there_is_one_bar_at_a_time(capfd):
    with Progress(2, "search", "evaluation") as outer:
        assert list(shown("ab", 2, "evaluate", "batch", delay=1e-9)) == ["a", "b"]
        assert "evaluate" not in capfd.readouterr().err
        outer.update(2)
        list(shown("ab", 2, "evaluate", "batch", delay=1e-9))  # it is at its end, if nobody has closed it
        assert "evaluate: 2 of 2 batches" in capfd.readouterr().err
