"""A vision model as the simulated human of pages: shown the agent's page and the one in mind, it names differences.

Each turn both pages are rendered and both screenshots go to the model, the agent's first, with the text of
`TaskKind.human_prompt`; of what was shown at earlier turns it gets the words that were said. Where there is no picture
of the agent's page it is told why, in words, and sees the page in mind alone. As in the original protocol it answers
greedily and its reply is cut.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from sweet.errors import UsageError
from sweet.humans.base import PICTURES, HumanReply
from sweet.humans.faults import fault_of, leaks_page
from sweet.humans.llm import reply_of
from sweet.humans.scripted_page_human import Sight, look
from sweet.llm.base import ChatClient, RequestFailed, Sampling
from sweet.llm.images import ImageMessage
from sweet.render.page import Screenshot
from sweet.render.renderer import Renderer
from sweet.render.scaling import scaled
from sweet.render.screenshot_images import black_square
from sweet.tasks.base import Message, Recipe, Task
from sweet.tasks.kind import TaskKind

SAMPLING = Sampling(temperature=0.0, max_tokens=400)
"""400 tokens are more than the 1000 characters that are kept of a reply."""

_ALONE = "This time you get one screenshot only, that of the page you have in mind: "
_NOT_SHOWN = "the designer's page could not be shown. {why} Say so to the designer, and ask for a page that can be."
_NO_PAGE = "the designer's last reply holds no page. Answer what it asks, and ask to be shown a page."
_TRIAL = "Are these two pictures alike? Answer in one word."


async def check_sight(client: ChatClient) -> None:
    """Show the model two small pictures, so that one which cannot see is found before anything is played.

    Raises:
        UsageError: it cannot be shown them.
        sweet.errors.ServerError: its server could not be reached.
    """
    trial = ImageMessage(role="user", content=_TRIAL, images=(black_square(),) * PICTURES)
    try:
        await client.chat([trial], Sampling(temperature=0.0, max_tokens=8))
    except RequestFailed as error:
        raise UsageError(
            f"{client.model} cannot play a human who sees pages: shown two pictures, it fails. {error.what}",
            where=error.where,
            fix="--sim with a vision model whose server takes two pictures a prompt, as "
            "sweet serve-sim --task html --engine vllm --model MODEL starts it, or --sim scripted",
        ) from error


class VisionHuman:
    """Plays the human by showing `client` screenshots (implements sweet.humans.base.Human).

    What is wrong with a reply is told with it (sweet.humans.faults); what follows from it is its caller's.
    """

    def __init__(self, client: ChatClient, kind: TaskKind, renderer: Renderer, recipe: Recipe = "paper") -> None:
        self.client, self.kind, self.renderer, self.recipe = client, kind, renderer, recipe
        self.name = client.model

    async def reply(self, task: Task, dialogue: Sequence[Message]) -> HumanReply:
        """Ask for the next reply; errors as of `look` and of `ChatClient.chat`."""
        sight = await look(self.renderer, task, dialogue, self.recipe)
        shown = [sight.page, sight.reference] if isinstance(sight.page, Screenshot) else [sight.reference]
        images = await asyncio.to_thread(scaled, shown)
        *before, last = self.kind.human_prompt(task, dialogue)
        asked = ImageMessage(role=last.role, content=last.content + _note(sight), images=images)
        completion = await self.client.chat([*before, asked], SAMPLING)
        fault = partial(fault_of, task=task, dialogue=dialogue, leaks=leaks_page)
        return reply_of(completion, self.kind.human_reply_limit, fault)


def _note(sight: Sight) -> str:
    """What follows the prompt where the agent's page is not to be seen."""
    if isinstance(sight.page, Screenshot):
        return ""
    return f"\n\n{_ALONE}{_NO_PAGE if sight.page is None else _NOT_SHOWN.format(why=sight.page)}"
