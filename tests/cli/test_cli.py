"""The command line: each command alone and all in a row, and a clear end for whatever goes wrong."""

import json
import os
import re
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from argparse import ArgumentTypeError
from importlib.util import find_spec
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import IMAGE, TESTS
from pymoo.optimize import minimize

from pymoo_stitch import Evaluations, Run, StitchProblem, Supernet, Task, cli
from pymoo_stitch.algorithms import GOMEA
from pymoo_stitch.cli import checks, commands, parser
from pymoo_stitch.report import Measured

COMMANDS = ("demo", "info", "build", "search", "resume", "report", "watch", "export", "compare")


@pytest.fixture
def command(cache, capfd, monkeypatch, tmp_path):
    """Run a command in a folder of its own: its exit code, what it said, and what it said on standard error."""
    monkeypatch.chdir(tmp_path)

    def run(text, *more):
        code = cli.main([*text.split(), *map(str, more)])
        return code, *capfd.readouterr()

    return run


@pytest.fixture
def journal(kept_journal, tmp_path):
    """A run of 60 evaluations."""
    return shutil.copy(kept_journal, tmp_path / "run.sqlite")


@pytest.fixture(scope="session")
def kept_journal(shared_cache, tmp_path_factory):
    path = tmp_path_factory.mktemp("journal") / "run.sqlite"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYMOO_STITCH_CACHE", str(shared_cache))
        assert cli.main(["search", "digits", "--budget", "60", "--output", str(path)]) == 0
    return path


def process(*arguments, **options):
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | options
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, "-m", "pymoo_stitch", *map(str, arguments)], env=environment, **options)


# ----------------------------------------------------------------------------------------------------------- what works


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_an_example(name, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main([name, "--help"])
    assert end.value.code == 0
    said = capsys.readouterr().out
    examples = re.findall(rf"^  (pymoo-stitch {name}.*)$", said, re.MULTILINE)
    assert examples
    for example in examples:  # and they are options that there are
        parser.make_parser().parse_args(example.split()[1:])


def test_without_a_command_there_is_help(capsys):
    assert cli.main([]) == cli.USAGE
    assert "Begin with: pymoo-stitch demo" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [
        ("serch digits", "search"),
        ("search digits --budgte 5", "--budget"),
        ("search digits --budgte=5", "--budget"),
        ("build digits --outptu file", "--output"),
        ("search digits --algorithm LK-GOMAE", "LK-GOMEA"),
        ("search digts", "digits"),
        ("info digts", "digits"),
        ("search digits --option sede=1", "seed"),
    ],
)
def test_what_is_misspelt_is_answered_with_what_was_meant(misspelt, meant, capsys):
    try:
        code = cli.main(misspelt.split())
    except SystemExit as end:
        code = end.code
    assert code in (cli.ERROR, cli.USAGE)
    assert f"Did you mean {meant}?" in capsys.readouterr().err


ANSWER = """
import contextlib, io, sys
from pymoo_stitch.cli import main
for arguments in {arguments}:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            main(arguments.split())
        except SystemExit:
            pass
    for name in {slow}:
        assert name not in sys.modules, (arguments, name)
"""


