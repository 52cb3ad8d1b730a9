"""A mock of an OpenAI-compatible server: agent and simulated human of synthetic code tasks, with drawn latencies.

    python -m tests.rollouts.mock_server --seed 0 --mean 0.2 --sigma 1 [--faults 0.1 --stall 300] [--token-ids]

The latency of an answer and the number of the agent's turns are drawn by a hash of (seed, dialogue, turn, role), so
that the seed determines the whole schedule, which `Draws` computes. The dialogue of a request is identified by the name
of the function in its task (`work_000123`), and the turn by the number of questions (`(question 3)`) in the request.

The server is one asyncio protocol, HTTP/1.1 with keep-alive and without a library: about 0.1 ms per request. Its
statistics show that the server was not the bottleneck, above all `late_ms`: the delay of answers behind the schedule.

Faults: the share `--faults` of the requests, chosen by a hash that includes the attempts of a turn (a retry is drawn
again), fails alternately with 429, 500, 503, a reset connection before any byte, and a stall. A stalled request is
accepted and never answered: after `--stall` seconds (by default 300, far above any latency) the connection is closed.
The responses have no Retry-After: the client's own pauses are measured.

`GET /stats` returns the statistics since the last `GET /reset`. The address is the first line on stdout.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import math
import re
import resource
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Literal

AGENT, HUMAN = "mock-agent", "mock-human"
FAULTS = ("429", "500", "503", "reset", "stall")
MAX_TURNS = 9

Role = Literal["agent", "human"]

_NORMAL = NormalDist()
_DIALOGUE = re.compile(rb"work_(\d{6})")
_QUESTION = re.compile(rb"\(question \d+\)")
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)", re.IGNORECASE)
_MODEL = re.compile(rb'"model":\s*"(mock-agent|mock-human)"')
_REASONS = {200: "OK", 404: "Not Found", 429: "Too Many Requests", 500: "Internal Server Error"}
_REASONS |= {400: "Bad Request", 503: "Service Unavailable"}

_CODE = """\
def work_{number:06d}(records, limit=10, *, strict=False):
    totals = {{}}
    for position, record in enumerate(records):
        name, amount = record["name"].strip().lower(), record.get("amount", 0)
        if strict and amount < 0:
            raise ValueError(f"record {{position}} has a negative amount")
        totals[name] = totals.get(name, 0) + max(amount, 0)
    ranked = sorted(totals.items(), key=lambda item: (-item[1], item[0]))
    return [name for name, total in ranked[:limit] if total > {number}]
"""


@dataclass(frozen=True)
class Draws:
    """The schedule of a seed: log-normal latencies in seconds with this mean, and lengths of dialogues in turns."""

    seed: int = 0
    mean: float = 0.2
    sigma: float = 1.0

    def share(self, *name: object) -> float:
        """Return a number in the open interval (0, 1) that depends on seed and name only."""
        text = "\0".join(map(str, (self.seed, *name)))
        drawn = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
        return ((drawn >> 12) + 0.5) / 2**52

    def latency(self, dialogue: int, turn: int, role: Role) -> float:
        exponent = _NORMAL.inv_cdf(self.share("latency", dialogue, turn, role))
        return self.mean * math.exp(self.sigma * exponent - self.sigma**2 / 2)

    def turns(self, dialogue: int) -> int:
        """Return the number of the agent's turns; it delivers in the last one."""
        return 1 + int(self.share("turns", dialogue) * MAX_TURNS)

    def requests(self, dialogue: int) -> Iterator[tuple[int, Role]]:
        """Yield turn and role of every request of a dialogue in order; the last turn has no reply of the human."""
        for turn in range(self.turns(dialogue)):
            if turn:
                yield turn - 1, "human"
            yield turn, "agent"

    def total(self, dialogue: int) -> float:
        return sum(self.latency(dialogue, turn, role) for turn, role in self.requests(dialogue))


def task_row(number: int) -> dict[str, Any]:
    """Return a code task in ColBench's schema and of similar size."""
    return {
        "id": f"mock-{number:06d}",
        "problem_description": f"I need a function work_{number:06d}(records, limit=10, *, strict=False) that ranks "
        "the people in a list of records by what they have spent. Each record is a dictionary that comes out of an "
        "older system, so it may not be clean. It should give me the names of those that matter.",
        "ground_truth": _CODE.format(number=number),
        "test_cases": {
            f"test{case}": f'work_{number:06d}([{{"name": " A{case}", "amount": {case * 7}}}, {{"name": "b"}}], {case})'
            for case in range(1, 11)
        },
    }


