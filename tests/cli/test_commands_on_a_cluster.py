"""Commands on a cluster that is there: check, and report and export of a run."""

import json
import platform
from pathlib import Path

import pytest
import torch

from pymoo_stitch.cli import main
from pymoo_stitch.runners import DaskRunner
from pymoo_stitch.runners.inspection import all_versions

TINY = '''
import os
import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset
from pymoo_stitch import StitchProblem, Supernet, Task

IMAGES = torch.rand(24, 1, 8, 8, generator=torch.Generator().manual_seed(1))


class Own(Dataset):
    """Images that only the process which made it can read."""

    def __init__(self):
        self.pid = os.getpid()

    def __len__(self):
        return 24

    def __getitem__(self, i):
        if os.getpid() != self.pid:
            raise FileNotFoundError("/photos/1.png is not here")
        return IMAGES[i], i % 3


class Moody(StitchProblem):
    """What it says depends on the process."""

    def _evaluate(self, X, out, *args, **kwargs):
        super()._evaluate(X, out, *args, **kwargs)
        out["F"] = out["F"] + np.array([0, os.getpid() % 1000 / 1000])


def network(width):
    layers = [nn.Conv2d(1, width, 3), nn.ReLU(), nn.Conv2d(width, width, 3), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 3))


def problem(*, kind: str = "sound") -> StitchProblem:
    torch.manual_seed(0)
    supernet = Supernet.build([network(3), network(4)], torch.rand(1, 1, 8, 8))
    supernet.fit(IMAGES)
    splits = {name: (IMAGES, torch.arange(24) % 3) for name in ("validation", "selection", "test")}
    if kind == "unreadable":
        splits["selection"] = Own()
    return (Moody if kind == "moody" else StitchProblem)(supernet, Task(**splits))
'''


@pytest.fixture(scope="module")
def address():
    with DaskRunner(n_workers=2, time_limit=60) as runner:
        runner.client.wait_for_workers(2)
        yield runner.client.scheduler.address


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("tiny.py").write_text(TINY)
    return "tiny.py"


def test_a_sound_cluster(address, tiny, capsys):
    assert main(["check", tiny, "--scheduler", address, "--budget", "100000"]) == 0
    said = capsys.readouterr().out
    assert said.count("127.0.0.1 CPU") == 2
    assert f"Versions, the same here and on every worker: python {platform.python_version()}, pymoo-stitch" in said
    assert "Data, selection: 24 images; the slowest worker read the first ones in " in said
    assert "costs differ by 0 (allowed: 0), errors by 0 at most (allowed: 0.001)." in said
    assert "100,000 evaluations take about" in said
    assert "with 2 at a time on 1 device" in said
    assert "Nothing is wrong." in said


def test_workers_with_other_versions_are_named(address, tiny, capsys, monkeypatch):
    here = {**all_versions(), "torch": "1.0", "new": "2.0"}
    monkeypatch.setattr("pymoo_stitch.cli.checking.all_versions", lambda: here)
    assert main(["check", tiny, "--scheduler", address]) == 1
    said = capsys.readouterr().out
    assert said.count(f"has torch {torch.__version__.split('+')[0]}") == 2
    assert said.count("instead of 1.0, new missing instead of 2.0. Install there what is here.") == 2
    assert "evaluations/s" not in said


def test_more_at_a_time_than_is_good_is_told(address, tiny, capsys, monkeypatch):
    for rates, is_told in (({1: 20.0, 2: 10.0}, True), ({1: 10.0, 2: 9.9}, False)):
        monkeypatch.setattr("pymoo_stitch.cli.checking.rates", lambda *_, rates=rates: rates)
        assert main(["check", tiny, "--scheduler", address, "--budget", "100"]) == 0
        said = capsys.readouterr().out
        assert ("1 at a time per device would be faster" in said) == is_told
        assert f"100 evaluations take about {'10' if is_told else '11'} seconds" in said


def test_workers_that_disagree_are_found(address, tiny, capsys):
    arguments = ["check", tiny, "--option", "kind=moody", "--scheduler", address]
    assert main(arguments) == 1
    said = capsys.readouterr().out
    assert "Wrong: workers disagree about the same networks by more than 0.001 (--tolerance)." in said
    assert main([*arguments, "--tolerance", "1"]) == 0


def test_data_that_workers_cannot_read_is_found(address, tiny, capsys):
    assert main(["check", tiny, "--option", "kind=unreadable", "--scheduler", address]) == 1
    said = capsys.readouterr().out
    assert (
        said.count(
            "cannot read the data: ValueError: sample 0 of the selection "
            "split cannot be read: /photos/1.png is not here"
        )
        == 2
    )
    assert "The cluster is not ready." in said


def test_reports_and_exports_are_the_same_on_a_cluster(address, tiny, capsys):
    assert main(["search", tiny, "--budget", "30", "--pop-size", "8", "--output", "run.sqlite"]) == 0
    report = ["report", "run.sqlite", "--problem", tiny]
    assert main([*report, "--output", "here"]) == 0
    assert main([*report, "--output", "there", "--scheduler", address]) == 0
    for name in ("front.csv", "cascades.json", "report.json"):
        assert Path("here", name).read_bytes() == Path("there", name).read_bytes()
    assert json.loads(Path("here/report.json").read_text())["front"]
    capsys.readouterr()
    export = ["export", "run.sqlite", "--problem", tiny, "--key", "ensemble", "--scheduler", address]
    assert main([*export, "--output", "network.pt2"]) == 0
    assert torch.export.load("network.pt2").module()(torch.rand(2, 1, 8, 8)).shape == (2, 3)


def test_check_needs_a_cluster(tiny, capsys):
    with pytest.raises(SystemExit):
        main(["check", tiny])
    assert "one of the arguments --workers --scheduler is required" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["check", "--help"])
    assert "pymoo-stitch check digits --workers 2" in capsys.readouterr().out
