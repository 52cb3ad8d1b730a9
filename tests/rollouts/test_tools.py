"""Tools in a dialogue: calls are made, checked and bounded, and the human sees none of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from sweet.humans.base import HumanReply
from sweet.llm.base import Completion, Reply, Sampling
from sweet.rollouts.dialogue import Assignment, Dialogue, Rules
from sweet.rollouts.steps import Steps
from sweet.tasks.base import Message, Task
from sweet.tasks.code.kind import CodeKind
from sweet.tasks.scores import AnswerScorer, ScoringRequest
from sweet.tasks.toolboxes.functions import FunctionTools, tool_of
from sweet.tasks.tools import Toolbox, ToolCall, ToolResult
from sweet.tasks.trajectory import Trajectory

TASK = Task(id="t-1", problem_description="Please lend me Emma.", ground_truth="Emma", test_cases={})
BOOKS = {"Emma": {"lent_to": None}, "Ulysses": {"lent_to": "Ann"}}


def find(books: dict[str, Any], *, title: str) -> object:
    """Look a book up by its title."""
    if title not in books:
        raise ValueError(f"there is no book {title!r}")
    return books[title]


def lend(books: dict[str, Any], *, title: str, to: Literal["Ann", "Bob"] = "Bob") -> str:
    """Lend a book."""
    books[title]["lent_to"] = to
    return "lent"


class Library(CodeKind):
    """Lends books."""

    name = "library"
    functions: tuple[Any, ...] = (find, lend)

    def toolbox(self, task: Task) -> Toolbox | None:
        return FunctionTools(BOOKS, self.functions)

    @contextmanager
    def open_scorer(self, request: ScoringRequest) -> Iterator[AnswerScorer]:
        raise NotImplementedError


class Agent:
    """Replies with the given texts and calls in turn, and keeps what it was asked."""

    model = "given"

    def __init__(self, *replies: str | Sequence[ToolCall] | Reply) -> None:
        self.replies, self.seen, self.samplings = replies, [], []  # type: ignore[var-annotated]

    async def chat(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        self.seen.append(list(messages))
        self.samplings.append(sampling)
        said = self.replies[min(len(self.seen), len(self.replies)) - 1]
        if isinstance(said, str):
            said = Reply(said, "stop")
        elif not isinstance(said, Reply):
            said = Reply("", "stop", tool_calls=tuple(said))
        return Completion((said,), prompt_tokens=10, completion_tokens=2, model=self.model)

    async def aclose(self) -> None:
        pass


class Human:
    name = "keeps"

    def __init__(self) -> None:
        self.heard: list[list[Message]] = []

    async def reply(self, task: Task, dialogue: Sequence[Message]) -> HumanReply:
        self.heard.append(list(dialogue))
        return HumanReply("Yes, for Bob.")


def rules(max_turns: int = 3, token_limit: int | None = None) -> Rules:
    return Rules(max_turns, 1.0, 1.0, 64, "paper", token_limit)


def play(
    agent: Any, kind: CodeKind | None = None, human: Human | None = None, steps: Steps | None = None, **given: int
) -> Trajectory:
    dialogue = Dialogue(Assignment(TASK, 0, 0), agent, human or Human(), kind or Library(), rules(**given), steps=steps)
    return asyncio.run(dialogue.play())


FIND, LEND = ToolCall.of("find", title="Emma"), ToolCall.of("lend", title="Emma", to="Bob")
ANSWER = "I WANT TO ANSWER: lent"


def test_calls_are_made_before_a_message_and_the_human_hears_none() -> None:
    agent, human = Agent([FIND, ToolCall.of("find", title="Emil")], "For whom?", [LEND], [FIND], ANSWER), Human()
    trajectory = play(agent, human=human, max_turns=2)
    turns = trajectory.dialogue_history
    roles = ["user", "assistant", "tool", "tool", "assistant", "user", "assistant", "tool", "assistant", "tool"]
    assert [turn.role for turn in turns] == [*roles, "assistant"]
    assert [turn.content for turn in turns if turn.role == "tool"] == [
        '{"lent_to": null}',
        "Error: there is no book 'Emil'",
        "lent",
        '{"lent_to": "Bob"}',
    ]
    assert [turn.is_error for turn in turns if turn.role == "tool"] == [None, True, None, None]
    calls = [call for turn in turns for call in turn.tool_calls or ()]
    assert [call.id for call in calls] == [turn.tool_call_id for turn in turns if turn.role == "tool"]
    assert len({call.id for call in calls}) == 4
    heard = [[message.content for message in dialogue] for dialogue in human.heard]
    assert heard == [[TASK.problem_description, "For whom?"]]
    assert trajectory.tool_state == {"Emma": {"lent_to": "Bob"}, "Ulysses": {"lent_to": "Ann"}}
    assert BOOKS["Emma"] == {"lent_to": None}
    assert trajectory.tools == (tool_of(find), tool_of(lend)) == agent.samplings[0].tools
    assert (trajectory.outcome, trajectory.answer.strip()) == ("answered", "lent")
    assert (trajectory.usage.tool_calls, trajectory.usage.tool_errors) == (4, 1)
    assert len({sampling.seed for sampling in agent.samplings}) == 5
    assert [message.role for message in agent.seen[1]] == ["system", "user", "assistant", "tool", "tool"]


def test_the_tool_of_a_function() -> None:
    tool = tool_of(lend)
    assert (tool.name, tool.description) == ("lend", "Lend a book.")
    assert tool.parameters == {
        "type": "object",
        "properties": {
            "title": {"type": "string"},
            "to": {"type": "string", "enum": ["Ann", "Bob"], "default": "Bob"},
        },
        "required": ["title"],
        "additionalProperties": False,
    }


def test_rewards_of_calls_are_those_of_the_turn_that_makes_them() -> None:
    def reward(books: dict[str, Any], *, of: float) -> ToolResult:
        """Give a reward."""
        return ToolResult(content="", rewards={"found": of})

    kind = Library()
    kind.functions = (reward,)
    calls = [ToolCall.of("reward", of=0.5), ToolCall.of("reward", of=0.25)]
    assert play(Agent(calls, ANSWER), kind).dialogue_history[1].rewards == {"found": 0.75}
