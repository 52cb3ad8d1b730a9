"""A rule-based agent as a chat client: no model, no tokens."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from sweet.llm.base import Completion, Reply, Sampling
from sweet.llm.concurrency import off_loop
from sweet.tasks.base import Message
from sweet.tasks.kind import ScriptedAgent

SCRIPTED = "scripted"
"""The name, in place of a model's, of a rule-based agent or human."""


def has_model(name: str) -> bool:
    """Return whether the name of an agent or a human is that of a model, and not of rules."""
    return name != SCRIPTED


class ScriptedClient:
    """Implements `sweet.llm.base.ChatClient` with a rule-based agent, such as a kind's scripted one.

    It counts no tokens and has no context limit.

    Args:
        model: the agent's name.
    """

    def __init__(self, agent: ScriptedAgent, model: str = SCRIPTED) -> None:
        self._agent, self.model = agent, model

    async def chat(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        """The agent's replies: `n` independent ones, the same for the same messages, temperature and seed."""
        seeds = [None if sampling.seed is None else sampling.seed + number for number in range(sampling.n)]
        works = [partial(self._agent, messages, sampling.temperature, seed) for seed in seeds]
        size = sum(len(message.content) for message in messages)
        replies = [_reply(await off_loop(size, work)) for work in works]
        return Completion(tuple(replies), 0, 0, self.model)

    async def aclose(self) -> None:
        """Nothing to release."""


def _reply(reply: str | Message) -> Reply:
    return Reply(reply, "stop") if isinstance(reply, str) else Reply(reply.content, "stop", tool_calls=reply.tool_calls)
