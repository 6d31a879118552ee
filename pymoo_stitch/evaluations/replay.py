"""The part of a journal that the run has not reached yet."""

from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..util.versions import versions
from .description import differences
from .journal import JournalError, Row, write_genotype


class Replay:
    """The rows of a journal, taken one after another by a run that asks for the same as the one that wrote them.

    :param rows: what was answered, in the order in which the algorithm saw it.
    :param path: of the journal.
    :param written_with: the versions of libraries that wrote it.
    """

    def __init__(
        self,
        rows: Iterable[Row] = (),
        path: Path | None = None,
        written_with: Mapping[str, str] | None = None,
    ):
        self._rows = deque(rows)
        self._results = {row.request: row.result for row in self._rows}
        self._path, self._written_with = path, written_with

    def __bool__(self) -> bool:
        return bool(self._rows)

    @property
    def next_request(self) -> int:
        """The number of the request that is answered next."""
        return self._rows[0].request

    def result(self, request: int) -> Mapping[str, Any] | None:
        """The answer to a request, if the journal has one."""
        return self._results.get(request) if self._rows else None

    def notes(self) -> list[Mapping[str, Any]]:
        """What the algorithm noted beside each of the answers that are left."""
        return [row.notes for row in self._rows]

    def take(self, request: int, x: np.ndarray) -> Mapping[str, Any]:
        """The next result, which must be that of this request, for this genotype."""
        row = self._rows[0]
        if row.request != request or write_genotype(row.x) != write_genotype(x):
            raise self.astray()
        self._rows.popleft()
        if not self._rows:
            self._results = {}
        return row.result

    def astray(self) -> JournalError:
        """The error of a run that asks for something else."""
        found = "; ".join(differences(self._written_with, versions())) or "the versions of the libraries are the same"
        return JournalError(
            f"{self._path} does not fit this run: request {self.next_request:,} was for another genotype. What is "
            f"evaluated must depend on the seed alone ({found})."
        )
