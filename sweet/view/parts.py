"""Parts of a shown dialogue: a heading, and a body that is made when it is drawn.

Printing draws all parts one below the other; a screen does not draw those that are folded. Headings begin in the first
column and bodies do not, so that text of a model cannot imitate a heading.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.text import Text

from sweet.view.run_screenshots import Picture
from sweet.view.text import printable_line

INDENT = 2

Pictures = Sequence[tuple[str, Picture]]


@dataclass(frozen=True)
class Part:
    """One part of a shown dialogue.

    Attributes:
        kind: human, agent, candidates, …; a screen folds parts by their kind.
        title: its heading; empty for a part without a heading.
        body: returns what is below it.
        turn: its index in the dialogue.
        note: shown at the right end of the heading.
        characters: the approximate length of its text: a screen folds a long one.
        inner: it belongs to the part above it, and is indented.
        differs: in a comparison, its two sides are not equal.
        pictures: returns pictures with their titles, instead of a body. A screen draws them; what is printed says
            their sizes and files.
    """

    kind: str
    title: Text
    body: Callable[[], RenderableType] = Text
    turn: int | None = None
    note: str = ""
    characters: int = 0
    inner: bool = False
    differs: bool = False
    pictures: Callable[[], Pictures] | None = None

    @property
    def indent(self) -> int:
        return INDENT if self.inner else 0

    def heading(self, fold: str = "") -> RenderableType:
        """Return the heading after `fold`, the mark of a part that can be folded."""
        line = Heading(Text().append(fold, "dim").append_text(self.title), self.note, self.indent)
        return line if self.inner else Group("", line)

    def content(self) -> RenderableType:
        """Return the body with the indentation below the heading."""
        body = self.body() if self.pictures is None else Group(*(described(*one) for one in self.pictures()))
        return Indented(body, self.indent + INDENT if self.title else 0)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.title:
            yield self.heading()
        yield self.content()


def described(title: str, picture: Picture) -> Text:
    return Text(f"{title}: {printable_line(picture.description)}")


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
    """Indents its content if there is room."""

    inner: RenderableType
    by: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        by = self.by if options.max_width > 4 * self.by else 0
        yield Padding(self.inner, (0, 0, 0, by), expand=False) if by else self.inner
