"""Render a dialogue as HTML (`dialogue.html.j2`), for the page of dialogues and the report of a run."""

from __future__ import annotations

from markupsafe import Markup

from sweet.results.pages import fragment, text
from sweet.results.screenshots import HtmlScreenshots
from sweet.view.code import Fragment, fragments, tokens
from sweet.view.credit_view import TAKEN, choice_note, distinct_candidates, pairs_title
from sweet.view.dialogue_view import DisplayOptions, hidden_texts
from sweet.view.records import Record, Summary
from sweet.view.terminal import VERDICTS, format_number, signed, tests_passed
from sweet.view.text import printable
from sweet.view.unit_tests import failure_reason, unit_tests

BAR_WIDTH = 120
COLOURED = 5_000
"""Longer code, in characters, has no colours, as a page may have thousands of dialogues."""


def dialogue(
    summary: Summary,
    record: Record,
    options: DisplayOptions,
    *,
    pictures: HtmlScreenshots | None = None,
) -> Markup:
    """Return one dialogue as a collapsed element: a line of facts, and below it the whole dialogue.

    Args:
        pictures: the pictures of the HTML page, if the dialogue is about pages.
    """

    def prose(content: str, *, whole: bool = False) -> list[Fragment]:
        return list(fragments(content, options.language, whole=whole))

    return fragment(
        "dialogue.html.j2",
        summary=summary,
        record=record,
        trajectory=record.trajectory,
        outcome=summary.outcome or summary.ended,
        reward=format_number(summary.reward),
        tests_passed=tests_passed(summary.passed, summary.total),
        hidden=hidden_texts(record.trajectory.task) if options.hidden else (),
        failure=failure_reason(record),
        tests=unit_tests(record),
        pictures=pictures,
        taken=TAKEN,
        verdicts={verdict: shown[0] for verdict, shown in VERDICTS.items()},
        prose=prose,
        coloured=coloured,
        bar=lambda value: advantage_bar(value, record.scale),
        signed=signed,
        choice_note=choice_note,
        candidates_of=lambda index: distinct_candidates(record, index),
        pairs_title=pairs_title,
    )


def coloured(fragment: Fragment) -> Markup:
    """Return code as HTML with a span for each coloured token."""
    if len(fragment.text) > COLOURED:
        return text(fragment.text)
    return Markup(
        "".join(
            f'<span class="{kind}">{text(part)}</span>' if kind else text(part)
            for kind, part in tokens(printable(fragment.text), fragment.language)
        )
    )


def advantage_bar(value: float, scale: float) -> Markup:
    """Return a bar as SVG, because the page's policy forbids style attributes."""
    half = BAR_WIDTH // 2
    length = round(half * min(abs(value) / scale, 1.0), 1) if scale > 0 else 0
    start = half - length if value < 0 else half
    kind = "negative" if value < 0 else "positive"
    return Markup(
        f'<span class="advantage">{signed(value)} <svg width="{BAR_WIDTH}" height="10" aria-hidden="true">'
        f'<rect class="{kind}" x="{start}" y="1" width="{length}" height="8"/>'
        f'<rect class="zero" x="{half}" y="0" width="1" height="10"/></svg></span>'
    )