def said(dialogue: int, turn: int, role: Role, turns: int) -> str:
    """Return the text of agent or human in a turn of a dialogue with this many turns."""
    if role == "human":
        return (
            f"For point {turn + 1} of that: take the value as it stands, without rounding, and when it is missing "
            "count it as zero. Names are to be compared without regard to case or spaces around them."
        )
    if turn < turns - 1:
        return (
            f"(question {turn + 1}) Before I write work_{dialogue:06d}, one detail: what should happen with records "
            "whose amount is missing or negative, and does their order in the list matter for the ranking?"
        )
    return f"I WANT TO ANSWER:\n```python\n{_CODE.format(number=dialogue)}```"


def _answer(text: str, model: str, prompt_bytes: int, token_ids: bool) -> bytes:
    """Return the body of a chat completion, with one token per 4 bytes."""
    tokens, prompt_tokens = max(len(text) // 4, 1), max(prompt_bytes // 4, 1)
    choice: dict[str, Any] = {
        "index": 0,
        "message": {"role": "assistant", "content": text},
        "finish_reason": "stop",
        "logprobs": None,
    }
    body: dict[str, Any] = {
        "id": "chatcmpl-mock",
        "object": "chat.completion",
        "created": 1700000000,
        "model": model,
        "choices": [choice],
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": tokens,
            "total_tokens": prompt_tokens + tokens,
        },
    }
    if token_ids:
        choice["token_ids"] = [(index * 7919) % 128_000 for index in range(tokens)]
        choice["logprobs"] = {
            "content": [
                {"token": text[at : at + 4], "logprob": -0.25, "bytes": [97, 98, 99, 100], "top_logprobs": []}
                for at in range(0, tokens * 4, 4)
            ]
        }
        body["prompt_token_ids"] = [(index * 104_729) % 128_000 for index in range(prompt_tokens)]
    return json.dumps(body, separators=(",", ":")).encode()


