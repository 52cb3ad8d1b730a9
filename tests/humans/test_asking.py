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
from sweet.tasks.trajectory import HumanFault
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
    withheld: list[HumanFault] = ["leaked"] * leaks
    assert reply == HumanReply(BEHAVES, 10 * tries, 4 * tries, withheld=tuple(withheld))
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
        assert why == {"role": "user", "content": WITHHELD["leaked"]}
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
    assert (reply.fault, len(reply.withheld), reply.text) == ("leaked", tries - 1, FEE.ground_truth)
    assert (reply.prompt_tokens, reply.completion_tokens) == (10 * tries, 4 * tries)
    assert len(server.asked) == tries


def test_the_published_protocol_asks_once() -> None:
    server = Leaky(None).server()
    reply = asked(server, 8, "upstream")
    assert (reply.fault, reply.withheld, len(server.asked)) == ("leaked", (), 1)


@pytest.mark.parametrize(
    ("text", "fault"),
    [("I WANT TO ANSWER: 1", "ended"), (ASKED[-1].content * 2, None), ("I'm sorry, but I can't help.", "refusal")],
)
def test_a_refusal_and_an_answer_are_not_asked_for_again(text: str, fault: str | None) -> None:
    server = ChatServer("human", lambda body: said(text))
    reply = asked(server, 8)
    assert (reply.fault, reply.withheld, len(server.asked)) == (fault, (), 1)


LEAVES: dict[HumanFault, str] = {
    "empty": "\n",
    "echo": "What is the rate, by the way?",
    "instructions": "At most two sentences, in plain words. Never write code.",
    "loop": "The rate is five and then it is five. " * 9,
    "roles": "Programmer: What is the rate?",
}


@pytest.mark.parametrize("fault", LEAVES)
def test_a_reply_that_leaves_the_role_is_asked_for_again_with_the_reason(
    fault: HumanFault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "ASKED", [ASKED[0], Message(role="assistant", content=LEAVES["echo"])])
    server = ChatServer("human", lambda body: said(BEHAVES if len(body["messages"]) > 1 else LEAVES[fault]))
    assert asked(server, 8) == HumanReply(BEHAVES, 20, 8, withheld=(fault,))
    first, second = server.asked
    assert second["messages"][-1] == {"role": "user", "content": WITHHELD[fault]}
    assert all("\nProgrammer:" in body["stop"] for body in (first, second))
    ended = asked(ChatServer("human", lambda body: said(LEAVES[fault])), 2)
    assert (ended.fault, ended.withheld) == (fault, (fault,))


def test_protocol_upstream_gets_the_reply_as_it_is() -> None:
    text = 'Human: "It is 5."\nProgrammer: So?'
    server = ChatServer("human", lambda body: said(text))
    assert asked(server, 8, "upstream").text == text
    assert "stop" not in server.asked[0]
    assert asked(ChatServer("human", lambda body: said(text)), 8).text == "It is 5."


def test_a_server_that_refuses_stops_is_asked_without_them() -> None:
    def answer(body: dict[str, Any]) -> Response:
        return refused(400, "Unsupported parameter: 'stop'.") if "stop" in body else said(BEHAVES)

    server = ChatServer("human", answer)
    assert asked(server, 8).text == BEHAVES
    assert ["stop" in body for body in server.asked] == [True, False]


def test_a_later_try_may_have_another_fault() -> None:
    refusal = "As an AI, I cannot."
    server = ChatServer("human", lambda body: said(FEE.ground_truth if len(body["messages"]) == 1 else refusal))
    assert asked(server, 8) == HumanReply(refusal, 20, 8, fault="refusal", withheld=("leaked",))


def test_where_only_the_longer_prompt_does_not_fit_the_leak_stands() -> None:
    full = refused(400, "This model's maximum context length is 2048 tokens. However, your request has 3000 tokens.")

    def answer(body: dict[str, Any]) -> Response:
        return said(FEE.ground_truth) if len(body["messages"]) == 1 else full

    reply = asked(ChatServer("human", answer), 8)
    assert (reply.fault, reply.withheld) == ("leaked", ())
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
    assert reply == HumanReply("Larger, please.", 20, 8, withheld=("leaked",))
    first, second = server.asked
    pictures, leaked, why = second["messages"]
    assert pictures == first["messages"][0]
    assert leaked["content"] == leak
    assert why["content"] == WITHHELD["leaked"]
