"""What tests of a real Firefox share: whether there is one, how it is chosen, and a pool of one browser."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from sweet.errors import UsageError
from sweet.render.browsers import BrowserPool, open_browsers
from sweet.render.firefox import Firefox, find_firefox
from sweet.render.page import RenderFailed, RenderSettings, Screenshot


def _why_not(driver: str) -> str | None:
    """Return why the system's Firefox cannot be driven by this driver, or None."""
    for name in ("cryptography", "PIL"):
        try:
            __import__(name)
        except ImportError:
            return f"{name} is not installed"
    try:
        find_firefox({**os.environ, "PLAYWRIGHT_BROWSERS_PATH": "/nowhere", "SWEET_BROWSER_DRIVER": driver})
    except UsageError as error:
        return str(error)
    return None


WHY_NOT = _why_not("direct")

needs_firefox = pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))

needs_playwright = pytest.mark.skipif(_why_not("playwright") is not None, reason=str(_why_not("playwright")))

T = TypeVar("T")

PATIENT = RenderSettings(timeout=60.0)
"""A busy machine renders a page in many seconds, which is no failure; tests of the limit set one of their own."""


@contextmanager
def driven(driver: str) -> Iterator[Firefox]:
    """Make the system's Firefox with this driver the one that is found in the block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SWEET_BROWSER_DRIVER", "direct")
        patch.setenv("SWEET_FIREFOX", find_firefox().path)
        patch.setenv("SWEET_BROWSER_DRIVER", driver)
        yield find_firefox()


class Shared:
    """A pool of one browser that most tests share, with its event loop, because starting one takes seconds."""

    def __init__(self, assets: Path, driver: str) -> None:
        self.loop = asyncio.new_event_loop()
        self.driver = driver
        self.context = open_browsers(None, 1, PATIENT, assets)
        with driven(driver):
            self.pool = self.loop.run_until_complete(self.context.__aenter__())

    def run(self, what: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(self._to_the_end(what))

    async def _to_the_end(self, what: Coroutine[Any, Any, T]) -> T:
        """Wait until the browser has left its page, too: the loop stands still until the next call, and a browser that
        has not left its page within seconds is replaced by a new one."""
        try:
            return await what
        finally:
            await asyncio.gather(*self.pool._tasks, return_exceptions=True)

    def close(self) -> None:
        self.loop.run_until_complete(self.context.__aexit__(None, None, None))
        self.loop.close()


async def outcome(pool: BrowserPool, page: str) -> Screenshot | RenderFailed:
    try:
        return await pool.shoot(page)
    except RenderFailed as failed:
        return failed
