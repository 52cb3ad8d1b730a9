"""A pool of headless Firefoxes that turn pages into screenshots.

Each browser renders one page at a time; as many run as the machine has cores and memory for, started when they are
first needed. A browser is ended and started anew after `RECYCLE_PAGES` pages, or when it still holds more than
`RECYCLE_MEMORY` between two, or when a page has brought it down. While pages wait, the next one takes the place of the
one before at once, since going to an empty page in between costs a quarter of the whole; so a page that fails there is
tried once more in a fresh browser, and no page pays for another.

A browser ends when this process is gone, whoever drives it (see `sweet.render.driver`), and the folders of those that
were killed are removed when a pool is next opened: nothing stays behind, however this process ends.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from ssl import SSLContext

from sweet.device import usable_cores
from sweet.errors import SweetError
from sweet.render.assets import AssetStore, asset_folder
from sweet.render.bidi import DirectWindow
from sweet.render.browser import Browser
from sweet.render.driver import MakeWindow
from sweet.render.firefox import Firefox, find_firefox
from sweet.render.page import RenderFailed, RenderSettings, Screenshot
from sweet.render.playwright_driver import open_playwright
from sweet.render.profiles import remove_left
from sweet.render.renderer import CachingRenderer
from sweet.render.serving import certificate
from sweet.render.store import ScreenshotStore

RECYCLE_PAGES = 500
"""Pages after which a browser is replaced."""

RECYCLE_MEMORY = 1800
"""MB that a browser may hold between two pages."""

CHECK_PAGES = 20
"""Pages after which a browser is looked at in any case."""

SHARE_OF_MEMORY = 1500
"""MB of free memory that a browser of the pool is counted with."""

MOST_BROWSERS = 8
"""More have not been tried."""


class _Doubtful(Exception):
    """A page failed in a browser that was not fresh: it may have been the browser's fault, or the page's before."""


def fitting_count() -> int:
    """How many browsers this machine has cores and free memory for."""
    return max(1, min(usable_cores(), _free_memory() // SHARE_OF_MEMORY, MOST_BROWSERS))


def _free_memory() -> int:
    """MB of memory that programs can have; that of the machine where nobody tells."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) // 1024
    except OSError:
        pass
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20


class Pool(CachingRenderer):
    """Made by `open_browsers`.

    Attributes:
        started: how many browsers have been started so far, and `given` how many pages they have been given.
    """

    def __init__(
        self,
        firefox: Firefox,
        make: MakeWindow,
        tls: SSLContext,
        assets: AssetStore,
        store: ScreenshotStore | None,
        count: int,
        settings: RenderSettings,
    ) -> None:
        super().__init__(store, settings)
        self.started = 0
        self.given = 0
        self._make = partial(Browser, firefox, make, assets, tls)
        self._places: asyncio.LifoQueue[Browser | None] = asyncio.LifoQueue()
        for _ in range(count):
            self._places.put_nowait(None)
        self._count = count

    async def close(self) -> None:
        """End all browsers."""
        await super().close()
        while not self._places.empty():
            if browser := self._places.get_nowait():
                await browser.stop()

    async def _render(self, key: str, html: str) -> Screenshot:
        try:
            return await self._render_once(key, html, fresh=False)
        except _Doubtful:
            return await self._render_once(key, html, fresh=True)

    async def _render_once(self, key: str, html: str, *, fresh: bool) -> Screenshot:
        browser = await self._places.get()
        kept: Browser | None = None
        try:
            if browser is not None and fresh:
                await browser.stop()
                browser = None
            if browser is None:
                browser = self._make()
                await browser.start(self.settings)
                self.started += 1
            self.given += 1
            alone = browser.clean
            shot = await browser.shoot(html, key, self.settings)
            kept = browser
            return shot
        except RenderFailed as failed:
            if failed.lasting:
                kept = browser
            elif not fresh and (failed.reason == "crashed" or not alone):
                raise _Doubtful from failed
            raise
        except SweetError:
            kept = browser  # an asset is missing; or it has not started, and has ended
            raise
        except asyncio.CancelledError:
            if browser is not None:
                await browser.stop()
            raise
        finally:
            await self._give_back(kept)

    async def _give_back(self, browser: Browser | None) -> None:
        """Give a browser's place to the next page, at once where one waits for it."""
        if browser is not None and not browser.living:
            browser = None
        if browser is None or (self.hurried and browser.pages % CHECK_PAGES):
            self._places.put_nowait(browser)
        else:
            self._run(self._leave(browser))

    @property
    def hurried(self) -> bool:
        """Whether pages wait for a browser."""
        return len(self._waiting) > self._count

    async def _leave(self, browser: Browser) -> None:
        """Rid a browser of its page and give back its place."""
        ready = None
        try:
            if await browser.leave():
                if browser.pages < RECYCLE_PAGES and await browser.memory() < RECYCLE_MEMORY:
                    ready = browser
                else:
                    await browser.stop()
        except asyncio.CancelledError:
            await browser.stop()
            raise
        finally:
            self._places.put_nowait(ready)


@asynccontextmanager
async def open_browsers(
    store: Path | None,
    count: int | None = None,
    settings: RenderSettings | None = None,
    assets: Path | None = None,
) -> AsyncIterator[Pool]:
    """A pool of browsers, put away at the end of the block.

    Args:
        store: the folder that keeps the screenshots; None keeps none.
        count: how many browsers; None for as many as the machine has cores and memory for.
        assets: the folder of the assets, by default where `sweet data assets` puts them.

    Raises:
        UsageError: see `find_firefox`.
    """
    firefox = find_firefox()
    tls = certificate()
    await asyncio.to_thread(remove_left)
    async with open_driver(firefox) as make:
        pool = Pool(
            firefox,
            make,
            tls,
            AssetStore(assets or asset_folder()),
            None if store is None else ScreenshotStore(store),
            count or fitting_count(),
            settings or RenderSettings(),
        )
        try:
            yield pool
        finally:
            await pool.close()


@asynccontextmanager
async def open_driver(firefox: Firefox) -> AsyncIterator[MakeWindow]:
    """What makes windows of this Firefox, put away at the end of the block."""
    if firefox.driver == "playwright":
        async with open_playwright(firefox) as make:
            yield make
    else:
        yield partial(DirectWindow, firefox.path)
