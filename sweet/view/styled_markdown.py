"""Style Markdown of models without interpreting it: every character that the model wrote is shown.

Markup is shown by style alone: a heading is bold and keeps its #, a link shows its text and its address. So nothing is
hidden behind a link, an image, a comment or a reference; HTML, tables and nesting are shown as text. The text is
processed line by line in one pass, in linear time.
"""

from __future__ import annotations

import re

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from sweet.view.text import printable

LONGEST_LINE = 2_000
"""Longer lines, in characters, are not searched for Markdown."""

_LINE = re.compile(
    r"(?P<fence>[ \t]*+(?:`{3,}+|~{3,}+)[^`]*+$)"
    r"|(?P<rule>[ \t]*(?:(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,})$)"
    r"|(?P<heading>[ ]{0,3}\#{1,6}(?=[ \t]))"
    r"|(?P<lead>[ \t]*(?:[-*+]|[0-9]{1,9}[.)])[ \t]+|[ \t]*(?:>[ \t]?)+)",
)
_INLINE = re.compile(
    r"(?P<ticks>`{1,3})(?P<code>[^`]{1,500})(?P=ticks)(?!`)"
    r"|!?\[(?P<label>[^\[\]]{0,500})\]\((?P<address>[^()\s]{1,500})(?:[ \t][^()]{0,200})?\)"
    r"|(?P<stars>\*\*|__)(?=\S)(?P<strong>[^*_]{1,500})(?<=\S)(?P=stars)"
    r"|(?<![\w*])\*(?=[^\s*])(?P<emphasis>[^*]{1,500})(?<=[^\s*])\*(?![\w*])"
)
_STYLES = {"code": "cyan", "label": "underline", "address": "blue", "strong": "bold", "emphasis": "italic"}


def markdown(text: str) -> Prose:
    """Return Markdown source with styles."""
    shown = Text(printable(text))
    start = 0
    for line in shown.plain.split("\n"):
        if len(line) <= LONGEST_LINE:
            _style_line(shown, line, start)
        start += len(line) + 1
    return Prose(shown)


def _style_line(text: Text, line: str, start: int) -> None:
    opening = _LINE.match(line)
    lead = opening.end() if opening else 0
    if opening and opening.lastgroup:
        text.stylize("bold" if opening.lastgroup == "lead" else "dim", start, start + lead)
    if opening and opening.lastgroup == "heading":
        text.stylize("bold", start + lead, start + len(line))
    for match in _INLINE.finditer(line, lead):
        for group, style in _STYLES.items():
            if match[group] is not None:
                text.stylize(style, start + match.start(group), start + match.end(group))


class Prose:
    """Text whose wrapped lines are indented below the text of their list item."""

    def __init__(self, text: Text) -> None:
        self.text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self.text.split("\n", allow_blank=True):
            line.expand_tabs(4)
            lead = _LINE.match(line.plain)
            indent = lead.end() if lead and lead.lastgroup == "lead" else 0
            if not 0 < indent <= options.max_width // 2:
                line.overflow = "fold"
                yield line
                continue
            first, rest = line.divide([indent])
            for number, part in enumerate(rest.wrap(console, options.max_width - indent, overflow="fold")):
                yield (first if number == 0 else Text(" " * indent)).append_text(part)
