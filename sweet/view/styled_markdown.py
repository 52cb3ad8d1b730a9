"""Markdown of models, styled as it stands: every character that the model wrote is there, none is obeyed.

What Markdown means is shown by style alone: a heading is bold with its # before it, a link is its text and, beside it,
the address that it names. So nothing hides behind a link, an image, a comment or a reference; HTML, tables and nesting
are the text that they are. One pass from left to right, a line at a time, in time linear in the text.
"""

from __future__ import annotations

import re

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from sweet.view.text import printable

LONGEST_LINE = 2_000
"""Characters of a line up to which it is searched for Markdown."""

_LINE = re.compile(
    r"(?P<fence>[ \t]*(?:`{3,}|~{3,})[^`]*$)"
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
    """Markdown, styled as it stands."""
    shown = Text(printable(text))
    start = 0
    for line in shown.plain.split("\n"):
        if len(line) <= LONGEST_LINE:
            _style_line(shown, line, start)
        start += len(line) + 1
    return Prose(shown)


def _style_line(text: Text, line: str, start: int) -> None:
    opening = _LINE.match(line)
    place = opening.end() if opening else 0
    if opening and opening.lastgroup:
        text.stylize("bold" if opening.lastgroup == "lead" else "dim", start, start + place)
    if opening and opening.lastgroup == "heading":
        text.stylize("bold", start + place, start + len(line))
    for match in _INLINE.finditer(line, place):
        for group, style in _STYLES.items():
            if match[group] is not None:
                text.stylize(style, start + match.start(group), start + match.end(group))


class Prose:
    """Text whose lines, where they do not fit, go on below their own beginning: behind the mark of a list."""

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
