"""The client of served models, against the embedded server and against misbehaving servers."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from statistics import median
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sweet.deadline import deadline
from sweet.errors import ServerError, UsageError
from sweet.llm.base import Completion, ContextOverflow, RequestFailed, Sampling
from sweet.llm.connect import open_client
from sweet.llm.embedded import EmbeddedClient
from sweet.llm.listening import listening
from sweet.llm.remote import RemoteClient
from sweet.llm.servers import base_url
from sweet.tasks.base import Message
from tests.llm.conftest import served

ASK = [Message(role="user", content="What is the rate per hour?")]
FEW = Sampling(max_tokens=8, n=2, seed=3, logprobs=True)
ONE = Sampling(max_tokens=100)

Answer = Callable[[dict[str, Any]], Response | Awaitable[Response]]


def good(body: dict[str, Any]) -> Response:
    choice = {"message": {"content": "It is 5."}, "finish_reason": "stop"}
    return JSONResponse({"choices": [choice], "usage": {"prompt_tokens": 7, "completion_tokens": 3}})


def error(status: int, message: str, **more: Any) -> Response:
    return JSONResponse({"error": {"message": message, **more}}, status_code=status)


class Server:
    """Answers each chat with the next of `answers`, then with `good`; records the requests."""

    def __init__(self, *answers: Answer | Response, models: tuple[str | dict[str, Any], ...] = ("m",)) -> None:
        self.answers = list(answers)
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.models = models
        self.app = Starlette(
            routes=[
                Route("/v1/models", self.list),
                Route("/v1/chat/completions", self.chat, methods=["POST"]),
            ]
        )

    async def list(self, request: Request) -> Response:
        self.keys.append(request.headers["authorization"])
        return JSONResponse(
            {"object": "list", "data": [one if isinstance(one, dict) else {"id": one} for one in self.models]}
        )

    async def chat(self, request: Request) -> Response:
        body = await request.json()
        self.asked.append(body)
        answer = self.answers.pop(0) if self.answers else good
        if isinstance(answer, Response):
            return answer
        output = answer(body)
        return output if isinstance(output, Response) else await output


def run(
    work: Callable[..., Coroutine[Any, Any, Any]], *servers: Server, retry_timeout: float = 5.0, model: str = "m"
) -> Any:
    """Run `work(client)` against the servers."""

    async def inside() -> Any:
        async with AsyncExitStack() as stack:
            listeners = [listening(server.app, "127.0.0.1", 0) for server in servers]
            urls = [await stack.enter_async_context(listener) for listener in listeners]
            client = await stack.enter_async_context(open_client(model, urls, retry_timeout=retry_timeout))
            return await work(client)

    return asyncio.run(inside())


async def ask(client: RemoteClient) -> Any:
    return await client.chat(ASK, ONE)


def test_a_response_waits_for_no_acknowledgement() -> None:
    """Without TCP_NODELAY each takes 40 ms, as its head and its body are two packets."""

    async def work(client: RemoteClient) -> list[float]:
        took = []
        for _ in range(9):
            began = time.perf_counter()
            await ask(client)
            took.append(time.perf_counter() - began)
        return took

    assert median(run(work, Server())) < 0.03


def test_a_served_model_replies_as_in_this_process(client: EmbeddedClient) -> None:
    async def work() -> None:
        async with served(client) as url, open_client("tiny", [url], concurrency=16) as remote:
            here, gpus = await client.chat(ASK, FEW), await remote.chat(ASK, FEW)
            assert here.prompt_token_ids == gpus.prompt_token_ids
            assert here.prompt_tokens == gpus.prompt_tokens
            assert here.completion_tokens == gpus.completion_tokens
            for one, other in zip(here.replies, gpus.replies, strict=True):
                assert (one.text, one.finish_reason, one.token_ids) == (
                    other.text,
                    other.finish_reason,
                    other.token_ids,
                )
                assert other.logprobs == pytest.approx(one.logprobs, abs=1e-4)
            many = await asyncio.gather(*[remote.chat(ASK, Sampling(max_tokens=8, seed=seed)) for seed in range(64)])
            again = await asyncio.gather(*[client.chat(ASK, Sampling(max_tokens=8, seed=seed)) for seed in range(64)])
            assert [c.replies[0].token_ids for c in many] == [c.replies[0].token_ids for c in again]
            with pytest.raises(ContextOverflow):
                await remote.chat([Message(role="user", content="rate per hour " * 2000)], ONE)

    asyncio.run(work())


def test_top_logprobs_are_returned_on_request(client: EmbeddedClient) -> None:
    """In a batch with other requests, and the same over a server as in this process."""
    asked = Sampling(temperature=0.0, max_tokens=6, top_logprobs=5)

    async def work() -> None:
        async with served(client) as url, open_client("tiny", [url], role="judge") as remote:
            others = [client.chat(ASK, Sampling(max_tokens=12, seed=seed)) for seed in range(3)]
            here, gpus, *rest = await asyncio.gather(client.chat(ASK, asked), remote.chat(ASK, asked), *others)
        (one,), (other,) = here.replies, gpus.replies
        assert one.alternatives is not None
        assert other.alternatives is not None
        assert one.token_ids is not None
        assert len(one.alternatives) == len(other.alternatives) == len(one.token_ids)
        for place, same, logprob in zip(one.alternatives, other.alternatives, one.logprobs or (), strict=True):
            assert (place.text, [text for text, _ in place.top_logprobs]) == (
                same.text,
                [t for t, _ in same.top_logprobs],
            )
            assert len(place.top_logprobs) == 5
            assert place.top_logprobs[0][0] == place.text, "greedy selects the most likely"
            assert place.top_logprobs[0][1] == pytest.approx(logprob, abs=1e-4)
        assert all(completion.replies[0].alternatives is None for completion in rest)

    asyncio.run(work())


def test_fields_are_dropped_until_the_server_accepts() -> None:
    sampling = Sampling(max_tokens=100, top_logprobs=5)

    async def twice(client: RemoteClient) -> None:
        await client.chat(ASK, sampling)
        await client.chat(ASK, sampling)

    def refusing(*names: str) -> Answer:
        return lambda body: error(400, "unknown argument") if set(names) & set(body) else good(body)

    strict, bare = Server(*[refusing("top_k")] * 3), Server(*[refusing("top_k", "logprobs")] * 4)
    run(twice, strict)
    run(twice, bare)
    assert [("top_k" in body, "top_logprobs" in body) for body in strict.asked] == [(True, True), *[(False, True)] * 2]
    assert ["top_logprobs" in body for body in bare.asked] == [True, True, False, False]
    assert [set(body) & {"logprobs", "return_token_ids"} for body in bare.asked[2:]] == [set(), set()]


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503])
def test_transient_errors_are_retried(status: int) -> None:
    server = Server(error(status, "busy"), error(status, "busy"))
    assert run(ask, server).replies[0].text == "It is 5."
    assert len(server.asked) == 3


@pytest.mark.parametrize(("status", "most"), [(400, 9), (403, 1), (404, 9), (409, 1), (422, 9)])
def test_permanent_errors_are_not_retried(status: int, most: int) -> None:
    """Other forms of a request that may have been refused for its form are tried once."""
    server = Server(*[error(status, "bad words")] * 99)

    async def twice(client: RemoteClient) -> int:
        counts = []
        for _ in range(2):
            with pytest.raises(RequestFailed, match=f"{status}.*bad words"):
                await ask(client)
            counts.append(len(server.asked))
        return counts[1] - counts[0]

    assert run(twice, server) == 1
    assert len(server.asked) - 1 == most


def test_retries_end_after_the_time_out() -> None:
    began = time.monotonic()
    with pytest.raises(RequestFailed, match=r"0\.6 seconds: 500 broken"):
        run(ask, Server(*[error(500, "broken")] * 99), retry_timeout=0.6)
    with pytest.raises(ServerError, match=r"127\.0\.0\.1.*0\.6 seconds: 503"):
        run(ask, Server(*[error(503, "starting")] * 99), retry_timeout=0.6)
    assert time.monotonic() - began < 8


def test_retry_after_is_respected() -> None:
    busy = JSONResponse({}, status_code=429, headers={"retry-after": "0.8"})
    began = time.monotonic()
    run(ask, Server(busy))
    assert time.monotonic() - began > 0.8


def test_a_port_without_a_server() -> None:
    began = time.monotonic()
    with pytest.raises(ServerError, match=r"http://127\.0\.0\.1:9/v1") as error:
        asyncio.run(RemoteClient.open("m", ["127.0.0.1:9"], retry_timeout=0.5))
    assert error.value.fix
    assert time.monotonic() - began < 5


def test_a_server_that_shuts_down() -> None:
    async def work() -> None:
        server = Server()
        async with listening(server.app, "127.0.0.1", 0) as url:
            client = await RemoteClient.open("m", [url], retry_timeout=0.3)
            await ask(client)
        try:
            with pytest.raises(ServerError, match="could not be reached"):
                await ask(client)
        finally:
            await client.aclose()

    asyncio.run(work())


def test_another_server_takes_over_at_once() -> None:
    bad, well = Server(*[error(503, "down")] * 99), Server()

    async def work(client: RemoteClient) -> None:
        began = time.monotonic()
        await asyncio.gather(*[ask(client) for _ in range(20)])
        assert time.monotonic() - began < 3

    run(work, bad, well)
    assert len(well.asked) == 20
    assert 1 <= len(bad.asked) <= 20


def test_requests_are_balanced_over_servers() -> None:
    servers = [Server(), Server()]

    async def work(client: RemoteClient) -> None:
        await asyncio.gather(*[ask(client) for _ in range(40)])

    run(work, *servers)
    assert [len(server.asked) for server in servers] == [20, 20]


def test_a_strict_server_gets_plain_requests() -> None:
    def strict(body: dict[str, Any]) -> Response:
        return error(400, "Unrecognized field") if "return_token_ids" in body else good(body)

    server = Server(*[strict] * 9)

    async def work(client: RemoteClient) -> None:
        for _ in range(3):
            reply = (await ask(client)).replies[0]
            assert reply.token_ids is None
            assert reply.logprobs is None

    run(work, server)
    assert ["return_token_ids" in body for body in server.asked] == [True, False, False, False]
    assert ["top_k" in body for body in server.asked] == [True, False, False, False]


def test_a_model_s_own_sampling_settings_are_overridden() -> None:
    """vllm reads options that a request omits from the model's generation_config.json."""
    server = Server()
    run(ask, server)
    asked = {name: server.asked[0][name] for name in ("top_k", "min_p", "repetition_penalty")}
    assert asked == {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}


