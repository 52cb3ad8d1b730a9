"""Render a dialogue as HTML (`dialogue.html.j2`), with screenshots as small JPEG pictures in data: URLs.

The pictures of a page have a common size limit. A picture that exceeds it is described instead, and counted.
"""

from __future__ import annotations

import base64
import io
from functools import lru_cache

from markupsafe import Markup

from sweet.results.pages import fragment, line, text
from sweet.tasks.base import with_calls
from sweet.tasks.tools import summed
from sweet.tasks.trajectory import Turn
from sweet.view.code import Fragment, fragments, tokens
from sweet.view.credit_view import TAKEN, choice_note, distinct_candidates, pairs_title, rewards_note
from sweet.view.dialogue_view import DisplayOptions, failure_reason, hidden_texts, unit_tests
from sweet.view.records import Record, Summary
from sweet.view.run_screenshots import Picture, RunScreenshots, Unreadable, scaled
from sweet.view.text import VERDICTS, format_number, printable, signed, tests_passed

BAR_WIDTH = 120
COLOURED = 5_000
"""Longer code, in characters, has no colours, as a page may have thousands of dialogues."""
WIDTH = 480
HEIGHT = 1600
"""Pixels of an embedded picture; longer pictures are cropped at the bottom."""
QUALITY = 75
PAGE_LIMIT = 48 * 2**20
"""Most characters of all data: URLs of a page."""


class HtmlScreenshots:
    """The pictures of one HTML page, which share a size limit in the order of the calls.

    Attributes:
        room: characters that are left for further pictures.
        omitted: the number of pictures that exceeded the limit.
    """

    def __init__(self, screenshots: RunScreenshots) -> None:
        self.screenshots = screenshots
        self.room = PAGE_LIMIT
        self.omitted = 0

    def turn(self, turn: Turn) -> Markup:
        """Return the screenshot of the page of a turn."""
        return self._figure(self.screenshots.turn_picture(turn), "what the human sees")

    def reference(self, page: str) -> Markup:
        """Return the screenshot of the reference page."""
        return self._figure(self.screenshots.page_picture(page), "the reference page")

    def _figure(self, picture: Picture, title: str) -> Markup:
        """Return a <figure> element. `title` is trusted text."""
        shot = picture.screenshot
        if shot is None or not self.screenshots.draw:
            return _caption(title, picture.description)
        try:
            url, width, height = _embedded(shot.png)
        except Unreadable as reason:
            return _caption(title, f"{reason}: {picture.description}")
        if len(url) > self.room:
            self.omitted += 1
            return _caption(title, f"omitted, the page is full: {picture.description}")
        self.room -= len(url)
        return Markup(
            f'<figure><img loading="lazy" decoding="async" alt="{title}" width="{width}" height="{height}" '
            f'src="{url}"/><figcaption>{title} · {shot.width} × {shot.height}</figcaption></figure>'
        )


def _caption(title: str, description: str) -> Markup:
    return Markup(f"<figure><figcaption>{title}: {line(description)}</figcaption></figure>")


@lru_cache(maxsize=64)
def _embedded(png: bytes) -> tuple[str, int, int]:
    """Return a data: URL and the width and height of its picture, which is encoded again from its pixels."""
    image = scaled(png, WIDTH, HEIGHT)
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=QUALITY, optimize=True)
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}", image.width, image.height


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
        with_calls=with_calls,
        rewards_note=rewards_note,
        sums=summed(record.trajectory.turn_rewards.values()),
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
