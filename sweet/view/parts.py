"""What is shown of trajectories, in parts: each a heading, and below it a body that is made when it is drawn.

A terminal that prints draws all of them, one below the other. A screen draws those that are seen: so a part tells
what it is before its body is made, and a long body comes in blocks, which are drawn one by one. Headings begin in the
first column and bodies do not, so no text of a model can pass for a heading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.text import Text

from sweet.view.code import Code, highlighted, pieces
from sweet.view.styled_markdown import markdown
from sweet.view.text import printable, printable_line

UNWRAPPED = 400
"""Columns from which on the output is taken to be no terminal."""
INDENT = 2
BLOCK = 4_000
"""Characters of a text that are drawn at once."""
LONGEST_LINE = 5 * BLOCK
"""Characters of a line that are drawn at once: a longer one goes on in the next block, on a line of its own."""


@dataclass(frozen=True)
class Block:
    """A piece of a body.

    Attributes:
        make: what to draw.
        lines, characters: how many there are in it, for guessing its height.
    """

    make: Callable[[], RenderableType]
    lines: int = 1
    characters: int = 0


Body = Callable[[], Iterable[Block]]


@dataclass(frozen=True)
class Part:
    """One part of what is shown.

    Attributes:
        kind: by which a screen folds it: human, agent, candidates, …
        title: its heading; empty where it needs none.
        body: makes its blocks.
        turn: the index into the dialogue that it belongs to.
        note: told at the right end of the heading.
        characters: of its text, about, for guessing its height.
        inner: it belongs to the part above it, and stands further in.
    """

    kind: str
    title: Text
    body: Body
    turn: int | None = None
    note: str = ""
    characters: int = 0
    inner: bool = False

    @property
    def indent(self) -> int:
        return INDENT if self.inner else 0

    def heading(self, fold: str = "") -> RenderableType:
        """The heading, behind a mark that tells whether the part is folded, where it can be."""
        line = Heading(Text().append(fold, "dim").append_text(self.title), self.note, self.indent)
        return line if self.inner else Group("", line)

    def indented(self, block: Block) -> RenderableType:
        """A block where it stands below the heading."""
        return Indented(block.make(), self.indent + INDENT if self.title else 0)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.title:
            yield self.heading()
        for block in self.body():
            yield self.indented(block)


@dataclass(frozen=True)
class Heading:
    """A line with a title at its left end, a note at its right, and a rule between them."""

    title: Text
    note: str
    indent: int = 0

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        note = printable_line(self.note)
        line = self.title.copy()
        line.overflow = "fold"
        if options.max_width >= UNWRAPPED:
            yield Text("── ").append_text(line).append(f" · {note}" if note else "")
            return
        indent = self.indent if options.max_width > 4 * self.indent else 0
        room = options.max_width - indent - line.cell_len - 1
        told = f" {note}" if note else ""
        if room > cell_len(told):
            line.append(" ").append("─" * (room - cell_len(told)) + told, "dim")
        elif note:
            line.append(f" · {note}", "dim")
        yield Padding(line, (0, 0, 0, indent))


@dataclass(frozen=True)
class Indented:
    """Something further to the right, where there is room; not where nothing wraps."""

    inner: RenderableType
    by: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        unwrapped = options.max_width >= UNWRAPPED
        by = 0 if unwrapped or options.max_width <= 4 * self.by else self.by
        yield Padding(self.inner, (0, 0, 0, by), expand=False) if by else self.inner


def one(make: Callable[[], RenderableType], lines: int = 1) -> Body:
    """A body of one block."""
    return lambda: [Block(make, lines)]


def plain(text: str) -> Iterator[Block]:
    """Text as it is."""
    yield from cut(Text(printable(text), overflow="fold"))


def prose(text: str, language: str, *, whole: bool = False) -> Iterator[Block]:
    """Markdown with code in it. `whole`: text without a fence is code of that language."""
    for piece in pieces(text, language, whole=whole):
        if piece.language:
            yield from cut(highlighted(piece.text, piece.language), Code)
        else:
            for start, end in _cuts(piece.text):
                text = piece.text[start:end]
                yield Block(partial(markdown, text), text.count("\n") + 1, len(text))


def cut(text: Text, draw: Callable[[Text], RenderableType] = Text.copy) -> Iterator[Block]:
    """A text in blocks."""
    places = _cuts(text.plain)
    for (start, end), part in zip(places, text.divide([start for start, _ in places[1:]]), strict=True):
        if more := len(part) - (end - start):
            part.right_crop(more)
        yield Block(partial(draw, part), part.plain.count("\n") + 1, len(part))


def _cuts(text: str) -> Sequence[tuple[int, int]]:
    """Where blocks of about BLOCK characters begin and end: at line ends, which belong to none."""
    places, start = [], 0
    while len(text) - start > BLOCK:
        feed = text.find("\n", start + BLOCK, start + LONGEST_LINE + 1)
        if feed < 0 and len(text) - start <= LONGEST_LINE:
            break
        end = start + LONGEST_LINE if feed < 0 else feed
        places.append((start, end))
        start = end if feed < 0 else feed + 1
    return [*places, (start, len(text))]
