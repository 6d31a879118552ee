"""What a person takes from runs: the networks on their fronts, tables, plots, and everything as data."""

import csv
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import numpy as np
from matplotlib.figure import Figure
from pymoo.core.population import Population

from ..evaluations import identity, problem_differences, write_genotype
from ..problem import Elsewhere, StitchProblem
from ..supernet import Cascade, Subnetwork
from ..util.files import check_folder
from ..util.fronts import front_of, on_front
from ..util.statistics import decimals
from ..util.tables import percent, table
from .cascade_points import CascadePoints, cascades_document, measure_cascade
from .comparison import Comparison
from .drawing import draw_cascade, draw_subnetwork
from .fronts import plot_fronts
from .page.html import page
from .page.members import document as page_document
from .plots import plot_hypervolume, plot_predictions, plot_reliability, plot_stitches
from .points import TOLERANCE, Against, Measured, Point, compared
from .runs import Run

NEAR = 0.5
"""How far from a front networks are evaluated again, in standard errors."""

MOST_NEAR = 50
"""How many these are at most, the nearest first."""


class NothingToRecommendError(ValueError):
    """Raised if nothing that was found is worth more than the networks it was made from."""


class _Candidate(NamedTuple):
    """A network on a front, or near to one.

    :param found_by: the algorithms whose front that is.
    :param gap: its distance from the front in standard errors; 0 if it is on it.
    :param is_estimated: whether that is by an estimate, of some of the images.
    """

    key: str
    x: np.ndarray
    cost: float
    found_by: tuple[str, ...]
    gap: float
    is_estimated: bool


