"""What every server does before its application: hostile clients over real sockets, and rules of a request's head."""

from __future__ import annotations

import asyncio
import re
import socket
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sweet.llm.listening import listening
from sweet.serving import Connection, Connections, Limits, current, is_loopback, names_of, refusal

QUICK = Limits(connections=6, head_seconds=0.2, body_seconds=0.3, idle_seconds=0.4, body_bytes=10_000)
HOST = "Host: localhost\r\n"
JSON = "Content-Type: application/json\r\n"
GET = f"GET /now HTTP/1.1\r\n{HOST}\r\n"
POST = f"POST /echo HTTP/1.1\r\n{HOST}{JSON}"


async def _echo(request: Request) -> Response:
    return JSONResponse(await request.json())


async def _now(request: Request) -> Response:
    return JSONResponse("now")


async def _later(request: Request) -> Response:
    await asyncio.sleep(60)
    return JSONResponse("later")


APP = Starlette(
    routes=[Route("/now", _now), Route("/later", _later), Route("/echo", _echo, methods=["POST"])],
)


@asynccontextmanager
async def uvicorn_server(limits: Limits) -> AsyncIterator[int]:
    async with listening(APP, "127.0.0.1", 0, limits=limits) as url:
        yield int(url.split(":")[2].removesuffix("/v1"))


@asynccontextmanager
async def aiohttp_server(limits: Limits) -> AsyncIterator[int]:
    """As `sweet view --serve` has it, without its pages."""

    @web.middleware
    async def answering(request: web.Request, handler: Any) -> Any:
        with current.get().answer():
            return await handler(request)

    async def now(_: web.Request) -> web.Response:
        return web.json_response("now")

    async def later(_: web.Request) -> web.Response:
        await asyncio.sleep(60)
        return web.Response()

    app = web.Application(middlewares=[answering])
    app.add_routes([web.get("/now", now), web.get("/later", later)])
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    web_server, connections = runner.server, Connections(limits)
    assert web_server is not None
    loop = asyncio.get_running_loop()
    listener = await loop.create_server(lambda: Connection(connections, web_server()), "127.0.0.1", 0)
    try:
        yield listener.sockets[0].getsockname()[1]
    finally:
        listener.close()
        await runner.cleanup()


SERVERS = pytest.mark.parametrize("serving", [uvicorn_server, aiohttp_server])
Serving = Callable[[Limits], Any]


async def connect(port: int, sent: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent.encode("latin-1"))
    return reader, writer


