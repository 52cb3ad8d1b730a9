"""Views of pages for the tests of the html task: a strategy of arbitrary ones, and how one is seen after rendering."""

from __future__ import annotations

from hypothesis import strategies as st

from sweet.render.page import Block, Screenshot
from sweet.tasks.html.compare import differences, weight
from sweet.tasks.html.view import Part, View, view_of

COLORS = st.sampled_from(["#ffffff", "#f3f4f6", "#111827", "#10b981", "#1d4ed8", "#ef4444", "#000000"])
TEXTS = st.one_of(
    st.sampled_from(
        ["Home", "About us", "Learn more", "Opening hours", "Opening hour", "Say “yes”; it should read “no”."]
    ),
    st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=12),
    st.lists(st.sampled_from(["fresh", "bread", "every", "morning."]), min_size=40, max_size=50).map(" ".join),
)


@st.composite
def parts(draw: st.DrawFn) -> Part:
    kind = draw(st.sampled_from(["text", "box", "image"]))
    x, y = draw(st.integers(0, 1000)), draw(st.integers(0, 1500))
    width, height = draw(st.integers(8, 1280)), draw(st.integers(8, 600))
    if kind == "text":
        return Part(
            "text", x, y, width, height, draw(COLORS), draw(TEXTS), draw(st.integers(8, 60)), draw(st.booleans())
        )
    return Part("box", x, y, width, height, draw(COLORS)) if kind == "box" else Part("image", x, y, width, height)


NAMED = st.lists(parts(), max_size=5, unique_by=lambda part: (part.kind, part.x, part.y)).map(tuple)
"""Parts that a sentence can tell apart."""
VIEWS = st.builds(View, st.integers(720, 4000), COLORS, NAMED)


def seen(view: View) -> View:
    """The view of a page that shows `view`, as a browser tells it."""
    return view_of(shot(view))


def shot(view: View) -> Screenshot:
    """What a browser tells of a page that shows `view`."""
    blocks = [Block("body", "", 0, 0, 1280, view.height, "#000000", view.background, 16, False, False)]
    for part in view.parts:
        about = (part.text, part.x, part.y, part.width, part.height)
        box = part.color if part.kind == "box" else ""
        ink = part.color if part.kind == "text" else "#000000"
        blocks.append(Block("div", *about, ink, box, part.font_size, part.bold, part.kind == "image"))
    return Screenshot(b"", 1280, view.height, tuple(blocks))


def score(page: View, reference: View) -> float:
    """The similarity of a page to the reference, 0 to 1: the share of its weight that does not differ."""
    whole = sum(weight(part, reference) for part in reference.parts) + 0.1 * reference.width * reference.height
    return whole / (whole + sum(difference.weight for difference in differences(page, reference)))
