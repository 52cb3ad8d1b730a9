"""A vision model as the simulated human of pages: it sees the agent's page and the reference page, and compares them.

At each turn both pages are rendered and both screenshots are sent to the model, the agent's first, with the text of
`TaskKind.human_prompt`, which has the dialogue so far without earlier screenshots; in protocol `upstream`, as in the
published code, it has no text of the dialogue. If the agent's page has no screenshot, the prompt says why, and the
reference's is the only one. As in the original protocol the model is decoded greedily and its reply is cut. A reply
that leaks source is asked for again (sweet.humans.asking), except in protocol `upstream`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from sweet.errors import UsageError
from sweet.hints import Hint, option
from sweet.humans.asking import AskedHuman
from sweet.humans.base import PICTURES, HumanReply
from sweet.humans.personas import PLAIN, Persona
from sweet.humans.scripted_page_human import RenderedPages, render_pages
from sweet.llm.base import ChatClient, RequestFailed, Sampling
from sweet.llm.images import ImageMessage
from sweet.render.page import Screenshot
from sweet.render.renderer import Renderer
from sweet.render.screenshot_images import black_square, scaled
from sweet.tasks.base import Message, ProtocolName, Task
from sweet.tasks.kind import TaskKind

SAMPLING = Sampling(temperature=0.0, max_tokens=400)
"""400 tokens are more than the 1000 characters to which a reply is cut."""

_ALONE = "This time you get one screenshot only, that of the page you have in mind: "
_NOT_SHOWN = "the designer's page could not be shown. {why} Say so to the designer, and ask for a page that can be."
_NO_PAGE = "the designer's last reply holds no page. Answer what it asks, and ask to be shown a page."
_TRIAL = "Are these two pictures alike? Answer in one word."


async def check_vision(client: ChatClient) -> None:
    """Send the model two small images, so that one without vision is detected before anything is played.

    Raises:
        UsageError: the request fails.
        sweet.errors.ServerError: the model's server could not be reached.
    """
    trial = ImageMessage(role="user", content=_TRIAL, images=(black_square(),) * PICTURES)
    try:
        await client.chat([trial], Sampling(temperature=0.0, max_tokens=8))
    except RequestFailed as error:
        raise UsageError(
            f"{client.model} cannot play a human who sees pages: a request with two images fails. {error.what}",
            where=error.where,
            fix=Hint(
                option("sim"),
                " with a vision model whose server accepts two images a prompt, as "
                "sweet serve-sim --task html --engine vllm --model MODEL starts it, or ",
                option("sim", "scripted"),
            ),
        ) from error


class VLMHuman(AskedHuman):
    """Plays the human by sending screenshots to `client` (implements sweet.humans.base.Human)."""

    def __init__(
        self,
        client: ChatClient,
        kind: TaskKind,
        renderer: Renderer,
        protocol: ProtocolName = "paper",
        tries: int = 1,
        persona: Persona = PLAIN,
    ) -> None:
        super().__init__(client, kind, protocol, tries, persona)
        self.renderer = renderer

    async def reply(self, task: Task, dialogue: Sequence[Message]) -> HumanReply:
        """Ask the model for the next reply; raises what `render_pages` and `ChatClient.chat` raise."""
        pages = await render_pages(self.renderer, task, dialogue, self.protocol)
        shown = [pages.page, pages.reference] if isinstance(pages.page, Screenshot) else [pages.reference]
        images = await asyncio.to_thread(scaled, shown)
        *before, last = self.kind.human_prompt(task, () if self.protocol == "upstream" else dialogue)
        content = self.persona.added_to(last.content + _note(pages))
        asked = ImageMessage(role=last.role, content=content, images=images)
        return await self.ask([*before, asked], SAMPLING, task, dialogue)


def _note(pages: RenderedPages) -> str:
    """Return what is appended to the prompt if there is no screenshot of the agent's page."""
    if isinstance(pages.page, Screenshot):
        return ""
    return f"\n\n{_ALONE}{_NO_PAGE if pages.page is None else _NOT_SHOWN.format(why=pages.page)}"