@pytest.mark.parametrize(
    "answer",
    [
        error(400, "too long", code="context_length_exceeded"),
        error(400, "This model's maximum context length is 2048 tokens. However, your request has 3000 input tokens."),
        error(
            400,
            "This model's maximum context length is 2048 tokens. However, your prompt contains at least 2049 input "
            "tokens, which exceeds this limit even without any output tokens. (parameter=input_tokens, value=2049)",
        ),
        error(400, "The decoder prompt (length 3000) is longer than the maximum model context length of 2048."),
        error(413, "the context window is full"),
        error(400, "try increasing it", type="exceed_context_size_error"),
        error(400, "The input (3000 tokens) is longer than the model's context length (2048 tokens)."),
        error(400, "The input token count (3000) exceeds the maximum number of tokens allowed (2048)."),
        error(400, "prompt is too long: 3000 tokens > 2048 maximum"),
    ],
)
def test_context_overflow_is_recognised(answer: Response) -> None:
    server = Server(answer)
    with pytest.raises(ContextOverflow):
        run(ask, server)
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "answer",
    [
        error(400, "This model has a context length of 2048 tokens and takes no pictures."),
        error(400, "Too large for the context window.", code="unsupported_value", param="temperature"),
        error(400, "top_k exceeds what a context length of 2048 allows", param="top_k"),
    ],
)
def test_a_refusal_that_mentions_the_context_is_no_overflow(answer: Response) -> None:
    with pytest.raises(RequestFailed) as failed:
        run(ask, Server(*[answer] * 40))
    assert not isinstance(failed.value, ContextOverflow)


