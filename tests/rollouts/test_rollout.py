"""Rollouts with the real micro agent, the real engine and the scripted human."""

from __future__ import annotations

import asyncio
import errno
import itertools
import json
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sweet.errors import Interrupted, ServerError, SweetError, TooManyFailures, UsageError
from sweet.llm.base import Completion
from sweet.llm.embedded import EmbeddedClient
from sweet.rollouts.stage import run_rollout
from sweet.runs.jsonl import encode, read_jsonl
from sweet.runs.run import Run
from sweet.runs.tokens import read_tokens, tokens_path
from sweet.stages.base import Silent
from sweet.stages.frame import Rows
from sweet.tasks.base import Task
from sweet.tasks.trajectory import Trajectory
from tests.rollouts.small import SAMPLES, TASKS, TOO_SHORT, config, late_replies, rows
from tests.stages.counting import Acting


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "run", task="code")


class Impatient(Acting):
    """Presses Ctrl-C."""

    def act(self) -> None:
        signal.raise_signal(signal.SIGINT)


def test_an_interrupt_is_no_secret_where_all_dialogues_have_ended(run: Run) -> None:
    assert not run_rollout(run, config(), Silent()).stopped
    result = run_rollout(run, config(seed=1), Impatient(TASKS * SAMPLES - 1))
    assert result.metrics.episodes == TASKS * SAMPLES
    assert result.stopped


def plain(run: Run) -> dict[str, Any]:
    """The rows by id, without the seconds."""
    found = {row["id"]: row for row in rows(run)}
    for row in found.values():
        row["usage"] = {name: value for name, value in row["usage"].items() if not name.endswith("seconds")}
    return found


