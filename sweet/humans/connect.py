"""Open the simulated humans of a task kind: scripted, or played by models, each with its persona.

A kind whose human sees pages also gets browsers, which all of them share and which stay open as long as the
context is, unless the caller has a renderer already.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path

from sweet.humans.base import Human
from sweet.humans.personas import Persona
from sweet.llm.base import ChatClient
from sweet.render.page import Renderer, RenderSettings
from sweet.tasks.base import ProtocolName
from sweet.tasks.kind import TaskKind


@asynccontextmanager
async def open_humans(
    kind: TaskKind,
    players: Sequence[tuple[ChatClient | None, Persona]],
    screenshots: Path,
    protocol: ProtocolName,
    settings: RenderSettings | None = None,
    tries: int = 1,
    renderer: Renderer | None = None,
    max_tokens: int | None = None,
) -> AsyncIterator[list[Human]]:
    """Open the humans of `kind`, one for each player, in their order.

    Args:
        players: who plays each, a model by its client, or None for the scripted human; and the persona, which that can
            play (`sweet.humans.scripted.check_style`).
        screenshots: the folder for screenshots, for a kind whose human sees pages.
        settings: of rendering, for a kind whose human sees pages; None for the defaults.
        tries: replies that a model is asked for at each turn until one may be passed on.
        renderer: renders the pages, by these settings; None opens browsers.
        max_tokens: of a reply of a model; None for the default.

    Raises:
        SweetError: the human sees pages, and there is no browser.
        UsageError: the human sees pages, and a model accepts no images.
        ServerError: the server of a model could not be reached.
    """
    if not kind.visual:
        from sweet.humans.asking import LLMHuman
        from sweet.humans.scripted import ScriptedHuman

        yield [
            ScriptedHuman(kind, persona)
            if client is None
            else LLMHuman(client, kind, protocol, tries, persona, max_tokens)
            for client, persona in players
        ]
        return
    from sweet.humans.page_humans import ScriptedPageHuman, VLMHuman, check_vision
    from sweet.render.browsers import open_browsers

    for client in dict.fromkeys(client for client, _ in players):
        if client is not None:
            await check_vision(client)
    opening = nullcontext(renderer) if renderer else open_browsers(screenshots, settings=settings)
    async with opening as opened:
        yield [
            ScriptedPageHuman(opened, kind.human_reply_limit, protocol)
            if client is None
            else VLMHuman(client, kind, protocol, tries, persona, max_tokens, renderer=opened)
            for client, persona in players
        ]