@pytest.mark.parametrize(
    "message",
    [
        "'max_tokens' or 'max_completion_tokens' is too large: 100. This model's maximum context length is 2048 tokens"
        " and your request has 2000 input tokens (100 > 2048 - 2000).",
        "This model's maximum context length is 2048 tokens. However, you requested 2100 tokens (2000 in the messages,"
        " 100 in the completion). Please reduce the length of the messages or completion.",
    ],
)
def test_a_reply_that_does_not_fit_is_shortened(message: str) -> None:
    server = Server(error(400, message))
    assert run(ask, server).replies[0].text == "It is 5."
    assert [body["max_tokens"] for body in server.asked] == [100, 48]


def test_a_reply_longer_than_the_context_is_shortened() -> None:
    """vllm 0.32 first checks max_tokens alone; it computes the room left by the prompt itself."""
    message = "max_tokens=100 cannot be greater than max_model_len=64. Please request fewer output tokens. (value=100)"
    server = Server(error(400, message))
    assert run(ask, server).replies[0].text == "It is 5."
    assert [body["max_tokens"] for body in server.asked] == [100, 64]


@pytest.mark.parametrize(
    "raw",
    [
        JSONResponse({"choices": [{"message": {"content": 5}}]}),
        JSONResponse({"choices": [{"message": None}]}),
        JSONResponse({"choices": 5}),
    ],
)
def test_a_response_that_cannot_be_read_fails_its_request(raw: Response) -> None:
    with pytest.raises(RequestFailed, match="cannot be read"):
        run(ask, Server(raw))


