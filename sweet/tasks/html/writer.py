"""The scripted page writer: a rule-based agent that starts with a plain page and follows the human's sentences.

It holds no state between turns. Its page is a list of parts, each an absolutely positioned element in a fixed form
(`as_page`), so that it can parse its last page from the dialogue (`read_page`), apply the human's sentences (`improve`,
by the grammar of sweet.tasks.html.words), and write the whole page again. It answers when the human has nothing to
change, or at its last turn.

At a temperature above 0 it makes mistakes, drawn from the turn's seed: it ignores a part, gets a place, a size or a
colour wrong, or answers too early. Several dialogues on one task therefore end in pages of different quality.
"""

from __future__ import annotations

import html
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from sweet.tasks.base import Message
from sweet.tasks.html import words
from sweet.tasks.html.compare import normalized
from sweet.tasks.html.page import extract_page
from sweet.tasks.html.view import WHITE, WIDTH, Part, View
from sweet.tasks.markers import ANSWER_MARKER, MAX_TURNS

UNHEARD, MIXED_UP, IMPATIENT = 0.15, 0.2, 0.2
"""The probabilities, at temperature 1 and proportional to it, that the writer ignores a named part, that it gets one
wrong, and that it answers at a turn although there is more to change."""
_MOST_LIKELY = 0.5
_MOST_PIXELS = 10_000
_MOST_PARTS = 1_000

_LINE = 1.5
"""Approximate height of a line of text, in font sizes."""
_LETTER = 0.55
"""Approximate width of a letter, in font sizes."""

_ELEMENT = re.compile(
    r'<(?P<tag>div|img)(?: src="[^"]*")? style="position:absolute;left:(?P<x>-?\d{1,6})px;top:(?P<y>-?\d{1,6})px;'
    r"width:(?P<width>\d{1,6})px;height:(?P<height>\d{1,6})px"
    r"(?:;background:(?P<color>#[0-9a-f]{6}))?"
    r'(?:;color:(?P<ink>#[0-9a-f]{6});font-size:(?P<font>\d{1,6})px;font-weight:(?P<weight>bold|normal)[^"]*)?'
    r'">(?:(?P<text>[^<]*)</div>)?'
)
_BODY = re.compile(r'<body style="margin:0;background:(#[0-9a-f]{6});[^"]*">\n<main style="[^"]*height:(\d{1,6})px')
_PART = re.compile(words.PART)
_LEAD = re.compile("|".join(re.escape(lead) for lead in (words.MISSING, words.EXTRA, words.CHANGED)))
_QUOTATION = re.compile("“[^“”]*”")


def write(dialogue: Sequence[Message], temperature: float, seed: int | None) -> str:
    """Return the writer's reply to a dialogue whose last message is the human's; it depends only on the arguments.

    Args:
        temperature: 0 makes no mistakes.
        seed: the seed of this turn's mistakes.
    """
    drafts = [message for message in dialogue if message.role == "assistant"]
    request = next((message.content for message in dialogue if message.role == "user"), "")
    rate = min(temperature, _MOST_LIKELY / MIXED_UP)
    slips = random.Random(seed)
    if not drafts:
        return f"Here is a first draft.\n{as_page(first_draft(request))}"
    reply = next((message.content for message in reversed(dialogue) if message.role == "user"), "")
    last = read_page(extract_page(drafts[-1].content) or "") or first_draft(request)
    page = as_page(improve(last, reply, slips, rate))
    if words.SAME in reply or len(drafts) + 1 >= MAX_TURNS or slips.random() < IMPATIENT * rate:
        return f"{ANSWER_MARKER}\n{page}"
    return f"I changed what you named.\n{page}"


