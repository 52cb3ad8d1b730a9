"""A row of scores: what one answer was worth."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

ScoreOutcome = Literal["passed", "failed", "error", "timeout", "crash", "no_answer", "invalid"]
"""`error`: every test raised. `invalid`: the task's own reference fails, so the answer says nothing."""


class Score(BaseModel):
    """What the answer of one trajectory was worth.

    Attributes:
        id: the trajectory's.
        reward: 0 to 1; None where the task is invalid.
        passed: tests passed, of `total`.
        upstream_reward: what the published evaluator gives, where both scorers were asked.
        detail: for people: `why`, and under `tests` what became of each test.
    """

    model_config = ConfigDict(frozen=True)

    id: str
    task_id: str
    reward: float | None
    passed: int = Field(ge=0)
    total: int = Field(ge=0)
    outcome: ScoreOutcome
    upstream_reward: float | None = None
    detail: dict[str, Any] = Field(default_factory=dict)
