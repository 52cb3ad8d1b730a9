"""The options of `sweet eval`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sweet.judges.options import ReferenceContextConfig
from sweet.sandbox.values import RELATIVE_TOLERANCE
from sweet.stages.base import OPERATIONAL, PlannedConfig, about
from sweet.stages.options import (
    ComparisonConfig,
    CriticConfig,
    DeviceConfig,
    RayConfig,
    ScoringConfig,
    TurnTokensConfig,
)


class EvalConfig(
    PlannedConfig,
    RayConfig,
    DeviceConfig,
    ScoringConfig,
    ComparisonConfig,
    CriticConfig,
    ReferenceContextConfig,
    TurnTokensConfig,
):
    main_options = ("scorer", "similarity", "from_", "compare", "best_of_by", "sandbox", "workers", "resume")

    scorer: Literal["strict", "upstream", "both", "credit"] = Field("strict", json_schema_extra=about("Scoring"))
    """Code: strict accepts answers as people write them; upstream follows the published evaluator, including its
    defects; both reports the two side by side, with strict's as the rewards. Pages: strict, or upstream for the
    published code's window, photograph and way to find the page. credit: strict, and for tasks that know what a reply
    is worth (oracle of sweet rank) this as a reward of each turn."""
    tolerance: float = Field(default=RELATIVE_TOLERANCE, ge=0, lt=1, json_schema_extra=about("Scoring"))
    """Code: relative difference up to which strict treats floats as equal, beside an absolute one of 1e-12; 0 requires
    them to be equal bit for bit."""
    from_: str | None = Field(default=None, json_schema_extra=about("Data"))
    """The rollouts to score; default: the newest."""
    compare: str | None = Field(default=None, json_schema_extra=about("Comparison", OPERATIONAL))
    """The baseline to compare these scores with, task by task: RUN (its result), RUN:scores-2 or
    RUN:rollouts-1, as in sweet compare."""
    best_of_by: Literal["critic", "value"] | None = Field(
        default=None, json_schema_extra=about("Best of N", OPERATIONAL)
    )
    """Also report the success of the best of N finished dialogues of a task, N = 1, 2, 4, …, chosen by the
    critic or the value function. sweet rollout --best-of chooses at each turn."""

    @classmethod
    def operational(cls) -> set[str]:
        """The choice among dialogues is no part of the scores."""
        return super().operational() | {"critic", "reference_context", "turn_tokens"}
