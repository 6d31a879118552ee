"""The progress of long work: a bar on a terminal, else a line now and then."""

import sys
import time
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, ClassVar
from weakref import WeakSet

from tqdm import tqdm

PAUSE = 10.0
"""Seconds between two lines."""

FEW = 5
"""This many have to be done before the time that is left is estimated from them."""


class Progress:
    """On standard error.

    :param total: how many there are to do; None if that is not known. It grows if more are done.
    :param unit: what is counted, in the singular: "image".
    :param shown: False shows nothing, True a bar, None a bar on a terminal and lines elsewhere.
    :param delay: seconds before anything is shown, for work that is only worth showing if it takes long. Inside
        something else that is shown it shows nothing: there is one bar at a time.
    """

    _shown: ClassVar[WeakSet["Progress"]] = WeakSet()  # and not at its end

    def __init__(self, total: int | None, title: str, unit: str, shown: bool | None = None, *, delay: float = 0.0):
        hidden = shown is False or (delay > 0 and bool(Progress._shown))
        self._lines = not hidden and shown is None and not sys.stderr.isatty()
        bar_format = "{desc}" if total is None else "{desc}  {bar:20}"
        disable = hidden or self._lines
        self._bar = tqdm(total=total, bar_format=bar_format, disable=disable, delay=delay, leave=not delay)
        self._total, self._title, self._unit = total, title, unit
        self._done, self._at_once, self._said, self._note = 0, 0, -1, ""
        self._begun = time.monotonic()
        self._next = self._begun + delay
        if not hidden:
            Progress._shown.add(self)
        self.update(0)

    def update(self, number: int, *, at_once: bool = False) -> None:
        """Add this many that are done; `at_once` if they took no time, such as those read from a journal."""
        self._done += number
        if at_once:
            self._at_once, self._begun = self._done, time.monotonic()
        if self._total is not None and self._done >= self._total:
            self._total = self._bar.total = self._done
            Progress._shown.discard(self)
        self._bar.set_description_str(str(self), refresh=not self._done and self._bar.leave)
        self._bar.update(number)
        if self._lines and time.monotonic() >= self._next:
            self._print()

    def note(self, **facts: str) -> None:
        """What to say beside it."""
        self._note = "".join(f", {name} {value}" for name, value in facts.items())

    def is_due(self) -> bool:
        """Whether it is time to show something new, which may take time to compute."""
        if self._lines:
            return time.monotonic() >= self._next
        return time.time() - self._bar.last_print_t >= self._bar.mininterval

    def __str__(self) -> str:
        of = "" if self._total is None else f" of {self._total:,}"
        counted = self._unit if (self._total or self._done) == 1 else _plural(self._unit)
        return f"{self._title}: {self._done:,}{of} {counted}{self._pace()}{self._note}"

    def _pace(self) -> str:
        """How long one takes, and all that are left; nothing where too few are done to estimate it."""
        done, seconds = self._done - self._at_once, time.monotonic() - self._begun
        if done < 2 or seconds <= 0:
            return ""
        each = seconds / done
        often = f"{1 / each:.1f}" if each > 0.1 else f"{1 / each:,.0f}"
        pace = f", {each:.1f} s per {self._unit}" if each >= 1 else f", {often} {_plural(self._unit)} per second"
        if self._total is None or done < FEW or self._done >= self._total:
            return pace
        return f"{pace}, {tqdm.format_interval(round(each * (self._total - self._done)))} left"

    def _print(self) -> None:
        self._said, self._next = self._done, time.monotonic() + PAUSE
        print(str(self), file=sys.stderr, flush=True)

    def close(self) -> None:
        """Nothing more is done."""
        Progress._shown.discard(self)
        self._bar.close()

    def __enter__(self) -> "Progress":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        if self._lines and kind is None and 0 <= self._said < self._done:
            self._print()


def _plural(unit: str) -> str:
    return "batches" if unit == "batch" else f"{unit}s"


def shown(
    items: Iterable[Any], total: int | None, title: str, unit: str, show: bool | None = None, *, delay: float = 0.0
) -> Iterator[Any]:
    """The items, with a progress bar; the options are those of `Progress`."""
    with Progress(total, title, unit, show, delay=delay) as progress:
        for item in items:
            yield item
            progress.update(1)
