"""The embedded server over real sockets: requests of OpenAI's and vLLM's clients, and what is refused."""

from __future__ import annotations

import asyncio
import io
import json
import time
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest

from sweet.errors import UsageError
from sweet.llm.base import Sampling
from sweet.llm.embedded import EmbeddedClient
from sweet.llm.listening import listening
from sweet.llm.server import make_app
from sweet.tasks.base import Message
from tests.llm.conftest import served

JSON = {"Content-Type": "application/json"}
MESSAGES = [{"role": "user", "content": "What is the rate per hour?"}]


def ask(client: EmbeddedClient, path: str, *bodies: Any) -> list[tuple[int, Any]]:
    """POST all bodies concurrently to a server of `client` (GET without any); status and JSON of each."""

    async def work() -> list[tuple[int, Any]]:
        async with served(client) as url, aiohttp.ClientSession() as session:

            async def one(body: Any) -> tuple[int, Any]:
                data = io.BytesIO(body if isinstance(body, bytes) else json.dumps(body).encode())
                async with session.post(url + path, data=data, headers=JSON) as answer:
                    return answer.status, await answer.json()

            if bodies:
                return list(await asyncio.gather(*map(one, bodies)))
            async with session.get(url.removesuffix("/v1") + path) as answer:
                text = await answer.text()
                return [(answer.status, json.loads(text) if text else None)]

    return asyncio.run(work())


def chat(**changes: Any) -> dict[str, Any]:
    return {"model": "tiny", "messages": MESSAGES, "max_tokens": 8, "seed": 3} | changes


def test_the_models_and_the_health(client: EmbeddedClient) -> None:
    [(status, models)] = ask(client, "/v1/models")
    assert status == 200
    assert [(m["id"], m["max_model_len"]) for m in models["data"]] == [("tiny", client.context)]
    assert ask(client, "/health") == [(200, None)]


def test_the_client_of_openai_is_served(client: EmbeddedClient) -> None:
    import openai

    async def work() -> None:
        async with served(client) as url, openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as library:
            assert [model.id async for model in library.models.list()] == ["tiny"]
            answer = await library.chat.completions.create(
                model="tiny",
                messages=[{"role": "user", "content": MESSAGES[0]["content"]}],
                max_tokens=8,
                n=2,
                seed=3,
                logprobs=True,
            )
            assert len(answer.choices) == 2
            assert answer.usage is not None
            logprobs = [choice.logprobs for choice in answer.choices]
            assert answer.usage.completion_tokens == sum(len(p.content or ()) for p in logprobs if p is not None)
            with pytest.raises(openai.NotFoundError, match="The model is called 'tiny' here"):
                await library.chat.completions.create(model="other", messages=[{"role": "user", "content": "?"}])

    asyncio.run(work())


def test_a_chat_gives_the_same_as_the_client_in_this_process(client: EmbeddedClient) -> None:
    body = chat(n=3, logprobs=True, return_token_ids=True, temperature=0.8, top_p=0.9)
    [(status, answer)] = ask(client, "/chat/completions", body)
    assert status == 200
    assert answer["object"] == "chat.completion"
    here = asyncio.run(
        client.chat(
            [Message(role="user", content=MESSAGES[0]["content"])],
            Sampling(temperature=0.8, top_p=0.9, max_tokens=8, n=3, seed=3),
        )
    )
    assert tuple(answer["prompt_token_ids"]) == here.prompt_token_ids
    assert answer["usage"]["completion_tokens"] == here.completion_tokens
    assert answer["usage"]["prompt_tokens"] == here.prompt_tokens
    for index, (choice, reply) in enumerate(zip(answer["choices"], here.replies, strict=True)):
        assert choice["index"] == index
        assert choice["message"] == {"role": "assistant", "content": reply.text}
        assert choice["finish_reason"] == reply.finish_reason
        assert tuple(choice["token_ids"]) == reply.token_ids
        found = [token["logprob"] for token in choice["logprobs"]["content"]]
        assert found == pytest.approx(reply.logprobs, abs=1e-4)