class Report:
    """Runs of one problem, by any algorithms and with any seeds, and what can be taken from them.

    Searches see one split, as a rule "validation", and what looks best there was lucky with its images. So their
    fronts, and the networks within half a standard error of these (by an estimate where their evaluation ended early),
    are evaluated again on the selection split, where you choose; the test split is only reported. Whatever an
    algorithm's runs have found together is its front: the non-dominated ones of all their evaluations.

    >>> problem, evaluations = get_problem("digits"), Evaluations(journal="run.sqlite")
    >>> _ = minimize(problem, GOMEA(pop_size=8), ("n_evals", 20), seed=1, evaluator=evaluations)
    >>> report = Report([Run.read("run.sqlite")], problem)
    >>> report.splits, report.deciding
    (('validation', 'selection', 'test'), 'selection')
    >>> [point.name for point in report.references]
    ['inverted', 'residual', 'ensemble']
    >>> low, high = report.references[0].interval("test", "accuracy")
    >>> bool(low < report.references[0].metrics["test"]["accuracy"] < high)
    True
    >>> report.choose(at_most=300_000).multiply_adds <= 300_000
    True

    :param runs: as `Run.read` returns them.
    :param problem: the one that was searched. A run of another is refused.
    :param test: whether to evaluate on the test split, if the task has one.
    :param one_stitch: whether all networks with one stitch are tried as stages of cascades too. There are hundreds.
    :param n_stages: how many stages plain cascades have at most. Three are worth a try with three networks or more.
    :param runner: where networks and the stages of cascades are evaluated, such as a `DaskRunner`; by default in this
        process.
    """

    def __init__(
        self,
        runs: Iterable[Run],
        problem: StitchProblem,
        *,
        test: bool = True,
        one_stitch: bool = False,
        n_stages: int = 2,
        runner: Elsewhere | None = None,
    ):
        runs = list(runs)
        if not runs:
            raise ValueError("a report needs at least one run; none is given.")
        own = identity(problem)
        for run in runs:
            if found := problem_differences(run.about, problem, own):
                raise ValueError(f"{run.path} is a run of another problem: {'; '.join(found)}.")
        self.problem, self.one_stitch, self.n_stages, self.runner = problem, one_stitch, n_stages, runner
        problem.references(runner=runner)  # which are kept, and asked for all over
        self.comparison = Comparison(runs, problem.hv_ref_point)
        self.split = problem.split
        there = problem.task.splits
        wanted = [self.split, *(s for s in ("selection", "test") if s in there and (test or s != "test"))]
        self.splits = tuple(dict.fromkeys(wanted))

    @property
    def runs(self) -> list[Run]:
        return [run for group in self.comparison.runs.values() for run in group]

    @property
    def deciding(self) -> str:
        """The split on which to choose: that for selection, if the task has one, else the one that was searched."""
        return "selection" if "selection" in self.splits else self.split

    @cached_property
    def references(self) -> list[Point]:
        """Each network and the ensemble, by their cost."""
        evaluated = {split: self.problem.references(split, self.runner) for split in self.splits}
        named = self.problem.space.references
        points = [self._point(name, x, (), evaluated, i) for i, (name, x) in enumerate(named.items())]
        return sorted(points, key=lambda point: point.multiply_adds)

    @cached_property
    def front(self) -> list[Point]:
        """The networks on the algorithms' fronts together, and those on the front on the deciding split, by their cost,
        evaluated on all splits."""
        candidates = self._candidates()
        if not candidates:
            return []
        X = np.array([candidate.x for candidate in candidates])
        chosen = np.array([candidate.gap == 0 for candidate in candidates])
        if self.deciding != self.split:
            chosen |= self.problem.reevaluate(X, self.deciding, self.runner).get("on_front").astype(bool)
        kept = [candidate for candidate, keep in zip(candidates, chosen, strict=True) if keep]
        evaluated = {split: self.problem.reevaluate(X[chosen], split, self.runner) for split in self.splits}
        sound = [not any(pop[i].get("failed") for pop in evaluated.values()) for i in range(len(kept))]
        points = [self._point(c.key[:8], c.x, c.found_by, evaluated, i) for i, c in enumerate(kept) if sound[i]]
        points = compared(points, self.references, self.problem.task.metric)
        return sorted(points, key=lambda point: tuple(point.F[self.split]))

    def _candidates(self) -> list[_Candidate]:
        """The networks on the algorithms' fronts and, if there is another split to choose on, those near to them."""
        in_full = {row.key for run in self.runs for row, some in zip(run.rows, run.is_bounded, strict=True) if not some}
        found: dict[str, _Candidate] = {}
        for label, group in self.comparison.runs.items():
            F, X = np.concatenate([run.F for run in group]), np.concatenate([run.X for run in group])
            rows = [row for run in group for row in run.rows]
            feasible, sound = (
                np.concatenate([getattr(run, name) for run in group]) for name in ("is_feasible", "is_sound")
            )
            estimated = feasible & ~sound & np.array([row.key not in in_full for row in rows])
            gaps = self._gaps(F, sound, estimated)
            gaps[front_of(F, sound)] = 0
            near = NEAR if self.deciding != self.split else 0.0
            for i in np.flatnonzero(gaps <= near):
                key = rows[i].key
                other = found.get(key, _Candidate(key, X[i], F[i, 0], (), np.inf, bool(estimated[i])))
                labels = dict.fromkeys([*other.found_by, label])
                found[key] = other._replace(found_by=tuple(labels), gap=min(other.gap, gaps[i]))
        on_fronts = [candidate for candidate in found.values() if candidate.gap == 0]
        others = sorted((c for c in found.values() if c.gap), key=lambda c: (c.gap, c.cost, c.key))
        return [*on_fronts, *self._sound(others[:MOST_NEAR])]

    def _sound(self, candidates: Sequence[_Candidate]) -> list[_Candidate]:
        """Without those that, evaluated in full, fail or do not meet the constraints."""
        estimated = [candidate for candidate in candidates if candidate.is_estimated]
        if not estimated:
            return list(candidates)
        X = np.array([candidate.x for candidate in estimated])
        pop = self.problem.reevaluate(X, self.split, self.runner)
        bad = {c.key for c, one in zip(estimated, pop, strict=True) if one.get("failed") or (one.G > 0).any()}
        return [candidate for candidate in candidates if candidate.key not in bad]

    def _gaps(self, F: np.ndarray, sound: np.ndarray, estimated: np.ndarray) -> np.ndarray:
        """How far each evaluation [n] is above its own algorithm's front, in standard errors; infinite if it is below
        the floor, or if the metric's standard error is not known.

        :param sound: a mask [n] of those that may be on the front.
        :param estimated: a mask [n] of others that count.
        """
        gaps = np.full(len(F), np.inf)
        metric, n = self.problem.metric, len(self.problem.task[self.split])
        rows = np.flatnonzero((sound | estimated) & (F[:, 1] <= self.problem.hv_ref_point[1]))
        rows = rows[np.lexsort((F[rows, 1], F[rows, 0]))]
        best = np.minimum.accumulate(np.where(sound[rows], F[rows, 1], np.inf))
        rows, best = rows[np.isfinite(best)], best[np.isfinite(best)]
        if (metric.best, metric.worst) != (1.0, 0.0) or not len(rows):
            return gaps
        error = np.sqrt(np.maximum(best * (1 - best), 1 / n) / n)  # of a mean over n images, at most
        distance = (F[rows, 1] - best) / error
        gaps[rows] = np.maximum(distance, 1e-9)  # those on the front itself are told apart by `front_of`
        return gaps

    def _point(
        self, name: str, x: np.ndarray, found_by: Sequence[str], evaluated: Mapping[str, Population], i: int
    ) -> Point:
        metrics = self.problem.task.all_metrics
        measured = {split: Measured.of(evaluated[split][i], metrics) for split in self.splits}
        return Point.of(self.problem, name, self.problem.subnetwork(x), found_by, measured)

    @cached_property
    def _cascades(self) -> CascadePoints:
        stages = [cast(Subnetwork, point.network) for point in self.found]
        if self.one_stitch:
            known = {stage.key for stage in stages}
            more = [self.problem.subnetwork(x) for x in self.problem.space.one_stitch()]
            stages += [stage for stage in more if stage.key not in known]
        return CascadePoints(
            self.problem, self.references, stages, self.splits, self.deciding, self.n_stages, self.runner
        )

    @cached_property
    def plain_cascades(self) -> list[Point]:
        """Cascades of `n_stages` references or fewer, those that neither a reference nor another of them dominates on
        the deciding split, by their cost: what one can have without stitches and without a search."""
        return compared(self._cascades.plain, self.references, self.problem.task.metric)

    @cached_property
    def cascades(self) -> list[Point]:
        """The plain cascades, and one with stitched stages if that is worth more than the one that would be
        recommended."""
        plain = self._cheapest(self.plain_cascades)
        stitched = plain and self._cascades.stitched(plain)
        return [
            *self.plain_cascades,
            *compared([stitched] if stitched else [], self.references, self.problem.task.metric),
        ]

    @cached_property
    def found(self) -> list[Point]:
        """The networks on the front that are no references, and that no other found dominates on the deciding split."""
        known = {point.key for point in self.references}
        F = np.array([point.F[self.deciding] for point in self.front]).reshape(-1, 2)
        return [p for p, kept in zip(self.front, on_front(F), strict=True) if kept and p.key not in known]

    # --------------------------------------------------------------------------------------------------------- choosing

    @cached_property
    def best_reference(self) -> Point:
        """The reference with the least error on the deciding split, of equals the cheapest."""
        return min(self.references, key=lambda point: (point.F[self.deciding][1], point.multiply_adds))

    @cached_property
    def recommended(self) -> Point | None:
        """The cheapest network or cascade that is as good as the best reference, on the deciding split, and better than
        every reference that costs no more; None if there is none. See `Against.is_as_good`. What has stitches must
        also be as good as the plain cascade that would be recommended."""
        plain = self._cheapest(self.plain_cascades)
        if plain is None:
            return self._cheapest(self.found)
        split, metric = self.deciding, self.problem.task.metric
        rows = plain.measured[split].each[metric]
        others = [p for p in self.found if Against.of(p.measured[split].each[metric], rows, metric).is_as_good]
        stitched = [point for point in self.cascades if point.stitches]
        return self._cheapest([plain, *others, *stitched])

    def _cheapest(self, points: Sequence[Point]) -> Point | None:
        """The cheapest of these that is as good as the best reference and better than all that cost no more."""
        split = self.deciding
        for point in sorted(points, key=lambda point: point.F[split][0]):
            against = point.against[split]
            cheaper = [r.name for r in self.references if r.F[split][0] <= point.F[split][0]]
            if against[self.best_reference.name].is_as_good and all(
                against[name].verdict == "better than" for name in cheaper
            ):
                return point
        return None

    def choose(self, *, key: str | None = None, at_most: float | None = None, at_least: float | None = None) -> Point:
        """One network, cascade or reference, judged on the deciding split: by default the recommended one. If there is
        none, a `NothingToRecommendError` names the reference to use instead.

        :param key: the one whose key, or name, begins with this.
        :param at_most: the best one, of equals the cheapest, with at most this many multiply-adds; for a cascade,
            expected ones.
        :param at_least: the cheapest one whose metric is at least this good.
        """
        everything = list({point.key: point for point in [*self.front, *self.cascades, *self.references]}.values())
        if key is not None:
            found = [point for point in everything if point.key.startswith(key) or point.name == key]
            if len(found) != 1:
                some = ", ".join(point.name for point in (found or everything)[:40])
                count = f"{len(found)} networks and cascades have" if found else "no network or cascade has"
                raise ValueError(f"{count} a name or key that begins with {key!r}. There are {some}.")
            return found[0]
        if not self.front:
            raise NothingToRecommendError(
                "these runs found no network: all evaluations failed, or none meets the constraint."
            )
        metric, split = self.problem.task.metric, self.deciding

        def error_first(point: Point) -> tuple[float, int]:
            return point.F[split][1], point.multiply_adds

        if at_most is not None:
            found = [point for point in everything if point.multiply_adds <= at_most]
            if not found:
                least = min(point.multiply_adds for point in everything)
                raise ValueError(f"no network or cascade costs at most {at_most:,.0f}; the cheapest costs {least:,}.")
            return min(found, key=error_first)
        if at_least is not None:
            limit = self.problem.metric.error(at_least)
            found = [point for point in everything if point.F[split][1] <= limit]
            if not found:
                reached = min(everything, key=error_first).metrics[split][metric]
                raise ValueError(
                    f"no network or cascade reaches {metric} {at_least:g}; the best has {self._rounded(reached)}."
                )
            return min(found, key=lambda point: point.multiply_adds)
        if self.recommended is None:
            raise NothingToRecommendError(self._nothing())
        return self.recommended

    def _nothing(self) -> str:
        """A message that nothing is recommended, and which reference to use: the cheapest that is as good as the
        best; and whether a cheaper one is not distinguishable from it."""
        best, metric, split = self.best_reference, self.problem.task.metric, self.deciding
        rows = {point.name: point.measured[split].each[metric] for point in self.references}
        against = {name: Against.of(each, rows[best.name], metric) for name, each in rows.items()}
        use = next(r for r in self.references if r is best or against[r.name].is_as_good)
        n = len(self.problem.task[split])
        same = "" if use is best else f" (as good as {best.name})"
        alike = next(r for r in self.references if r is use or against[r.name].verdict != "worse than")
        if alike is not use:
            same += f" (more images would tell whether {alike.name} is worse)"
        few = f" (fewer than {round(2 / TOLERANCE):,} images cannot show that)" if n < 2 / TOLERANCE else ""
        return (
            f"nothing that was found is surely as good as {best.name}, to {TOLERANCE}, on {n:,} {split} images{few}, "
            f"and better than every cheaper reference. Use {use.name}{same}, search longer, or ask for a network of "
            f"the front by its key, cost or {metric}."
        )

    def measure(self, network: Subnetwork | Cascade) -> dict[str, dict[str, float]]:
        """Every metric of a network, also one with stitches of its own, or of a cascade, on the split that was
        searched, selection and test."""
        return {split: dict(one.metrics) for split, one in self.measured(network).items()}

    def measured(self, network: Subnetwork | Cascade) -> dict[str, Measured]:
        """The same with all that is known, such as intervals."""
        task, problem = self.problem.task, self.problem
        splits = [split for split in dict.fromkeys([self.split, "selection", "test"]) if split in task.splits]
        if isinstance(network, Cascade):
            return {split: measure_cascade(problem, network, split) for split in splits}
        options: dict[str, Any] = {
            "metrics": task.all_metrics,
            "heads": problem.heads([network]),
            "each": True,
            "progress": True,
        }
        outcomes = {split: problem.engine.evaluate([network], task[split], **options)[0] for split in splits}
        return {split: Measured(network.cost, one.metrics, one.each) for split, one in outcomes.items()}

    # ------------------------------------------------------------------------------------------------------------ text

    def __str__(self) -> str:
        return "\n".join([*self._table(), "", *self._in_words(), "", *self.verdict(), "", str(self.comparison)])

    def _shown(self, most: int = 12) -> list[Point]:
        """This many of those found above the floor, evenly spread; the plain cascade that is as good as the best
        reference, and the recommended one."""
        shown = sorted(self._above_floor(), key=lambda point: point.multiply_adds)
        if len(shown) > most:
            places = set(np.linspace(0, len(shown) - 1, most).round().astype(int))
            shown = [p for i, p in enumerate(shown) if i in places]
        for point in (self._cheapest(self.plain_cascades), self.recommended):
            if point is not None and point not in shown:
                shown.insert(0, point)
        return shown

    def _table(self) -> list[str]:
        metric, ensemble = self.problem.task.metric, max(point.multiply_adds for point in self.references)
        several = len(self.comparison.runs) > 1
        columns = [f"{metric}, {split}" for split in self.splits]
        rows = [["network", "multiply-adds", "of largest", *columns, "stitches", *["found by"] * several]]
        shown = self._shown()
        for point in [*self.references, *shown]:
            rows.append(
                [point.name + " ←" * (point is self.recommended), f"{point.multiply_adds:,}"]
                + [percent(point.multiply_adds / ensemble)]
                + [self._with_interval(point, split) for split in self.splits]
                + [f"{point.stitches}"]
                + [", ".join(point.found_by)] * several
            )
        lines = [*table(rows), "In parentheses: 95 % intervals."]
        if left_out := [point for point in self._above_floor() if point not in shown]:
            lines.append(f"Found and not shown: {len(left_out)}. All are in front.csv (`write`).")
        cascades = [point for point in shown if point.is_cascade]
        if cascades:
            lines.append("Cascades, with their expected multiply-adds:")
        for point in cascades:
            shares = [f"{point.F[split][0] / ensemble:.0%} on {split}" for split in self.splits]
            lines.append(f"  {point.name}: {stages_of(cast(Cascade, point.network))}")
            lines.append(f"    cost, of the largest: {', '.join(shares)}, {point.worst_cost / ensemble:.0%} at most")
        return lines

    def _with_interval(self, point: Point, split: str) -> str:
        metric = self.problem.task.metric
        digits = decimals(len(self.problem.task[split]))
        low, high = point.interval(split, metric)
        return f"{point.metrics[split][metric]:.{digits}f} ({low:.{digits}f}–{high:.{digits}f})"

    def _rounded(self, value: float) -> str:
        """A value of the metric on the split that decides."""
        return f"{value:.{decimals(len(self.problem.task[self.deciding]))}f}"

    def _in_words(self) -> list[str]:
        """How what is shown compares with the references on the last split."""
        split, shown = self.splits[-1], self._shown()
        if not shown:
            return []
        test = "exact McNemar tests" if self.problem.task.metric == "accuracy" else "paired bootstrap tests"
        head = f"On the same {len(self.problem.task[split]):,} {split} images ({test}, Holm's correction over these):"
        width = max(len(point.name) for point in shown)
        return [head, *(f"  {point.name:<{width}}  {in_words(point, split)}" for point in shown)]

    def _above_floor(self) -> list[Point]:
        """Those found whose error the plots and the hypervolume look at."""
        floor = self.problem.hv_ref_point[1]
        return [point for point in self.found if point.F[self.deciding][1] <= floor]

    def verdict(self) -> list[str]:
        """What was found, what it dominates, and what is recommended, in sentences."""
        floor = self.problem.hv_ref_point[1]
        bound = f"{1 - floor:g}" if self.problem.metric.best > self.problem.metric.worst else f"{floor:g}"
        n, above, metric = len(self.found), len(self._above_floor()), self.problem.task.metric
        lines = [
            f"Found: {n} network{'s' if n != 1 else ''} on the front on {self.deciding}, {above} of them above the "
            f"floor, {metric} {bound} (about that of the worst reference; plots and hypervolumes leave out what is "
            "below)."
        ]
        if "test" in self.splits and n:
            kept = sum(point.on_front["test"] for point in self.found)
            lines[0] += f" On test, neither one another nor a reference dominates {kept} of them."
        for reference in self.references:
            there = [point for point in self.found if reference.name in point.dominates[self.deciding]]
            text = f"{len(there)} dominate {reference.name} on {self.deciding}"
            if "test" in self.splits and there and self.deciding != "test":
                text += f", {sum(reference.name in point.dominates['test'] for point in there)} of them still on test"
            lines.append(f"{text}.")
        lines.append(self._recommendation())
        if self._cascades.refusal:
            lines.append(self._cascades.refusal)
        if self.deciding == self.split:
            lines.append(
                f"This was judged on the {self.split} images that the search has seen, so it is optimistic: give the "
                "task a selection split."
            )
        return lines

    def _recommendation(self) -> str:
        point, best = self.recommended, self.best_reference
        if point is None:
            return f"Recommended: {self._nothing()}"
        of_best = point.multiply_adds / best.multiply_adds
        text = (
            f"Recommended: {point.name}, {percent(of_best)} of {best.name}'s cost; on {self.deciding} as good as "
            f"{best.name} (with 95 % confidence no more than {TOLERANCE} worse)"
        )
        if "test" in self.splits and self.deciding != "test":
            pair = point.against["test"][best.name].paired
            digits = decimals(len(self.problem.task["test"]), paired=True)
            interval = f"{pair.low:+.{digits}f} to {pair.high:+.{digits}f}"
            text += f", on test {pair.difference:+.{digits}f} (95 % interval {interval})"
        return f"{text}."

    # ----------------------------------------------------------------------------------------------------------- plots

    def plot_fronts(self) -> Figure:
        fronts = {
            split: {
                label: np.array([self._bars(p, split) for p in self.front if label in p.found_by]).reshape(-1, 4)
                for label in self.comparison.runs
            }
            for split in self.splits
        }
        references = {split: {p.name: self._bars(p, split) for p in self.references} for split in self.splits}
        chosen = self.recommended
        marked = None if chosen is None else (chosen.name, {split: tuple(chosen.F[split]) for split in self.splits})
        curve = {s: np.array([self._bars(point, s) for point in self.plain_cascades]) for s in self.splits}
        curves = {"plain cascades": curve} if self.plain_cascades else {}
        return plot_fronts(fronts, references, metric=self.problem.task.metric, chosen=marked, curves=curves)

    def _bars(self, point: Point, split: str) -> tuple[float, ...]:
        """The objectives, and the ends of the error's interval."""
        metric = self.problem.task.metric
        low, high = sorted(self.problem.metric.error(end) for end in point.interval(split, metric))
        return (*point.F[split], low, high)

    def plot_hypervolume(self, over: Literal["evaluations", "time", "computation"] = "evaluations") -> Figure:
        """Over evaluations; over time, that since a run began where all runs have evaluated everything themselves, else
        the time that workers spent on evaluations; or over the multiply-adds that the evaluated images took."""
        x, label = {"evaluations": self._counts, "time": self._times, "computation": self._computations}[over]()
        curves = {
            name: [(x(run), curve) for run, curve in zip(group, self.comparison.curves[name], strict=True)]
            for name, group in self.comparison.runs.items()
        }
        return plot_hypervolume(curves, x_label=label)

    def _counts(self) -> tuple[Callable[[Run], np.ndarray], str]:
        return lambda run: np.arange(1, len(run) + 1), "evaluations"

    def _times(self) -> tuple[Callable[[Run], np.ndarray], str]:
        times, label = (Run.worked, "workers' time")
        if all(run.has_own_times for run in self.runs):
            times, label = (Run.elapsed, "time")
        seconds, unit = (60, "minutes") if max(times(run)[-1] for run in self.runs) > 120 else (1, "seconds")
        return lambda run: times(run) / seconds, f"{label} ({unit})"

    def _computations(self) -> tuple[Callable[[Run], np.ndarray], str]:
        return lambda run: run.computed() / 1e9, "images × multiply-adds (10⁹)"

    def plot_stitches(self) -> Figure:
        """Of the first run of each algorithm."""
        return plot_stitches({label: self._stitches(group[0]) for label, group in self.comparison.runs.items()})

    def _stitches(self, run: Run) -> tuple[np.ndarray, np.ndarray]:
        links = self.problem.n_var - self.problem.space.n_choices
        X = run.X[:, :links]
        return X.sum(1), (X & run.active[:, :links]).sum(1)

    def reliability(self, chosen: Point | None) -> dict[str, np.ndarray]:
        """Of the references and a network, on the last split: for each bin of the predicted class's probability the
        predictions, the sum of their probabilities, and those that are right [3, bins]."""
        points = [*self.references, *([chosen] if chosen else [])]
        rows = {point.name: point.measured[self.splits[-1]].each["calibration_error"] for point in points}
        return {name: each.sum(0) for name, each in rows.items()}

    def _predictions(self) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Predicted errors, spreads and real errors of those algorithms that have a model."""
        found = {}
        for label, group in self.comparison.runs.items():
            rows = [np.column_stack([run.predicted, run.F[:, 1]])[run.is_predicted] for run in group]
            if sum(map(len, rows)):
                found[label] = tuple(np.vstack(rows).T)
        return found

    # ------------------------------------------------------------------------------------------------------------ files

    def write(self, folder: str | os.PathLike, chosen: Point | None = None) -> list[Path]:
        """Write everything to files in a folder, which is made if needed: a page for a browser, plots as PNG, tables as
        CSV, all in one as JSON.

        :param chosen: the network that is drawn, and whose reliability is shown; by default the recommended one, if
            there is any.
        """
        check_folder(folder)
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        chosen = chosen or self.recommended
        bins = self.reliability(chosen)
        document = self._document(bins)
        points = [*document["references"], *document["cascades"], *document["front"]]
        written = [
            _write_csv(folder / "front.csv", points),
            _write_json(folder / "cascades.json", cascades_document(self.cascades, self.problem)),
            _write_csv(folder / "evaluations.csv", self._evaluations()),
            _write_json(folder / "report.json", document),
            _write_text(folder / "report.html", page(page_document(self, folder))),
        ]
        names = [point.name for point in self.references]
        figures = {
            "fronts": self.plot_fronts,
            "hypervolume": self.plot_hypervolume,
            "hypervolume-time": lambda: self.plot_hypervolume("time"),
            "reliability": lambda: plot_reliability(bins, references=names),
        }
        if all(np.isfinite(run.images).all() for run in self.runs):
            figures["hypervolume-computation"] = lambda: self.plot_hypervolume("computation")
        if self.problem.codes is None:  # a code's variables are no links
            figures["stitches"] = self.plot_stitches
        if predictions := self._predictions():
            figures["predictions"] = lambda: plot_predictions(predictions)
        if chosen is not None:
            draw = draw_cascade if chosen.is_cascade else draw_subnetwork
            figures["subnetwork"] = lambda: draw(chosen.network)
        for name, figure in figures.items():
            figure().savefig(folder / f"{name}.png", dpi=150)
            written.append(folder / f"{name}.png")
        return written

    def _flat(self, point: Point) -> dict[str, Any]:
        row = {
            "name": point.name,
            "key": point.key,
            "found_by": "; ".join(point.found_by),
            "recommended": int(point is self.recommended),
            "multiply_adds": point.multiply_adds,
            "multiply_adds_at_most": point.worst_cost,
            "stitches": point.stitches,
        }
        row |= {f"{split}_multiply_adds": float(f[0]) for split, f in point.F.items()}
        for split, values in point.metrics.items():
            for name, value in values.items():
                row[f"{split}_{name}"] = value
                row[f"{split}_{name}_low"], row[f"{split}_{name}_high"] = point.interval(split, name)
        row |= {f"dominates_on_{split}": "; ".join(names) for split, names in point.dominates.items()}
        row |= {f"on_front_on_{split}": int(v) if point.found_by else "" for split, v in point.on_front.items()}
        for split in self.splits:
            for reference in self.references:
                against = point.against[split].get(reference.name)
                row[f"{split}_difference_from_{reference.name}"] = against.paired.difference if against else ""
                row[f"{split}_p_{reference.name}"] = against.corrected if against else ""
                row[f"{split}_verdict_{reference.name}"] = f"{against.verdict} {reference.name}" if against else ""
        return row | {"genotype": "" if point.is_cascade else write_genotype(point.x)}

    def _evaluations(self) -> Iterable[dict[str, Any]]:
        for label, group in self.comparison.runs.items():
            for run, curve in zip(group, self.comparison.curves[label], strict=True):
                nonzero, active = self._stitches(run)
                elapsed, worked = run.elapsed() if run.has_own_times else None, run.worked()
                for i, row in enumerate(run.rows):
                    yield {
                        "algorithm": label,
                        "seed": run.seed,
                        "evaluation": i + 1,
                        "elapsed": "" if elapsed is None else round(float(elapsed[i]), 4),
                        "worked": round(float(worked[i]), 4),
                        "multiply_adds": run.F[i, 0],
                        "error": run.F[i, 1],
                        "images": row.result.get("images", ""),
                        "bound": row.result.get("bound", ""),
                        "predicted": row.notes.get("predicted", ""),
                        "spread": row.notes.get("spread", ""),
                        "hypervolume": curve[i],
                        "nonzero_stitches": int(nonzero[i]),
                        "active_stitches": int(active[i]),
                        "threshold": row.threshold,
                        "failed": row.result["failed"],
                        "key": row.key,
                    }

    def _document(self, bins: Mapping[str, np.ndarray]) -> dict[str, Any]:
        metric = self.problem.task.metric
        return {
            "problem": {
                "origin": self.problem.origin,
                "metric": metric,
                "ref_point": self.problem.hv_ref_point.tolist(),
                "images": {split: len(self.problem.task[split]) for split in self.splits},
                "deciding": self.deciding,
            },
            "runs": [
                {"algorithm": label, "path": run.path.name, "evaluations": len(run)}
                | {"seed": run.seed, "pop_size": run.pop_size, "versions": run.about["versions"]}
                | {"hypervolume": self.comparison.hypervolumes[label][run.seed]}
                | {"bounded": int(run.is_bounded.sum()), "images": sum(row.result.get("images", 0) for row in run.rows)}
                | {"screened": run.screened, "rank_correlation": run.rank_correlation()}
                for label, group in self.comparison.runs.items()
                for run in group
            ],
            "compared_after": self.comparison.evaluations,
            "differences": [asdict(difference) for difference in self.comparison.differences],
            "references": [self._flat(point) for point in self.references],
            "cascades": [self._flat(point) for point in self.cascades],
            "front": [self._flat(point) for point in self.front],
            "reliability": {name: sums.tolist() for name, sums in bins.items()},
        }


def in_words(point: Point, split: str) -> str:
    """How a network compares with the references: better than a; not distinguishable from b, c."""
    verdicts: dict[str, list[str]] = {}
    for name, against in point.against[split].items():
        verdicts.setdefault(against.verdict, []).append(name)
    return "; ".join(f"{verdict} {', '.join(names)}" for verdict, names in verdicts.items())


def stages_of(cascade: Cascade) -> str:
    """A cascade in words: its stages, thresholds, and the fraction of images that reaches each."""
    parts = []
    for number, stage in enumerate(cascade.stages):
        name = " + ".join(network.name for network in stage.outputs)
        stitches = f" with {stage.n_stitches} stitch{'es' * (stage.n_stitches > 1)}" if stage.n_stitches else ""
        when = f" where the top probability is below {cascade.thresholds[number - 1]:.4g}" if number else ""
        share = f" ({percent(cascade.fractions[number])} of the images)" if number and cascade.fractions else ""
        parts.append(f"{name}{stitches}{when}{share}")
    return ", then ".join(parts)


def _write_csv(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = None
        for row in rows:
            if writer is None:
                writer = csv.DictWriter(file, row)
                writer.writeheader()
            writer.writerow(row)
    return path


def _write_json(path: Path, document: Any) -> Path:
    return _write_text(path, json.dumps(document, indent=1) + "\n")


def _write_text(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path
