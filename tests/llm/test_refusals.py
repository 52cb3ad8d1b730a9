"""Servers that refuse what others require, as OpenAI's o1 does: each refusal is found out once, and then recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import JSONResponse, Response

from sweet.llm.base import Completion, RequestFailed, Sampling
from sweet.llm.remote import RemoteClient
from sweet.rollouts.config import RolloutConfig
from sweet.rollouts.stage import run_rollout
from sweet.runs.run import Run
from sweet.tasks.base import Message
from tests.llm.test_remote import Server, error, good, run
from tests.stages.chat_server import ChatServer
from tests.stages.heard import Heard

ASK = [Message(role="system", content="Ask first."), Message(role="user", content="What is the rate?")]


def unsupported(parameter: str, hint: str = "") -> Response:
    message = f"Unsupported parameter: '{parameter}' is not supported with this model.{hint}"
    return error(400, message, type="invalid_request_error", param=parameter, code="unsupported_parameter")


def unsupported_value(parameter: str, value: str) -> Response:
    message = f"Unsupported value: '{parameter}' does not support {value} with this model."
    if not parameter.startswith("messages"):
        message += " Only the default (1) value is supported."
    return error(400, message, type="invalid_request_error", param=parameter, code="unsupported_value")


class Reasoner:
    """Answers and refuses as OpenAI does for the models of the series o.

    Args:
        roles: of system messages that are accepted.
    """

    def __init__(self, *roles: str) -> None:
        self.roles = (*roles, "user", "assistant")
        self.refusals: list[str] = []

    def __call__(self, body: dict[str, Any]) -> Response:
        refusal = self.refusal(body)
        if refusal is not None:
            self.refusals.append(bytes(refusal.body).decode())
            return refusal
        choices = [{"index": 0, "message": {"content": "What is it?"}, "finish_reason": "stop"}]
        return JSONResponse({"choices": choices, "usage": {"prompt_tokens": 7, "completion_tokens": 30}})

    def refusal(self, body: dict[str, Any]) -> Response | None:
        if "max_tokens" in body:
            return unsupported("max_tokens", " Use 'max_completion_tokens' instead.")
        for name in ("top_k", "min_p", "repetition_penalty", "return_token_ids"):
            if name in body:
                return error(400, f"Unrecognized request argument supplied: {name}", type="invalid_request_error")
        for name in ("logprobs", "top_logprobs", "top_p"):
            if name in body:
                return unsupported(name)
        for number, message in enumerate(body["messages"]):
            if message["role"] not in self.roles:
                return unsupported_value(f"messages[{number}].role", f"'{message['role']}'")
        for name in ("temperature", "n"):
            if body.get(name, 1) != 1:
                return unsupported_value(name, f"{body[name]:g}")
        return None


def ask(client: RemoteClient, count: int, **settings: Any) -> Any:
    sampling = Sampling(**{"max_tokens": 100, "seed": 5, **settings})
    return asyncio.gather(*(client.chat(ASK, sampling) for _ in range(count)))


def ended(server: Server) -> dict[str, Any]:
    return server.asked[-1]


def test_what_a_model_that_reasons_refuses_is_found_out_once() -> None:
    reasoner = Reasoner("developer")
    server = Server(*[reasoner] * 99)
    noted: list[tuple[str, bool]] = []

    async def work(client: RemoteClient) -> int:
        client.on_deviation = lambda sentence, lost: noted.append((sentence, lost))
        await ask(client, 1, temperature=0.0, logprobs=True)
        found = len(reasoner.refusals)
        await ask(client, 8, temperature=0.0, logprobs=True)
        return found

    found = run(work, server)
    assert len(reasoner.refusals) == found == 6, "later requests are not refused"
    assert len(server.asked) == found + 9
    assert {key: value for key, value in ended(server).items() if key != "messages"} == {
        "model": "m",
        "max_completion_tokens": 100,
        "n": 1,
        "seed": 5,
    }
    assert [message["role"] for message in ended(server)["messages"]] == ["developer", "user"]
    assert [message["content"] for message in ended(server)["messages"]] == ["Ask first.", "What is the rate?"]
    assert noted == [
        ("m refuses a part of the usual requests: max_tokens is sent as max_completion_tokens.", False),
        ("m refuses a part of the usual requests: the system message is sent in the role developer.", False),
        (
            "m refuses a part of the usual requests: temperature is not sent (it uses its own instead of "
            "temperature=0).",
            True,
        ),
        ("m refuses a part of the usual requests: top_p is not sent.", False),
    ]


def test_requests_at_the_same_time_find_it_out_together() -> None:
    reasoner = Reasoner("system")
    server = Server(*[reasoner] * 200)

    async def work(client: RemoteClient) -> Sequence[Completion]:
        answers: Sequence[Completion] = await ask(client, 16)
        assert len(client.deviations) == 2
        return answers

    assert [answer.replies[0].text for answer in run(work, server)] == ["What is it?"] * 16
    assert ended(server)["messages"][0]["role"] == "system"
    assert "temperature" in ended(server), "1 is its default, which it accepts"


def test_a_model_without_any_system_message_gets_it_as_the_user_s() -> None:
    """As o1-mini, which the paper tests."""
    server = Server(*[Reasoner()] * 99)

    async def work(client: RemoteClient) -> list[str]:
        await ask(client, 1)
        return client.deviations

    assert any("in the role user" in sentence for sentence in run(work, server))
    assert [message["role"] for message in ended(server)["messages"]] == ["user", "user"]


def test_several_replies_are_asked_for_one_by_one() -> None:
    server = Server(*[Reasoner("system")] * 99)

    async def work(client: RemoteClient) -> Any:
        return await ask(client, 1, n=3)

    ((answer,)) = run(work, server)
    assert len(answer.replies) == 3
    assert (answer.prompt_tokens, answer.completion_tokens) == (21, 90)
    assert sorted(body["seed"] for body in server.asked[-3:]) == [5, 6, 7]
    assert all("n" not in body for body in server.asked[-3:])


@pytest.mark.parametrize("other", [{"choices": 5}, {"choices": [5]}, [], {"choices": []}, {"usage": 3}])
def test_a_malformed_answer_among_several_fails_the_request(other: object) -> None:
    def answer(body: dict[str, Any]) -> Response:
        if body.get("n", 1) != 1:
            return unsupported_value("n", str(body["n"]))
        return JSONResponse(other) if body["seed"] == 6 else good(body)

    async def work(client: RemoteClient) -> None:
        with pytest.raises(RequestFailed, match="The server"):
            await ask(client, 1, n=3)

    run(work, Server(*[answer] * 99), retry_timeout=0.2)


def test_other_refusals_still_fail() -> None:
    wrong = error(400, "Invalid value for 'temperature': must be at most 2.", param="temperature", code="invalid_value")
    server = Server(*[wrong] * 99)

    async def work(client: RemoteClient) -> None:
        with pytest.raises(RequestFailed, match="at most 2"):
            await ask(client, 1, temperature=3.0)
        assert client.deviations == []

    run(work, server)


def test_a_rollout_says_and_records_what_its_agent_refuses(tmp_path: Path) -> None:
    server, listening = ChatServer("o1-like", Reasoner("developer")), Heard()
    with server.running() as url:
        settings = {"agent": "o1-like", "agent_url": [url], "num_tasks": 2, "max_turns": 2, "temperature": 0.5}
        run_ = Run.create(tmp_path / "run", "code")
        result = run_rollout(run_, RolloutConfig(tasks="micro", **settings), listening)
    assert (result.metrics.episodes, result.metrics.failed) == (2, 0)
    recorded = run_.manifest().attempts[-1].environment["agent_requests"]
    assert isinstance(recorded, list)
    assert [sentence for sentence in recorded if "temperature=0.5" in str(sentence)] == listening.warnings
    assert len(listening.warnings) == 1
    assert [sentence for sentence in listening.said if "refuses a part" in sentence] == [
        sentence for sentence in recorded if sentence not in listening.warnings
    ]
    assert len(recorded) == 4
