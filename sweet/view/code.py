"""Which parts of a text are code, and code with colours."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

from rich.cells import chop_cells
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from sweet.view.text import printable

HIGHLIGHTED = 50_000
"""Characters up to which a text is searched for code, and highlighted: the highlighter is slow on what nobody reads."""

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
"""Highlighters, and the words behind a fence that ask for them. A model may ask for no other."""

LANGUAGES = {word: language for language, words in _NAMES.items() for word in words}

_FENCED = re.compile(r"^[ \t]*```[ \t]*(?P<word>[\w+-]*)[ \t]*\n(?P<code>.*?)(?:^[ \t]*```[ \t]*$|\Z)", re.M | re.S)


@dataclass(frozen=True)
class Piece:
    """A part of a text; `language` is empty for prose, and `text` for code that no highlighter knows."""

    text: str
    language: str = ""


def pieces(text: str, language: str, *, whole: bool) -> list[Piece]:
    """The text in parts, prose and fenced code; the fences themselves stay with the prose, so that nothing is lost.

    `language` is that of a fence without a word, and with `whole` that of a text without any fence.
    """
    if len(text) > HIGHLIGHTED:
        return [Piece(text)]
    found: list[Piece] = []
    position = 0
    for match in _FENCED.finditer(text):
        start, end = match.span("code")
        found.append(Piece(text[position:start].removesuffix("\n")))
        word = match["word"].lower()
        spoken = LANGUAGES.get(word, "text") if word else language or "text"
        found.append(Piece(text[start:end].removesuffix("\n"), spoken))
        position = end
    if not found:
        return [Piece(text, language if whole else "")]
    rest = text[position:].removesuffix("\n")
    return [piece for piece in [*found, Piece(rest)] if piece.text]


def highlighted(code: str, language: str) -> Text:
    """Code with colours, and nothing else of it changed; plain where the language is not known."""
    from rich.syntax import Syntax

    text = Syntax("", language, theme="ansi_dark", background_color="default").highlight(printable(code))
    text.rstrip()
    return text


def tokens(code: str, language: str) -> Iterator[tuple[str, str]]:
    """Code in parts, nothing of it changed, each with what it is: keyword, name, string, number, comment, or nothing;
    all of it nothing where the language is not known."""
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
    """Code as it stands: a line that does not fit is parted where the room ends, not where a word does."""

    text: Text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self.text.split("\n", allow_blank=True):
            line.expand_tabs(4)
            ends = list(accumulate(map(len, chop_cells(line.plain, options.max_width))))
            for part in line.divide(ends[:-1]):
                part.no_wrap = True
                yield part
