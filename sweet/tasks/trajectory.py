"""A dialogue as it is kept: one JSON object a line, with the published field names plus what we record besides.

Published: `task`, `dialogue_history` (each entry `role`, `content`, and for the agent `input`, `output`), `answer`,
`reward`. The first entry of `dialogue_history` is the human's request. Ours: ids, seeds, usage, timings, errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from sweet.tasks.base import NO_ANSWER, Message, Task

Outcome = Literal[
    "answered", "out_of_turns", "context_overflow", "token_limit", "agent_error", "human_error", "deadline"
]
"""How a dialogue ended. All but the first two are faults: of the agent, whose dialogue outgrew the context or its
tokens, of its server, of the simulated human (`Trajectory.fault` says which), of the clock."""

FAULTS: frozenset[Outcome] = frozenset({"context_overflow", "token_limit", "agent_error", "human_error", "deadline"})

HumanFault = Literal["empty", "echo", "refusal", "ended", "leaked", "reference"]
"""What a simulated human may do wrong: say nothing, repeat what it was told, refuse to play, speak as the one who
delivers, give the reference away; `reference` is none of its own: the page it has in mind cannot be rendered."""


class Turn(BaseModel):
    """One entry of a dialogue.

    Attributes:
        role: `assistant` is the agent, `user` the human (also accepted on input: `agent`, `human`).
        content: what the other side sees.
        input: the templated prompt, where an imported row brings it.
        output: the agent's raw reply (None on the human's turns and on imported rows without it).
        token_ids: the sampled ids of `output`, where the server told them; prompt_token_ids likewise, on the last
            of the agent's turns: the prompts of the others are its beginnings.
        logprobs: log-probability of each sampled id under the sampling model at temperature 1, where told.
        finish_reason: the server's word: stop, length, …
        sampling_seed: the seed that was sent with the agent's request.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    role: Literal["user", "assistant"]
    content: str
    input: str | None = None
    output: str | None = None
    token_ids: tuple[int, ...] | None = None
    prompt_token_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    finish_reason: str | None = None
    sampling_seed: int | None = None

    @property
    def said(self) -> str:
        """The text the agent really produced at this turn."""
        return self.content if self.output is None else self.output


class Usage(BaseModel):
    """Tokens, seconds of waiting and tries that failed, of one dialogue: the agent's side and the human's."""

    model_config = ConfigDict(frozen=True)

    prompt_tokens: int = 0
    completion_tokens: int = 0
    human_prompt_tokens: int = 0
    human_completion_tokens: int = 0
    agent_seconds: float = 0.0
    human_seconds: float = 0.0
    seconds: float = 0.0
    agent_retries: int = 0
    human_retries: int = 0


class Trajectory(BaseModel):
    """One agent and one simulated human on one task."""

    model_config = ConfigDict(frozen=True, extra="allow")

    id: str = Field(min_length=1)
    task: Task
    dialogue_history: tuple[Turn, ...]
    answer: str = NO_ANSWER
    reward: float | None = None
    sample: int = 0
    seed: int | None = None
    outcome: Outcome = "answered"
    fault: HumanFault | None = None
    error: str | None = None
    usage: Usage = Usage()

    @property
    def task_id(self) -> str:
        return self.task.id

    @property
    def agent_turns(self) -> list[int]:
        """Indices into `dialogue_history` of the agent's turns, in order."""
        return [i for i, turn in enumerate(self.dialogue_history) if turn.role == "assistant"]

    def observation(self, index: int, system: str | None) -> list[Message]:
        """o_t: the chat messages the agent saw before the turn at `index` of `dialogue_history`."""
        return as_messages(self.dialogue_history[:index], system)


def as_messages(turns: Sequence[Turn], system: str | None) -> list[Message]:
    """A dialogue as chat messages, behind the agent's system prompt where there is one."""
    head = [] if system is None else [Message(role="system", content=system)]
    return head + [Message(role=turn.role, content=turn.content) for turn in turns]


def dump(trajectory: Trajectory) -> dict[str, Any]:
    """The row to write: JSON types, without the fields that are None."""
    return trajectory.model_dump(mode="json", exclude_none=True)
