"""Dialogues whose agent thinks: what the human sees, what ends them, what the agent reads again, what is counted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweet.errors import UsageError
from sweet.humans.base import HumanReply
from sweet.humans.scripted import ScriptedHuman
from sweet.llm.base import Completion, Reply, Sampling
from sweet.llm.embedded import EmbeddedClient
from sweet.llm.listening import listening
from sweet.llm.server import make_app
from sweet.llm.template import ChatTemplate
from sweet.llm.thoughts import separate, without_thought
from sweet.rollouts.config import RolloutConfig
from sweet.rollouts.dialogue import Assignment, Dialogue, Rules
from sweet.rollouts.stage import run_rollout
from sweet.runs.jsonl import read_jsonl
from sweet.runs.run import Run
from sweet.stages.artifacts import agent_system
from sweet.stages.base import Silent
from sweet.tasks.base import NO_ANSWER, Message, Task
from sweet.tasks.code.kind import CodeKind
from sweet.tasks.html.kind import HtmlKind
from sweet.tasks.kind import TaskKind
from sweet.tasks.markers import ANSWER_MARKER, OUTPUT_MARKER
from sweet.tasks.trajectory import Thoughts, Trajectory
from tests.llm.thinking_models import thinking_client
from tests.rollouts.test_dialogue import TASK


class Thinker:
    """An agent whose raw replies are separated as those of a server; keeps what it read and what it was asked."""

    model = "thinker"

    def __init__(self, *replies: str | Reply) -> None:
        self.replies = list(replies)
        self.seen: list[list[Message]] = []
        self.samplings: list[Sampling] = []

    async def chat(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        self.seen.append(list(messages))
        self.samplings.append(sampling)
        reply = self.replies[len(self.seen) - 1]
        if isinstance(reply, str):
            reply = without_thought(Reply(reply, "stop"))
        return Completion((reply,), 10, 9, self.model, (len(self.seen),), thought_tokens=7 if reply.thought else 0)

    async def aclose(self) -> None:
        pass


class Listener:
    """A human that keeps what it was shown."""

    name = "listener"

    def __init__(self) -> None:
        self.heard: list[list[Message]] = []

    async def reply(self, task: Task, dialogue: Sequence[Message]) -> HumanReply:
        self.heard.append(list(dialogue))
        return HumanReply("It is 5 per hour.")


def rules(max_turns: int = 4, thoughts: Thoughts = "drop", **more: object) -> Rules:
    made = Rules(max_turns, temperature=1.0, top_p=1.0, max_tokens=64, protocol="paper", thoughts=thoughts)
    return replace(made, **more)  # type: ignore[arg-type]


def played(agent: Thinker, rules_: Rules, human: Listener | None = None, kind: TaskKind | None = None) -> Trajectory:
    dialogue = Dialogue(Assignment(TASK, 0, 3), agent, human or Listener(), kind or CodeKind(), rules_)
    return asyncio.run(dialogue.play())


THOUGHT = f"I could say {ANSWER_MARKER} or {OUTPUT_MARKER} but I do not know."
ASKS, ANSWERS = f"<think>\n{THOUGHT}\n</think>\n\nWhat is the rate?", f"hm\n</think>\n\n{ANSWER_MARKER} pass"


@pytest.mark.parametrize("thoughts", ["drop", "keep"])
def test_a_thought_is_neither_seen_nor_read_for_markers(thoughts: Thoughts) -> None:
    agent, human = Thinker(ASKS, ANSWERS), Listener()
    trajectory = played(agent, rules(thoughts=thoughts), human)
    first, last = (trajectory.dialogue_history[index] for index in trajectory.agent_turns)
    assert (first.content, first.output, first.thought) == ("What is the rate?", "What is the rate?", THOUGHT)
    assert (last.thought, trajectory.answer.strip(), trajectory.outcome) == ("hm", "pass", "answered")
    assert not any("do not know" in str(message) for heard in human.heard for message in heard)
    kept = [message.thought for message in agent.seen[1]]
    assert kept == [None, None, THOUGHT if thoughts == "keep" else None, None]
    assert trajectory.observation(3, agent.seen[0][0].content) == agent.seen[1]
    assert trajectory.thoughts == ("keep" if thoughts == "keep" else None)
    assert (trajectory.usage.thought_tokens, trajectory.usage.unfinished_thoughts) == (14, 0)
    assert [trajectory.prompt_ids(index) for index in trajectory.agent_turns] == [(1,), (2,)]


@settings(deadline=None)
@given(st.text(max_size=30), st.booleans())
def test_no_thought_ends_a_dialogue(text: str, opened: bool) -> None:
    thought = f"{ANSWER_MARKER}{text}\n{OUTPUT_MARKER}".replace("</think>", "").replace("<think>", "")
    reply = ("<think>" if opened else "") + thought + "</think>What is the rate?"
    trajectory = played(Thinker(reply, ANSWERS), rules())
    assert [turn.role for turn in trajectory.dialogue_history] == ["user", "assistant", "user", "assistant"]
    first = trajectory.dialogue_history[1]
    assert first.content == "What is the rate?"
    assert first.thought == (separate(reply).thought or "").strip()


SPENT = Reply("", "length", (1, 2, 3), thought="I do not know", thought_tokens=3)


def test_a_turn_spent_by_thinking_says_nothing_and_the_dialogue_goes_on() -> None:
    human = Listener()
    trajectory = played(Thinker(SPENT, ANSWERS), rules(), human)
    spent = trajectory.dialogue_history[1]
    assert (spent.content, spent.output, spent.thought, spent.thought_tokens) == ("", "", "I do not know", 3)
    assert human.heard[0][-1] == Message(role="assistant", content="")
    assert (trajectory.outcome, trajectory.usage.unfinished_thoughts) == ("answered", 1)


@pytest.mark.parametrize("kind", [CodeKind(), HtmlKind()])
def test_a_last_turn_spent_by_thinking_is_no_answer(kind: TaskKind) -> None:
    trajectory = played(Thinker(SPENT, SPENT), rules(2), kind=kind)
    assert (trajectory.answer, trajectory.outcome) == (NO_ANSWER, "out_of_turns")
    assert trajectory.usage.unfinished_thoughts == 2


def test_tokens_of_thoughts_come_on_top_of_those_of_replies() -> None:
    agent = Thinker(ANSWERS)
    played(agent, rules(max_thought_tokens=100, effort="low"))
    [sampling] = agent.samplings
    assert (sampling.max_tokens, sampling.max_thought_tokens, sampling.effort) == (164, 100, "low")


def test_the_scripted_human_answers_what_was_said_not_what_was_thought() -> None:
    dialogue = Dialogue(
        Assignment(TASK, 0, 3),
        Thinker("<think>What is the rate per hour?</think>Is there a limit?", ANSWERS),
        ScriptedHuman(CodeKind()),
        CodeKind(),
        rules(),
    )
    assert asyncio.run(dialogue.play()).dialogue_history[2].content != "It is 5 per hour."


class Log(Silent):
    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warn(self, text: str) -> None:
        self.warnings.append(text)


@contextmanager
def served(client: EmbeddedClient) -> Iterator[str]:
    """The URL of this program's server of a client, on a thread of its own."""
    ready: Queue[str] = Queue()
    over: list[Callable[[], object]] = []

    async def serve() -> None:
        stop = asyncio.Event()
        over.append(partial(asyncio.get_running_loop().call_soon_threadsafe, stop.set))
        async with listening(make_app(client), "127.0.0.1", 0) as url:
            ready.put(url)
            await stop.wait()

    thread = Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    try:
        yield ready.get(timeout=60)
    finally:
        over[0]()
        thread.join()


