"""What a task itself knows of replies, and how a judge of replies does against it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sweet.runs.manifest import Artifact
from sweet.runs.run import Run
from sweet.tasks.base import Credit, Message, Task
from sweet.tasks.kind import TaskKind
from sweet.tasks.markers import MAX_TURNS
from sweet.tasks.registry import task_kind


@dataclass(frozen=True)
class Knowledge:
    """What the tasks of a kind know of replies in dialogues of at most so many turns of the agent."""

    kind: TaskKind
    max_turns: int

    @classmethod
    def about(cls, run: Run, rollouts: Artifact) -> Knowledge:
        """Of replies in these dialogues."""
        limit = rollouts.meta.get("max_turns")
        return cls(task_kind(run.manifest().task), limit if isinstance(limit, int) else MAX_TURNS)

    def of(self, task: Task, observation: Sequence[Message], replies: Sequence[str]) -> list[Credit | None]:
        """Of raw replies to an observation, in order; None where the task does not know."""
        last = sum(message.role == "assistant" for message in observation) + 1 >= self.max_turns
        known = {reply: self.kind.credit(task, observation, reply, last=last) for reply in set(replies)}
        return [known[reply] for reply in replies]
