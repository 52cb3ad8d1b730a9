"""The simulated human: sees the task with its hidden information and the dialogue so far, says one reply."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sweet.llm.base import RequestFailed
from sweet.tasks.base import Message, Task
from sweet.tasks.trajectory import HumanFault

PICTURES = 2
"""That a human who sees pages is shown at once: the agent's page and the one in mind."""


@dataclass(frozen=True)
class HumanReply:
    """What the human says next, what is wrong with it, and what it cost (nothing where no model was asked)."""

    text: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    retries: int = 0
    fault: HumanFault | None = None


class ReferenceFailed(RequestFailed):
    """The page in mind cannot be rendered: nobody can play the human of this task, today or later."""


class Human(Protocol):
    """Plays the human in any number of dialogues at once; keeps nothing between calls."""

    name: str

    async def reply(self, task: Task, dialogue: Sequence[Message]) -> HumanReply:
        """The reply to `dialogue`, whose first message is the request and whose last one is the agent's."""
