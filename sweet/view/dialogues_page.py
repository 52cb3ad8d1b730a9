"""One HTML page of a run's trajectories, complete in itself (see `sweet.view.html`).

It is written a trajectory at a time; without the script it is still readable, only the filters do nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from sweet.view.dialogue_view import Manner
from sweet.view.html import head, line, resource, write
from sweet.view.html_screenshots import Figures
from sweet.view.records import Record, Summary
from sweet.view.transcript import trajectory


def write_page(
    path: Path,
    title: str,
    records: Iterable[tuple[Summary, Record]],
    manner: Manner,
    *,
    figures: Figures | None = None,
) -> None:
    """Write the page to `path`, which is replaced only once all of it is written."""
    write(path, page(title, records, manner, figures=figures))


def page(
    title: str, records: Iterable[tuple[Summary, Record]], manner: Manner, *, figures: Figures | None = None
) -> Iterator[str]:
    """The page in parts. With `figures` the dialogues are about pages, whose screenshots stand in it."""
    script = resource("page.js")
    yield head(title, resource("transcript.css", "page.css"), script=script, pictures=figures is not None)
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
        yield trajectory(summary, record, manner, figures=figures)
    yield f"</main>\n<script>{script}</script>\n</body>\n</html>\n"
