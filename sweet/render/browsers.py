"""A pool of headless Firefoxes that render pages to screenshots.

Each browser renders one page at a time; as many run as the machine has cores and memory for, each started when a page
comes while none is idle or about to be. A browser is replaced after `RECYCLE_PAGES` pages, when it uses more than
`RECYCLE_MEMORY` between two pages, or when a page has made it fail. While pages wait, a browser loads the next one
directly, since an empty page in between takes a quarter of the time; a page that fails in this way is tried once more
in a fresh browser, so that no page fails because of another.

Screenshots and lasting failures are kept in a store, if there is one, and simultaneous requests for the same page share
one rendering.

Every driver ends its browsers when this process ends (see `sweet.render.driver`), and the folders of those that were
killed are removed when the next pool is opened, so that nothing is left behind however this process ends.

A browser belongs to the event loop in which it was started. An online training plays dialogues in one loop, and their
scorer renders pages in another; with one pool for both (`open_shared_browsers`), whose loop is in a thread of its own,
there are no more browsers than the machine has room for.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from ssl import SSLContext
from typing import Any

from sweet.device import free_memory, usable_cores
from sweet.errors import SweetError
from sweet.gathering import opened_in_thread
from sweet.render.assets import AssetStore, asset_folder
from sweet.render.bidi import DirectWindow
from sweet.render.browser import Browser
from sweet.render.driver import MakeWindow
from sweet.render.firefox import Firefox, find_firefox
from sweet.render.page import Renderer, RenderFailed, RenderSettings, Screenshot, page_key
from sweet.render.playwright_driver import open_playwright
from sweet.render.profiles import remove_stale
from sweet.render.serving import certificate
from sweet.render.store import ScreenshotStore

RECYCLE_PAGES = 500
"""Pages after which a browser is replaced."""

RECYCLE_MEMORY = 1800
"""Memory in MB that a browser may use between two pages."""

CHECK_PAGES = 20
"""Pages after which a browser's memory is checked even while pages wait."""

SHARE_OF_MEMORY = 1500
"""Free memory in MB that is reserved for each browser of the pool."""

MAX_BROWSERS = 8
"""Maximum number of browsers; more have not been tested."""


class _RetryFresh(Exception):
    """A page failed in a used browser, perhaps because of the browser or of an earlier page."""


