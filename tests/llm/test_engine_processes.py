"""Embedded engines in processes of their own: real ones, which load the same small model as this process."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sweet.api import read_trajectories
from sweet.deadline import deadline
from sweet.errors import UsageError
from sweet.llm import engine_processes
from sweet.llm.base import Completion, ContextOverflow, EngineFailed, Sampling
from sweet.llm.connect import warn_of_effort
from sweet.llm.embedded import EmbeddedClient
from sweet.llm.engine_processes import EngineProcesses
from sweet.llm.local import MANY_REPLIES, LocalServing
from sweet.rollouts.config import RolloutConfig
from sweet.rollouts.stage import run_rollout
from sweet.runs.run import Run
from sweet.stages.base import Silent
from sweet.tasks.base import Message
from sweet.tasks.trajectory import Trajectory
from tests import programs

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the processes are forked")
GREEDY = Sampling(temperature=0.0, max_tokens=12)


@pytest.fixture(scope="module")
def model(checkpoint: Path) -> str:
    return str(checkpoint)


@pytest.fixture(scope="module", autouse=True)
def program() -> Iterator[None]:
    yield
    engine_processes.stop()


def ask(task: str) -> list[Message]:
    return [Message(role="system", content="You help."), Message(role="user", content=task)]


def children(parent: int) -> list[int]:
    """The processes that another one has started, by the pid that each names as its parent's."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == parent and fields[0] != "Z":
            found.append(int(folder.name))
    return found


def started_programs(parent: int) -> list[int]:
    """The programs that fork processes of engines, of a process."""
    return [pid for pid in children(parent) if engine_processes.MODULE in Path(f"/proc/{pid}/cmdline").read_text()]


def running(parent: int) -> list[int]:
    """The processes of the engines of a process."""
    return [pid for program in started_programs(parent) for pid in children(program)]


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline, "it did not come to that within a minute"
        time.sleep(0.02)


@pytest.fixture(autouse=True)
def _none_of_an_earlier_test() -> None:
    """Its processes end when they have read that the client is closed."""
    if Path("/proc/self/stat").exists():
        wait_until(lambda: not running(os.getpid()))


def test_replies_are_those_of_an_engine_in_this_process(model: str) -> None:
    tasks = [f"Task {number}?" for number in range(6)]
    seen: list[Completion] = []

    async def here() -> list[Completion]:
        client = EmbeddedClient.load(model, device="cpu")
        try:
            return [await client.chat(ask(task), GREEDY) for task in tasks]
        finally:
            await client.aclose()

    async def there() -> list[Completion]:
        client = await EngineProcesses.open(model, device="cpu", processes=2)
        client.on_completion = seen.append
        try:
            return await asyncio.gather(*(client.chat(ask(task), GREEDY) for task in tasks))
        finally:
            await client.aclose()

    expected, found = asyncio.run(here()), asyncio.run(there())
    texts = [[reply.token_ids for reply in completion.replies] for completion in expected]
    assert [[reply.token_ids for reply in completion.replies] for completion in found] == texts
    assert [completion.prompt_token_ids for completion in found] == [c.prompt_token_ids for c in expected]
    assert sorted(map(id, seen)) == sorted(map(id, found)), "each completion was counted"


def test_errors_of_a_request_are_those_of_the_engine(model: str) -> None:
    async def work() -> None:
        client = await EngineProcesses.open(model, device="cpu", processes=1)
        try:
            with pytest.raises(ContextOverflow, match="accepts") as error:
                await client.chat(ask("long " * 10_000), GREEDY)
            assert error.value.where == model
            assert (await client.chat(ask("short"), GREEDY)).completion_tokens > 0, "others do not fail"
        finally:
            await client.aclose()

    asyncio.run(work())


def test_a_model_that_cannot_be_loaded_is_the_users_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a model: it has no config") as error:
        asyncio.run(EngineProcesses.open(str(tmp_path), device="cpu", processes=2))
    assert error.value.where == str(tmp_path)
    wait_until(lambda: not running(os.getpid()))


def test_a_slow_process_ends_no_dialogue(model: str) -> None:
    async def work() -> None:
        client = await EngineProcesses.open(model, device="cpu", processes=1)
        try:
            await client.chat(ask("first"), GREEDY)
            [process] = running(os.getpid())
            os.kill(process, signal.SIGSTOP)
            asyncio.get_running_loop().call_later(3.0, os.kill, process, signal.SIGCONT)
            async with deadline(2.0):
                await client.chat(ask("second"), GREEDY)
        finally:
            await client.aclose()

    asyncio.run(work())


