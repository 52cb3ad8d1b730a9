"""One pool of browsers for several event loops: it runs in a thread that has a loop of its own.

A browser belongs to the event loop in which it was started. An online training plays dialogues in one loop, and their
scorer renders pages in another; with one pool for both there are no more browsers than the machine has room for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sweet.render import browsers
from sweet.render.page import Renderer, RenderSettings, Screenshot


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
    opened: Future[Renderer] = Future()
    closing = asyncio.Event()
    loop = asyncio.new_event_loop()

    async def hold() -> None:
        async with browsers.open_browsers(store, count, settings or RenderSettings()) as pool:
            opened.set_result(pool)
            await closing.wait()

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(hold())

    with ThreadPoolExecutor(1, "browsers") as thread:
        holding = thread.submit(run)
        either: set[Future[Any]] = {opened, holding}
        try:
            wait(either, return_when=FIRST_COMPLETED)
            if not opened.done():
                holding.result()
            yield SharedRenderer(opened.result(), loop)
        finally:  # also where the wait is interrupted
            with suppress(RuntimeError):  # the loop is closed: they could not be opened
                loop.call_soon_threadsafe(closing.set)
        holding.result()
