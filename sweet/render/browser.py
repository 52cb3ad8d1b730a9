"""One headless Firefox with one window, which renders one page after another.

A page is loaded (`settle.js` freezes it), measured (`measure.js` finds its visible blocks) and captured, all within its
time-out, while the memory of the browser's processes is monitored. A browser that a page has overloaded is not
reliable, and neither are its own time-outs: therefore the clock is in this process, and a page that does not end is
ended by killing all of the browser's processes. An idle browser leaves its page for an empty one; if that takes too
long, it is killed too.
"""

from __future__ import annotations

import asyncio
import json
import struct
from contextlib import suppress
from importlib import resources
from ssl import SSLContext
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sweet.errors import SweetError
from sweet.render.assets import AssetStore
from sweet.render.driver import START_TIMEOUT, Disconnected, DriverError, MakeWindow, Scripts
from sweet.render.firefox import INSTALL_FIREFOX, Firefox, Processes
from sweet.render.page import LONGEST_TEXT, MOST_LENGTH, Block, RenderFailed, RenderSettings, Screenshot
from sweet.render.serving import PageServer

LEAVE_TIMEOUT = 3.0
"""Seconds within which a browser must leave a page."""

KILL_TIMEOUT = 5.0
"""Seconds to wait for killed processes to end."""

MEMORY_INTERVAL = 0.25
"""Seconds between two measurements of the memory."""

SETTLE = "__sweet_settle__"
"""The name in the page's world of the function that runs its timers."""

LARGEST_SCREENSHOT = 16_000_000
"""Maximum bytes of a screenshot. Those of ordinary pages have at most hundreds of thousands, a few millions with
photographs; only noise compresses so badly."""

LOADING_TIMEOUT = 10_000
"""Milliseconds for fonts, images and frames of a page that has loaded: all come from this machine."""
VIRTUAL_SECOND = 1000
"""Milliseconds of the page's virtual clock for which its timers run."""
MOST_CALLBACKS = 2000
"""Maximum number of timers that run."""

MOST_ELEMENTS = 20_000
"""Maximum number of elements that are searched for blocks."""

MOST_NODES = 200_000
"""Maximum number of children that are searched for text."""

MOST_LETTERS = 400_000
"""Maximum number of characters of all blocks together."""

LONGEST_REPORT = 8_000_000
"""Maximum characters of a report: each character of a text may be escaped by six, and a block has 400 others."""


class _Settled(BaseModel):
    """What `measure.js` reports of a page, which is untrusted."""

    model_config = ConfigDict(extra="forbid", strict=True)

    height: Annotated[int, Field(ge=0)]
    blocks: list[Block]


