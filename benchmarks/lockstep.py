"""Play rollouts like the published code, as a baseline: all dialogues of a batch advance in lockstep.

In each turn all agent requests of a batch are sent at once and all answers are awaited; then the human's requests go
through a pool of threads, and all of them are awaited too. The slot of a finished dialogue stays empty until the batch
is complete; then the next batch starts. Nothing is retried and nothing is written.

The client has less overhead than the stage (no validation, no retries, keep-alive connections), so that the benchmark
compares the scheduling alone.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from sweet.tasks.base import Message, Task, chat_rows
from sweet.tasks.kind import TaskKind, opening
from tests.rollouts.mock_server import AGENT, HUMAN

Step = tuple[int, str, int]
"""Turn, role and number of concurrent requests."""

_TIMEOUT = 600.0


async def lockstep(
    address: str, tasks: Sequence[Task], kind: TaskKind, *, batch: int, threads: int, max_turns: int
) -> list[Step]:
    """Play one dialogue per task. Return the steps in order; each step waits for the previous one."""
    steps: list[Step] = []
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(_TIMEOUT)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        with ThreadPoolExecutor(threads) as pool, closing(_Human(address, pool)) as human:
            for start in range(0, len(tasks), batch):
                dialogues = [(task, opening(kind, task)) for task in tasks[start : start + batch]]
                for turn in range(max_turns):
                    last = turn == max_turns - 1
                    steps.append((turn, "agent", len(dialogues)))
                    replies = await asyncio.gather(*(_agent(session, address, said) for _, said in dialogues))
                    unfinished = []
                    for (task, said), reply in zip(dialogues, replies, strict=True):
                        move = kind.move(reply, last=last)
                        said.append(Message(role="assistant", content=move.content))
                        if not (move.ends or last):
                            unfinished.append((task, said))
                    dialogues = unfinished
                    if not dialogues:
                        break
                    steps.append((turn, "human", len(dialogues)))
                    prompts = [kind.human_prompt(task, said[1:]) for task, said in dialogues]
                    answers = await asyncio.gather(*map(human.reply, prompts))
                    for (_, said), answer in zip(dialogues, answers, strict=True):
                        said.append(Message(role="user", content=answer[: kind.human_reply_limit]))
    return steps


def _body(model: str, messages: Sequence[Message]) -> bytes:
    rows = chat_rows(messages)
    return json.dumps({"model": model, "messages": rows, "max_tokens": 1024}).encode()


def _text(answer: Any) -> str:
    text: str = answer["choices"][0]["message"]["content"]
    return text


async def _agent(session: aiohttp.ClientSession, address: str, messages: Sequence[Message]) -> str:
    async with session.post(f"{address}/v1/chat/completions", data=_body(AGENT, messages)) as response:
        response.raise_for_status()
        return _text(json.loads(await response.read()))


class _Human:
    """Sends requests from a pool of threads, each with its own connection."""

    def __init__(self, address: str, pool: ThreadPoolExecutor) -> None:
        self.host, self.pool, self.local = urlsplit(address).netloc, pool, threading.local()
        self.connections: list[http.client.HTTPConnection] = []

    def close(self) -> None:
        for connection in self.connections:
            connection.close()

    async def reply(self, messages: Sequence[Message]) -> str:
        return await asyncio.get_running_loop().run_in_executor(self.pool, self._ask, _body(HUMAN, messages))

    def _ask(self, body: bytes) -> str:
        if not hasattr(self.local, "connection"):
            self.local.connection = http.client.HTTPConnection(self.host, timeout=_TIMEOUT)
            self.connections.append(self.local.connection)
        connection: http.client.HTTPConnection = self.local.connection
        connection.request("POST", "/v1/chat/completions", body)
        response = connection.getresponse()
        answer = json.loads(response.read())
        if response.status != 200:
            raise http.client.HTTPException(f"{response.status}: {answer}")
        return _text(answer)
