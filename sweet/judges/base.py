"""The interface of judges, which score the replies at a turn.

A judge is a critic (`sweet.judges.critic`), a language model
(`sweet.judges.llm`), a control (`sweet.judges.control`) or a Python function (`sweet.judges.function`). It receives
turns with the replies sampled there, and with the reply that was really given if there was one.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

from sweet.learn.rows import Basis, Candidate, CandidateTurn

CRITIC_BATCH = 64
"""Turns that a critic scores in one call: enough to fill batches, few enough that an interruption loses little."""

Judged = tuple[Basis, list[Candidate | str]]
"""The basis of the advantages at a turn, and for each of `CandidateTurn.all_replies`, in order, the candidate with its
advantage, or why it could not be judged."""


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
    known = [score for score in scores[: len(turn.replies)] if not isinstance(score, str)]
    mean = sum(known) / max(len(known), 1)
    return basis, [
        score if isinstance(score, str) else Candidate.of(reply, score - mean, score)
        for reply, score in zip(turn.all_replies, scores, strict=True)
    ]
