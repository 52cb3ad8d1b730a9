"""One headless Firefox with one page, which is used again and again.

A page is loaded, made to stand still and asked for its visible blocks (`settle.js`), and photographed, all within its
time-out and under a watch on the memory that the browser's processes hold. Nothing in a browser that a page has
brought to its knees can be relied on, time-outs included: so the clock is here, and what ends a page that does not end
is the end of all the browser's processes. A browser that has time leaves a page for an empty one; if it does not come
there soon, it is ended too.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import struct
from contextlib import suppress
from importlib import resources
from ssl import SSLContext
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sweet.errors import SweetError
from sweet.render.assets import AssetStore
from sweet.render.driver import START_PATIENCE, Disconnected, DriverError, MakeWindow
from sweet.render.firefox import INSTALL_FIREFOX, Firefox, Processes
from sweet.render.page import Block, RenderFailed, RenderSettings, Screenshot
from sweet.render.serving import PageServer

BLANK_PATIENCE = 3.0
"""Seconds to leave a page."""

END_PATIENCE = 5.0
"""Seconds for killed processes to be gone."""

GLANCE = 0.25
"""Seconds between two looks at the memory."""

LONGEST_TEXT = 2000
"""Characters of a block's text."""

VIRTUAL_SECOND = 1000
"""Milliseconds of the page's own clock for which its timers run, and `MOST_CALLBACKS` how many of them at most."""
MOST_CALLBACKS = 2000

MOST_ELEMENTS = 20_000
"""Elements that are looked at for blocks."""

Length = Annotated[float, Field(allow_inf_nan=False, ge=-1e7, le=1e7)]


class _Box(BaseModel):
    """A block as the page tells it: nothing in it is to be trusted."""

    model_config = ConfigDict(extra="forbid", strict=True)

    tag: Annotated[str, Field(max_length=40)]
    text: Annotated[str, Field(max_length=LONGEST_TEXT)]
    x: Length
    y: Length
    width: Length
    height: Length
    color: Annotated[str, Field(pattern="^#[0-9a-f]{6}$")]
    background: Annotated[str, Field(pattern="^(#[0-9a-f]{6})?$")]
    font_size: Length
    bold: bool
    image: bool
    text_x: Length
    text_width: Length


