"""The record of a dialogue: one JSON object a line, with the published field names and some of our own.

Published: `task`, `dialogue_history` (each entry `role`, `content`, and for the agent `input`, `output`), `answer`,
`reward`. The first entry of `dialogue_history` is the human's request. Our own: ids, seeds, usage, timings, errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from sweet.json_value import JsonValue
from sweet.tasks.base import NO_ANSWER, Message, Rewards, Task, Tool, ToolCall, TurnRewards

Outcome = Literal[
    "answered", "out_of_turns", "context_overflow", "token_limit", "agent_error", "human_error", "deadline"
]
"""How a dialogue ended. All but the first two are faults: the dialogue exceeded the context or the token limit, the
agent's server failed, the simulated human failed (`Trajectory.fault` says how), or the deadline passed."""

FAULTS: frozenset[Outcome] = frozenset({"context_overflow", "token_limit", "agent_error", "human_error", "deadline"})

Thoughts = Literal["drop", "keep"]
"""Whether the agent reads its earlier thoughts in the history of a dialogue."""

HumanFault = Literal["empty", "echo", "refusal", "ended", "leaked", "instructions", "roles", "loop", "reference"]
"""Faults of a simulated human: it says nothing, repeats the agent's message, refuses to play, delivers an answer as if
it were the agent, leaks the reference, repeats its instructions, speaks as the agent, or says the same again and again.
`reference`: the reference page cannot be rendered."""


