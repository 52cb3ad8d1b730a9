"""Whoever turns pages into screenshots, and what all of them have in common: a page is rendered once.

What came of a page is kept in a store, where there is one, and the same page asked for twice at once is rendered once.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Any, Protocol

from sweet.render.page import RenderFailed, RenderSettings, Screenshot, page_key
from sweet.render.store import ScreenshotStore


class Renderer(Protocol):
    """Whoever turns pages into screenshots: a pool of browsers here or elsewhere, or what a test puts in its place."""

    async def shoot(self, html: str) -> Screenshot:
        """Render one page. Any number of calls may wait at once.

        Raises:
            RenderFailed: by the page's fault.
            SweetError: there is no browser, or an asset that the page wants has not been fetched.
        """
        ...


class CachingRenderer(ABC):
    """Renders what is not known yet (implements `Renderer`).

    Attributes:
        store: keeps what comes of pages, where it is not None.
    """

    def __init__(self, store: ScreenshotStore | None, settings: RenderSettings) -> None:
        self.store, self.settings = store, settings
        self._waiting: dict[str, asyncio.Task[Screenshot]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    async def shoot(self, html: str) -> Screenshot:
        """See `Renderer`."""
        key = page_key(html, self.settings)
        found = None if self.store is None else self.store.get(key)
        if isinstance(found, RenderFailed):
            raise found
        if found is not None:
            return found
        if key not in self._waiting:
            task = self._run(self._make_and_keep(key, html))
            self._waiting[key] = task
            task.add_done_callback(lambda _: self._waiting.pop(key, None))
        # Whoever asks may be cancelled; others may wait for the same page.
        return await asyncio.shield(self._waiting[key])

    async def close(self) -> None:
        """End what is under way."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @abstractmethod
    async def _render(self, key: str, html: str) -> Screenshot:
        """Raises what `Renderer.shoot` does."""

    def _run(self, what: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.create_task(what)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda done: None if done.cancelled() else done.exception())
        return task

    async def _make_and_keep(self, key: str, html: str) -> Screenshot:
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