def first_draft(request: str) -> View:
    """Return a plain page for a request: its title, and bands and boxes for the parts that it mentions."""
    title = re.split(r"[:.,;\n]", request.strip(), maxsplit=1)[0][:60].strip() or "A page"
    spoken = request.lower()
    parts = [_text(title, 32, 24, 32, bold=True)]
    y = 96
    if re.search(r"\bnav|menu|links", spoken):
        parts += [_text(word, 32 + 120 * i, y, 16) for i, word in enumerate(("Home", "About", "Contact"))]
        y += 56
    if re.search(r"image|photo|picture|banner|hero", spoken):
        parts.append(Part("image", 0, y, WIDTH, 240))
        y += 264
    if re.search(r"column|card|grid|list|section", spoken):
        parts += [Part("box", 32 + 410 * i, y, 390, 160, "#e5e7eb") for i in range(3)]
        y += 184
    if re.search(r"form|sign|search|subscribe|button", spoken):
        parts.append(Part("box", 32, y, 160, 40, "#3b82f6"))
        y += 64
    if "footer" in spoken:
        parts += [Part("box", 0, y, WIDTH, 72, "#1f2937"), _text("Contact us", 32, y + 24, 16, ink="#ffffff")]
        y += 72
    return View(max(y, 720), WHITE, tuple(parts))


def _text(text: str, x: int, y: int, size: int, *, bold: bool = False, ink: str = "#111827") -> Part:
    width = min(WIDTH - x, round(len(text) * size * _LETTER) + 8)
    return Part("text", x, y, width, round(size * _LINE), ink, text, size, bold)


def improve(page: View, reply: str, slips: random.Random | None = None, rate: float = 0.0) -> View:
    """Return the page changed as the human's sentences say; sentences of another form are ignored."""
    plain = _QUOTATION.sub(lambda match: " " * len(match[0]), reply)
    leads = [(match.start(), match[0]) for match in _LEAD.finditer(plain)]
    for number, (start, lead) in enumerate(leads):
        end = leads[number + 1][0] if number + 1 < len(leads) else len(reply)
        for match in _PART.finditer(reply, start, end):
            if slips is not None and slips.random() < UNHEARD * rate:
                continue
            named = _named(match)
            if lead == words.MISSING:
                page = _with(page, _mixed_up(named, slips, rate))
            elif (target := _find(page, named)) is None:
                continue
            elif lead == words.EXTRA:
                page = replace(page, parts=tuple(part for part in page.parts if part is not target))
            else:
                changed = _mixed_up(_changed(target, reply[match.end() : end], plain[match.end() : end]), slips, rate)
                page = replace(page, parts=tuple(changed if part is target else part for part in page.parts))
                break  # the sentence is about one part; what follows may be its new text
    if (color := words.READ_BACKGROUND.search(plain)) is not None:
        page = replace(page, background=color[1])
    if (height := words.READ_HEIGHT.search(plain)) is not None:
        page = replace(page, height=min(int(height[1]), _MOST_PIXELS))
    return page


def _named(match: re.Match[str]) -> Part:
    x, y, width, height, font = (
        max(-_MOST_PIXELS, min(_MOST_PIXELS, int(match[name] or 0))) for name in ("x", "y", "width", "height", "font")
    )
    if match["text"] is not None:
        ink = match["ink"] or "#000000"
        return Part("text", x, y, width, height, ink, match["text"], font or 16, match["weight"] == "bold")
    return Part("image", x, y, width, height) if match["image"] else Part("box", x, y, width, height, match["color"])


def _find(page: View, named: Part) -> Part | None:
    """Return the part that is meant: the nearest of the same kind with the same text or colour."""
    same = [
        part
        for part in page.parts
        if part.kind == named.kind
        and (normalized(part.text) == named.text if part.kind == "text" else part.color == named.color)
    ]
    return min(same, key=lambda part: abs(part.x - named.x) + abs(part.y - named.y), default=None)


def _with(page: View, part: Part) -> View:
    return page if part in page.parts or len(page.parts) >= _MOST_PARTS else replace(page, parts=(*page.parts, part))


def _changed(part: Part, sentence: str, plain: str) -> Part:
    """Return the part with the changes that a sentence names; `plain` is the sentence without quotations."""
    for aspect, pattern in words.READ_CHANGES.items():
        if match := pattern.search(sentence if aspect == "text" else plain):
            part = replace(part, **_CHANGES[aspect](match))
    return part


