"""Examples and the README: what a user is told to run does run."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent


def run(*arguments, cwd=ROOT):
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


def test_stitch_two_models(tmp_path):
    example = ROOT / "examples" / "stitch_two_models.py"
    done = run(
        "-W", "error", example, "test_resnet", "test_efficientnet", "--size", "64", "--save", "pair", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "test_resnet" in done.stdout
    assert "ensemble" in done.stdout
    assert (tmp_path / "pair").is_file()


def test_every_example_has_help():
    examples = list((ROOT / "examples").glob("*.py"))
    assert examples
    for example in examples:
        done = run(example, "--help")
        assert done.returncode == 0, done.stderr
        assert f"python examples/{example.name}" in done.stdout


def test_the_code_in_the_readme_runs(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert blocks
    smaller = {"pretrained=True": "pretrained=False", "resnet50": "test_resnet", "resnext50_32x4d": "test_efficientnet"}
    smaller |= {"224": "64", "samples=256": "samples=64"}
    smaller |= {"nsga2()": "nsga2(pop_size=20)", " GOMEA()": " GOMEA(pop_size=20)", "2_000": "40"}
    code = "\n".join(blocks)
    for old, new in smaller.items():
        assert old in code
        code = code.replace(old, new)
    done = run("-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in tmp_path.iterdir()} >= {"run.sqlite", "nsga2.sqlite"}


def test_ci_finds_the_test_command_in_the_readme():
    commands = re.findall(r'^pip install -e "\.\[test\]".*$', (ROOT / "README.md").read_text(), re.MULTILINE)
    assert commands == ['pip install -e ".[test]" && pytest']


@pytest.mark.parametrize("module", ["pymoo_stitch", "pymoo_stitch.problems"])
def test_the_installed_package_is_found_from_anywhere(module, tmp_path):
    done = run("-c", f"import {module} as m; print(m.__doc__)", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.slow
def test_a_normal_install_holds_problems_and_types(tmp_path):
    done = run("-m", "pip", "install", "--no-deps", "--target", tmp_path / "site", ROOT)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site" / "pymoo_stitch" / "py.typed").is_file()
    assert (tmp_path / "site" / "pymoo_stitch" / "problems" / "__init__.py").is_file()
