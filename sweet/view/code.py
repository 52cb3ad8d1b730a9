"""Draw a text of a model: prose with the styles of Markdown, and fenced code with colours.

Every character that the model wrote is shown: markup has a style and is not interpreted, so nothing is hidden behind a
link, an image or a comment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

from rich.cells import chop_cells
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from sweet.view.text import printable

HIGHLIGHT_LIMIT = 50_000
"""Characters up to which a text is searched for code and highlighted; the highlighter is slow on long texts."""

_NAMES = {
    "python": ("py", "python", "python3", "py3", "pycon"),
    "html": ("html", "htm", "xml", "svg"),
    "css": ("css",),
    "javascript": ("javascript", "js", "typescript", "ts", "jsx"),
    "json": ("json",),
    "sql": ("sql", "sqlite", "postgresql", "mysql"),
    "bash": ("bash", "sh", "shell", "console"),
    "yaml": ("yaml", "yml"),
    "toml": ("toml",),
    "c": ("c", "h"),
    "cpp": ("cpp", "c++"),
    "java": ("java",),
    "go": ("go",),
    "rust": ("rust", "rs"),
}
"""Highlighters, and the words after a fence that select them. A model cannot select others."""

LANGUAGES = {word: language for language, words in _NAMES.items() for word in words}

_FENCED = re.compile(
    r"^[ \t]*+```[ \t]*+(?P<word>[\w+-]*+)[ \t]*+\n(?P<code>.*?)(?:^[ \t]*+```[ \t]*$|\Z)", re.M | re.S
)
_MARKDOWN = (
    (re.compile(r"^ {0,3}#{1,6}[ \t].{0,500}$", re.M), "bold"),
    (re.compile(r"^[ \t]{0,20}(?:[-*+]|[0-9]{1,9}[.)])(?=[ \t])", re.M), "bold"),
    (re.compile(r"\*\*(?=\S)[^*\n]{1,500}(?<=\S)\*\*"), "bold"),
    (re.compile(r"`[^`\n]{1,500}`"), "cyan"),
)
"""What has a style in prose: headings, marks of lists, strong text and code."""


@dataclass(frozen=True)
class Fragment:
    """A part of a text. `language` is empty for prose, and `text` for code without a highlighter."""

    text: str
    language: str = ""


def fragments(text: str, language: str, *, whole: bool) -> list[Fragment]:
    """Split a text into prose and fenced code. The fences stay in the prose, so that no text is lost.

    Args:
        language: the language of a fence without a word.
        whole: a text without any fence is code in `language`.
    """
    if len(text) > HIGHLIGHT_LIMIT:
        return [Fragment(text)]
    parts: list[Fragment] = []
    position = 0
    for match in _FENCED.finditer(text):
        start, end = match.span("code")
        parts.append(Fragment(text[position:start].removesuffix("\n")))
        word = match["word"].lower()
        fenced = LANGUAGES.get(word, "text") if word else language or "text"
        parts.append(Fragment(text[start:end].removesuffix("\n"), fenced))
        position = end
    if not parts:
        return [Fragment(text, language if whole else "")]
    rest = text[position:].removesuffix("\n")
    return [fragment for fragment in [*parts, Fragment(rest)] if fragment.text]


def plain(text: str) -> Text:
    """Return unchanged text."""
    return Text(printable(text), overflow="fold")


def prose(text: str, language: str, *, whole: bool = False) -> RenderableType:
    """Return Markdown with code. `whole`: a text without a fence is code in `language`."""
    return Group(
        *(
            Code(highlighted(fragment.text, fragment.language)) if fragment.language else _markdown(fragment.text)
            for fragment in fragments(text, language, whole=whole)
        )
    )


def _markdown(text: str) -> Text:
    markdown = plain(text)
    if len(text) <= HIGHLIGHT_LIMIT:
        for pattern, style in _MARKDOWN:
            markdown.highlight_regex(pattern, style)
    return markdown


def highlighted(code: str, language: str) -> Text:
    """Return code with colours and otherwise unchanged; without colours if the language is unknown."""
    from rich.syntax import Syntax

    text = Syntax("", language, theme="ansi_dark", background_color="default").highlight(printable(code))
    text.rstrip()
    return text


def tokens(code: str, language: str) -> Iterator[tuple[str, str]]:
    """Split code into tokens, each with its kind: keyword, name, string, number, comment, or empty.

    The concatenated tokens are the unchanged code. If the language is unknown, the whole code is one token.
    """
    from pygments.lexers import get_lexer_by_name
    from pygments.token import Token
    from pygments.util import ClassNotFound

    kinds = (
        ("keyword", (Token.Keyword, Token.Operator.Word, Token.Name.Tag)),
        ("name", (Token.Name.Function, Token.Name.Class, Token.Name.Attribute)),
        ("string", (Token.Literal.String,)),
        ("number", (Token.Literal.Number,)),
        ("comment", (Token.Comment,)),
    )
    try:
        lexer = get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        yield "", code
        return
    for token, part in lexer.get_tokens(code):
        yield next((name for name, its in kinds if any(token in one for one in its)), ""), part


@dataclass(frozen=True)
class Code:
    """Code whose long lines are split at the width of the console, not between words."""

    text: Text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self.text.split("\n", allow_blank=True):
            line.expand_tabs(4)
            ends = list(accumulate(map(len, chop_cells(line.plain, options.max_width))))
            for part in line.divide(ends[:-1]):
                part.no_wrap = True
                yield part
