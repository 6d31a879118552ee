"""What a page shows of a report, as data: what only networks and images can tell of the networks that were evaluated
again."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...supernet import Cascade, Subnetwork
from ..drawing import cascade_drawing, subnetwork_drawing
from ..points import Point
from ..segments import part_rows, segments
from . import journals

if TYPE_CHECKING:
    from ..report import Report


def document(report: "Report", folder: Path) -> dict[str, Any]:
    """A report as JSON takes it.

    :param folder: where the page and the other files of the report are.
    """
    problem = report.problem
    found = journals.document(report.runs, problem.scale())
    classes = problem.task.classes
    return found | {
        "problem": found["problem"] | {"classes": list(map(str, classes)) if classes else None},
        "splits": list(report.splits),
        "deciding": report.deciding,
        "images": {split: len(problem.task[split]) for split in report.splits},
        "words": report.verdict(),
        "comparison": str(report.comparison),
        "members": [
            *(_member(report, point, "reference", folder) for point in report.references),
            *(_member(report, point, "cascade", folder) for point in report.cascades),
            *(_member(report, point, "network", folder) for point in report.front),
        ],
    }


def _member(report: "Report", point: Point, kind: str, folder: Path) -> dict[str, Any]:
    last = report.splits[-1]
    return {
        "name": point.name,
        "key": point.key,
        "kind": kind,
        "found_by": list(point.found_by),
        "recommended": point is report.recommended,
        "stitches": point.stitches,
        "on": {split: _on(report, point, split) for split in report.splits},
        "drawing": _drawing(point.network).document(),
        "parts": _parts(point.network),
        "reliability": _reliability(point, last),
        "commands": _commands(report, point, kind, folder),
    }


def _on(report: "Report", point: Point, split: str) -> dict[str, Any]:
    """On one split. Each metric is its value and the ends of its interval."""
    metrics = {name: (value, *point.interval(split, name)) for name, value in point.metrics[split].items()}
    ends = metrics[report.problem.task.metric][1:]
    return {
        "cost": round(float(point.F[split][0])),
        "error": _short(point.F[split][1]),
        "interval": sorted(_short(report.problem.metric.error(end)) for end in ends),
        "metrics": {name: [_short(number) for number in numbers] for name, numbers in metrics.items()},
        "dominates": list(point.dominates[split]),
        "against": {
            name: {"verdict": one.verdict, "p": _short(one.corrected)}
            | {"difference": [_short(value) for value in (one.paired.difference, one.paired.low, one.paired.high)]}
            for name, one in point.against[split].items()
        },
    }


def _drawing(network: Subnetwork | Cascade) -> Any:
    return cascade_drawing(network) if isinstance(network, Cascade) else subnetwork_drawing(network)


def _parts(network: Subnetwork | Cascade) -> list[list[list[str]]]:
    """A table of parts, of a cascade one for each stage."""
    stages = network.stages if isinstance(network, Cascade) else [network]
    return [list(part_rows(segments(stage), stage.cost)) for stage in stages]


def _reliability(point: Point, split: str) -> list[list[float]] | None:
    """For each bin of probabilities [3, bins]: predictions, the sum of their probabilities, and right ones."""
    rows = point.measured[split].each.get("calibration_error")
    return None if rows is None else [[_short(value) for value in sums] for sums in rows.sum(0).tolist()]


def _commands(report: "Report", point: Point, kind: str, folder: Path) -> list[str]:
    """The command that writes it to a file."""
    origin, given = report.problem.origin, report.runs[0].origin or {}
    choice = ["--key", point.name if kind == "reference" else point.key]
    choice += ["--report", str(folder)] if kind == "cascade" else []
    if origin and origin["name"].endswith(".py"):
        choice += ["--problem", origin["name"]]
    changed = {k: v for k, v in (origin or {}).get("options", {}).items() if given.get("options", {}).get(k, v) != v}
    choice += [part for name, value in changed.items() for part in ("--option", f"{name}={value}")]
    journals = [str(run.path) for run in report.runs]
    return [
        shlex.join(["pymoo-stitch", "export", *journals, *choice, "--output", f"{point.name}{suffix}"])
        for suffix in (".pt2", ".onnx")
    ]


def _short(value: float) -> float:
    return round(float(value), 6)
