"""A renderer that uses browsers on the nodes of a Ray cluster and stores the screenshots here.

A page must render identically on every node, or scores would depend on the machine. Therefore every node first renders
a probe page of letters, sizes and boxes, and a node whose result differs from the first node's (another Firefox, other
fonts) is not used.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from sweet.cluster.nodes import open_cluster
from sweet.cluster.scheduler import CAPACITY, Scheduler
from sweet.cluster.worker import Fault
from sweet.errors import SweetError
from sweet.render import browsers
from sweet.render.page import PLACEHOLDER, Renderer, RenderFailed, RenderSettings, Screenshot
from sweet.render.renderer import CachingRenderer
from sweet.render.store import ScreenshotStore

PROBE = """<!doctype html><html><body style="margin:0">
<h1>Sphinx of black quartz, judge my vow</h1>
<p style="font-family:serif">äöü ß € — 0123456789 <b>bold</b> <i>italic</i></p>
<p style="font-family:monospace">def f(x): return x ** 2</p><button>Button</button><input value="field">
<div style="width:300px;height:40px;border-radius:9px;background:linear-gradient(#246,#ace)"></div></body></html>"""

PROBE_PHOTO = '<img src="https://picsum.photos/id/48/300/200">'
"""Added to the probe page where pages show the photograph, so that its file must be the same on all nodes."""

WAITING = 2
"""Pages queued on a node for each of its browsers, so that none is idle."""


@asynccontextmanager
async def open_renderer(
    store: Path,
    count: int | None = None,
    ray: str | None = None,
    say: Callable[[str], None] = lambda _: None,
    settings: RenderSettings | None = None,
) -> AsyncIterator[CachingRenderer]:
    """Open browsers on this machine, or on the nodes of the cluster `ray` (sweet.cluster.nodes.open_cluster).

    Args:
        store: the folder of the screenshots.
        count: number of browsers (on each node); None for as many as the machine has cores and memory for.
        say: called with each line of text for the user.
        settings: of rendering; None for the defaults.

    Raises:
        SweetError: there is no browser, or no cluster.
    """
    settings = settings or RenderSettings()
    if ray is None:
        async with browsers.open_browsers(store, count, settings) as pool:
            yield pool
        return
    same = _SameRendering()
    with (
        open_cluster(ray) as cluster,
        Scheduler[str, _Shot](
            cluster,
            partial(_open_on_node, count, settings),
            chunks_per_worker=WAITING * (count or browsers.MAX_BROWSERS),
            accept=same.accept,
            say=say,
        ) as scheduler,
    ):
        renderer = RayRenderer(scheduler, ScreenshotStore(store), settings)
        try:
            yield renderer
        finally:
            await renderer.close()


_Shot = Screenshot | RenderFailed | Fault


class RayRenderer(CachingRenderer):
    """Renders on the nodes of a cluster."""

    def __init__(self, scheduler: Scheduler[str, _Shot], store: ScreenshotStore, settings: RenderSettings) -> None:
        super().__init__(store, settings)
        self._scheduler = scheduler

    @property
    def nodes(self) -> dict[str, dict[str, Any]]:
        """For each node the work that it did and its number of browsers."""
        return self._scheduler.record("browsers")

    async def _render(self, key: str, html: str) -> Screenshot:
        [shot] = await asyncio.wrap_future(self._scheduler.submit([html]))
        if isinstance(shot, RenderFailed):
            raise shot
        if isinstance(shot, Fault):
            raise SweetError(shot.what, where=shot.where, fix=shot.fix)
        return shot


class _SameRendering:
    """Checks that all nodes render the probe page identically."""

    def __init__(self) -> None:
        self.first: tuple[str, str] | None = None

    def accept(self, name: str, info: Mapping[str, Any]) -> str | None:
        """Return why a node cannot be used, or None."""
        if self.first is None:
            self.first = (name, info["probe"])
        if info["probe"] != self.first[1]:
            return f"it renders the same page differently than {self.first[0]} (another Firefox, or other fonts)"
        return None


@contextmanager
def _open_on_node(count: int | None, settings: RenderSettings, cores: int) -> Iterator[_Browsers]:
    number = count or min(cores, browsers.default_count())
    with browsers.open_shared_browsers(None, number, settings) as pool:
        probe = asyncio.run(pool.shoot(PROBE if settings.pictures == PLACEHOLDER else PROBE + PROBE_PHOTO))
        yield _Browsers(pool, {"probe": probe.sha256, "browsers": number, CAPACITY: WAITING * number})


class _Browsers:
    """Implements sweet.cluster.worker.Work."""

    def __init__(self, pool: Renderer, info: Mapping[str, Any]) -> None:
        self._pool, self.info = pool, info

    def results(self, items: Sequence[str]) -> list[_Shot]:
        return [asyncio.run(self._shot(html)) for html in items]

    async def _shot(self, html: str) -> _Shot:
        try:
            return await self._pool.shoot(html)
        except RenderFailed as failed:
            return failed
        except SweetError as error:  # concerns this page alone, so the browsers stay
            return Fault.of(error)
