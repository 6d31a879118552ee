"""A run on disk: what was searched, and every evaluation in the order in which the algorithm saw it, in one SQLite
file."""

import json
import math
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

_APPLICATION, _VERSION = (
    0x50535431,
    1,
)  # in the file's header, so that no other program's database is taken for a journal

_OWN = ("F", "G", "H", "failed", "worker", "begun", "ended")  # fields of a result that have columns of their own

_NOTES = "search"  # the name in `more` of what the algorithm notes


class JournalError(RuntimeError):
    """A journal that cannot be written or read, or that belongs to another run. What was committed to it is there."""


@dataclass(frozen=True)
class Row:
    """One evaluation: the number of the request that it answers, and all that came of it.

    :param notes: what the algorithm notes beside it, as JSON takes it; `Asynchronous.notes`.
    """

    request: int
    x: np.ndarray
    key: str
    result: Mapping[str, Any]
    threshold: float | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)


class Journal:
    """A SQLite file with two tables, to be read by anyone at any time, also while the run goes on:

    - `run`: name and value (JSON) of what was searched, by what, and with which versions of which libraries;
    - `evaluations`: `sequence`, `request`, `genotype`, `key`, the objectives `F1`, `F2`, …, constraints `G1`, … and
      `H1`, …, `failed`, the `threshold` in force, `worker`, `begun` and `ended` (seconds since 1970), and `more`:
      whatever else the problem said, as JSON (`more ->> 'accuracy'`), and under `search` what the algorithm noted.

    Rows are committed before the algorithm sees them. Nothing in the file is ever executed.

    :param create: whether it is to be written, and created if it does not exist. Otherwise it is only read.
    """

    timeout = 10.0  # seconds to wait while another process holds the file
    _db: sqlite3.Connection | None = None

    def __init__(self, path: str | os.PathLike, *, create: bool = True):
        self.path, self._writes = Path(path), create
        if not create and not self.path.is_file():
            raise FileNotFoundError(f"there is no journal {self.path}.")
        if not self.path.parent.is_dir():
            raise FileNotFoundError(
                f"the journal {self.path} cannot be created: there is no folder {self.path.parent}."
            )
        if self.path.is_dir():
            raise IsADirectoryError(f"the journal {self.path} cannot be created: it is a folder. Name a file in it.")
        with self._errors():
            # Whoever drops the last reference closes the file, from whatever thread.
            self._db = sqlite3.connect(
                self.path if create else self._read_only(),
                uri=not create,
                isolation_level=None,
                timeout=self.timeout,
                check_same_thread=False,
            )
            (application,), (version,) = (
                self._db.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version")
            )
            tables = [name for (name,) in self._db.execute("SELECT name FROM sqlite_master")]
            if tables and application != _APPLICATION:
                raise JournalError(f"{self.path} is a database of another program, not a journal. Choose another file.")
            if tables and version != _VERSION:
                raise JournalError(f"{self.path} is a journal of version {version}; this program reads {_VERSION}.")
            if create:
                self._db.execute("PRAGMA journal_mode = WAL")
                self._db.execute("PRAGMA synchronous = NORMAL")
            self.run = dict(self._read_run()) if "run" in tables else None

    def _read_only(self) -> str:
        """While another process writes, there is a `-wal` file beside it; without one, the journal can be read from a
        read-only folder."""
        is_written = self.path.with_name(f"{self.path.name}-wal").exists()
        return f"{self.path.absolute().as_uri()}?{'mode=ro' if is_written else 'immutable=1'}"

    def begin(self, run: Mapping[str, Any], n_obj: int, n_ieq_constr: int, n_eq_constr: int) -> None:
        """Write what this run is to a new file."""
        counts = {"F": n_obj, "G": n_ieq_constr, "H": n_eq_constr}
        values = "".join(f"{name}{i + 1} REAL, " for name, count in counts.items() for i in range(count))
        with self._transaction() as db:
            db.execute(f"PRAGMA application_id = {_APPLICATION}")
            db.execute(f"PRAGMA user_version = {_VERSION}")
            db.execute("CREATE TABLE run (name TEXT PRIMARY KEY, value TEXT NOT NULL)")
            db.execute(
                "CREATE TABLE evaluations (sequence INTEGER PRIMARY KEY, request INTEGER NOT NULL UNIQUE, genotype "
                f"TEXT NOT NULL, key TEXT NOT NULL, {values}failed TEXT NOT NULL, threshold REAL, worker TEXT, begun "
                "REAL, ended REAL, more TEXT NOT NULL)"
            )
            written = {name: json.dumps(value) for name, value in run.items()}
            db.executemany("INSERT INTO run VALUES (?, ?)", written.items())
        self.run = dict(self._read_run())

    def append(self, first: int, rows: Sequence[Row]) -> None:
        """Commit rows, which get the sequence numbers from `first` on."""
        with self._transaction() as db:
            for number, row in enumerate(rows, first):
                try:
                    values = (number, *_write(row))
                    db.execute(f"INSERT INTO evaluations VALUES ({', '.join('?' * len(values))})", values)
                except sqlite3.IntegrityError as error:
                    raise JournalError(
                        f"{self.path} has evaluation {number} already: another process is writing to it. End one of "
                        "them; the same run started again goes on where they were."
                    ) from error
                except (TypeError, ValueError, sqlite3.InterfaceError, sqlite3.ProgrammingError) as error:
                    raise JournalError(f"evaluation {number} cannot be written to {self.path}: {error}") from error

    def rows(self, first: int = 0) -> Iterator[Row]:
        """Every evaluation from this one on, in order."""
        if self.run is None:
            return
        with self._errors():
            cursor = self._db.execute("SELECT * FROM evaluations WHERE sequence >= ? ORDER BY sequence", (first,))
            names = [column[0] for column in cursor.description]
            for number, values in enumerate(cursor, first):
                row = dict(zip(names, values, strict=True))
                if row["sequence"] != number:
                    raise JournalError(f"{self.path} lacks evaluation {number}: it was altered.")
                try:
                    yield _read(row)
                except (ValueError, TypeError, KeyError) as error:
                    raise JournalError(
                        f"{self.path} is damaged: evaluation {number} cannot be read: {error}"
                    ) from error

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    def __del__(self) -> None:
        self.close()

    def _read_run(self) -> Iterator[tuple[str, Any]]:
        for name, value in self._db.execute("SELECT name, value FROM run"):
            try:
                yield name, json.loads(value)
            except (ValueError, TypeError) as error:
                raise JournalError(f"{self.path} is damaged: {name} of its run cannot be read: {error}") from error

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        if self._db is None:
            raise JournalError(f"the journal {self.path} is closed.")
        with self._errors():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn errors of SQLite into messages with a remedy."""
        try:
            yield
        except sqlite3.Error as error:
            text = str(error)
            remedies = {
                "full": "There is no space left on the disk. Free some",
                "disk I/O": "The disk cannot be written to. Free some space, or fix the disk",
                "readonly": "There is no permission to write to it. Change its permissions",
                "unable to open": "There is no permission to write there. Choose another folder",
                "locked": "Another process has locked it. Stop that process",
                "malformed": "It is damaged. Restore a copy, or choose another file",
            }
            if "not a database" in text:
                raise JournalError(f"{self.path} is not a journal, or is damaged. Name another file.") from error
            remedy = next((advice for sign, advice in remedies.items() if sign in text), "Fix this")
            after = (
                f"{remedy}, and start the same run again: it goes on after the last evaluation that was committed."
                if self._writes
                else f"{remedy}."
            )
            raise JournalError(f"the journal {self.path} cannot be used: {text}. {after}") from error


def write_genotype(x: np.ndarray) -> str:
    """A boolean genotype as 0s and 1s, any other as JSON."""
    x = np.asarray(x)
    return (x.view(np.uint8) + ord("0")).tobytes().decode() if x.dtype == bool else json.dumps(x.tolist())


def _read_genotype(text: str) -> np.ndarray:
    if text.startswith("["):
        return np.array(json.loads(text))
    if set(text) - {"0", "1"}:
        raise ValueError(f"its genotype is {text!r}")
    return np.frombuffer(text.encode(), np.uint8) == ord("1")


def _write(row: Row) -> tuple[Any, ...]:
    result = row.result
    values = [float(value) for name in ("F", "G", "H") for value in result[name]]
    more = {name: _plain(value) for name, value in result.items() if name not in _OWN}
    if row.notes:
        more[_NOTES] = row.notes
    others = result["failed"], row.threshold, result.get("worker"), result.get("begun"), result.get("ended")
    return row.request, write_genotype(row.x), row.key, *values, *others, json.dumps(more)


def _read(row: dict[str, Any]) -> Row:
    result: dict[str, Any] = {
        name: np.array([value for column, value in row.items() if column[0] == name and column[1:].isdecimal()], float)
        for name in ("F", "G", "H")
    }
    result |= {name: row[name] for name in _OWN[3:] if row[name] is not None}
    more = json.loads(row["more"])
    notes = more.pop(_NOTES, {})
    result |= {name: _unplain(value) for name, value in more.items()}
    return Row(row["request"], _read_genotype(row["genotype"]), row["key"], result, row["threshold"], notes)


def _plain(value: Any) -> Any:
    """What JSON can hold; masks as 0s and 1s, other arrays as lists with their type, and what is not finite as a
    string."""
    if isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype == bool:
        return {"mask": write_genotype(value)}
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufU":
        return {"array": _finite(value.tolist()), "dtype": str(value.dtype)}
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, float) and not math.isfinite(plain):
        return {"number": str(plain)}
    if plain is None or isinstance(plain, str | int | float):
        return plain
    raise TypeError(
        f"a journal holds numbers, strings and arrays of them, but the problem returned a {type(value).__name__}."
    )


def _finite(values: Any) -> Any:
    if isinstance(values, list):
        return [_finite(value) for value in values]
    return str(values) if isinstance(values, float) and not math.isfinite(values) else values


def _unplain(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if "mask" in value:
        return _read_genotype(value["mask"])
    return float(value["number"]) if "number" in value else np.array(value["array"], dtype=value["dtype"])


def covered(intervals: Sequence[tuple[float, float]]) -> np.ndarray:
    """For each interval, how much of the time before its end the intervals so far cover together."""
    order = sorted(range(len(intervals)), key=lambda i: intervals[i][0])
    merged: list[list[float]] = []
    for i in order:
        begin, end = intervals[i]
        if merged and begin <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([begin, end])
    starts = np.array([begin for begin, _ in merged])
    lengths = np.array([end - begin for begin, end in merged])
    before = np.concatenate([[0.0], np.cumsum(lengths)])
    ends = np.array([end for _, end in intervals])
    block = np.searchsorted(starts, ends, side="right") - 1
    return np.maximum.accumulate(before[block] + (ends - starts[block]))
