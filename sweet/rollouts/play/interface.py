"""What a person who plays sees and does, independent of how it is drawn.

The player (`sweet.rollouts.play.player`) calls `Interface.show` with a `Situation` whenever something has changed, and
takes the person's actions from a queue, at any time: a dialogue can be undone or left while the other side is thinking.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from sweet.render.page import RenderSettings
from sweet.rollouts.play.typed import Role
from sweet.tasks.base import ProtocolName, Task
from sweet.tasks.kind import TaskKind
from sweet.tasks.trajectory import Trajectory, Turn

State = Literal["yours", "waiting", "finished", "failed"]
"""Whose turn it is: the person's, or the other side's; the dialogue has ended; the other side could not answer."""


@dataclass(frozen=True)
class Session:
    """What is the same in all dialogues.

    Attributes:
        role, name: of the person.
        settings: how pages are rendered; None for tasks without pages.
    """

    role: Role
    name: str
    kind: TaskKind
    protocol: ProtocolName
    max_turns: int
    settings: RenderSettings | None = None


@dataclass(frozen=True)
class Situation:
    """What the person sees.

    Attributes:
        number, total: of the dialogue, and how many there are.
        turns: of the dialogue so far, the request first.
        draft: the text to begin with, such as the one that was undone.
        notice: what the person should know, in a sentence; it may contain text of a model or a server.
        ended: the dialogue, in the state `finished`.
    """

    session: Session
    state: State
    task: Task
    number: int
    total: int
    turns: tuple[Turn, ...]
    draft: str = ""
    notice: str = ""
    ended: Trajectory | None = None


ActionName = Literal["send", "deliver", "undo", "skip", "next", "retry", "leave"]


@dataclass(frozen=True)
class Action:
    """What the person does.

    Attributes:
        name: send a text; as the agent deliver it as the answer; undo: return to the person's last message; skip: go to
            the next dialogue without this one; next: keep the ended dialogue and go on; retry: ask the other side again
            after it failed; leave: stop playing, the dialogue under way stays as it is.
        text: what is sent or delivered; of `leave` the text that was not sent yet, None if it is not the person's turn.
    """

    name: ActionName
    text: str | None = None


Actions = asyncio.Queue[Action]
Play = Callable[[Actions], Coroutine[Any, Any, None]]


class Interface(Protocol):
    """Draws situations and collects actions."""

    def run(self, play: Play) -> None:
        """Run `play` in an event loop, with the queue that it takes actions from; raises what it raises."""

    def show(self, situation: Situation) -> None:
        """Draw a situation."""

    def say(self, text: str) -> None:
        """Show a message to the person, which may contain text of a server."""
