"""The scripted human: says what its kind of task makes of the task's facts. No model: a dialogue can be replayed."""

from __future__ import annotations

from collections.abc import Sequence

from sweet.humans.base import HumanReply
from sweet.tasks.base import Message, Task
from sweet.tasks.kind import TaskKind


class ScriptedHuman:
    """Answers as `TaskKind.scripted_reply` does (implements sweet.humans.base.Human)."""

    name = "scripted"

    def __init__(self, kind: TaskKind) -> None:
        self.kind = kind

    async def reply(self, task: Task, dialogue: Sequence[Message]) -> HumanReply:
        return HumanReply(self.kind.scripted_reply(task, dialogue))
