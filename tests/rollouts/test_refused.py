"""When dialogues fail, the reasons are shown with their counts; when all are refused, no more are begun."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import Response

from sweet.errors import TooManyFailures
from sweet.inspection.next_commands import advice, suggest_next
from sweet.llm.base import RequestFailed
from sweet.online.config import TrainOnlineConfig
from sweet.online.stage import run_train_online
from sweet.rollouts.config import RolloutConfig
from sweet.rollouts.stage import run_rollout
from sweet.runs.run import Run
from sweet.stages.failures import HOPELESS, REFUSED, Failures
from tests.stages.chat_server import ChatServer, refused, said
from tests.stages.heard import Heard

REASON = "this account has no access to this model"


def config(url: str, **more: Any) -> RolloutConfig:
    settings = {"num_tasks": 60, "max_turns": 2, "concurrency": 4, "agent": "m", "agent_url": [url], **more}
    return RolloutConfig(tasks="micro", **settings)


@pytest.mark.parametrize("role", ["agent", "sim"])
def test_where_all_are_refused_the_stage_ends_early_and_says_why(tmp_path: Path, role: str) -> None:
    server, listening = ChatServer("m", lambda body: refused(400, REASON)), Heard()
    run = Run.create(tmp_path / "run", "code")
    with server.running() as url:
        roles = {} if role == "agent" else {"agent": "micro", "agent_url": [], "sim": "m", "sim_url": [url]}
        with pytest.raises(TooManyFailures) as error:
            run_rollout(run, config(url, **roles), listening)
    assert REASON in error.value.what
    assert "same command" not in str(error.value.fix)
    (metrics,) = [attempt.metrics for attempt in run.manifest().attempts]
    assert HOPELESS <= int(str(metrics["failed"])) <= HOPELESS + 4
    said_by = "The simulated human failed: " if role == "sim" else ""
    assert metrics["failures"] == {f"{said_by}The server refused the request (400): {REASON}": metrics["failed"]}
    assert any(REASON in text for text in listening.warnings)
    assert suggest_next(run.manifest(), run.path) == [], "the same call would be refused again"
    assert advice(run.manifest()) == f"rollout-1 would be refused again: {REFUSED}."


def test_online_dialogues_that_are_refused_say_why(tmp_path: Path) -> None:
    server, listening = ChatServer("m", lambda body: refused(400, REASON)), Heard()
    run = Run.create(tmp_path / "run", "code")
    small = {"steps": 1, "tasks_per_step": 2, "group": 2, "tasks": "micro", "algorithm": "grpo", "device": "cpu"}
    with server.running() as url:
        config = TrainOnlineConfig.model_validate(small | {"human": "code", "sim": "m", "sim_url": [url]})
        with pytest.raises(TooManyFailures, match=REASON) as error:
            run_train_online(run, config, listening)
    assert "4 × " in error.value.what
    assert error.value.fix == REFUSED
    commands = suggest_next(run.manifest(), run.path)
    assert not any(command.startswith("sweet train-online") for command in commands)


def test_a_few_that_fail_are_told_with_their_reasons(tmp_path: Path) -> None:
    numbers = itertools.count(1)

    def answer(body: dict[str, Any]) -> Response:
        number = next(numbers)
        return refused(403, f"quota of request {number} exceeded") if number % 5 == 0 else said("What is the rate?")

    server, listening = ChatServer("m", answer), Heard()
    run = Run.create(tmp_path / "run", "code")
    with server.running() as url:
        result = run_rollout(run, config(url, num_tasks=40, fail_on_error=0.99), listening)
    failed = result.metrics.failed
    assert 0 < failed < 40
    assert result.metrics.failures is not None
    assert list(result.metrics.failures.values()) == [failed], "reasons that differ in numbers are one"
    assert any(f"{failed} of 40 dialogues failed: {failed} × " in text for text in listening.warnings)
    (command,) = suggest_next(run.manifest(), run.path)
    assert command.startswith("sweet eval"), "the others are there to go on with"
    assert advice(run.manifest()) is None


def refusal(text: str) -> RequestFailed:
    error = RequestFailed(text)
    error.is_refusal = True
    return error


def test_only_refusals_for_one_reason_from_the_start_are_hopeless() -> None:
    def counted(*errors: RequestFailed | str) -> Failures:
        failures = Failures()
        for error in errors:
            failures.add(error)
        return failures

    many = [refusal(f"no access, request {number}") for number in range(HOPELESS)]
    assert counted(*many).is_hopeless(0)
    assert not counted(*many).is_hopeless(1), "one succeeded"
    assert not counted(*many[1:]).is_hopeless(0), "too few"
    assert not counted(*many, refusal("filtered")).is_hopeless(0), "for several reasons"
    assert not counted(*many[1:], "no reply within 600 seconds").is_hopeless(0), "may pass"
    several = counted(*many, "late", "late", "slow", "lost", "last")
    assert several.summary() == f"{HOPELESS} × no access, request 0; 2 × late; 1 × slow; 2 other reasons"
