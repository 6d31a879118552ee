"""Runs in progress, served to a browser on this computer: their journals are read again and again, and nothing is
written."""

import ipaddress
import os
import socket
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import parse_qs, urlsplit

from ...evaluations import Journal, JournalError, Row
from ..runs import Run
from . import journals
from .html import escaped, page

_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

_RECENT = 200
"""How many evaluations the rate is computed from."""


class Watched:
    """Journals that are being written, as a document for a page. Only rows that are new are read."""

    def __init__(self, paths: Sequence[str | os.PathLike]):
        self.paths = [Path(path) for path in paths]
        for path in self.paths:
            if not path.is_file():
                raise FileNotFoundError(f"there is no journal {path}. Start the search first.")
        self._rows: list[list[Row]] = [[] for _ in self.paths]
        self._about: list[dict[str, Any] | None] = [None] * len(self.paths)
        self._made: tuple[str, dict[str, Any]] = "", {"runs": []}
        self._lock = Lock()
        if problems := self.document()["live"]["problems"]:
            raise ValueError(problems[0])

    def document(self, known: str = "") -> dict[str, Any]:
        """What a page shows, with a `tag` that changes when there are new rows. A request with the current tag gets
        only how far the runs are."""
        with self._lock:
            problems = [text for number in range(len(self.paths)) if (text := self._read(number))]
            tag = ".".join(f"{len(rows)}-{(about or {}).get('begun', '')}" for rows, about in self._both())
            live = self._progress() | {"problems": problems}
            if known == tag:
                return {"tag": tag, "live": live}
            if self._made[0] != tag:
                try:
                    self._made = tag, self._shown()
                except ValueError as error:  # they do not belong together
                    problems.append(str(error))
            return self._made[1] | {"tag": tag, "live": live}

    def _both(self) -> list[tuple[list[Row], dict[str, Any] | None]]:
        return list(zip(self._rows, self._about, strict=True))

    def _read(self, number: int) -> str:
        """Read what is new in a journal; what went wrong, if anything did."""
        try:
            journal = Journal(self.paths[number], create=False)
            try:
                begun = (self._about[number] or {}).get("begun")
                if begun and (journal.run or {}).get("begun") != begun:  # another run has taken its place
                    self._rows[number] = []
                self._about[number] = journal.run
                self._rows[number] += journal.rows(len(self._rows[number]))
            finally:
                journal.close()
        except (OSError, JournalError) as error:
            return str(error)
        return ""

    def _shown(self) -> dict[str, Any]:
        runs = [
            Run(path, about, tuple(rows))
            for path, (rows, about) in zip(self.paths, self._both(), strict=True)
            if about is not None and rows
        ]
        return journals.document(runs) if runs else {"runs": []}

    def _progress(self) -> dict[str, Any]:
        now = time.time()
        return {
            "time": time.strftime("%H:%M:%S"),
            "runs": [
                {"name": path.name} | _pace(rows, about or {}, now)
                for path, (rows, about) in zip(self.paths, self._both(), strict=True)
            ],
        }


def _pace(rows: Sequence[Row], about: Mapping[str, Any], now: float) -> dict[str, Any]:
    """How many are done, how many per second lately, the seconds left, and since the last was complete. What was taken
    over from other journals is done too, but does not count for the rate."""
    budget, begun = about.get("budget"), datetime.fromisoformat(about["begun"]).timestamp() if about else 0.0
    ends = sorted(end for row in rows[-_RECENT:] if (end := row.result.get("ended", -1.0)) >= begun)
    rate = (len(ends) - 1) / (now - ends[0]) if len(ends) > 1 and now > ends[0] else None
    return {
        "done": len(rows),
        "budget": budget,
        "rate": rate,
        "left": (budget - len(rows)) / rate if budget and rate and budget > len(rows) else None,
        "idle": max(0.0, now - ends[-1]) if ends else 0.0,
    }


class Server(ThreadingHTTPServer):
    """Serves the page of watched journals to requests that name this address: another name in the Host header may be a
    foreign page whose own name points here."""

    daemon_threads = True

    def __init__(self, watched: Watched, host: str = "127.0.0.1", port: int = 0):
        self.watched = watched
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Handler)
        self.host = host

    @property
    def url(self) -> str:
        name = "127.0.0.1" if self.host in ("", "0.0.0.0") else self.host
        return f"http://{f'[{name}]' if ':' in name else name}:{self.server_port}/"

    def knows(self, host_header: str) -> bool:
        try:
            parts = urlsplit(f"//{host_header}")
            name, port = parts.hostname or "", parts.port or 80
        except ValueError:
            return False
        if port != self.server_port:
            return False
        if name in ("localhost", self.host.lower()):
            return True
        try:  # an address, not a name that somebody else may have pointed here
            address = ipaddress.ip_address(name)
        except ValueError:
            return not _is_loopback(self.host) and name == socket.gethostname().lower()
        return address.is_loopback or not _is_loopback(self.host)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class _Handler(BaseHTTPRequestHandler):
    server: Server
    server_version, sys_version = "pymoo-stitch", ""
    timeout = 30

    def do_GET(self) -> None:
        if not self.server.knows(self.headers.get("Host", "")):
            return self._send(HTTPStatus.FORBIDDEN, "text/plain", f"Open {self.server.url} instead.")
        asked = urlsplit(self.path)
        if asked.path == "/":
            return self._send(HTTPStatus.OK, "text/html", page(self.server.watched.document()))
        if asked.path == "/document.json":
            known = parse_qs(asked.query).get("tag", [""])[0]
            return self._send(HTTPStatus.OK, "application/json", escaped(self.server.watched.document(known)))
        return self._send(HTTPStatus.NOT_FOUND, "text/plain", "There is only the page itself.")

    def _send(self, status: HTTPStatus, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: a page asks every two seconds."""


def serve(server: Server) -> None:
    """Until Ctrl-C."""
    try:
        server.serve_forever(poll_interval=0.2)
    except KeyboardInterrupt:
        pass
    finally:
        server.server_close()
