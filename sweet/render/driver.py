"""The interface of a browser driver.

There are two drivers. `sweet.render.bidi` starts the system's Firefox and speaks its protocol directly, which is
faster; `sweet.render.playwright_driver` lets Playwright start its own build, which only Playwright can drive, or the
system's. Preferences, scripts, server, time-outs and killing the processes are the same for both.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from sweet.render.firefox import Processes
from sweet.render.profiles import Profile

START_TIMEOUT = 90.0
"""Seconds within which a browser must start; on an idle core it takes five."""


class DriverError(Exception):
    """A command to Firefox failed; `str()` is its message."""


class Disconnected(DriverError):
    """Firefox accepts no more commands, since it or its page has ended."""


@dataclass(frozen=True)
class Scripts:
    """The two scripts of a browser.

    Attributes:
        page: runs in every page before the page's own scripts, in the page's world.
        measure: an expression for an asynchronous function without parameters, which returns a text. It is called in a
            world of its own, which shares the document with the page but no object.
    """

    page: str
    measure: str


class Window(ABC):
    """One headless Firefox with one window. `close` must be called, even if `start` failed.

    No method has a time-out, and a page may keep the browser from answering: the caller limits the time and kills
    `processes`. All coroutines except `close` raise DriverError, and Disconnected if the browser has ended.

    Attributes:
        processes: of the browser, once they are known.
        profile: its folder, from its start until it is closed.
    """

    processes: Processes | None = None
    profile: Profile | None = None

    @property
    @abstractmethod
    def alive(self) -> bool:
        """Whether the browser has been started and has not ended."""

    @abstractmethod
    async def start(self, port: int, scripts: Scripts, width: int, height: int) -> None:
        """Start the browser.

        Args:
            port: the port of the server that is the only one it can reach.
            width, height: size of the window in CSS px, which are also the pixels of screenshots.
        """

    @abstractmethod
    async def go(self, address: str) -> None:
        """Load a page, until its `load` event."""

    @abstractmethod
    async def measure(self) -> object:
        """Call `Scripts.measure` in its own world, once for each page, and return its text."""

    @abstractmethod
    async def picture(self, width: int, height: int, *, document: bool) -> bytes:
        """Return a PNG of the document's upper left `width` x `height` pixels; if not `document`, of the window's."""

    @abstractmethod
    async def address(self) -> str:
        """Return the window's current address."""

    def last_output(self) -> str:
        """Return the last line that the browser printed; "" if it is unknown."""
        return "" if self.profile is None else self.profile.last_output()

    async def close(self) -> None:
        """Clean up after a browser whose processes have been killed. May be called more than once."""
        if self.profile is not None:
            await asyncio.to_thread(self.profile.remove)
            self.profile = None


MakeWindow = Callable[[], Window]
"""A driver: creates the window of one more browser."""
