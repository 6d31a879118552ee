"""What a page shows of runs, as data: all that their journals tell."""

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np

from ...evaluations import differences
from ..runs import Run, labels

KEY = 12
"""Characters of the keys of evaluated networks: enough to tell them apart."""

_BINS = 60
"""Stretches of time over which utilisation is averaged, at most."""


def document(runs: Sequence[Run], scale: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Runs of one problem, one or more, as JSON takes it. Errors are the second objective, which is minimised.

    :param scale: what results are compared with (`StitchProblem.scale`); by default what a journal says, or else what
        the evaluations suggest.
    """
    scale = scale or next((run.about["scale"] for run in runs if run.about.get("scale")), None) or _guessed(runs)
    for run in runs:
        if (count := run.about["problem"].get("n_obj", 2)) != 2:
            raise ValueError(f"{run.path} has {count} objectives; a page shows two, multiply-adds and an error.")
        if found := differences(runs[0].about["problem"], run.about["problem"], "problem"):
            raise ValueError(f"{runs[0].path} and {run.path} are runs of different problems: {'; '.join(found)}.")
    own_times = all(run.has_own_times for run in runs)
    about, ref_point = runs[0].about, np.array(scale["ref_point"])
    task = about["problem"].get("task", {})
    metric = task.get("metrics", ["second objective"])[0]
    split = task.get("split", "validation")
    named = zip(labels(runs), runs, strict=True)
    return {
        "problem": {
            "name": runs[0].origin["name"] if runs[0].origin else about["problem"]["class"],
            "metric": metric,
            "more_is_better": _more_is_better(runs, metric),
            "floor": _number(ref_point[1]),
            "largest": max((cost for _, cost, _ in scale["references"]), default=_number(ref_point[0] / 1.1)),
            "time": "time" if own_times else "workers' time",
            "versions": about["versions"],
        },
        "splits": [split],
        "searched": split,
        "runs": [_run(label, run, ref_point, scale["links"], own_times) for label, run in named],
        "members": [
            {"name": name, "kind": "reference", "on": {split: {"cost": cost, "error": error}}}
            for name, cost, error in scale["references"]
        ],
    }


def _guessed(runs: Sequence[Run]) -> dict[str, Any]:
    """The scale of runs whose journals hold none."""
    F = np.concatenate([run.F[run.is_sound] for run in runs])
    worst = F.max(0, initial=0) if len(F) else np.ones(2)
    return {"ref_point": [1.1 * worst[0], max(1.0, worst[1])], "references": [], "links": None}


def _more_is_better(runs: Sequence[Run], metric: str) -> bool:
    """Whether errors are 1 − the metric, and not the metric itself."""
    values = ((row.result.get(metric), row.result["F"][-1]) for run in runs for row in run.rows)
    return any(value is not None and math.isclose(value, 1 - error) and value != error for value, error in values)


def _run(label: str, run: Run, ref_point: np.ndarray, links: int | None, own_times: bool) -> dict[str, Any]:
    curve = run.hypervolume(ref_point)
    changes = np.flatnonzero(np.diff(curve, prepend=0))
    seconds = run.elapsed() if own_times else run.worked()
    correlation = run.rank_correlation()
    return {
        "algorithm": label,
        "seed": run.seed,
        "pop_size": run.pop_size,
        "path": run.path.name,
        "begun": run.about["begun"],
        "budget": run.budget,
        "failed": sum(bool(row.result["failed"]) for row in run.rows),
        "screened": run.screened,
        "rank_correlation": None if correlation is None else round(correlation, 3),
        "hypervolume": [changes.tolist(), _numbers(curve[changes], 6)],
        "utilisation": _utilisation(run),
        "evaluations": _evaluations(run, links) | {"seconds": _numbers(seconds, 2)},
    }


def _evaluations(run: Run, links: int | None) -> dict[str, list]:
    """Columns, one value per evaluation; None for what is not known. Columns that have no values are left out.

    `excluded` says why an evaluation is on no front: "bounded" if it stopped since it could no longer matter, and its
    error is an estimate; "failed" if it failed or does not meet the constraints."""
    reasons = [
        "bounded" if bounded else None if sound else "failed"
        for bounded, sound in zip(run.is_bounded, run.is_sound, strict=True)
    ]
    ones = run.X[:, :links] if links is not None else run.X[:, :0]
    columns: dict[str, list[Any]] = {
        "key": [row.key[:KEY] for row in run.rows],
        "cost": _numbers(run.F[:, 0], 0),
        "error": _numbers(run.F[:, -1], 6),
        "excluded": reasons,
        "predicted": _numbers(run.predicted[:, 0], 5),
        "images": _numbers(run.images, 0),
    }
    if links is not None:
        columns["nonzero"] = ones.sum(1).tolist()
        columns["stitches"] = (ones & run.active[:, :links]).sum(1).tolist()
    return {name: values for name, values in columns.items() if any(value is not None for value in values)}


def _utilisation(run: Run) -> dict[str, Any] | None:
    """How busy all workers together were from the first evaluation to the last; None where the rows do not tell."""
    begun = datetime.fromisoformat(run.about["begun"]).timestamp()
    spans: dict[str, list[tuple[float, float]]] = {}
    for row in run.rows:
        start, end = row.result.get("begun", -1.0), row.result.get("ended", -1.0)
        if begun <= start < end:  # what is older was taken over from other runs
            spans.setdefault(row.result.get("worker", ""), []).append((start, end))
    if not spans:
        return None
    ends = np.array([span for each in spans.values() for span in each])
    first, last = ends[:, 0].min(), ends[:, 1].max()
    edges = np.linspace(first, last, min(_BINS, len(ends)) + 1)
    busy = sum(np.diff([_busy_until(edge, each) for edge in edges]) for each in map(_merged, spans.values()))
    fractions = busy / np.diff(edges) / len(spans)
    return {"workers": len(spans), "seconds": _number(last - first), "busy": _numbers(fractions, 3)}


def _merged(spans: Sequence[tuple[float, float]]) -> np.ndarray:
    """Without overlaps [n, 2]: what is evaluated together has the same times."""
    merged: list[list[float]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    return np.array(merged)


def _busy_until(time: float, spans: np.ndarray) -> float:
    return float((np.minimum(spans[:, 1], time) - np.minimum(spans[:, 0], time)).sum())


def _number(value: float) -> float:
    return round(float(value), 6)


def _numbers(values: np.ndarray, digits: int) -> list[float | int | None]:
    """Rounded, so that they take few bytes; None for what is not finite."""
    finite = np.isfinite(values)
    rounded = np.round(np.where(finite, values, 0), digits)
    plain = (rounded.astype(int) if digits == 0 else rounded).tolist()
    return [value if known else None for value, known in zip(plain, finite, strict=True)]
