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

from sweet.judges.base import CRITIC_BATCH, Judged
from sweet.learn.rows import Basis, CandidateTurn
from sweet.runs.run import Run
from sweet.stages.base import Reporter
from sweet.stages.critics import CriticSettings, load_critic, load_untrained
from sweet.stages.meta import TrainedMeta
from sweet.tasks.base import ProtocolName, ReferenceContext

if TYPE_CHECKING:
    from sweet.learn.critic import Critic

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

    async def judge(self, turns: Sequence[CandidateTurn]) -> list[Judged]:
        return await asyncio.to_thread(self.judge_now, turns)

    def judge_now(self, turns: Sequence[CandidateTurn]) -> list[Judged]:
        """Judge in the calling thread."""
        judged = zip(turns, self.critic.judge(turns), strict=True)
        return [(self.basis, list(found) or [TOO_LONG] * len(turn.all_replies)) for turn, found in judged]


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
