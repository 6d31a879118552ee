"""What a stranger gets: a wheel that works in an empty environment, and pages that can be built."""

import re
import shutil
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest
from conftest import ROOT

import pymoo_stitch


def test_all_say_the_same_version():
    configuration = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert configuration["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "pymoo_stitch.__version__"}
    cited = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.M)
    newest = re.search(r"^## ([\w.]+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    assert cited[1] == newest[1] == pymoo_stitch.__version__


def test_the_changelog_names_the_formats_of_files():
    from pymoo_stitch.evaluations import journal
    from pymoo_stitch.supernet import export, storage

    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"`{storage.FORMAT}`" in text
    assert f"`{export.FORMAT}`" in text
    assert f"| journal, `.sqlite` | {journal._VERSION} |" in text


def test_every_tag_of_a_paper_is_in_the_references():
    sources = [*(ROOT / "pymoo_stitch").rglob("*.py"), *(ROOT / "problems").rglob("*.py")]
    tags = {tag for path in sources for tag in re.findall(r"\[(G|T|SN|SF)\](?!\[)", path.read_text(encoding="utf-8"))}
    listed = re.findall(r"^\| \[(\w+)\] \|", (ROOT / "docs" / "references.md").read_text(encoding="utf-8"), re.M)
    assert tags == set(listed)


@pytest.mark.slow
def test_a_wheel_runs_the_demo_in_an_empty_environment(tmp_path):
    tree, wheels, environment = tmp_path / "tree", tmp_path / "wheels", tmp_path / "environment"
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".*", "*.egg-info", "build", "__pycache__", "tests"))
    run(sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", wheels, tree)
    (wheel,) = wheels.iterdir()
    venv.create(environment, with_pip=False)
    (packages,) = environment.glob("lib/python*/site-packages")
    run(sys.executable, "-m", "pip", "install", "--no-deps", "--target", packages, wheel)
    # What it depends on is not downloaded again. A folder named in a .pth file is searched, but its own .pth files are
    # not read: the package of this tree, if it is installed as editable, stays out.
    borrowed = [path for path in sys.path if Path(path).name == "site-packages"]
    (packages / "borrowed.pth").write_text("\n".join(borrowed), encoding="utf-8")
    python = environment / "bin" / "python"
    where = run(python, "-c", "import pymoo_stitch.problems as p; print(p.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(packages)
    said = run(python, "-m", "pymoo_stitch", "demo", "--budget", 200, "--output", tmp_path / "demo", cwd=tmp_path)
    assert "network.pt2" in said
    assert (tmp_path / "demo" / "network.pt2").is_file()


@pytest.mark.slow
def test_the_pages_can_be_built_without_a_warning(tmp_path):
    run(sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path / "site", cwd=ROOT)
    page = (tmp_path / "site" / "api" / "supernet" / "index.html").read_text(encoding="utf-8")
    assert 'id="pymoo_stitch.supernet.supernet.Supernet.build"' in page


def run(*command: object, cwd: Path | None = None) -> str:
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
