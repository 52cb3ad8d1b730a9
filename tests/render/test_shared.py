"""One pool for several event loops: who gets what, and that nothing stays open."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sweet.errors import UsageError
from sweet.render.browsers import BrowserPool, open_shared_browsers
from sweet.render.page import RenderFailed, RenderSettings, Screenshot
from sweet.render.store import ScreenshotStore


class Counting(BrowserPool):
    """Renders in the loop in which it was opened, until all that are expected wait."""

    def __init__(self, store: Path, settings: RenderSettings) -> None:
        no_browser: Any = None
        super().__init__(no_browser, no_browser, no_browser, no_browser, ScreenshotStore(store), 1, settings)
        self.loop, self.rendered, self.closed = asyncio.get_running_loop(), list[str](), False
        self.began, self.allowed = threading.Event(), asyncio.Event()

    async def _render(self, key: str, html: str) -> Screenshot:
        assert asyncio.get_running_loop() is self.loop
        self.rendered.append(html)
        self.began.set()
        await self.allowed.wait()
        if "hang" in html:
            raise RenderFailed("timeout", "It was not done.")
        return Screenshot(html.encode(), 1280, 720, ())


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Counting]:
    found: list[Counting] = []

    @asynccontextmanager
    async def browsers(store: Path, count: int | None, settings: RenderSettings) -> AsyncIterator[Counting]:
        renderer = Counting(store, settings)
        found.append(renderer)
        try:
            yield renderer
        finally:
            await renderer.close()
            renderer.closed = True

    monkeypatch.setattr("sweet.render.browsers.open_browsers", browsers)
    return found


@pytest.mark.quick
def test_two_loops_that_show_the_same_page_share_one_rendering(opened: list[Counting], tmp_path: Path) -> None:
    threads = threading.active_count()
    found: list[Screenshot] = []
    with open_shared_browsers(tmp_path, 1, RenderSettings(width=640)) as shared:
        (pool,) = opened
        other = threading.Thread(target=lambda: found.append(asyncio.run(shared.shoot("a page"))))
        other.start()

        async def here() -> Screenshot:
            asked = asyncio.create_task(shared.shoot("a page"))
            await asyncio.to_thread(pool.began.wait)
            pool.loop.call_soon_threadsafe(pool.allowed.set)
            return await asked

        first = asyncio.run(here())
        other.join()
        assert found == [first]
        assert pool.rendered == ["a page"]
        assert pool.settings.width == 640
        with pytest.raises(RenderFailed, match="It was not done"):
            asyncio.run(shared.shoot("hang"))
    assert pool.closed
    assert threading.active_count() == threads


@pytest.mark.quick
def test_a_caller_that_gives_up_leaves_the_pool_open(opened: list[Counting], tmp_path: Path) -> None:
    with open_shared_browsers(tmp_path) as shared:
        with pytest.raises(TimeoutError):
            asyncio.run(asyncio.wait_for(shared.shoot("slow"), 0.05))
        (pool,) = opened
        pool.loop.call_soon_threadsafe(pool.allowed.set)
        assert asyncio.run(shared.shoot("next")).png == b"next"
    assert pool.closed


@pytest.mark.quick
def test_it_ends_with_the_error_of_the_block_or_of_what_does_not_open(
    opened: list[Counting], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(KeyError), open_shared_browsers(tmp_path):
        raise KeyError
    assert opened[0].closed

    def refuses(*_: object) -> object:
        raise UsageError("There is no Firefox.")

    monkeypatch.setattr("sweet.render.browsers.open_browsers", refuses)
    with pytest.raises(UsageError, match="no Firefox"), open_shared_browsers(tmp_path):
        pass
