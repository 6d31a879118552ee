"""The packages: what imports what, read from the sources and compared with the table in docs/architecture.md."""

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib import import_module
from pathlib import Path

import networkx as nx
import pytest
from conftest import ROOT

import pymoo_stitch

PACKAGE, PROBLEMS, PAGE = ROOT / "pymoo_stitch", ROOT / "problems", ROOT / "docs" / "architecture.md"

NO_TORCH = {
    "pymoo_stitch",
    "pymoo_stitch.util.digests",
    "pymoo_stitch.util.files",
    "pymoo_stitch.util.fronts",
    "pymoo_stitch.util.tables",
    "pymoo_stitch.runners.dask",
    "pymoo_stitch.runners.serial",
    "pymoo_stitch.runners.simulated",
    "pymoo_stitch.evaluations",
    "pymoo_stitch.algorithms",
    "pymoo_stitch.report.runs",
    "pymoo_stitch.report.comparison",
    "pymoo_stitch.report.page.server",
    "pymoo_stitch.problems",
    "pymoo_stitch.cli",
    "pymoo_stitch.cli.watching",
}
"""What can be imported without torch: the search, and whatever should answer at once."""

TORCH_IN_FUNCTIONS = {"runners.dask": "counts the GPUs, if torch is there"}


@cache
def table():
    """For each package those that it may import, and the exceptions with their reasons."""
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|]*) ?\|$", PAGE.read_text(), re.MULTILINE)
    exceptions = re.findall(r"^\| `(\w+)` → `(\w+)` \| ([^|]+) \|$", PAGE.read_text(), re.MULTILINE)
    return {name: set(re.findall(r"`(\w+)`", allowed)) for name, allowed in rows}, {
        (source, target): reason for source, target, reason in exceptions
    }


@cache
def modules():
    """Every module by its name behind `pymoo_stitch.`, with its path. (`problems` may be linked into the package.)"""
    files = {path: PACKAGE for path in PACKAGE.rglob("*.py") if "problems" not in path.relative_to(PACKAGE).parts}
    files |= dict.fromkeys(PROBLEMS.rglob("*.py"), ROOT)
    return {
        ".".join(path.relative_to(base).with_suffix("").parts).removesuffix(".__init__"): path
        for path, base in files.items()
    }


@cache
def imports(name, path):
    """What a module imports, wherever in it: (module, names, whether only for types or inside a function)."""
    return tuple(_imports(name, path))


def _imports(name, path):
    tree = ast.parse(path.read_text())
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    inside = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    inside = [] if name == "__init__" else inside
    for node in ast.walk(tree):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        late, up = False, node
        while up in parents:
            up = parents[up]
            late |= isinstance(up, ast.FunctionDef | ast.AsyncFunctionDef)
            late |= isinstance(up, ast.If) and "TYPE_CHECKING" in ast.unparse(up.test)
        if isinstance(node, ast.Import):
            yield from ((alias.name, [], late) for alias in node.names)
        elif node.level:
            base = inside[: len(inside) - node.level + 1]
            yield ".".join(["pymoo_stitch", *base, *filter(None, [node.module])]), [a.name for a in node.names], late
        else:
            yield node.module, [alias.name for alias in node.names], late


def package_edges():
    """Which package imports which, and where. The version, which is defined beside them, is no package."""
    edges = {}
    for name, path in modules().items():
        source = name.split(".")[0]
        if source in ("__init__", "__main__"):  # the façade
            continue
        for target, names, _ in imports(name, path):
            parts = target.split(".")
            if parts[0] != "pymoo_stitch":
                continue
            for other in [parts[1]] if len(parts) > 1 else names:
                if other not in (source, "__version__"):
                    edges.setdefault((source, other), []).append(name)
    return edges


def test_the_table_names_every_package_and_there_are_few():
    found = {name.split(".")[0] for name in modules()} - {"__init__", "__main__"}
    assert found == table()[0].keys()
    entries = {path.name for path in PACKAGE.iterdir()} - {"__init__.py", "__main__.py", "py.typed", "__pycache__"}
    assert len(entries - {"problems"}) <= 14