class Choice(BaseModel):
    """How the agent's reply was chosen among several candidates (`sweet rollout --best-of`).

    Attributes:
        index: of the chosen candidate, in the order in which the agent returned them.
        advantages: the judge's advantage of each candidate, in that order; None for one that it could not judge. If it
            could judge none, the first candidate was taken.
        basis: origin and unit of the advantages (`sweet.learn.rows.Basis`).
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
        withheld: on the human's turns, the faults of its replies that were withheld before; None is none. The replies
            are not recorded, so that nothing is learned from them.
        fault: the fault of the human's reply; it ended the dialogue, except in protocol `upstream`.
        prompt_token_ids: the ids of the prompt that the agent read, if the server returned them, without the first
            `prompt_shared`. `Trajectory.prompt_ids` returns them whole.
        prompt_shared: number of the first ids of the prompt that are also the first of the prompt of the agent's next
            turn. None on its last turn, and where the prompt is not known.
        logprobs: log-probability of each sampled id under the sampling model at temperature 1, if returned.
        finish_reason: as the server returned it: stop, length, …
        sampling_seed: the seed that was sent with the agent's request.
        choice: how the reply was chosen among several candidates; None if there was only one.
        tool_calls: on the agent's turns, the calls of tools that it makes; each is answered by a turn of the role
            `tool`, and the human does not see this turn.
        tool_call_id: on a tool's turn, the call that it answers.
        is_error: on a tool's turn, whether the call could not be made, or failed.
        given: whether a program gave this message of the agent as context: it was not sampled here, and nothing is
            learned from it.
        rewards: on the agent's turns, their rewards beside that of the dialogue, by name; None is none. They are those
            that its tools gave, or that an imported row has; a scorer may give others (`Score.turn_rewards`).
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    role: Literal["user", "assistant", "tool"]
    content: str
    tool_calls: tuple[ToolCall, ...] | None = None
    tool_call_id: str | None = None
    is_error: bool | None = None
    input: str | tuple[dict[str, JsonValue], ...] | None = None
    output: str | None = None
    thought: str | None = None
    thought_tokens: int | None = Field(default=None, ge=0)
    token_ids: tuple[int, ...] | None = None
    prompt_token_ids: tuple[int, ...] | None = None
    prompt_shared: int | None = Field(default=None, ge=0)
    logprobs: tuple[float, ...] | None = None
    finish_reason: str | None = None
    sampling_seed: int | None = None
    choice: Choice | None = None
    withheld: tuple[HumanFault, ...] | None = None
    fault: HumanFault | None = None
    given: bool | None = None
    rewards: Rewards | None = None

    @property
    def sampled(self) -> bool:
        """Whether it is a turn of the agent, and not one that was given as context."""
        return self.role == "assistant" and not self.given

    @property
    def said(self) -> str:
        """The raw text that the agent produced at this turn, without its thought."""
        return self.content if self.output is None else self.output

    def message(self, *, thought: bool) -> Message:
        """Return the turn as a chat message, with its thought or without it."""
        return Message(
            role=self.role,
            content=self.content,
            thought=self.thought if thought else None,
            tool_calls=self.tool_calls,
            tool_call_id=self.tool_call_id,
        )


class Usage(BaseModel):
    """Tokens, seconds of waiting and failed attempts of one dialogue, for the agent and for the human.

    With several candidates for each turn, `completion_tokens` counts the tokens of all, and `judge_seconds` the waiting
    for the judge that chose among them, None without one. `thought_tokens` of the `completion_tokens` are thoughts, as
    far as that is known, and `unfinished_thoughts` are the turns at which the agent thought until its tokens were spent
    and said nothing.
    """

    model_config = ConfigDict(frozen=True)

    prompt_tokens: int = 0
    completion_tokens: int = 0
    thought_tokens: int = 0
    unfinished_thoughts: int = 0
    human_prompt_tokens: int = 0
    human_completion_tokens: int = 0
    agent_seconds: float = 0.0
    human_seconds: float = 0.0
    judge_seconds: float | None = None
    seconds: float = 0.0
    agent_retries: int = 0
    human_retries: int = 0
    tool_calls: int | None = None
    tool_errors: int | None = None
    tool_seconds: float | None = None


@dataclass(frozen=True)
class LeakCounts:
    """How a simulated human kept the solution in one dialogue.

    Attributes:
        tries: replies that it was asked for, the withheld ones included.
        faults: of the replies that the agent did not see, because the human was asked again.
        shown: whether a leak ended the dialogue, or the agent saw it (protocol `upstream`).
    """

    tries: int
    faults: tuple[HumanFault, ...]
    shown: bool

    @property
    def withheld(self) -> int:
        """Number of the replies that leaked and that the agent did not see."""
        return self.faults.count("leaked")

    @property
    def any(self) -> bool:
        """Whether it leaked at least once."""
        return self.shown or self.withheld > 0


class Trajectory(BaseModel):
    """A dialogue of one agent and one simulated human on one task.

    Attributes:
        human: the simulated human or the person of this dialogue; None where it is the one of the rollouts.
        agent_system: the agent's system prompt in this dialogue, empty if it had none; None where it is the one of the
            rollouts, which all their dialogues share (`sweet.stages.artifacts.agent_system`).
        thoughts: `keep` if the agent read its earlier thoughts in the history; None if they were dropped.
        tools: that were offered to the agent.
        tool_state: the state of the tools when the dialogue ended (`sweet.tasks.tools.Toolbox.state`).
        branched: the dialogue that its first turns were copied from, and the index of the first turn of its own.
        session: the first row of the session at the gateway of which this row is a further branch.
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
    thoughts: Literal["keep"] | None = None
    tools: tuple[Tool, ...] | None = None
    tool_state: JsonValue = None
    branched: tuple[str, int] | None = None
    session: str | None = None

    @model_validator(mode="after")
    def _check_turns(self) -> Self:
        if odd := sorted(self.turn_rewards.keys() - self.agent_turns):
            raise ValueError(f"dialogue_history.{odd[0]}.rewards is of a turn that is not the agent's")
        following: int | None = None
        for index in reversed(self.agent_turns):
            turn = self.dialogue_history[index]
            if turn.prompt_shared is not None and (following is None or turn.prompt_shared > following):
                next_ = f"the prompt of the agent's next turn has {following or 'no'} ids"
                raise ValueError(f"dialogue_history.{index}.prompt_shared is {turn.prompt_shared}, and {next_}")
            prompt_length = None if turn.prompt_token_ids is None else len(turn.prompt_token_ids)
            following = prompt_length if turn.prompt_shared is None else turn.prompt_shared + (prompt_length or 0)
        return self

    @property
    def task_id(self) -> str:
        return self.task.id

    @property
    def ended_by_fault(self) -> bool:
        """Whether a fault ended the dialogue; nothing is learned from such dialogues."""
        return self.outcome in FAULTS

    @property
    def agent_turns(self) -> list[int]:
        """Indices into `dialogue_history` of the agent's turns, in order, without those that were given as context."""
        return [i for i, turn in enumerate(self.dialogue_history) if turn.sampled]

    @property
    def turn_rewards(self) -> dict[int, Rewards]:
        """The rewards of the agent's turns that have some, by index into `dialogue_history`."""
        return {i: turn.rewards for i, turn in enumerate(self.dialogue_history) if turn.rewards}

    def with_rewards(self, rewards: TurnRewards) -> Self:
        """Return the dialogue with these rewards of turns too, which replace its own of the same turn and name.

        Raises:
            ValueError: one is of a turn that is not the agent's.
        """
        if odd := sorted(rewards.keys() - self.agent_turns):
            raise ValueError(f"turn {odd[0]} has a reward, and the agent's are {self.agent_turns}")
        turns = list(self.dialogue_history)
        for index, row in rewards.items():
            turns[index] = turns[index].model_copy(update={"rewards": {**(turns[index].rewards or {}), **row}})
        return self.model_copy(update={"dialogue_history": tuple(turns)})

    def prompt_ids(self, index: int) -> tuple[int, ...] | None:
        """Return the ids of the prompt that the agent read before its turn at `index` of `dialogue_history`.

        They are the ids that the server or engine reported, with the generation prompt, so the reply's `token_ids`
        follow them directly. Each prompt is recorded by what it does not share with the next one (`Turn`), so templates
        that rewrite the history, as those do that drop earlier thoughts, lose nothing. None where they are not known:
        on dialogues that were imported, and on those whose server returns no ids.

        Raises:
            ValueError: the turn at `index` is not the agent's.
        """
        if not self.dialogue_history[index].sampled:
            raise ValueError(f"the turn at {index} is not the agent's")
        ids: tuple[int, ...] | None = None
        for turn in (self.dialogue_history[i] for i in reversed(self.agent_turns) if i >= index):
            if turn.prompt_shared is None:
                ids = turn.prompt_token_ids
            else:
                assert ids is not None, "checked by the validator"
                ids = ids[: turn.prompt_shared] + (turn.prompt_token_ids or ())
        return ids

    @property
    def leaks(self) -> LeakCounts:
        """How the simulated human kept the solution."""
        turns = [{"role": turn.role, "withheld": turn.withheld, "fault": turn.fault} for turn in self.dialogue_history]
        return leaks_of({"dialogue_history": turns, "fault": self.fault})

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
        agent_system = system if self.agent_system is None else self.agent_system
        head = [Message(role="system", content=agent_system)] if agent_system else []
        keep = self.thoughts == "keep"
        return head + [turn.message(thought=keep) for turn in turns]