class _Told(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    height: Annotated[int, Field(ge=0)]
    blocks: list[_Box]


class Browser:
    """A browser of a pool. `start`, then `shoot` one page after the other; `stop` must be called."""

    def __init__(self, firefox: Firefox, make: MakeWindow, assets: AssetStore, tls: SSLContext) -> None:
        self._firefox = firefox
        self._window = make()
        self._server = PageServer(assets, tls)
        self._settle = f"settle_{secrets.token_hex(8)}"
        self.clean = True
        """Whether it shows nothing of a former page."""
        self.pages = 0
        """How many it has been given."""

    @property
    def processes(self) -> Processes | None:
        return self._window.processes

    async def start(self, settings: RenderSettings) -> None:
        """Raises:
        SweetError: it does not start.
        """
        await self._server.listen()
        script = _script(self._settle, settings)
        try:
            async with asyncio.timeout(START_PATIENCE):
                await self._window.start(self._server.port, script, settings.width, settings.height)
                # Firefox starts another process for the first page of a host: better now than on a page's time.
                await self._window.go(self._server.put("", ""))
        except (TimeoutError, DriverError, OSError) as error:
            said = self._window.said() or str(error) or "no answer"
            await self.stop()
            raise SweetError(
                f"Firefox does not start: {said}",
                where=str(self._firefox),
                fix=f"{INSTALL_FIREFOX}; sweet doctor",
            ) from error

    async def shoot(self, html: str, name: str, settings: RenderSettings) -> Screenshot:
        """Render a page. After a failure whose reason is timeout, memory or crashed, the browser has ended.

        Raises:
            RenderFailed: by the page's fault.
            SweetError: an asset that the page wants has not been fetched.
        """
        self.pages += 1
        self.clean = False
        before = self._drawing()
        work = asyncio.create_task(self._render(html, name, settings))
        _heard(work)
        watch = asyncio.create_task(self._watch(settings.max_memory))
        try:
            await asyncio.wait({work, watch}, timeout=settings.timeout, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                return self._outcome(work, before)
            if watch.done():
                raise RenderFailed("memory", f"The page took more than {settings.max_memory} MB of memory.")
            raise RenderFailed("timeout", f"The page was not done within {settings.timeout:g} seconds.")
        except RenderFailed as failed:
            if failed.reason in ("timeout", "memory", "crashed"):
                await self.stop()
            raise
        finally:
            watch.cancel()
            if not work.done():  # cancelled from outside: what is left half done is of no use
                await self.stop()

    def _outcome(self, work: asyncio.Task[Screenshot], before: set[int]) -> Screenshot:
        error = work.exception()
        if self._server.trouble is not None:
            raise self._server.trouble
        if error is None:
            return work.result()
        if isinstance(error, DriverError):
            # The process that draws a page may end alone, and Firefox tells of it as of a page that went away.
            if isinstance(error, Disconnected) or (before and not before & self._drawing()):
                raise RenderFailed("crashed", "The browser ended under the page.") from error
            raise RenderFailed("blocked", "The page kept the browser from looking at it.") from error
        raise error

    def _drawing(self) -> set[int]:
        return set() if self.processes is None else self.processes.drawing()

    async def _render(self, html: str, name: str, settings: RenderSettings) -> Screenshot:
        address = self._server.put(name, html)
        await self._window.go(address)
        told = _read(await self._window.evaluate(f"window.{self._settle}()"))
        blocks = tuple(Block(**box.model_dump()) for box in told.blocks[: settings.max_blocks])
        # A document without any height is not to be had as a picture; the window that it is shown in is.
        height = min(told.height, settings.max_height)
        png = await self._window.picture(settings.width, height or settings.height, document=height > 0)
        if (await self._window.address()).partition("#")[0] != address:
            raise RenderFailed("blocked", "The page went away to another address, and nobody serves it there.")
        return Screenshot(png, *size_of(png), blocks)

    async def leave(self) -> bool:
        """Go to an empty page; False where that has come to nothing, and the browser has ended."""
        # Of the same host: at another one's Firefox would start another process.
        going = asyncio.create_task(self._window.go(self._server.put("", "")))
        _heard(going)
        await asyncio.wait({going}, timeout=BLANK_PATIENCE)
        self.clean = going.done() and going.exception() is None
        if not self.clean:
            await self.stop()
        return self.clean

    @property
    def living(self) -> bool:
        """Whether it has been started, and not ended since."""
        return self._window.living

    async def memory(self) -> int:
        """MB that its processes hold; 0 where they cannot be looked at."""
        return 0 if self.processes is None else await asyncio.to_thread(self.processes.memory)

    async def _watch(self, most: int) -> None:
        """Return when the browser holds more than `most` MB."""
        while await self.memory() <= most:
            await asyncio.sleep(GLANCE)

    async def stop(self) -> None:
        """End all its processes."""
        if self.processes is not None:
            self.processes.kill()
            ends = asyncio.get_running_loop().time() + END_PATIENCE
            while not await asyncio.to_thread(self.processes.gone) and asyncio.get_running_loop().time() < ends:
                await asyncio.sleep(0.05)
        await self._window.close()
        await self._server.close()


def _heard(task: asyncio.Task[Any]) -> None:
    """Take note of a task's error, now or whenever it comes, so that nobody is told that nobody did."""
    task.add_done_callback(lambda done: None if done.cancelled() else done.exception())


def _read(said: object) -> _Told:
    if isinstance(said, str):
        # Half a character, which a page's text may have at its end, has no place in a file.
        said = said.encode("utf-8", "replace").decode()
        with suppress(ValidationError):
            return _Told.model_validate_json(said)
    raise RenderFailed("blocked", "The page changed what a browser is made of, so that it cannot be looked at.")


def size_of(png: bytes) -> tuple[int, int]:
    """Width and height of a PNG in pixels."""
    width, height = struct.unpack(">II", png[16:24])
    return width, height


def _script(name: str, settings: RenderSettings) -> str:
    source = (resources.files("sweet.render") / "settle.js").read_text(encoding="utf-8")
    limits = {
        "width": settings.width,
        "height": settings.max_height,
        "window": settings.height,
        "blocks": settings.max_blocks,
        "text": LONGEST_TEXT,
        "elements": MOST_ELEMENTS,
        "virtual": VIRTUAL_SECOND,
        "callbacks": MOST_CALLBACKS,
    }
    return f"{source.rstrip()}({json.dumps(name)}, {json.dumps(limits)});"
