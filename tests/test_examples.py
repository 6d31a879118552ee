"""Examples and the README: what a user is told to run does run."""

import ast
import os
import pathlib
import re
import subprocess
import sys

import pytest
from conftest import ROOT

from pymoo_stitch import KINDS
from pymoo_stitch.cli.parser import make_parser


def run(*arguments, cwd=ROOT):
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYMOO_STITCH_CACHE": str(pathlib.Path(cwd) / "cache")},
    )


EXAMPLES = {
    "stitch_two_models.py": (
        ["test_resnet", "test_efficientnet", "--size", "64", "--save", "pair"],
        "ensemble",
        ["pair"],
    ),
    "nsga2_baseline.py": (["--budget", "40"], "hypervolume 0.", []),
    "compare_algorithms.py": (["--budget", "30", "--seeds", "2"], "Mann–Whitney", ["comparison/hypervolume.png"]),
    "own_networks.py": (["--budget", "30"], "on test", []),
    "dask_cluster.py": (["--budget", "40"], "multiply-adds, accuracy", []),
    "ask_and_tell.py": (["--budget", "30"], " real, ", []),
    "plot_front.py": (["--budget", "40"], "Plots are in plots", ["plots/scatter.png", "plots/fronts.png"]),
    "resume_a_run.py": (["--budget", "20"], "20 evaluations, 0 of them", ["run.sqlite"]),
    "timm_family.py": (
        ["deit_tiny_patch16_224", "deit_small_patch16_224", "--size", "32", "--window", "1"],
        "14 members in 28",
        [],
    ),
    "resnet_family.py": (["--epochs", "1", "--samples", "64"], "mean: 0.", []),
    "fragment_pool.py": (["--size", "64", "--chains", "2"], "18 fragments, 1,235,496 parameters", []),
    "pick_and_export.py": (["--budget", "80", "--retrain", "64"], "of 100 test images are right", ["network.pt2"]),
}


def test_every_example_is_tested():
    assert {path.name for path in (ROOT / "examples").glob("*.py")} == EXAMPLES.keys()


@pytest.fixture
def execute(cache, digits, workers, tmp_path, monkeypatch, capsys):
    """Run code as a script of its own, in a folder of its own: what it said. In this process, since to import torch
    takes longer than most scripts, and on workers that are there already."""
    monkeypatch.chdir(tmp_path)
    kinds = dict(KINDS)

    def run(code, name="script.py", arguments=()):
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        there = {"__name__": "__main__", "__doc__": ast.get_docstring(ast.parse(code))}
        if "DaskRunner(n_workers=2)" in code:
            code, there["workers"] = code.replace("DaskRunner(n_workers=2)", "DaskRunner(workers)"), workers()
        exec(compile(code, name, "exec"), there)
        return capsys.readouterr().out

    yield run
    KINDS.clear()
    KINDS.update(kinds)


LONG = (
    "README.md",
    "pick_and_export.py",
    "plot_front.py",
    "timm_family.py",
    "resnet_family.py",
    "fragment_pool.py",
    "compare_algorithms.py",
    "own_networks.py",
    "docs/algorithms.md",
    "docs/cascades.md",
    "docs/choosing.md",
    "docs/families.md",
    "docs/fragments.md",
    "docs/stitch-kind.md",
)


def some_slow(names):
    return [pytest.param(name, marks=[pytest.mark.slow] * (name in LONG)) for name in names]


@pytest.mark.parametrize("name", some_slow(EXAMPLES))
def test_examples_run(name, execute, tmp_path):
    arguments, said, files = EXAMPLES[name]
    code = (ROOT / "examples" / name).read_text()
    assert said in execute(code, name, arguments)
    for file in files:
        assert (tmp_path / file).is_file()
    if name == "resume_a_run.py":
        assert "30 evaluations, 20 of them" in execute(code, name, ["--budget", "30"])


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_fit_on_a_screen_and_say_how_to_run_them(name):
    lines = (ROOT / "examples" / name).read_text().splitlines()
    assert len(lines) <= 60
    assert any(line.startswith(f"python examples/{name}") for line in lines[:8])


SMALLER = {
    "README.md": {
        "torch.rand(64, 3": "torch.rand(24, 3",
        "(64,)": "(24,)",
        "pretrained=True": "pretrained=False",
        "resnet50": "test_resnet",
        "resnext50_32x4d": "test_efficientnet",
        "224": "64",
        "nsga2()": "nsga2(pop_size=20)",
        "AsyncNSGA2()": "AsyncNSGA2(pop_size=20)",
        "2_000": "40",
    },
    "docs/algorithms.md": {'("n_evals", 300)': '("n_evals", 60)', '("n_evals", 100)': '("n_evals", 30)'},
    "docs/cluster.md": {'("n_evals", 500)': '("n_evals", 40)'},
    "docs/journal.md": {'("n_evals", 200)': '("n_evals", 30)'},
    "docs/stitch-kind.md": {"torch.rand(64, 3": "torch.rand(24, 3", "samples=128": "samples=48"},
    "docs/families.md": {
        'timm.create_model(f"deit_{size}_patch16_224", pretrained=True) for size in ("tiny", "small", "base")': (
            "timm.models.VisionTransformer(img_size=16, patch_size=4, embed_dim=n, depth=3, num_heads=2) for n in (8, "
            "16)"
        ),
        ', normalize="timm"': "",
        "224, 224": "16, 16",
        "samples=1_000": "samples=64",
        "3_000_000_000": "300_000",
    },
    "docs/fragments.md": {},
    "docs/cascades.md": {},
    "docs/choosing.md": {},
}


@pytest.mark.filterwarnings("ignore:images are 64×64, but these networks were trained on other sizes")
@pytest.mark.parametrize("page", some_slow(SMALLER))
def test_the_code_in_the_pages_runs(page, execute):
    code = "\n".join(re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL))
    assert code
    for old, new in SMALLER[page].items():
        assert old in code
        code = code.replace(old, new)
    execute(code)


def test_links_and_commands_in_the_pages(capsys):
    """Files that are linked exist, and commands that are shown have the options that they use."""
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        text = page.read_text()
        for target in re.findall(r"\]\(([^)#:]+)\)", text):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
        for command in re.findall(r"(?:^|`|&& )pymoo-stitch ([^`\n\\#]*)(?=`|$)", text, re.MULTILINE):
            if " " in command and "…" not in command and command.upper() != command:
                make_parser().parse_args(command.split())
    for page in (ROOT / "docs").glob("*.md"):
        assert page.name in (ROOT / "README.md").read_text()


def test_ci_finds_the_test_command_in_the_readme():
    commands = re.findall(r'^pip install -e "\.\[test\]".*$', (ROOT / "README.md").read_text(), re.MULTILINE)
    assert commands == ['pip install -e ".[test]" && pytest']


@pytest.mark.parametrize("module", ["pymoo_stitch", "pymoo_stitch.problems"])
def test_the_installed_package_is_found_from_anywhere(module, tmp_path):
    done = run("-c", f"import {module} as m; print(m.__doc__)", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.slow
def test_a_normal_install_holds_problems_types_and_the_page(tmp_path):
    done = run("-m", "pip", "install", "--no-deps", "--target", tmp_path / "site", ROOT)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site" / "pymoo_stitch" / "py.typed").is_file()
    assert (tmp_path / "site" / "pymoo_stitch" / "problems" / "__init__.py").is_file()
    static = "pymoo_stitch/report/page/static"
    installed = {path.name for path in (tmp_path / "site" / static).iterdir()}
    assert installed == {path.name for path in (ROOT / static).iterdir()}
