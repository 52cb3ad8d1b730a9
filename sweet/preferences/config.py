"""The options of `sweet label` and `sweet pair`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sweet.stages.base import PlannedConfig

Strategy = Literal["random-halves", "best-worst"]


class LabelConfig(PlannedConfig):
    from_: str | None = None
    """Scores to label by; the newest finished ones, those of the test split only where there are no others."""
    margin: float | None = Field(default=None, ge=0, le=1)
    """Least difference of the rewards of a preference, 0 takes every lower reward; without it that of the kind of task:
    0 for code, 0.1 for pages."""


class PairConfig(PlannedConfig):
    from_: str | None = None
    """Candidates to pair; the newest finished ones where not given."""
    pairs: int = Field(default=4, ge=1)
    """Pairs for each turn at most."""
    strategy: Strategy = "random-halves"
    """random-halves: any of the upper half over any of the lower. best-worst: the extremes against each other."""
    min_gap: float = Field(default=0.0, ge=0)
    """Least difference of the advantages of a pair: nats a token of the critic, scores of a regression head, points of
    an LLM judge."""
    fraction: float = Field(default=1.0, gt=0, le=1)
    """Share of the ranked turns to take."""
    seed: int = Field(default=0, ge=0)
    """Seed of the drawing."""
