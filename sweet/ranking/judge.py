"""Who judges the replies at a turn for `sweet rank`: the critic, a language model (`sweet.ranking.llm_judge`), or a
control (`sweet.ranking.control_judges`).

All are given turns with the replies sampled there and the one really given, and say what each is worth. What they say
becomes one row a turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from sweet.llm.base import Reply
from sweet.stages.rows import Basis, Candidate, CandidateRow
from sweet.tasks.base import Message
from sweet.tasks.trajectory import Trajectory

if TYPE_CHECKING:
    from sweet.learn.critic import Critic, TurnReplies, Verdict

SCORED_TOGETHER = 64
"""Turns that the critic scores at once: enough to fill batches, few enough that an interruption loses little."""

UNREAD = "with the opening and the training-time information the turn is longer than the critic's --max-length"
"""Why the critic says nothing of a turn."""

LEAST_JUDGED = 2
"""Candidates of a turn that must have been judged: fewer cannot be ranked."""


@dataclass(frozen=True)
class SampledTurn:
    """A turn of a dialogue, with replies to what the agent had seen there.

    Attributes:
        index: of the turn in its dialogue's history.
        replies: the sampled ones. taken: the one that was really given.
        sampler: mean log-probability of each, the taken one last, under the model that sampled it, where it told.
    """

    trajectory: Trajectory
    index: int
    observation: tuple[Message, ...]
    replies: tuple[Reply, ...]
    taken: Reply
    sampler: tuple[float | None, ...]

    @property
    def key(self) -> tuple[str, int]:
        return (self.trajectory.id, self.index)

    @property
    def everything(self) -> tuple[Reply, ...]:
        """The sampled replies, and behind them the one that was given."""
        return (*self.replies, self.taken)


@dataclass(frozen=True)
class Unjudged:
    """A reply that could not be judged, and why."""

    text: str
    why: str


@dataclass(frozen=True)
class Judged:
    """What was said of a turn: one entry for each of `SampledTurn.everything`, in order."""

    basis: Basis
    replies: tuple[Candidate | Unjudged, ...]

    @property
    def failures(self) -> list[Unjudged]:
        return [reply for reply in self.replies if isinstance(reply, Unjudged)]

    def row(self, turn: SampledTurn) -> CandidateRow | None:
        """The row to write; None where too few candidates were judged to rank them."""
        *sampled, taken = map(_with_sampler, self.replies, turn.sampler)
        candidates = tuple(reply for reply in sampled if isinstance(reply, Candidate))
        if len(candidates) < LEAST_JUDGED:
            return None
        return CandidateRow(
            trajectory_id=turn.trajectory.id,
            task_id=turn.trajectory.task_id,
            turn=turn.index,
            observation=turn.observation,
            candidates=candidates,
            taken=taken if isinstance(taken, Candidate) else None,
            basis=self.basis,
            unjudged=len(sampled) - len(candidates),
        )


class Judge(Protocol):
    """Says what replies are worth.

    Attributes:
        together: turns that are best handed over at once. at_once: how many such calls may be under way.
    """

    @property
    def together(self) -> int: ...
    @property
    def at_once(self) -> int: ...

    async def judge(self, turns: Sequence[SampledTurn]) -> list[Judged]:
        """One entry a turn, in order.

        Raises:
            sweet.errors.ServerError: who judges cannot be reached.
        """


class CriticJudge:
    """The critic, in a thread of its own, so that sampling goes on meanwhile (implements `Judge`)."""

    together, at_once = SCORED_TOGETHER, 1

    def __init__(self, critic: Critic, basis: Basis) -> None:
        self.critic, self.basis = critic, basis

    @property
    def dropped(self) -> int:
        """See `Reads`."""
        return self.critic.reader.dropped

    @property
    def max_length(self) -> int | None:
        """See `Reads`."""
        return self.critic.reader.max_length

    async def judge(self, turns: Sequence[SampledTurn]) -> list[Judged]:
        return await asyncio.to_thread(self.judge_now, turns)

    def judge_now(self, turns: Sequence[SampledTurn]) -> list[Judged]:
        """The same in this thread."""
        found = self.critic.judge([_turn_replies(turn) for turn in turns])
        return [self._judged(turn, verdicts) for turn, verdicts in zip(turns, found, strict=True)]

    def _judged(self, turn: SampledTurn, verdicts: Sequence[Verdict]) -> Judged:
        if not verdicts:
            return Judged(self.basis, tuple(Unjudged(reply.text, UNREAD) for reply in turn.everything))
        return Judged(self.basis, tuple(map(_by_critic, turn.everything, verdicts)))


def candidate(reply: Reply, advantage: float, score: float | None = None) -> Candidate:
    """A reply with what it is worth, as it stands in a row."""
    return Candidate(
        text=reply.text,
        token_ids=reply.token_ids,
        ended=reply.finish_reason != "length",
        advantage=round(advantage, 6),
        score=_rounded(score),
    )


def mean_logprob(reply: Reply) -> float | None:
    """A token, under the model that sampled it, where it told."""
    return sum(reply.logprobs) / len(reply.logprobs) if reply.logprobs else None


def above_mean(values: Sequence[float | None], drawn: int) -> list[float | None]:
    """Each value, less the mean of the first `drawn` (the replies that were sampled) where they have one."""
    usual = [value for value in values[:drawn] if value is not None]
    mean = sum(usual) / max(len(usual), 1)
    return [None if value is None else value - mean for value in values]


def _by_critic(reply: Reply, verdict: Verdict) -> Candidate:
    told = {
        "logprob": _rounded(verdict.logprob),
        "reference": _rounded(verdict.reference),
        "tokens": verdict.tokens,
    }
    return candidate(reply, verdict.advantage, verdict.score).model_copy(update=told)


def _with_sampler(reply: Candidate | Unjudged, mean: float | None) -> Candidate | Unjudged:
    return reply.model_copy(update={"sampler": _rounded(mean)}) if isinstance(reply, Candidate) else reply


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


def _turn_replies(turn: SampledTurn) -> TurnReplies:
    from sweet.learn.critic import TurnReplies
    from sweet.learn.tokens import ReplyText

    replies = turn.everything
    return TurnReplies(
        name=f"Dialogue {turn.trajectory.id}, turn {turn.index}",
        turn=turn.index,
        observation=turn.observation,
        hidden=turn.trajectory.task.hidden,
        replies=[ReplyText(reply.text, reply.token_ids, reply.finish_reason != "length") for reply in replies],
        sampler=turn.sampler,
        drawn=len(turn.replies),
    )
