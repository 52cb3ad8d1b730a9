"""Room to think for the models of all roles but the agent's, whose budgets of tokens are for what they say.

A model that reasons spends a budget of a few hundred tokens on its thought and says nothing. The first time that
happens it is asked again with `ROOM` more tokens, which it has from then on. The agent's replies are what is learned
from: its budget is the user's (`--max-tokens`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sweet.llm.base import ChatClient, Completion, Effort, Sampling
from sweet.llm.concurrency import AdaptiveLimiter
from sweet.tasks.base import Message

ROOM = 4096
"""Tokens of a thought, beside those of what is said."""


class RoomyClient:
    """Asks `client` with room to think (implements `sweet.llm.base.ChatClient`).

    Args:
        effort: how much the model is asked to think, where a request does not say.

    Attributes:
        limiter, served_context: of a client of servers; None for others.
    """

    def __init__(self, client: ChatClient, effort: Effort | None = None) -> None:
        self.client, self.effort, self._room = client, effort, 0
        self.model = client.model
        self.limiter: AdaptiveLimiter | None = getattr(client, "limiter", None)
        self.served_context: int | None = getattr(client, "served_context", None)

    async def chat(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        """Sample replies; see `ChatClient.chat`. The tokens are those of all requests."""
        sampling = replace(sampling, effort=sampling.effort or self.effort)
        room = self._room
        first = await self.client.chat(messages, replace(sampling, max_tokens=sampling.max_tokens + room))
        if room or not any(reply.says_nothing_yet for reply in first.replies):
            return first
        self._room = ROOM
        second = await self.client.chat(messages, replace(sampling, max_tokens=sampling.max_tokens + ROOM))
        return replace(
            second,
            prompt_tokens=first.prompt_tokens + second.prompt_tokens,
            completion_tokens=first.completion_tokens + second.completion_tokens,
            thought_tokens=first.thought_tokens + second.thought_tokens,
            retries=first.retries + second.retries,
        )

    async def aclose(self) -> None:
        await self.client.aclose()
