"""Compare two rendered pages part by part: list the differences with their weights.

Parts of the page and of the reference are paired: first identical texts, nearest first, then similar texts, then boxes
and images by their overlap. Unpaired parts are missing from the page or extra. A pair may differ in its text, place,
size, colour and letters. The weight of a difference is the area in px² that looks different; similar colours weigh
less. `sweet.tasks.html.words` puts differences into sentences.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

from sweet.tasks.html.view import FARTHEST, SAME_COLOR, Part, View, color_distance, greedy

QUOTED = 300
"""Characters of a text that are compared and quoted; a longer text is cut."""
_PLACE = 6
"""Tolerance for positions in px."""
_SIZE = 0.1
"""Relative tolerance for sizes."""
_FONT = 0.08
_COVERS = 0.3
_FAR = 150.0
"""Distance in px from which a misplaced text weighs as much as a missing one."""
_FUZZY = 120
"""Maximum number of texts on each side, the longest, that are searched for similar ones."""
_FAINT = 0.15
"""The least weight of a box as a share of its area, however low its contrast is."""

Aspect = Literal["text", "place", "size", "color", "font", "bold"]


@dataclass(frozen=True)
class Difference:
    """One difference from the reference.

    Attributes:
        kind: `missing` has only `wanted`, `extra` only `shown`, `changed` both; `background` and `height` neither.
        aspects: the properties in which a changed part differs.
        weight: its visual weight in px².
    """

    kind: Literal["missing", "extra", "changed", "background", "height"]
    weight: float
    shown: Part | None = None
    wanted: Part | None = None
    aspects: tuple[Aspect, ...] = ()


def differences(page: View, reference: View) -> list[Difference]:
    """Return the differences of `page` from `reference`, the heaviest first, in a deterministic order."""
    pairs, extra, missing = paired(page.parts, reference.parts)
    result = [d for page_part, target in pairs if (d := _changed(page_part, target, reference)) is not None]
    result += [Difference("missing", weight(part, reference), wanted=part) for part in missing]
    result += [Difference("extra", 0.8 * weight(part, page), shown=part) for part in extra]
    step = color_distance(page.background, reference.background)
    if step > SAME_COLOR:
        result.append(Difference("background", reference.width * reference.height * max(step / FARTHEST, _FAINT)))
    off = abs(page.height - reference.height)
    if off > max(_PLACE, 0.02 * reference.height):
        # The height follows from the parts, so it is mentioned after them.
        result.append(Difference("height", 0.1 * reference.width * off))
    return sorted(result, key=lambda d: (-d.weight, d.kind, _order(d.wanted or d.shown)))


def weight(part: Part, view: View) -> float:
    """Return the visual weight of a part of `view`, in px²."""
    if part.kind != "box":
        return part.area * (1.5 if part.kind == "text" else 1.0)
    return part.area * max(color_distance(part.color, view.color_under(part)) / FARTHEST, _FAINT)


def normalized(text: str) -> str:
    """Return a text in the form in which it is compared and quoted."""
    text = text.translate(_QUOTES)
    return text if len(text) <= QUOTED else text[: QUOTED - 1] + "…"


_QUOTES = {ord(mark): '"' for mark in "“”„"}


def paired(page: Iterable[Part], reference: Iterable[Part]) -> tuple[list[tuple[Part, Part]], list[Part], list[Part]]:
    """Return the pairs of (shown, wanted) parts, and the unpaired parts of the page and of the reference."""
    left, right = sorted(page, key=_order), sorted(reference, key=_order)
    pairs: list[tuple[Part, Part]] = []
    for candidates in (_same_text, _like_text, _covering):
        matches = greedy(candidates(left, right))
        pairs += [(left[i], right[j]) for i, j in matches]
        used_left, used_right = {i for i, _ in matches}, {j for _, j in matches}
        left = [part for i, part in enumerate(left) if i not in used_left]
        right = [part for j, part in enumerate(right) if j not in used_right]
    return pairs, left, right


def _same_text(left: list[Part], right: list[Part]) -> list[tuple[float, int, int]]:
    places: dict[str, list[int]] = {}
    for j, part in enumerate(right):
        if part.kind == "text":
            places.setdefault(normalized(part.text), []).append(j)
    return [
        (_distance(part, right[j]), i, j)
        for i, part in enumerate(left)
        if part.kind == "text"
        for j in places.get(normalized(part.text), ())
    ]


def _like_text(left: list[Part], right: list[Part]) -> list[tuple[float, int, int]]:
    from sweet.tasks.html.diagnostics import MIN_SIMILARITY, similarities  # numpy

    ours, theirs = _longest_texts(left), _longest_texts(right)
    if not ours or not theirs:
        return []
    similarity = similarities([normalized(left[i].text) for i in ours], [normalized(right[j].text) for j in theirs])
    return [
        (1 - float(similarity[row, column]) + min(_distance(left[i], right[j]) / 1000, 1), i, j)
        for row, i in enumerate(ours)
        for column, j in enumerate(theirs)
        if similarity[row, column] >= MIN_SIMILARITY
    ]


def _longest_texts(parts: list[Part]) -> list[int]:
    texts = [i for i, part in enumerate(parts) if part.kind == "text"]
    return sorted(texts, key=lambda i: (-len(parts[i].text), i))[:_FUZZY]


def _covering(left: list[Part], right: list[Part]) -> list[tuple[float, int, int]]:
    candidates: list[tuple[float, int, int]] = []
    for i, a in enumerate(left):
        for j, b in enumerate(right):
            if a.kind != b.kind or a.kind == "text":
                continue
            cover = _cover(a, b)
            if cover >= _COVERS:
                colour = color_distance(a.color, b.color) / FARTHEST if a.kind == "box" else 0.0
                candidates.append((1 - cover + colour, i, j))
    return candidates


def _cover(part: Part, other: Part) -> float:
    """Return the area of the intersection divided by that of the union."""
    common = _common(part, other)
    union = part.area + other.area - common
    return common / union if union else 0.0


def _common(part: Part, other: Part) -> float:
    width = min(part.x + part.width, other.x + other.width) - max(part.x, other.x)
    height = min(part.y + part.height, other.y + other.height) - max(part.y, other.y)
    return float(max(width, 0) * max(height, 0))


def _distance(part: Part, other: Part) -> float:
    return float(abs(part.x - other.x) + abs(part.y - other.y))


def _changed(part: Part, target: Part, reference: View) -> Difference | None:
    """Return the difference of a pair, or None. Each aspect weighs the share of the part that it changes."""
    spoils: dict[Aspect, float] = {}
    if max(abs(part.x - target.x), abs(part.y - target.y)) > _PLACE:
        spoils["place"] = min(1.0, _distance(part, target) / _FAR)
    step = color_distance(part.color, target.color) if target.kind != "image" else 0.0
    if step > SAME_COLOR:
        spoils["color"] = max(step / FARTHEST, _FAINT)
    if target.kind == "text":
        if normalized(part.text) != normalized(target.text):
            spoils["text"] = (
                1 - SequenceMatcher(None, normalized(part.text), normalized(target.text), autojunk=False).ratio()
            )
        if _off(part.font_size, target.font_size, _FONT, 0):
            spoils["font"] = min(1.0, abs(part.font_size - target.font_size) / target.font_size)
        if part.bold != target.bold:
            spoils["bold"] = 0.3
        # A single line of text looks the same whatever the width of its box; one that wraps does not.
        if _off(part.height, target.height, 0.25, _PLACE):
            spoils["size"] = 0.3
    elif _off(part.width, target.width, _SIZE, _PLACE) or _off(part.height, target.height, _SIZE, _PLACE):
        spoils["size"] = 1 - min(_common(part, target) / max(part.area, target.area, 1.0), 1.0)
    if not spoils:
        return None
    lost = min(1.0, sum(spoils.values())) * weight(target, reference)
    return Difference("changed", lost, part, target, tuple(sorted(spoils)))


def _off(value: int, target: int, share: float, least: int) -> bool:
    return abs(value - target) > max(share * target, least)


def _order(part: Part | None) -> tuple[object, ...]:
    if part is None:
        return ()
    return (part.y, part.x, part.kind, part.text, part.color, part.width, part.height, part.font_size, part.bold)