def test_no_import_is_against_the_table():
    allowed, exceptions = table()
    for (source, target), where in package_edges().items():
        assert target in allowed[source] or (source, target) in exceptions, f"{source} → {target} in {where}"
    for pair in [*exceptions, *((source, target) for source, others in allowed.items() for target in others)]:
        assert pair in package_edges(), f"nobody needs {pair}"


def test_packages_have_no_cycle():
    allowed, exceptions = table()
    assert nx.is_directed_acyclic_graph(nx.DiGraph([(a, b) for a, others in allowed.items() for b in others]))
    assert nx.is_directed_acyclic_graph(nx.DiGraph(package_edges().keys() - exceptions.keys()))


def test_modules_have_no_cycle_when_they_are_imported():
    known = modules()
    graph = nx.DiGraph()
    for name, path in known.items():
        for target, names, late in imports(name, path):
            if late or path.name == "__init__.py":
                continue
            inner = target.removeprefix("pymoo_stitch").removeprefix(".")
            for other in [inner, *(f"{inner}.{each}".strip(".") for each in names)]:
                if other in known and other != name and known[other].name != "__init__.py":
                    graph.add_edge(name, other)
    assert nx.is_directed_acyclic_graph(graph), nx.find_cycle(graph)


def test_what_is_private_stays_in_its_package():
    for name, path in modules().items():
        for target, names, _ in imports(name, path):
            parts = target.split(".")
            if parts[0] == "pymoo_stitch" and len(parts) > 1 and parts[1] != name.split(".")[0]:
                assert not [part for part in (*parts, *names) if part.startswith("_")], (name, target, names)


def test_each_package_says_what_it_may_import():
    allowed, _ = table()
    for name, others in allowed.items():
        path = modules()[name]
        said = re.search(r"^May import: (.*)$", ast.get_docstring(ast.parse(path.read_text())), re.MULTILINE)
        assert said, name
        assert set(re.findall(r"`(\w+)`", said[1])) == others, name


@pytest.mark.parametrize("name", sorted(NO_TORCH))
def test_the_search_needs_no_torch(name):
    for module, path in modules().items():
        if f"pymoo_stitch.{module}" == name or (
            f"pymoo_stitch.{module}".startswith(f"{name}.") and name.count(".") > 1
        ):
            found = [target for target, _, _ in imports(module, path) if target.split(".")[0] == "torch"]
            assert not found or module in TORCH_IN_FUNCTIONS, (module, found)


def test_what_needs_no_torch_does_not_import_it():
    names = ", ".join(sorted(NO_TORCH))
    code = f"import sys, {names}; sys.exit(','.join(m for m in ('torch', 'timm') if m in sys.modules) or None)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("package", ["", "algorithms", "report", "runners"])
def test_names_that_are_imported_late_are_those_that_type_checkers_see(package):
    path = modules()[package or "__init__"]
    seen = {
        each
        for target, names, late in imports(package or "__init__", path)
        for each in names
        if late and target.startswith("pymoo_stitch")
    }
    module = import_module(f"pymoo_stitch.{package}".rstrip("."))
    assert seen == set(module.__all__)
    parts = {path.stem for path in path.parent.glob("*.py")} | {path.name for path in path.parent.iterdir()}
    assert not parts & seen, "a module of that name would hide it"
    assert all(getattr(module, name) is not None for name in module.__all__)
    assert set(module.__all__) <= set(dir(module))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = module.nothing


def test_every_package_is_installed():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    found = {f"pymoo_stitch.{name}" for name, path in modules().items() if path.name == "__init__.py"}
    assert {name.removesuffix(".__init__") for name in found} == set(settings["tool"]["setuptools"]["packages"])
    assert Path(pymoo_stitch.__file__).parent.name == "pymoo_stitch"


def test_tests_mirror_the_packages():
    folders = {path.parent.name for path in (ROOT / "tests").glob("*/test_*.py")} - {"benchmarks", "hosts"}
    assert folders <= {name for name, path in modules().items() if path.name == "__init__.py"}
