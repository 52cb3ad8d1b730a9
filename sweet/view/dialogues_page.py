"""The self-contained HTML page of a run's trajectories (see `sweet.view.html`).

It is written one trajectory at a time. Without its script the page is readable, but its filters do nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from sweet.view.dialogue_view import DisplayOptions
from sweet.view.html import head, line, resource, write
from sweet.view.html_screenshots import HtmlScreenshots
from sweet.view.records import Record, Summary
from sweet.view.transcript import trajectory


def write_page(
    path: Path,
    title: str,
    records: Iterable[tuple[Summary, Record]],
    options: DisplayOptions,
    *,
    pictures: HtmlScreenshots | None = None,
) -> None:
    """Write the page to `path`, which is replaced only after the page is complete."""
    write(path, page(title, records, options, pictures=pictures))


def page(
    title: str,
    records: Iterable[tuple[Summary, Record]],
    options: DisplayOptions,
    *,
    pictures: HtmlScreenshots | None = None,
) -> Iterator[str]:
    """Yield the page in parts. With `pictures` the dialogues are about pages, whose screenshots are embedded."""
    script = resource("page.js")
    yield head(title, resource("transcript.css", "page.css"), script=script, pictures=pictures is not None)
    yield (
        f"<header>\n<h1>{line(title)}</h1>\n"
        '<form id="filters" role="search">\n'
        '<label>Search <input id="search" type="search" autocomplete="off"></label>\n'
        '<label>Outcome <select id="outcome"><option value="">any</option></select></label>\n'
        '<label>Reward below <input id="below" type="number" step="any"></label>\n'
        '<label>Reward above <input id="above" type="number" step="any"></label>\n'
        '<output id="count" for="search outcome below above"></output>\n</form>\n</header>\n<main>\n'
    )
    for summary, record in records:
        yield trajectory(summary, record, options, pictures=pictures)
    yield f"</main>\n<script>{script}</script>\n</body>\n</html>\n"
