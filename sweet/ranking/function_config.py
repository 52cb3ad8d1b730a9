"""The configuration of a ranking by a Python function, for `sweet.rank(run, config, judge=function)`.

The run records the function by its name, and an interrupted ranking is resumed only by a function of the same name.
"""

from __future__ import annotations

from sweet.errors import UsageError
from sweet.judges.function import ScoreReplies, function_name
from sweet.ranking.config import RankConfig


class FunctionRankConfig(RankConfig):
    """The configuration of a ranking by a function, as the run records it."""

    judge: str  # type: ignore[assignment]
    """Name of the function."""


def config_for(function: ScoreReplies, config: RankConfig) -> FunctionRankConfig:
    """Return the configuration with the function as its judge.

    Raises:
        UsageError: the configuration names another judge.
    """
    name = function_name(function)
    if "judge" in config.model_fields_set:
        what = f"There are two judges: the function {name}, and the configuration's {config.judge}."
        raise UsageError(what, where="judge", fix="leave one of them out")
    return FunctionRankConfig.model_validate(
        {**config.model_dump(exclude_unset=True), "judge": function_name(function)}
    )
