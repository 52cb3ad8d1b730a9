"""What a task is, and what a kind of task must be able to do.

A task is one problem with hidden information. The agent sees `request(task)` and nothing else of it; the simulated
human and the critic also see `hidden(task)`, the training-time information c of the paper (section 4.1).
A kind (`code`, `html`) knows how its agent is addressed and how a raw reply becomes a move in the dialogue.
Kinds are found by entry point (group `sweet.tasks`), so that a package can bring its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from sweet.tasks.scores import Figure, RewardRule, ScoringRequest, TrajectoryScorer

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
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    topic: str = Field(min_length=1)
    cues: tuple[str, ...]
    answer: str = Field(min_length=1)


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


ScriptedAgent = Callable[[Sequence[Message], float, int | None], str]
"""An agent of rules: the dialogue so far, a temperature (0 makes no mistakes) and the turn's seed to a raw reply."""


class TaskKind(Protocol):
    """A kind of task. Implementations hold no state of a dialogue."""

    name: str
    human_reply_limit: int
    """A human reply is cut to this many characters."""
    rewards: RewardRule
    """How its rewards are read by who learns from them."""
    scorer_options: frozenset[str]
    """Which options of `sweet eval` that decide rewards its scorer takes: of scorer, tolerance, similarity."""

    @property
    def figures(self) -> Mapping[str, Figure]:
        """The rates that can stand for its scores, by name, the first one the most telling."""

    @property
    def visual(self) -> bool:
        """Whether the human sees pages: what the agent shows, and `ground_truth`, are HTML and are rendered for it."""

    @property
    def scripted_agent(self) -> ScriptedAgent | None:
        """An agent without a model, where the kind has one."""

    def default_tasks(self) -> str:
        """The dataset that is meant where none is named."""

    def load(self, tasks: str, split: str) -> list[Task]:
        """The tasks of a named dataset or of a JSONL file, in their order; InputError where they are wrong."""

    def with_prompts(self, folder: Path) -> TaskKind:
        """The same kind with other prompts, those of a folder; InputError where they cannot be used."""

    def check_scripted_human(self, tasks: Sequence[Task]) -> None:
        """UsageError where the scripted human cannot play one of the tasks."""

    def agent_system(self) -> str:
        """The agent's system prompt."""

    def human_prompt(self, task: Task, dialogue: Sequence[Message]) -> list[Message]:
        """The messages an LLM that plays the human gets: request, hidden information and the dialogue so far."""

    def move(self, output: str, *, last: bool, recipe: Recipe = "paper") -> Move:
        """Read a raw reply; `last` says that no further turn is allowed."""

    def open_scorer(self, request: ScoringRequest) -> AbstractContextManager[TrajectoryScorer]:
        """What scores its trajectories, open for as long as the context is.

        Raises (on entering):
            SweetError: what it needs is not there.
        """


def opening(kind: TaskKind, task: Task) -> list[Message]:
    """The agent's messages before its first turn: its system prompt and the human's request."""
    return [Message(role="system", content=kind.agent_system()), Message(role="user", content=task.problem_description)]


def reveal(messages: Sequence[Message], hidden: str) -> list[Message]:
    """The same messages with the training-time information c at the head of the first user message.

    c stands inside the chat template, where every model expects text; the published code puts it before the
    begin-of-text token (recipe `upstream` does so too, see sweet.learn).
    """
    index = next(i for i, message in enumerate(messages) if message.role == "user")
    first = messages[index]
    told = Message(role="user", content=f"The reference solution is:\n{hidden}\n\n{first.content}")
    return [*messages[:index], told, *messages[index + 1 :]]