@pytest.mark.parametrize(
    "more",
    [
        {"choices": [{"message": {"content": "It is 5."}}] * 2},
        {"token_ids": [-1]},
        {"token_ids": "1 2", "logprobs": 5, "index": -3, "finish_reason": 7, "thought_tokens": "many"},
        {"usage": {"prompt_tokens": "many"}},
        {"usage": {"prompt_tokens": 5, "completion_tokens": None}},
        {"usage": {"prompt_tokens": 5, "completion_tokens": -1}},
        {"usage": 7, "prompt_token_ids": {}, "error": None},
    ],
)
def test_no_other_field_takes_a_good_reply_away(more: dict[str, Any]) -> None:
    choice = {"message": {"content": "It is 5.", "reasoning": 5}}
    whole = {"choices": [{**choice, **more}], **more}
    completion = run(ask, Server(JSONResponse(whole)))
    assert [reply.text for reply in completion.replies] == ["It is 5."]
    assert completion.replies[0].token_ids is None
    assert completion.completion_tokens == 3, "estimated by 8 bytes"


@pytest.mark.parametrize(
    "raw",
    [
        Response("<html>Bad gateway</html>", media_type="text/html"),
        Response("{", media_type="application/json"),
        JSONResponse([]),
        JSONResponse({"choices": []}),
        JSONResponse({"id": None, "choices": None}),
        JSONResponse({"error": {"message": "the limit of this provider", "code": 429}}),
        JSONResponse({"error": "no capacity", "choices": None}),
        JSONResponse({"object": "error", "message": "no capacity", "code": 503}),
        JSONResponse({"choices": [{"message": {"content": ""}, "finish_reason": "error", "error": {"code": 502}}]}),
        Response('data: {"choices": [{"delta": {"content": "It is"}}]}\n\n', media_type="text/event-stream"),
        Response('data: {"error": {"message": "no capacity"}}\n\n', media_type="text/event-stream"),
    ],
)
def test_an_error_in_a_response_is_retried(raw: Response) -> None:
    server = Server(raw, raw)
    assert run(ask, server).replies[0].text == "It is 5."
    assert len(server.asked) >= 3


