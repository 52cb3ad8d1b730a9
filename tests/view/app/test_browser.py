"""`sweet play --serve` and `sweet view --serve`: a real server, and a client that sends what a browser sends."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from textual.pilot import Pilot

from sweet.errors import UsageError
from sweet.runs.run import Run
from sweet.view.app.browser import parse_address, serve
from sweet.view.app.viewer_app import ViewerApp
from sweet.view.viewer import ViewConfig
from tests import programs
from tests.view.app.conftest import played, seen

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


def test_a_port_in_use_is_an_error(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(UsageError, match="cannot be listened on"):
            serve("127.0.0.1", port, ["play"], lambda url: None)


@dataclass
class Terminal:
    """The terminal of the application, as the page in a browser sees it."""

    connection: aiohttp.ClientWebSocketResponse

    async def until(self, word: bytes) -> None:
        """Read what is drawn until this is."""
        drawn = b""
        async with asyncio.timeout(90):
            while word not in drawn:
                message = await self.connection.receive()
                assert message.type is aiohttp.WSMsgType.BINARY, (message, drawn[-500:])
                drawn += message.data

    async def keys(self, text: str) -> None:
        await self.connection.send_str(json.dumps(["stdin", text]))

    async def end(self) -> None:
        """Read to the end of the application."""
        async with asyncio.timeout(90):
            while (await self.connection.receive()).type is aiohttp.WSMsgType.BINARY:
                pass


@pytest.fixture
def page(tmp_path: Path) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    words = [
        "play",
        str(tmp_path / "run"),
        "--name",
        "ada",
        "--as",
        "agent",
        "--num-tasks",
        "1",
        "--serve-at",
        str(port),
    ]
    with programs.start([*programs.SWEET, *words], stdout=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.send_signal(signal.SIGINT)
        assert process.wait(90) == 0


def test_a_dialogue_in_a_browser(page: str, tmp_path: Path) -> None:
    origin = page[: page.rindex("/", 0, -1)]
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{32}/", page), page

    async def play() -> None:
        async with aiohttp.ClientSession() as session:
            async with session.get(page) as answer:
                assert answer.status == 200
                assert "default-src 'self'" in answer.headers["Content-Security-Policy"]
                assert f"{page}static" in await answer.text()
            async with session.get(f"{origin}/") as answer:
                assert (answer.status, "token" in await answer.text()) == (403, True)
            for headers in ({}, {"Origin": "http://evil.example"}):
                with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
                    await session.ws_connect(f"{page}ws", headers=headers)
            async with session.ws_connect(f"{page}ws?width=80&height=24", origin=origin) as connection:
                terminal = Terminal(connection)
                await terminal.until(b"your turn")
                await terminal.keys("What is the tax?\x13")
                await terminal.until(b"turn 2 of")
                await terminal.keys("def f(x): return x\x07")
                await terminal.until(b"has ended")
                await terminal.keys("n")
                await terminal.end()

    asyncio.run(play())
    limit = time.monotonic() + 60
    while True:  # the program ends after its page has been closed
        (artifact,) = Run.open(tmp_path / "run").manifest().artifacts
        if artifact.status == "done" or time.monotonic() > limit:
            break
        time.sleep(0.1)
    assert (artifact.rows, artifact.meta["agent"]) == (1, "person:ada")


@pytest.fixture
def viewed(run: Run) -> Iterator[str]:
    with programs.start([*programs.SWEET, "view", run.path, "--serve"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.send_signal(signal.SIGINT)
        assert process.wait(90) == 0


def test_dialogues_in_a_browser_by_who_has_the_token(viewed: str, run: Run) -> None:
    found = re.fullmatch(r"(http://127\.0\.0\.1:\d+)/([\w-]{32})/", viewed)
    assert found is not None, viewed
    origin, token = found.groups()
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}

    async def view() -> None:
        async with aiohttp.ClientSession() as session:
            async with session.get(viewed) as answer:
                assert answer.status == 200
                assert answer.headers["Referrer-Policy"] == "no-referrer"
                assert f"{viewed}static" in await answer.text()
            async with session.get(f"{viewed}static/js/textual.js") as answer:
                assert answer.status == 200
            wrong = ("/", "/ws", "/static/js/textual.js", f"/{token[:-1]}/", f"/{token}x/", f"/?{token}", "//")
            for path in wrong:
                async with session.get(f"{origin}{path}") as answer:
                    assert answer.status == 403, path
            for status, headers in ((421, {"Host": "evil.example"}), (403, {"Origin": "http://evil.example"})):
                async with session.get(viewed, headers=headers) as answer:
                    assert answer.status == status
            for address in (f"{origin}/ws", f"{origin}/{'x' * 32}/ws"):
                with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
                    await session.ws_connect(address, origin=origin)
            with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
                await session.ws_connect(f"{viewed}ws")
            async with session.ws_connect(f"{viewed}ws?width=80&height=24", origin=origin) as connection:
                terminal = Terminal(connection)
                await terminal.until(b"t005")
                await terminal.keys("\x1a?")
                await terminal.until(b"next failure")
                await terminal.keys("q\r")
                await terminal.until(b"1 of 6")
                await terminal.keys("qq")
                await terminal.end()

    asyncio.run(view())
    after = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    changed = {path.name for path in after if after[path] != before.get(path)} | {p.name for p in before.keys() - after}
    assert not {name for name in changed if not name.endswith(".lock")}, changed


def test_the_processes_of_a_served_run_do_not_have_the_token_in_their_command_lines(viewed: str) -> None:
    token = viewed.rstrip("/").rpartition("/")[2]
    lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.stat().st_uid == os.getuid()]
    assert not [line for line in lines if token.encode() in line]


def test_what_a_browser_may_not_ask_for(run: Run) -> None:
    async def script(pilot: Pilot[Any]) -> None:
        await pilot.press("question_mark")
        assert "to the shell" not in seen(pilot.app)

    played(ViewerApp(run, ViewConfig(), served=True), script, (80, 50))


@pytest.mark.parametrize("fields", [{"serve": True, "html": "x.html"}, {"port": 8080}, {"serve": True, "id": "t001"}])
def test_options_that_do_not_go_with_a_server(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="--serve"):
        ViewConfig.model_validate(fields)
