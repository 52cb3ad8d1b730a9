"""The self-contained HTML page of a run's dialogues (see `sweet.view.html`): an overview, a table, and the dialogues.

The page holds the table's rows and the dialogues as compressed data (`sweet.view.packed`), and its script
(`page.js`) opens what is looked at: the rows at once, of which only the visible ones are drawn, and a chunk of
dialogues when one of them is opened or searched. So a page of thousands of dialogues stays small and opens quickly.
The rows are text and are drawn as text; a dialogue is HTML that `sweet.view.transcript` has escaped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from sweet.view.dialogue_view import DisplayOptions
from sweet.view.html import head, line, resource, write
from sweet.view.html_screenshots import HtmlScreenshots
from sweet.view.packed import packed
from sweet.view.records import Record, Summary
from sweet.view.text import printable_line
from sweet.view.transcript import trajectory

TOGETHER = 20
"""Dialogues in one chunk: more would hardly be smaller, but slower to open."""
PICTURED = 1
"""The same of dialogues with pictures, which are large and compressed already."""

COLUMNS = (
    ("id", "dialogue"),
    ("request", "request"),
    ("outcome", "success"),
    ("reward", "reward"),
    ("tests", "tests"),
    ("turns", "turns"),
    ("tokens", "tokens"),
    ("seconds", "seconds"),
    ("fault", "fault"),
    ("task", "task"),
)
"""Keys and titles of the columns. The script omits one without values."""

NEEDED = "The table and the dialogues need JavaScript and a browser of 2023 or newer; nothing is loaded from elsewhere."


def write_page(
    path: Path,
    title: str,
    shown: Sequence[Summary],
    record: Callable[[Summary], Record],
    options: DisplayOptions,
    *,
    overview: str = "",
    pictures: HtmlScreenshots | None = None,
) -> None:
    """Write the page to `path`, which is replaced only after the page is complete."""
    write(path, page(title, shown, record, options, overview=overview, pictures=pictures))


def page(
    title: str,
    shown: Sequence[Summary],
    record: Callable[[Summary], Record],
    options: DisplayOptions,
    *,
    overview: str = "",
    pictures: HtmlScreenshots | None = None,
) -> Iterator[str]:
    """Yield the page in parts.

    Args:
        record: returns the whole dialogue of a row.
        overview: HTML above the table.
        pictures: the pictures of the page, if the dialogues are about pages.
    """
    script = resource("page.js")
    together = TOGETHER if pictures is None else PICTURED
    yield head(title, resource("transcript.css", "page.css"), script=script, pictures=pictures is not None)
    yield f"<header>\n<h1>{line(title)}</h1>\n{overview}</header>\n{_FORM}{_TABLE}"
    yield packed("rows", {"together": together, "columns": COLUMNS, "rows": list(map(_row, shown))})
    # Before the dialogues: the table is drawn while they are still being read.
    yield f"<script>{script}</script>\n"
    for number, start in enumerate(range(0, len(shown), together)):
        some = shown[start : start + together]
        yield packed(
            f"chunk{number}", [trajectory(summary, record(summary), options, pictures=pictures) for summary in some]
        )
    yield "</body>\n</html>\n"


def _row(summary: Summary) -> list[Any]:
    """Return the values of a row in the order of COLUMNS, its texts in printable form."""
    tests = f"{summary.passed}/{summary.total}" if summary.total else ""
    return [
        printable_line(summary.id),
        printable_line(summary.request),
        printable_line(summary.outcome or summary.ended),
        summary.reward,
        tests,
        summary.turns,
        summary.tokens,
        None if summary.seconds is None else round(summary.seconds, 1),
        printable_line(summary.fault),
        printable_line(summary.task_id),
    ]


_FORM = (
    '<form id="filters" role="search">\n'
    '<label>Search <input id="search" type="search" autocomplete="off" '
    'title="words in the request, the dialogue, its tests and its candidates; &quot;a phrase&quot;"></label>\n'
    '<label>Success <select id="outcome"><option value="">any</option></select></label>\n'
    '<label>Reward from <input id="least" type="number" step="any"></label>\n'
    '<label>to <input id="most" type="number" step="any"></label>\n'
    '<label>Turns from <input id="turns" type="number" min="0" step="1"></label>\n'
    '<label>Task <input id="task" type="search" autocomplete="off"></label>\n'
    '<label><input id="fault" type="checkbox"> only faults</label>\n'
    '<button type="reset">clear</button>\n'
    '<output id="count" for="search outcome least most turns task fault"></output>\n</form>\n'
)

_TABLE = (
    '<main>\n<div id="list" tabindex="0" aria-label="dialogues"><table id="table"><thead><tr></tr></thead>'
    "<tbody></tbody></table></div>\n"
    '<section id="reader" aria-label="dialogue" hidden>\n<nav><button id="before" type="button">previous</button>\n'
    '<button id="after" type="button">next</button>\n<button id="unfold" type="button">open all parts</button>\n'
    '<button id="close" type="button">close</button></nav>\n<div id="dialogue"></div>\n</section>\n</main>\n'
    f'<noscript><p class="facts">{NEEDED}</p></noscript>\n<p id="problem" class="facts" role="alert" hidden></p>\n'
)
