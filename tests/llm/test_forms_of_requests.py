"""Servers with habits of their own, whose errors name nothing: the smallest change that they accept is found once."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from starlette.responses import JSONResponse, Response

from sweet.errors import ServerError, UsageError
from sweet.llm.base import RequestFailed, Sampling
from sweet.llm.remote import RemoteClient
from sweet.llm.response_schema import ChatAnswer
from tests.llm.test_refusals import ASK
from tests.llm.test_remote import Server, error, run

SAID = "It is 5."
USUAL = Sampling(max_tokens=400, seed=5, temperature=0.7, logprobs=True)
OPENAI = {"model", "messages", "temperature", "top_p", "max_tokens", "n", "stream", "stop"}

Habit = Callable[[dict[str, Any]], Response | None]
"""Returns a response of its own to a request, or None for the usual one."""


def usual(body: dict[str, Any], count: int | None = None) -> Response:
    choices = [
        {"index": index, "message": {"content": SAID}, "finish_reason": "stop"}
        for index in range(count or body.get("n", 1))
    ]
    return JSONResponse({"choices": choices, "usage": {"prompt_tokens": 7, "completion_tokens": 3}})


def refusing(is_refused: Callable[[dict[str, Any]], object], text: str = "Bad request", status: int = 400) -> Habit:
    return lambda body: error(status, text) if is_refused(body) else None


def events(body: dict[str, Any]) -> Response:
    """The reply in three events, with the reasoning of the model."""
    parts: list[dict[str, Any]] = [
        {"index": 0, "delta": {"role": "assistant", "reasoning_content": "Hm"}},
        {"index": 0, "delta": {"content": SAID[:3]}, "logprobs": None},
        {"index": 0, "delta": {"content": SAID[3:]}, "finish_reason": "stop"},
    ]
    lines = [json.dumps({"id": "x", "choices": [part], "usage": None}) for part in parts]
    usage = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}
    text = ": ping\n\n" + "".join(f"data: {line}\r\n\r\n" for line in [*lines, json.dumps(usage), "[DONE]"])
    return Response(text, media_type="text/event-stream")


def streaming_only(body: dict[str, Any]) -> Response:
    return events(body) if body.get("stream") else error(400, "only streamed replies are supported")


def roles(body: dict[str, Any]) -> list[str]:
    return [message["role"] for message in body["messages"]]


def in_turn(found: list[str]) -> bool:
    return found == (["user", "assistant"] * len(found))[: len(found)]


def bound(body: dict[str, Any]) -> int:
    return int(body["max_tokens"] if "max_tokens" in body else body["max_completion_tokens"])


HABITS: dict[str, tuple[Habit, dict[str, Any], list[str]]] = {
    "forbids fields of others": (
        refusing(lambda body: set(body) - OPENAI, '{"type": "extra_forbidden"}', 422),
        {"seed": None, "logprobs": None},
        ["seed is not sent (it uses its own instead of seed=5)"],
    ),
    "has no seed, and breaks": (
        refusing(lambda body: "seed" in body, "KeyError: seed", 500),
        {"seed": None},
        ["seed is not sent (it uses its own instead of seed=5)"],
    ),
    "has no log-probabilities": (
        refusing(lambda body: "logprobs" in body, "logits are not kept", 404),
        {"logprobs": None},
        [],
    ),
    "has no system messages": (
        refusing(lambda body: "system" in roles(body), "the system role is not supported"),
        {"messages": [{"role": "user", "content": "Ask first.\n\nWhat is the rate?"}]},
        ["the system message is sent as the beginning of the first message"],
    ),
    "wants roles in turn": (
        refusing(lambda body: not in_turn(roles(body)), "Conversation roles must alternate user/assistant/…", 500),
        {"messages": [{"role": "user", "content": "Ask first.\n\nWhat is the rate?"}]},
        ["the system message is sent as the beginning of the first message"],
    ),
    "takes one of two": (
        refusing(lambda body: {"temperature", "top_p"} <= set(body), "`temperature` and `top_p` cannot both be given"),
        {"top_p": None},
        ["top_p is not sent"],
    ),
    "refuses n": (refusing(lambda body: body.get("n", 1) > 1, "one at a time"), {}, []),
    "ignores n": (lambda body: usual(body, 1), {}, []),
    "has the new name of the bound": (
        refusing(lambda body: "max_tokens" in body, "use the other one"),
        {"max_tokens": None, "max_completion_tokens": 400},
        ["max_tokens is sent as max_completion_tokens"],
    ),
    "names its bound": (
        refusing(lambda body: bound(body) > 300, "Range of max_tokens should be [1, 300]"),
        {"max_tokens": 300},
        ["no reply may have more than 300 tokens"],
    ),
    "does not name its bound": (
        refusing(lambda body: bound(body) > 300, "the value is out of range", 422),
        {"max_tokens": 256},
        ["no reply may have more than 256 tokens"],
    ),
    "streams only": (streaming_only, {"stream": True}, ["replies are streamed"]),
    "streams always": (events, {}, []),
    "demands a switch": (
        refusing(lambda body: body.get("enable_thinking") is not False, "enable_thinking must be set to false"),
        {"enable_thinking": False},
        ["enable_thinking=false is sent"],
    ),
    "has several habits": (
        refusing(lambda body: "system" in roles(body) or "seed" in body or {"temperature", "top_p"} <= set(body), "no"),
        {"seed": None, "top_p": None, "messages": [{"role": "user", "content": "Ask first.\n\nWhat is the rate?"}]},
        [
            "the system message is sent as the beginning of the first message",
            "seed is not sent (it uses its own instead of seed=5)",
            "top_p is not sent",
        ],
    ),
}


def serving(habit: Habit) -> Server:
    def answer(body: dict[str, Any]) -> Response:
        return habit(body) or usual(body)

    return Server(*[answer] * 999)


@pytest.mark.parametrize("name", HABITS)
def test_the_smallest_change_that_works_is_found(name: str) -> None:
    habit, changed, said = HABITS[name]
    server = serving(habit)

    async def work(client: RemoteClient) -> list[str]:
        first = await client.chat(ASK, USUAL)
        found = len(server.asked)
        again = await client.chat(ASK, USUAL)
        assert len(server.asked) == found + 1, "later requests are not refused"
        assert [reply.text for answer in (first, again) for reply in answer.replies] == [SAID] * 2
        assert first.completion_tokens == again.completion_tokens == 3
        return client.deviations

    deviations = run(work, server)
    assert deviations == [f"m refuses a part of the usual requests: {part}." for part in said]
    sent = dict(server.asked[0])
    extra = {"top_k", "min_p", "repetition_penalty", "return_token_ids"}
    expected = {key: value for key, value in (sent | changed).items() if value is not None}
    last = server.asked[-1]
    assert {key: value for key, value in last.items() if key not in extra} == {
        key: value for key, value in expected.items() if key not in extra
    }
    if "logprobs" in last:  # these are left out before those
        assert extra <= set(last), "what the server accepts is sent"


@pytest.mark.parametrize("name", HABITS)
def test_several_replies_are_all_there(name: str) -> None:
    server = serving(HABITS[name][0])

    async def work(client: RemoteClient) -> None:
        for _ in range(2):
            completion = await client.chat(ASK, Sampling(max_tokens=400, seed=5, n=3))
            assert [reply.text for reply in completion.replies] == [SAID] * 3

    run(work, server)
    if name in ("refuses n", "ignores n", "streams always"):
        assert [body["seed"] for body in sorted(server.asked[-3:], key=lambda body: body["seed"])] == [5, 6, 7]


def test_the_thought_of_a_streamed_reply_is_one() -> None:
    async def work(client: RemoteClient) -> Any:
        return (await client.chat(ASK, USUAL)).replies[0]

    reply = run(work, serving(streaming_only))
    assert (reply.text, reply.thought, reply.finish_reason) == (SAID, "Hm", "stop")


def test_a_refusal_of_what_is_said_costs_no_form_and_is_looked_into_once() -> None:
    """Of a filter, for instance: the requests after it are as before."""
    server = serving(refusing(lambda body: "bomb" in str(body["messages"]), "the content was filtered, request 17"))

    async def work(client: RemoteClient) -> None:
        bad = [ASK[1].model_copy(update={"content": "a bomb"})]
        for _ in range(3):
            with pytest.raises(RequestFailed, match="content was filtered"):
                await client.chat(bad, USUAL)
        assert (await client.chat(ASK, USUAL)).replies[0].text == SAID
        assert client.deviations == []

    run(work, server)
    assert server.asked[-1].keys() == server.asked[0].keys()
    assert len(server.asked) <= 9 + 2 + 1


class Unlisted(Server):
    """A server whose /models returns something else."""

    def __init__(self, listed: Response, *answers: Any) -> None:
        super().__init__(*answers)
        self.listed = listed

    async def list(self, request: Any) -> Response:
        return self.listed


@pytest.mark.parametrize(
    ("listed", "requests"),
    [
        (error(404, "Not Found"), 2),
        (error(405, "Method Not Allowed"), 2),
        (error(501, "Not Implemented"), 2),
        (JSONResponse({"object": "list", "data": []}), 2),
        (JSONResponse({"models": [{"name": "m"}]}), 2),
        (Response("<html>", media_type="text/html"), 2),
        (JSONResponse([{"id": "m"}, {"id": "other"}]), 1),
    ],
)
def test_a_server_without_a_usable_list_of_models_shows_by_one_request_that_it_serves_one(
    listed: Response, requests: int
) -> None:
    server = Unlisted(listed)

    async def work(client: RemoteClient) -> None:
        await client.chat(ASK, USUAL)
        assert client.model == "m"

    run(work, server)
    assert len(server.asked) == requests


def test_a_server_without_a_list_that_serves_another_model_is_refused_at_once() -> None:
    async def work(client: RemoteClient) -> None:
        raise AssertionError("it was opened")

    unknown = error(404, "The model `m` does not exist", code="model_not_found")
    with pytest.raises(UsageError, match="The model `m` does not exist"):
        run(work, Unlisted(error(404, "Not Found"), *[unknown] * 99))
    with pytest.raises(UsageError, match="API key"):
        run(work, Unlisted(error(404, "Not Found"), *[error(401, "no")] * 99))
    with pytest.raises(ServerError, match="busy"):
        run(work, Unlisted(error(404, "Not Found"), *[error(503, "busy")] * 99), retry_timeout=0.3)


LLAMA_CPP_MODEL = {"id": "m", "object": "model", "owned_by": "llamacpp", "meta": {"n_vocab": 49152, "n_ctx": 2048}}
"""A model as llama.cpp's server (build 11549) lists it."""
TOKENS = ((589, "It", -0.75), (314, " is", -0.25), (216, " 5.", -0.5), (2, "", -0.25))


