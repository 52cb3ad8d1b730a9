"""`sweet play --serve`: a real server, and a client that sends what a browser sends."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from sweet.errors import UsageError
from sweet.runs.run import Run
from sweet.view.app.play.browser import is_loopback, parse_address, refusal, serve

pytest.importorskip("textual_serve")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("8080", ("127.0.0.1", 8080)),
        ("localhost:1", ("localhost", 1)),
        ("[::1]:80", ("::1", 80)),
        ("0.0.0.0:5", ("0.0.0.0", 5)),
    ],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text", ["", "x", "a:", ":0", "h:65536", "h:1e3", "h h:80", "h;rm:80", "[::1:80", "h:٣", "h:" + "9" * 9999]
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="no address"):
        parse_address(text)


def test_what_is_loopback() -> None:
    assert all(map(is_loopback, ["127.0.0.1", "127.8.8.8", "::1", "localhost"]))
    assert not any(map(is_loopback, ["0.0.0.0", "::", "example.org", "localhost.example.org", "10.0.0.1"]))


@pytest.mark.parametrize(
    ("host", "asked", "origin", "refused"),
    [
        ("127.0.0.1", "127.0.0.1:8080", None, False),
        ("127.0.0.1", "localhost:8080", "http://localhost:8080", False),
        ("127.0.0.1", "evil.example:8080", "http://evil.example:8080", True),
        ("127.0.0.1", "localhost:8080", "http://evil.example", True),
        ("127.0.0.1", "localhost:8080", "null", True),
        ("127.0.0.1", "localhost:8080", "http://localhost:8081", True),
        ("0.0.0.0", "lab:8080", "http://lab:8080", False),
        ("0.0.0.0", "lab:8080", "http://evil.example", True),
        ("0.0.0.0", 'lab"><script>', None, True),
        ("0.0.0.0", "", None, True),
    ],
)
def test_only_the_page_itself_is_answered(host: str, asked: str, origin: str | None, refused: bool) -> None:
    assert (refusal(host, asked, origin) is not None) is refused


def test_a_port_in_use_is_an_error(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(UsageError, match="cannot be served"):
            serve(f"127.0.0.1:{port}", [], lambda url: None, lambda text: None)


@pytest.fixture
def page(tmp_path: Path) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    words = ["play", str(tmp_path / "run"), "--name", "ada", "--as", "agent", "--num-tasks", "1", "--serve", str(port)]
    command = [sys.executable, "-m", "sweet", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0


def test_a_dialogue_in_a_browser(page: str, tmp_path: Path) -> None:
    async def play() -> None:
        async with aiohttp.ClientSession() as session:
            async with session.get(page) as answer:
                assert answer.status == 200
                assert "default-src 'self'" in answer.headers["Content-Security-Policy"]
                assert f"{page}static" in await answer.text()
            for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}):
                async with session.get(page, headers=headers) as answer:
                    assert answer.status == 403
            for origin in ({}, {"Origin": "http://evil.example"}):
                with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
                    await session.ws_connect(f"{page}ws", headers=origin)
            async with session.ws_connect(f"{page}ws?width=80&height=24", origin=page.rstrip("/")) as browser:

                async def until(word: bytes) -> None:
                    drawn = b""
                    async with asyncio.timeout(90):
                        while word not in drawn:
                            message = await browser.receive()
                            assert message.type is aiohttp.WSMsgType.BINARY, (message, drawn[-500:])
                            drawn += message.data

                await until(b"your turn")
                await browser.send_str(json.dumps(["stdin", "What is the tax?\x13"]))
                await until(b"turn 2 of")
                await browser.send_str(json.dumps(["stdin", "def f(x): return x\x07"]))
                await until(b"has ended")
                await browser.send_str(json.dumps(["stdin", "n"]))
                async with asyncio.timeout(90):
                    while (await browser.receive()).type is aiohttp.WSMsgType.BINARY:
                        pass

    asyncio.run(play())
    limit = time.monotonic() + 60
    while True:  # the program ends after its page has been closed
        (artifact,) = Run.open(tmp_path / "run").manifest().artifacts
        if artifact.status == "done" or time.monotonic() > limit:
            break
        time.sleep(0.1)
    assert (artifact.rows, artifact.meta["agent"]) == (1, "person:ada")
