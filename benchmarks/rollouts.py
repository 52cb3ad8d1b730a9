"""Measure rollouts with a model as the human, at 200 dialogues at once, against a server with known latencies.

    python -m benchmarks.rollouts [--dialogues 400] [--concurrency 200] [--rounds 3]     (from the project's folder)

Prints one JSON object: medians over the rounds; round r draws the latencies by the seed r.

bound_s     no client is faster, in whatever order it plays: the longest dialogue's latencies, or the sum of all over
            the concurrency.
ordered_s   the time of a client without any overhead that plays the tasks in their order.
sweet_s     `run_rollout`, from the call to its return: tasks are read and checked, dialogues searched for leaks,
            recorded and counted. `before_s` is its time until the first request.
lockstep_s  the published scheduling: all dialogues of a batch take their turns together, the human's requests go
            through a pool of 32 threads, and the next batch waits for the longest dialogue of the last. It checks,
            retries and writes nothing, so that the schedules are compared.
late_ms     delay of the server's answers behind their schedule: if it is not small, the machine was busy.

The server (tests/rollouts/mock_server.py) is a process of its own, and so is each client, which has imported all it
needs by one short dialogue before its time begins.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from benchmarks.requests import serving, used
from sweet.rollouts.config import RolloutConfig
from sweet.rollouts.stage import run_rollout
from sweet.runs.run import Run
from sweet.stages.base import Silent
from sweet.tasks.base import Message, chat_rows
from sweet.tasks.kind import opening
from sweet.tasks.registry import task_kind
from tests.rollouts.mock_server import AGENT, HUMAN, Draws, raise_open_files, task_row

Metrics = dict[str, Any]
THREADS, MAX_TURNS, SECONDS = 32, 10, 600.0


def bound(draws: Draws, dialogues: int, concurrency: int) -> float:
    totals = [draws.total(number) for number in range(dialogues)]
    return max(*totals, sum(totals) / concurrency)


def ordered(draws: Draws, dialogues: int, concurrency: int) -> float:
    free = [0.0] * concurrency
    for number in range(dialogues):
        heapq.heapreplace(free, free[0] + draws.total(number))
    return max(free)


def statistics_of(address: str, path: str = "/stats") -> Any:
    with urllib.request.urlopen(address + path, timeout=30) as answer:  # an address of this machine
        return json.load(answer)


# The clients ------------------------------------------------------------------------------------------------------


def play(address: str, tasks: Path, run: Path, concurrency: int) -> None:
    urls: Any = {"agent": AGENT, "agent_url": [f"{address}/v1"], "sim": HUMAN, "sim_url": [f"{address}/v1"]}
    run_rollout(Run.create(run, "code"), RolloutConfig(tasks=str(tasks), concurrency=concurrency, **urls), Silent())


def play_in_lockstep(address: str, tasks: Path, _run: Path, batch: int) -> None:
    asyncio.run(_lockstep(address, tasks, batch))


async def _lockstep(address: str, path: Path, batch: int) -> None:
    kind, local = task_kind("code"), threading.local()
    tasks = kind.load(str(path), "train")

    def ask_in_thread(body: bytes) -> Any:
        if not hasattr(local, "connection"):
            local.connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=SECONDS)
        local.connection.request("POST", "/v1/chat/completions", body)
        return json.loads(local.connection.getresponse().read())

    def body_of(model: str, messages: Sequence[Message]) -> bytes:
        return json.dumps({"model": model, "messages": chat_rows(messages), "max_tokens": 1024}).encode()

    timeout, connector = aiohttp.ClientTimeout(SECONDS), aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:

        async def ask(body: bytes) -> Any:
            async with session.post(f"{address}/v1/chat/completions", data=body) as response:
                return json.loads(await response.read())

        with ThreadPoolExecutor(THREADS) as pool:
            for start in range(0, len(tasks), batch):
                dialogues = [(task, opening(kind, task)) for task in tasks[start : start + batch]]
                for turn in range(MAX_TURNS):
                    replies = await asyncio.gather(*(ask(body_of(AGENT, said)) for _, said in dialogues))
                    moves = [kind.move(_text(reply), last=turn == MAX_TURNS - 1) for reply in replies]
                    for (_, said), move in zip(dialogues, moves, strict=True):
                        said.append(Message(role="assistant", content=move.content))
                    dialogues = [each for each, move in zip(dialogues, moves, strict=True) if not move.ends]
                    prompts = [body_of(HUMAN, kind.human_prompt(task, said[1:])) for task, said in dialogues]
                    run = asyncio.get_running_loop().run_in_executor
                    answers = await asyncio.gather(*(run(pool, ask_in_thread, prompt) for prompt in prompts))
                    for (_, said), answer in zip(dialogues, answers, strict=True):
                        said.append(Message(role="user", content=_text(answer)[: kind.human_reply_limit]))


def _text(answer: Any) -> str:
    text: str = answer["choices"][0]["message"]["content"]
    return text


CLIENTS: dict[str, Callable[[str, Path, Path, int], None]] = {"sweet": play, "lockstep": play_in_lockstep}


def measured(name: str, address: str, folder: Path, concurrency: int) -> Metrics:
    """Play the tasks in this process, after those of the warm-up."""
    raise_open_files()
    CLIENTS[name](address, folder / "warm.jsonl", folder / f"warm-{name}", concurrency)
    statistics_of(address, "/reset")
    began, before = time.monotonic(), used()
    CLIENTS[name](address, folder / "tasks.jsonl", folder / name, concurrency)
    seconds, cpu = time.monotonic() - began, used() - before
    found = statistics_of(address)
    return {
        f"{name}_s": seconds,
        f"{name}_cpu_s": cpu,
        "before_s": found["first_request"] - began,
        "late_ms": found["late_ms"]["median"],
        "answered": found["answered"],
    }


# The rounds -------------------------------------------------------------------------------------------------------


def in_process(*request: object) -> Metrics:
    command = [sys.executable, "-m", "benchmarks.rollouts", "--measure", json.dumps(request)]
    found: Metrics = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    return found


def one_round(seed: int, dialogues: int, concurrency: int) -> Metrics:
    draws = Draws(seed)
    with tempfile.TemporaryDirectory() as folder:
        for name, numbers in (("tasks", range(dialogues)), ("warm", range(900_000, 900_002))):
            rows = "".join(f"{json.dumps(task_row(number))}\n" for number in numbers)
            Path(folder, f"{name}.jsonl").write_text(rows, "utf-8")
        with serving("--seed", str(seed)) as address:
            lockstep, sweet = (in_process(name, address, folder, concurrency) for name in ("lockstep", "sweet"))
    least = bound(draws, dialogues, concurrency)
    requests = sum(len(list(draws.requests(number))) for number in range(dialogues))
    assert lockstep["answered"] == sweet["answered"] == requests
    return {
        "bound_s": least,
        "ordered_s": ordered(draws, dialogues, concurrency),
        **lockstep,
        **sweet,
        "of_the_bound": sweet["sweet_s"] / least,
        "over_lockstep": lockstep["lockstep_s"] / sweet["sweet_s"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dialogues", type=int, default=400)
    parser.add_argument("--concurrency", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        name, address, folder, concurrency = json.loads(options.measure)
        print(json.dumps(measured(name, address, Path(folder), concurrency)))
        return
    before = os.getloadavg()
    rounds = [one_round(seed, options.dialogues, options.concurrency) for seed in range(options.rounds)]
    medians = {name: round(statistics.median(one[name] for one in rounds), 4) for name in rounds[0]}
    print(json.dumps({**medians, "cores": os.cpu_count(), "load_before": before, "load_after": os.getloadavg()}))


if __name__ == "__main__":
    main()
