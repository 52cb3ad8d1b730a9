"""The options of `sweet label` and `sweet pair`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sweet.stages.base import PlannedConfig

Strategy = Literal["random-halves", "best-worst"]


class LabelConfig(PlannedConfig):
    from_: str | None = None
    """Scores to label by; by default the newest finished ones, those of the test split only if there are no others."""
    margin: float | None = Field(default=None, ge=0, le=1)
    """Least difference of the rewards of a preference; 0 accepts every lower reward. By default that of the kind of
    task: 0 for code, 0.1 for pages."""


class PairConfig(PlannedConfig):
    from_: str | None = None
    """Candidates to pair; by default the newest finished ones."""
    pairs: int = Field(default=4, ge=1)
    """Maximum number of pairs of each turn."""
    strategy: Strategy = "random-halves"
    """random-halves: any reply of the upper half over any of the lower half. best-worst: the best over the worst, and
    so on inwards."""
    min_gap: float = Field(default=0.0, ge=0)
    """Least difference of the advantages of a pair, in nats per token of the critic, scores of a regression head, or
    points of an LLM judge."""
    fraction: float = Field(default=1.0, gt=0, le=1)
    """Share of the ranked turns to use."""
    seed: int = Field(default=0, ge=0)
    """Seed of the random choices."""
