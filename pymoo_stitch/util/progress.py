"""How far long work is: a bar on a terminal, else a line now and then."""

import sys
import time
from types import TracebackType

from tqdm import tqdm

PAUSE = 10.0
"""Seconds between two lines."""


class Progress:
    """On standard error. `shown`: False shows nothing, True a bar, None a bar on a terminal and lines elsewhere."""

    def __init__(self, total: int | None, title: str, unit: str, shown: bool | None = None):
        self._lines = shown is None and not sys.stderr.isatty()
        self._bar = tqdm(total=total, desc=title, unit=unit, disable=self._lines or shown is False)
        self._total, self._title, self._unit = total, title, unit
        self._done, self._said, self._note = 0, 0, ""
        self._next = time.monotonic()

    def update(self, number: int) -> None:
        """So many more are done."""
        self._done += number
        self._bar.update(number)
        if self._lines and time.monotonic() >= self._next:
            self._print()

    def note(self, **facts: str) -> None:
        """What to say beside it."""
        self._bar.set_postfix(facts)
        self._note = "".join(f", {name} {value}" for name, value in facts.items())

    def _print(self) -> None:
        self._said, self._next = self._done, time.monotonic() + PAUSE
        of = "" if self._total is None else f" of {self._total:,}"
        print(f"{self._title}: {self._done:,}{of}{self._unit}{self._note}", file=sys.stderr, flush=True)

    def __enter__(self) -> "Progress":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.close()
        if self._lines and kind is None and self._said < self._done:
            self._print()
