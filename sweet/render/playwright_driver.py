"""Drive Firefox by Playwright: its own build, which only Playwright can drive, or the system's by "moz-firefox".

Playwright's driver, one process for all browsers of a pool, starts each browser in its own process group, and ends them
when it loses its parent, so that nothing is left behind however this process ends. Profile and temporary files of a
browser are in a folder of sweet (see `sweet.render.profiles`).
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from sweet.render.driver import START_TIMEOUT, Disconnected, DriverError, MakeWindow, Scripts, Window
from sweet.render.firefox import Firefox, environment_of, preferences, processes_of
from sweet.render.profiles import Profile

CLOSING = 5.0
"""Seconds to wait for Playwright to notice that a browser was killed."""

_GONE = re.compile(r"crash|has been closed|disconnected", re.IGNORECASE)

_RESPONSE_CACHE = {"remote.network.maxTotalDataSize": 20_000_000}
"""Bytes of responses that Firefox keeps for Playwright; smaller values are not accepted."""

_ENGINE = """(() => {
  let report = null;
  if (window.wrappedJSObject) (%s)().then((text) => { report = text }, () => { report = "" });
  return {
    queryAll() {
      if (report === null) return [];
      const holder = document.createElement("pre");
      holder.textContent = report;
      return [holder];
    },
  };
})()"""
"""A selector engine that measures the page, and then finds an element, outside the document, that contains the report.

Engines that are content scripts are all that Playwright runs in a world that pages cannot change. It creates them in
the page's own world too, which has no `wrappedJSObject` and is never asked for an element: nothing is measured there.
"""

T = TypeVar("T")


@asynccontextmanager
async def open_playwright(firefox: Firefox) -> AsyncIterator[MakeWindow]:
    """Open Playwright's driver for the duration of the block; its windows must be closed before."""
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        yield lambda: PlaywrightWindow(playwright, firefox)


class PlaywrightWindow(Window):
    """Has Playwright send the commands."""

    def __init__(self, playwright: Any, firefox: Firefox) -> None:
        self._playwright = playwright
        self._firefox = firefox
        self._context: Any = None
        self._ended = asyncio.Event()
        self._page: Any = None
        self._report: Any = None

    async def start(self, port: int, scripts: Scripts, width: int, height: int) -> None:
        profile = self.profile = Profile({})
        options: dict[str, Any] = {
            "headless": True,
            # A terminal sends Ctrl-C to the driver too, but sweet decides when browsers end.
            "handle_sigint": False,
            "env": environment_of(profile.folder),
            "firefox_user_prefs": preferences(port) | _RESPONSE_CACHE,
            "timeout": START_TIMEOUT * 1000,
            "viewport": {"width": width, "height": height},
            "ignore_https_errors": True,
            "accept_downloads": False,
        }
        if not self._firefox.bundled:
            options |= {"channel": "moz-firefox", "executable_path": self._firefox.path}
        name, engine = f"measure_{secrets.token_hex(8)}", _ENGINE % scripts.measure
        await _translated(self._playwright.selectors.register(name, engine, content_script=True))
        # A folder created by Playwright would stay behind if the browser or this process were killed.
        folder = profile.folder / "profile"
        try:
            self._context = await _translated(self._playwright.firefox.launch_persistent_context(folder, **options))
        finally:
            self.processes = processes_of(str(folder))
        self._context.on("close", lambda _: self._ended.set())
        await _translated(self._context.add_init_script(scripts.page))
        self._page = self._context.pages[0] if self._context.pages else await _translated(self._context.new_page())
        self._report = self._page.locator(f"{name}=report")

    @property
    def alive(self) -> bool:
        return self._page is not None and not self._ended.is_set()

    async def _do(self, what: Awaitable[T]) -> T:
        try:
            return await _translated(what)
        except DriverError as error:
            if self.alive and not _GONE.search(str(error)):
                raise
            raise Disconnected(str(error)) from error

    async def go(self, address: str) -> None:
        await self._do(self._page.goto(address, wait_until="load", timeout=0))

    async def measure(self) -> object:
        # Playwright repeats the query until there is an element; asking for their number first would cost a message.
        return await self._do(self._report.text_content(timeout=0))

    async def picture(self, width: int, height: int, *, document: bool) -> bytes:
        picture = self._page.screenshot(
            full_page=document and height > self._page.viewport_size["height"],  # capturing the window is faster
            clip={"x": 0, "y": 0, "width": width, "height": height},
            animations="allow",  # settle.js has ended them and hidden the caret
            caret="initial",
            timeout=0,
        )
        return bytes(await self._do(picture))

    async def address(self) -> str:
        return str(self._page.url)

    async def close(self) -> None:
        if self._context is not None:
            closing = asyncio.ensure_future(self._context.close())
            await asyncio.wait({closing}, timeout=CLOSING)
            # Playwright's errors about a killed browser are expected.
            closing.add_done_callback(lambda done: None if done.cancelled() else done.exception())
            self._context = self._page = None
        await super().close()


async def _translated(what: Awaitable[T]) -> T:
    """Await a call of Playwright, and turn its errors into DriverError with their first line, without its log."""
    from playwright.async_api import Error

    try:
        return await what
    except Error as error:
        raise DriverError((str(error).splitlines() or [""])[0]) from error
