"""The rows that the learning stages read and write, one JSON object a line."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from sweet.tasks.base import Message

Basis = Literal["critic", "regression", "expected", "number", "oracle", "random", "untrained", "function"]
"""What an advantage is: the critic's, in nats a token; a regression head's, in its scores; a language model's, in
points of 1 to 9 (see `sweet.ranking.llm_judge`): the mean of its scores under their probabilities, or the score that it
wrote; that of a control (see `sweet.ranking.control_judges`); or that of a Python function, in its scores."""


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
    """One reply to an observation, and what the critic or another judge thinks of it.

    Attributes:
        token_ids: the sampled ids, where the server told them.
        ended: the reply came to its own end (False: it was cut at the token limit).
        advantage: how much better than usual: of the critic equation (3), `logprob - reference`, in nats a token; of a
            regression head, a language model or the oracle `score` less the mean score of the turn's candidates.
        sampler: mean log-probability a token under the model that sampled it, where it told.
        logprob: mean log-probability a token under the critic.
        reference: the same under the reference.
        score: what the regression head says, the points that a language model gave, or the task's own credit.
        tokens: how many tokens the critic saw as the reply.
    """

    model_config = ConfigDict(frozen=True)

    text: str
    token_ids: tuple[int, ...] | None = None
    ended: bool = True
    advantage: float
    sampler: float | None = None
    logprob: float | None = None
    reference: float | None = None
    score: float | None = None
    tokens: int | None = Field(default=None, ge=1)


class CandidateRow(BaseModel):
    """The candidates at one turn, and the reply that was really given.

    Attributes:
        turn: index into the dialogue's history.
        taken: None where it could not be judged.
        basis: what the advantages are.
        unjudged: candidates that could not be judged and are not there.
    """

    model_config = ConfigDict(frozen=True)

    trajectory_id: str
    task_id: str
    turn: int
    observation: tuple[Message, ...]
    candidates: tuple[Candidate, ...]
    taken: Candidate | None
    basis: Basis = "critic"
    unjudged: int = Field(default=0, ge=0)

    @property
    def key(self) -> tuple[str, int]:
        return (self.trajectory_id, self.turn)


class Pair(BaseModel):
    """Two replies to one observation, for the actor's step-level preference loss."""

    model_config = ConfigDict(frozen=True)

    id: str
    task_id: str
    trajectory_id: str
    turn: int
    observation: tuple[Message, ...]
    chosen: str
    rejected: str
    chosen_token_ids: tuple[int, ...] | None = None
    rejected_token_ids: tuple[int, ...] | None = None
    chosen_ended: bool = True
    rejected_ended: bool = True
    chosen_advantage: float
    rejected_advantage: float