def shared_prompts(turns: Sequence[Turn], prompts: Mapping[int, tuple[int, ...]]) -> tuple[Turn, ...]:
    """Return the turns with the prompts that the agent read, recorded as `Trajectory.prompt_ids` reads them.

    Args:
        prompts: the ids of a prompt by the index of its turn.
    """
    recorded = list(turns)
    following: tuple[int, ...] | None = None
    for index in reversed([i for i, turn in enumerate(turns) if turn.sampled]):
        ids = prompts.get(index)
        fields: dict[str, Any] = {"prompt_token_ids": ids}
        if ids is not None and following is not None:
            shared = common_length(ids, following)
            fields = {"prompt_shared": shared, "prompt_token_ids": ids[shared:] or None}
        recorded[index] = turns[index].model_copy(update=fields)
        following = ids
    return tuple(recorded)


def common_length(left: Sequence[Any], right: Sequence[Any]) -> int:
    """Return the length of the longest common prefix. Whole slices are compared first: one often begins the other."""
    size = min(len(left), len(right))
    if tuple(left[:size]) == tuple(right[:size]):
        return size
    return next(place for place in range(size) if left[place] != right[place])


def unprompted(turns: Sequence[Turn]) -> tuple[Turn, ...]:
    """Return turns without the recorded prompts, which are no longer what the agent read: each is recorded by what it
    shares with the next one."""
    return tuple(turn.model_copy(update={"prompt_token_ids": None, "prompt_shared": None}) for turn in turns)


def leaks_of(row: Mapping[str, Any]) -> LeakCounts:
    """Return the leaks in a row of dialogues; of dialogues of other programs those that are recorded."""
    turns = [turn for turn in row.get("dialogue_history", ())[1:] if turn.get("role") == "user"]
    faults = tuple(fault for turn in turns for fault in turn.get("withheld") or ())
    ended_by_leak = row.get("fault") == "leaked" or any(turn.get("fault") == "leaked" for turn in turns)
    return LeakCounts(len(turns) + len(faults), faults, ended_by_leak)


def dump(trajectory: Trajectory) -> dict[str, Any]:
    """Return the row to write: JSON types, without the fields that are None."""
    return trajectory.model_dump(mode="json", exclude_none=True)
