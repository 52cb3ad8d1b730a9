"""A human that leaks is asked again: the requests to a real server, and what of its replies is kept."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.responses import Response

from sweet.humans.asking import TEMPERATURE, WITHHELD, LLMHuman
from sweet.humans.base import HumanReply
from sweet.humans.page_humans import VLMHuman
from sweet.llm.base import RequestFailed
from sweet.llm.connect import open_client
from sweet.tasks.base import Message, ProtocolName, Task
from sweet.tasks.html.kind import HtmlKind
from sweet.tasks.registry import task_kind
from tests.humans.leaking import BEHAVES, Leaky
from tests.humans.test_vlm_human import FIRST, SHOTS, TASK, WANTED, Album, dialogue
from tests.stages.chat_server import ChatServer, refused, said

FEE = Task(
    id="fee",
    problem_description="Write def fee(n).",
    ground_truth="def fee(hours):\n    total = 5 * hours + 17\n    return total if hours < 10 else 2 * total",
)
ASKED = [Message(role="user", content="Write def fee(n)."), Message(role="assistant", content="What is the rate?")]


def asked(server: ChatServer, tries: int, protocol: ProtocolName = "paper") -> HumanReply:
    async def work(url: str) -> HumanReply:
        async with open_client(server.model, [url], role="sim", retry_timeout=5) as client:
            return await LLMHuman(client, task_kind("code"), protocol, tries).reply(FEE, ASKED)

    with server.running() as url:
        return asyncio.run(work(url))


@pytest.mark.parametrize("leaks", [0, 1, 3])
def test_it_is_asked_again_until_it_does_not_leak(leaks: int) -> None:
    server = Leaky(leaks).server()
    reply = asked(server, 8)
    tries = leaks + 1
    assert reply == HumanReply(BEHAVES, 10 * tries, 4 * tries, tries=tries)
    assert len(server.asked) == tries


def test_each_later_request_says_why_and_is_sampled_with_a_seed_of_its_own() -> None:
    server = Leaky(3).server()
    asked(server, 8)
    first, *later = server.asked
    assert (len(first["messages"]), first["temperature"]) == (1, 0.0)
    for body in later:
        prompt, leaked, why = body["messages"]
        assert prompt == first["messages"][0]
        assert leaked == {"role": "assistant", "content": FEE.ground_truth}
        assert why == {"role": "user", "content": WITHHELD.content}
        assert body["temperature"] == TEMPERATURE > 0
    seeds = [body["seed"] for body in later]
    assert len(set(seeds)) == 3
    again = Leaky(3).server()
    asked(again, 8)
    assert [body["seed"] for body in again.asked[1:]] == seeds, "the same dialogue gets the same replies"


@pytest.mark.parametrize("tries", [1, 4])
def test_after_the_last_try_the_leak_is_returned_as_a_fault(tries: int) -> None:
    server = Leaky(None).server()
    reply = asked(server, tries)
    assert (reply.fault, reply.tries, reply.text) == ("leaked", tries, FEE.ground_truth)
    assert (reply.prompt_tokens, reply.completion_tokens) == (10 * tries, 4 * tries)
    assert len(server.asked) == tries


def test_the_published_protocol_asks_once() -> None:
    server = Leaky(None).server()
    reply = asked(server, 8, "upstream")
    assert (reply.fault, reply.tries, len(server.asked)) == ("leaked", 1, 1)


@pytest.mark.parametrize(
    ("text", "fault"), [("", "empty"), (ASKED[-1].content * 2, None), ("I'm sorry, but I can't help.", "refusal")]
)
def test_only_leaks_are_asked_for_again(text: str, fault: str | None) -> None:
    server = ChatServer("human", lambda body: said(text))
    reply = asked(server, 8)
    assert (reply.fault, reply.tries, len(server.asked)) == (fault, 1, 1)


def test_a_later_try_may_have_another_fault() -> None:
    server = ChatServer("human", lambda body: said(FEE.ground_truth if len(body["messages"]) == 1 else " "))
    assert asked(server, 8) == HumanReply("", 20, 8, fault="empty", tries=2)


def test_where_only_the_longer_prompt_does_not_fit_the_leak_stands() -> None:
    full = refused(400, "This model's maximum context length is 2048 tokens. However, your request has 3000 tokens.")

    def answer(body: dict[str, Any]) -> Response:
        return said(FEE.ground_truth) if len(body["messages"]) == 1 else full

    reply = asked(ChatServer("human", answer), 8)
    assert (reply.fault, reply.tries) == ("leaked", 1)
    broken = ChatServer("human", lambda body: refused(400, "no") if len(body["messages"]) > 1 else answer(body))
    with pytest.raises(RequestFailed, match="no"):
        asked(broken, 8)


def test_a_human_that_sees_pages_is_shown_them_again() -> None:
    leak = '<section class="hero" style="color:#10b981"><h1 class="title">Bread</h1></section>' * 4
    task = TASK.model_copy(update={"ground_truth": WANTED.replace("<p>wanted</p>", leak)})
    album = Album({task.ground_truth: SHOTS[WANTED]})
    server = ChatServer("eyes", lambda body: said(leak if len(body["messages"]) == 1 else "Larger, please."))

    async def work(url: str) -> HumanReply:
        async with open_client("eyes", [url], role="sim", retry_timeout=5) as client:
            return await VLMHuman(client, HtmlKind(), tries=8, renderer=album).reply(task, dialogue(FIRST))

    with server.running() as url:
        reply = asyncio.run(work(url))
    assert reply == HumanReply("Larger, please.", 20, 8, tries=2)
    first, second = server.asked
    pictures, leaked, why = second["messages"]
    assert pictures == first["messages"][0]
    assert leaked["content"] == leak
    assert why["content"] == WITHHELD.content