def test_help_info_and_errors_in_arguments_import_nothing_that_takes_seconds():
    at_once = ["--help", "search --help", "info", "info digits", "info imagenet-a", "search digits --budgte 5"]
    at_once += ["search digts", "search digits --option sede=1", "build digits --output no/folder/file", "serch"]
    at_once += ["export run.sqlite --output a.bin"]
    soon = ["report nowhere.sqlite", f"info {TESTS / 'fixtures' / 'gomea.sqlite'}", f"resume {__file__}"]
    seconds = ("torch", "timm", "torchvision", "distributed", "matplotlib", "sklearn")
    for arguments, slow in (
        (at_once, (*seconds, "pymoo", "scipy", "numpy.testing")),
        (soon, (*seconds, "scipy.stats")),
    ):
        code = ANSWER.format(arguments=arguments, slow=slow)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_from_search_to_a_network(command, journal, tmp_path):
    code, said, _ = command("info", journal)
    assert code == 0
    assert "async-NSGA-II (population 50, seed 1)" in said
    assert "60 of 60" in said

    code, said, _ = command("resume --budget 80", journal)
    assert code == 0
    assert "80 evaluations (60 of them from the journal" in said
    assert len(Run.read(journal)) == 80

    code, said, _ = command("search digits --algorithm nsga2 --pop-size 20 --budget 60 --memo", journal)
    assert code == 0
    assert "digits-nsga-ii-seed1.sqlite" in said

    code, said, _ = command("report --output report digits-nsga-ii-seed1.sqlite", journal)
    assert code == 0
    assert "On the same 4,000 test images (exact McNemar tests" in said
    assert (tmp_path / "report" / "fronts.png").is_file()
    assert "open report/report.html in a browser" in said
    assert (tmp_path / "report" / "report.html").is_file()

    code, said, errors = command("export --output network.pt2", journal)
    assert (code == 0) == ("nothing that was found is surely as good" not in errors)
    (tmp_path / "network.pt2").unlink(missing_ok=True)

    cascade = json.loads((tmp_path / "report" / "cascades.json").read_text())["cascades"][0]
    code, said, _ = command(f"export --output network.pt2 --key {cascade['key']}", journal)
    assert code == 0
    assert "Cascade of" in said
    assert json.loads(command("info network.pt2")[1])["key"] == cascade["key"]

    run = Run.read(journal)
    key = next(run.rows[i].key for i in run.front if (run.X[i] & run.active[i])[:-2].any())
    code, said, _ = command(f"export --output network.pt2 --key {key} --retrain 64 --recalibrate 64", journal)
    assert code == 0
    assert "test, retrained" in said
    assert "batch norms on 64 images: accuracy on selection" in said or "there is nothing to recalibrate" in said
    network = torch.export.load(tmp_path / "network.pt2").module()
    assert network(torch.rand(5, 1, 8, 8)).shape == (5, 10)

    code, said, _ = command("info network.pt2")
    assert code == 0
    assert "multiply_adds" in said
    assert json.loads(said)["metrics"]["test"]["accuracy"] > 0.5


@pytest.mark.parametrize(("gain", "words"), [(0.01, "It is kept."), (0.0, "not kept: "), (-0.01, "not kept: ")])
def test_a_recalibration_is_kept_if_it_is_better_on_selection(gain, words, digits, capsys):
    """Whatever it is on test."""
    subnetwork = digits.subnetwork(np.arange(digits.n_var) < 4)

    def measured(selection, test):
        return {s: Measured(0, {"accuracy": value}, {}) for s, value in (("selection", selection), ("test", test))}

    before, after = measured(0.8, 0.8), measured(0.8 + gain, 0.8 - gain)
    report = SimpleNamespace(problem=digits, deciding="selection", measured=lambda subnetwork: after)
    network, kept = commands._recalibrate(report, subnetwork, before, 32)
    assert network is subnetwork
    assert (kept is after) == bool(subnetwork.norms) == (gain > 0)
    said = capsys.readouterr().out
    assert f"accuracy on selection 0.800 before, {0.8 + gain:.3f} after. It is " in said
    assert words in said


def test_search_twice_is_search_once(command, journal):
    code, said, _ = command("search digits --budget 60 --output", journal)
    assert code == 0
    assert "60 evaluations (60 of them from the journal" in said


def test_build_and_use_a_supernet(command, tmp_path):
    code, said, _ = command("build digits --output digits.safetensors")
    assert code == 0
    assert "Saved to digits.safetensors" in said
    assert "pymoo-stitch search digits --option supernet=digits.safetensors" in said
    assert Supernet.load(tmp_path / "digits.safetensors").n_var == 72
    assert command("info digits.safetensors")[:1] == (0,)
    code, said, _ = command("search digits --option supernet=digits.safetensors --budget 5")
    assert code == 0


def test_info(command):
    code, said, _ = command("info")
    assert code == 0
    assert all(
        name in said for name in ("digits", "cifar10", "imagenet-a", "imagenet-b", "voc", "LK-GOMEA", "pymoo 0.")
    )
    code, said, _ = command("info cifar10")
    assert code == 0
    assert "data (path, required): a folder that holds" in said


