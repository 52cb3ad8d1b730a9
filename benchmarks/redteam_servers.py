"""The process that benchmarks/redteam.py measures for hostile servers, and for hostile clients of a server of ours.

Reads a request as JSON ({"name", "steps"}) and prints one JSON line for each step: `client` connects and asks once,
`rollout` plays two dialogues with the server as the agent. Both must end, with an error that the program declares or
with a result; what the command line shows of the error is short and has no control characters; neither the
error nor a file of the run contains the API key; and the dialogue reaches no other host.

Each step of `clients` sends what a hostile client sends (`ATTACKS`), on many connections, to a server of the packaged
model in this process. Meanwhile a small request is answered again and again; none may fail or wait for `PATIENCE`
seconds, every hostile connection must be closed in the end, and no answer but those that are expected may come.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import re
import resource
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.hostile_server import KEY, MODEL
from benchmarks.redteam_answers import ADDRESS_SPACE, measured
from sweet.cli.console import safe_text
from sweet.errors import SweetError
from sweet.llm.base import ContextOverflow, RequestFailed, Sampling
from sweet.llm.connect import open_client
from sweet.llm.embedded import EmbeddedClient
from sweet.llm.listening import listening
from sweet.llm.server import make_app
from sweet.rollouts.config import RolloutConfig
from sweet.rollouts.stage import run_rollout
from sweet.runs.run import Run
from sweet.serving import Limits
from sweet.stages.base import Silent
from sweet.tasks.base import Message

STEPS = ("client", "rollout")
SECONDS = 5.0
"""Time limit of a request or a dialogue, and of retries."""
PATIENCE = 3.0
"""Seconds that a small request may take beside a hostile client."""
LIMITS = Limits(head_seconds=1.0, body_seconds=1.0, idle_seconds=1.0)
MOST_SHOWN = 4_000
"""Characters of an error message."""


def request(head: str, body: str = "", kind: str = "application/json", host: str = "localhost") -> bytes:
    """Return a request whose `head` has the first line, and perhaps headers; the length is that of the body."""
    lines = [head, f"Host: {host}", *([f"Content-Type: {kind}"] if kind else [])]
    if "Transfer-Encoding" not in head and "Content-Length" not in head:
        lines.append(f"Content-Length: {len(body)}")
    return ("\r\n".join([*lines, "", ""]) + body).encode("latin-1")


def chat(messages: list[dict[str, Any]], **more: Any) -> bytes:
    return request(POST, json.dumps({"model": "micro", "max_tokens": 2, "messages": messages, **more}))


def said(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


POST = "POST /v1/chat/completions HTTP/1.1"
GET = "GET /v1/models HTTP/1.1"
CHUNKED = f"{POST}\r\nTransfer-Encoding: chunked"
ATTACKS: dict[str, tuple[Callable[[], bytes], int, set[int]]] = {
    "rebinding": (lambda: request(GET, host="evil.example"), 20, {421}),
    "rebinding-a-name-like-ours": (lambda: request(GET, host="localhost.evil.example"), 20, {421}),
    "another-site": (lambda: request(f"{GET}\r\nOrigin: http://evil.example"), 20, {403}),
    "sandboxed-site": (lambda: request(f"{GET}\r\nOrigin: null"), 20, {403}),
    "form": (lambda: request(POST, "{}", "application/x-www-form-urlencoded"), 20, {415}),
    "text-plain": (lambda: request(POST, "{}", "text/plain"), 20, {415}),
    "no-type": (lambda: request(POST, "{}", ""), 20, {415}),
    "websocket": (lambda: request(f"{GET}\r\nConnection: Upgrade\r\nUpgrade: websocket"), 20, {403}),
    "silent": (lambda: b"", 400, set()),
    "half-heads": (lambda: request(GET)[:-2], 400, {408}),
    "half-bodies": (lambda: request(f"{POST}\r\nContent-Length: 1000", "{"), 400, {408}),
    "chunks-without-end": (lambda: request(CHUNKED, "1\r\n{\r\n"), 400, {408}),
    "large-message": (lambda: chat([said("What is the rate? " * 600_000)]), 2, {408, 413}),
    "message-of-the-largest-body": (lambda: chat([said("What is the rate? " * 100_000)]), 4, {400, 413}),
    "message-of-one-word": (lambda: chat([said("a1" * 60_000)]), 4, {400}),
    "many-messages": (lambda: chat([said("What is the rate?")] * 4_096), 4, {400}),
    "too-many-messages": (lambda: chat([said("")] * 5_000), 4, {400}),
    "no-messages": (
        lambda: request(POST, f'{{"model": "micro", "messages": [{",".join(["{}"] * 1_300_000)}]}}'),
        2,
        {400},
    ),
    "fields": (lambda: request(POST, json.dumps({f"k{i}": 1 for i in range(300_000)})), 2, {400}),
    "deep": (lambda: request(POST, "[" * 4_000_000), 2, {400}),
    "headers": (lambda: request(GET + "".join(f"\r\nX{i}: {'x' * 4_000}" for i in range(100))), 20, {400, 431}),
    "two-lengths": (lambda: request(f"{CHUNKED}\r\nContent-Length: 5", f"0\r\n\r\n{request(GET).decode()}"), 20, {400}),
    "chunked-in-1.0": (lambda: request(CHUNKED.replace("1.1", "1.0"), f"0\r\n\r\n{request(GET).decode()}"), 20, {400}),
    "lengths-that-differ": (lambda: request(f"{POST}\r\nContent-Length: 2\r\nContent-Length: 9", "{}"), 20, {400}),
    "negative-length": (lambda: request(f"{POST}\r\nContent-Length: -1", "{}"), 20, {400}),
    "garbage": (lambda: os.urandom(50_000).replace(b"\n", b"") + b"\r\n\r\n", 100, {400}),
    "pipelined-garbage": (lambda: request(GET) * 50 + b"no request\r\n\r\n", 20, {200, 400}),
    "methods": (
        lambda: b"".join(request(GET.replace("GET", name)) for name in ("OPTIONS", "TRACE", "PUT", "X")),
        20,
        {405, 415},
    ),
}
"""What a connection sends, on how many, and the statuses that it may get."""


async def attack(name: str, client: EmbeddedClient) -> list[str]:
    """Attack a server of `client`; return what is wrong."""
    write, connections, expected = ATTACKS[name]
    sent = write()
    found: list[str] = []
    small = chat([said("What is the rate?")])
    small = small.replace(b"\r\nHost:", b"\r\nConnection: close\r\nHost:", 1)
    async with listening(make_app(client), "127.0.0.1", 0, limits=LIMITS) as url:
        port = int(url.split(":")[2].removesuffix("/v1"))

        async def ask(data: bytes) -> list[int]:
            received = b""
            with contextlib.suppress(ConnectionError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                with contextlib.closing(writer):
                    writer.write(data)
                    while part := await reader.read(1 << 16):
                        received += part
            return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", received)]

        hostile = [asyncio.create_task(ask(sent)) for _ in range(connections)]
        while not all(task.done() for task in hostile):
            began = time.monotonic()
            statuses = await ask(small)
            if (waited := time.monotonic() - began) > PATIENCE or statuses != [200]:
                found.append(f"a small request waited {waited:.1f} s and got {statuses}")
            await asyncio.sleep(0.02)
        if strange := {status for task in hostile for status in task.result()} - expected:
            found.append(f"the hostile client got {sorted(strange)}")
    return found


def main() -> None:
    spec: dict[str, Any] = json.load(sys.stdin)
    if spec["name"] == "clients":
        model = EmbeddedClient.load("micro", device="cpu")
        for step in spec["steps"]:
            case = measured(functools.partial(lambda name: asyncio.run(attack(name, model)), step))
            print(json.dumps({"step": step, **case}), flush=True)
        asyncio.run(model.aclose())
        return
    os.environ["SWEET_AGENT_API_KEY"] = KEY
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    works = {"client": client, "rollout": rollout}
    with serving("honest") as (url, _):
        for step in spec["steps"]:
            if faults := works[step](url):
                raise SystemExit(f"an honest server: {faults}")
    with serving(spec["name"]) as (url, leaked):
        for step in spec["steps"]:

            def work(step: str = step) -> list[str]:
                return works[step](url) + ["a dialogue or the key reached another host"] * leaked()

            print(json.dumps({"step": step, **measured(work)}), flush=True)


@contextmanager
def serving(name: str) -> Iterator[tuple[str, Callable[[], bool]]]:
    """Start a hostile server in a process of its own; yield its address, and whether it says `leaked`."""
    command = [sys.executable, "-m", "benchmarks.hostile_server", name]
    with tempfile.TemporaryFile() as errors:
        server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
        with server:
            if server.stdout is None:
                raise RuntimeError("the server has no pipe")
            pipe = server.stdout.fileno()
            address = server.stdout.readline().decode().strip()
            try:
                yield address, lambda: bool(select.select([pipe], [], [], 0)[0])
            finally:
                server.kill()


def client(url: str) -> list[str]:
    """Connect and ask once."""

    async def ask() -> None:
        async with open_client(MODEL, [url], retry_timeout=SECONDS, request_timeout=SECONDS) as opened:
            await opened.chat([Message(role="user", content="What is the rate?")], Sampling(max_tokens=100))

    try:
        asyncio.run(ask())
    except (SweetError, RequestFailed, ContextOverflow) as error:
        return faults_of(str(error))
    except Exception as error:
        return [f"ended with {type(error).__name__}: {str(error)[:200]}"]
    return []


def rollout(url: str) -> list[str]:
    """Play two dialogues, and look at the files too."""
    with tempfile.TemporaryDirectory(prefix="redteam-") as folder:
        config = RolloutConfig(
            agent=MODEL,
            agent_url=[url],
            sim="scripted",
            tasks="micro",
            split="test",
            num_tasks=2,
            deadline=SECONDS,
            retry_timeout=SECONDS,
            request_timeout=SECONDS,
            fail_on_error=3,
        )
        found = []
        try:
            run_rollout(Run.create(Path(folder, "run"), "code"), config, Silent())
        except SweetError as error:
            found = faults_of(str(error))
        except Exception as error:
            found = [f"ended with {type(error).__name__}: {str(error)[:200]}"]
        for path in sorted(Path(folder).rglob("*")):
            if path.is_file() and KEY.encode() in path.read_bytes():
                found.append(f"the key is in {path.relative_to(folder)}")
    return found


def faults_of(message: str) -> list[str]:
    """Return what is wrong with the message of an error, or with what the command line shows of it."""
    found, shown = [], safe_text(message).plain
    if len(message) > MOST_SHOWN:
        found.append(f"a message of {len(message)} characters")
    if strange := sorted({ascii(each) for each in shown if each != "\n" and not each.isprintable()}):
        found.append(f"a message with {', '.join(strange)}")
    if KEY in message:
        found.append("the key is in the message")
    return found


if __name__ == "__main__":
    main()