def replying(text: str, encoding: str = "utf-8", **message: Any) -> Response:
    """A response whose JSON has the characters of the text as they are; half a character is escaped."""
    whole = {"choices": [{"message": {"content": text, **message}, "finish_reason": "stop"}]}
    written = json.dumps(whole, ensure_ascii=False).encode(encoding, "backslashreplace")
    return Response(written, media_type="application/json")


def streaming(*parts: str) -> Response:
    """The same in events, a part of the text in each."""
    events = [json.dumps({"choices": [{"delta": {"content": part}}]}, ensure_ascii=False) for part in parts]
    text = "".join(f"data: {event}\n\n" for event in [*events, "[DONE]"])
    return Response(text.encode(errors="backslashreplace"), media_type="text/event-stream")


@pytest.mark.parametrize(
    ("response", "text"),
    [
        (replying("Für 5?", "utf-8-sig"), "Für 5?"),
        (replying("Für 5?", "utf-16"), "Für 5?"),
        (replying("Für 5?", "latin-1"), "F\ufffdr 5?"),
        (replying("It is \ud83d"), "It is \ufffd"),
        (streaming("It is\u2028", "5\x85."), "It is\u20285\x85."),
        (streaming("It is \ud83d", "\ude00."), "It is \U0001f600."),
        (replying("", refusal="I cannot."), "I cannot."),
    ],
)
def test_a_reply_is_read_whatever_its_characters_are(response: Response, text: str) -> None:
    """A model of that seed says the same again, so that another try would not help."""
    server = Server(response)
    assert run(ask, server).replies[0].text == text
    assert len(server.asked) == 1


def test_what_is_no_json_is_called_so() -> None:
    for body, said in ((b"", "the response is empty"), (b"[" * 99_999, r"no JSON object: \[\[")):
        with pytest.raises(RequestFailed, match=said):
            run(ask, Server(*[Response(body, media_type="application/json")] * 99), retry_timeout=0.3)


def test_the_reason_of_an_error_in_a_response_is_the_provider_s() -> None:
    busy = JSONResponse({"error": {"message": "the limit of this provider", "code": 429}})
    with pytest.raises(RequestFailed, match=r"429 the limit of this provider"):
        run(ask, Server(*[busy] * 99), retry_timeout=0.3)
    with pytest.raises(RequestFailed, match=r"<html>Log in"):
        run(ask, Server(*[Response("<html>Log in</html>", media_type="text/html")] * 99), retry_timeout=0.3)
    wrong = JSONResponse({"error": {"message": "no such deployment", "code": "404"}})
    with pytest.raises(RequestFailed, match=r"404.*no such deployment"):
        run(ask, Server(*[wrong] * 99))


def test_optional_fields_may_be_missing() -> None:
    bare = JSONResponse({"choices": [{"message": {"content": None}}], "usage": None})
    completion = run(ask, Server(bare))
    assert completion.replies[0].text == ""
    assert (completion.prompt_tokens > 0, completion.completion_tokens) == (True, 0), "estimated by the texts"
    short = {"message": {"content": "a"}, "token_ids": [1, 2], "logprobs": {"content": [{"logprob": -1.0}]}}
    reply = run(ask, Server(JSONResponse({"choices": [short]}))).replies[0]
    assert reply.token_ids == (1, 2)
    assert reply.logprobs is None