def test_info_on_a_supernet_shows_how_its_stitches_fit(command, residual, gated):
    supernet = Supernet.build([residual, gated])
    supernet.save("new.safetensors")
    code, said, _ = command("info new.safetensors")
    assert code == 0
    assert "held-out" not in said
    report = supernet.fit(torch.rand(64, *IMAGE), progress=False)
    supernet.save("fitted.safetensors")
    code, said, _ = command("info fitted.safetensors")
    assert code == 0
    assert "Supernet of 2 networks" in said
    assert "relative error on held-out images" in said
    assert "explain at least half of their target's variance" in said
    assert f"restored to degree {report.degree:g}" in said or "left as it is (degree 0)" in said


@pytest.mark.slow
def test_compare(command, tmp_path):
    code, said, _ = command(
        "compare digits --algorithms gomea nsga-ii --pop-sizes 8 16 --seeds 2 --budget 30 --output c"
    )
    assert code == 0
    assert "GOMEA, n = 8 against GOMEA, n = 16" in said
    assert len(list((tmp_path / "c").glob("*.sqlite"))) == 8
    assert (tmp_path / "c" / "hypervolume.png").is_file()


@pytest.mark.slow
def test_a_time_limit_ends_a_search(command):
    assert command("search digits --time 2s --budget 1_000_000 --output run.sqlite")[0] == 0
    assert command("resume run.sqlite --time 1s")[0] == 0


def test_the_smallest_budget(command):
    code, said, _ = command("search digits --budget 1")
    assert code == 0
    assert "less than the population of 50" in said


@pytest.mark.slow
def test_workers(command):
    code, said, errors = command("search digits --budget 40 --workers 2")
    assert code == 0
    assert "40 evaluations" in said
    assert ("dashboard" in errors) == (find_spec("bokeh") is not None)  # the dashboard needs it


OWN = """
from pymoo_stitch.problems import get_problem

def problem(*, images: int = 100):
    return get_problem("digits")
"""


def test_a_problem_of_ones_own(command, tmp_path):
    (tmp_path / "mine.py").write_text(OWN)
    code, said, _ = command("search mine.py --option images=3 --budget 5 --output run.sqlite")
    assert code == 0
    assert f"Next: pymoo-stitch report run.sqlite --problem {tmp_path / 'mine.py'}" in said
    (tmp_path / "mine.py").write_text(OWN + "\nraise SystemError('it was run')")
    code, _, errors = command("report run.sqlite")
    assert code == cli.ERROR
    assert re.search(r"is of the problem in \S*mine\.py\. If you trust it, add --problem \S*mine\.py", errors)
    (tmp_path / "mine.py").write_text(OWN)
    assert command("report run.sqlite --problem mine.py")[0] == 0


def test_a_supernet_of_ones_own_problem_says_how_it_is_used(tmp_path):
    (tmp_path / "mine.py").write_text(OWN)
    options = SimpleNamespace(problem=str(tmp_path / "mine.py"), output="pair.safetensors")
    assert "problem() of your file: Supernet.load('pair.safetensors')" in commands._use_of_supernet(options)


def test_info_shows_the_docstring_and_the_options_of_ones_own_file_without_running_it(command, tmp_path):
    described = '"""Two of mine."""\n' + OWN.replace("images: int = 100", "data: Path, images: int = 100")
    (tmp_path / "mine.py").write_text(described + "\nraise SystemError('it was run')")
    code, said, _ = command("info mine.py")
    assert code == 0
    assert said.startswith("Two of mine.\n")
    assert "data (path, required)\n" in said
    assert "images (int, default 100)\n" in said


def test_to_retrain_without_images_names_the_argument_that_provides_them(pair):
    labels = torch.zeros(4, dtype=torch.int64)
    problem = StitchProblem(pair, Task(validation=(torch.rand(4, *IMAGE), labels)))
    with pytest.raises(ValueError, match=r"Task\(calibration=images\), or export without --retrain"):
        commands._calibration_images(problem, "retrain")