_CHANGES: dict[str, Callable[[re.Match[str]], dict[str, Any]]] = {
    "text": lambda match: {"text": match[1]},
    "place": lambda match: {"x": int(match[1]), "y": int(match[2])},
    "size": lambda match: {"width": min(int(match[1]), _MOST_PIXELS), "height": min(int(match[2]), _MOST_PIXELS)},
    "color": lambda match: {"color": match[1]},
    "font": lambda match: {"font_size": min(int(match[1]), _MOST_PIXELS)},
    "bold": lambda match: {"bold": match[1] == "bold"},
}
"""The fields of a part that a sentence about an aspect changes."""


def _mixed_up(part: Part, slips: random.Random | None, rate: float) -> Part:
    """Return the part, perhaps with a mistake in its place, its size or its colour."""
    if slips is None or slips.random() >= MIXED_UP * rate:
        return part
    what = slips.choice(("place", "size", "color") if part.kind != "image" else ("place", "size"))
    if what == "place":
        return replace(part, x=part.x + slips.randint(-160, 160), y=max(0, part.y + slips.randint(-120, 120)))
    if what == "size":
        share = slips.uniform(0.4, 1.6)
        if part.kind == "text":
            return replace(part, font_size=max(8, round(part.font_size * share)))
        return replace(part, width=round(part.width * share), height=round(part.height * share))
    return replace(part, color=f"#{slips.randrange(1 << 24):06x}")


def as_page(view: View) -> str:
    """Return a page that shows a view: larger boxes and images under smaller ones, texts on top."""
    flat = sorted((part for part in view.parts if part.kind != "text"), key=lambda part: -part.area)
    frames = {(p.x, p.y, p.width, p.height) for p in flat if p.kind == "box"}
    texts = [part for part in view.parts if part.kind == "text"]
    lines = [_element(part) for part in flat]
    lines += [_text_element(part, (part.x, part.y, part.width, part.height) in frames) for part in texts]
    return "\n".join(
        (
            "<html>",
            f'<body style="margin:0;background:{view.background};font-family:sans-serif">',
            f'<main style="position:relative;overflow:hidden;width:{WIDTH}px;height:{view.height}px">',
            *lines,
            "</main>",
            "</body>",
            "</html>",
        )
    )


def _place(part: Part) -> str:
    return f"position:absolute;left:{part.x}px;top:{part.y}px;width:{part.width}px;height:{part.height}px"


def _element(part: Part) -> str:
    if part.kind == "image":
        source = f"https://picsum.photos/id/48/{max(part.width, 1)}/{max(part.height, 1)}"
        return f'<img src="{source}" style="{_place(part)}">'
    return f'<div style="{_place(part)};background:{part.color}"></div>'


def _text_element(part: Part, framed: bool) -> str:
    """Return the element of a text, centred if its rectangle is also that of a box, as in a button."""
    size = max(part.font_size, 1)
    lines = max(1, round(part.height / (_LINE * size)))
    letters = f"color:{part.color};font-size:{size}px;font-weight:{'bold' if part.bold else 'normal'}"
    room = f"line-height:{part.height / lines:g}px;white-space:{'nowrap' if lines == 1 else 'normal'}"
    middle = ";text-align:center" if framed and len(part.text) * size * _LETTER < part.width < WIDTH / 2 else ""
    return f'<div style="{_place(part)};{letters};{room}{middle}">{html.escape(part.text, quote=False)}</div>'


def read_page(page: str) -> View | None:
    """Return the view that a page written by `as_page` shows, or None for other pages."""
    body = _BODY.search(page)
    if body is None:
        return None
    parts: list[Part] = []
    for match in _ELEMENT.finditer(page):
        x, y, width, height = (int(match[name]) for name in ("x", "y", "width", "height"))
        if match["tag"] == "img":
            parts.append(Part("image", x, y, width, height))
        elif match["ink"]:
            text, font = html.unescape(match["text"] or ""), int(match["font"])
            parts.append(Part("text", x, y, width, height, match["ink"], text, font, match["weight"] == "bold"))
        elif match["color"]:
            parts.append(Part("box", x, y, width, height, match["color"]))
    return View(int(body[2]), body[1], tuple(parts))
