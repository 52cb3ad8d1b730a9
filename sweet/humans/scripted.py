"""The scripted human: answers by its task kind's rules, from the task's facts. Without a model, dialogues replay."""

from __future__ import annotations

from collections.abc import Sequence

from sweet.humans.base import HumanReply
from sweet.humans.personas import PLAIN, Persona
from sweet.humans.styles import check_style, speak
from sweet.llm.scripted import SCRIPTED
from sweet.tasks.base import Message, Task
from sweet.tasks.kind import TaskKind


class ScriptedHuman:
    """Answers by `TaskKind.scripted_reply`, or as a persona (implements sweet.humans.base.Human).

    Raises:
        UsageError: the persona needs a model.
    """

    def __init__(self, kind: TaskKind, persona: Persona = PLAIN) -> None:
        check_style(kind, persona)
        self.kind, self.persona = kind, persona
        self.name = persona.of(SCRIPTED)

    async def reply(self, task: Task, dialogue: Sequence[Message]) -> HumanReply:
        return HumanReply(speak(self.kind, task, dialogue, self.persona))
