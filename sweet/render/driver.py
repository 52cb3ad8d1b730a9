"""What a browser must do for a page, whoever drives it.

Two ways lead to a Firefox. `sweet.render.bidi` starts one of the system and speaks its own protocol with it, which is
the faster way; `sweet.render.playwright_driver` has Playwright start its own build, which nobody else can drive, or one
of the system. The rest is the same for both: preferences, script, server, time-outs, and that processes are killed from
outside.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from sweet.render.firefox import Processes

START_PATIENCE = 90.0
"""Seconds for a browser to start, which takes five on an idle core."""


class DriverError(Exception):
    """Firefox could not do what it was told; `str()` is how it says so."""


class Disconnected(DriverError):
    """Nothing more can be told to Firefox, since it has ended, or its page has."""


class Window(Protocol):
    """One headless Firefox with one window. `close` must be called, whatever came of `start`.

    Nothing here bounds its time: a page may keep the browser from answering. Who waits longer than it likes kills
    `processes`. What is waited for, but `close`, raises DriverError, and Disconnected where the browser is gone.
    """

    @property
    def processes(self) -> Processes | None:
        """Those of the browser, as soon as they are known."""
        ...

    @property
    def living(self) -> bool:
        """Whether it has been started, and not ended since."""
        ...

    async def start(self, port: int, script: str, width: int, height: int) -> None:
        """Start the browser.

        Args:
            port: of the server that is its only way out.
            script: runs in every page before the page's own scripts.
            width: of the window in CSS px, which are those of its pictures; `height` alike.
        """
        ...

    async def go(self, address: str) -> None:
        """Load a page, until its `load` event."""
        ...

    async def evaluate(self, expression: str) -> object:
        """The value of an expression in the page, which may be a promise of it: text, or what the page put there."""
        ...

    async def picture(self, width: int, height: int, *, document: bool) -> bytes:
        """A PNG of so much of the document from its upper left corner; with `document` false, of the window."""
        ...

    async def address(self) -> str:
        """Where the window is now."""
        ...

    def said(self) -> str:
        """The last line that the browser printed; "" where nobody knows."""
        ...

    async def close(self) -> None:
        """Put away what is left of a browser whose processes have been killed. May be called again."""
        ...


MakeWindow = Callable[[], Window]
"""A driver: makes the window of one more browser."""
