"""Check html tasks: render every reference page. A page that does not render is invalid; one that shows a single colour
is trivial, as any empty page of that colour is the same."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from sweet.render.page import RenderFailed, Screenshot
from sweet.render.renderer import Renderer
from sweet.render.screenshot_images import read_image
from sweet.render.store import SCREENSHOTS
from sweet.tasks.base import Task
from sweet.tasks.findings import Checked, Finding
from sweet.tasks.html.runner_context import entered
from sweet.tasks.scores import ScoringRequest

_TOGETHER = 32
"""Number of tasks whose pages are rendered at once."""


def check_pages(tasks: Sequence[Task], request: ScoringRequest) -> Iterator[Checked]:
    """Yield each task, in their order, with what is wrong with its page.

    Raises:
        SweetError: there is no browser, or an asset that a page loads has not been downloaded.
    """
    from sweet.render.on_ray import open_renderer

    opened = open_renderer(request.run / SCREENSHOTS, request.workers, None, request.say)
    with asyncio.Runner() as runner, entered(runner, opened) as renderer:
        for start in range(0, len(tasks), _TOGETHER):
            batch = tasks[start : start + _TOGETHER]
            yield from zip(batch, runner.run(_checked(batch, renderer)), strict=True)


async def _checked(tasks: Sequence[Task], renderer: Renderer) -> list[list[Finding]]:
    shots = await asyncio.gather(*(renderer.shoot(task.ground_truth) for task in tasks), return_exceptions=True)
    return [_found(task, shot) for task, shot in zip(tasks, shots, strict=True)]


def _found(task: Task, shot: Screenshot | BaseException) -> list[Finding]:
    if isinstance(shot, RenderFailed):
        what = f"the reference does not render: {str(shot).removesuffix('.')}"
        return [Finding(task.id, "invalid", what, "correct 'ground_truth'", unusable=True)]
    if isinstance(shot, BaseException):
        raise shot
    if len(read_image(shot.png).getcolors(1) or ()) == 1:
        what = "the page shows a single colour, as an empty page does"
        return [Finding(task.id, "trivial", what, "a page with something to see in 'ground_truth'")]
    return []
