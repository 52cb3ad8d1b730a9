"""A vision model as the human of pages: the requests to a real server at each turn, and the handling of its replies."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import Response

from sweet.errors import InputError, ServerError, UsageError
from sweet.humans.base import HumanReply, ReferenceFailed
from sweet.humans.page_humans import VLMHuman, check_vision
from sweet.llm.base import ContextOverflow, RequestFailed
from sweet.llm.connect import open_client
from sweet.render.page import RenderFailed, Screenshot
from sweet.render.screenshot_images import scaled
from sweet.tasks.base import Message, ProtocolName, Task
from sweet.tasks.html.kind import HtmlKind
from tests.render.pictures import page as picture
from tests.render.pictures import plain
from tests.stages.chat_server import ChatServer, refused, said

FIRST, LAST, WANTED = (f"<html><body><p>{name}</p></body></html>" for name in ("first", "last", "wanted"))
SLOW = "<html><body><p>slow</p></body></html>"
SHOTS = {
    FIRST: Screenshot(picture(1), 640, 480, ()),
    LAST: Screenshot(picture(2), 640, 480, ()),
    WANTED: Screenshot(picture(3, height=700), 640, 700, ()),
}
TASK = Task(id="bakery", problem_description="A page for a bakery.", ground_truth=WANTED)
SEEN = "Your header is blue; I have a green one in mind."


class Album:
    """A renderer with prepared screenshots; other pages do not load."""

    def __init__(self, more: dict[str, Screenshot] | None = None) -> None:
        self.shots = SHOTS | (more or {})

    async def shoot(self, html: str) -> Screenshot:
        if html not in self.shots:
            raise RenderFailed("timeout", "The page was not done within 15 seconds.")
        return self.shots[html]


def dialogue(*said: str) -> list[Message]:
    messages = [Message(role="user", content=TASK.problem_description)]
    for text in said:
        messages += [Message(role="assistant", content=text), Message(role="user", content="The title is too small.")]
    return messages[:-1]


def replies(
    server: ChatServer,
    messages: Sequence[Message],
    task: Task = TASK,
    album: Album | None = None,
    retry_timeout: float = 5,
    kind: HtmlKind | None = None,
    protocol: ProtocolName = "paper",
) -> HumanReply:
    async def work(url: str) -> HumanReply:
        async with open_client(server.model, [url], role="sim", retry_timeout=retry_timeout) as client:
            return await VLMHuman(client, kind or HtmlKind(), protocol, renderer=album or Album()).reply(task, messages)

    with server.running() as url:
        return asyncio.run(work(url))


def shown(body: dict[str, Any]) -> tuple[list[bytes], str]:
    """Return the images of a request with one message, and its text."""
    (message,) = body["messages"]
    *pictures, text = message["content"]
    assert (message["role"], text["type"]) == ("user", "text")
    urls = [part["image_url"]["url"] for part in pictures]
    return [base64.b64decode(url.removeprefix("data:image/png;base64,"), validate=True) for url in urls], text["text"]


def test_both_screenshots_are_sent_at_each_turn_the_agents_first() -> None:
    server = ChatServer("eyes", lambda body: said(SEEN))
    reply = replies(server, dialogue(FIRST, f"Here it is.\n{LAST}"))
    assert reply == HumanReply(SEEN, prompt_tokens=10, completion_tokens=4)
    (body,) = server.asked
    pictures, text = shown(body)
    assert pictures == [SHOTS[LAST].png, SHOTS[WANTED].png]
    assert (body["temperature"], body["n"], body["model"]) == (0.0, 1, "eyes")
    assert text == HtmlKind().human_prompt(TASK, dialogue(FIRST, f"Here it is.\n{LAST}"))[0].content
    assert "A page for a bakery." in text
    assert "The title is too small." in text
    assert "<p>" not in text, "it sees pages, not their source"


def test_protocol_upstream_shows_the_pictures_without_the_dialogue() -> None:
    server = ChatServer("eyes", lambda body: said(SEEN))
    replies(server, dialogue(FIRST, f"Here it is.\n{LAST}"), protocol="upstream")
    pictures, text = shown(server.asked[0])
    assert pictures == [SHOTS[LAST].png, SHOTS[WANTED].png]
    for word in (TASK.problem_description, "The title is too small.", "Here it is.", "{"):
        assert word not in text
    assert "Compare the first screenshot with the second" in text


def test_a_prompt_of_the_user_may_omit_request_and_dialogue(tmp_path: Path) -> None:
    (tmp_path / "human.txt").write_text("Which one is better?\n")
    server = ChatServer("eyes", lambda body: said(SEEN))
    replies(server, dialogue(FIRST), kind=HtmlKind().with_prompts(tmp_path))
    assert shown(server.asked[0])[1] == "Which one is better?"
    (tmp_path / "human.txt").write_text("Better?\n{dialogue}\n{dialogue}\n")
    with pytest.raises(InputError, match=r"must have \{dialogue\} once"):
        HtmlKind().with_prompts(tmp_path)


def test_large_screenshots_are_scaled_down_together() -> None:
    tall = Screenshot(plain("#10b981", 1280, 3000), 1280, 3000, ())
    server = ChatServer("eyes", lambda body: said(SEEN))
    replies(server, dialogue(FIRST), album=Album({FIRST: tall}))
    pictures, _ = shown(server.asked[0])
    assert pictures == list(scaled([tall, SHOTS[WANTED]]))
    assert pictures[1] != SHOTS[WANTED].png


@pytest.mark.parametrize(
    ("last", "note"),
    [
        (f"This one is better:\n{SLOW}", "could not be shown. The page was not done within 15 seconds."),
        ("Which colour do you like?", "last reply holds no page."),
    ],
)
def test_without_a_screenshot_the_prompt_says_why_and_has_the_reference_only(last: str, note: str) -> None:
    server = ChatServer("eyes", lambda body: said("I cannot see your page."))
    assert replies(server, dialogue(FIRST, last)).fault is None
    pictures, text = shown(server.asked[0])
    assert pictures == [SHOTS[WANTED].png]
    assert text.rpartition("\n\n")[2].startswith("This time you get one screenshot only")
    assert note in text.rpartition("\n\n")[2]


def test_a_long_reply_is_cut() -> None:
    text = " ".join(f"wider{number}" for number in range(400))
    reply = replies(ChatServer("eyes", lambda body: said(f"  {text}")), dialogue(FIRST))
    assert reply.text == text[:1000].rstrip()
    assert reply.fault is None


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "empty"),
        ("I'm sorry, but I can't assist with that.", "refusal"),
        (f"I WANT TO ANSWER: {WANTED}", "ended"),
        ("Use this:\n<main><h1>wanted</h1><hr><em>now</em></main>", "leaked"),
        (f"{FIRST}", "echo"),
        ("The heading should be an <h1> that reads “wanted”.", None),
    ],
)
def test_its_faults_are_distinguished(text: str, fault: str | None) -> None:
    assert replies(ChatServer("eyes", lambda body: said(text)), dialogue(FIRST)).fault == fault


def test_a_reference_that_does_not_render_raises_without_a_request() -> None:
    server = ChatServer("eyes", lambda body: said(SEEN))
    task = TASK.model_copy(update={"ground_truth": SLOW})
    with pytest.raises(ReferenceFailed, match=r"not done within 15 seconds.*task bakery"):
        replies(server, dialogue(FIRST), task)
    assert server.asked == []


class Failing:
    """Answers with errors first, then correctly."""

    def __init__(self, *errors: Response) -> None:
        self.errors = list(errors)

    def __call__(self, body: dict[str, Any]) -> Response:
        return self.errors.pop(0) if self.errors else said(SEEN)


def test_temporary_errors_are_retried_and_others_are_not() -> None:
    server = ChatServer("eyes", Failing(*[refused(503, "busy")] * 2))
    assert replies(server, dialogue(FIRST)) == HumanReply(SEEN, 10, 4, retries=2)
    assert [shown(body) for body in server.asked] == [shown(server.asked[0])] * 3

    server = ChatServer("eyes", Failing(*[refused(400, "broken picture")] * 99))
    with pytest.raises(RequestFailed, match=r"400.*broken picture"):
        replies(server, dialogue(FIRST))
    assert len(server.asked) <= 9, "once in each form of a request"


def tries(server: ChatServer, retry_timeout: float = 5.0) -> None:
    async def work(url: str) -> None:
        async with open_client(server.model, [url], role="sim", retry_timeout=retry_timeout) as client:
            await check_vision(client)

    with server.running() as url:
        asyncio.run(work(url))


def test_a_vision_model_passes_the_check() -> None:
    server = ChatServer("eyes", lambda body: said("Yes."))
    tries(server)
    (body,) = server.asked
    assert len(shown(body)[0]) == 2
    assert body["max_tokens"] <= 8


@pytest.mark.parametrize(
    "message", ["blind is not a multimodal model", "At most 1 image(s) may be provided in one request."]
)
def test_a_model_without_vision_is_refused_with_the_servers_message(message: str) -> None:
    server = ChatServer("blind", lambda body: refused(400, message))
    with pytest.raises(UsageError) as error:
        tries(server)
    assert message in error.value.what
    assert "blind cannot play" in error.value.what
    assert error.value.where == server.url
    assert "serve-sim --task html" in str(error.value.fix)
    assert len(server.asked) <= 9, "once in each form of a request"


def test_an_unreachable_server_is_not_a_model_without_vision() -> None:
    with pytest.raises(ServerError):
        tries(ChatServer("eyes", lambda body: refused(503, "starting")), retry_timeout=0.2)


def test_a_context_overflow_is_distinguished() -> None:
    full = refused(
        400, "This model's maximum context length is 2048 tokens. However, your request has 3000 input tokens."
    )
    with pytest.raises(ContextOverflow):
        replies(ChatServer("eyes", lambda body: full), dialogue(FIRST))
