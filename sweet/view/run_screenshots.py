"""Find, read and scale the screenshots of a run's pages.

Pages of an agent are never rendered here, only looked up: the run stores a screenshot, made when the human saw the page
or when it was scored, under a key derived from the page's text. A picture is drawn by the
application (`sweet.view.app.parts_view`) and embedded in an HTML page by `sweet.results.dialogue`.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from sweet.errors import InputError
from sweet.installation import install_command
from sweet.render.page import RenderFailed, RenderSettings, Screenshot, page_key
from sweet.render.store import SCREENSHOTS, ScreenshotStore
from sweet.runs.run import Run
from sweet.tasks.base import ProtocolName
from sweet.tasks.html.page import without_page
from sweet.tasks.kind import TaskKind
from sweet.tasks.trajectory import Trajectory, Turn

if TYPE_CHECKING:
    from PIL import Image

MAX_PIXELS = 50_000_000
"""Most pixels of a picture that is read; screenshots of `sweet.render` have at most 13 million."""


class Unreadable(Exception):
    """A picture cannot be shown; `str()` is the reason in words."""


@dataclass(frozen=True)
class Picture:
    """The screenshot of a page, or the reason why there is none.

    Attributes:
        screenshot: None if there is none, or it is not to be drawn.
        description: the size and the file, or the reason; it may contain text of the page.
    """

    screenshot: Screenshot | None
    description: str


class RunScreenshots:
    """The screenshots of one rollouts artifact.

    Attributes:
        draw: show the screenshots, instead of only their descriptions.
    """

    def __init__(
        self,
        run: Run,
        kind: TaskKind,
        protocol: ProtocolName,
        *,
        draw: bool = True,
        settings: RenderSettings | None = None,
    ) -> None:
        self.run, self.kind, self.protocol, self.draw = run, kind, protocol, draw
        self._store = ScreenshotStore(run.path / SCREENSHOTS)
        self._settings = settings or RenderSettings()

    def page(self, reply: str) -> str | None:
        """Return the page in a raw reply as it was rendered; None if there is none."""
        return self.kind.move(reply, last=False, protocol=self.protocol).answer

    def turn_picture(self, turn: Turn) -> Picture:
        """Return the picture that the human saw for an agent turn."""
        page = self.page(turn.said)
        return Picture(None, "the reply contains no page") if page is None else self.page_picture(page)

    def page_picture(self, page: str) -> Picture:
        """Return the picture of a page, which is looked up by its HTML."""
        key = page_key(page, self._settings)
        try:
            shot = self._store.get(key)
        except InputError as error:
            return Picture(None, f"{self._named(error.path)} cannot be shown: {error.what}")
        if isinstance(shot, RenderFailed):
            return Picture(None, f"the page did not load: {shot}")
        if shot is None:
            return Picture(
                None, f"not rendered: no screenshot of it in {SCREENSHOTS}/ (sweet eval renders the last page)"
            )
        return Picture(
            shot if self.draw else None, f"{shot.width} × {shot.height}, {self._named(self._store.picture(key))}"
        )

    def beside_reference(self, trajectory: Trajectory, title: str, turn: Turn) -> list[tuple[str, Picture]]:
        """Return the picture of an agent turn and that of the reference page, with titles."""
        reference = self.page_picture(trajectory.task.ground_truth)
        return [(title, self.turn_picture(turn)), ("the reference page", reference)]

    def _named(self, file: Path) -> str:
        return str(file.relative_to(self.run.path))

    def abbreviate(self, reply: str) -> str:
        """Return a reply with its page replaced by the page's length and a short name derived from its key."""
        page = self.page(reply)
        if page is None:
            return reply
        name = page_key(page, self._settings)[:8]
        return without_page(reply, f"[page {name}, {len(page):,} characters]")


@lru_cache(maxsize=16)
def scaled(png: bytes, width: int, height: int) -> Image.Image:
    """Return a picture as RGB, scaled to `width` with its proportions and cropped at the bottom to `height`.

    Raises:
        Unreadable: it is not a picture, too large, or Pillow is not installed.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise Unreadable(f"reading pictures requires Pillow: {install_command('html')}") from error
    # The first chunk of a PNG contains its size, so a giant picture is not even opened.
    across, down = int.from_bytes(png[16:20]), int.from_bytes(png[20:24])
    if across * down > MAX_PIXELS:
        raise Unreadable(f"the picture has {across} × {down} pixels")
    try:
        with Image.open(io.BytesIO(png), formats=["PNG"]) as image:
            shown = min(image.height, -(-height * image.width // width))
            whole = image.convert("RGB").crop((0, 0, image.width, shown))
    except (OSError, ValueError, SyntaxError) as error:
        raise Unreadable("the picture cannot be read") from error
    fits = max(1, min(height, round(shown * width / whole.width)))
    return whole.resize((width, fits), Image.Resampling.BOX)
