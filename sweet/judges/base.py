"""The interface of judges, which score the replies at a turn.

A judge is a critic (`sweet.judges.critic`), a language model (`sweet.judges.llm`), a control (`sweet.judges.control`)
or a Python function (`FunctionJudge`). It receives turns with the replies sampled there, and with the reply that was
really given if there was one.
"""

from __future__ import annotations

import asyncio
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Protocol

from sweet.errors import UsageError
from sweet.learn.rows import Basis, Candidate, CandidateTurn
from sweet.stages.base import function_name
from sweet.tasks.base import Message, Task
from sweet.units import count

CRITIC_BATCH = 16
"""Turns that a critic scores in one call: enough to fill batches, few enough that an interruption loses little."""

Judged = tuple[Basis, list[Candidate | str]]
"""The basis of the advantages at a turn, and for each of `CandidateTurn.all_replies`, in order, the candidate with its
advantage, or why it could not be judged."""

ScoreReplies = Callable[[Task, Sequence[Message], Sequence[str]], Sequence[float | None]]
"""Scores replies: task (with its hidden information), messages before the reply, texts of the replies -> one number for
each reply, more for a better one; None for a reply that it cannot score."""

NOT_SCORED = "the function returned no score"


class Judge(Protocol):
    """Scores replies.

    Attributes:
        batch_size: turns that are best passed in one call.
        max_calls: calls that may run at the same time.
    """

    @property
    def batch_size(self) -> int: ...
    @property
    def max_calls(self) -> int: ...

    async def judge(self, turns: Sequence[CandidateTurn]) -> list[Judged]:
        """Judge the replies of each turn, in order.

        Raises:
            sweet.errors.ServerError: the judge cannot be reached.
        """


class TurnJudge(ABC):
    """A judge of one turn after the other, in a thread (implements `Judge`)."""

    batch_size, max_calls = CRITIC_BATCH, 1

    async def judge(self, turns: Sequence[CandidateTurn]) -> list[Judged]:
        return await asyncio.to_thread(lambda: [self.judged(turn) for turn in turns])

    @abstractmethod
    def judged(self, turn: CandidateTurn) -> Judged:
        """Judge the replies of one turn."""


def above_mean(turn: CandidateTurn, basis: Basis, scores: Sequence[float | str]) -> Judged:
    """Return the judged replies of a turn. The advantage of each is its score minus the mean score of the sampled ones.

    Args:
        scores: of each reply, or why it has none.
    """
    sampled_scores = [score for score in scores[: len(turn.replies)] if not isinstance(score, str)]
    mean = sum(sampled_scores) / max(len(sampled_scores), 1)
    return basis, [
        score if isinstance(score, str) else Candidate.of(reply, score - mean, score)
        for reply, score in zip(turn.all_replies, scores, strict=True)
    ]


class FunctionJudge(TurnJudge):
    """Scores the replies of each turn by a Python function. The advantage of a reply is its score minus the mean score
    of the turn's sampled replies."""

    def __init__(self, function: ScoreReplies) -> None:
        self._function = function

    def judged(self, turn: CandidateTurn) -> Judged:
        replies = turn.all_replies
        given = self._function(turn.task, turn.observation, [reply.whole for reply in replies])
        try:
            scores = [None if score is None else float(score) for score in given]
        except (TypeError, ValueError, OverflowError):
            scores = []
        if len(scores) != len(replies) or not all(score is None or math.isfinite(score) for score in scores):
            raise UsageError(
                f"The judge returned {given!r:.200} for {count(len(replies), 'reply')}.",
                where=function_name(self._function),
                fix="return one finite number, or None, for each reply",
            )
        return above_mean(turn, "function", [NOT_SCORED if score is None else score for score in scores])