# ------------------------------------------------------------------------------------------------------ what goes wrong


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("find", "invalid choice: 'find'"),
        ("search", "required: problem"),
        (
            "search digits --algorithm sga",
            "there is no algorithm 'sga'; choose from async-NSGA-II, LK-GOMEA, GOMEA, GA, NSGA-II",
        ),
        ("search digits --budget 0", "'0' is not a whole number of at least 1"),
        ("search digits --budget many", "'many' is not a whole number"),
        ("search digits --time soon", "'soon' is not a time such as 90s"),
        ("search digits --seed -1", "'-1' is not a whole number of at least 0"),
        ("export run.sqlite --output a.pt2 --at-most nan", "'nan' is not a number of at least 0"),
        ("search digits --time 1e999h", "'1e999h' is not a time"),
        ("search digits --workers 2 --scheduler tcp://a:1", "not allowed with argument"),
        ("search digits --bugdet 5", "unrecognized arguments: --bugdet"),
        ("export run.sqlite", "required: --output"),
        ("export run.sqlite --output a.pt2 --at-most 3 --at-least 0.5", "not allowed with argument"),
    ],
)
def test_wrong_options(text, message, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(text.split())
    assert end.value.code == cli.USAGE
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("search digit --budget 5", "digits"),
        ("search digits --option sed=3", "seed"),
        ("search digits --option seed=three", "three"),
        ("search digits --option seed", "seed"),
        ("search cifar10", "data"),
        ("search cifar10 --option data=nowhere", "nowhere"),
        ("search mine.py", "mine.py"),
        ("search digits --budget 5 --output no/folder/run.sqlite", "no/folder does not exist"),
        ("search digits --budget 5 --scheduler nowhere", "there is no Dask scheduler nowhere"),
        ("search digits --budget 5 --scheduler no.json", "there is no Dask scheduler no.json: there is no such file"),
        ("search digits --budget 5 --scheduler tcp://127.0.0.1", "an address has a port"),
        ("search digits --budget 5 --scheduler text.pt2", "there is no Dask scheduler in text.pt2"),
        ("search digits --budget 5 --output .", "it is a folder"),
        ("build digits --output no/folder/file", "folder"),
        ("resume run.sqlite", "there is no journal run.sqlite"),
        ("report run.sqlite", "there is no journal run.sqlite"),
        ("export run.sqlite --output a.pt2", "there is no journal run.sqlite"),
        ("info run.sqlite", "there is no problem and no file 'run.sqlite'"),
        ("info text.pt2", "text.pt2"),
        ("info text.safetensors", "text.safetensors"),
        ("report text.pt2", "text.pt2"),
        ("info text.sqlite", "text.sqlite is not a journal"),
        ("report text.sqlite", "text.sqlite is not a journal"),
        ("report nowhere.sqlite --output text.sqlite/report", "text.sqlite is a file"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*:ResourceWarning")
def test_errors_are_one_sentence(text, message, command, tmp_path):
    for name in ("text.pt2", "text.safetensors", "text.sqlite"):
        (tmp_path / name).write_text("nothing that could be read" * 40)
    code, _, errors = command(text)
    assert code == cli.ERROR
    (line,) = [line for line in errors.splitlines() if line.startswith(f"pymoo-stitch {text.split()[0]}: ")]
    assert message in line
    assert "Traceback" not in errors
    assert not (tmp_path / "report").exists()


@pytest.mark.parametrize(
    ("text", "message"), [("export --output network.bin", ".pt2"), ("export --output no/folder/a.pt2", "no/folder")]
)
def test_where_to_export_is_looked_at_before_any_work(text, message, command, journal, monkeypatch):
    monkeypatch.setattr("pymoo_stitch.cli.commands.Report", None)
    code, _, errors = command(text, journal)
    assert code == cli.ERROR
    assert message in errors


def test_a_budget_that_is_used_up(command, journal):
    code, _, errors = command("resume --budget 10", journal)
    assert code == cli.ERROR
    assert "has 60 evaluations already, more than the budget of 10" in errors


@pytest.mark.filterwarnings("ignore:interrupted")
def test_a_run_with_a_larger_budget_than_it_began_with_goes_on_with_that(command, journal, monkeypatch):
    assert command("resume --budget 62", journal)[0] == 0
    assert "62, begun with a budget of 60\n" in command("info", journal)[1]
    code, _, errors = command("resume", journal)
    assert code == cli.ERROR
    assert "has 62 evaluations: say how many it may have, --budget 124" in errors

    def interrupted(self, *args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(StitchProblem, "_evaluate", interrupted)
    code, said, _ = command("resume --budget 70", journal)
    assert code == cli.INTERRUPTED
    assert said.splitlines()[-1] == f"Interrupted. Go on: pymoo-stitch resume {journal} --budget 70"


def test_journals_that_may_not_be_written(command, journal, tmp_path):
    before = sorted(path.name for path in tmp_path.iterdir())
    content = journal.read_bytes()
    os.chmod(journal, 0o444)
    assert command("info", journal)[0] == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert journal.read_bytes() == content
    (tmp_path / "empty").touch()
    code, _, errors = command("report empty")
    assert code == cli.ERROR
    assert "no run has begun" in errors
    assert (tmp_path / "empty").stat().st_size == 0


@pytest.mark.slow
def test_a_run_of_which_nothing_is_sound(command, journal, tmp_path):
    with sqlite3.connect(journal) as db:
        db.execute("update evaluations set failed = 'no memory'")
    db.close()
    assert command("report --output report", journal)[0] == 0
    assert (tmp_path / "report" / "evaluations.csv").is_file()
    assert command("export --output network.pt2", journal)[0] == cli.ERROR


def test_what_a_file_is_shows_its_content(command, tmp_path):
    command("build digits --output supernet")
    code, said, _ = command("info supernet")
    assert code == 0
    assert "Supernet of 2 networks" in said
    (tmp_path / "mine.py").write_text(OWN)
    code, said, _ = command("info mine.py")
    assert code == 0
    assert "images (int, default 100)" in said


def test_the_journal_of_another_run(command, journal):
    code, _, errors = command("search digits --seed 7 --budget 60 --output", journal)
    assert code == cli.ERROR
    assert "seed is 1 in the journal and 7 here" in errors
    code, _, errors = command("search digits --seed 7 --budget 5 --output", journal)
    assert "seed is 1 in the journal and 7 here" in errors  # and not that more should be asked for
    assert code == cli.ERROR


def test_a_journal_of_a_script(command, digits, tmp_path):
    digits.origin, origin = None, digits.origin
    try:
        minimize(
            digits, GOMEA(pop_size=8), ("n_evals", 10), seed=1, evaluator=Evaluations(journal=tmp_path / "s.sqlite")
        )
    finally:
        digits.origin = origin
    code, _, errors = command("report s.sqlite")
    assert code == cli.ERROR
    assert "does not name its problem, which a script made" in errors


@pytest.mark.filterwarnings("ignore:interrupted")
def test_a_search_that_is_interrupted_early_says_how_to_go_on(command, monkeypatch):
    evaluate, calls = StitchProblem._evaluate, count()

    def interrupted(self, *args, **options):
        if next(calls) == 4:
            raise KeyboardInterrupt
        evaluate(self, *args, **options)

    monkeypatch.setattr(StitchProblem, "_evaluate", interrupted)
    code, said, _ = command("search digits --budget 60 --output cut.sqlite")
    assert code == cli.INTERRUPTED
    assert "4 evaluations, 0 skipped" in said
    assert said.splitlines()[-1] == "Interrupted. Go on: pymoo-stitch resume cut.sqlite"
    assert "less than the population" not in said


def test_sigterm_ends_a_command_as_an_error_would(command, monkeypatch):
    def ended(options):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(10)

    monkeypatch.setattr("pymoo_stitch.cli.info.info", ended)
    before = signal.getsignal(signal.SIGTERM)
    code, _, errors = command("info")
    assert code == cli.TERMINATED
    assert "the same command goes on from there" in errors
    assert signal.getsignal(signal.SIGTERM) is before


def test_of_several_journals_one_tells_the_problem():
    origin = {"name": "digits", "options": {}}
    options = parser.make_parser().parse_args(["report", "of_a_script.sqlite", "of_a_command.sqlite"])
    assert checks.problem_named(checks.origin_of([{"origin": None}, {"origin": origin}]), options) == "digits"


def test_the_name_of_a_file_is_quoted_where_a_shell_needs_it():
    options = parser.make_parser().parse_args(["report", "run.sqlite"])
    with pytest.raises(ValueError, match=r"add --problem '/my work/pair\.py'"):
        checks.problem_named({"name": "/my work/pair.py", "options": {}}, options)


def test_tracebacks_and_defects(command, monkeypatch):
    code, _, errors = command("info nowhere --traceback")
    assert code == cli.ERROR
    assert "Traceback" in errors
    monkeypatch.setattr("pymoo_stitch.cli.info.info", lambda options: {}["x"])
    code, _, errors = command("info")
    assert code == cli.ERROR
    assert "KeyError: 'x'; --traceback shows where." in errors


def test_times_and_counts():
    assert [parser._seconds(text) for text in ("90", "90s", "1.5m", "24h", "2d")] == [90, 90, 90, 86_400, 172_800]
    assert [parser._count(text) for text in ("5", "1_000", "200,000")] == [5, 1_000, 200_000]
    with pytest.raises(ArgumentTypeError):
        parser._seconds("0")
    assert parser._algorithm("lkgomea") == parser._algorithm("LK-gomea") == "LK-GOMEA"
    assert parser._algorithm("nsga2") == parser._algorithm("nsga-ii") == "NSGA-II"


@pytest.mark.slow
@pytest.mark.parametrize("workers", [[], ["--workers", "2"]])
def test_ctrl_c_ends_a_search_that_can_go_on(workers, cache, digits, tmp_path):
    path = tmp_path / "run.sqlite"
    search = process("search", "digits", "--budget", "100000", "--output", path, *workers, start_new_session=True)
    try:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and _rows(path) < 20:
            assert search.poll() is None, search.communicate()
            time.sleep(0.2)
        os.killpg(search.pid, signal.SIGINT)  # as a terminal does, workers included
        said, errors = search.communicate(timeout=60)
    finally:
        if search.poll() is None:  # it would go on for hours
            os.killpg(search.pid, signal.SIGKILL)
    assert search.returncode == cli.INTERRUPTED, errors
    assert f"Go on: pymoo-stitch resume {path}" in said
    assert "Traceback" not in errors
    done = _rows(path)
    assert done >= 20
    resumed = process("resume", path, "--budget", done + 10)
    said, errors = resumed.communicate(timeout=120)
    assert resumed.returncode == 0, errors
    assert f"{done + 10:,} evaluations ({done:,} of them from the journal" in said


def _rows(path):
    if not path.is_file():
        return 0
    db = sqlite3.connect(path)
    try:
        return db.execute("select count(*) from evaluations").fetchone()[0]
    except sqlite3.OperationalError:
        return 0
    finally:
        db.close()


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["build", "digits"], ["search", "digits", "--budget", "500"]])
def test_a_full_disk(arguments, cache, digits, tmp_path):
    def limit():  # a disk that takes no more than so much of a file
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))

    full = process(*arguments, "--output", tmp_path / "file", preexec_fn=limit)
    _, errors = full.communicate(timeout=120)
    assert full.returncode == cli.ERROR
    assert re.search(rf"pymoo-stitch {arguments[0]}: .*{tmp_path / 'file'}", errors), errors
    assert "Traceback" not in errors
    assert arguments[0] == "search" or list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_output_that_nobody_reads_on(cache, digits):
    listing = process("info", "digits", bufsize=0)
    listing.stdout.close()
    assert "Traceback" not in listing.stderr.read()
    listing.stderr.close()
    listing.wait(timeout=60)


