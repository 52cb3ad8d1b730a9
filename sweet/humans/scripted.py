"""The scripted human: tells a task's facts and nothing else. No model, no randomness: a dialogue can be replayed."""

from __future__ import annotations

from collections.abc import Sequence

from sweet.humans.base import HumanReply
from sweet.tasks.base import Message, Task
from sweet.tasks.facts import tell


def scripted_reply(task: Task, dialogue: Sequence[Message]) -> str:
    """What the scripted human says to the agent's last message in `dialogue`."""
    question = next((message.content for message in reversed(dialogue) if message.role == "assistant"), "")
    return tell(task, question)


class ScriptedHuman:
    """Answers from `task.facts` by their cues, otherwise "I do not know." (implements sweet.humans.base.Human)."""

    name = "scripted"

    async def reply(self, task: Task, dialogue: Sequence[Message]) -> HumanReply:
        return HumanReply(scripted_reply(task, dialogue))