def test_a_rollout_of_a_model_that_thinks(tmp_path: Path) -> None:
    """From a saved model to rows and metrics; and the same dialogues behind this program's server."""
    client = thinking_client("opening")
    folder, tasks = tmp_path / "model", tmp_path / "tasks.jsonl"
    client.tokenizer.save_pretrained(folder)
    engine: Any = client.engine
    engine.decoder.model.save_pretrained(folder)
    tasks.write_text(TASK.model_dump_json() + "\n")
    settings = {"tasks": str(tasks), "max_turns": 3, "max_tokens": 12, "max_thought_tokens": 4, "samples": 2}
    given = {**settings, "device": "cpu", "local_engine": "embedded", "effort": "high", "split": "train"}
    run, log = Run.create(tmp_path / "run", "code"), Log()
    result = run_rollout(run, RolloutConfig(agent=str(folder), **given), log)
    try:
        with served(client) as url:
            config = RolloutConfig(agent="tiny", agent_url=[url], **given)
            second = run_rollout(Run.create(tmp_path / "other", "code"), config, log)
    finally:
        client.engine.close()
    by_id = attrgetter("id")
    rows = sorted(read_jsonl(run.file(result.artifacts[0]), Trajectory), key=by_id)
    others = sorted(read_jsonl(second.run / second.artifacts[0].path, Trajectory), key=by_id)
    turns = [turn for row in rows for turn in row.dialogue_history if turn.role == "assistant"]
    template, system = ChatTemplate(client.tokenizer), agent_system(run, result.artifacts[0])
    for row, other in zip(rows, others, strict=True):
        assert row.dialogue_history == other.dialogue_history
        for index in row.agent_turns:
            read = template.ids(row.observation(index, system), "high")
            assert row.prompt_ids(index) == tuple(read), "the prompt of every turn is that which the agent read"
    for turn in turns:
        assert turn.thought is not None
        assert turn.token_ids is not None
        assert turn.thought_tokens is not None
        assert "</think>" not in turn.content
        assert 0 < turn.thought_tokens <= len(turn.token_ids) <= 16
    thoughts = result.metrics.thoughts
    assert thoughts is not None
    assert thoughts.thought_turns == len(turns)
    assert thoughts.thought_tokens == sum(turn.thought_tokens or 0 for turn in turns)
    assert result.artifacts[0].meta["max_thought_tokens"] == 4
    assert any("does not tell --effort from its default" in text for text in log.warnings)


def test_thoughts_that_a_template_removes_cannot_be_kept(tmp_path: Path) -> None:
    client = thinking_client("opening")
    client.tokenizer.save_pretrained(tmp_path / "model")
    engine: Any = client.engine
    engine.decoder.model.save_pretrained(tmp_path / "model")
    engine.close()
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text(TASK.model_dump_json() + "\n")
    config = RolloutConfig(
        agent=str(tmp_path / "model"),
        tasks=str(tasks),
        local_engine="embedded",
        device="cpu",
        thoughts="keep",
        max_tokens=4,
    )
    with pytest.raises(UsageError, match="removes thoughts from the history"):
        run_rollout(Run.create(tmp_path / "run", "code"), config, Silent())
