"""A document as a page: one file of HTML that holds its data, style and scripts, and loads nothing."""

import base64
import hashlib
import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

_SCRIPTS = ("dom", "data", "chart", "front", "table", "drawing", "pins", "curves", "live", "main")
"""Files that make up the script, in this order: the last one begins."""


def page(document: Mapping[str, Any]) -> str:
    """The page of a document. Names in it are data: they get to the page as JSON, and into elements as text.

    The page may run its own script, known by its digest, and nothing else. It may load nothing; a page that is served
    (`document["live"]`) may ask its own server for data."""
    style, script = _read("page.css"), _script()
    own = f"script-src {_digest(script)}; style-src {_digest(style)}"
    policy = f"default-src 'none'; {own}; base-uri 'none'; form-action 'none'"
    if document.get("live"):
        policy += "; connect-src 'self'"
    parts = {"policy": policy, "style": style, "document": escaped(document), "script": script}
    html = ""
    for piece in _read("page.html").split("<!-- "):
        name, end, rest = piece.partition(" -->")
        html += parts[name] + rest if end else piece
    return html


def escaped(document: Any) -> str:
    """JSON that can stand in a script element: no character in it can end the element or begin another."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


@cache
def _script() -> str:
    return '"use strict";\n(() => {\n' + "\n".join(_read(f"{name}.js") for name in _SCRIPTS) + "})();\n"


@cache
def _read(name: str) -> str:
    return files(__package__).joinpath("static", name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
