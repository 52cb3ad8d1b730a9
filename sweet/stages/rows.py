"""The rows that the learning stages read and write, one JSON object per line."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from sweet.llm.base import Reply
from sweet.tasks.base import Message, is_none

Basis = Literal["critic", "regression", "expected", "number", "oracle", "random", "untrained", "function", "lookahead"]
"""Origin and unit of an advantage: of a critic, in nats per token; of a regression head, in its scores; of a language
model, in points of 1 to 9 (see `sweet.judges.llm`), expected under their probabilities or as written; of a
control (see `sweet.judges.control`); of a Python function, in its scores; or of what comes next, in nats
(`sweet.judges.lookahead`)."""


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


class Candidate(BaseModel):
    """One reply to an observation, with the values that the critic or another judge gave it.

    Attributes:
        thought: what the agent thought before it, apart from `text`.
        thought_tokens: the number of tokens of the thought with the marks around it, if known; the first of
            `token_ids`.
        token_ids: the sampled ids of thought and text, if the server reports them.
        ended: False if the reply was cut at the token limit.
        advantage: of a critic `logprob - reference`, in nats per token (SWEET-RL, equation 3); of a regression head, a
            language model or the oracle, `score` minus the mean score of the turn's candidates.
        sampler: mean log-probability per token under the model that sampled it, if that reports it.
        logprob: mean log-probability per token under the critic.
        reference: the same under the reference.
        score: of the regression head, of a language model, or the task's own credit.
        tokens: number of the reply's tokens, as the critic reads it.
        logprobs: log-probability of each of `token_ids` under the model that sampled it, if that reports it.
    """

    model_config = ConfigDict(frozen=True)

    text: str
    thought: str | None = Field(default=None, exclude_if=is_none)
    thought_tokens: int | None = Field(default=None, ge=0, exclude_if=is_none)
    token_ids: tuple[int, ...] | None = None
    ended: bool = True
    advantage: float
    sampler: float | None = None
    logprob: float | None = None
    reference: float | None = None
    score: float | None = None
    tokens: int | None = Field(default=None, ge=1)
    logprobs: tuple[float, ...] | None = Field(default=None, exclude_if=is_none)

    @property
    def reply(self) -> Reply:
        """The reply as it was sampled."""
        return Reply(
            self.text,
            finish_reason="stop" if self.ended else "length",
            token_ids=self.token_ids,
            logprobs=self.logprobs,
            thought=self.thought,
            thought_tokens=self.thought_tokens,
        )


class CandidateRow(BaseModel):
    """The candidates at one turn, and the reply that was given in the dialogue.

    Attributes:
        turn: index into the dialogue's history.
        taken: the reply that was given; None if it could not be judged.
        basis: of the advantages.
        prompt_token_ids: the ids that the agent read before the candidates, if its server returned them.
        unjudged: number of candidates that could not be judged and are omitted.
    """

    model_config = ConfigDict(frozen=True)

    trajectory_id: str
    task_id: str
    turn: int
    observation: tuple[Message, ...]
    candidates: tuple[Candidate, ...]
    taken: Candidate | None
    basis: Basis = "critic"
    prompt_token_ids: tuple[int, ...] | None = Field(default=None, exclude_if=is_none)
    unjudged: int = Field(default=0, ge=0)

    @property
    def key(self) -> tuple[str, int]:
        return (self.trajectory_id, self.turn)


class Pair(BaseModel):
    """Two replies to one observation, for the actor's step-level preference loss; see `Candidate` for the fields, and
    `CandidateRow` for `prompt_token_ids`. Without a rejected reply, the chosen one stands alone: the actor learns its
    likelihood (`sweet pair --unpaired best`)."""

    model_config = ConfigDict(frozen=True)

    id: str
    task_id: str
    trajectory_id: str
    turn: int
    observation: tuple[Message, ...]
    chosen: str
    rejected: str | None
    chosen_thought: str | None = Field(default=None, exclude_if=is_none)
    rejected_thought: str | None = Field(default=None, exclude_if=is_none)
    chosen_thought_tokens: int | None = Field(default=None, ge=0, exclude_if=is_none)
    rejected_thought_tokens: int | None = Field(default=None, ge=0, exclude_if=is_none)
    chosen_token_ids: tuple[int, ...] | None = None
    rejected_token_ids: tuple[int, ...] | None = None
    prompt_token_ids: tuple[int, ...] | None = Field(default=None, exclude_if=is_none)
    chosen_ended: bool = True
    rejected_ended: bool = True
    chosen_advantage: float
    rejected_advantage: float | None

    @model_validator(mode="after")
    def _rejected_or_none(self) -> Self:
        if (self.rejected is None) != (self.rejected_advantage is None):
            raise ValueError("a rejected reply and its advantage are both given, or both null")
        return self
