"""Measure the processor time of a request to a server.

    python -m benchmarks.requests [--requests 3000] [--concurrency 64] [--rounds 3]      (from the project's folder)

Prints one JSON object: microseconds of CPU (user and system, of this process alone) for each request, the median over
the rounds, whose order alternates. `sweet` is `RemoteClient.chat` with all it does: limits, retries, validation.
`channel` is the request alone (`sweet.llm.http`), `aiohttp` what it is built on, with nothing around it. `openai` is
`chat.completions.create` of the package with its default models over its own aiohttp transport. The server
(tests/rollouts/mock_server.py) is another process; `--token-ids` has it answer with ids and log-probabilities.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import aiohttp
import openai

from sweet.llm.base import Sampling
from sweet.llm.http import Channel, encoded
from sweet.llm.remote import RemoteClient
from sweet.tasks.base import Message
from tests.rollouts.mock_server import AGENT, task_row

SAMPLING = Sampling(max_tokens=256, seed=3)
EXTRA = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0, "return_token_ids": True}
Ask = Callable[[int], Awaitable[object]]


def text(number: int) -> str:
    return f"{task_row(number % 1000)['problem_description']} " * 3


def body(number: int) -> dict[str, Any]:
    asked = {"temperature": 1.0, "top_p": 1.0, "max_tokens": 256, "n": 1, "seed": 3}
    return {"model": AGENT, "messages": [{"role": "user", "content": text(number)}], **asked}


@asynccontextmanager
async def sweet_client(url: str, connections: int) -> Any:
    client = await RemoteClient.open(AGENT, [url], concurrency=connections)
    yield lambda number: client.chat([Message(role="user", content=text(number))], SAMPLING)
    await client.aclose()


@asynccontextmanager
async def channel(url: str, connections: int) -> Any:
    opened = Channel(url, "agent", connections)
    yield lambda number: opened.post("/chat/completions", encoded(body(number) | EXTRA), 1 << 20)
    await opened.aclose()


@asynccontextmanager
async def plain_aiohttp(url: str, connections: int) -> Any:
    async def ask(number: int) -> object:
        async with session.post(f"{url}/chat/completions", json=body(number) | EXTRA) as answer:
            return json.loads(await answer.read())

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=connections)) as session:
        yield ask


@asynccontextmanager
async def openai_client(url: str, _connections: int) -> Any:
    http = openai.DefaultAioHttpClient()
    async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0, http_client=http) as client:
        yield lambda number: client.chat.completions.create(**body(number), extra_body=EXTRA)


CLIENTS: dict[str, Callable[[str, int], Any]] = {
    "sweet": sweet_client,
    "channel": channel,
    "aiohttp": plain_aiohttp,
    "openai": openai_client,
}


@contextmanager
def serving(*options: str) -> Iterator[str]:
    """Start the mock server in a process of its own, and yield its address."""
    command = [sys.executable, "-m", "tests.rollouts.mock_server", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield server.stdout.readline().strip()
        finally:
            server.kill()


def used() -> float:
    """Seconds of CPU of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


async def measure(ask: Ask, requests: int, connections: int) -> float:
    """Return the microseconds of CPU for each request, after some that are not counted."""
    places = asyncio.Semaphore(connections)

    async def one(number: int) -> None:
        async with places:
            await ask(number)

    await asyncio.gather(*map(one, range(2 * connections)))
    before = used()
    await asyncio.gather(*map(one, range(requests)))
    return (used() - before) / requests * 1e6


async def run(url: str, options: argparse.Namespace) -> dict[str, list[float]]:
    results: dict[str, list[float]] = {name: [] for name in CLIENTS}
    for number in range(options.rounds):
        for name in list(CLIENTS)[:: -1 if number % 2 else 1]:
            async with CLIENTS[name](url, options.concurrency) as ask:
                results[name].append(round(await measure(ask, options.requests, options.concurrency)))
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=3000)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--token-ids", action="store_true")
    options = parser.parse_args()
    with serving("--mean", "0.001", *(["--token-ids"] if options.token_ids else [])) as address:
        rounds = asyncio.run(run(f"{address}/v1", options))
    medians = {name: round(statistics.median(values)) for name, values in rounds.items()}
    print(json.dumps({"microseconds": medians, "rounds": rounds, "load": os.getloadavg()}))


if __name__ == "__main__":
    main()
