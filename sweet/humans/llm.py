"""A language model as the simulated human: its prompt contains the reference and asks it to answer from that alone.

As in the original protocol it is decoded greedily and its reply is cut, because a long reply leaks the solution. A
reply that leaks it is asked for again (sweet.humans.asking). Recipe `upstream` puts the original's system message
before the prompt, and never asks again. A persona is added below the prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from sweet.humans.asking import ask
from sweet.humans.base import HumanReply
from sweet.humans.faults import fault_of
from sweet.humans.personas import PLAIN, Persona
from sweet.llm.base import ChatClient, Sampling
from sweet.tasks.base import Message, Recipe, Task
from sweet.tasks.kind import TaskKind

SAMPLING = Sampling(temperature=0.0, max_tokens=256)

UPSTREAM_SYSTEM = Message(role="system", content="You are a helpful assistant.")
"""The system message of the simulated human of code in the published protocol."""


class LLMHuman:
    """Plays the human by asking `client` (implements sweet.humans.base.Human).

    A faulty reply is returned with its fault (sweet.humans.faults); the caller decides what to do with it.

    Args:
        tries: replies that are asked for at each turn until one does not leak.
    """

    def __init__(
        self,
        client: ChatClient,
        kind: TaskKind,
        recipe: Recipe = "paper",
        tries: int = 1,
        persona: Persona = PLAIN,
    ) -> None:
        self.client, self.kind, self.persona = client, kind, persona
        self.tries = 1 if recipe == "upstream" else tries
        self.before = [UPSTREAM_SYSTEM] if recipe == "upstream" else []
        self.name = persona.of(client.model)

    async def reply(self, task: Task, dialogue: Sequence[Message]) -> HumanReply:
        """Ask the model for the next reply; raises what `ChatClient.chat` raises."""
        *before, last = self.kind.human_prompt(task, dialogue)
        asked = Message(role=last.role, content=self.persona.added_to(last.content))
        limit, fault = self.kind.human_reply_limit, partial(fault_of, task=task, dialogue=dialogue)
        messages = [*self.before, *before, asked]
        return await ask(self.client, messages, SAMPLING, limit=limit, fault=fault, tries=self.tries)
