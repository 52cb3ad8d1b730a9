"""What a task is, and the words of a dialogue about it.

A task is one problem with hidden information. The agent sees its `problem_description` and nothing else of it; the
simulated human and the critic also see `hidden`, the training-time information c of the paper (section 4.1).
What a kind of task (`code`, `html`, that of a package) makes of it, says `sweet.tasks.kind`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

NO_ANSWER = "No answer"
"""The answer of a dialogue in which the agent delivered none (the original protocol's word)."""

Recipe = Literal["paper", "upstream"]
"""`paper`: as the paper describes it. `upstream`: bug-compatible with the published code, for comparing numbers."""


class Fact(BaseModel):
    """One thing the scripted human can tell.

    Attributes:
        topic: a short name, unique in its task.
        cues: words or phrases; a question that contains one of them (whole words, any case) asks for this fact.
        answer: the sentence the human says.
        line: the line of the reference that follows from it, where it is one and is known.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    topic: str = Field(min_length=1)
    cues: tuple[str, ...]
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


class Message(BaseModel):
    """One chat message, as OpenAI-compatible servers and chat templates take it."""

    model_config = ConfigDict(frozen=True)

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True)
class Move:
    """What a raw reply of the agent means in the dialogue.

    Attributes:
        content: what the human sees.
        answer: the delivered answer, where the reply delivers one; a later one supersedes it.
        ends: whether the reply ends the dialogue; without it the last turn does.
    """

    content: str
    answer: str | None
    ends: bool


@dataclass(frozen=True)
class Credit:
    """What one reply is worth, as the task itself knows it.

    Attributes:
        kind: of reply, in a word of the kind of task.
        value: the more the better; comparable between the replies to one observation.
    """

    kind: str
    value: float


def reveal(messages: Sequence[Message], hidden: str) -> list[Message]:
    """The same messages with the training-time information c at the head of the first user message.

    c stands inside the chat template, where every model expects text; the published code puts it before the
    begin-of-text token (recipe `upstream` does so too, see sweet.learn).
    """
    index = next(i for i, message in enumerate(messages) if message.role == "user")
    first = messages[index]
    told = Message(role="user", content=f"The reference solution is:\n{hidden}\n\n{first.content}")
    return [*messages[:index], told, *messages[index + 1 :]]
