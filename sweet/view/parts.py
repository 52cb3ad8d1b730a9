"""Parts of a displayed trajectory: a heading, and a body that is made when it is drawn.

Printing draws all parts one below the other. A screen draws only the visible ones: therefore the heading of a part is
available before its body, and a long body is split into blocks, which are drawn separately. Headings begin in the first
column and bodies do not, so that text of a model cannot imitate a heading.
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
"""Columns from which on the output is assumed not to be a terminal."""
INDENT = 2
BLOCK = 4_000
"""Characters of a text in one block."""
LONGEST_LINE = 5 * BLOCK
"""Characters of a line in one block: a longer line continues in the next block."""


@dataclass(frozen=True)
class Block:
    """A piece of a body.

    Attributes:
        make: returns what to draw.
        lines, characters: its size, from which its height is estimated.
    """

    make: Callable[[], RenderableType]
    lines: int = 1
    characters: int = 0


Body = Callable[[], Iterable[Block]]


@dataclass(frozen=True)
class Part:
    """One part of a displayed trajectory.

    Attributes:
        kind: human, agent, candidates, …; a screen folds parts by their kind.
        title: its heading; empty for a part without a heading.
        body: returns its blocks.
        turn: its index in the dialogue.
        note: shown at the right end of the heading.
        characters: the approximate length of its text, from which its height is estimated.
        inner: it belongs to the part above it, and is indented.
        differs: in a comparison, its two sides are not equal.
    """

    kind: str
    title: Text
    body: Body
    turn: int | None = None
    note: str = ""
    characters: int = 0
    inner: bool = False
    differs: bool = False

    @property
    def indent(self) -> int:
        return INDENT if self.inner else 0

    def heading(self, fold: str = "") -> RenderableType:
        """Return the heading after `fold`, the mark of a part that can be folded."""
        line = Heading(Text().append(fold, "dim").append_text(self.title), self.note, self.indent)
        return line if self.inner else Group("", line)

    def indented(self, block: Block) -> RenderableType:
        """Return a block with the indentation below the heading."""
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
        right = f" {note}" if note else ""
        if room > cell_len(right):
            line.append(" ").append("─" * (room - cell_len(right)) + right, "dim")
        elif note:
            line.append(f" · {note}", "dim")
        yield Padding(line, (0, 0, 0, indent))


@dataclass(frozen=True)
class Indented:
    """Indents its content if there is room, and not in unwrapped output."""

    inner: RenderableType
    by: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        unwrapped = options.max_width >= UNWRAPPED
        by = 0 if unwrapped or options.max_width <= 4 * self.by else self.by
        yield Padding(self.inner, (0, 0, 0, by), expand=False) if by else self.inner


def single_block(make: Callable[[], RenderableType], lines: int = 1) -> Body:
    """Return a body of one block."""
    return lambda: [Block(make, lines)]


def plain(text: str) -> Iterator[Block]:
    """Yield unchanged text."""
    yield from split_blocks(Text(printable(text), overflow="fold"))


def prose(text: str, language: str, *, whole: bool = False) -> Iterator[Block]:
    """Yield Markdown with code. `whole`: a text without a fence is code in `language`."""
    for piece in pieces(text, language, whole=whole):
        if piece.language:
            yield from split_blocks(highlighted(piece.text, piece.language), Code)
        else:
            for start, end in _ranges(piece.text):
                text = piece.text[start:end]
                yield Block(partial(markdown, text), text.count("\n") + 1, len(text))


def split_blocks(text: Text, draw: Callable[[Text], RenderableType] = Text.copy) -> Iterator[Block]:
    """Split a text into blocks."""
    ranges = _ranges(text.plain)
    for (start, end), part in zip(ranges, text.divide([start for start, _ in ranges[1:]]), strict=True):
        if more := len(part) - (end - start):
            part.right_crop(more)
        yield Block(partial(draw, part), part.plain.count("\n") + 1, len(part))


def _ranges(text: str) -> Sequence[tuple[int, int]]:
    """Return the ranges of blocks of about BLOCK characters. They end at line feeds, which belong to no block."""
    ranges, start = [], 0
    while len(text) - start > BLOCK:
        feed = text.find("\n", start + BLOCK, start + LONGEST_LINE + 1)
        if feed < 0 and len(text) - start <= LONGEST_LINE:
            break
        end = start + LONGEST_LINE if feed < 0 else feed
        ranges.append((start, end))
        start = end if feed < 0 else feed + 1
    return [*ranges, (start, len(text))]
