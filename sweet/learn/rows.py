"""The rows that the learning stages read and write, one JSON object per line, and the turn that is ranked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from sweet.llm.base import SAMPLED, Reply
from sweet.tasks.base import Message, Task, Tool, ToolCall, is_none, with_calls

Basis = Literal[
    "critic",
    "summed",
    "regression",
    "expected",
    "number",
    "oracle",
    "random",
    "untrained",
    "function",
    "lookahead",
]
"""Origin and unit of an advantage: of a critic, in nats per token, or summed over them in nats; of a regression head,
in its scores; of a language model, in points of 1 to 9 (see `sweet.judges.llm`), expected under their probabilities or
as written; of a control (see `sweet.judges.control`); of a Python function, in its scores; or of what comes next, in
nats (`sweet.judges.lookahead`)."""

TurnKey = tuple[str, int]
"""Names a turn: the id of its dialogue, and its index in the dialogue's history."""

_Decimals = Annotated[float, AfterValidator(lambda value: round(value, 6))]


class Preference(BaseModel):
    """Two dialogues of one task, by trajectory id, with their rewards."""

    model_config = ConfigDict(frozen=True)

    task_id: str
    chosen: str
    rejected: str
    chosen_reward: float
    rejected_reward: float

    @property
    def name(self) -> str:
        return f"{self.chosen} over {self.rejected}"


@dataclass(frozen=True)
class CandidateTurn:
    """A turn of a dialogue, with candidates for the agent's reply to what it had seen there.

    Attributes:
        turn: index into the dialogue's history.
        replies: the sampled replies.
        taken: the reply that was really given; None in a dialogue that goes on with one of `replies`.
        prompt_token_ids: the ids that the agent read before `replies`, if its server returned them.
        tools: that were offered to the agent.
    """

    trajectory_id: str
    task: Task
    turn: int
    observation: tuple[Message, ...]
    replies: tuple[Reply, ...]
    taken: Reply | None = None
    prompt_token_ids: tuple[int, ...] | None = None
    tools: tuple[Tool, ...] | None = None

    @property
    def key(self) -> TurnKey:
        return (self.trajectory_id, self.turn)

    @property
    def name(self) -> str:
        """Of the turn, for error messages."""
        return f"Dialogue {self.trajectory_id}, turn {self.turn}"

    @property
    def all_replies(self) -> tuple[Reply, ...]:
        """The sampled replies, then the one that was given, if there is one."""
        return self.replies if self.taken is None else (*self.replies, self.taken)


class Candidate(BaseModel):
    """One reply to an observation, with the values that the critic or another judge gave it.

    Attributes:
        thought: what the agent thought before it, apart from `text`.
        thought_tokens: the number of tokens of the thought with the marks around it, if known; the first of
            `token_ids`.
        token_ids: the sampled ids of thought and text, if the server reports them.
        ended: False if the reply was cut at the token limit.
        advantage: of a critic `logprob - reference`, in nats per token (SWEET-RL, equation 3), times `tokens` where its
            training did not average (`--normalize none`); of a regression head, a language model or the oracle, `score`
            minus the mean score of the turn's candidates.
        logprob: mean log-probability per token under the critic.
        reference: the same under the reference.
        score: of the regression head, of a language model, or the task's own credit.
        tokens: number of the reply's tokens, as the critic reads it.
        logprobs: log-probability of each of `token_ids` under the model that sampled it, if that reports it.
        tool_calls: that the reply makes.
    """

    model_config = ConfigDict(frozen=True)

    text: str
    thought: str | None = Field(default=None, exclude_if=is_none)
    thought_tokens: int | None = Field(default=None, ge=0, exclude_if=is_none)
    token_ids: tuple[int, ...] | None = None
    ended: bool = True
    advantage: _Decimals
    logprob: _Decimals | None = None
    reference: _Decimals | None = None
    score: _Decimals | None = None
    tokens: int | None = Field(default=None, ge=1)
    logprobs: tuple[float, ...] | None = Field(default=None, exclude_if=is_none)
    tool_calls: tuple[ToolCall, ...] | None = Field(default=None, exclude_if=is_none)

    @classmethod
    def of(
        cls,
        reply: Reply,
        advantage: float,
        score: float | None = None,
        *,
        logprob: float | None = None,
        reference: float | None = None,
        tokens: int | None = None,
    ) -> Self:
        """Return a reply with the values that a judge gave it."""
        judged: dict[str, Any] = {"score": score, "logprob": logprob, "reference": reference, "tokens": tokens}
        sampled = {name: getattr(reply, name) for name in SAMPLED}
        return cls(text=reply.text, ended=reply.ended, advantage=advantage, **judged, **sampled)

    @property
    def reply(self) -> Reply:
        """The reply as it was sampled."""
        sampled = {name: getattr(self, name) for name in SAMPLED}
        return Reply(self.text, "stop" if self.ended else "length", **sampled)

    @property
    def message(self) -> Message:
        """The reply as a chat message, without its thought."""
        return Message(role="assistant", content=self.text, tool_calls=self.tool_calls)

    @property
    def whole(self) -> str:
        """See `Reply.whole`."""
        return with_calls(self.text, self.tool_calls)


class _TurnRow(BaseModel):
    """A row about a turn of a dialogue.

    Attributes:
        turn: index into the dialogue's history.
        prompt_token_ids: the ids that the agent read before the candidates, if its server returned them.
        tools: that were offered to the agent.
    """

    model_config = ConfigDict(frozen=True)

    trajectory_id: str
    task_id: str
    turn: int
    observation: tuple[Message, ...]
    prompt_token_ids: tuple[int, ...] | None = Field(default=None, exclude_if=is_none)
    tools: tuple[Tool, ...] | None = Field(default=None, exclude_if=is_none)

    @property
    def key(self) -> TurnKey:
        return (self.trajectory_id, self.turn)


class CandidateRow(_TurnRow):
    """The judged candidates at one turn, and the reply that was given in the dialogue.

    Attributes:
        taken: the reply that was given; None if it could not be judged.
        basis: of the advantages.
        unjudged: number of candidates that could not be judged and are omitted.
    """

    candidates: tuple[Candidate, ...]
    taken: Candidate | None
    basis: Basis = "critic"
    unjudged: int = Field(default=0, ge=0)


class Pair(_TurnRow):
    """Two replies to one observation, for the actor's step-level preference loss. Without a rejected reply, the chosen
    one stands alone: the actor learns its likelihood (`sweet pair --unpaired best`), or a credit rule weighs its
    tokens."""

    id: str
    chosen: Candidate
    rejected: Candidate | None

    @property
    def sides(self) -> dict[str, Candidate]:
        """The replies by what they are: the chosen one, and the rejected one where there is one."""
        return {"chosen": self.chosen, **({} if self.rejected is None else {"rejected": self.rejected})}

    @classmethod
    def of(cls, row: CandidateRow, name: str, chosen: Candidate, rejected: Candidate | None = None) -> Self:
        """Return a pair of candidates, or a candidate alone.

        Args:
            name: of the pair among those of the turn.
        """
        shared = {field: getattr(row, field) for field in _TurnRow.model_fields}
        return cls(id=f"{row.trajectory_id}-t{row.turn}-{name}", chosen=chosen, rejected=rejected, **shared)
