"""A judge that is a Python function.

The function gets the task, what the agent had seen at a turn, and the replies there, and returns a score for each. The
advantage of a reply is its score minus the mean score of the turn's sampled replies, as for the judge `oracle`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from sweet.errors import UsageError
from sweet.judges.base import Judged, TurnJudge, above_mean
from sweet.learn.rows import CandidateTurn
from sweet.tasks.base import Message, Task
from sweet.units import count

ScoreReplies = Callable[[Task, Sequence[Message], Sequence[str]], Sequence[float | None]]
"""Scores replies: task (with its hidden information), messages before the reply, texts of the replies -> one number for
each reply, more for a better one; None for a reply that it cannot score."""

NOT_SCORED = "the function returned no score"


class FunctionJudge(TurnJudge):
    """Scores the replies of each turn by a function."""

    def __init__(self, function: ScoreReplies) -> None:
        self._function = function

    def judged(self, turn: CandidateTurn) -> Judged:
        replies = turn.all_replies
        scores = list(self._function(turn.task, turn.observation, [reply.text for reply in replies]))
        if len(scores) != len(replies) or not all(score is None or math.isfinite(score) for score in scores):
            raise UsageError(
                f"The judge returned {scores} for {count(len(replies), 'reply')}.",
                where=function_name(self._function),
                fix="return one finite number, or None, for each reply",
            )
        return above_mean(turn, "function", [NOT_SCORED if score is None else score for score in scores])


def function_name(function: ScoreReplies) -> str:
    """Return the name under which runs record a function."""
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"
