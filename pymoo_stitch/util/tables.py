"""Tables for terminals."""

from collections.abc import Sequence


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table whose first row is its head: columns as wide as they need, numbers to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    right = [all(_is_number(row[i]) for row in rows[1:]) for i in range(len(widths))]
    lines = [
        "  ".join(cell.rjust(w) if r else cell.ljust(w) for cell, w, r in zip(row, widths, right, strict=True)).rstrip()
        for row in rows
    ]
    return [lines[0], "─" * max(map(len, lines)), *lines[1:]]


def percent(fraction: float) -> str:
    """0.354 as 35 %."""
    return f"{100 * fraction:.0f} %"


def _is_number(cell: str) -> bool:
    return not cell or (cell[0].isdigit() and not set(cell) - set("0123456789,.% e+-–"))
