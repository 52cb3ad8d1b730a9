"""The interface of the simulated human: it gets the task with its hidden information and the dialogue, and replies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sweet.llm.base import RequestFailed
from sweet.tasks.base import Message, Task
from sweet.tasks.trajectory import HumanFault

TRIES = 8
"""Replies that a human is asked for at each turn until one may be passed on, if nothing else is asked for."""

PICTURES = 2
"""Screenshots that a human of pages gets at once: the agent's page and the reference page."""


@dataclass(frozen=True)
class HumanReply:
    """The human's next reply, its fault if it has one, and its tokens (0 if no model was asked).

    `withheld` are the faults of the replies before it, which were asked for and withheld. Tokens are those of all.
    `ended` says that an environment, in the place of the human, has ended the dialogue.
    """

    text: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    retries: int = 0
    fault: HumanFault | None = None
    withheld: tuple[HumanFault, ...] = ()
    ended: bool = False


class ReferenceFailed(RequestFailed):
    """The reference page cannot be rendered, so that no dialogue on this task can be played, now or later."""


class Human(Protocol):
    """Plays the human in any number of dialogues at once; holds no state between calls."""

    name: str

    async def reply(self, task: Task, dialogue: Sequence[Message]) -> HumanReply:
        """Return the reply to `dialogue`, whose first message is the request and whose last one is the agent's."""
