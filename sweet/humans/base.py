"""The interface of the simulated human: it gets the task with its hidden information and the dialogue, and replies.

A dialogue has a deadline for each reply: its clock begins anew with every reply (`restart_clock`), and is stopped while
the dialogue waits for a browser (`off_the_clock`). Rendering has its own limit in seconds a page. The time that a page
waits for a free browser depends on the other dialogues: with a hundred of them it is most of the time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
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


_CLOCK: ContextVar[tuple[asyncio.Timeout, float] | None] = ContextVar("_CLOCK", default=None)


@asynccontextmanager
async def deadline(seconds: float) -> AsyncIterator[None]:
    """Cancel the block `seconds` after its beginning or the last `restart_clock`, not counting the time spent in
    `off_the_clock`.

    Raises:
        TimeoutError: the block took longer.
    """
    async with asyncio.timeout(seconds) as clock:
        token = _CLOCK.set((clock, seconds))
        try:
            yield
        finally:
            _CLOCK.reset(token)


def restart_clock() -> None:
    """Give the enclosing deadline, if there is one, its whole time again. Has no effect in `off_the_clock`."""
    clock, seconds = _CLOCK.get() or (None, 0.0)
    if clock is not None and clock.when() is not None and not clock.expired():
        clock.reschedule(asyncio.get_running_loop().time() + seconds)


@contextmanager
def off_the_clock() -> Iterator[None]:
    """Stop the clock of the enclosing deadline, if there is one, for the duration of the block."""
    clock, _ = _CLOCK.get() or (None, 0.0)
    ends = None if clock is None else clock.when()
    if clock is None or ends is None or clock.expired():
        yield
        return
    loop = asyncio.get_running_loop()
    left = ends - loop.time()
    clock.reschedule(None)
    try:
        yield
    finally:
        clock.reschedule(loop.time() + left)
