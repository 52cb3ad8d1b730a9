"""Extract the HTML of a page from an agent's reply. Nothing here renders it.

The page is the first `<html …>…</html>`, else the first `<body …>…</body>`. A doctype before it is not part of it, as
in the published protocol: pages and references are rendered in the same way. Protocol `upstream` accepts only tags
spelt exactly as there. Protocol `paper` accepts tags as browsers do: in any case, not in comments and scripts, not a
tag that a sentence only mentions, and without an end tag, as in a reply that was cut.
"""

from __future__ import annotations

import re
from bisect import bisect_left

from sweet.tasks.base import Move, ProtocolName
from sweet.tasks.markers import ANSWER, ANSWER_MARKER, OUTPUT, between, seen_upstream

_ELEMENTS = ("html", "body")
_START = re.compile(r"<(?:html|body)(?=[\s>])", re.IGNORECASE)
_ANY_TAG = re.compile(r"<[a-z]", re.IGNORECASE)
_FENCE_LINE = re.compile(r"^[ \t]*(?:`{3,}|~{3,})", re.MULTILINE)
_RAW = re.compile(r"<!--|<(?P<name>script|style|textarea)(?=[\s>])", re.IGNORECASE)

_UNSPLASH = re.compile(r"""(?:https?:)?//source\.unsplash\.com/random/(\d+)x(\d+)(?:/?\?[^\s"'<>)]*|/)?""")
_PICSUM = re.compile(r"(?:https?:)?//picsum\.photos/(\d+)/(\d+)")


def read_move(output: str, *, protocol: ProtocolName) -> Move:
    """Parse a raw reply. Every page is an answer, which a later one supersedes; the marker only ends the dialogue."""
    if protocol == "upstream":
        content = seen_upstream(output)
        return Move(content, extract_page(content, protocol), ANSWER_MARKER in content)
    content = _seen(output)
    span = _span(content)
    around = content if span is None else content[: span[0]] + "\n" + content[span[1] :]
    return Move(content, extract_page(content, protocol), ANSWER.search(around) is not None)


def extract_page(text: str, protocol: ProtocolName = "paper") -> str | None:
    """Return the page in `text` with its image addresses rewritten, or None if there is none."""
    span = _published_span(text) if protocol == "upstream" else _span(text)
    return None if span is None else rewrite_images(text[slice(*span)])


def rewrite_images(page: str) -> str:
    """Return the page with addresses of random images replaced by one fixed image of the same size (picsum's 48)."""
    return _PICSUM.sub(_fixed, _UNSPLASH.sub(_fixed, page))


def _fixed(match: re.Match[str]) -> str:
    return f"https://picsum.photos/id/48/{match[1]}/{match[2]}"


def without_page(text: str, instead: str) -> str:
    """Return `text` with its page replaced by `instead`."""
    span = _span(text)
    return text if span is None else f"{text[: span[0]]}{instead}{text[span[1] :]}".strip()


def _published_span(text: str) -> tuple[int, int] | None:
    for name in _ELEMENTS:
        start = text.find(f"<{name}")
        opened = text.find(">", start) if start >= 0 else -1
        end = text.find(f"</{name}>", opened) if opened >= 0 else -1
        if end >= 0:
            return start, end + len(f"</{name}>")
    return None


def _span(text: str) -> tuple[int, int] | None:
    """Return start and end of the page."""
    for source in (_without_raw_text(text), text):
        for name in _ELEMENTS:
            span = _element(source, name)
            if span is not None:
                return span
    return None


def _element(source: str, name: str) -> tuple[int, int] | None:
    starts = [match.start() for match in re.finditer(rf"<{name}(?=[\s>])", source, re.IGNORECASE)]
    tags = [_tag_after(source, start) for start in starts]
    for end in re.finditer(rf"</{name}\s*>", source, re.IGNORECASE):
        # Of several start tags before it, all but the last are only mentioned in the text.
        last = bisect_left(starts, end.start()) - 1
        if last >= 0 and tags[last] < end.start():
            return starts[last], end.end()
    if not starts or tags[-1] == len(source):
        return None
    fence = _FENCE_LINE.search(source, starts[-1])
    cut = fence.start() if fence else len(source)
    return starts[-1], len(source[:cut].rstrip())


def _tag_after(source: str, start: int) -> int:
    """Return the position of the first tag after the one at `start`, or the end of the text."""
    tag = _ANY_TAG.search(source, start + 1)
    return tag.start() if tag else len(source)


def _without_raw_text(text: str) -> str:
    """Return the text with comments and the contents of scripts and styles replaced by as many blanks."""
    parts: list[str] = []
    place = 0
    while (match := _RAW.search(text, place)) is not None:
        closing = "-->" if match["name"] is None else f"</{match['name']}"
        end = re.compile(closing, re.IGNORECASE).search(text, match.end())
        if end is None:
            break
        parts += [text[place : match.start()], " " * (end.start() - match.start())]
        place = end.start()
    return "".join([*parts, text[place:]])


def _seen(output: str) -> str:
    """Return what the human sees. A marker after the start of the last page belongs to the text of the page."""
    starts = [match.start() for match in _START.finditer(output)]
    last = starts[-1] if starts else len(output)
    return between(output, [(m.start(), m.end()) for m in OUTPUT.finditer(output, 0, last)][:2])