async def answers(port: int, sent: str) -> list[str]:
    """The status of each answer, and the last answer's text, until the server closes the connection."""
    reader, writer = await connect(port, sent)
    async with asyncio.timeout(5):
        received = (await reader.read()).decode("latin-1")
    writer.close()
    statuses = re.findall(r"HTTP/1\.1 (\d{3}) ", received)
    return [*statuses, received.rpartition("\r\n\r\n")[2] or received]


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def test_each_hostile_request_gets_one_answer_and_is_closed_in_time() -> None:
    cases = {
        GET: ["200", '"now"'],
        GET * 3: ["200", "200", "200", '"now"'],
        f"{POST}Content-Length: 2\r\n\r\n[]": ["200", "[]"],
        f"{POST}Transfer-Encoding: chunked\r\n\r\n2\r\n[]\r\n0\r\n\r\n": ["200", "[]"],
        "GET /now HTTP/1.0\r\n\r\n": ["200", '"now"'],
        f"HEAD /now HTTP/1.1\r\n{HOST}\r\n": ["200", ""],
        f"OPTIONS /now HTTP/1.1\r\n{HOST}\r\n": ["405", "Method Not Allowed"],
        f"TRACE /now HTTP/1.1\r\n{HOST}\r\n": ["405", "Method Not Allowed"],
        "GET /now HTTP/1.1\r\nHost: evil.example\r\n\r\n": ["421", "evil.example"],
        GET.replace("\r\n\r\n", "\r\nOrigin: null\r\n\r\n"): ["403", "another site"],
        f"POST /echo HTTP/1.1\r\n{HOST}Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n[]": [
            "415",
            "application/json",
        ],
        f"POST /echo HTTP/1.1\r\n{HOST}Content-Length: 2\r\n\r\n[]": ["415", "application/json"],
        # Where the next request begins is not known: what follows is not answered.
        f"{POST}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{GET}": ["400", "Transfer-Encoding"],
        f"POST /echo HTTP/1.0\r\n{HOST}{JSON}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n{GET}": ["400", "Transfer-Enc"],
        f"{POST}Content-Length: 2\r\nContent-Length: 3\r\n\r\n[]{GET}": ["400", "Invalid"],
        f"{POST}Transfer-Encoding: gzip\r\n\r\n[]{GET}": ["400", "Invalid"],
        f"{POST}Content-Length: -1\r\n\r\n[]": ["400", "Invalid"],
        f"{POST}Content-Length: 1\r\n\r\n12\r\n\r\n": ["200", "400", "Invalid"],
        f"GET /now HTTP/1.1\r\n{HOST}{HOST}\r\n": ["400", "Invalid"],
        "\x16\x03\x01\x02\x00\r\n\r\n": ["400", "Invalid"],
        f"{GET}no request\r\n\r\n{GET}": ["200", "400", "Invalid"],
        GET.replace("\r\n\r\n", "".join(f"\r\nX{i}: {'x' * 100}" for i in range(400)) + "\r\n\r\n"): ["431", "headers"],
        f"GET /now HTTP/1.1\r\n{HOST}Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n": ["403", "WebSocket"],
        f"{POST}Content-Length: 99999\r\n\r\n" + "x" * 20_000: ["413", ""],
        f"GET /now HTTP/1.1\r\n{HOST}": ["408", "0.2 s"],
        f"{POST}Content-Length: 3\r\n\r\n[]": ["408", "0.3 s"],
        f"{POST}Transfer-Encoding: chunked\r\n\r\n2\r\n[]\r\n": ["408", "0.3 s"],
        "": [""],
    }

    async def work() -> None:
        async with uvicorn_server(Limits(1000, 0.2, 0.3, 0.4, 10_000)) as port:
            results = await asyncio.gather(*(answers(port, sent) for sent in cases))
            for (sent, expected), found in zip(cases.items(), results, strict=True):
                assert found[:-1] == expected[:-1], (sent[:200], found)
                assert expected[-1] in found[-1], (sent[:200], found)

    run(work())


def test_a_client_that_sends_all_of_a_large_body_gets_the_answer() -> None:
    def post(port: int) -> int:
        url, json = f"http://127.0.0.1:{port}/echo", {"Content-Type": "application/json"}
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(urllib.request.Request(url, bytes(10 << 20), json), timeout=20)
        with refused.value as answer:
            return int(answer.code)

    async def work() -> None:
        async with uvicorn_server(Limits()) as port:
            assert await asyncio.to_thread(post, port) == 413

    run(work())


