"""From a kind of task, and the model that plays its human if one does, to the human.

A kind whose human sees pages gets browsers, which stay open as long as the human plays.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from sweet.errors import UsageError
from sweet.humans.base import Human
from sweet.llm.base import ChatClient
from sweet.tasks.base import Recipe, Task, TaskKind


def check_human(kind: TaskKind, tasks: Sequence[Task], *, scripted: bool) -> None:
    """UsageError where a scripted human, or a model, cannot play the human of these tasks."""
    if scripted:
        kind.check_scripted_human(tasks)
    elif kind.visual:
        raise UsageError(
            f"The human of {kind.name} tasks must see pages, and no model can be shown them yet.",
            where="--sim",
            fix="--sim scripted",
        )


@asynccontextmanager
async def open_human(
    kind: TaskKind, client: ChatClient | None, screenshots: Path, recipe: Recipe
) -> AsyncIterator[Human]:
    """The human of `kind`: played by `client`, or scripted without one.

    Args:
        screenshots: where screenshots are kept, for a kind whose human sees pages.

    Raises:
        SweetError: the human sees pages, and there is no browser.
        UsageError: the client cannot play this kind's human.
    """
    check_human(kind, (), scripted=client is None)
    if not kind.visual:
        from sweet.humans.llm import LLMHuman
        from sweet.humans.scripted import ScriptedHuman

        yield ScriptedHuman() if client is None else LLMHuman(client, kind)
        return
    from sweet.humans.visual import VisualHuman
    from sweet.render.browsers import open_browsers

    async with open_browsers(screenshots) as renderer:
        yield VisualHuman(renderer, kind.human_reply_limit, recipe)
