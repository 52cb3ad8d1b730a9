"""The simulated humans of pages: they see the agent's page and the reference page, rendered, and compare them.

The scripted one names the largest differences. There is no model and no randomness: the reply follows from the two
pages (compared by sweet.tasks.html.compare, in the sentences of sweet.tasks.html.words).

A vision model gets both screenshots at each turn, the agent's first, with the text of `TaskKind.human_prompt`, which
has the dialogue so far without earlier screenshots; in protocol `upstream`, as in the published code, it has no text of
the dialogue. If the agent's page has no screenshot, the prompt says why, and the reference's is the only one. As in the
original protocol the model is decoded greedily and its reply is cut. A reply that leaks source is asked for again
(sweet.humans.asking), except in protocol `upstream`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from sweet.deadline import off_the_clock
from sweet.errors import UsageError
from sweet.humans.asking import AskedHuman
from sweet.humans.base import PICTURES, HumanReply, ReferenceFailed
from sweet.llm.base import ChatClient, ImageMessage, RequestFailed, Sampling
from sweet.render.page import Renderer, RenderFailed, Screenshot
from sweet.render.screenshot_images import black_square, scaled
from sweet.tasks.base import Message, ProtocolName, Task
from sweet.tasks.html import words
from sweet.tasks.html.compare import differences
from sweet.tasks.html.page import extract_page
from sweet.tasks.html.view import view_of

SAMPLING = Sampling(temperature=0.0, max_tokens=400)
"""400 tokens are more than the 1000 characters to which a reply is cut."""

_ALONE = "This time you get one screenshot only, that of the page you have in mind: "
_NOT_SHOWN = "the designer's page could not be shown. {why} Say so to the designer, and ask for a page that can be."
_NO_PAGE = "the designer's last reply holds no page. Answer what it asks, and ask to be shown a page."
_TRIAL = "Are these two pictures alike? Answer in one word."


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
    last_message = next((message.content for message in reversed(dialogue) if message.role == "assistant"), "")
    page = extract_page(last_message, protocol)
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
            fix=(
                "--sim with a vision model whose server accepts two images a prompt, as sweet serve-sim "
                "--task html --engine vllm --model MODEL starts it, or --sim scripted"
            ),
        ) from error


@dataclass
class VLMHuman(AskedHuman):
    """Plays the human by sending screenshots to `client` (implements sweet.humans.base.Human)."""

    renderer: Renderer = field(kw_only=True)

    async def reply(self, task: Task, dialogue: Sequence[Message]) -> HumanReply:
        """Ask the model for the next reply; raises what `render_pages` and `ChatClient.chat` raise."""
        pages = await render_pages(self.renderer, task, dialogue, self.protocol)
        screenshots = [pages.page, pages.reference] if isinstance(pages.page, Screenshot) else [pages.reference]
        images = await asyncio.to_thread(scaled, screenshots)
        *before, last = self.kind.human_prompt(task, () if self.protocol == "upstream" else dialogue)
        content = self.persona.added_to(last.content + _note(pages))
        prompt = ImageMessage(role=last.role, content=content, images=images)
        return await self.ask([*before, prompt], SAMPLING, task, dialogue)


def _note(pages: RenderedPages) -> str:
    """Return what is appended to the prompt if there is no screenshot of the agent's page."""
    if isinstance(pages.page, Screenshot):
        return ""
    return f"\n\n{_ALONE}{_NO_PAGE if pages.page is None else _NOT_SHOWN.format(why=pages.page)}"
