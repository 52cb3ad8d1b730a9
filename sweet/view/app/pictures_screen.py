"""The screen of pages beside their reference, as large as the terminal allows.

The pictures have the width of their columns and scroll together. Where the terminal shows pictures they are drawn by
textual-image (`sweet.view.app.graphics`), else as half blocks, and the head says which.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from rich.text import Text
from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, VerticalScroll
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Static

from sweet.tasks.trajectory import Trajectory
from sweet.view.app.frame import Facts, Keys, attempt, show_message
from sweet.view.app.graphics import Graphics
from sweet.view.half_blocks import GAP, NARROWEST, HalfBlocks
from sweet.view.records import Summary
from sweet.view.run_screenshots import Picture, RunScreenshots, Unreadable, scaled
from sweet.view.text import printable_line

if TYPE_CHECKING:
    from PIL import Image

HIGHEST = 290
"""Most rows of a picture: kitty's placeholders number 297."""


@dataclass(frozen=True)
class Shown:
    """Pictures that are shown together.

    Attributes:
        title: what they are of.
        find: returns the pictures with their titles.
    """

    title: str
    find: Callable[[], Sequence[tuple[str, Picture]]]


class PicturesScreen(Screen[None], inherit_bindings=False):
    """Shows pictures side by side.

    Args:
        current: the trajectory that they are of.
        shown: those that n and p step through, starting at `position`.
    """

    DEFAULT_CSS = f"""
    PicturesScreen VerticalScroll {{ height: 1fr; }}
    PicturesScreen #columns {{ layout: horizontal; width: 100%; height: auto; }}
    PicturesScreen #columns.-stacked {{ layout: vertical; }}
    PicturesScreen .column {{ width: 1fr; height: auto; margin: 0 {GAP} 0 0; }}
    PicturesScreen .-stacked .column {{ width: 100%; margin: 0; }}
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "walk(1)", "next", tooltip="next pictures"),
        Binding("p", "walk(-1)", "previous", tooltip="previous pictures"),
        Binding("j", "line(1)", "down", show=False),
        Binding("k", "line(-1)", "up", show=False),
        Binding("space", "page(1)", "a screen down", show=False),
        Binding("backspace", "page(-1)", "a screen up", show=False),
        Binding("q,escape,i", "app.leave", "back"),
    ]

    def __init__(self, current: Summary, shown: Sequence[Shown], position: int, graphics: Graphics) -> None:
        super().__init__()
        self._current, self.shown, self.position, self.graphics = current, shown, position, graphics
        self._pictures: Sequence[tuple[str, Picture]] = ()

    def compose(self) -> ComposeResult:
        yield Facts()
        with VerticalScroll():
            yield Container(id="columns")
        yield Keys()

    def on_mount(self) -> None:
        # Textual has reduced the number that a placeholder's colour stands for, if the terminal has fewer colours.
        if self.graphics.protocol == "kitty" and (self.app.no_color or self.app.console.color_system != "truecolor"):
            self.graphics = Graphics(why="kitty's protocol requires true colour (COLORTERM=truecolor)")
        self.query_one(VerticalScroll).focus()

    async def on_resize(self, _: events.Resize) -> None:
        await self._draw()

    @property
    def current(self) -> Summary:
        return self._current

    def text_to_copy(self) -> str:
        """Return the descriptions: sizes and files."""
        return "\n".join(f"{title}: {picture.description}" for title, picture in self._pictures)

    def reload(self) -> None:
        """The pictures stay as they were found."""

    async def _draw(self) -> None:
        one = self.shown[self.position]
        if not attempt(self.app, self._find):
            return
        several = f"{self.position + 1:,} of {len(self.shown):,}" if len(self.shown) > 1 else ""
        self.query_one(Facts).set_facts([Text(one.title, "bold"), several, self._current.id, self.graphics.words])
        columns = self.query_one("#columns", Container)
        width = (self.size.width - 1) // max(len(self._pictures), 1) - GAP
        columns.set_class(width < NARROWEST, "-stacked")
        if width < NARROWEST:
            width = self.size.width - 1
        drawn = [Container(*self._column(title, picture, width), classes="column") for title, picture in self._pictures]
        await columns.remove_children()
        await columns.mount_all(drawn)

    def _find(self) -> None:
        self._pictures = self.shown[self.position].find()

    def _column(self, title: str, picture: Picture, width: int) -> list[Widget]:
        """Return the caption and the picture, `width` cells wide."""
        shot = picture.screenshot
        if shot is None or self.app.no_color:
            return [Static(Text(f"{title}: {printable_line(picture.description)}"))]
        try:
            if self.graphics.protocol is None:
                image = scaled(shot.png, width, 2 * HIGHEST)
            else:
                image = scaled(shot.png, shot.width, int(HIGHEST / self.graphics.rows(shot.width, 1, width)))
        except Unreadable as reason:
            return [Static(Text(f"{title}: {reason}"))]
        words = Text(f"{title} · {shot.width} × {shot.height}", style="dim")
        cut = round(image.height * shot.width / image.width)
        if cut < shot.height - shot.width // image.width:
            words.append(f", the first {cut} shown")
        return [Static(words), self._widget(image, width)]

    def _widget(self, image: Image.Image, width: int) -> Widget:
        return Static(HalfBlocks(image)) if self.graphics.protocol is None else self.graphics.widget(image, width)

    async def action_walk(self, step: int) -> None:
        if not 0 <= self.position + step < len(self.shown):
            show_message(self.app, "these are the last ones" if step > 0 else "these are the first ones")
            return
        self.position += step
        self.query_one(VerticalScroll).scroll_home(animate=False)
        await self._draw()

    def action_line(self, lines: int) -> None:
        self.query_one(VerticalScroll).scroll_relative(y=lines, animate=False)

    def action_page(self, pages: int) -> None:
        view = self.query_one(VerticalScroll)
        view.scroll_relative(y=pages * max(view.size.height - 1, 1), animate=False)


def shows_pictures(screenshots: RunScreenshots | None) -> bool:
    """Return whether there are pictures to ask for: the dialogues are about pages, and --no-pictures was not given."""
    return screenshots is not None and screenshots.draw


def pages_of_turns(trajectory: Trajectory, screenshots: RunScreenshots) -> tuple[list[int], list[Shown]]:
    """Return the turns of the agent that have a page, and the pictures of each beside the reference."""
    turns, shown = [], []
    agent = [(index, turn) for index, turn in enumerate(trajectory.dialogue_history) if turn.role == "assistant"]
    for number, (index, turn) in enumerate(agent, 1):
        if screenshots.page(turn.said) is not None:
            turns.append(index)
            title = f"turn {number}"
            shown.append(Shown(title, partial(screenshots.beside_reference, trajectory, title, turn)))
    return turns, shown


def show_pictures(app: App[Any], current: Summary, shown: Sequence[Shown], position: int) -> None:
    """Open the screen with the graphics of the application."""
    graphics = getattr(app, "graphics", Graphics())
    app.push_screen(PicturesScreen(current, shown, position, graphics))
