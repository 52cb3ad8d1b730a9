"""The rows that the learning stages read and write, one JSON object a line."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from sweet.tasks.base import Message


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
    """One reply to an observation, and what the critic thinks of it.

    Attributes:
        token_ids: the sampled ids, where the server told them.
        ended: the reply came to its own end (False: it was cut at the token limit).
        advantage: how much better than usual the critic finds it: `logprob - reference`, equation (3), in nats a token;
            of a critic with a regression head `score` less the mean score of the turn's candidates.
        logprob: mean log-probability a token under the critic.
        reference: the same under the reference.
        score: what the regression head says.
        tokens: how many tokens the critic saw as the reply.
    """

    model_config = ConfigDict(frozen=True)

    text: str
    token_ids: tuple[int, ...] | None = None
    ended: bool = True
    advantage: float
    logprob: float | None = None
    reference: float | None = None
    score: float | None = None
    tokens: int = Field(ge=1)


class CandidateRow(BaseModel):
    """The candidates at one turn, and the reply that was really given. `turn` indexes the dialogue's history."""

    model_config = ConfigDict(frozen=True)

    trajectory_id: str
    task_id: str
    turn: int
    observation: tuple[Message, ...]
    candidates: tuple[Candidate, ...]
    taken: Candidate

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