class Browser:
    """A browser of a pool. Call `start`, then `shoot` for one page after another; `stop` must be called."""

    def __init__(self, firefox: Firefox, make: MakeWindow, assets: AssetStore, tls: SSLContext) -> None:
        self._firefox = firefox
        self._window = make()
        self._server = PageServer(assets, tls)
        self.clean = True
        """Whether it shows an empty page."""
        self.pages = 0
        """Number of pages that it was given."""

    @property
    def processes(self) -> Processes | None:
        return self._window.processes

    async def start(self, settings: RenderSettings) -> None:
        """Start the browser.

        Raises:
            SweetError: it does not start.
        """
        await self._server.listen()
        scripts = _scripts(settings)
        try:
            async with asyncio.timeout(START_TIMEOUT):
                await self._window.start(self._server.port, scripts, settings.width, settings.height)
                # Firefox starts another process for the first page of a host, which should not count as a page's time.
                await self._window.go(self._server.put("", ""))
        except (TimeoutError, DriverError, OSError) as error:
            reason = self._window.last_output() or str(error) or "no answer"
            await self.stop()
            raise SweetError(
                f"Firefox does not start: {reason}",
                where=str(self._firefox),
                fix=f"{INSTALL_FIREFOX}; sweet doctor",
            ) from error

    async def shoot(self, html: str, name: str, settings: RenderSettings) -> Screenshot:
        """Render a page. After a failure with the reason timeout, memory or crashed, the browser has ended.

        Raises:
            RenderFailed: the page cannot be rendered.
            SweetError: an asset that the page loads has not been downloaded.
        """
        self.pages += 1
        self.clean = False
        before = self._drawing()
        work = asyncio.create_task(self._render(html, name, settings))
        _retrieve_error(work)
        watch = asyncio.create_task(self._wait_for_memory(settings.max_memory))
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
            if not work.done():  # cancelled from outside, with the page half rendered
                await self.stop()

    def _outcome(self, work: asyncio.Task[Screenshot], before: set[int]) -> Screenshot:
        error = work.exception()
        if self._server.trouble is not None:
            raise self._server.trouble
        if error is None:
            return work.result()
        if isinstance(error, DriverError):
            # If only the process that draws the page ends, Firefox reports that the page was left.
            if isinstance(error, Disconnected) or (before and not before & self._drawing()):
                raise RenderFailed("crashed", "The browser ended under the page.") from error
            raise RenderFailed("blocked", "The page kept the browser from looking at it.") from error
        raise error

    def _drawing(self) -> set[int]:
        return set() if self.processes is None else self.processes.drawing()

    async def _render(self, html: str, name: str, settings: RenderSettings) -> Screenshot:
        address = self._server.put(name, html)
        await self._window.go(address)
        settled = _parse(await self._window.measure())
        # A document of height 0 cannot be captured; the window is captured instead.
        height = min(settled.height, settings.max_height)
        png = await self._window.picture(settings.width, height or settings.height, document=height > 0)
        if len(png) > LARGEST_SCREENSHOT:
            size = "{} x {}".format(*size_of(png))
            raise RenderFailed(
                "too_large", f"The page's screenshot ({size} px) has {len(png)} bytes, more than {LARGEST_SCREENSHOT}."
            )
        if (await self._window.address()).partition("#")[0] != address:
            raise RenderFailed("blocked", "The page went away to another address, and nobody serves it there.")
        return Screenshot(png, *size_of(png), tuple(settled.blocks[: settings.max_blocks]))

    async def leave(self) -> bool:
        """Go to an empty page. Return False if that failed, and the browser has ended."""
        # The empty page is on the same host, since Firefox would start another process for another one.
        going = asyncio.create_task(self._window.go(self._server.put("", "")))
        _retrieve_error(going)
        await asyncio.wait({going}, timeout=LEAVE_TIMEOUT)
        self.clean = going.done() and going.exception() is None
        if not self.clean:
            await self.stop()
        return self.clean

    @property
    def alive(self) -> bool:
        """Whether the browser has been started and has not ended."""
        return self._window.alive

    async def memory(self) -> int:
        """Return the memory of its processes in MB; 0 if it cannot be measured."""
        return 0 if self.processes is None else await asyncio.to_thread(self.processes.memory)

    async def _wait_for_memory(self, most: int) -> None:
        """Wait until the browser uses more than `most` MB."""
        while await self.memory() <= most:
            await asyncio.sleep(MEMORY_INTERVAL)

    async def stop(self) -> None:
        """Kill all its processes."""
        if self.processes is not None:
            self.processes.kill()
            deadline = asyncio.get_running_loop().time() + KILL_TIMEOUT
            while not await asyncio.to_thread(self.processes.gone) and asyncio.get_running_loop().time() < deadline:
                await asyncio.sleep(0.05)
        await self._window.close()
        await self._server.close()


def _retrieve_error(task: asyncio.Task[Any]) -> None:
    """Retrieve a task's exception when it is done, so that asyncio does not warn that it never was."""
    task.add_done_callback(lambda done: None if done.cancelled() else done.exception())


def _parse(report: object) -> _Settled:
    if isinstance(report, str) and len(report) <= LONGEST_REPORT:
        with suppress(ValidationError):
            return _Settled.model_validate_json(report)
    raise RenderFailed("blocked", "The page changed what a browser is made of, so that it cannot be looked at.")


def size_of(png: bytes) -> tuple[int, int]:
    """Return width and height of a PNG in pixels."""
    width, height = struct.unpack(">II", png[16:24])
    return width, height


def _scripts(settings: RenderSettings) -> Scripts:
    limits = {
        "width": settings.width,
        "height": settings.max_height,
        "window": settings.height,
        "blocks": settings.max_blocks,
        "text": LONGEST_TEXT,
        "letters": MOST_LETTERS,
        "length": MOST_LENGTH,
        "elements": MOST_ELEMENTS,
        "nodes": MOST_NODES,
        "loading": LOADING_TIMEOUT,
        "virtual": VIRTUAL_SECOND,
        "callbacks": MOST_CALLBACKS,
    }
    folder = resources.files("sweet.render")
    page, measure = ((folder / file).read_text(encoding="utf-8").rstrip() for file in ("settle.js", "measure.js"))
    parameters = f"({json.dumps(SETTLE)}, {json.dumps(limits)})"
    return Scripts(f"{page}{parameters};", f"({measure}){parameters}")