def test_the_served_name_of_the_model() -> None:
    async def name(client: RemoteClient) -> str:
        return client.model

    assert run(name, Server(models=("a", "m")), model="m") == "m"
    assert run(name, Server(models=("served",)), model="micro") == "served"
    assert run(name, Server(models=("served",)), model="./somewhere") == "served"
    with pytest.raises(UsageError, match="It serves: a, b"):
        run(name, Server(models=("a", "b")), model="micro")
    with pytest.raises(UsageError, match=r"does not serve other.*It serves: served"):
        run(name, Server(models=("served",)), model="other")
    with pytest.raises(UsageError) as wrong:
        run(name, Server(models=("org/a b:7b",)), model="other")
    assert wrong.value.fix == "--agent 'org/a b:7b'"


def test_a_server_that_is_not_openai_compatible() -> None:
    async def open_at(app: Any) -> None:
        async with listening(app, "127.0.0.1", 0) as url:
            await RemoteClient.open("m", [url], retry_timeout=0.2)

    async def page(request: Request) -> Response:
        return Response("<html>", media_type="text/html")

    async def secret(request: Request) -> Response:
        return error(401, "wrong key")

    with pytest.raises(UsageError, match=r"not an OpenAI-compatible server.*404 for a chat with m"):
        asyncio.run(open_at(Starlette()))
    with pytest.raises(UsageError, match="not an OpenAI-compatible server"):
        asyncio.run(open_at(Starlette(routes=[Route("/v1/models", page)])))
    with pytest.raises(UsageError, match="refuses the API key") as refused:
        asyncio.run(open_at(Starlette(routes=[Route("/v1/models", secret)])))
    assert "SWEET_AGENT_API_KEY" in str(refused.value.fix)

    async def closed(request: Request) -> Response:
        return error(403, "not in this region")

    with pytest.raises(UsageError, match=r"forbids the request \(403\): not in this region"):
        asyncio.run(open_at(Starlette(routes=[Route("/v1/models", closed)])))


def test_the_key_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "general")
    server = Server()
    run(ask, server)
    monkeypatch.setenv("SWEET_AGENT_API_KEY", "special")
    run(ask, server)
    assert server.keys == ["Bearer general", "Bearer special"]


def test_no_proxy_is_used_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert run(ask, Server()).replies[0].text == "It is 5."


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("localhost:8000", "http://localhost:8000/v1"),
        ("http://a:1/", "http://a:1/v1"),
        ("https://a/v1/", "https://a/v1"),
        ("http://a/v1/chat/completions", "http://a/v1"),
        ("http://a/proxy/x", "http://a/proxy/x"),
        ("http://[::1]:8000", "http://[::1]:8000/v1"),
    ],
)
def test_addresses(text: str, url: str) -> None:
    assert base_url(text) == url


@pytest.mark.parametrize("text", ["", "ftp://a", "http://", "http://a:b", "http://u:p@a", "http://a b", "http://a?x=1"])
def test_invalid_addresses(text: str) -> None:
    with pytest.raises(UsageError, match="not a server address"):
        base_url(text)


@pytest.mark.parametrize("stops", [False, True])
def test_requests_wait_at_a_server_that_answers_one_after_the_other(stops: bool) -> None:
    turn = asyncio.Semaphore(1)
    answered: list[dict[str, Any]] = []

    async def in_turn(body: dict[str, Any]) -> Response:
        async with turn:
            await asyncio.sleep(60 if stops and len(answered) == 2 else 0.5)
            answered.append(body)
            return good(body)

    async def work() -> list[Any]:
        app = Server(*[in_turn] * 8).app
        async with (
            listening(app, "127.0.0.1", 0) as url,
            open_client("m", [url], retry_timeout=0.0, request_timeout=2.0) as client,
        ):

            async def dialogue() -> Completion:
                async with deadline(2.0):
                    return await client.chat(ASK, ONE)

            return await asyncio.gather(*[dialogue() for _ in range(8)], return_exceptions=True)

    found = asyncio.run(work())
    assert sum(isinstance(one, Completion) for one in found) == (2 if stops else 8), found
