"""Critics as judges: a trained critic of the run, or the model that its training starts from (`untrained`).

`load_trained_judge` finds everything through the run's folder, so it can be called on any node that sees it
(`sweet.judges.on_ray`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sweet.judges.base import CRITIC_BATCH, JudgedTurn, SampledTurn, UnjudgedReply, candidate, rounded
from sweet.llm.base import Reply
from sweet.runs.run import Run
from sweet.stages.base import Reporter
from sweet.stages.critics import CriticSettings, load_critic, load_untrained
from sweet.stages.meta import TrainedMeta
from sweet.stages.rows import Basis, Candidate
from sweet.tasks.base import ProtocolName, ReferenceContext

if TYPE_CHECKING:
    from sweet.learn.critic import Critic, ScoredReply, TurnReplies

TOO_LONG = "with the opening and the training-time information the turn is longer than the critic's --max-length"
"""Why a critic cannot judge a turn."""


class CriticJudge:
    """A critic that runs in a thread, so that sampling continues meanwhile (implements `Judge`)."""

    batch_size, max_calls = CRITIC_BATCH, 1

    def __init__(self, critic: Critic, basis: Basis) -> None:
        self.critic, self.basis = critic, basis

    @property
    def dropped(self) -> int:
        """Early turns that were omitted so far to make turns fit `max_length`."""
        return self.critic.reader.dropped

    @property
    def max_length(self) -> int | None:
        """Tokens of a scored sequence at most."""
        return self.critic.reader.max_length

    async def judge(self, turns: Sequence[SampledTurn]) -> list[JudgedTurn]:
        return await asyncio.to_thread(self.judge_now, turns)

    def judge_now(self, turns: Sequence[SampledTurn]) -> list[JudgedTurn]:
        """Judge in the calling thread."""
        scored_replies = self.critic.judge([_turn_replies(turn) for turn in turns])
        return [self._judged(turn, of_turn) for turn, of_turn in zip(turns, scored_replies, strict=True)]

    def _judged(self, turn: SampledTurn, scored_replies: Sequence[ScoredReply]) -> JudgedTurn:
        if not scored_replies:
            return JudgedTurn(self.basis, tuple(UnjudgedReply(reply.text, TOO_LONG) for reply in turn.all_replies))
        return JudgedTurn(self.basis, tuple(map(_judged_reply, turn.all_replies, scored_replies)))


def load_trained_judge(
    path: Path,
    critic: str,
    settings: CriticSettings,
    reference: str | None,
    protocol: ProtocolName | None,
    reference_context: ReferenceContext | None,
    reporter: Reporter,
) -> CriticJudge:
    """Load a critic of the run at `path`; see `load_critic` for the other arguments and the errors.

    Args:
        critic: id of its artifact.
    """
    run = Run.open(path)
    artifact = run.find("critic", critic, needed_by="rank")
    basis: Basis = "regression" if TrainedMeta.of(artifact).variant == "regression" else "critic"
    loaded = load_critic(
        run, artifact, reporter, settings, reference=reference, protocol=protocol, reference_context=reference_context
    )
    return CriticJudge(loaded, basis)


def load_untrained_judge(start: str, settings: CriticSettings, _reporter: Reporter) -> CriticJudge:
    """Load the model that critics start from, `start`, as a judge; see `load_untrained` for the errors."""
    return CriticJudge(load_untrained(start, settings), "untrained")


def untrained_loader(start: str, settings: CriticSettings) -> Callable[[Reporter], CriticJudge]:
    """Return what loads the model that critics start from, on any node where a directory has the same path."""
    found = Path(start).expanduser()
    return partial(load_untrained_judge, str(found.absolute()) if found.is_dir() else start, settings)


def _judged_reply(reply: Reply, scored: ScoredReply) -> Candidate:
    fields = {
        "logprob": rounded(scored.logprob),
        "reference": rounded(scored.reference),
        "tokens": scored.tokens,
    }
    return candidate(reply, scored.advantage, scored.score).model_copy(update=fields)


def _turn_replies(turn: SampledTurn) -> TurnReplies:
    from sweet.learn.critic import TurnReplies

    return TurnReplies(
        name=f"Dialogue {turn.dialogue}, turn {turn.index}",
        turn=turn.index,
        observation=turn.observation,
        hidden=turn.task.hidden,
        replies=turn.all_replies,
        sampler=turn.logprobs,
        sampled=len(turn.replies),
    )