@pytest.mark.parametrize("changes", [{}, {"best_of": 3, "judge": "random"}])
def test_stopped_dialogues_go_on_at_their_turn(
    run: Run, tmp_path: Path, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_rollout(run, config(**changes), Silent())
    other = Run.create(tmp_path / "other", task="code")
    kept = other.path / "rollouts" / ".rollouts-1.steps"
    chat = EmbeddedClient.chat
    for replies in (5, 11):
        replied = itertools.count(1)

        async def counted(*args: Any, replied: Iterator[int] = replied, last: int = replies) -> Completion:
            completion = await chat(*args)
            if next(replied) == last:
                signal.raise_signal(signal.SIGINT)
            return completion

        monkeypatch.setattr(EmbeddedClient, "chat", counted)
        with pytest.raises(Interrupted):
            run_rollout(other, config(concurrency=4, **changes), Silent())
        assert kept.stat().st_size
    monkeypatch.setattr(EmbeddedClient, "chat", chat)
    metrics = run_rollout(other, config(**changes), Silent()).metrics
    assert plain(other) == plain(run)
    spent = sum(row["usage"]["completion_tokens"] for row in rows(other))
    assert metrics.completion_tokens == spent
    attempts = [read_tokens(tokens_path(other.path, f"rollout-{number}"))["agent"].completion for number in (1, 2, 3)]
    assert sum(attempts) == spent, "no reply is sampled twice"
    assert not kept.exists()


def test_what_an_interrupt_has_ended_is_no_failure(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal sends Ctrl-C to all processes of its group, such as a browser that is just being started."""

    async def ended(*_: Any) -> Completion:
        signal.raise_signal(signal.SIGINT)
        await asyncio.sleep(0)
        raise SweetError("Firefox does not start: it ends with status -2")

    with monkeypatch.context() as patch:
        patch.setattr(EmbeddedClient, "chat", ended)
        with pytest.raises(Interrupted, match=f"Stopped. Done: 0 dialogues; missing: {TASKS * SAMPLES}"):
            run_rollout(run, config(concurrency=1), Silent())
    assert run_rollout(run, config(), Silent()).metrics.episodes == TASKS * SAMPLES


def test_every_dialogue_is_there_once_and_recorded(run: Run) -> None:
    result = run_rollout(run, config(), Silent())
    found = rows(run)
    assert len({row["id"] for row in found}) == len(found) == TASKS * SAMPLES == result.metrics.episodes
    assert result.metrics.failed == 0
    assert result.metrics.turns == sum(
        sum(turn["role"] == "assistant" for turn in row["dialogue_history"]) for row in found
    )
    assert result.metrics.completion_tokens == sum(row["usage"]["completion_tokens"] for row in found) > 0
    for row in found:
        replies = [turn for turn in row["dialogue_history"] if turn["role"] == "assistant"]
        assert all(turn["token_ids"] for turn in replies)
        assert row["dialogue_history"][0]["content"] == row["task"]["problem_description"]


def test_the_same_command_does_what_is_missing_and_nothing_twice(run: Run) -> None:
    run_rollout(run, config(), Silent())
    path = run.file(run.artifact("rollouts-1"))
    whole = path.read_bytes()
    assert run_rollout(run, config(concurrency=3), Silent()).metrics.episodes == TASKS * SAMPLES
    assert path.read_bytes() == whole, "an operational change alters nothing"

    lines = whole.splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:7]) + lines[7][:40])
    result = run_rollout(run, config(), Silent())
    assert result.metrics.episodes == TASKS * SAMPLES
    assert path.read_bytes().startswith(b"".join(lines[:7])), "finished dialogues stay byte for byte"
    redone = rows(run)
    assert len({row["id"] for row in redone}) == len(redone)
    texts = {row["id"]: [turn["content"] for turn in row["dialogue_history"]] for row in redone}
    before = {row["id"]: [turn["content"] for turn in row["dialogue_history"]] for row in map(json.loads, lines)}
    assert texts == before, "a dialogue's seed gives the same dialogue again"


def test_another_setting_makes_another_artifact(run: Run) -> None:
    run_rollout(run, config(num_tasks=2), Silent())
    run_rollout(run, config(num_tasks=2, temperature=0.5), Silent())
    assert len(rows(run, 1)) == len(rows(run, 2)) == 2 * SAMPLES


def test_an_unreachable_server_is_exit_3_and_keeps_the_partial_artifact(run: Run) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}/v1"
    with pytest.raises(ServerError, match=str(port)) as error:
        run_rollout(run, config(agent="nobody", agent_url=[url], retry_timeout=0.2), Silent())
    assert error.value.exit_code == 3
    manifest = run.manifest()
    assert manifest.attempts[-1].status == "failed"
    assert manifest.artifacts[-1].status == "partial"


def test_a_dialogue_past_its_deadline_is_failed_logged_and_played_again(run: Run) -> None:
    with late_replies(), pytest.raises(TooManyFailures) as error:
        run_rollout(run, config(num_tasks=1, samples=1, deadline=TOO_SHORT), Silent())
    assert error.value.exit_code == 4
    logged = [json.loads(line) for line in Path(error.value.where or "").read_text().splitlines()]
    assert "no reply within" in logged[0]["error"]
    assert rows(run) == []
    again = run_rollout(run, config(num_tasks=1, samples=1), Silent())
    assert (again.metrics.episodes, again.artifacts[0].id) == (1, "rollouts-1")


def test_allowed_failures_are_counted_and_not_fatal(run: Run) -> None:
    with late_replies():
        result = run_rollout(run, config(num_tasks=2, samples=1, deadline=TOO_SHORT, fail_on_error=2), Silent())
    assert (result.metrics.failed, result.metrics.episodes) == (2, 0)


def test_a_disk_that_does_not_answer_is_no_deadline_of_a_dialogue(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(rows: Rows, row: object) -> None:
        raise TimeoutError(errno.ETIMEDOUT, "Connection timed out", str(rows.path))

    monkeypatch.setattr(Rows, "write", write, raising=False)
    with pytest.raises(TimeoutError, match="Connection timed out"):
        run_rollout(run, config(), Silent())


def test_a_dialogue_too_long_to_be_read_again_fails_alone(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its row had made the whole file unreadable."""
    first = Run.create(run.path.with_name("first"), task="code")
    run_rollout(first, config(), Silent())
    sizes = sorted(len(encode(row)) for row in rows(first))
    gap = max(range(1, len(sizes)), key=lambda place: sizes[place] - sizes[place - 1])
    monkeypatch.setattr("sweet.runs.jsonl.LONGEST_LINE", (sizes[gap] + sizes[gap - 1]) // 2)
    again = run_rollout(run, config(fail_on_error=TASKS * SAMPLES), Silent())
    assert (again.metrics.episodes, again.metrics.failed) == (gap, len(sizes) - gap)
    assert [row.id for row in read_jsonl(run.file(again.artifacts[0]), Trajectory)]
    log = (run.path / "logs" / "rollout-1.jsonl").read_text()
    assert log.count("LongRow") == again.metrics.failed


def test_the_scripted_human_needs_facts(run: Run, tmp_path: Path) -> None:
    task = Task(id="t", problem_description="d def f(x)", ground_truth="def f(x): return x", test_cases={"t1": "f(1)"})
    path = tmp_path / "tasks.jsonl"
    path.write_text(task.model_dump_json(exclude={"facts"}) + "\n")
    with pytest.raises(UsageError, match="has none"):
        run_rollout(run, config(tasks=str(path)), Silent())


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"sim_url": ["http://127.0.0.1:9/v1"]}, "human runs in this process"),
        ({"agent": "scripted"}, "no scripted agent for code tasks"),
        ({"task": "html", "agent": "scripted", "agent_url": ["http://127.0.0.1:9/v1"]}, "agent runs in this process"),
        ({"task": "html", "agent": "scripted", "sim": "micro"}, "must see pages"),
        ({"task": "html"}, "writes no pages"),
    ],
)
def test_sides_that_cannot_play_are_refused(run: Run, changes: dict[str, Any], what: str) -> None:
    with pytest.raises(UsageError, match=what):
        run_rollout(run, config(**changes), Silent())
    assert not run.manifest().attempts
