"""Which browser of a pool renders a page, and when another one is started; the browsers are stand-ins."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from sweet.render.browsers import BrowserPool
from sweet.render.page import RenderFailed, RenderSettings, Screenshot

pytestmark = pytest.mark.quick


class StandIn:
    """A browser that shows its number, crashes on some pages, and leaves a page when it may.

    Attributes:
        made: all browsers.
        may_leave: set when they may. leaves: whether they are alive then.
    """

    made: ClassVar[list[StandIn]] = []
    may_leave: asyncio.Event
    leaves = True

    def __init__(self, *_: object) -> None:
        self.alive, self.clean, self.pages = False, True, 0
        self.number = len(self.made)
        self.made.append(self)

    async def start(self, _: RenderSettings) -> None:
        await asyncio.sleep(0)
        self.alive = True

    async def shoot(self, html: str, *_: object) -> Screenshot:
        self.pages += 1
        await asyncio.sleep(0)
        if html == "crashes in the first two" and self.number < 2:
            self.alive = False
            raise RenderFailed("crashed", "The browser ended under the page.")
        return Screenshot(str(self.number).encode(), 1280, 720, ())

    async def leave(self) -> bool:
        await self.may_leave.wait()
        self.alive = self.leaves
        return self.alive

    async def memory(self) -> int:
        return 0

    async def stop(self) -> None:
        self.alive = False


@pytest.fixture(autouse=True)
def browsers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("sweet.render.browsers.Browser", StandIn)
    monkeypatch.setattr(StandIn, "may_leave", asyncio.Event(), raising=False)
    yield
    assert not any(browser.alive for browser in StandIn.made), "all are stopped with the pool"
    StandIn.made.clear()


def pool_of_two() -> BrowserPool:
    nothing: Any = None
    return BrowserPool(nothing, nothing, nothing, nothing, None, 2, RenderSettings())


async def numbers(pool: BrowserPool, *pages: str) -> list[str]:
    """Render these pages at once, and return by which browsers."""
    return sorted(shot.png.decode() for shot in await asyncio.gather(*map(pool.shoot, pages)))


def test_a_page_waits_for_a_browser_that_leaves_the_page_before() -> None:
    async def work() -> None:
        pool = pool_of_two()
        assert await numbers(pool, "first") == ["0"]
        waiting = asyncio.create_task(numbers(pool, "second"))
        await asyncio.wait({waiting}, timeout=0.05)
        assert (waiting.done(), len(StandIn.made)) == (False, 1)
        StandIn.may_leave.set()
        assert await waiting == ["0"]
        assert await numbers(pool, "third", "fourth") == ["0", "1"]
        assert pool.started == len(StandIn.made) == 2
        await pool.close()

    asyncio.run(work())


def test_another_is_started_where_it_does_not_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        pool = pool_of_two()
        StandIn.may_leave.set()
        assert await numbers(pool, "first") == ["0"]
        assert await numbers(pool, "second") == ["1"]
        await pool.close()

    monkeypatch.setattr(StandIn, "leaves", False)
    asyncio.run(work())


def test_a_page_under_which_a_browser_ends_gets_a_new_one_and_the_other_stays() -> None:
    async def work() -> None:
        pool = pool_of_two()
        StandIn.may_leave.set()
        assert await numbers(pool, "first", "second") == ["0", "1"]
        await asyncio.gather(*pool._tasks)  # both are idle
        assert await numbers(pool, "crashes in the first two") == ["2"]
        assert sorted(browser.alive for browser in StandIn.made) == [False, True, True]
        await pool.close()

    asyncio.run(work())
