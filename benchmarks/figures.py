"""The tables in README.md and docs, made from what benchmarks measured (`benchmarks/data`).

    python benchmarks/figures.py           # writes the tables
    python benchmarks/figures.py --check   # says which differ from the data, and fails

A table stands between `<!-- figures: NAME -->` and `<!-- end -->`, where NAME is one of `TABLES`.
"""

import argparse
import pathlib
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from record import DATA, read

ROOT = pathlib.Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"(<!-- figures: (\S+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Rows:
    """A table with a line for each row of the data.

    :param data: the name of the data.
    :param columns: headings, and how a cell is made of a row's values: a template or a function.
    :param only: leaves out the rows whose value in this column is empty.
    """

    data: str
    columns: Mapping[str, str | Callable[[Mapping], str]]
    only: str | None = None

    def lines(self, rows: Sequence[Mapping]) -> list[list[str]]:
        shown = [row for row in rows if self.only is None or row[self.only]]
        return [list(self.columns), *([_cell(cell, row) for cell in self.columns.values()] for row in shown)]


@dataclass(frozen=True)
class Facts:
    """A table of two columns, of the only row of the data: what, and how much."""

    data: str
    facts: Mapping[str, str]

    def lines(self, rows: Sequence[Mapping]) -> list[list[str]]:
        return [["", ""], *([name, cell.format_map(rows[0])] for name, cell in self.facts.items())]


@dataclass(frozen=True)
class Crossed:
    """A table with a line for each value of one column of the data, and a column for each value of another.

    :param line, column, cell: how headings and cells are made of a row's values.
    :param heading: of the first column.
    :param names: how some lines and columns are called instead; if `only_named`, the others are left out.
    """

    data: str
    line: str
    column: str
    cell: str
    heading: str = ""
    names: Mapping[str, str] | None = None
    only_named: bool = False

    def lines(self, rows: Sequence[Mapping]) -> list[list[str]]:
        columns, names = list(dict.fromkeys(self.column.format_map(row) for row in rows)), self.names or {}
        cells: dict[str, dict[str, str]] = {}
        for row in rows:
            cells.setdefault(self.line.format_map(row), {})[self.column.format_map(row)] = self.cell.format_map(row)
        return [[self.heading, *(names.get(column, column) for column in columns)]] + [
            [names.get(line, line), *(found.get(column, NOT_MEASURED) for column in columns)]
            for line, found in cells.items()
            if line in names or not self.only_named
        ]


def _cell(template: str | Callable[[Mapping], str], row: Mapping) -> str:
    """A cell, empty where the row has no such value."""
    try:
        return template(row) if callable(template) else template.format_map(row)
    except (KeyError, TypeError):
        return ""


def _route(row: Mapping) -> str:
    """The fragments of a chain, some of them where there are many."""
    parts = row["route"].split(" → ")
    return row["route"] if len(parts) <= 6 else f"{parts[0]} → {parts[1]} → … → {parts[-1]}"


def _cascades(name: str) -> Rows:
    columns = {
        "at most": "{at_most:.0%}",
        "compared with": "{reference}",
        "rule": "{rule}",
        "difference on test": "{difference:+.4f}",
        "worst, best": "{worst:+.4f}, {best:+.4f}",
        "cost on test": "{cost:.0%}",
        "stitched": "{stitched} of {of}",
    }
    return Rows(f"cascades-{name}", columns)


def _evidence(name: str) -> dict[str, Rows]:
    """The tables of a part of evidence.py."""
    networks = {
        "network": "{what}",
        "kind": "{kind}",
        "cost, of the best reference's": "{cost:.0%}",
        "validation": "{validation:.4f}",
        "selection": "{selection:.4f}",
        "test": "{test:.4f} ({low:.4f}–{high:.4f})",
        "difference on test": "{difference:+.4f} ({difference_low:+.4f} to {difference_high:+.4f})",
        "in words": "{verdict}",
    }
    searches = {
        "algorithm": "{algorithm}",
        "seed": "{seed}",
        "evaluations": "{evaluations:,}",
        "of the images": "{images:.0%}",
        "hypervolume on validation": "{hypervolume:.4f}",
    }
    adds = {
        "chosen from": "{with}",
        "members": "{members}",
        "hypervolume on test": "{hypervolume:.4f} ({low:.4f}–{high:.4f})",
        "gain": "{gain:+.4f} ({gain_low:+.4f} to {gain_high:+.4f})",
    }
    return {name: Rows(name, networks), f"{name}-search": Rows(f"{name}-search", searches)} | {
        f"{name}-adds": Rows(f"{name}-adds", adds)
    }


GROUPS = {
    "time of one alone over the plain forward of its module": "{alone:.2f}",
    "saved, random initial population, multiply-adds and time": "{first_cost:.2f}×, {first_time:.2f}×",
    "saved, consecutive requests of NSGA-II, median of all groups": (
        "{requests_median:.2f}× ({requests_least:.2f}–{requests_most:.2f})"
    ),
    "some of these timed, multiply-adds and time": "{requests_cost:.2f}×, {requests_time:.2f}×",
    "saved, consecutive evaluations of NSGA-II, median of all groups": (
        "{evaluations_median:.2f}× ({evaluations_least:.2f}–{evaluations_most:.2f})"
    ),
    "some of those timed, multiply-adds and time": "{evaluations_cost:.2f}×, {evaluations_time:.2f}×",
}

