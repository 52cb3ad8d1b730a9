"""The interface of judges, which score the replies at a turn.

A judge is a critic (`sweet.judges.critic`, on the nodes of a cluster `sweet.judges.on_ray`), a language model
(`sweet.judges.llm`), a control (`sweet.judges.control`) or a Python function (`sweet.judges.function`). It receives
turns with the replies sampled there, and with the reply that was really given if there was one, and returns a
`JudgedTurn` for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sweet.llm.base import Reply
from sweet.stages.rows import Basis, Candidate
from sweet.tasks.base import Message, Task

CRITIC_BATCH = 64
"""Turns that a critic scores in one call: enough to fill batches, few enough that an interruption loses little."""

TurnKey = tuple[str, int]
"""Names a turn: the id of its dialogue, and its index in the dialogue's history."""


@dataclass(frozen=True)
class SampledTurn:
    """A turn of a dialogue, with replies to what the agent had seen there.

    Attributes:
        dialogue: id of the dialogue.
        index: of the turn in its dialogue's history.
        replies: the sampled replies.
        logprobs: mean log-probability per token of each of `all_replies` under the model that sampled it; None where it
            was not reported.
        taken: the reply that was really given; None in a dialogue that goes on with one of `replies`.
        prompt_token_ids: the ids that the agent read before `replies`, if its server returned them.
    """

    dialogue: str
    task: Task
    index: int
    observation: tuple[Message, ...]
    replies: tuple[Reply, ...]
    logprobs: tuple[float | None, ...]
    taken: Reply | None = None
    prompt_token_ids: tuple[int, ...] | None = None

    @property
    def key(self) -> TurnKey:
        return (self.dialogue, self.index)

    @property
    def all_replies(self) -> tuple[Reply, ...]:
        """The sampled replies, then the one that was given, if there is one."""
        return self.replies if self.taken is None else (*self.replies, self.taken)


@dataclass(frozen=True)
class UnjudgedReply:
    """A reply that could not be judged, and the reason."""

    text: str
    reason: str


@dataclass(frozen=True)
class JudgedTurn:
    """The scores of one turn: an entry for each of `SampledTurn.all_replies`, in order."""

    basis: Basis
    replies: tuple[Candidate | UnjudgedReply, ...]

    @property
    def failures(self) -> list[UnjudgedReply]:
        return [reply for reply in self.replies if isinstance(reply, UnjudgedReply)]


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

    async def judge(self, turns: Sequence[SampledTurn]) -> list[JudgedTurn]:
        """Judge the replies of each turn, in order.

        Raises:
            sweet.errors.ServerError: the judge cannot be reached.
        """


def candidate(reply: Reply, advantage: float, score: float | None = None) -> Candidate:
    """Return a judged reply as it is written to a row."""
    return Candidate(
        text=reply.text,
        thought=reply.thought,
        thought_tokens=reply.thought_tokens,
        token_ids=reply.token_ids,
        logprobs=reply.logprobs,
        ended=reply.finish_reason != "length",
        advantage=round(advantage, 6),
        score=rounded(score),
    )


def mean_logprob(reply: Reply) -> float | None:
    """Return the mean log-probability per token under the model that sampled the reply; None where not reported."""
    return sum(reply.logprobs) / len(reply.logprobs) if reply.logprobs else None


def above_mean(values: Sequence[float | None], sampled: int) -> list[float | None]:
    """Subtract from each value the mean of the first `sampled` values; None is skipped and stays None."""
    known = [value for value in values[:sampled] if value is not None]
    mean = sum(known) / max(len(known), 1)
    return [None if value is None else value - mean for value in values]


def rounded(value: float | None) -> float | None:
    """Round to the six decimals of a row."""
    return None if value is None else round(value, 6)
