"""The credit that tasks themselves know of replies (`sweet.tasks.kind.TaskKind.credit`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sweet.runs.manifest import Artifact
from sweet.runs.run import Run
from sweet.stages.meta import RolloutsMeta
from sweet.tasks.base import Credit, Message, Task
from sweet.tasks.kind import TaskKind
from sweet.tasks.markers import MAX_TURNS
from sweet.tasks.registry import task_kind


@dataclass(frozen=True)
class CreditScorer:
    """Scores replies with the credit that tasks of a kind know.

    Attributes:
        max_turns: turns of the agent that a dialogue has at most.
    """

    kind: TaskKind
    max_turns: int

    @classmethod
    def for_rollouts(cls, run: Run, rollouts: Artifact) -> CreditScorer:
        """Return the scorer for replies in these dialogues."""
        return cls(task_kind(run.manifest().task), RolloutsMeta.of(rollouts).max_turns or MAX_TURNS)

    def score(self, task: Task, observation: Sequence[Message], replies: Sequence[str]) -> list[Credit | None]:
        """Return the credit of each raw reply to an observation, in order; None where the task does not know it."""
        last = sum(message.role == "assistant" for message in observation) + 1 >= self.max_turns
        known = {reply: self.kind.credit(task, observation, reply, last=last) for reply in set(replies)}
        return [known[reply] for reply in replies]