@pytest.mark.slow
def test_the_demo(cache, tmp_path):
    demo = process("demo", "--output", tmp_path / "demo", cwd=tmp_path)
    said, errors = demo.communicate(timeout=600)
    assert demo.returncode == 0, errors
    taken = re.search(r"^Cascade of ([\d,]+) expected multiply-adds, ([\d,]+) at most", said, re.MULTILINE)
    assert taken, said
    expected, most = (int(number.replace(",", "")) for number in taken.groups())
    assert expected <= 0.4 * most  # which is that of both networks
    assert re.search(r"^Recommended: .*on test [+-]0\.00\d\d \(95 % interval", said, re.MULTILINE)
    for path in re.findall(r"^  (\S+\.\w+)$", said, re.MULTILINE):
        assert (tmp_path / path).is_file()
    assert (tmp_path / "demo" / "network.pt2").is_file()
    assert "Traceback" not in errors


@pytest.mark.parametrize(("load", "threads", "is_told"), [(3.0, 4, True), (3.0, 1, False), (0.5, 4, False)])
def test_on_a_busy_machine_it_is_told_how_to_be_faster(monkeypatch, capsys, load, threads, is_told):
    monkeypatch.setattr(os, "getloadavg", lambda: (load, load, load))
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    with commands.runner_of_options(SimpleNamespace(workers=0, scheduler=None)) as runner:
        assert runner is None
    assert ("with --workers 4" in capsys.readouterr().err) == is_told
