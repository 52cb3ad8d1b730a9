"""Parses README.md and the pages of docs/ into the parts that tests check."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "AGENTS.md", "CONTRIBUTING.md", "examples/README.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]


@dataclass(frozen=True)
class Piece:
    """A part of a page.

    Attributes:
        where: `page:line`, the first line of its block.
        text: the lines of a block, a span without its backticks, or the target of a link.
        language: of a block, from its fence.
    """

    where: str
    text: str
    language: str = ""


@dataclass(frozen=True)
class Page:
    path: Path
    blocks: list[Piece]
    spans: list[Piece]
    links: list[Piece]
    anchors: frozenset[str]


@cache
def read_page(path: Path) -> Page:
    """Return the page's fenced blocks, spans of code, targets of links and images, and the anchors of its headings."""
    tokens = MarkdownIt("commonmark").enable("table").parse(path.read_text(encoding="utf-8"))
    blocks, spans, links, headings = [], [], [], []
    for before, token in zip([None, *tokens], tokens, strict=False):
        where = f"{path.name}:{(token.map or (before.map if before else None) or [0])[0] + 1}"
        if token.type == "fence":
            blocks.append(Piece(where, token.content, token.info.strip()))
        if token.type == "inline":
            spans += [Piece(where, child.content) for child in _all(token) if child.type == "code_inline"]
            links += [Piece(where, target) for child in _all(token) if (target := _target(child))]
            if before is not None and before.type == "heading_open":
                headings.append("".join(child.content for child in _all(token)))
    return Page(path, blocks, spans, links, frozenset(map(anchor, headings)))


def _all(token: Token) -> Iterator[Token]:
    for child in token.children or ():
        yield child
        if child.type == "image":
            yield from _all(child)


def _target(token: Token) -> str:
    return str(token.attrGet("href" if token.type == "link_open" else "src" if token.type == "image" else "") or "")


def anchor(heading: str) -> str:
    """Return the fragment of a link to the heading, as GitHub generates it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