def default_count() -> int:
    """Return the number of browsers for which this machine has cores and free memory."""
    return max(1, min(usable_cores(), free_memory() // SHARE_OF_MEMORY, MAX_BROWSERS))


class BrowserPool:
    """The pool that `open_browsers` opens (implements `sweet.render.page.Renderer`).

    Attributes:
        store: the store of screenshots and lasting failures; None stores nothing.
        started: number of browsers that were started.
        given: number of pages that they were given.
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
        self.store, self.settings = store, settings
        self.started = 0
        self.given = 0
        self._waiting: dict[str, asyncio.Task[Screenshot]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._make = partial(Browser, firefox, make, assets, tls)
        self._count, self._slots = count, asyncio.Semaphore(count)
        self._idle: list[Browser] = []
        self._leaving: set[asyncio.Task[None]] = set()

    async def shoot(self, html: str) -> Screenshot:
        """Implement `Renderer.shoot`."""
        key = page_key(html, self.settings)
        stored = None if self.store is None else self.store.get(key)
        if isinstance(stored, RenderFailed):
            raise stored
        if stored is not None:
            return stored
        if key not in self._waiting:
            task = self._run(self._render_and_store(key, html))
            self._waiting[key] = task
            task.add_done_callback(lambda _: self._waiting.pop(key, None))
        # This call may be cancelled while others wait for the same page.
        return await asyncio.shield(self._waiting[key])

    async def close(self) -> None:
        """Cancel the renderings in progress and stop all browsers."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for browser in self._idle:
            await browser.stop()

    def _run(self, what: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.create_task(what)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda done: None if done.cancelled() else done.exception())
        return task

    async def _render_and_store(self, key: str, html: str) -> Screenshot:
        try:
            self._check(html)
            shot = await self._render(key, html)
        except RenderFailed as failed:
            if self.store is not None:
                self.store.put(key, failed)
            raise
        if self.store is not None:
            self.store.put(key, shot)
        return shot

    def _check(self, html: str) -> None:
        if not html.strip():
            raise RenderFailed("empty", "The page is empty.")
        size = len(html.encode("utf-8", "surrogatepass"))
        if size > self.settings.max_bytes:
            raise RenderFailed("too_large", f"The page has {size} bytes, more than {self.settings.max_bytes}.")

    async def _render(self, key: str, html: str) -> Screenshot:
        async with self._slots:
            while not self._idle and self._leaving:  # a start takes far longer
                await asyncio.wait(self._leaving, return_when=asyncio.FIRST_COMPLETED)
            try:
                return await self._render_once(key, html, self._idle.pop() if self._idle else None)
            except _RetryFresh:
                return await self._render_once(key, html, None, fresh=True)

    async def _render_once(self, key: str, html: str, browser: Browser | None, *, fresh: bool = False) -> Screenshot:
        usable: Browser | None = None
        try:
            if browser is None:
                browser = self._make()
                await browser.start(self.settings)
                self.started += 1
            self.given += 1
            was_clean = browser.clean
            shot = await browser.shoot(html, key, self.settings)
            usable = browser
            return shot
        except RenderFailed as failed:
            if failed.lasting:
                usable = browser
            elif not fresh and (failed.reason == "crashed" or not was_clean):
                raise _RetryFresh from failed
            raise
        except SweetError:
            usable = browser  # an asset is missing; a browser that did not start has ended, which _release checks
            raise
        except asyncio.CancelledError:
            if browser is not None:
                await browser.stop()
            raise
        finally:
            self._release(usable)

    def _release(self, browser: Browser | None) -> None:
        """Let another page have a browser, without leaving its page if other pages wait."""
        if browser is None or not browser.alive:
            return
        pages_wait = len(self._waiting) > self._count
        if pages_wait and browser.pages % CHECK_PAGES:
            self._idle.append(browser)
        else:
            leaving = self._run(self._leave(browser))
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)

    async def _leave(self, browser: Browser) -> None:
        """Leave a browser's page; the browser is idle then, unless it is due to be replaced."""
        try:
            if await browser.leave():
                if browser.pages < RECYCLE_PAGES and await browser.memory() < RECYCLE_MEMORY:
                    self._idle.append(browser)
                else:
                    await browser.stop()
        except asyncio.CancelledError:
            await browser.stop()
            raise


@asynccontextmanager
async def open_browsers(
    store: Path | None,
    count: int | None = None,
    settings: RenderSettings | None = None,
    assets: Path | None = None,
) -> AsyncIterator[BrowserPool]:
    """Open a pool of browsers for the duration of the block.

    Args:
        store: the folder of the screenshots; None stores none.
        count: number of browsers; None for as many as the machine has cores and memory for.
        assets: the folder of the assets; None for that of `sweet data assets`.

    Raises:
        UsageError: see `find_firefox`.
    """
    settings = settings or RenderSettings()
    firefox = find_firefox()
    tls = certificate()
    await asyncio.to_thread(remove_stale)
    async with open_driver(firefox) as make:
        pool = BrowserPool(
            firefox,
            make,
            tls,
            AssetStore(assets or asset_folder(), settings.pictures),
            None if store is None else ScreenshotStore(store),
            count or default_count(),
            settings,
        )
        try:
            yield pool
        finally:
            await pool.close()


@asynccontextmanager
async def open_driver(firefox: Firefox) -> AsyncIterator[MakeWindow]:
    """Open a driver of this Firefox for the duration of the block, which creates windows."""
    if firefox.driver == "playwright":
        async with open_playwright(firefox) as make:
            yield make
    else:
        yield partial(DirectWindow, firefox.path)


# One pool for several event loops -------------------------------------------------------------------------------------


class SharedRenderer:
    """Renders pages for callers in any event loop (implements `Renderer`).

    Args:
        renderer: what renders them. loop: in which it was opened, and which runs in another thread.
    """

    def __init__(self, renderer: Renderer, loop: asyncio.AbstractEventLoop) -> None:
        self._renderer, self._loop = renderer, loop

    async def shoot(self, html: str) -> Screenshot:
        """Implement `Renderer.shoot`."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._renderer.shoot(html), self._loop))


@contextmanager
def open_shared_browsers(
    store: Path | None, count: int | None = None, settings: RenderSettings | None = None
) -> Iterator[SharedRenderer]:
    """Open a pool of browsers for the duration of the block; arguments and errors are those of `open_browsers`."""
    with opened_in_thread(open_browsers(store, count, settings or RenderSettings())) as (pool, loop):
        yield SharedRenderer(pool, loop)
