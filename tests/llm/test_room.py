"""A human or a judge that thinks before it speaks gets room for its thoughts; the agent's budget is the user's."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.responses import JSONResponse, Response

from sweet.humans.asking import LLMHuman
from sweet.llm.base import Completion, Effort, Role, Sampling
from sweet.llm.concurrency import AdaptiveLimiter
from sweet.llm.connect import ROOM, open_client
from sweet.llm.listening import listening
from sweet.tasks.base import Message, Task
from sweet.tasks.registry import task_kind
from tests.llm.test_remote import ASK, Server

THOUGHT = "The user wants to know the rate, which is five. " * 40
SHORT = Sampling(temperature=0.0, max_tokens=256)


def thinking(field: str) -> Any:
    """Returns an answer that thinks for 1,000 tokens, in a field, in the text, or unseen as OpenAI's models do."""

    def answer(body: dict[str, Any]) -> Response:
        is_cut = body["max_tokens"] < 1000
        said = "" if is_cut else "It is 5."
        message: dict[str, Any] = {"content": said}
        if field == "text":
            message["content"] = f"<think>{THOUGHT}" + ("" if is_cut else f"</think>{said}")
        elif field:
            message[field] = THOUGHT
        tokens = min(body["max_tokens"], 1008)
        usage = {"prompt_tokens": 50, "completion_tokens": tokens}
        return JSONResponse(
            {"choices": [{"message": message, "finish_reason": "length" if is_cut else "stop"}], "usage": usage}
        )

    return answer


def asked(role: Role, server: Server, times: int, effort: Effort | None = None) -> list[Completion]:
    async def work() -> list[Completion]:
        async with (
            listening(server.app, "127.0.0.1", 0) as url,
            open_client("m", [url], role=role, effort=effort) as client,
        ):
            return [await client.chat(ASK, SHORT) for _ in range(times)]

    return asyncio.run(work())


@pytest.mark.parametrize("field", ["reasoning_content", "text", ""])
@pytest.mark.parametrize("role", ["sim", "judge"])
def test_a_model_that_thinks_gets_room_once_it_has_said_nothing(role: Role, field: str) -> None:
    server = Server(*[thinking(field)] * 9)
    first, second = asked(role, server, 2)
    assert first.replies[0].text == second.replies[0].text == "It is 5."
    assert [body["max_tokens"] for body in server.asked] == [256, 256 + ROOM, 256 + ROOM]
    assert (first.prompt_tokens, first.completion_tokens) == (100, 256 + 1008)
    assert (second.prompt_tokens, second.completion_tokens) == (50, 1008)


def test_the_agent_has_the_tokens_that_the_user_gives_it() -> None:
    server = Server(*[thinking("reasoning_content")] * 9)
    assert asked("agent", server, 1)[0].replies[0].text == ""
    assert [body["max_tokens"] for body in server.asked] == [256]


def test_a_model_that_says_something_has_no_room() -> None:
    server = Server()
    assert asked("sim", server, 2)[1].replies[0].text == "It is 5."
    assert [body["max_tokens"] for body in server.asked] == [256, 256]


@pytest.mark.parametrize(("effort", "sent"), [("low", {"reasoning_effort": "low"}), (None, {})])
def test_the_effort_of_a_role_is_sent(effort: Effort | None, sent: dict[str, str]) -> None:
    server = Server()
    asked("judge", server, 1, effort)
    assert {key: server.asked[0].get(key) for key in sent} == sent
    assert ("reasoning_effort" in server.asked[0]) == bool(sent)


@pytest.mark.parametrize("role", ["agent", "sim"])
def test_the_requests_of_each_role_can_be_bounded(role: Role) -> None:
    server = Server()

    async def work() -> None:
        async with (
            listening(server.app, "127.0.0.1", 0) as url,
            open_client("m", [url], role=role, concurrency=9) as client,
        ):
            limiter = getattr(client, "limiter", None)
            assert isinstance(limiter, AdaptiveLimiter)
            assert limiter.max_limit == 9

    asyncio.run(work())


def test_a_human_who_thinks_replies() -> None:
    server = Server(*[thinking("reasoning_content")] * 9)
    task = Task(
        id="t", problem_description="A fee.", ground_truth="def fee(h): return 5 * h", test_cases={"a": "fee(1)"}
    )

    async def work() -> Any:
        async with (
            listening(server.app, "127.0.0.1", 0) as url,
            open_client("m", [url], role="sim") as client,
        ):
            dialogue = [Message(role="user", content="A fee."), Message(role="assistant", content="What is the rate?")]
            return await LLMHuman(client, task_kind("code")).reply(task, dialogue)

    reply = asyncio.run(work())
    assert (reply.text, reply.fault) == ("It is 5.", None)
