"""HTML pieces of the reports: tables, collapsed parts, formatted values.

All content is escaped here, unless a docstring says that it is HTML already.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime

from sweet.json_value import JsonValue
from sweet.units import format_duration
from sweet.view.html import line, text

MAX_LENGTH = 400
"""Most characters of a value that are shown."""


def section(name: str, title: str, content: str) -> str:
    """Return a part of the report; empty without content. `title` and `content` are HTML already."""
    return f'<section class="part" id="{name}">\n<h2>{title}</h2>\n{content}</section>\n' if content else ""


def folded(title: str, content: str) -> str:
    """Return a collapsed part; empty without content. `content` is HTML already."""
    return f"<details><summary>{line(title)}</summary>\n{content}</details>\n" if content else ""


def table(header: Sequence[str], rows: Iterable[Sequence[str]], align: str = "") -> str:
    """Return a table whose cells are HTML already; empty without rows.

    Args:
        header: any text.
        align: one letter per column: `l` for text, `r` for numbers; text by default.
    """
    kinds = [' class="r"' if letter == "r" else "" for letter in align.ljust(len(header), "l")]
    head = "".join(f'<th scope="col"{kind}>{line(name)}</th>' for name, kind in zip(header, kinds, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{kind}>{cell}</td>" for cell, kind in zip(row, kinds, strict=True)) + "</tr>\n"
        for row in rows
    )
    return (
        f'<div class="wide"><table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>\n'
        if body
        else ""
    )


def charts(drawn: Iterable[str]) -> str:
    """Arrange charts side by side, as many as fit. They are HTML already."""
    content = "".join(drawn)
    return f'<div class="charts">\n{content}</div>\n' if content else ""


def preformatted(content: str) -> str:
    return f"<pre>{text(content)}</pre>\n"


def note(content: str) -> str:
    return f'<p class="note">{line(content)}</p>\n'


def value(found: JsonValue) -> str:
    """Return a value of a manifest, truncated for a table."""
    shown = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
    return cut(shown)


def cut(shown: str) -> str:
    return shown if len(shown) <= MAX_LENGTH else f"{shown[:MAX_LENGTH]}… ({len(shown):,} characters)"


def moment(when: datetime) -> str:
    return f"{when:%Y-%m-%d %H:%M}"


def duration(seconds: float | None) -> str:
    return "–" if seconds is None else format_duration(seconds)