TABLES: dict[str, Rows | Facts | Crossed] = {
    "supernet": Facts(
        "supernet",
        {
            "matches, and the upper bound": "{matches}, {bound}",
            "time to find them": "{matching_ms:.1f} ms",
            "import of both, verified on two batch sizes, and build": "{import_s:.1f} s + {build_s:.1f} s",
            "largest fraction of each network without a match": "{gap[0]:.3f} and {gap[1]:.3f} of its multiply-adds",
            "the same, matched as early as possible": "{gap_early[0]:.3f} and {gap_early[1]:.3f}",
            "`active`, `key` and `cost` of a genotype half of whose variables are 1": "{selection_ms:.2f} ms",
            "forward of the all-zero genotype's module over the original, batch 1 and 8": (
                "{forward_1:.2f}×, {forward_8:.2f}×"
            ),
        },
    ),
    "fitting-cifar10": Crossed("fitting-cifar10", "{method}", "k = {k}", "{accuracy:.3f} ({gain:+.3f} ± {error:.3f})"),
    "fitting-imagenet": Crossed(
        "fitting-imagenet", "{method}", "k = {k}", "{accuracy:.3f} ({gain:+.3f} ± {error:.3f})"
    ),
    "fitting-small": Crossed(
        "fitting-small",
        "{between}, k = {k}",
        "{degree}",
        "{accuracy:.3f} ({gain:+.3f} ± {error:.3f})",
        names={"0.5": "degree 0.5", "1": "degree 1", "None": "default"},
    ),
    "search-stitching": Crossed(
        "search-stitching",
        "{form}",
        "{budget:,} evaluations",
        "{median:.1f} ({worst:.1f}), {not_worse} of {instances}",
    ),
    "search-digits": Crossed(
        "search-digits",
        "{form}",
        "{budget:,} evaluations",
        "{hypervolume:.4f}, {better} of {instances}, {images:,} images",
    ),
    "search-pending": Crossed("search-pending", "{form}", "{budget:,} evaluations", "{median:.1f} ({worst:.1f})"),
    "search-fronts": Rows(
        "search-fronts",
        {
            "problem": "{problem}",
            "algorithm": "{algorithm}, n = {n}",
            "whole front": "{reached}",
            "median evaluations": "{median}",
        },
    ),
    "search-clock": Rows(
        "search-clock",
        {
            "algorithm": "{algorithm}",
            "times": "{times}",
            "utilisation": "{utilisation:.2f}",
            "generational form's": "{generational:.2f}",
            "speed-up over it": "{speed_up:.2f}",
            "evaluations over those with one worker": "{over_one:.2f}",
        },
    ),
    "search-workers": Rows(
        "search-workers",
        {
            "algorithm": "{algorithm}",
            "variables": "{variables}",
            "own time per evaluation": "{own_ms:.1f} ms",
            "per request": "{request_ms:.1f} ms",
            "utilisation of 90 and of 1,000 workers": "{utilisation_90:.3f}, {utilisation_1000:.3f}",
        },
    ),
    "search-workers-stopping": Rows(
        "search-workers-stopping",
        {
            "workers": "{workers:,}",
            "own time per evaluation": "{own_ms:.1f} ms",
            "of the images": "{images:.0%}",
            "utilisation": "{utilisation:.3f}",
        },
    ),
    **{name: Facts(name, GROUPS) for name in ("engine-cifar10", "engine-imagenet")},
    "engine-memory": Rows(
        "engine-memory",
        {
            "MiB allowed": "{allowed:,}",
            "groups": "{groups:.0f}",
            "planned": "{planned:,.0f}",
            "measured": "{grown:,.0f}",
        },
    ),
    "engine-stopping": Facts(
        "engine-stopping",
        {
            "images, of those that all evaluations in full would take": "{fraction:.2f}",
            "of these for the first population, for others in full, for what stopped": (
                "{first:.2f}, {others_in_full:.2f}, {stopped:.2f}"
            ),
            "images beyond the first population": "{fraction_beyond:.2f}",
            "worker's time over that in full, and beyond the first population": "{time:.2f}, {time_beyond:.2f}",
            "evaluations that stopped": "{bounded}",
            "hypervolume on validation": "{hypervolume:.4f}",
        },
    ),
    "engine-held": Rows(
        "engine-held",
        {
            "seed": "{seed}",
            "validation images": "{images:,}",
            "evaluations": "{evaluations:,}",
            "hypervolume on test of what is chosen on selection": "{hypervolume:.4f}",
        },
    ),
    "cascades-cifar10": _cascades("cifar10"),
    "cascades-pair": _cascades("pair"),
    "cascades-three": _cascades("three"),
    "choosing-cifar10": Rows(
        "choosing-cifar10",
        {
            "seed": "{seed}",
            "networks found": "{found}",
            "recommended": "{recommended}",
            "cost, of the best reference's": "{cost:.0%}",
            "difference on test": "{difference:+.5f}",
            "in standard errors": "{errors:+.2f}",
            "p, McNemar": "{p_value:.2f}",
        },
    ),
    "choosing-digits": Rows(
        "choosing-digits",
        {
            "training seed": "{seed}",
            "cost on test, of the ensemble's": "{cost:.1%}",
            "difference on test": "{difference:+.4f}",
            "p, McNemar": "{p_value:.2f}",
        },
    ),
    "evidence-compute": Rows(
        "evidence-compute", {"problem": "{problem}", "evaluations": "{evaluations}", "computation": "{share:.4f}"}
    ),
    **{
        name: table
        for part in ("cifar10-500", "cifar10", "cifar10-3000", "imagenet", "three")
        for name, table in _evidence(f"evidence-{part}").items()
    },
    "readme": Rows(
        "evidence-cifar10",
        {
            "": "{headline}",
            "multiply-adds, of the ensemble's": "{cost:.0%}",
            "accuracy on test": "{test:.3f} ({low:.3f}–{high:.3f})",
            "difference from the ensemble": "{difference:+.4f} ({difference_low:+.4f} to {difference_high:+.4f})",
        },
        only="headline",
    ),
    "families": Facts(
        "families",
        {
            "networks": "{networks}",
            "to select a network of the module, the first time": "{first_ms:.0f} ms ({most_ms:.0f} ms at most)",
            "later": "{again_us:.0f} µs; no weight is copied",
            "forward over that of the network's own module": "{forward_least:.2f}–{forward_most:.2f}",
        },
    ),
    "fragments": Rows(
        "fragments",
        {
            "": "{what}",
            "fragments": _route,
            "multiply-adds": "{cost:,}",
            "validation": "{validation:.3f}",
            "test": "{test:.3f}",
        },
    ),
    "choosing-simulation": Crossed(
        "choosing-simulation", "{rule}", "{range}", "{chosen:.0%}, {worse:.0%}", heading="rule"
    ),
    "journals-resume": Rows(
        "journals-resume",
        {
            "algorithm": "{algorithm}",
            "evaluations": "{evaluations:,}",
            "to search": "{search_s:.0f} s",
            "to go on from its journal": "{resume_s:.0f} s",
            "peak memory": "{peak_mib:,.0f} MiB",
            "journal": "{journal_mib:.0f} MiB",
        },
    ),
    "journals-report": Facts(
        "journals-report",
        {
            "evaluations": "{evaluations:,}",
            "to read the journal, its front and its hypervolumes": "{read_s:.0f} s, {read_mib:,.0f} MiB at most",
            "to read it and write a report": "{report_s:.0f} s, {report_mib:,.0f} MiB at most",
            "the page": "{page_mib:.1f} MiB",
        },
    ),
    "cluster-overhead": Facts(
        "cluster-overhead",
        {
            "ms per evaluation that does nothing, journal included, groups of 8": "{grouped_ms:.2f}",
            "the same one by one": "{ungrouped_ms:.2f}",
            "a bare task of Dask; the algorithm alone": "{task_ms:.2f}; {alone_ms:.2f}",
            "bytes per evaluation on the loopback, 455 variables": "{bytes:,.0f}",
        },
    ),
    "cluster-two-workers": Facts(
        "cluster-two-workers",
        {
            "two workers over one": "{speed_up:.2f} ({one_s:.1f} s, {two_s:.1f} s)",
            "two independent processes over one": "{independent:.2f}",
        },
    ),
    "cluster-simulated": Rows(
        "cluster-simulated",
        {
            "workers": "{workers:,}",
            "n": "{n:,}",
            "scheduler's time": "{overhead_ms:g} ms",
            "utilisation": "{utilisation:.3f}",
        },
    ),
}


def rendered(name: str, folder: pathlib.Path = DATA) -> str:
    """A table as Markdown, with the command that measured it and when."""
    made = TABLES[name]
    document = read(made.data, folder)
    head, *body = made.lines(document["rows"])
    lines = [head, ["---"] * len(head), *body]
    text = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    return f"{text}\n\n`{document['command']}`, {document['date']}\n"


def written(page: str) -> str:
    """A page with its tables as they follow from the data."""
    return BLOCK.sub(lambda block: f"{block[1]}{rendered(block[2])}{block[4]}", page)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a table is not up to date")
    check, stale = parser.parse_args().check, []
    for path in PAGES:
        page = path.read_text(encoding="utf-8")
        new = written(page)
        if new != page:
            stale.append(str(path.relative_to(ROOT)))
            if not check:
                path.write_text(new, encoding="utf-8")
    print(f"{'differ from the data' if check else 'written'}: {', '.join(stale) or 'none'}")
    sys.exit(bool(check and stale))


if __name__ == "__main__":
    main()
