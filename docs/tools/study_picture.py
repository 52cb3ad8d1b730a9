"""README's picture of a study (docs/micro.svg): charts of the study's page, beside each other in one SVG."""

from __future__ import annotations

from sweet.results.charts import Drawing
from sweet.results.pages import line, resource
from sweet.results.study_page import drawings
from sweet.study.results import StudyResults

WIDTH, GAP, MARGIN = 420.0, 30.0, 12.0
STYLE = """\
svg { --ink: #1c2126; --muted: #5c6670; --line: #dfe3e7; --c0: #0068a8; --c1: #c04e00; --c2: #007a5c; --c3: #8a4a86; \
--c4: #9a7500; --c5: #3d94d9; --c6: #6b7780; --c7: #b3365c; }
.title { font: 600 14px system-ui, sans-serif; fill: var(--ink); }
"""


def overview_parts(results: StudyResults) -> list[str]:
    """Return the sections that the picture shows, in their order: beside the methods and the credit the first that
    there is of learning curves, best of N replies, and best of N dialogues."""
    drawn = drawings(results)
    best = [name for name in ("learning", "best-of-turns", "best-of") if name in drawn][:1]
    return [name for name in ("success", *best, "credit") if name in drawn]


def overview(results: StudyResults, source: str) -> str:
    """Return the picture: the first of `overview_parts` on the left, the others on the right.

    Args:
        source: the digest of the results, which the picture names.
    """
    drawn = drawings(results)
    first, *others = (drawn[name] for name in overview_parts(results))
    placed, y = [_placed(first, GAP, MARGIN)], MARGIN
    for drawing in others:
        placed.append(_placed(drawing, 2 * GAP + WIDTH, y))
        y += _height(drawing)
    width = round(3 * GAP + 2 * WIDTH if others else 2 * GAP + WIDTH)
    height = round(max(MARGIN + _height(first), y) + 8)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="overview" viewBox="0 0 {width} {height}" width="{width}" '
            f'height="{height}">',
            f"<metadata>{line(source)}</metadata>",
            f"<style>\n{STYLE}{resource('charts.css')}\n</style>",
            '<rect width="100%" height="100%" fill="#fff"/>',
            *placed,
            "</svg>\n",
        ]
    )


def _height(drawing: Drawing) -> float:
    return 30 + drawing.height * WIDTH / drawing.width


def _placed(drawing: Drawing, x: float, y: float) -> str:
    """Return a chart as a part of the picture, below its title."""
    height = drawing.height * WIDTH / drawing.width
    return (
        f'<text class="title" x="{x:.0f}" y="{y + 14:.0f}">{line(drawing.title)}</text>'
        f'<svg x="{x:.0f}" y="{y + 20:.0f}" width="{WIDTH:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {drawing.width:.0f} {drawing.height:.0f}">{drawing.content}</svg>'
    )