def test_neutral_values_are_accepted(client: EmbeddedClient) -> None:
    plain = chat(stop=None, stream=False, tools=[], user="me", presence_penalty=0, response_format={"type": "text"})
    parts = chat(messages=[{"role": "user", "content": [{"type": "text", "text": MESSAGES[0]["content"]}]}])
    later = chat(messages=[{"role": "developer", "content": "Be short."}, *MESSAGES])
    later["max_completion_tokens"] = later.pop("max_tokens")
    first, second, third = ask(client, "/chat/completions", plain, parts, later)
    assert first[0] == second[0] == third[0] == 200
    assert first[1]["choices"] == second[1]["choices"]
    assert third[1]["usage"]["prompt_tokens"] > first[1]["usage"]["prompt_tokens"]
    assert "token_ids" not in first[1]["choices"][0]
    assert first[1]["choices"][0]["logprobs"] is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tools": [{"type": "function"}]}, "tools.0.function"),
        ({"stop": ["\n"]}, "stop is not supported"),
        ({"frequency_penalty": 0.5}, "frequency_penalty is not supported"),
        ({"nonsense": 1}, "nonsense"),
        ({"n": 0}, "n:"),
        ({"n": 5000}, "n:"),
        ({"temperature": -1}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": "hello"}, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages.0.role"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}, "type text"),
        ({"messages": [{"role": "user", "content": "\ud800"}]}, "messages.0.content"),
        ({"top_logprobs": 5}, "top_logprobs"),
    ],
)
def test_the_error_of_a_bad_request_names_the_cause(
    client: EmbeddedClient, changes: dict[str, Any], message: str
) -> None:
    [(status, answer)] = ask(client, "/chat/completions", chat(**changes))
    assert status == 400
    assert message in answer["error"]["message"]
    assert answer["error"]["type"] == "invalid_request_error"


def test_other_errors_have_openai_s_format(client: EmbeddedClient) -> None:
    long = chat(messages=[{"role": "user", "content": "rate per hour " * 2000}])
    broken, nan, unknown, overflow = ask(
        client, "/chat/completions", b"{", b'{"model": "tiny", "temperature": NaN}', chat(model="gpt-4"), long
    )
    assert broken[0] == nan[0] == 400
    assert "not JSON" in broken[1]["error"]["message"]
    assert unknown[0] == 404
    assert unknown[1]["error"]["code"] == "model_not_found"
    assert overflow[0] == 400
    assert overflow[1]["error"]["code"] == "context_length_exceeded"
    [(status, answer)] = ask(client, "/nothing")
    assert status == 404
    assert "/nothing" in answer["error"]["message"]
    [(status, answer)] = ask(client, "/v1/chat/completions")
    assert status == 405


def said(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


@pytest.mark.parametrize(
    "body",
    [
        lambda: {f"k{number}": 1 for number in range(300_000)},
        lambda: b"[" * 4_000_000,
        lambda: b'{"model": "tiny", "messages": [' + b",".join([b"{}"] * 1_300_000) + b"]}",
        lambda: chat(messages=[said("")] * 5_000),
        lambda: chat(messages=MESSAGES * 4_096),
        lambda: chat(messages=[said("a1" * 60_000)]),
        lambda: chat(messages=[said("What is the rate? " * 100_000)]),
    ],
    ids=["fields", "deep", "no-messages", "too-many", "many-messages", "one-word", "long"],
)
def test_a_large_request_keeps_nobody_waiting(client: EmbeddedClient, body: Callable[[], Any]) -> None:
    data = body()
    began = time.process_time()
    (hostile, _), *others = ask(client, "/chat/completions", data, *[chat()] * 3)
    assert hostile == 400
    assert [answered for answered, _ in others] == [200] * 3
    assert time.process_time() - began < 10


def test_a_client_that_disconnects_frees_its_rows(client: EmbeddedClient) -> None:
    engine: Any = client.engine

    async def until(present: bool) -> None:
        for _ in range(2000):
            if bool(engine._rows or engine._waiting) == present:
                return
            await asyncio.sleep(0.01)
        pytest.fail(
            "the engine did not admit the requests" if present else "the engine still works on cancelled requests"
        )

    async def work() -> None:
        async with served(client) as url, aiohttp.ClientSession() as session:
            body = chat(n=64, max_tokens=900)
            asking = [asyncio.create_task(session.post(url + "/chat/completions", json=body)) for _ in range(4)]
            await until(True)
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
            await until(False)

    asyncio.run(work())


def test_a_taken_port(client: EmbeddedClient) -> None:
    async def work() -> None:
        async with served(client) as url:
            port = int(url.split(":")[2].removesuffix("/v1"))
            with pytest.raises(UsageError, match="cannot be listened on"):
                async with listening(make_app(client), "127.0.0.1", port):
                    pass

    asyncio.run(work())
