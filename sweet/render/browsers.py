"""A pool of headless Firefoxes that turn pages into screenshots."""

from __future__ import annotations

from typing import Protocol

from sweet.render.page import Screenshot


class Renderer(Protocol):
    """Whoever turns pages into screenshots: a pool of browsers, or what a test puts in its place."""

    async def shoot(self, html: str) -> Screenshot:
        """Render one page. Any number of calls may wait at once.

        Raises:
            RenderFailed: by the page's fault.
            SweetError: there is no browser, or an asset that the page wants has not been fetched.
        """
        ...
