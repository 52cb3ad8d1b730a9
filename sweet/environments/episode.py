"""One dialogue whose agent is another program: it is given what to read, and says what it replies.

The dialogue itself is that of a rollout (`sweet.rollouts.dialogue`): its agent is a client that hands the messages of
each request out and waits for the reply. So markers are read, faults of the human are found, and the dialogue ends just
as in `sweet rollout`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from sweet.gathering import until
from sweet.humans.base import Human
from sweet.llm.base import Completion, Reply, Sampling
from sweet.rollouts.dialogue import Assignment, Dialogue, Rules
from sweet.tasks.base import Message
from sweet.tasks.kind import TaskKind
from sweet.tasks.trajectory import Outcome, Trajectory


class _External:
    """The agent's client (implements ChatClient): passes requests out and replies in."""

    model = "external"

    def __init__(self) -> None:
        self.asked: asyncio.Queue[list[Message]] = asyncio.Queue()
        self.replies: asyncio.Queue[Reply] = asyncio.Queue()

    async def chat(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        self.asked.put_nowait(list(messages))
        reply = await self.replies.get()
        return Completion((reply,), 0, 0, self.model)

    async def aclose(self) -> None:
        pass


class Episode:
    """A dialogue under way.

    Attributes:
        task_id: of its task.
        trajectory: the dialogue, once it has ended; None before.
    """

    def __init__(self, assignment: Assignment, human: Human, kind: TaskKind, rules: Rules) -> None:
        self.task_id = assignment.task.id
        self.trajectory: Trajectory | None = None
        self._agent = _External()
        self._dialogue = Dialogue(assignment, self._agent, human, kind, rules)
        self._playing: asyncio.Task[Trajectory] | None = None

    @property
    def over(self) -> bool:
        """Whether the dialogue has ended."""
        return self.trajectory is not None

    async def start(self) -> list[Message]:
        """Begin, and return what the agent reads before its first turn: its system prompt and the request."""
        self._playing = asyncio.create_task(self._dialogue.play())
        messages = await self._next()
        assert messages is not None, "max_turns is at least 1"
        return messages

    async def reply(self, text: str, thought: str | None = None) -> list[Message] | None:
        """Take the agent's raw reply, and return what it reads before its next turn: the whole dialogue, the human's
        answer last. None where the dialogue has ended.

        Args:
            thought: what the agent thought before, where its model tells it apart from the reply.

        Raises:
            RequestFailed: the human's server failed.
            sweet.errors.ServerError: it could not be reached.
        """
        assert self.trajectory is None, "the dialogue is under way"
        self._agent.replies.put_nowait(Reply(text, "stop", thought=thought))
        return await self._next()

    async def stop(self, outcome: Outcome, error: str) -> Trajectory:
        """End the dialogue by a fault of the agent, for example because its tokens are spent, and return it."""
        await self.aclose()
        if self.trajectory is None:
            self.trajectory = self._dialogue.finish(outcome, error)
        return self.trajectory

    async def aclose(self) -> None:
        """Drop the dialogue if it is under way."""
        if self._playing is not None:
            self._playing.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await self._playing

    async def _next(self) -> list[Message] | None:
        assert self._playing is not None
        asked = await until(self._playing, self._agent.asked.get())
        if asked is None:
            self.trajectory = self._playing.result()
        return asked
