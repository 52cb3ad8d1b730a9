"""A scrolled view of the parts of one dialogue, or of two side by side.

A part has a heading and a body. Thoughts, candidates and pairs are folded at first, as are texts that are very long:
what is folded is not drawn. Pictures are drawn by textual-image, by the protocol that it found for this terminal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.widget import Widget
from textual.widgets import Static

from sweet.view.parts import Part, described
from sweet.view.run_screenshots import Picture, Unreadable, scaled
from sweet.view.text import printable_line

if TYPE_CHECKING:
    from PIL import Image as Images

FOLDED, OPEN = "▸ ", "▾ "
THOUGHTS = frozenset({"thought", "calls", "result"})
"""The kinds of parts that the human does not see."""
RANKED = frozenset({"candidates", "pairs"})
LONG = 20_000
"""Characters of a text from which on it is folded at first."""
STOPS = frozenset({"agent", "answer"})
"""The kinds of parts that `jump` stops at."""
NARROWEST = 16
"""Cells of width below which pictures are stacked vertically."""
GAP = 2
"""Cells between two pictures."""
HIGHEST = 36
"""Most rows of a picture that is not shown whole; longer ones are cropped at the bottom."""
HIGHEST_WHOLE = 290
"""Most rows of a picture: kitty's placeholders number 297."""

HIT = Style(reverse=True)
"""How a text that was searched for is drawn."""


class Drawn:
    """A part's body, drawn once for a width; a text that was searched for is reversed wherever it is on one line."""

    def __init__(self, part: Part, hit: str) -> None:
        self._part, self._hit = part, printable_line(hit)
        self._lines: list[list[Segment]] = []
        self._width = 0

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self._width != options.max_width:
            self._width = options.max_width
            lines = console.render_lines(self._part.content(), options.update(height=None), pad=False)
            self._lines = [list(self._marked(line)) for line in lines]
        for line in self._lines:
            yield from line
            yield Segment.line()

    def _marked(self, line: list[Segment]) -> Iterator[Segment]:
        text = "".join(segment.text for segment in line)
        hits = re.finditer(re.escape(self._hit), text, re.I) if self._hit else ()
        ends = [cell_len(text[:end]) for hit in hits for end in hit.span()]
        for number, part in enumerate(Segment.divide(line, [*ends, cell_len(text)])):
            yield from Segment.apply_style(part, post_style=HIT) if number % 2 else part


def foldable(part: Part) -> bool:
    """Return whether a part can be folded, and is at first."""
    return part.kind in THOUGHTS | RANKED or part.characters > LONG


class PartHeading(Static):
    """The heading of a part; a click opens or folds what can be folded."""

    def on_click(self) -> None:
        view = self.parent
        assert isinstance(view, PartView)
        view.fold(not view.folded)


class PartView(Vertical):
    """One part."""

    DEFAULT_CSS = "PartView { height: auto; } PartView Horizontal { height: auto; }"

    def __init__(self, part: Part, *, folded: bool, hit: str, whole_pictures: bool) -> None:
        super().__init__()
        self.part, self.folded = part, folded
        self._drawn, self._whole_pictures = Drawn(part, hit), whole_pictures

    def compose(self) -> ComposeResult:
        mark = "" if not foldable(self.part) else FOLDED if self.folded else OPEN
        if self.part.title:
            yield PartHeading(self.part.heading(mark))
        if self.folded:
            return
        if self.part.pictures is None:
            yield Static(self._drawn)
        else:
            yield Pictures(self.part.pictures(), whole=self._whole_pictures)

    def fold(self, folded: bool) -> None:
        if foldable(self.part) and folded != self.folded:
            self.folded = folded
            self.refresh(recompose=True)