def test_a_cancelled_request_is_dropped_and_others_go_on(model: str) -> None:
    async def work() -> None:
        client = await EngineProcesses.open(model, device="cpu", processes=1)
        try:
            long = asyncio.create_task(client.chat(ask("long"), Sampling(max_tokens=400, n=64, seed=1)))
            await asyncio.sleep(0)
            long.cancel()
            assert (await client.chat(ask("short"), GREEDY)).completion_tokens > 0
            assert long.cancelled()
        finally:
            await client.aclose()

    asyncio.run(work())
    wait_until(lambda: not running(os.getpid()))


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the processes are found in /proc")
def test_a_process_that_is_killed_fails_its_dialogues_alone(model: str) -> None:
    async def work() -> None:
        client = await EngineProcesses.open(model, device="cpu", processes=2)
        try:
            tasks = [ask("one"), ask("two")]
            unfinished = [asyncio.create_task(client.chat(task, Sampling(max_tokens=400, n=100))) for task in tasks]
            await asyncio.sleep(0)  # each is sent to a process of its own
            os.kill(min(running(os.getpid())), signal.SIGKILL)
            ended = await asyncio.gather(*unfinished, return_exceptions=True)
            failed = [isinstance(result, EngineFailed) for result in ended]
            assert sorted(failed) == [False, True], ended
            with pytest.raises(EngineFailed, match="has ended"):
                await client.chat(tasks[failed.index(True)], GREEDY)
            await client.chat(tasks[failed.index(False)], GREEDY)
        finally:
            await client.aclose()

    asyncio.run(work())


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the processes are found in /proc")
def test_the_program_that_is_killed_is_started_again(model: str) -> None:
    async def work() -> Completion:
        client = await EngineProcesses.open(model, device="cpu", processes=1)
        try:
            return await client.chat(ask("one"), GREEDY)
        finally:
            await client.aclose()

    asyncio.run(work())
    [program] = started_programs(os.getpid())
    os.kill(program, signal.SIGKILL)
    wait_until(lambda: program not in children(os.getpid()))
    assert asyncio.run(work()).completion_tokens > 0


USER = """
import asyncio, sys, warnings
warnings.simplefilter("error")
from sweet.llm.engine_processes import EngineProcesses
async def main():
    client = await EngineProcesses.open(sys.argv[1], device="cpu", processes=2)
    print("open", flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the processes are found in /proc")
def test_no_process_outlives_its_user(model: str) -> None:
    words = ["-c", USER, model]  # forked; the program that it starts is not, and a child of its own
    user = programs.start(words, torch=True, executable=sys.executable, stdout=subprocess.PIPE, text=True)
    assert user.stdout is not None
    with user, user.stdout as output:
        assert output.readline() == "open\n"
        [program] = children(user.pid)
        pids = [program, *children(program)]
        assert len(pids) == 3
        user.kill()
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))


def test_small_models_get_several_processes_where_it_pays(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def processes(cores: int = 2, replies: int = MANY_REPLIES, name: str = "micro", gpus: int = 0) -> int:
        monkeypatch.setattr("sweet.device.usable_cores", lambda: cores)
        local = LocalServing(device="auto", replies=replies)
        local.gpus = [None] * gpus  # type: ignore[list-item]
        return local.processes(name)

    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert processes() == processes(name=model) == 2
    assert processes(cores=1) == 1
    assert processes(cores=64) == 4
    assert processes(replies=MANY_REPLIES - 1) == 1
    assert processes(gpus=1) == 1
    assert processes(name="org/of-unknown-size") == 1
    for limit, expected in (("1", 1), ("3,2", 3), ("0", 4), ("many", 4)):
        monkeypatch.setenv("OMP_NUM_THREADS", limit)
        assert processes(cores=64) == expected


def test_a_rollout_in_several_processes_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweet.llm.local.allowed_threads", lambda: 2)
    config = RolloutConfig(tasks="micro", num_tasks=4, max_turns=3, max_tokens=24, temperature=0.0, device="cpu")
    said: list[list[Trajectory]] = []
    for name, least in (("here", MANY_REPLIES), ("there", 1)):
        monkeypatch.setattr("sweet.llm.local.MANY_REPLIES", least)
        run = Run.create(tmp_path / name)
        run_rollout(run, config, Silent())
        environment = run.manifest().attempts[-1].environment
        assert environment.get("agent_processes") == (2 if least == 1 else None)
        said.append(sorted(read_trajectories(run), key=lambda trajectory: trajectory.id))
    here, there = said
    assert [t.model_dump(exclude={"usage"}) for t in here] == [t.model_dump(exclude={"usage"}) for t in there]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the processes are found in /proc")
def test_the_program_can_be_ended(model: str) -> None:
    async def work() -> None:
        client = await EngineProcesses.open(model, device="cpu", processes=2)
        assert len(running(os.getpid())) == 2
        await client.aclose()

    asyncio.run(work())
    engine_processes.stop()
    assert not started_programs(os.getpid())


def test_the_template_is_loaded_where_an_effort_or_tools_are_asked_for(model: str) -> None:
    async def work() -> list[str]:
        client, warned = await EngineProcesses.open(model, device="cpu", processes=2), list[str]()
        try:
            warn_of_effort(client, None, warned.append)
            assert "template" not in vars(client), "this process would load transformers for nothing"
            warn_of_effort(client, "high", warned.append)
            assert "template" in vars(client)
        finally:
            await client.aclose()
        return warned

    (warning,) = asyncio.run(work())
    assert "has no effect" in warning
