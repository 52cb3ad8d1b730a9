"""The scripted human of pages: renders the agent's page and the reference page, and names the largest differences.

There is no model and no randomness: the reply follows from the two rendered pages (compared by
sweet.tasks.html.compare, in the sentences of sweet.tasks.html.words). `render_pages` also serves the human that a
vision model plays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from sweet.humans.base import HumanReply, ReferenceFailed
from sweet.humans.deadline import off_the_clock
from sweet.render.page import RenderFailed, Screenshot
from sweet.render.renderer import Renderer
from sweet.tasks.base import Message, ProtocolName, Task
from sweet.tasks.html import words
from sweet.tasks.html.compare import differences
from sweet.tasks.html.page import extract_page
from sweet.tasks.html.view import view_of


@dataclass(frozen=True)
class RenderedPages:
    """The agent's page (None if its reply contains none) and the reference page, rendered."""

    page: Screenshot | RenderFailed | None
    reference: Screenshot


async def render_pages(
    renderer: Renderer, task: Task, dialogue: Sequence[Message], protocol: ProtocolName
) -> RenderedPages:
    """Render the page in the agent's last message and the task's reference.

    Raises:
        ReferenceFailed: the reference cannot be rendered.
        SweetError: there is no browser, or an asset that a page needs is not on this machine.
    """
    said = next((message.content for message in reversed(dialogue) if message.role == "assistant"), "")
    page = extract_page(said, protocol)
    with off_the_clock():
        try:
            reference = await renderer.shoot(task.ground_truth)
        except RenderFailed as error:
            raise ReferenceFailed(f"The page in mind cannot be rendered: {error}", where=f"task {task.id}") from error
        if page is None:
            return RenderedPages(None, reference)
        try:
            return RenderedPages(await renderer.shoot(page), reference)
        except RenderFailed as error:
            return RenderedPages(error, reference)


def describe_differences(pages: RenderedPages, limit: int) -> str:
    """Return the scripted human's reply to the rendered pages, in at most `limit` characters."""
    if pages.page is None:
        return words.NO_PAGE
    if isinstance(pages.page, RenderFailed):
        return f"{words.FAILED}{pages.page}"[:limit]
    page, reference = view_of(pages.page), view_of(pages.reference)
    return words.reply(differences(page, reference), page, reference, limit)


class ScriptedPageHuman:
    """Names the largest differences from the reference page (implements sweet.humans.base.Human)."""

    name = "scripted"

    def __init__(self, renderer: Renderer, limit: int, protocol: ProtocolName = "paper") -> None:
        self.renderer, self.limit, self.protocol = renderer, limit, protocol

    async def reply(self, task: Task, dialogue: Sequence[Message]) -> HumanReply:
        """Return the next reply; raises what `render_pages` raises."""
        pages = await render_pages(self.renderer, task, dialogue, self.protocol)
        return HumanReply(await asyncio.to_thread(describe_differences, pages, self.limit))