def _response(status: int, body: bytes) -> bytes:
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class Mock:
    """The shared state of all connections: settings, attempts, statistics."""

    def __init__(self, draws: Draws, faults: float = 0.0, stall: float = 300.0, token_ids: bool = False) -> None:
        self.draws, self.faults, self.stall, self.token_ids = draws, faults, stall, token_ids
        self.loop = asyncio.get_running_loop()
        self.connections: set[Connection] = set()
        self.reset()

    def reset(self) -> None:
        """Reset statistics and attempts; open requests stay counted."""
        self.attempts: dict[tuple[int, int, Role], int] = {}
        self.chats = {"agent": 0, "human": 0}
        self.failed = dict.fromkeys(FAULTS, 0)
        self.answered = self.abandoned = self.under_way = 0
        self.peak_under_way = self.peak_connections = 0
        self.first: float | None = None
        self.last: float | None = None
        self.late: list[float] = []
        self.cpu = time.process_time()

    def stats(self) -> dict[str, Any]:
        """Return the statistics. Times are of time.monotonic(), which all processes of a machine share."""
        late = sorted(self.late) or [0.0]
        return {
            "requests": sum(self.chats.values()),
            **self.chats,
            "answered": self.answered,
            "abandoned": self.abandoned,
            "faults": self.failed,
            "peak_under_way": self.peak_under_way,
            "peak_connections": self.peak_connections,
            "first_request": self.first,
            "last_answer": self.last,
            "late_ms": {
                "median": round(1000 * late[len(late) // 2], 2),
                "p99": round(1000 * late[len(late) * 99 // 100], 2),
                "max": round(1000 * late[-1], 2),
            },
            "server_cpu_s": round(time.process_time() - self.cpu, 3),
        }

    def fault(self, key: tuple[int, int, Role]) -> str | None:
        """Return the fault of this attempt of a turn; None if it succeeds."""
        attempt = self.attempts[key] = self.attempts.get(key, 0) + 1
        if self.faults <= 0 or self.draws.share("fault", *key, attempt) >= self.faults:
            return None
        kind = FAULTS[sum(self.failed.values()) % len(FAULTS)]
        self.failed[kind] += 1
        return kind

    def start(self, role: Role, now: float) -> None:
        self.first = now if self.first is None else self.first
        self.chats[role] += 1
        self.under_way += 1
        self.peak_under_way = max(self.peak_under_way, self.under_way)


class Connection(asyncio.Protocol):
    """A client's connection, with one request at a time, as in HTTP/1.1 without pipelining."""

    def __init__(self, mock: Mock) -> None:
        self.mock = mock
        self.received = b""
        self.timer: asyncio.TimerHandle | None = None
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.mock.connections.add(self)
        self.mock.peak_connections = max(self.mock.peak_connections, len(self.mock.connections))

    def connection_lost(self, exc: Exception | None) -> None:
        self.mock.connections.discard(self)
        if self.timer is not None:  # the client did not wait for the answer
            self.timer.cancel()
            self.timer = None
            self.mock.abandoned += 1
            self.mock.under_way -= 1

    def data_received(self, data: bytes) -> None:
        self.received += data
        end = self.received.find(b"\r\n\r\n")
        if end < 0:
            return
        length = _LENGTH.search(self.received, 0, end)
        whole = end + 4 + (int(length[1]) if length else 0)
        if len(self.received) < whole:
            return
        line = self.received[: self.received.find(b"\r\n")]
        body, self.received = self.received[end + 4 : whole], self.received[whole:]
        method, path, _ = line.split(b" ", 2)
        if method == b"POST" and path == b"/v1/chat/completions":
            self.chat(body)
        else:
            self.other(path)

    def other(self, path: bytes) -> None:
        mock = self.mock
        if path == b"/v1/models":
            content: Any = {"object": "list", "data": [{"id": name, "object": "model"} for name in (AGENT, HUMAN)]}
        elif path == b"/stats":
            content = mock.stats()
        elif path == b"/reset":
            mock.reset()
            content = {}
        else:
            self.fail(404, "no such path")
            return
        self.transport.write(_response(200, json.dumps(content).encode()))

    def chat(self, body: bytes) -> None:
        mock, now = self.mock, time.monotonic()
        model, named = _MODEL.search(body), _DIALOGUE.search(body)
        if model is None or named is None:
            self.fail(400, "the model is unknown, or the messages name no task of the benchmark")
            return
        role: Role = "agent" if model[1] == AGENT.encode() else "human"
        questions = len(_QUESTION.findall(body))
        dialogue, turn = int(named[1]), questions if role == "agent" else questions - 1
        mock.start(role, now)
        fault = mock.fault((dialogue, turn, role))
        if fault == "reset":
            mock.under_way -= 1
            self.abort()
        elif fault == "stall":
            self.timer = mock.loop.call_later(mock.stall, self.close)
        else:
            wait = mock.draws.latency(dialogue, turn, role) if fault is None else 0.0
            reply = _failure(int(fault)) if fault else self.answer(role, dialogue, turn, len(body))
            self.timer = mock.loop.call_at(mock.loop.time() + wait, self.send, now + wait, reply)

    def answer(self, role: Role, dialogue: int, turn: int, prompt_bytes: int) -> bytes:
        text = said(dialogue, turn, role, self.mock.draws.turns(dialogue))
        model = AGENT if role == "agent" else HUMAN
        return _response(200, _answer(text, model, prompt_bytes, self.mock.token_ids))

    def send(self, due: float, reply: bytes) -> None:
        self.timer = None
        mock, now = self.mock, time.monotonic()
        self.transport.write(reply)
        mock.late.append(now - due)
        mock.last = now
        mock.answered += 1
        mock.under_way -= 1

    def close(self) -> None:
        self.timer = None
        self.mock.under_way -= 1
        self.transport.close()

    def abort(self) -> None:
        """Close the connection with a TCP reset instead of a regular end."""
        sock = self.transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def fail(self, status: int, why: str) -> None:
        self.transport.write(_failure(status, why))


def _failure(status: int, why: str = "a fault of the benchmark") -> bytes:
    return _response(status, json.dumps({"error": {"message": why, "type": "mock", "code": status}}).encode())


async def serve(mock: Mock, port: int = 0) -> tuple[asyncio.Server, str]:
    """Listen on loopback. Return the server and its address without /v1."""
    server = await mock.loop.create_server(lambda: Connection(mock), "127.0.0.1", port, backlog=4096)
    return server, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def raise_open_files() -> int:
    """Raise the limit of open files to its maximum and return it."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most


async def run(options: argparse.Namespace) -> None:
    draws = Draws(options.seed, options.mean, options.sigma)
    mock = Mock(draws, options.faults, options.stall, options.token_ids)
    server, address = await serve(mock, options.port)
    print(address, flush=True)
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mean", type=float, default=0.2, help="seconds")
    parser.add_argument("--sigma", type=float, default=1.0)
    parser.add_argument("--faults", type=float, default=0.0, help="share of the requests")
    parser.add_argument("--stall", type=float, default=300.0, help="seconds")
    parser.add_argument("--token-ids", action="store_true", help="answer with token ids and log-probabilities, as vLLM")
    options = parser.parse_args()
    raise_open_files()
    asyncio.run(run(options))


if __name__ == "__main__":
    main()
