"""The record of a dialogue: one JSON object a line, with the published field names and some of our own.

Published: `task`, `dialogue_history` (each entry `role`, `content`, and for the agent `input`, `output`), `answer`,
`reward`. The first entry of `dialogue_history` is the human's request. Our own: ids, seeds, usage, timings, errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from sweet.tasks.base import NO_ANSWER, Message, Task

Outcome = Literal[
    "answered", "out_of_turns", "context_overflow", "token_limit", "agent_error", "human_error", "deadline"
]
"""How a dialogue ended. All but the first two are faults: the dialogue exceeded the context or the token limit, the
agent's server failed, the simulated human failed (`Trajectory.fault` says how), or the deadline passed."""

FAULTS: frozenset[Outcome] = frozenset({"context_overflow", "token_limit", "agent_error", "human_error", "deadline"})

HumanFault = Literal["empty", "echo", "refusal", "ended", "leaked", "reference"]
"""Faults of a simulated human: it says nothing, repeats the agent's message, refuses to play, delivers an answer as if
it were the agent, or leaks the reference. `reference`: the reference page cannot be rendered."""


class Choice(BaseModel):
    """How the agent's reply was chosen among several candidates (`sweet rollout --best-of`).

    Attributes:
        index: of the chosen candidate, in the order in which the agent returned them.
        advantages: the judge's advantage of each candidate, in that order; None for one that it could not judge. If it
            could judge none, the first candidate was taken.
        basis: origin and unit of the advantages (`sweet.stages.rows.Basis`).
        unjudged: why the first of the candidates that could not be judged could not be.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    index: int = Field(ge=0)
    advantages: tuple[float | None, ...]
    basis: str
    unjudged: str | None = None

    @property
    def advantage(self) -> float | None:
        """The advantage of the chosen candidate; None if no candidate could be judged."""
        return self.advantages[self.index]


class Turn(BaseModel):
    """One entry of a dialogue.

    Attributes:
        role: `assistant` is the agent, `user` the human (also accepted on input: `agent`, `human`).
        content: the text that the other side sees.
        input: the prompt that the agent's model had read, if an imported row has it: the text that a chat template
            rendered, or chat messages.
        output: the agent's raw reply without its thought (None on the human's turns and on imported rows without it).
        thought: what the agent thought before its reply, if its model thinks apart from what it says. It is never shown
            to the human and never searched for markers.
        thought_tokens: the number of tokens of the thought with the marks around it, if known. Where `token_ids` is
            known too, they are its first ids.
        token_ids: the sampled ids of thought and `output`, if the server returned them.
        tries: on the human's turns, how often it was asked until it gave a reply without a leak; None is once. What
            was withheld is not recorded, so that nothing is learned from it.
        fault: the fault of the human's reply; it ended the dialogue, except in recipe `upstream`.
        prompt_token_ids: the ids of the prompt, likewise, on the last of the agent's turns only: the prompts of the
            others are prefixes of it.
        logprobs: log-probability of each sampled id under the sampling model at temperature 1, if returned.
        finish_reason: as the server returned it: stop, length, …
        sampling_seed: the seed that was sent with the agent's request.
        choice: how the reply was chosen among several candidates; None if there was only one.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    role: Literal["user", "assistant"]
    content: str
    input: str | tuple[dict[str, JsonValue], ...] | None = None
    output: str | None = None
    thought: str | None = None
    thought_tokens: int | None = Field(default=None, ge=0)
    token_ids: tuple[int, ...] | None = None
    prompt_token_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    finish_reason: str | None = None
    sampling_seed: int | None = None
    choice: Choice | None = None
    tries: int | None = Field(default=None, ge=1)
    fault: HumanFault | None = None

    @property
    def said(self) -> str:
        """The raw text that the agent produced at this turn, without its thought."""
        return self.content if self.output is None else self.output


class Usage(BaseModel):
    """Tokens, seconds of waiting and failed attempts of one dialogue, for the agent and for the human.

    With several candidates for each turn, `completion_tokens` counts the tokens of all, and `judge_seconds` the waiting
    for the judge that chose among them, None without one.
    """

    model_config = ConfigDict(frozen=True)

    prompt_tokens: int = 0
    completion_tokens: int = 0
    human_prompt_tokens: int = 0
    human_completion_tokens: int = 0
    agent_seconds: float = 0.0
    human_seconds: float = 0.0
    judge_seconds: float | None = None
    seconds: float = 0.0
    agent_retries: int = 0
    human_retries: int = 0


class Trajectory(BaseModel):
    """A dialogue of one agent and one simulated human on one task.

    Attributes:
        human: the simulated human or the person of this dialogue; None where it is the one of the rollouts.
        agent_system: the agent's system prompt in this dialogue, empty if it had none; None where it is the one of the
            rollouts, which all their dialogues share (`sweet.stages.artifacts.agent_system`).
    """

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
    human: str | None = None
    agent_system: str | None = None

    @property
    def task_id(self) -> str:
        return self.task.id

    @property
    def ended_by_fault(self) -> bool:
        """Whether a fault ended the dialogue; nothing is learned from such dialogues."""
        return self.outcome in FAULTS

    @property
    def agent_turns(self) -> list[int]:
        """Indices into `dialogue_history` of the agent's turns, in order."""
        return [i for i, turn in enumerate(self.dialogue_history) if turn.role == "assistant"]

    def observation(self, index: int, system: str | None) -> list[Message]:
        """Return o_t: the chat messages that the agent saw before the turn at `index` of `dialogue_history`.

        Args:
            system: the agent's system prompt where the dialogue has none of its own (`agent_system`).
        """
        return self._messages(self.dialogue_history[:index], system)

    def messages(self, system: str | None) -> list[Message]:
        """Return the whole dialogue as chat messages, after the agent's system prompt; see `observation`."""
        return self._messages(self.dialogue_history, system)

    def _messages(self, turns: Sequence[Turn], system: str | None) -> list[Message]:
        own = system if self.agent_system is None else self.agent_system
        head = [Message(role="system", content=own)] if own else []
        return head + [Message(role=turn.role, content=turn.content) for turn in turns]


def dump(trajectory: Trajectory) -> dict[str, Any]:
    """Return the row to write: JSON types, without the fields that are None."""
    return trajectory.model_dump(mode="json", exclude_none=True)