def test_bodies_that_are_too_large_lock_nobody_out() -> None:
    """What is left of one that is refused is read, and makes room as a half-sent request does."""
    limits = Limits(connections=6, head_seconds=60, body_seconds=60, idle_seconds=60, body_bytes=10_000)

    async def work() -> None:
        async with uvicorn_server(limits) as port:
            large = [await connect(port, f"{POST}Content-Length: 99999\r\n\r\n" + "x" * 20_000) for _ in range(3)]
            for reader, _ in large:
                assert b" 413 " in await asyncio.wait_for(reader.readline(), 5)
            assert await answers(port, GET.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n")) == ["200", '"now"']
            for _, writer in large:
                writer.close()

    run(work())


@SERVERS
def test_half_sent_requests_lock_nobody_out(serving: Serving) -> None:
    limits = Limits(connections=6, head_seconds=60, body_seconds=60, idle_seconds=0.3)

    async def work() -> None:
        async with serving(limits) as port:
            half = [await connect(port, "GET /now HTTP/1.1\r\nHo") for _ in range(20)]
            assert await answers(port, GET) == ["200", '"now"']
            closed = await asyncio.gather(*(asyncio.wait_for(reader.read(), 5) for reader, _ in half[:17]))
            assert closed == [b""] * 17, "the oldest made room; of one address there are at most three"
            for _, writer in half:
                writer.close()

    run(work())


@SERVERS
def test_a_request_is_refused_only_if_all_others_are_answered(serving: Serving) -> None:
    async def work() -> None:
        async with serving(QUICK) as port:
            busy = [await connect(port, GET.replace("now", "later")) for _ in range(3)]
            await asyncio.sleep(0.6)  # no limit of time applies to a request that is answered
            refused = await answers(port, "")
            assert refused[0] == "503"
            assert "try again later" in refused[1]
            busy[0][1].close()
            async with asyncio.timeout(5):
                while (await answers(port, GET))[0] != "200":
                    pass
            for _, writer in busy:
                writer.close()

    run(work())


@SERVERS
@pytest.mark.parametrize(("sent", "expected"), [("GET /now HT", ["408"]), ("", []), (GET, ["200"])])
def test_no_connection_stays_open(serving: Serving, sent: str, expected: list[str]) -> None:
    async def work() -> None:
        async with serving(QUICK) as port:
            assert (await answers(port, sent))[:-1] == expected

    run(work())


def test_a_client_that_does_not_read_is_dropped() -> None:
    """One asks again and again and never reads: the server's answers fill the buffers."""

    async def work() -> None:
        body = "[" + '"' + "x" * 9_000 + '"' + "]"
        sent = f"{POST}Content-Length: {len(body)}\r\n\r\n{body}"
        async with uvicorn_server(QUICK) as port:
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                client.setblocking(False)
                sending = asyncio.get_running_loop().sock_sendall(client, sent.encode() * 10_000)
                with pytest.raises(ConnectionError):
                    await asyncio.wait_for(sending, 20)

    run(work())


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "127.0.0.1:8080"}, None),
        ({"Host": "10.1.2.3:8080"}, None),  # an address that no name server has given
        ({"Host": "[fe80::1]:8080"}, None),
        ({"Host": "LOCALHOST."}, None),
        ({"Host": "lab.example"}, None),
        ({"Host": "lab"}, None),
        ({}, 400),
        ({"Host": ""}, 421),
        ({"Host": "evil.example"}, 421),
        ({"Host": "lab.example.evil.example"}, 421),
        ({"Host": "localhost.evil.example"}, 421),
        ({"Host": "127.0.0.1.evil.example"}, 421),
        ({"Host": "user@localhost"}, 421),
        ({"Host": 'lab"><script>'}, 421),
        ({"Host": "localhost:8080", "Origin": "http://localhost:8080"}, None),
        ({"Host": "localhost:8080", "Origin": "http://localhost:8081"}, 403),
        ({"Host": "localhost:8080", "Origin": "http://[::1"}, 403),
        ({"Host": "localhost:8080", "Origin": "null"}, 403),
        ({"Host": "localhost:8080", "Origin": ""}, 403),
        ({"Host": "lab", "Upgrade": "WebSocket"}, 403),
        ({"Host": "lab", "Upgrade": "h2c"}, None),
        ({"Host": "lab", "Upgrade": "websocket", "Origin": "http://lab"}, None),
    ],
)
def test_who_is_answered(headers: dict[str, str], status: int | None) -> None:
    refused = refusal("1.1", "GET", "/", headers.items(), frozenset({"lab", "lab.example"}))
    assert (refused and refused[0]) == status


@pytest.mark.parametrize(
    ("kind", "answered"),
    [
        ("application/json", True),
        ("Application/JSON; charset=utf-8", True),
        ("text/plain", False),
        ("text/plain; application/json", False),
        ("application/x-www-form-urlencoded", False),
        ("", False),
    ],
)
def test_what_is_posted_says_that_it_is_json(kind: str, answered: bool) -> None:
    refused = refusal("1.1", "POST", "/", [("host", "localhost"), ("content-type", kind)], frozenset())
    assert (refused is None) is answered


@pytest.mark.parametrize("path", ["/", "", "*", "/secre/", "/secretx/", "//secret/", "/?secret", "secret/", "/\ud800/"])
def test_without_the_token_nobody_is_answered(path: str) -> None:
    host = [("Host", "localhost")]
    assert refusal("1.1", "GET", "/secret/ws", host, frozenset(), token="secret") is None
    refused = refusal("1.1", "GET", path, host, frozenset(), token="secret")
    assert refused is not None
    assert refused[0] == 403


def test_the_names_of_a_server() -> None:
    own = socket.gethostname().lower()
    assert names_of("127.0.0.1") == {"127.0.0.1", own}
    assert {own, socket.getfqdn().lower(), "sim.example"} <= names_of("0.0.0.0", ["Sim.example "])


def test_loopback_addresses() -> None:
    assert all(map(is_loopback, ["127.0.0.1", "127.8.8.8", "::1", "localhost", "a.localhost"]))
    assert not any(map(is_loopback, ["0.0.0.0", "::", "example.org", "localhost.example.org", "10.0.0.1", ""]))
