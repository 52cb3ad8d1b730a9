"""The options of `sweet label` and `sweet pair`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sweet.stages.base import PlannedConfig
from sweet.stages.options import AllowTestConfig, SeedConfig

Strategy = Literal["random-halves", "best-worst"]
Unpaired = Literal["omit", "best"]


class LabelConfig(PlannedConfig, AllowTestConfig):
    from_: str | None = None
    """Scores to label by; default: the newest finished ones that are not of the test split."""
    margin: float | None = Field(default=None, ge=0, le=1)
    """Least difference of the rewards of a preference; 0 accepts every lower reward. Default: that of the kind of task:
    0 for code, 0.1 for pages."""


class PairConfig(PlannedConfig, SeedConfig):
    from_: str | None = None
    """Candidates to pair; default: the newest finished ones."""
    pairs: int = Field(default=4, ge=1)
    """Maximum number of pairs of each turn."""
    strategy: Strategy = "random-halves"
    """random-halves: any reply of the upper half over any of the lower half. best-worst: the best over the worst, and
    so on inwards."""
    min_gap: float = Field(default=0.0, ge=0)
    """Least difference of the advantages of a pair, in nats per token of the critic, scores of a regression head, or
    points of an LLM judge."""
    min_gap_share: float = Field(default=0.0, ge=0, le=1)
    """Least difference of the advantages of a pair, as a share of that between the best and the worst reply of its
    turn: a turn with a single good reply then gives fewer pairs than one with several."""
    unpaired: Unpaired = "omit"
    """A turn that gives no pair. omit: nothing is learned from it. best: its best reply is kept without a rejected one,
    and the actor learns its likelihood; of equally good replies one is drawn."""
    fraction: float = Field(default=1.0, gt=0, le=1)
    """Share of the ranked turns to use."""
