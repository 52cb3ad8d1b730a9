"""Dialogues under way are paused, limited and requeued from outside."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from sweet.humans.scripted import ScriptedHuman
from sweet.llm.base import Completion, Reply, RequestFailed, Sampling
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
from tests.stages.asking import ask, until

ANSWER = "I WANT TO ANSWER: def price(hours):\n    return 5 * hours"
QUESTION = "What is the rate?"
ASSIGNMENTS = [Assignment(TASK, sample, 0) for sample in range(4)]
IDS = [assignment.id for assignment in ASSIGNMENTS]

Say = Callable[[int, int], Coroutine[Any, Any, str]]
"""Returns the reply of an agent, by the sample and the number of the call of this dialogue's first turn."""


class Agent:
    """An agent whose replies a test decides, by the dialogue and by how often its first turn was played."""

    model = "agent"
    limiter = None

    def __init__(self, say: Say) -> None:
        self.say = say
        self.first_turns: dict[int, int] = {}
        self.calls = 0

    async def chat(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        self.calls += 1
        sample = next(a.sample for a in ASSIGNMENTS for turn in range(10) if a.turn_seed(turn) == sampling.seed)
        if len(messages) == 2:
            self.first_turns[sample] = self.first_turns.get(sample, 0) + 1
        text = await self.say(sample, self.first_turns[sample])
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
        live = LiveReporter(Silent(), attempt, ("concurrency", "requeue", *PAUSE))
        path = attempt.start_artifact("rollouts", resume=True).path
        with JsonlWriter(path) as writer, JsonlWriter(attempt.metrics_path) as log:
            finished = FinishedDialogues(scan_jsonl(path))
            runner = DialogueRunner(
                *(CodeKind(), rules(3), limit, 60.0, run.path, writer, log, finished, live),
                find=lambda id: next((a for a in ASSIGNMENTS if a.id == id), None),
            )
            missing = [a for a in ASSIGNMENTS[:count] if a.id not in finished.ids]
            asyncio.run(runner.play(missing, len(missing), agent, ScriptedHuman(CodeKind())))
        return runner


def rows(run: Run) -> list[str]:
    return [json.loads(line)["id"] for line in (run.path / "rollouts" / "rollouts-1.jsonl").read_text().splitlines()]


def log(run: Run, attempt: str = "rollout-1") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run.path / "logs" / f"{attempt}.jsonl").read_text().splitlines()]


def test_a_finished_dialogue_is_played_again_and_has_one_row(run: Run) -> None:
    answers: list[Answer] = []

    async def say(sample: int, time: int) -> str:
        if sample == 1:
            await until(lambda: IDS[0] in rows(run))
            answers.append(await ask(run, "rollout-1", "requeue", IDS[0]))
        return ANSWER if sample or time > 1 else f"{ANSWER} "

    agent = Agent(say)
    runner = play(run, agent, count=2)
    assert agent.first_turns == {0: 2, 1: 1}
    assert sorted(rows(run)) == IDS[:2]
    assert runner.finished.metrics(failed=0, seconds=1).episodes == 2
    assert answers == [Answer(number=1, text=f"{IDS[0]}, which was finished, is played again.")]
    (moved,) = log(run)
    assert (moved["requeued"], moved["row"]["id"]) == (IDS[0], IDS[0]), "the earlier row is in the log"


def test_a_dialogue_of_an_earlier_call_is_played_again(run: Run) -> None:
    async def at_once(sample: int, time: int) -> str:
        return ANSWER

    play(run, Agent(at_once), count=1)

    async def say(sample: int, time: int) -> str:
        if sample == 1:
            await ask(run, "rollout-2", "requeue", IDS[0])
        return ANSWER

    agent = Agent(say)
    play(run, agent, count=2)
    assert sorted(rows(run)) == IDS[:2]
    assert agent.first_turns == {0: 1, 1: 1}


def test_a_dialogue_under_way_is_played_again_from_its_start(run: Run) -> None:
    async def say(sample: int, time: int) -> str:
        if sample == 0 and time == 1:
            await asyncio.sleep(1000)  # until it is cancelled
        if sample == 1:
            assert not (await ask(run, "rollout-1", "requeue", IDS[0])).refused
        return ANSWER

    agent = Agent(say)
    play(run, agent, count=2)
    assert agent.first_turns == {0: 2, 1: 1}
    assert sorted(rows(run)) == IDS[:2]


def test_a_failed_dialogue_is_played_again_and_has_not_failed(run: Run) -> None:
    async def say(sample: int, time: int) -> str:
        if sample == 0 and time == 1:
            raise RequestFailed("no", where="http://127.0.0.1:1")
        if sample == 1:
            await until(lambda: bool(log(run)))
            assert not (await ask(run, "rollout-1", "requeue", IDS[0])).refused
        return ANSWER

    runner = play(run, Agent(say), count=2)
    assert sorted(rows(run)) == IDS[:2]
    assert runner.failed == set()


def test_what_cannot_be_requeued_or_set_is_refused(run: Run) -> None:
    answers: list[Answer] = []

    async def say(sample: int, time: int) -> str:
        if sample == 0:
            answers.append(await ask(run, "rollout-1", "requeue", "other"))
            answers.append(await ask(run, "rollout-1", "requeue", IDS[1]))
            answers.extend([await ask(run, "rollout-1", "concurrency", text) for text in ("0", "-1", "x", "9" * 99)])
        return ANSWER

    play(run, Agent(say), limit=1, count=2)
    assert [answer.refused for answer in answers] == [True] * 6
    assert "is no dialogue of this rollout" in answers[0].text
    assert "has not been played yet" in answers[1].text
    assert rows(run) == IDS[:2]


def test_no_turn_begins_in_a_pause(run: Run) -> None:
    seen: list[int] = []

    async def rest() -> None:
        await asyncio.sleep(0.3)
        seen.append(agent.calls)
        await ask(run, "rollout-1", "resume")

    async def say(sample: int, time: int) -> str:
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

    async def say(sample: int, time: int) -> str:
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

    async def say(sample: int, time: int) -> str:
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
                *(CodeKind(), rules(3), 1, 1.0, run.path, writer, failures, FinishedDialogues(), live),
                find=lambda id: None,
            )
            asyncio.run(runner.play(ASSIGNMENTS[:1], 1, Agent(say), ScriptedHuman(CodeKind())))
    assert (rows(run), runner.failed) == (IDS[:1], set())
