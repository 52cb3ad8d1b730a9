"""Many dialogues at once against a mock server: stopped, killed, held back, refused, and gone on with."""

from __future__ import annotations

import asyncio
import json
import random
import re
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sweet.errors import ServerError, UsageError
from sweet.llm.remote import RemoteClient
from sweet.rollouts.config import RolloutConfig
from sweet.rollouts.runner import GRACE, FinishedDialogues
from sweet.rollouts.stage import run_rollout
from sweet.runs.run import Run
from sweet.stages.base import Silent
from sweet.stages.failures import Failures
from sweet.units import count
from tests import programs
from tests.rollouts.mock_server import AGENT, HUMAN, Draws, Mock, serve, task_row

ROOT = Path(__file__).parents[2]
COUNT = 36


@contextmanager
def mock(*options: str) -> Iterator[str]:
    """The address of a mock whose answers take 30 ms in the mean."""
    command = ["-m", "tests.rollouts.mock_server", "--mean", "0.03", "--seed", "5", *options]
    with programs.start(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.kill()


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with mock("--token-ids") as address:
        yield address


@pytest.fixture
def stalling() -> Iterator[str]:
    """One that never answers a fiftieth of the requests."""
    with mock("--faults", "0.1") as address:
        yield address


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    path = tmp_path / "tasks.jsonl"
    path.write_text("".join(json.dumps(task_row(number)) + "\n" for number in range(COUNT)))
    return path


def words(run: Path, tasks: Path, server: str, *more: str) -> list[str]:
    sides = ["--agent", AGENT, "--agent-url", server, "--sim", HUMAN, "--sim-url", server]
    given = ["--tasks", str(tasks), *sides, "--concurrency", "12", *more]
    return [*programs.SWEET, "rollout", str(run), *given]


def started(run: Path, tasks: Path, server: str, *more: str) -> subprocess.Popen[str]:
    return programs.start(
        words(run, tasks, server, *more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=run.parent
    )


def written(run: Path) -> bytes:
    return b"".join(path.read_bytes() for path in run.glob("rollouts/*.jsonl"))


def wait_for(run: Path, lines: int) -> None:
    limit = time.monotonic() + 60
    while written(run).count(b"\n") < lines:
        assert time.monotonic() < limit
        time.sleep(0.005)


def ids(run: Path) -> list[str]:
    return [json.loads(line)["id"] for line in written(run).splitlines()]


def steps(run: Path) -> list[Path]:
    return list(run.glob("rollouts/.*.steps"))


def dialogues(run: Path) -> dict[str, Any]:
    """The rows by id, without the seconds."""
    rows = [json.loads(line) for line in written(run).splitlines()]
    for row in rows:
        row["usage"] = {name: value for name, value in row["usage"].items() if not name.endswith("seconds")}
    return {row["id"]: row for row in rows}


@pytest.fixture(scope="module")
def unbroken(server: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The dialogues of a rollout that nothing stopped."""
    folder = tmp_path_factory.mktemp("unbroken")
    (folder / "tasks.jsonl").write_text("".join(json.dumps(task_row(number)) + "\n" for number in range(COUNT)))
    run_rollout(Run.create(folder / "run", "code"), config(folder / "tasks.jsonl", server), Silent())
    assert not steps(folder / "run")
    return dialogues(folder / "run")


def asked(server: str, path: str) -> Any:
    with urllib.request.urlopen(server + path) as answer:
        return json.load(answer)


def config(tasks: Path, server: str, **more: Any) -> RolloutConfig:
    sides = {"agent": AGENT, "agent_url": [server], "sim": HUMAN, "sim_url": [server]}
    return RolloutConfig(**{"tasks": str(tasks), "concurrency": 12, **sides, **more})


def test_after_ctrl_c_dialogues_go_on_at_their_turn(
    tmp_path: Path, tasks: Path, server: str, unbroken: dict[str, Any]
) -> None:
    run = tmp_path / "run"
    asked(server, "/reset")
    with started(run, tasks, server) as program:
        wait_for(run, 5)
        program.send_signal(signal.SIGINT)
        _, err = program.communicate(timeout=60)
    assert program.returncode == 130, err
    told = " ".join(err.replace("│", " ").split())
    assert "What was said is kept" in told
    assert steps(run)
    assert "sweet rollout" in told
    kept = written(run)
    done = len(ids(run))
    assert 5 <= done < COUNT
    assert f"Done: {count(done, 'dialogue')}; missing: {COUNT - done}" in told
    stats = asked(server, "/stats")
    assert stats["requests"] == stats["answered"], "no request was cut off"
    again = programs.run(words(run, tasks, server, "--json"))
    assert json.loads(again.stdout)["metrics"]["episodes"] == COUNT
    assert written(run).startswith(kept)
    assert len(ids(run)) == COUNT
    assert dialogues(run) == unbroken
    turns = sum(len(row["dialogue_history"]) - 1 for row in unbroken.values())
    assert asked(server, "/stats")["requests"] == turns, "nobody was asked twice"
    assert not steps(run)


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_waits_for_no_reply_that_takes_long(tmp_path: Path, tasks: Path, times: int) -> None:
    async def stopped() -> tuple[str, float, int]:
        mock = Mock(Draws(mean=1e6))
        listening, url = await serve(mock)
        program = started(tmp_path / "run", tasks, url)
        while not mock.under_way:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        began = time.monotonic()
        for _ in range(times):
            program.send_signal(signal.SIGINT)
            await asyncio.sleep(0.05)
        _, err = await asyncio.to_thread(program.communicate, timeout=60)
        listening.close()
        return err, time.monotonic() - began, program.returncode

    err, seconds, code = asyncio.run(stopped())
    assert code == 130, err
    assert (seconds > GRACE) == (times == 1)
    assert seconds < GRACE + 20, "of a million"


def test_killed_at_any_moment_the_same_command_does_what_is_missing(
    tmp_path: Path, tasks: Path, server: str, unbroken: dict[str, Any]
) -> None:
    run, dice = tmp_path / "run", random.Random(0)
    kept = b""
    for _ in range(3):
        with started(run, tasks, server) as program:
            wait_for(run, kept.count(b"\n") + dice.randint(1, 8))
            time.sleep(dice.uniform(0, 0.05))
            program.kill()
            program.communicate(timeout=60)
        now = written(run)
        whole = now[: now.rfind(b"\n") + 1]
        assert whole.startswith(kept), "finished dialogues stay byte for byte"
        kept = whole
    first, second, *others = kept.splitlines(keepends=True)
    zeros = first[:50] + b"\0" * (len(first) + 50) + second[100:]  # as after a loss of power
    next(run.glob("rollouts/*.jsonl")).write_bytes(zeros + b"".join(others) + b'{"id":"torn')
    with steps(run)[0].open("ab") as file:
        file.write(bytes(40) + b'{"name":"mock')
    again = programs.run(words(run, tasks, server, "--json"))
    assert again.returncode == 0, again.stderr
    assert re.search(r"rollouts-1\.jsonl: [23] rows damaged or missing", " ".join(again.stderr.split()))
    assert json.loads(again.stdout)["metrics"]["episodes"] == COUNT
    assert written(run).startswith(b"".join(others))
    assert len(ids(run)) == COUNT
    assert dialogues(run) == unbroken


def test_the_limit_of_dialogues_bounds_the_requests_of_both_clients(
    tmp_path: Path, tasks: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[RemoteClient] = []
    opening = RemoteClient.open

    async def recorded(*args: Any, **settings: Any) -> RemoteClient:
        opened.append(await opening(*args, **settings))
        return opened[-1]

    monkeypatch.setattr(RemoteClient, "open", recorded)
    run = Run.create(tmp_path / "run", "code")
    run_rollout(run, config(tasks, server, num_tasks=4, concurrency=3), Silent())
    assert [client.limiter.max_limit for client in opened] == [3, 3]


def test_other_settings_than_those_it_was_begun_with_are_refused(tmp_path: Path, tasks: Path, server: str) -> None:
    run = Run.create(tmp_path / "run", "code")
    away = {"sim_url": ["http://127.0.0.1:9"], "retry_timeout": 0.1}
    for turns in (9, 10):  # an attempt that made nothing binds nobody
        with pytest.raises(ServerError):
            run_rollout(run, config(tasks, server, max_turns=turns, **away), Silent())
    (run.path / "rollouts" / ".rollouts-2.steps").write_text("{}\n")
    with pytest.raises(UsageError) as error:
        run_rollout(run, config(tasks, server, temperature=0.5, max_turns=3), Silent())
    assert "--max-turns was 10 and is 3" in str(error.value)
    assert "--temperature was 1.0 and is 0.5" in str(error.value)
    assert "deadline" not in str(error.value), "what changes no outcome may change"
    assert "--new" in str(error.value.fix)
    result = run_rollout(run, config(tasks, server, temperature=0.5, new=True, num_tasks=2), Silent())
    assert result.artifacts[0].id == "rollouts-3"


def test_a_dialogue_that_failed_stays_readable(tmp_path: Path, tasks: Path, stalling: str) -> None:
    run = Run.create(tmp_path / "run", "code")
    config_ = config(tasks, stalling, deadline=1.0, fail_on_error=COUNT)
    result = run_rollout(run, config_, Silent())
    failed = [json.loads(line) for line in (run.path / "logs" / "rollout-1.jsonl").read_text().splitlines()]
    assert len(failed) == result.metrics.failed > 0
    assert {row["failed"] for row in failed} == {"deadline"}
    assert any(len(row["dialogue_history"]) > 2 for row in failed), "what had been said is there"
    assert all(row["dialogue"].startswith("mock-") for row in failed)


def test_what_a_dialogue_cost_and_how_it_was_drawn_is_recorded(tmp_path: Path, tasks: Path, server: str) -> None:
    run = Run.create(tmp_path / "run", "code")
    metrics = run_rollout(run, config(tasks, server, num_tasks=8), Silent()).metrics
    rows = [json.loads(line) for line in written(run.path).splitlines()]
    for row in rows:
        said = [turn for turn in row["dialogue_history"] if turn["role"] == "assistant"]
        assert len({turn["sampling_seed"] for turn in said}) == len(said)
        assert all(turn["finish_reason"] == "stop" for turn in said)
        usage = row["usage"]
        assert usage["prompt_tokens"] > 0 < usage["completion_tokens"]
        assert usage["agent_seconds"] + usage["human_seconds"] <= usage["seconds"] + 0.01
    for name in ("prompt_tokens", "human_prompt_tokens", "human_completion_tokens"):
        assert getattr(metrics, name) == sum(row["usage"][name] for row in rows)


def test_a_row_is_counted_once() -> None:
    row = {"id": "a", "dialogue_history": [{"role": "user"}, {"role": "assistant"}], "usage": {"prompt_tokens": 3}}
    finished = FinishedDialogues([row, row, {**row, "id": "b", "outcome": "human_error", "fault": "echo"}])
    metrics = finished.metrics(failures=Failures(), seconds=1.0)
    assert (metrics.episodes, metrics.turns, metrics.prompt_tokens) == (2, 2, 6)
    assert metrics.outcomes == {"answered": 1, "human_error": 1}
    assert metrics.human_faults == {"echo": 1}


def test_files_may_be_open_for_every_connection(server: str) -> None:
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] < 1000:
        pytest.skip("this system allows fewer open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))

    async def opened() -> None:
        client = await RemoteClient.open(AGENT, [server], concurrency=400)
        await client.aclose()

    try:
        asyncio.run(opened())
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= min(400, before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_too_many_failures_are_exit_4_and_the_result_is_told_all_the_same(
    tmp_path: Path, tasks: Path, stalling: str
) -> None:
    run = tmp_path / "run"
    command = words(run, tasks, stalling, "--json", "--deadline", "1", "--fail-on-error", "3")
    done = programs.run(command)
    assert done.returncode == 4, done.stderr
    told = json.loads(done.stdout)
    assert told["metrics"]["failed"] + told["metrics"]["episodes"] == COUNT
    assert told["artifacts"][0]["rows"] == len(ids(run))
