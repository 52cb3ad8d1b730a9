"""The page of a run's dialogues (`dialogues.html.j2`): an overview, a table, and the dialogues.

The page holds the table's rows and the dialogues as compressed data, and its script (`dialogues.js`) opens what is
looked at: the rows at once, of which only the visible ones are drawn, and a chunk of dialogues when one of them is
opened or searched. So a page of thousands of dialogues stays small and opens quickly.
The rows are text and are drawn as text; a dialogue is HTML that its template has escaped.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from markupsafe import Markup

from sweet.errors import UsageError
from sweet.files import check_target
from sweet.results import evaluation_facts, pages
from sweet.results.charts import interval
from sweet.results.dialogue import HtmlScreenshots, dialogue
from sweet.results.facts import Rate
from sweet.runs.jsonl import read_jsonl
from sweet.scoring.results.evaluation import Values
from sweet.tasks.registry import task_kind
from sweet.tasks.scores import Score
from sweet.units import count
from sweet.view.dialogue_view import DisplayOptions
from sweet.view.records import Record, Records, Summary
from sweet.view.text import printable_line
from sweet.view.viewer import Viewer

TOGETHER = 20
"""Dialogues in one chunk: more would hardly be smaller, but slower to open."""
PICTURED = 1
"""The same of dialogues with pictures, which are large and compressed already."""

COLUMNS: tuple[tuple[str, str, Callable[[Summary], Any]], ...] = (
    ("id", "dialogue", lambda one: one.id),
    ("request", "request", lambda one: one.request),
    ("outcome", "success", lambda one: one.outcome or one.ended),
    ("reward", "reward", lambda one: one.reward),
    ("tests", "tests", lambda one: f"{one.passed}/{one.total}" if one.total else ""),
    ("turns", "turns", lambda one: one.turns),
    ("tokens", "tokens", lambda one: one.tokens),
    ("seconds", "seconds", lambda one: None if one.seconds is None else round(one.seconds, 1)),
    ("fault", "fault", lambda one: one.fault),
    ("task", "task", lambda one: one.task_id),
)
"""Keys, titles and values of the columns. The script omits one without values."""


def write_dialogues(path: Path, viewer: Viewer) -> tuple[int, int]:
    """Write the page of the dialogues that a viewer shows, and return their number and that of omitted pictures.

    Raises:
        UsageError: the file cannot be written.
        InputError: a score is damaged.
    """
    check_target(path)
    shown, records = viewer.shown(), viewer.records
    screenshots = viewer.a.options.screenshots
    pictures = None if screenshots is None else HtmlScreenshots(screenshots)
    rates = None if records.scores is None else rates_of(records, shown)
    page = dialogues_page(
        viewer.title(), shown, records.record, viewer.options(), rates=rates, pictures=pictures,
        total=len(records.summaries()),
    )  # fmt: skip
    pages.write(path, page)
    return len(shown), 0 if pictures is None else pictures.omitted


def dialogues_page(
    title: str,
    shown: Sequence[Summary],
    record: Callable[[Summary], Record],
    options: DisplayOptions,
    *,
    rates: Sequence[Rate] | None = None,
    pictures: HtmlScreenshots | None = None,
    total: int = 0,
) -> Iterator[str]:
    """Yield the page in parts.

    Args:
        record: returns the whole dialogue of a row.
        rates: of the dialogues; None where they have no scores.
        pictures: the pictures of the page, if the dialogues are about pages.
        total: the number of dialogues that `shown` was chosen from.
    """
    together = TOGETHER if pictures is None else PICTURED
    columns = [(key, title) for key, title, _ in COLUMNS]

    def chunks() -> Iterator[Markup]:
        for number, start in enumerate(range(0, len(shown), together)):
            some = shown[start : start + together]
            drawn = [dialogue(summary, record(summary), options, pictures=pictures) for summary in some]
            yield packed(f"chunk{number}", drawn)

    return pages.page(
        "dialogues.html.j2",
        styles=("dialogue.css", "charts.css", "dialogues.css"),
        script="dialogues.js",
        pictures=pictures is not None,
        title=title,
        rates=rates,
        facts=list(_facts(shown, total)),
        settings=options.settings,
        rows=packed("rows", {"together": together, "columns": columns, "rows": list(map(_row, shown))}),
        chunks=chunks(),
        interval=lambda rate: interval(rate, min(0.0, rate.mean if rate.low is None else rate.low)),
    )


def rates_of(records: Records, shown: Sequence[Summary]) -> list[Rate]:
    """Return the rates of `sweet eval`, computed from the scores of the dialogues that are on the page."""
    assert records.scores is not None
    try:
        figures = task_kind(records.run.manifest().task).metrics
    except UsageError:  # of a plug-in that is not installed here
        figures = {}
    values, chosen = Values(figures), {summary.id for summary in shown}
    for score in read_jsonl(records.run.file(records.scores), Score):
        if score.id in chosen:
            values.add(score)
    return evaluation_facts.rates(values)


def _facts(shown: Sequence[Summary], total: int) -> Iterator[str]:
    """Yield what was played and how it ended."""
    of_all = f" of {total:,}" if len(shown) < total else ""
    yield f"{count(len(shown), 'dialogue')}{of_all}"
    yield count(len({summary.task_id for summary in shown}), "task")
    if shown:
        yield f"{fmean(summary.turns for summary in shown):.1f} turns on average"
    if tokens := [summary.tokens for summary in shown if summary.tokens is not None]:
        yield f"{fmean(tokens):,.0f} tokens on average"
    ends = Counter(summary.outcome or summary.ended for summary in shown)
    yield from (f"{number:,} {name}" for name, number in ends.most_common())


def _row(summary: Summary) -> list[Any]:
    """Return the values of a row, its texts in printable form."""
    values = (value(summary) for _, _, value in COLUMNS)
    return [printable_line(value) if isinstance(value, str) else value for value in values]


def packed(name: str, content: Any) -> Markup:
    """Return a script element, of a type that no browser runs, with `content` as compressed JSON.

    The page's script opens it with the browser's DecompressionStream. base64 has no character that HTML reads as
    markup, so no text can end the element early.

    Args:
        name: the element's id, letters and digits.
    """
    raw = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")
    text = base64.b64encode(zlib.compress(raw, 9)).decode("ascii")
    return Markup(f'<script type="application/octet-stream" id="{name}">{text}</script>\n')
