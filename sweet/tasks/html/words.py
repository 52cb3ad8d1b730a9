"""Put the differences of a page into English sentences, and define the patterns that parse the sentences.

A reply names the two or three largest differences, the largest first. Parts that are missing (or extra) in the same
section of the page are named in one sentence. The grammar of the sentences is defined here only, as phrases with their
patterns, so that the rule-based page writer (sweet.tasks.html.writer) can follow all of them; for people and models
they are plain English.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sweet.tasks.html.compare import Aspect, Difference, normalized
from sweet.tasks.html.view import Part, View

SAME = "The pages look the same to me. I have nothing to change."
NO_PAGE = "I see no page in your reply. Please write the whole page, from <html> to </html>."
FAILED = "Your page did not load: "
MOST = 3
"""Maximum number of differences in a reply."""
MOST_PARTS = 4
"""Maximum number of parts of one section in a sentence."""

PART = (
    r"(?:the text “(?P<text>[^“”]*)”|the (?P<color>#[0-9a-f]{6}) box|the (?P<image>image))"
    r" at left (?P<x>-?\d{1,6}), top (?P<y>-?\d{1,6})"
    r"(?:, (?P<width>\d{1,6}) px wide and (?P<height>\d{1,6}) px tall)?"
    r"(?:, in (?P<font>\d{1,6}) px (?P<weight>bold|plain) letters in (?P<ink>#[0-9a-f]{6}))?"
)
MISSING, EXTRA, CHANGED = "What is missing: ", "I do not want ", "About "
_BACKGROUND = "The background of the page should be {}."
_HEIGHT = "The page should be {} px tall, yours has {} px."
READ_BACKGROUND = re.compile(r"The background of the page should be (#[0-9a-f]{6})\.")
READ_HEIGHT = re.compile(r"The page should be (\d{1,6}) px tall")


def reply(differences: list[Difference], page: View, reference: View, limit: int) -> str:
    """Return sentences for the largest of the differences, the heaviest first.

    They have at most `limit` characters together, but there is always one.
    """
    if not differences:
        return SAME
    text = ""
    for sentence in _sentences(differences, page, reference, limit):
        if text and len(text) + 1 + len(sentence) > limit:
            break
        text = f"{text} {sentence}".strip()
    return text


def _sentences(differences: list[Difference], page: View, reference: View, limit: int) -> Iterator[str]:
    left = list(differences)
    for _ in range(MOST):
        if not left:
            return
        first = left[0]
        group = [first, *(d for d in left[1:] if _same_section(first, d))][:MOST_PARTS]
        while len(sentence := _sentence(group, page, reference)) > limit // 2 and len(group) > 1:
            group.pop()
        left = [d for d in left if not any(d is member for member in group)]
        yield sentence


def _same_section(first: Difference, other: Difference) -> bool:
    """Return whether both parts are missing, or both extra, and one contains the other or they are side by side."""
    a, b = first.wanted or first.shown, other.wanted or other.shown
    if first.kind != other.kind or first.kind == "changed" or a is None or b is None:
        return False
    overlap = min(a.y + a.height, b.y + b.height) - max(a.y, b.y)
    return a.contains(b) or 2 * overlap > max(a.height, b.height)


def _sentence(group: list[Difference], page: View, reference: View) -> str:
    first = group[0]
    if first.kind == "background":
        return _BACKGROUND.format(reference.background)
    if first.kind == "height":
        return _HEIGHT.format(reference.height, page.height)
    if first.kind == "changed":
        return f"{CHANGED}{_changed(first)}."
    if first.kind == "missing":
        return MISSING + "; ".join(_whole(d.wanted) for d in group if d.wanted) + "."
    return EXTRA + "; ".join(_named(d.shown) for d in group if d.shown) + "."


def _named(part: Part) -> str:
    what = {"text": f"text “{normalized(part.text)}”", "box": f"{part.color} box", "image": "image"}[part.kind]
    return f"the {what} at left {part.x}, top {part.y}"


def _whole(part: Part) -> str:
    letters = ""
    if part.kind == "text":
        letters = f", in {part.font_size} px {'bold' if part.bold else 'plain'} letters in {part.color}"
    return f"{_named(part)}, {part.width} px wide and {part.height} px tall{letters}"


def _changed(difference: Difference) -> str:
    part, target = difference.shown, difference.wanted
    assert part is not None
    assert target is not None
    phrases: dict[Aspect, str] = {
        "text": f"it should read “{normalized(target.text)}”",
        "place": f"it should start at left {target.x}, top {target.y}",
        "size": f"it should be {target.width} px wide and {target.height} px tall",
        "color": f"its colour should be {target.color}",
        "font": f"its letters should be {target.font_size} px",
        "bold": f"its letters should be {'bold' if target.bold else 'plain'}",
    }
    return f"{_named(part)}: " + ", ".join(phrases[aspect] for aspect in difference.aspects)


READ_CHANGES = {
    "text": re.compile(r"it should read “([^“”]*)”"),
    "place": re.compile(r"it should start at left (-?\d{1,6}), top (-?\d{1,6})"),
    "size": re.compile(r"it should be (\d{1,6}) px wide and (\d{1,6}) px tall"),
    "color": re.compile(r"its colour should be (#[0-9a-f]{6})"),
    "font": re.compile(r"its letters should be (\d{1,6}) px"),
    "bold": re.compile(r"its letters should be (bold|plain)"),
}
