"""For mkdocs.yml: the examples in docstrings, from `>>>` to the next empty line, become blocks of code."""

from typing import Any

from griffe import Extension, Object


class Doctests(Extension):
    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = _fenced(obj.docstring.value)


def _fenced(text: str) -> str:
    lines, inside = [], False
    for line in [*text.splitlines(), ""]:
        if not inside and line.startswith(">>> "):
            lines.append("```pycon")
            inside = True
        elif inside and not line.strip():
            lines.append("```")
            inside = False
        lines.append(line)
    return "\n".join(lines).rstrip()
