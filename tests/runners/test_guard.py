"""Scripts whose workers would run them again end at once, with the lines to add."""

import subprocess
import sys

import pytest

UNGUARDED = """
from pymoo_stitch.runners import DaskRunner

def main():
    DaskRunner(n_workers=1)

main()
"""
CHECKED = UNGUARDED.replace("runners import DaskRunner", "runners.guard import check_guard").replace(
    "DaskRunner(n_workers=1)", "check_guard()"
)
GUARD = """if __name__ == "__main__":
        main()"""


def run(script, how, tmp_path):
    path = tmp_path / "script.py"
    path.write_text(script)
    arguments = {"file": [path], "module": ["-m", "script"], "input": ["-"], "command": ["-c", script]}[how]
    command = [sys.executable, *arguments]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        input=script if how == "input" else "",
        timeout=20,
    )


@pytest.mark.parametrize(
    ("how", "why"), [("file", "would run all of it again"), ("input", "<stdin> is no file: save it")]
)
def test_a_script_without_a_guard_is_refused_with_the_lines_to_add(how, why, tmp_path):
    done = run(UNGUARDED, how, tmp_path)
    assert done.returncode == 1
    assert why in done.stderr
    assert GUARD in done.stderr
    assert done.stderr.count("Traceback") == 1


@pytest.mark.parametrize("how", ["file", "module"])
def test_a_script_with_a_guard_is_not(how, tmp_path):
    guarded = CHECKED.replace("\nmain()", '\nif __name__ == "__main__":\n    main()')
    assert run(guarded, how, tmp_path).returncode == 0
    assert run(CHECKED, how, tmp_path).returncode == 1


def test_what_workers_do_not_import_needs_no_guard(tmp_path):
    assert run(CHECKED, "command", tmp_path).stderr == ""


def test_a_worker_that_is_about_to_start_workers_is_told(tmp_path):
    script = """
import multiprocessing
from pymoo_stitch.runners.guard import check_guard
if __name__ != "__main__":
    check_guard()
multiprocessing.get_context("spawn").Process(target=print).start()
"""
    assert "this one would start workers" in run(script, "file", tmp_path).stderr
