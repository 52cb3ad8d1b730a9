"""The client against servers that try to take its memory or its time."""

from __future__ import annotations

import asyncio
import json
import math
import re
import time
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from sweet.cli.console import safe_text
from sweet.errors import ServerError, UsageError
from sweet.llm import remote
from sweet.llm.base import Completion, RequestFailed, Sampling
from sweet.llm.connect import open_client
from sweet.llm.http import MAX_ERROR_BYTES
from sweet.llm.response_schema import ChatAnswer, most_bytes
from sweet.tasks.base import Message

ASK = [Message(role="user", content="What is the rate per hour?")]
ONE = Sampling(max_tokens=100)
MODELS = json.dumps({"data": [{"id": "m"}]}).encode()
REPLY: dict[str, Any] = {"choices": [{"message": {"content": "It is 5."}, "finish_reason": "stop"}]}

MANY = 64 << 20
"""Bytes of a response that is far too large."""

Write = Callable[[bytes], Awaitable[None]]
Answer = Callable[[Write], Awaitable[None]]


def head(status: str = "200 OK", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", "Content-Type: application/json", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def whole(body: bytes, status: str = "200 OK", *headers: str) -> Answer:
    async def answer(write: Write) -> None:
        await write(head(status, f"Content-Length: {len(body)}", *headers) + body)

    return answer


def endless(start: bytes, piece: bytes, pause: float = 0.0) -> Answer:
    """Sends `piece` again and again, until the client hangs up."""

    async def answer(write: Write) -> None:
        await write(start)
        while True:
            await write(piece)
            await asyncio.sleep(pause)

    return answer


GOOD, LISTED = whole(json.dumps(REPLY).encode()), whole(MODELS)


class Raw:
    """A server that writes bytes.

    Attributes:
        sent: the bytes of its answers to chats.
        asked: the number of chats.
        requests: the heads of all requests.
    """

    def __init__(self, chat: Answer, models: Answer) -> None:
        self.chat, self.models = chat, models
        self.sent = self.asked = 0
        self.requests: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while request := await reader.readuntil(b"\r\n\r\n"):
                is_chat = request.startswith(b"POST")
                length = next(
                    (int(line.split(b":")[1]) for line in request.lower().split(b"\r\n") if b"-length:" in line), 0
                )
                await reader.readexactly(length)
                self.asked += is_chat
                self.requests.append(request)

                async def write(data: bytes, *, counted: bool = is_chat) -> None:
                    self.sent += len(data) if counted else 0
                    writer.write(data)
                    await writer.drain()

                await (self.chat if is_chat else self.models)(write)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def raw(chat: Answer = GOOD, models: Answer = LISTED) -> AsyncIterator[tuple[Raw, str]]:
    server = Raw(chat, models)
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    handlers = asyncio.all_tasks()
    try:
        yield server, f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/v1"
    finally:
        listener.close()
        for task in asyncio.all_tasks() - handlers:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def ask(
    chat: Answer = GOOD,
    models: Answer = LISTED,
    *,
    sampling: Sampling = ONE,
    retry_timeout: float = 0.2,
    **settings: Any,
) -> tuple[Completion | Exception, Raw]:
    """The completion or the error of one request, and the server."""

    async def inside() -> tuple[Completion | Exception, Raw]:
        async with raw(chat, models) as (server, url):
            try:
                async with open_client("m", [url], retry_timeout=retry_timeout, **settings) as client:
                    return await client.chat(ASK, sampling), server
            except (ServerError, UsageError, RequestFailed) as error:
                return error, server

    return asyncio.run(inside())


def bomb(size: int) -> bytes:
    """Compressed JSON whitespace, which ends in a valid reply."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join(
        [*(packer.compress(b" " * (1 << 20)) for _ in range(size >> 20)), packer.compress(b"{}"), packer.flush()]
    )


def test_a_small_compressed_body_does_not_become_a_large_one() -> None:
    body = bomb(MANY)
    assert len(body) < MANY / 500
    tracemalloc.start()
    try:
        outcome, server = ask(whole(body, "200 OK", "Content-Encoding: gzip"))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert isinstance(outcome, RequestFailed)
    assert "longer than" in outcome.what
    assert server.asked == 1, "the same request would get the same answer"
    assert peak < MANY / 4


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_compressed_answer_is_read(encoding: str) -> None:
    packer = zlib.compressobj(wbits=31 if encoding == "gzip" else 15)
    body = packer.compress(json.dumps(REPLY).encode()) + packer.flush()
    outcome, _ = ask(whole(body, "200 OK", f"Content-Encoding: {encoding}"))
    assert isinstance(outcome, Completion)
    assert outcome.replies[0].text == "It is 5."


@pytest.mark.parametrize("encoding", ["br", "gzip"])
def test_an_answer_that_cannot_be_decompressed(encoding: str) -> None:
    outcome, server = ask(whole(b"\0" * 64, "200 OK", f"Content-Encoding: {encoding}"))
    assert isinstance(outcome, RequestFailed)
    assert server.asked == 1


@pytest.mark.parametrize(
    ("start", "piece"),
    [
        (head("200 OK", "Transfer-Encoding: chunked"), b"10000\r\n" + b" " * (1 << 16) + b"\r\n"),
        (head("200 OK", "Connection: close"), b" " * (1 << 16)),
        # Empty blocks of deflate: they decompress to nothing.
        (
            head("200 OK", "Content-Encoding: gzip", "Connection: close") + bytes.fromhex("1f8b08000000000000ff"),
            b"\0\0\0\xff\xff" * (1 << 13),
        ),
        (head("200 OK", f"Content-Length: {1 << 40}"), b"[" * (1 << 16)),
    ],
    ids=["chunked", "until-close", "nothing", "length"],
)
def test_an_endless_answer_is_read_up_to_a_bound(start: bytes, piece: bytes) -> None:
    outcome, server = ask(endless(start, piece))
    assert isinstance(outcome, RequestFailed)
    assert "longer than" in outcome.what
    assert server.sent < 24 << 20, "the bound, and what the buffers of the sockets hold"


def test_of_an_endless_error_only_the_beginning_is_read() -> None:
    start = head("400 Bad Request", "Connection: close") + b"bad words"
    outcome, server = ask(endless(start, b" " * (1 << 16)))
    assert isinstance(outcome, RequestFailed)
    assert "bad words" in outcome.what
    assert server.sent < (24 << 20) + MAX_ERROR_BYTES


@pytest.mark.parametrize("pause", [0.0, 0.02])
def test_an_endless_list_of_models_ends(pause: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "CONNECT_TIMEOUT", 1.0)
    start = head("200 OK", "Transfer-Encoding: chunked")
    began = time.monotonic()
    outcome, _ = ask(
        models=endless(start, b"1\r\n \r\n" if pause else b"10000\r\n" + b" " * (1 << 16) + b"\r\n", pause)
    )
    assert isinstance(outcome, ServerError if pause else UsageError)
    assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    "start",
    [b"HTTP/1.1 200 OK\r\n", head("200 OK", "Transfer-Encoding: chunked") + b"1\r\n \r\n"],
    ids=["head", "body"],
)
def test_a_dripping_answer_ends_after_the_time_of_a_request(start: bytes) -> None:
    piece = b"1\r\n \r\n" if start.endswith(b"\n \r\n") else b"X: y\r\n"
    began = time.monotonic()
    outcome, _ = ask(endless(start, piece, 0.02), request_timeout=0.5)
    assert isinstance(outcome, ServerError), "a server that has never answered in time is down"
    assert "no answer in time" in outcome.what
    assert time.monotonic() - began < 20


def test_a_request_that_is_too_slow_fails_alone_if_others_were_answered() -> None:
    drip = endless(head("200 OK", "Transfer-Encoding: chunked"), b"1\r\n \r\n", 0.02)

    async def inside() -> None:
        async with AsyncExitStack() as stack:
            server, url = await stack.enter_async_context(raw())
            opening = open_client("m", [url], retry_timeout=0.1, request_timeout=0.5)
            client = await stack.enter_async_context(opening)
            await client.chat(ASK, ONE)
            server.chat = drip
            with pytest.raises(RequestFailed, match="no answer in time"):
                await client.chat(ASK, ONE)

    asyncio.run(inside())


@pytest.mark.parametrize(
    "wait", ["nan", "inf", "-inf", "1e999", "-5", "1e30", "Wed, 21 Oct 2099 07:28:00 GMT", "9" * 5000]
)
def test_a_server_does_not_decide_how_long_the_client_waits(wait: str) -> None:
    began = time.monotonic()
    outcome, server = ask(whole(b"{}", "429 Busy", f"Retry-After: {wait}"), retry_timeout=0.3)
    assert isinstance(outcome, RequestFailed)
    assert "429" in outcome.what
    assert 2 <= server.asked < 30
    assert time.monotonic() - began < 20


def test_a_reply_has_at_most_the_bytes_that_its_tokens_can_have() -> None:
    text = "word " * 600_000
    reply = json.dumps({"choices": [{"message": {"content": text}}]}).encode()
    refused, _ = ask(whole(reply))
    assert isinstance(refused, RequestFailed)
    accepted, _ = ask(whole(reply), sampling=Sampling(max_tokens=600_000))
    assert isinstance(accepted, Completion)
    assert accepted.replies[0].text == text


def test_an_answer_with_all_that_was_requested_is_within_the_bound() -> None:
    """Sixteen long replies with ids and the likeliest tokens, each token of several letters of six bytes in JSON."""
    sampling = Sampling(max_tokens=50, n=16, top_logprobs=20)
    token = "\N{CYRILLIC SMALL LETTER A}" * 12
    entry = {"token": token, "logprob": -12.345678901234567, "bytes": list(token.encode())}
    choice = {
        "message": {"content": token * 50, "reasoning_content": token * 50},
        "token_ids": [128_000] * 50,
        "logprobs": {"content": [{**entry, "top_logprobs": [entry] * 20}] * 50},
    }
    body = json.dumps({"choices": [choice] * 16, "prompt_token_ids": [128_000] * 8}).encode()
    request = {"n": 16, "logprobs": True, "top_logprobs": 20, "return_token_ids": True}
    assert len(body) < most_bytes(request, sampling, 2_000)
    outcome, _ = ask(whole(body), sampling=sampling)
    assert isinstance(outcome, Completion)
    assert outcome.replies[15].alternatives is not None


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 200_000,
        b'{"choices":' * 50_000,
        b'{"choices": [{"message": {"content": "a"}}], "usage": {"prompt_tokens": ' + b"9" * 100_000 + b"}}",
    ],
    ids=["deep", "nested", "long-number"],
)
def test_what_is_no_json_fails_the_request(body: bytes) -> None:
    began = time.process_time()
    outcome, _ = ask(whole(body))
    assert isinstance(outcome, RequestFailed)
    assert time.process_time() - began < 5


@pytest.mark.parametrize("start", [b"\0\1\r\n\r\n", head("200 OK", "X: " + "a" * 20_000)])
def test_what_is_no_http_is_called_so(start: bytes) -> None:
    async def answer(write: Write) -> None:
        await write(start)

    outcome, _ = ask(answer)
    assert isinstance(outcome, ServerError)
    assert re.search(r"could not be reached.*: its answer is not HTTP: (Got more|Bad status)", outcome.what)


@pytest.mark.parametrize(
    "body",
    [
        b'{"choices": [{"message": {"content": "a"}}], "usage": {"prompt_tokens": 1e300}}',
        b'{"choices": [{"message": {"content": "a"}, "token_ids": [' + b"9" * 4_000 + b"]}]}",
        b'{"choices": [{"message": {"content": "a"}, "finish_reason": "' + b"x" * 100_000 + b'"}]}',
    ],
    ids=["huge-number", "huge-id", "long-reason"],
)
def test_values_out_of_bounds_are_not_used(body: bytes) -> None:
    began = time.process_time()
    outcome, _ = ask(whole(body))
    assert isinstance(outcome, Completion)
    (reply,) = outcome.replies
    assert (reply.text, reply.finish_reason, reply.token_ids, outcome.prompt_tokens < 99) == ("a", "stop", None, True)
    assert time.process_time() - began < 5


def content(text: Any) -> Answer:
    return whole(json.dumps({"choices": [{"message": {"content": text}}]}).encode())


@pytest.mark.parametrize(
    "chat",
    [
        whole(b""),
        whole(b"<html>\x1b[31m\xff\x9b31m"),
        whole(b'{"choices": []}'),
        whole(json.dumps({"choices": REPLY["choices"] * 100_000}).encode()),
        whole(b'{"choices": [{"message": {"content": "\\ud800\\u0000\\u009b31m\\u202e"}}]}'),
        content(None),
        content({"a": [1]}),
        content("I WANT TO ANSWER" + " " * 1_000_000),
        content("a" * (100 << 20)),
        whole(b'{"error": {"message": "a", "param": "' + b"b" * (1 << 20) + b'"}}', "400 Bad Request"),
        whole(b'{"error": {"message": "\\u001b]0;owned\\u0007\\u009b31m"}}', "400 Bad Request"),
        whole(b"{}", "999 Strange"),
        whole(b"{}", "101 Switching Protocols"),
        endless(b"\0\1\2\3" * 1000, b"\0"),
        endless(b"HTTP/1.1 200 OK\r\n", b"X-More: " + b"a" * 4_000 + b"\r\n"),
    ],
    ids=[
        *("empty", "no-json", "no-choices", "many-choices", "surrogates", "null", "wrong-types", "blanks", "large"),
        *("large-param", "escapes", "status-999", "status-101", "no-http", "endless-headers"),
    ],
)
def test_whatever_it_answers_is_a_short_error_or_a_reply(chat: Answer) -> None:
    began = time.process_time()
    outcome, server = ask(chat, request_timeout=2.0)
    assert server.asked < 20
    if isinstance(outcome, Exception):
        assert len(str(outcome)) < 4_000
        assert all(one.isprintable() or one == "\n" for one in safe_text(str(outcome)).plain)
    assert time.process_time() - began < 10


def test_log_probabilities_that_cannot_be_some_are_not_used() -> None:
    def reply(*values: float) -> Any:
        content = [
            {"token": "a", "logprob": value, "top_logprobs": [{"token": "b", "logprob": value}]} for value in values
        ]
        return {"choices": [{"message": {"content": "a"}, "logprobs": {"content": content}}]}

    (good,) = ChatAnswer.model_validate(reply(-1.5, -9999.0)).replies()
    assert good.logprobs == (-1.5, -9999.0)
    for bad in (1e308, -1e308, -math.inf):
        (found,) = ChatAnswer.model_validate(reply(-1.0, bad)).replies()
        assert found.logprobs is None
        assert found.alternatives is not None
        assert [len(place.top_logprobs) for place in found.alternatives] == [1, 0]


def test_a_server_cannot_shorten_a_reply_without_end() -> None:
    """Each error names one token less than was asked for."""
    asked = 1_000

    async def shorter(write: Write) -> None:
        nonlocal asked
        asked -= 1
        message = f"This model's maximum context length is {asked} tokens and your request has 0 input tokens"
        await whole(json.dumps({"error": {"message": message}}).encode(), "400 Bad Request")(write)

    outcome, server = ask(shorter, sampling=Sampling(max_tokens=1_000))
    assert isinstance(outcome, RequestFailed)
    assert server.asked < 20


def test_many_models_are_not_all_listed() -> None:
    names = [f"model-{number:06}-{'x' * 20}" for number in range(100_000)]
    listing = json.dumps({"data": [{"id": name} for name in names]}).encode()
    outcome, _ = ask(models=whole(listing))
    assert isinstance(outcome, UsageError)
    assert names[0] in outcome.what
    assert "and 99,980 more" in outcome.what
    assert len(str(outcome)) < 2_000
    long, _ = ask(models=whole(json.dumps({"data": [{"id": "y" * 1_000}]}).encode()))
    assert isinstance(long, UsageError)
    assert len(str(long)) < 500


def test_a_key_in_a_message_of_the_server_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEET_AGENT_API_KEY", "kQ7-vvw93-hidden")
    message = "x " * 240 + "Incorrect API key provided: kQ7-vvw93-hidden"
    error = json.dumps({"error": {"message": message}}).encode()
    outcomes = ask(whole(error, "400 Bad Request"))[0], ask(models=whole(error, "401 Unauthorized"))[0]
    for outcome in outcomes:
        assert isinstance(outcome, RequestFailed | UsageError)
        assert "kQ7" not in str(outcome), "not even its beginning"
        assert "kQ7" not in repr(outcome.__cause__)


def redirect(location: str, status: str = "307 Temporary Redirect") -> Answer:
    return whole(b"", status, f"Location: {location}")


STATUSES = ("301 Moved", "302 Found", "307 Temporary Redirect", "308 Permanent Redirect")


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("of", ["chat", "models"])
def test_no_dialogue_is_carried_to_another_host(of: str, status: str) -> None:
    async def inside() -> None:
        async with raw() as (other, elsewhere), raw() as (server, url):
            path = "/chat/completions" if of == "chat" else "/models"
            setattr(server, of, redirect(f"{elsewhere}{path}", status))
            expected = RequestFailed if of == "chat" else UsageError
            with pytest.raises(expected, match=f"redirects.*{elsewhere}") as refused:
                async with open_client("m", [url], retry_timeout=0.1) as client:
                    await client.chat(ASK, ONE)
            assert of == "chat" or "address that it redirects to" in str(refused.value.fix)
            assert other.requests == []

    asyncio.run(inside())


@pytest.mark.parametrize(
    "location",
    ["file:///etc/passwd", "http://user:word@127.0.0.1:1/", "//[", "http://127.0.0.1:99999/", "\xff\xfe", ""],
)
def test_a_redirect_to_what_is_no_address_fails_the_request(location: str) -> None:
    outcome, server = ask(redirect(location))
    assert isinstance(outcome, RequestFailed | ServerError)
    assert server.asked < 20


def test_a_redirect_on_the_same_host_is_followed_but_not_for_ever() -> None:
    async def inside() -> tuple[Completion, Raw]:
        async with raw() as (server, url), open_client("m", [url]) as client:

            async def moved(write: Write) -> None:
                await (GOOD if b"/elsewhere" in server.requests[-1] else redirect("/elsewhere"))(write)

            server.chat = moved
            return await client.chat(ASK, ONE), server

    completion, server = asyncio.run(inside())
    assert completion.replies[0].text == "It is 5."
    assert server.asked == 2
    outcome, circling = ask(redirect("/v1/chat/completions"))
    assert isinstance(outcome, RequestFailed)
    assert "again and again" in outcome.what
    assert circling.asked < 10
