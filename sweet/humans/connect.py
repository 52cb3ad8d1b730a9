"""Open the simulated human of a task kind: scripted, or played by a model.

A kind whose human sees pages also gets browsers, which stay open as long as the context is.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from sweet.humans.base import Human
from sweet.llm.base import ChatClient
from sweet.render.page import RenderSettings
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
    settings: RenderSettings | None = None,
    tries: int = 1,
) -> AsyncIterator[Human]:
    """Open the human of `kind`, played by `client`, or scripted if there is no client.

    Args:
        screenshots: the folder for screenshots, for a kind whose human sees pages.
        ray: the Ray cluster whose browsers render the pages; None renders them on this machine.
        say: called with each line of text for the user.
        settings: of rendering, for a kind whose human sees pages; None for the defaults.
        tries: replies that a model is asked for at each turn until one does not leak.

    Raises:
        SweetError: the human sees pages, and there is no browser.
        UsageError: the human sees pages, and the client's model accepts no images.
        ServerError: the client's server could not be reached.
    """
    if not kind.visual:
        from sweet.humans.llm import LLMHuman
        from sweet.humans.scripted import ScriptedHuman

        yield ScriptedHuman(kind) if client is None else LLMHuman(client, kind, recipe, tries)
        return
    from sweet.humans.scripted_page_human import ScriptedPageHuman
    from sweet.humans.vlm_human import VLMHuman, check_vision
    from sweet.render.on_ray import open_renderer

    if client is not None:
        await check_vision(client)
    async with open_renderer(screenshots, ray=ray, say=say, settings=settings) as renderer:
        if client is not None:
            yield VLMHuman(client, kind, renderer, recipe, tries)
        else:
            yield ScriptedPageHuman(renderer, kind.human_reply_limit, recipe)
