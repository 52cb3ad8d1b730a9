"""The mock server with known latencies that tests of rollouts ask: its draws, its faults, and what it counts."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from sweet.rollouts.config import RolloutConfig
from sweet.rollouts.stage import run_rollout
from sweet.runs.jsonl import read_jsonl
from sweet.runs.run import Run
from sweet.stages.base import Silent
from sweet.tasks.trajectory import Trajectory
from tests.rollouts.mock_server import AGENT, FAULTS, HUMAN, Draws, Mock, Role, serve, task_row

QUICK = Draws(seed=3, mean=0.001)


@contextmanager
def serving(
    draws: Draws, faults: float = 0.0, stall: float = 300.0, token_ids: bool = False
) -> Iterator[tuple[str, Mock]]:
    """Run the mock in a thread and yield its address and the mock."""
    ready: list[tuple[str, Mock, asyncio.Event, asyncio.AbstractEventLoop]] = []
    up = threading.Event()

    async def run() -> None:
        mock, end = Mock(draws, faults, stall, token_ids), asyncio.Event()
        server, address = await serve(mock)
        ready.append((address, mock, end, asyncio.get_running_loop()))
        up.set()
        await end.wait()
        server.close()
        for connection in list(mock.connections):
            connection.transport.abort()
        await asyncio.sleep(0)
        await server.wait_closed()

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    try:
        assert up.wait(10)
        address, mock, end, loop = ready[0]
        yield address, mock
        loop.call_soon_threadsafe(end.set)
    finally:
        thread.join(10)
    assert not thread.is_alive()


def tasks_file(folder: Path, count: int) -> str:
    path = folder / "tasks.jsonl"
    path.write_text("".join(json.dumps(task_row(number)) + "\n" for number in range(count)))
    return str(path)


def config(address: str, tasks: str) -> RolloutConfig:
    url = [f"{address}/v1"]
    servers = {"agent": AGENT, "agent_url": url, "sim": HUMAN, "sim_url": url}
    return RolloutConfig.model_validate(servers | {"tasks": tasks, "retry_timeout": 0})


def ask(address: str, model: str = AGENT, text: str = "work_000001") -> tuple[int, bytes]:
    """Return status and body of one chat."""
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=30)
    try:
        body = json.dumps({"model": model, "messages": [{"role": "user", "content": text}]})
        connection.request("POST", "/v1/chat/completions", body)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def until(done: Callable[[], bool]) -> None:
    ends = time.monotonic() + 30
    while not done():
        assert time.monotonic() < ends
        time.sleep(0.005)


def test_a_seed_gives_the_same_schedule_again_and_another_seed_another() -> None:
    def schedule(draws: Draws) -> list[tuple[int, float]]:
        return [(draws.turns(number), draws.total(number)) for number in range(50)]

    assert schedule(Draws(1)) == schedule(Draws(1))
    assert schedule(Draws(1)) != schedule(Draws(2))
    assert round(Draws(0).latency(0, 0, "agent"), 6) == 0.018872, "results of different days are compared"


def test_draws_follow_their_distributions() -> None:
    draws = Draws(seed=5)
    latencies = [draws.latency(number, 0, "human") for number in range(20_000)]
    assert statistics.fmean(latencies) == pytest.approx(0.2, rel=0.05)
    assert statistics.median(latencies) == pytest.approx(0.2 * 2.718281828**-0.5, rel=0.05)
    turns = Counter(draws.turns(number) for number in range(9_000))
    assert sorted(turns) == list(range(1, 10))
    assert all(count == pytest.approx(1_000, rel=0.15) for count in turns.values())


def test_a_dialogue_is_agent_and_human_in_turn_and_the_agent_has_the_last_word() -> None:
    for number in range(30):
        steps = list(QUICK.requests(number))
        turns = QUICK.turns(number)
        roles: list[Role] = ["agent", "human"]
        assert steps == [(turn, role) for turn in range(turns) for role in roles][:-1]
        assert QUICK.total(number) == pytest.approx(sum(QUICK.latency(number, turn, role) for turn, role in steps))


def test_the_stage_plays_what_was_drawn(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", "code")
    with serving(QUICK, token_ids=True) as (address, mock):
        result = run_rollout(run, config(address, tasks_file(tmp_path, 12)), Silent())
        stats = mock.stats()
    rows = list(read_jsonl(run.file(result.artifacts[0]), Trajectory))
    turns = {int(row.task_id.removeprefix("mock-")): len(row.agent_turns) for row in rows}
    assert turns == {number: QUICK.turns(number) for number in range(12)}
    assert result.metrics.outcomes == {"answered": 12}
    assert stats["agent"] == result.metrics.turns
    assert stats["human"] == result.metrics.turns - 12
    assert stats["answered"] == stats["requests"]
    said = rows[0].dialogue_history[1]
    assert said.token_ids is not None
    assert len(said.token_ids) == len(said.content) // 4


def test_faults_alternate_and_a_retry_is_drawn_again() -> None:
    with serving(QUICK, faults=1.0, stall=0.05) as (address, mock):
        statuses = [ask(address)[0] for _ in range(3)]
        with pytest.raises(ConnectionResetError) as reset:
            ask(address)
        assert not isinstance(reset.value, http.client.RemoteDisconnected), "a reset, not a regular end"
        with pytest.raises(http.client.RemoteDisconnected):
            ask(address)
        stats = mock.stats()
    assert statuses == [429, 500, 503]
    assert stats["faults"] == dict.fromkeys(FAULTS, 1)
    assert stats["answered"] == 3

    draws = Draws(seed=3, mean=0.001)
    tries = [draws.share("fault", 1, 0, "agent", attempt) < 0.5 for attempt in range(1, 9)]
    with serving(draws, faults=0.5) as (address, mock):
        for failed in tries:
            mock.failed = dict.fromkeys(FAULTS, 0)  # whichever fails, fails by the first status
            assert ask(address)[0] == (429 if failed else 200)
    assert len(set(tries)) == 2


def test_what_is_no_request_of_the_benchmark_is_refused() -> None:
    with serving(QUICK) as (address, mock):
        assert ask(address, text="no task")[0] == 400
        assert ask(address, model="other")[0] == 400
        assert mock.stats()["requests"] == 0


def test_a_client_that_leaves_is_counted_and_not_answered() -> None:
    with serving(Draws(mean=1e6)) as (address, mock):
        place = urlsplit(address)
        assert place.hostname is not None
        with socket.create_connection((place.hostname, place.port or 0)) as client:
            body = json.dumps({"model": AGENT, "messages": "work_000001"}).encode()
            client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            until(lambda: mock.under_way == 1)
        until(lambda: mock.abandoned == 1)
        assert mock.under_way == 0
