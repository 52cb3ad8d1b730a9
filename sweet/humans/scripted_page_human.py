"""The scripted human of pages: renders the agent's page and the one in mind, and names what differs most.

No model and no randomness: what is said follows from what is to be seen of both pages (sweet.tasks.html.compare, in the
sentences of sweet.tasks.html.words). `look` gives anybody who plays the human both screenshots.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from sweet.humans.base import HumanReply, ReferenceFailed
from sweet.humans.deadline import off_the_clock
from sweet.render.page import RenderFailed, Screenshot
from sweet.render.renderer import Renderer
from sweet.tasks.base import Message, Recipe, Task
from sweet.tasks.html import words
from sweet.tasks.html.compare import differences
from sweet.tasks.html.page import extract_page
from sweet.tasks.html.view import view_of


@dataclass(frozen=True)
class Sight:
    """What the human sees: the agent's page (None where its reply holds none) and the page in mind."""

    page: Screenshot | RenderFailed | None
    reference: Screenshot


async def look(renderer: Renderer, task: Task, dialogue: Sequence[Message], recipe: Recipe) -> Sight:
    """Render the page in the agent's last message and the task's reference.

    Raises:
        ReferenceFailed: the reference cannot be rendered.
        SweetError: there is no browser, or something that a page needs is not on this machine.
    """
    said = next((message.content for message in reversed(dialogue) if message.role == "assistant"), "")
    page = extract_page(said, recipe)
    with off_the_clock():
        try:
            reference = await renderer.shoot(task.ground_truth)
        except RenderFailed as error:
            raise ReferenceFailed(f"The page in mind cannot be rendered: {error}", where=f"task {task.id}") from error
        if page is None:
            return Sight(None, reference)
        try:
            return Sight(await renderer.shoot(page), reference)
        except RenderFailed as error:
            return Sight(error, reference)


def scripted_words(sight: Sight, limit: int) -> str:
    """What the scripted human says of what it sees, in at most `limit` characters."""
    if sight.page is None:
        return words.NO_PAGE
    if isinstance(sight.page, RenderFailed):
        return f"{words.FAILED}{sight.page}"[:limit]
    page, reference = view_of(sight.page), view_of(sight.reference)
    return words.reply(differences(page, reference), page, reference, limit)


class VisualHuman:
    """Names the largest differences from the page in mind (implements sweet.humans.base.Human)."""

    name = "scripted"

    def __init__(self, renderer: Renderer, limit: int, recipe: Recipe = "paper") -> None:
        self.renderer, self.limit, self.recipe = renderer, limit, recipe

    async def reply(self, task: Task, dialogue: Sequence[Message]) -> HumanReply:
        """Errors as of `look`."""
        sight = await look(self.renderer, task, dialogue, self.recipe)
        return HumanReply(await asyncio.to_thread(scripted_words, sight, self.limit))
