"""The screenshots of a run's pages: found by the page that they show, read, and scaled.

A page that an agent wrote is never rendered here, only looked up: its screenshot lies in the run, made when the human
saw the page or when it was scored, by a name that follows from the page's text. What comes of a picture is pixels,
which `sweet.view.half_blocks` draws on a terminal and `sweet.view.html_screenshots` puts into a page.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from sweet.errors import UsageError
from sweet.installation import install_command
from sweet.render.page import RenderFailed, RenderSettings, Screenshot, page_key
from sweet.render.store import SCREENSHOTS, ScreenshotStore
from sweet.runs.manifest import Artifact
from sweet.runs.run import Run
from sweet.tasks.base import Recipe
from sweet.tasks.html.page import without_page
from sweet.tasks.kind import TaskKind
from sweet.tasks.registry import task_kind
from sweet.tasks.trajectory import Turn

if TYPE_CHECKING:
    from PIL import Image

LARGEST = 50_000_000
"""Pixels of a picture that is read; a screenshot of ours has at most 13 million."""


class Unreadable(Exception):
    """A picture cannot be shown: `str()` says why, for people."""


@dataclass(frozen=True)
class Picture:
    """What there is to see of a page.

    Attributes:
        screenshot: None where there is none.
        told: in words: the size and the file, or why there is none. Text of a page may stand in it.
    """

    screenshot: Screenshot | None
    told: str


class Album:
    """The screenshots of one rollouts artifact.

    Attributes:
        draw: whether they are shown, and not only named.
    """

    def __init__(self, run: Run, kind: TaskKind, recipe: Recipe, *, draw: bool = True) -> None:
        self.run, self.kind, self.recipe, self.draw = run, kind, recipe, draw
        self._store = ScreenshotStore(run.path / SCREENSHOTS)
        self._settings = RenderSettings()

    @classmethod
    def of(cls, run: Run, rollouts: Artifact, *, draw: bool) -> Album | None:
        """The album of a run whose dialogues are about pages; None for another."""
        try:
            kind = task_kind(run.manifest().task)
        except UsageError:  # of a plug-in that is not installed here
            return None
        recipe: Recipe = "upstream" if rollouts.meta.get("recipe") == "upstream" else "paper"
        return cls(run, kind, recipe, draw=draw) if kind.visual else None

    def page(self, reply: str) -> str | None:
        """The page in a raw reply, as it was rendered; None where there is none."""
        return self.kind.move(reply, last=False, recipe=self.recipe).answer

    def of_turn(self, turn: Turn) -> Picture:
        """What the human saw of a turn of the agent."""
        page = self.page(turn.said)
        return Picture(None, "the reply holds no page") if page is None else self.of_page(page)

    def of_page(self, page: str) -> Picture:
        """A page by its HTML."""
        key = page_key(page, self._settings)
        found = self._store.get(key)
        if isinstance(found, RenderFailed):
            return Picture(None, f"the page did not load: {found}")
        if found is None:
            return Picture(
                None, f"not rendered: no screenshot of it in {SCREENSHOTS}/ (sweet eval renders the last page)"
            )
        return Picture(found, f"{found.width} × {found.height}, {self._named(self._store.picture(key))}")

    def _named(self, file: Path) -> str:
        return str(file.relative_to(self.run.path))

    def in_short(self, reply: str) -> str:
        """A reply with a mark in place of its page: the page's length, and a name by which it is known again."""
        page = self.page(reply)
        if page is None:
            return reply
        name = page_key(page, self._settings)[:8]
        return without_page(reply, f"[page {name}, {len(page):,} characters]")


@lru_cache(maxsize=16)
def scaled(png: bytes, width: int, height: int) -> Image.Image:
    """A picture as RGB at this width, its proportions kept; what is longer than `height` is cut off below.

    Raises:
        Unreadable: it is no picture, a giant one, or there is nothing here to read it with.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise Unreadable(f"pictures are read with Pillow: {install_command('html')}") from error
    # The size stands in every PNG's first chunk: a giant one is not even opened.
    across, down = int.from_bytes(png[16:20]), int.from_bytes(png[20:24])
    if across * down > LARGEST:
        raise Unreadable(f"the picture has {across} × {down} pixels")
    try:
        with Image.open(io.BytesIO(png), formats=["PNG"]) as image:
            shown = min(image.height, -(-height * image.width // width))
            whole = image.convert("RGB").crop((0, 0, image.width, shown))
    except (OSError, ValueError, SyntaxError) as error:
        raise Unreadable("the picture cannot be read") from error
    fits = max(1, min(height, round(shown * width / whole.width)))
    return whole.resize((width, fits), Image.Resampling.BOX)
