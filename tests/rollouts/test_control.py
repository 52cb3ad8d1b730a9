"""Dialogues under way are paused and limited from outside."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from sweet.humans.scripted import ScriptedHuman
from sweet.llm.base import Completion, Reply, Sampling
from sweet.rollouts.dialogue import Assignment
from sweet.rollouts.runner import DialogueRunner, FinishedDialogues
from sweet.runs.jsonl import JsonlWriter, scan_jsonl
from sweet.runs.progress import Answer
from sweet.runs.run import Run
from sweet.stages.base import Silent, StageConfig
from sweet.stages.live import PAUSE, LiveReporter
from sweet.tasks.base import Message
from sweet.tasks.code.kind import CodeKind
from tests.rollouts.test_dialogue import TASK, rules
from tests.stages.asking import ask

ANSWER = "I WANT TO ANSWER: def price(hours):\n    return 5 * hours"
QUESTION = "What is the rate?"
ASSIGNMENTS = [Assignment(TASK, sample, 0) for sample in range(4)]
IDS = [assignment.id for assignment in ASSIGNMENTS]

Say = Callable[[int], Coroutine[Any, Any, str]]
"""Returns the reply of an agent, by the sample."""


class Agent:
    """An agent whose replies a test decides, by the dialogue."""

    model = "agent"

    def __init__(self, say: Say) -> None:
        self.say = say
        self.calls = 0

    async def chat(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        self.calls += 1
        sample = next(a.sample for a in ASSIGNMENTS for turn in range(10) if a.turn_seed(turn) == sampling.seed)
        text = await self.say(sample)
        return Completion((Reply(text, "stop"),), prompt_tokens=1, completion_tokens=1, model=self.model)

    async def aclose(self) -> None:
        pass


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweet.stages.live.POLL_SECONDS", 0.01)
    monkeypatch.setattr("sweet.rollouts.runner.POLL_SECONDS", 0.01)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "run")


def play(run: Run, agent: Agent, *, limit: int = 4, count: int = 4) -> DialogueRunner:
    """Play the first dialogues in an attempt."""
    with run.attempt("rollout", StageConfig()) as attempt:
        live = LiveReporter(Silent(), attempt, ("concurrency", *PAUSE))
        path = attempt.start_artifact("rollouts", resume=True).path
        with JsonlWriter(path) as writer, JsonlWriter(attempt.metrics_path) as log:
            finished = FinishedDialogues(scan_jsonl(path))
            runner = DialogueRunner(
                *(CodeKind(), rules(3), limit, 60.0, writer, log, finished, live),
            )
            missing = [a for a in ASSIGNMENTS[:count] if a.id not in finished.ids]
            asyncio.run(runner.play(missing, len(missing), agent, ScriptedHuman(CodeKind())))
        return runner


def rows(run: Run) -> list[str]:
    return [json.loads(line)["id"] for line in (run.path / "rollouts" / "rollouts-1.jsonl").read_text().splitlines()]


def test_what_is_no_limit_is_refused(run: Run) -> None:
    answers: list[Answer] = []

    async def say(sample: int) -> str:
        if sample == 0:
            answers.extend([await ask(run, "rollout-1", "concurrency", text) for text in ("0", "-1", "x", "9" * 99)])
        return ANSWER

    play(run, Agent(say), limit=1, count=2)
    assert [answer.refused for answer in answers] == [True] * 4
    assert rows(run) == IDS[:2]


def test_no_turn_begins_in_a_pause(run: Run) -> None:
    seen: list[int] = []

    async def rest() -> None:
        await asyncio.sleep(0.3)
        seen.append(agent.calls)
        await ask(run, "rollout-1", "resume")

    async def say(sample: int) -> str:
        if not resting:
            resting.append(asyncio.create_task(rest()))
            await ask(run, "rollout-1", "pause")
            return QUESTION
        return ANSWER

    resting: list[asyncio.Task[None]] = []
    agent = Agent(say)
    play(run, agent, limit=1)
    assert seen == [1], "neither the next turn nor another dialogue has begun"
    assert sorted(rows(run)) == IDS
    assert agent.calls == 5


def test_the_limit_is_raised_while_dialogues_are_played(run: Run) -> None:
    under_way: list[int] = []
    all_at_once = asyncio.Event()

    async def say(sample: int) -> str:
        under_way.append(sample)
        if sample == 0:
            assert under_way == [0]
            assert (await ask(run, "rollout-1", "concurrency", "4")).text == "At most 4 dialogues at once."
        if len(under_way) == 4:
            all_at_once.set()
        await all_at_once.wait()
        return ANSWER

    play(run, Agent(say), limit=1)
    assert sorted(rows(run)) == IDS


def test_a_pause_does_not_count_for_the_deadline(run: Run) -> None:
    async def resume() -> None:
        await asyncio.sleep(1.3)
        await ask(run, "rollout-1", "resume")

    async def say(sample: int) -> str:
        if not tasks:
            tasks.append(asyncio.create_task(resume()))
            await ask(run, "rollout-1", "pause")
            return QUESTION
        return ANSWER

    tasks: list[asyncio.Task[None]] = []
    with run.attempt("rollout", StageConfig()) as attempt:
        live = LiveReporter(Silent(), attempt, PAUSE)
        path = attempt.start_artifact("rollouts").path
        with JsonlWriter(path) as writer, JsonlWriter(attempt.metrics_path) as failures:
            runner = DialogueRunner(
                *(CodeKind(), rules(3), 1, 1.0, writer, failures, FinishedDialogues(), live),
            )
            asyncio.run(runner.play(ASSIGNMENTS[:1], 1, Agent(say), ScriptedHuman(CodeKind())))
    assert (rows(run), runner.failures.count) == (IDS[:1], 0)
