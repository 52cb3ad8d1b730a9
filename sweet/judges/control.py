"""Judges that are not critics, to compare a critic with: they judge the same replies, and nothing else differs.

`oracle` scores a reply with the credit that the task itself knows (`sweet.tasks.kind.TaskKind.credit`), the best that a
critic could do. `random` draws a number for each text at a turn. The third control, `untrained`, is the model that
critics start from; it scores how much likelier the training-time information makes a reply
(`sweet.learn.critic.AdvantageCritic` with a reference that does not see it; loaded by `sweet.judges.critic`).
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sweet.errors import UsageError
from sweet.judges.base import Judged, TurnJudge, above_mean
from sweet.learn.rows import Candidate, CandidateTurn
from sweet.llm.base import Reply
from sweet.runs.manifest import Artifact
from sweet.runs.run import Run
from sweet.stages.base import digest_of
from sweet.stages.meta import RolloutsMeta
from sweet.tasks.base import Credit, Message, Task, TurnRewards, is_last_turn
from sweet.tasks.kind import TaskKind
from sweet.tasks.markers import MAX_TURNS
from sweet.tasks.registry import task_kind
from sweet.tasks.trajectory import Trajectory

CREDIT = "credit"
"""The name of the rewards of turns that are the credit of their replies."""

UNKNOWN = "the task does not know what it is worth"
"""Why the oracle cannot judge a reply."""


def check_credit_known(
    scorer: CreditScorer, replies: Iterable[tuple[Task, Sequence[Message], Reply]], needed_by: str = "--judge oracle"
) -> None:
    """Check that the credit of replies is known.

    Args:
        replies: a task, what the agent had seen, and a reply, each.
        needed_by: the option that needs it.

    Raises:
        UsageError: the tasks know the credit of none of the replies.
    """
    if all(scorer.score(task, observation, [reply]) == [None] for task, observation, reply in replies):
        raise UsageError(
            f"These tasks, of the kind {scorer.kind.name}, do not know what a reply is worth.",
            where=needed_by,
            fix="tasks with facts, as micro has them, or another choice",
        )


class OracleJudge(TurnJudge):
    """The advantage of a reply is its credit minus the mean credit of the turn's sampled replies."""

    def __init__(self, scorer: CreditScorer) -> None:
        self.scorer = scorer

    def judged(self, turn: CandidateTurn) -> Judged:
        credits = self.scorer.score(turn.task, turn.observation, turn.all_replies)
        return above_mean(turn, "oracle", [UNKNOWN if credit is None else credit.value for credit in credits])


class RandomJudge(TurnJudge):
    """The advantage of a reply is a number from -1 to 1 that depends on the seed, the turn and the text.

    Args:
        by_place: it depends on the reply's place among the replies instead of the text. Then the best of N samples is
            itself a sample of the agent; by the text, a reply that was sampled once is chosen as often as one that was
            sampled many times.
    """

    def __init__(self, seed: int, *, by_place: bool = False) -> None:
        self.seed, self.by_place = seed, by_place

    def judged(self, turn: CandidateTurn) -> Judged:
        replies = turn.all_replies
        names: list[str | int] = [place if self.by_place else reply.whole for place, reply in enumerate(replies)]
        scored = zip(replies, names, strict=True)
        return "random", [Candidate.of(reply, self._draw(turn, name)) for reply, name in scored]

    def _draw(self, turn: CandidateTurn, name: str | int) -> float:
        # A string seed is the same on every machine; the sequence of `random.Random` is guaranteed.
        return random.Random(digest_of([self.seed, "judge", *turn.key, name])).uniform(-1, 1)


@dataclass(frozen=True)
class CreditScorer:
    """Scores replies with the credit that tasks of a kind know.

    Attributes:
        max_turns: messages of the agent to the human that a dialogue has at most.
    """

    kind: TaskKind
    max_turns: int

    @classmethod
    def for_rollouts(cls, run: Run, rollouts: Artifact) -> CreditScorer:
        """Return the scorer for replies in these dialogues."""
        return cls(task_kind(run.manifest().task), RolloutsMeta.of(rollouts).max_turns or MAX_TURNS)

    def score(self, task: Task, observation: Sequence[Message], replies: Sequence[Reply]) -> list[Credit | None]:
        """Return the credit of each reply to an observation, in order; None where the task does not know it."""
        last = is_last_turn(observation, self.max_turns)
        credit_by_text = {
            name: self.kind.call_credit(task, observation, reply.tool_calls)
            if reply.tool_calls
            else self.kind.credit(task, observation, reply.text, last=last)
            for name, reply in {reply.whole: reply for reply in replies}.items()
        }
        return [credit_by_text[reply.whole] for reply in replies]

    def turn_rewards(self, dialogue: Trajectory) -> TurnRewards:
        """Return the credit of the agent's turns as their rewards, where the task knows it."""
        replies = {index: Reply.of(dialogue.dialogue_history[index]) for index in dialogue.agent_turns}
        credits = {i: self.score(dialogue.task, dialogue.observation(i, None), [replies[i]])[0] for i in replies}
        return {i: {CREDIT: credit.value} for i, credit in credits.items() if credit is not None}
