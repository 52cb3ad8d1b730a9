"""The data types of a task and of the messages, moves and credits in a dialogue about it.

A task is one problem with hidden information. The agent sees only its `problem_description`; the simulated human and
the critic also see `hidden`, the training-time information c of the paper (section 4.1). `sweet.tasks.kind` defines
what the kinds of task (`code`, `html`, plug-ins) do with it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

NO_ANSWER = "No answer"
"""The answer of a dialogue in which the agent delivered none (the original protocol's text)."""

SPECIFICATION = "specification"
"""The key of a task's row with what its reference does, in plain words."""

PART_LINES = "part_lines"
"""The key of a task's row with the number of lines that one reply delivers at most (`sweet.tasks.parts`)."""

HumanSees = Literal["code", "spec"]
"""What a model that plays the human knows a task by: its reference, or its specification."""

ProtocolName = Literal["paper", "upstream"]
"""`paper`: as the paper describes it. `upstream`: bug-compatible with the published code, for comparing numbers."""

ReferenceContext = Literal["hidden", "dialogue"]
"""What the reference model of a critic reads before a reply: the training-time information c and the dialogue, or the
dialogue alone."""

TurnTokens = Literal["both", "reply", "separate"]
"""Which tokens of a turn are supervised, or averaged over: those of thought and reply, of the reply alone, or of each
by itself, so that either is half of the turn. Without a thought the three are the same."""

CRITIC_TURN_TOKENS: TurnTokens = "separate"
"""What the mean of a critic's log-ratios runs over where nothing else is asked for. A long thought would leave the
reply no weight in a mean over both. In the reply alone little is left to judge: after the thought that decided it, it
is nearly certain, with the training-time information as without."""


def reference_context_of(protocol: ProtocolName) -> ReferenceContext:
    """What the reference reads in a protocol where nothing else is asked for: in `upstream` the dialogue alone."""
    return "dialogue" if protocol == "upstream" else "hidden"


def is_none(value: object) -> bool:
    """Return whether a field is None: one that is then left out of the rows that are written (`exclude_if`)."""
    return value is None


class Fact(BaseModel):
    """One piece of information that the scripted human gives when it is asked.

    Attributes:
        topic: a short name, unique in its task.
        cues: words or phrases; a question that contains one of them (whole words, any case) asks for this fact.
        answer: the sentence that the human says.
        line: the line of the reference that implements the fact, if it is a single line and is known.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    topic: str = Field(min_length=1)
    cues: tuple[Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)], ...]
    answer: str = Field(min_length=1)
    line: str | None = None


class Task(BaseModel):
    """One problem, in the published schema of ColBench plus an id and, for generated tasks, facts."""

    model_config = ConfigDict(frozen=True, extra="allow")

    id: str = Field(min_length=1)
    problem_description: str = Field(min_length=1)
    ground_truth: str = Field(min_length=1)
    test_cases: dict[str, str] = Field(default_factory=dict)
    hidden_information: str = ""
    facts: tuple[Fact, ...] = ()

    @property
    def hidden(self) -> str:
        """The training-time information c."""
        return self.hidden_information or self.ground_truth

    @property
    def specification(self) -> str:
        """What the reference does, in plain words (`sweet data describe`); empty if the task has none."""
        text = (self.model_extra or {}).get(SPECIFICATION)
        return text if isinstance(text, str) else ""

    @property
    def part_lines(self) -> int:
        """The lines of the answer that one reply delivers at most; 0 if the answer is not built in parts."""
        lines = (self.model_extra or {}).get(PART_LINES)
        return lines if isinstance(lines, int) else 0


RewardName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]

Rewards = Mapping[RewardName, Annotated[float, Field(ge=-1e6, le=1e6, allow_inf_nan=False)]]
"""The rewards of one turn of the agent beside the outcome of its dialogue, by name."""

TurnRewards = Mapping[int, Rewards]
"""The rewards of turns by index into `dialogue_history`; turns without any are missing."""


class Tool(BaseModel):
    """A tool as it is told to a model.

    Attributes:
        parameters: the JSON Schema of the object of its arguments.
    """

    model_config = ConfigDict(frozen=True)

    name: str = Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")
    description: str = ""
    parameters: dict[str, Any] = {"type": "object", "properties": {}}

    def row(self) -> dict[str, Any]:
        """Return the tool as OpenAI's API and chat templates have it."""
        return {"type": "function", "function": self.model_dump(mode="json")}


class ToolCall(BaseModel):
    """A call that an agent makes.

    Attributes:
        id: names the call in its dialogue; its result has it too. A dialogue gives one to a call without.
        arguments: as the model wrote them: JSON, unless the model made a mistake. They are never repaired.
    """

    model_config = ConfigDict(frozen=True)

    id: str = ""
    name: str
    arguments: str

    @classmethod
    def of(cls, name: str, /, **arguments: Any) -> Self:
        """Return a call with these arguments, as a scripted agent makes it."""
        return cls(name=name, arguments=json.dumps(arguments, ensure_ascii=False))

    def row(self) -> dict[str, Any]:
        """Return the call as OpenAI's API has it."""
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": self.arguments}}


def with_calls(text: str, calls: Iterable[ToolCall] | None) -> str:
    """Return what the agent says with the calls that it makes, as text for judges, people and comparisons."""
    return "\n".join(filter(None, [text, *(f"{call.name}({call.arguments})" for call in calls or ())]))


class Message(BaseModel):
    """One chat message in the format of OpenAI-compatible servers and of chat templates.

    Attributes:
        thought: what the agent thought before it said `content`, on its messages in a history that keeps thoughts.
        tool_calls: that the agent makes beside `content`.
        tool_call_id: on a tool's message, the call that it answers.
    """

    model_config = ConfigDict(frozen=True)

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    thought: str | None = Field(default=None, exclude_if=is_none)
    tool_calls: tuple[ToolCall, ...] | None = Field(default=None, exclude_if=is_none)
    tool_call_id: str | None = Field(default=None, exclude_if=is_none)

    @property
    def whole(self) -> str:
        """What is said with the calls that are made, as text."""
        return with_calls(self.content, self.tool_calls)


def spoken(messages: Iterable[Message]) -> list[Message]:
    """Return what the agent and the human have said to each other, without system prompts, thoughts, and the calls of
    tools with their results."""
    turns = (m for m in messages if m.role in ("user", "assistant") and not m.tool_calls)
    return [m.model_copy(update={"thought": None}) if m.thought else m for m in turns]


def is_last_turn(messages: Iterable[Message], max_turns: int) -> bool:
    """Return whether the agent's next message to the human is the last that it may send."""
    return sum(message.role == "assistant" for message in spoken(messages)) + 1 >= max_turns


def chat_rows(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Return messages as OpenAI's API and chat templates have them, without thoughts."""
    rows = []
    for message in messages:
        row: dict[str, Any] = {"role": message.role, "content": message.content}
        if message.tool_calls:
            row["tool_calls"] = [call.row() for call in message.tool_calls]
        if message.tool_call_id is not None:
            row["tool_call_id"] = message.tool_call_id
        rows.append(row)
    return rows


@dataclass(frozen=True)
class Move:
    """A parsed reply of the agent.

    Attributes:
        content: the part that the human sees.
        answer: the answer that the reply delivers, or None; a later answer supersedes it.
        ends: whether the reply ends the dialogue; otherwise the last turn does.
    """

    content: str
    answer: str | None
    ends: bool


@dataclass(frozen=True)
class Credit:
    """The value of one reply according to the task itself, independent of any critic.

    Attributes:
        kind: a name for this sort of reply, chosen by the task kind.
        value: higher is better; comparable between replies to the same observation.
    """

    kind: str
    value: float


def with_hidden(messages: Sequence[Message], hidden: str) -> list[Message]:
    """Return the messages with the training-time information c at the beginning of the first user message.

    c is inside the chat template, where every model expects text; the published code puts it before the
    begin-of-text token (protocol `upstream` does so too, see sweet.learn).
    """
    index = next(i for i, message in enumerate(messages) if message.role == "user")
    first = messages[index]
    informed = Message(role="user", content=f"The reference solution is:\n{hidden}\n\n{first.content}")
    return [*messages[:index], informed, *messages[index + 1 :]]
