"""A base class of renderers that renders each page once.

Screenshots and lasting failures are kept in a store, if there is one, and simultaneous requests for the same page share
one rendering.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Any

from sweet.render.page import RenderFailed, RenderSettings, Screenshot, page_key
from sweet.render.store import ScreenshotStore


class CachingRenderer(ABC):
    """Renders pages that are not in the store (implements `sweet.render.page.Renderer`).

    Attributes:
        store: the store of screenshots and lasting failures; None stores nothing.
    """

    def __init__(self, store: ScreenshotStore | None, settings: RenderSettings) -> None:
        self.store, self.settings = store, settings
        self._waiting: dict[str, asyncio.Task[Screenshot]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    async def shoot(self, html: str) -> Screenshot:
        """Implement `Renderer.shoot`."""
        key = page_key(html, self.settings)
        found = None if self.store is None else self.store.get(key)
        if isinstance(found, RenderFailed):
            raise found
        if found is not None:
            return found
        if key not in self._waiting:
            task = self._run(self._render_and_store(key, html))
            self._waiting[key] = task
            task.add_done_callback(lambda _: self._waiting.pop(key, None))
        # This call may be cancelled while others wait for the same page.
        return await asyncio.shield(self._waiting[key])

    async def close(self) -> None:
        """Cancel the renderings in progress."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @abstractmethod
    async def _render(self, key: str, html: str) -> Screenshot:
        """Render a page; raises what `Renderer.shoot` raises."""

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