class Pictures(Widget):
    """Pictures side by side, each below its title; one above the other where they would be too narrow."""

    DEFAULT_CSS = "Pictures { height: auto; padding: 0 0 0 2; } Pictures Vertical { height: auto; width: auto; }"

    def __init__(self, pictures: Sequence[tuple[str, Picture]], *, whole: bool) -> None:
        super().__init__()
        self._pictures, self._whole = pictures, whole
        self._width = 0

    def on_resize(self, event: events.Resize) -> None:
        if event.size.width != self._width:
            self._width = event.size.width
            self.refresh(recompose=True)

    def compose(self) -> ComposeResult:
        if not self._width:
            return
        across = self._width // len(self._pictures) - GAP
        row = across >= NARROWEST and any(picture.screenshot for _, picture in self._pictures)
        columns = [Vertical(*self._column(*one, across if row else self._width)) for one in self._pictures]
        for column in columns:
            column.styles.margin = (0, GAP, 0, 0)
        yield (Horizontal if row else Vertical)(*columns)

    def _column(self, title: str, picture: Picture, width: int) -> Iterator[Widget]:
        shot = picture.screenshot
        if shot is None or self.app.no_color:
            yield _text(described(title, picture), width)
            return
        try:
            from textual_image._terminal import get_cell_size
            from textual_image.widget import HalfcellImage, Image

            half = self.app.is_headless or self.app.is_web
            cell = (1, 2) if half else get_cell_size()
            rows = HIGHEST_WHOLE if self._whole else HIGHEST
            image = scaled(shot.png, shot.width, rows * cell[1] * shot.width // (width * cell[0]))
        except ImportError:
            yield _text(described(title, picture), width)
        except Unreadable as reason:
            yield _text(Text(f"{title}: {reason}"), width)
        else:
            yield _text(caption(title, picture, image), width)
            drawn = (HalfcellImage if half else Image)(image)
            drawn.styles.width = width
            drawn.styles.height = max(1, round(image.height * width * cell[0] / (image.width * cell[1])))
            yield drawn


def caption(title: str, picture: Picture, image: Images.Image) -> Text:
    """Return what is above a drawn picture, which `image` may show the beginning of."""
    shot = picture.screenshot
    assert shot is not None
    words = Text(f"{title} · {shot.width} × {shot.height}", style="dim")
    shown = round(image.height * shot.width / image.width)
    return words.append(f", the first {shown} shown") if shown < shot.height - shot.width // image.width else words


def _text(text: Text, width: int) -> Static:
    line = Static(text, markup=False)
    line.styles.width = width
    return line


class PartsView(VerticalScroll):
    """Parts, one below the other."""

    DEFAULT_CSS = "PartsView { height: 1fr; padding: 0 1; overflow-x: hidden; overflow-y: scroll; }"
    ALLOW_MAXIMIZE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "line(1)", "down", show=False),
        Binding("k", "line(-1)", "up", show=False),
        Binding("space", "page(1)", "a screen down", show=False),
        Binding("backspace", "page(-1)", "a screen up", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._opened: set[str] = set()
        self.hit = ""
        self.whole_pictures = False

    @property
    def views(self) -> list[PartView]:
        return list(self.query_children(PartView))

    async def show(self, parts: Sequence[Part], *, stay: bool = False, at: str = "", end: bool = False) -> None:
        """Replace the parts.

        Args:
            stay: keep the scroll position at the part that is at the upper edge.
            at: scroll to the first part of this kind instead.
            end: scroll to the end instead.
        """
        top = self.top()
        below = self.scroll_offset.y - _start(top) if top is not None else 0
        folded = {_key(view.part): view.folded for view in self.views} if stay else {}
        views = [
            PartView(
                part,
                folded=part.kind not in self._opened and folded.get(_key(part), foldable(part)),
                hit=self.hit,
                whole_pictures=self.whole_pictures,
            )
            for part in parts
        ]
        async with self.batch():
            await self.remove_children()
            await self.mount_all(views)
        if end:
            self.call_after_refresh(self.scroll_end, animate=False, immediate=True)
            return
        goal = None
        if at:
            goal, below = next((view for view in views if view.part.kind == at), None), 0
        elif stay and top is not None:
            goal = next((view for view in views if _key(view.part) == _key(top.part)), None)
        target = goal
        self.call_after_refresh(lambda: self._scroll(0 if target is None else _start(target) + below))

    def top(self) -> PartView | None:
        """Return the part at the upper edge."""
        here = self.scroll_offset.y
        return next((view for view in reversed(self.views) if _start(view) <= here), None)

    def _scroll(self, y: int) -> None:
        self.scroll_to(y=y, animate=False, immediate=True)

    def has(self, kinds: frozenset[str]) -> bool:
        return any(view.part.kind in kinds for view in self.views)

    def fold(self, kinds: frozenset[str]) -> None:
        """Open all parts of these kinds, or fold them if one is open."""
        views = [view for view in self.views if view.part.kind in kinds]
        folded = any(not view.folded for view in views)
        self._opened = self._opened - kinds if folded else self._opened | kinds
        self._fold(views, folded)

    def fold_here(self) -> None:
        """Open or fold what can be folded of the turn that is at the upper edge, or of the first one below it."""
        top, views = self.top(), self.views
        below = views if top is None else views[views.index(top) :]
        first = next((view for view in below if foldable(view.part)), None)
        if first is not None:
            same = [view for view in views if foldable(view.part) and view.part.turn == first.part.turn]
            self._fold(same, any(not view.folded for view in same))

    def _fold(self, views: Sequence[PartView], folded: bool) -> None:
        """Fold parts; the part at the upper edge stays there."""
        top = self.top()
        for view in views:
            view.fold(folded)
        if top is not None:
            below = 0 if top in views else self.scroll_offset.y - _start(top)
            self.call_after_refresh(lambda: self._scroll(_start(top) + below))

    def action_line(self, lines: int) -> None:
        self.scroll_relative(y=lines, animate=False)

    def action_page(self, pages: int) -> None:
        self.scroll_relative(y=pages * max(self.size.height - 1, 1), animate=False)

    def jump(self, step: int) -> bool:
        """Scroll to the next or the previous turn of the agent; return False if there is none."""
        return self._to([view for view in self.views if view.part.kind in STOPS], step)

    def next_difference(self) -> bool:
        """Scroll to the next part whose sides differ; return False if there is none."""
        return self._to([view for view in self.views if view.part.differs], 1)

    def _to(self, views: Sequence[PartView], step: int) -> bool:
        here = self.scroll_offset.y
        further = [start for start in map(_start, views) if (start > here if step > 0 else start < here)]
        if not further or (step > 0 and here >= self.max_scroll_y):
            return False
        self._scroll(further[0] if step > 0 else further[-1])
        return True


def _key(part: Part) -> tuple[str, int | None]:
    return part.kind, part.turn


def _start(view: PartView) -> int:
    """Return the line of a part's heading, below the blank line of an outer one."""
    return view.virtual_region.y
