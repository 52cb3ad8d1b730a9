"""Browsers on the nodes of a Ray cluster, behind one renderer: pages go out, screenshots come back and are kept here.

The same page must come out the same whoever renders it, or scores would depend on the machine. So every node first
draws a page of letters, sizes and boxes, and one that draws it otherwise than the first (another Firefox, other fonts)
is left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from sweet.cluster.nodes import open_cluster
from sweet.cluster.scheduler import CAPACITY, Scheduler
from sweet.cluster.worker import AsyncWorker
from sweet.render import browsers
from sweet.render.page import RenderFailed, RenderSettings, Screenshot
from sweet.render.renderer import CachingRenderer
from sweet.render.store import ScreenshotStore

PROBE = """<!doctype html><html><body style="margin:0">
<h1>Sphinx of black quartz, judge my vow</h1>
<p style="font-family:serif">äöü ß € — 0123456789 <b>bold</b> <i>italic</i></p>
<p style="font-family:monospace">def f(x): return x ** 2</p><button>Button</button><input value="field">
<div style="width:300px;height:40px;border-radius:9px;background:linear-gradient(#246,#ace)"></div></body></html>"""

WAITING = 2
"""Pages that a node has for each of its browsers, so that none waits for the next."""


@asynccontextmanager
async def open_renderer(
    store: Path, count: int | None = None, ray: str | None = None, say: Callable[[str], None] = lambda _: None
) -> AsyncIterator[CachingRenderer]:
    """Browsers on this machine, or on the nodes of the cluster that `ray` names (sweet.cluster.nodes.open_cluster).

    Args:
        store: the folder that keeps the screenshots.
        count: how many browsers (on each node); None for as many as the machine has cores and memory for.
        say: tells people one line.

    Raises:
        SweetError: there is no browser, or no cluster.
    """
    if ray is None:
        async with browsers.open_browsers(store, count) as pool:
            yield pool
        return
    settings = RenderSettings()
    same = _Same()
    with (
        open_cluster(ray) as cluster,
        Scheduler[str, _Shot](
            cluster,
            partial(_open_on_node, count, settings),
            worker=AsyncWorker,
            chunks_per_worker=WAITING * (count or browsers.MOST_BROWSERS),
            accept=same.accept,
            say=say,
        ) as spread,
    ):
        renderer = RayRenderer(spread, ScreenshotStore(store), settings)
        try:
            yield renderer
        finally:
            await renderer.close()


_Shot = Screenshot | RenderFailed


class RayRenderer(CachingRenderer):
    """Renders on the nodes of a cluster."""

    def __init__(self, spread: Scheduler[str, _Shot], store: ScreenshotStore, settings: RenderSettings) -> None:
        super().__init__(store, settings)
        self._spread = spread

    @property
    def nodes(self) -> dict[str, dict[str, Any]]:
        """What each has rendered, and by how many browsers."""
        return self._spread.record("browsers")

    async def _render(self, key: str, html: str) -> Screenshot:
        [shot] = await asyncio.wrap_future(self._spread.submit([html]))
        if isinstance(shot, RenderFailed):
            raise shot
        return shot


class _Same:
    """Whether nodes draw alike."""

    def __init__(self) -> None:
        self.first: tuple[str, str] | None = None

    def accept(self, name: str, info: Mapping[str, Any]) -> str | None:
        """Why a node is of no use beside the others."""
        if self.first is None:
            self.first = (name, info["probe"])
        if info["probe"] != self.first[1]:
            return f"it draws the same page otherwise than {self.first[0]} (another Firefox, or other fonts)"
        return None


@asynccontextmanager
async def _open_on_node(count: int | None, settings: RenderSettings, cores: int) -> AsyncIterator[_Browsers]:
    number = count or min(cores, browsers.fitting_count())
    async with browsers.open_browsers(None, number, settings) as pool:
        probe = await pool.shoot(PROBE)
        yield _Browsers(pool, {"probe": probe.sha256, "browsers": number, CAPACITY: WAITING * number})


class _Browsers:
    """Implements sweet.cluster.worker.AsyncWork."""

    def __init__(self, pool: CachingRenderer, info: Mapping[str, Any]) -> None:
        self._pool, self.info = pool, info

    async def result(self, item: str, /) -> _Shot:
        try:
            return await self._pool.shoot(item)
        except RenderFailed as failed:
            return failed
