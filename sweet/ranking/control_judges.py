"""Judges that are no critics, which a critic is held against: they judge the same replies, and all else stays the same.

`oracle` says what the task itself knows of a reply (`sweet.tasks.kind.TaskKind.credit`): as good as a critic can be.
`random` knows nothing: it draws a number for each text at a turn. A third, `untrained`, is the model that critics start
from, which says how much likelier the training-time information makes a reply
(`sweet.learn.critic.AdvantageCritic`, its reference kept blind).
"""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from sweet.errors import UsageError
from sweet.ranking.credit import Knowledge
from sweet.ranking.judge import SCORED_TOGETHER, Judged, SampledTurn, Unjudged, above_mean, candidate
from sweet.ranking.turns import Place
from sweet.stages.base import digest_of

UNKNOWN = "the task does not know what it is worth"
"""Why the oracle says nothing of a reply."""


def check_known(knowledge: Knowledge, places: Iterable[Place]) -> None:
    """Raise UsageError where the tasks know nothing of any reply that was given."""
    for place in places:
        dialogue = place.trajectory
        said = dialogue.dialogue_history[place.turn].said
        if knowledge.of(dialogue.task, dialogue.observation(place.turn, None), [said]) != [None]:
            return
    raise UsageError(
        f"These tasks, of the kind {knowledge.kind.name}, do not know what a reply is worth.",
        where="--judge oracle",
        fix="tasks with facts, as micro has them, or --judge critic",
    )


class _Control(ABC):
    """Judges each turn by itself (implements `sweet.ranking.judge.Judge`)."""

    together, at_once = SCORED_TOGETHER, 1

    async def judge(self, turns: Sequence[SampledTurn]) -> list[Judged]:
        return await asyncio.to_thread(lambda: [self._judge(turn) for turn in turns])

    @abstractmethod
    def _judge(self, turn: SampledTurn) -> Judged: ...


class Oracle(_Control):
    """The advantage of a reply is its credit above the mean of the turn's sampled replies."""

    def __init__(self, knowledge: Knowledge) -> None:
        self.knowledge = knowledge

    def _judge(self, turn: SampledTurn) -> Judged:
        known = self.knowledge.of(turn.trajectory.task, turn.observation, [reply.text for reply in turn.everything])
        values = [None if credit is None else credit.value for credit in known]
        found = zip(turn.everything, values, above_mean(values, len(turn.replies)), strict=True)
        return Judged(
            "oracle",
            tuple(
                Unjudged(reply.text, UNKNOWN) if advantage is None else candidate(reply, advantage, value)
                for reply, value, advantage in found
            ),
        )


class Chance(_Control):
    """The advantage of a reply is a number from -1 to 1, by the seed, the turn and the text."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def _judge(self, turn: SampledTurn) -> Judged:
        return Judged("random", tuple(candidate(reply, self._draw(turn, reply.text)) for reply in turn.everything))

    def _draw(self, turn: SampledTurn, text: str) -> float:
        # A seed in words is the same on every machine; the random sequence of `random.Random` is guaranteed.
        return random.Random(digest_of([self.seed, "judge", *turn.key, text])).uniform(-1, 1)
