"""From a kind of task, and the model that plays its human if one does, to the human.

A kind whose human sees pages gets browsers, which stay open as long as the human plays.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from sweet.humans.base import Human
from sweet.llm.base import ChatClient
from sweet.tasks.base import Recipe
from sweet.tasks.kind import TaskKind


@asynccontextmanager
async def open_human(
    kind: TaskKind,
    client: ChatClient | None,
    screenshots: Path,
    recipe: Recipe,
    ray: str | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> AsyncIterator[Human]:
    """The human of `kind`: played by `client`, or scripted without one.

    Args:
        screenshots: where screenshots are kept, for a kind whose human sees pages.
        ray: the Ray cluster whose browsers render them; without it those of this machine do.
        say: tells people one line.

    Raises:
        SweetError: the human sees pages, and there is no browser.
        UsageError: the human sees pages, and the client's model does not.
        ServerError: the client's server could not be reached.
    """
    if not kind.visual:
        from sweet.humans.llm import LLMHuman
        from sweet.humans.scripted import ScriptedHuman

        yield ScriptedHuman(kind) if client is None else LLMHuman(client, kind)
        return
    from sweet.humans.scripted_page_human import VisualHuman
    from sweet.humans.vlm_human import VisionHuman, check_sight
    from sweet.render.on_ray import open_renderer

    if client is not None:
        await check_sight(client)
    async with open_renderer(screenshots, ray=ray, say=say) as renderer:
        if client is not None:
            yield VisionHuman(client, kind, renderer, recipe)
        else:
            yield VisualHuman(renderer, kind.human_reply_limit, recipe)
