"""A judge that is a Python function, for `sweet.rank(run, config, judge=function)`.

The function gets the task, what the agent had seen at a turn, and the replies there, and returns a score for each. The
advantage of a reply is its score minus the mean score of the turn's sampled replies, as for the judge `oracle`. The
run records the function by its name, and an interrupted ranking is resumed only by a function of the same name.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence

from sweet.errors import UsageError
from sweet.ranking.config import RankConfig
from sweet.ranking.judge import CRITIC_BATCH, JudgedTurn, SampledTurn, UnjudgedReply, above_mean, candidate
from sweet.tasks.base import Message, Task

ScoreReplies = Callable[[Task, Sequence[Message], Sequence[str]], Sequence[float | None]]
"""Scores replies: task (with its hidden information), messages before the reply, texts of the replies -> one number for
each reply, more for a better one; None for a reply that it cannot score."""

NOT_SCORED = "the function returned no score"


class FunctionRankConfig(RankConfig):
    """The configuration of a ranking by a function, as the run records it."""

    judge: str  # type: ignore[assignment]
    """Name of the function."""


def config_for(function: ScoreReplies, config: RankConfig) -> FunctionRankConfig:
    """Return the configuration with the function as its judge.

    Raises:
        UsageError: the configuration names another judge.
    """
    if "judge" in config.model_fields_set:
        what = f"There are two judges: the function {_name(function)}, and the configuration's {config.judge}."
        raise UsageError(what, where="judge", fix="leave one of them out")
    return FunctionRankConfig.model_validate({**config.model_dump(exclude_unset=True), "judge": _name(function)})


class FunctionJudge:
    """Judges each turn separately (implements `sweet.ranking.judge.Judge`)."""

    batch_size, max_calls = CRITIC_BATCH, 1

    def __init__(self, function: ScoreReplies) -> None:
        self._function = function

    async def judge(self, turns: Sequence[SampledTurn]) -> list[JudgedTurn]:
        return await asyncio.to_thread(lambda: [self._judge(turn) for turn in turns])

    def _judge(self, turn: SampledTurn) -> JudgedTurn:
        replies = turn.all_replies
        scores = list(self._function(turn.trajectory.task, turn.observation, [reply.text for reply in replies]))
        if len(scores) != len(replies) or not all(score is None or math.isfinite(score) for score in scores):
            raise UsageError(
                f"The judge returned {scores} for {len(replies)} replies.",
                where=_name(self._function),
                fix="return one finite number, or None, for each reply",
            )
        scored = zip(replies, scores, above_mean(scores, len(turn.replies)), strict=True)
        return JudgedTurn(
            "function",
            tuple(
                UnjudgedReply(reply.text, NOT_SCORED) if advantage is None else candidate(reply, advantage, score)
                for reply, score, advantage in scored
            ),
        )


def _name(function: ScoreReplies) -> str:
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"
