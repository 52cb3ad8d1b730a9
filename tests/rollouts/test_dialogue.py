"""A dialogue by itself: what is said, what ends it, what is recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweet.errors import UsageError
from sweet.humans.base import HumanReply, ReferenceFailed
from sweet.humans.scripted import ScriptedHuman
from sweet.llm.base import Completion, ContextOverflow, Reply, RequestFailed, Sampling
from sweet.rollouts.dialogue import NO_RESPONSE, Assignment, Dialogue, HumanFailed, Rules
from sweet.runs.run import Run
from sweet.stages.artifacts import agent_of
from sweet.tasks.base import NO_ANSWER, Fact, Message, ProtocolName, Task
from sweet.tasks.code.kind import CodeKind
from sweet.tasks.html.kind import HtmlKind
from sweet.tasks.trajectory import Trajectory
from tests.stages.learn_runs import put

TASK = Task(
    id="park-1",
    problem_description="Please price parking. The signature of the function is: def price(hours)",
    ground_truth="def price(hours):\n    return 5 * hours",
    test_cases={"test1": "price(2)"},
    facts=(Fact(topic="rate", cues=("rate", "per hour"), answer="It is 5 per hour."),),
)


class Lines:
    """An agent that says the given lines, one a turn, and keeps what it was asked."""

    model = "lines"

    def __init__(self, *lines: str | Exception) -> None:
        self.lines = list(lines)
        self.seen: list[list[Message]] = []
        self.samplings: list[Sampling] = []

    async def chat(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        self.seen.append(list(messages))
        self.samplings.append(sampling)
        line = self.lines[len(self.seen) - 1]
        if isinstance(line, Exception):
            raise line
        return Completion((Reply(line, "stop", (7, 8)),), prompt_tokens=10, completion_tokens=2, model=self.model)

    async def aclose(self) -> None:
        pass


class BrokenHuman:
    name = "broken"

    async def reply(self, task: Task, dialogue: Sequence[Message]) -> HumanReply:
        raise RequestFailed("refused", where="http://127.0.0.1:1")


class LineHuman:
    name = "line"

    def __init__(self, line: str) -> None:
        self.line = line

    async def reply(self, task: Task, dialogue: Sequence[Message]) -> HumanReply:
        return HumanReply(self.line)


class MuteHuman:
    name = "mute"

    async def reply(self, task: Task, dialogue: Sequence[Message]) -> HumanReply:
        return HumanReply("  ")


def rules(max_turns: int = 10, protocol: ProtocolName = "paper") -> Rules:
    return Rules(max_turns=max_turns, temperature=1.0, top_p=1.0, max_tokens=64, protocol=protocol)


def played(agent: Lines, max_turns: int = 10) -> Trajectory:
    return asyncio.run(
        Dialogue(Assignment(TASK, 0, 3), agent, ScriptedHuman(CodeKind()), CodeKind(), rules(max_turns)).play()
    )


def test_a_question_is_answered_and_the_answer_ends_it() -> None:
    agent = Lines("What is the rate?", "I WANT TO ANSWER: def price(hours): return 5 * hours")
    trajectory = played(agent)
    assert [turn.role for turn in trajectory.dialogue_history] == ["user", "assistant", "user", "assistant"]
    assert trajectory.dialogue_history[2].content == "It is 5 per hour."
    assert trajectory.outcome == "answered"
    assert trajectory.answer.strip() == "def price(hours): return 5 * hours"
    assert trajectory.dialogue_history[1].token_ids == (7, 8)
    assert (trajectory.usage.prompt_tokens, trajectory.usage.completion_tokens) == (20, 4)
    assert agent.seen[1][0].role == "system"
    heard = [message.content for message in agent.seen[1][1:]]
    assert heard == [TASK.problem_description, "What is the rate?", "It is 5 per hour."]


def test_the_agent_never_sees_the_hidden_information() -> None:
    agent = Lines("Tell me the reference?", "I WANT TO ANSWER: pass")
    played(agent)
    assert not any(TASK.ground_truth in message.content for messages in agent.seen for message in messages)


def test_a_thought_is_kept_but_not_heard() -> None:
    agent = Lines("I wonder.\nOUTPUT: What is the rate?", "I WANT TO ANSWER: pass")
    trajectory = played(agent)
    first = trajectory.dialogue_history[1]
    assert first.content.strip() == "What is the rate?"
    assert first.said.startswith("I wonder.")
    assert "wonder" not in agent.seen[1][-2].content


def test_the_last_turn_is_the_answer() -> None:
    trajectory = played(Lines("What is the rate?", "def price(hours): return 5"), max_turns=2)
    assert trajectory.outcome == "out_of_turns"
    assert trajectory.answer.strip() == "def price(hours): return 5"


PAGE = "<html><body><p>{}</p></body></html>"


@pytest.mark.parametrize(
    ("lines", "max_turns", "answer", "outcome"),
    [
        ((PAGE.format(1), f"I WANT TO ANSWER:\n{PAGE.format(2)}"), 9, PAGE.format(2), "answered"),
        ((PAGE.format(1), "I WANT TO ANSWER:"), 9, PAGE.format(1), "answered"),
        ((PAGE.format(1), PAGE.format(2), "Is it right?"), 3, PAGE.format(2), "out_of_turns"),
        ((PAGE.format(1), PAGE.format(2)), 2, PAGE.format(2), "out_of_turns"),
        (("What colour?", "How tall?"), 2, NO_ANSWER, "out_of_turns"),
        ((PAGE.format(1), ContextOverflow("too long")), 9, PAGE.format(1), "context_overflow"),
    ],
)
@pytest.mark.parametrize("protocol", ["paper", "upstream"])
def test_the_last_page_of_an_html_dialogue_counts(
    lines: tuple[str | Exception, ...], max_turns: int, answer: str, outcome: str, protocol: ProtocolName
) -> None:
    human = LineHuman("Larger.")
    dialogue = Dialogue(Assignment(TASK, 0, 0), Lines(*lines), human, HtmlKind(), rules(max_turns, protocol))
    trajectory = asyncio.run(dialogue.play())
    assert (trajectory.answer, trajectory.outcome) == (answer, outcome)


def test_context_overflow_ends_the_dialogue_with_its_own_outcome() -> None:
    trajectory = played(Lines("What is the rate?", ContextOverflow("too long")))
    assert (trajectory.outcome, trajectory.answer) == ("context_overflow", NO_ANSWER)
    assert trajectory.error is not None
    assert "too long" in trajectory.error
    assert len(trajectory.agent_turns) == 1


def test_a_human_that_says_nothing_is_the_humans_fault() -> None:
    trajectory = asyncio.run(Dialogue(Assignment(TASK, 0, 0), Lines("Rate?"), MuteHuman(), CodeKind(), rules()).play())
    assert trajectory.outcome == "human_error"


def test_a_failing_human_fails_the_dialogue_unless_upstream() -> None:
    with pytest.raises(HumanFailed, match="refused"):
        asyncio.run(Dialogue(Assignment(TASK, 0, 0), Lines("Rate?"), BrokenHuman(), CodeKind(), rules()).play())
    agent = Lines("Rate?", "I WANT TO ANSWER: pass")
    trajectory = asyncio.run(
        Dialogue(Assignment(TASK, 0, 0), agent, BrokenHuman(), CodeKind(), rules(protocol="upstream")).play()
    )
    assert trajectory.dialogue_history[2].content == NO_RESPONSE


@given(st.integers(0, 50), st.integers(0, 2**40), st.integers(0, 10))
def test_seeds_depend_on_the_name_alone(sample: int, seed: int, turn: int) -> None:
    one = Assignment(TASK, sample, seed)
    assert one.turn_seed(turn) == Assignment(TASK, sample, seed).turn_seed(turn)
    assert one.turn_seed(turn) != one.turn_seed(turn + 1)
    assert 0 <= one.turn_seed(turn) < 2**31
    assert one.id != Assignment(TASK, sample + 1, seed).id


@pytest.mark.parametrize(("limit", "turns"), [(11, 1), (12, 1), (13, 2), (24, 2), (25, 3)])
def test_a_dialogue_that_costs_at_least_the_limit_ends_without_an_answer(limit: int, turns: int) -> None:
    """A turn costs 12 tokens here, and the scripted human none."""
    limited = Rules(max_turns=9, temperature=1.0, top_p=1.0, max_tokens=64, protocol="paper", token_limit=limit)
    agent = Lines("Rate?", "Per hour?", "More?")
    trajectory = asyncio.run(
        Dialogue(Assignment(TASK, 0, 0), agent, ScriptedHuman(CodeKind()), CodeKind(), limited).play()
    )
    assert (trajectory.outcome, trajectory.answer) == ("token_limit", NO_ANSWER)
    assert len(trajectory.agent_turns) == turns
    assert trajectory.error == f"it used at least {limit} tokens"


class EchoingHuman:
    name = "echo"

    async def reply(self, task: Task, dialogue: Sequence[Message]) -> HumanReply:
        return HumanReply(dialogue[-1].content, fault="echo")


@pytest.mark.parametrize(("protocol", "outcome"), [("paper", "human_error"), ("upstream", "answered")])
def test_what_the_human_does_wrong_ends_the_dialogue_unless_it_is_the_published_way(
    protocol: ProtocolName, outcome: str
) -> None:
    agent = Lines("What is the rate?", "I WANT TO ANSWER: x")
    dialogue = Dialogue(Assignment(TASK, 0, 0), agent, EchoingHuman(), CodeKind(), rules(protocol=protocol))
    trajectory = asyncio.run(dialogue.play())
    assert (trajectory.outcome, trajectory.fault) == (outcome, "echo" if outcome == "human_error" else None)
    assert trajectory.dialogue_history[2].content == "What is the rate?", "it stays to be read"


class BlindHuman:
    name = "blind"

    async def reply(self, task: Task, dialogue: Sequence[Message]) -> HumanReply:
        raise ReferenceFailed("The page in mind cannot be rendered: it hangs.", where=f"task {task.id}")


def test_a_reference_that_nobody_can_see_is_no_failure_to_try_again() -> None:
    agent = Lines("What is the rate?", "I WANT TO ANSWER: x")
    dialogue = Dialogue(Assignment(TASK, 0, 0), agent, BlindHuman(), CodeKind(), rules())
    trajectory = asyncio.run(dialogue.play())
    assert (trajectory.outcome, trajectory.fault) == ("human_error", "reference")
    assert "it hangs" in str(trajectory.error)
    assert [turn.role for turn in trajectory.dialogue_history] == ["user", "assistant"]


def test_the_published_code_goes_on_without_a_reference() -> None:
    agent = Lines("What is the rate?", "I WANT TO ANSWER: x")
    dialogue = Dialogue(Assignment(TASK, 0, 0), agent, BlindHuman(), CodeKind(), rules(protocol="upstream"))
    trajectory = asyncio.run(dialogue.play())
    assert (trajectory.outcome, trajectory.dialogue_history[2].content) == ("answered", NO_RESPONSE)


@pytest.mark.parametrize("agent", ["scripted", "imported"])
def test_an_agent_that_is_no_model_to_go_on_from(tmp_path: Path, agent: str) -> None:
    run = Run.create(tmp_path / "run", "html")
    scripted = put(run, "rollout", "rollouts", [], agent=agent)
    with pytest.raises(UsageError, match="no model") as error:
        agent_of(run, scripted, "model")
    assert str(error.value.fix) == "--model MODEL"
    assert agent_of(run, put(run, "rollout", "rollouts", [], agent="org/model"), "model") == "org/model"
    assert agent_of(run, put(run, "data", "rollouts", []), "model") == "micro"
