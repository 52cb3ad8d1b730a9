"""The scripted human: answers by its task kind's rules, from the task's facts. Without a model, dialogues replay."""

from __future__ import annotations

from collections.abc import Sequence

from sweet.humans.base import HumanReply
from sweet.tasks.base import Message, Task
from sweet.tasks.kind import TaskKind


class ScriptedHuman:
    """Answers by `TaskKind.scripted_reply` (implements sweet.humans.base.Human)."""

    name = "scripted"

    def __init__(self, kind: TaskKind) -> None:
        self.kind = kind

    async def reply(self, task: Task, dialogue: Sequence[Message]) -> HumanReply:
        return HumanReply(self.kind.scripted_reply(task, dialogue))