def of_llama_cpp(body: dict[str, Any]) -> Response:
    """As the same server answers: no alternatives, no log-probabilities; and the usage of one of several replies."""
    counted = [
        {"id": number, "token": text, "bytes": [*text.encode()], "logprob": logprob, "top_logprobs": []}
        for number, text, logprob in TOKENS
    ]
    logprobs = {"logprobs": {"content": counted}} if body.get("logprobs") and body.get("top_logprobs", 20) else {}
    choices = [
        {"index": index, "message": {"content": SAID}, "finish_reason": "stop", **logprobs}
        for index in range(body.get("n", 1))
    ]
    usage = {"prompt_tokens": 7, "completion_tokens": len(TOKENS)}
    return JSONResponse({"choices": choices, "usage": usage, "timings": {"prompt_n": 7, "predicted_n": len(TOKENS)}})


@pytest.mark.parametrize("logprobs", [False, True])
def test_llama_cpp_s_ids_log_probabilities_and_counts_are_read(logprobs: bool) -> None:
    server = Server(*[of_llama_cpp] * 9, models=(LLAMA_CPP_MODEL,))

    async def work(client: RemoteClient) -> Any:
        assert client.served_context == 2048
        return await client.chat(ASK, Sampling(n=3, logprobs=logprobs))

    completion = run(work, server)
    assert {reply.token_ids for reply in completion.replies} == {(589, 314, 216, 2)}
    assert {reply.mean_logprob for reply in completion.replies} == {-1.75 / 4}
    assert (completion.prompt_tokens, completion.completion_tokens) == (7, 12)
    assert (server.asked[-1]["logprobs"], server.asked[-1]["top_logprobs"]) == (True, 1)


def test_other_servers_are_not_asked_for_log_probabilities_to_get_ids() -> None:
    server = Server(*[usual] * 9)
    completion = run(lambda client: client.chat(ASK, Sampling()), server)
    assert completion.replies[0].token_ids is None
    assert "logprobs" not in server.asked[-1]


def test_an_llama_cpp_that_refuses_log_probabilities_is_asked_without() -> None:
    habit = refusing(lambda body: "logprobs" in body, "logits are not kept")
    server = Server(*[lambda body: habit(body) or of_llama_cpp(body)] * 99, models=(LLAMA_CPP_MODEL,))
    completion = run(lambda client: client.chat(ASK, USUAL), server)
    assert (completion.replies[0].text, completion.replies[0].token_ids) == (SAID, None)


def test_ids_that_some_tokens_lack_are_none() -> None:
    choice = {
        "message": {"content": SAID},
        "logprobs": {"content": [{"id": 5, "logprob": -1.0}, {"id": -7, "logprob": -1.0}]},
    }
    (reply,) = ChatAnswer.model_validate({"choices": [choice]}).replies()
    assert (reply.token_ids, reply.logprobs) == (None, (-1.0, -1.0))
