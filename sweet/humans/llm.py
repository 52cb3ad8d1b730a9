"""A language model as the simulated human: its prompt contains the reference and asks it to answer from that alone.

As in the original protocol it is decoded greedily and its reply is cut, because a long reply leaks the solution. A
reply that leaks it is asked for again (sweet.humans.asking). Protocol `upstream` puts the original's system message
before the prompt, and never asks again. A persona is added below the prompt.
"""

from __future__ import annotations

from collections.abc import Sequence

from sweet.humans.asking import AskedHuman
from sweet.humans.base import HumanReply
from sweet.llm.base import Sampling
from sweet.tasks.base import Message, Task

SAMPLING = Sampling(temperature=0.0, max_tokens=256)

UPSTREAM_SYSTEM = Message(role="system", content="You are a helpful assistant.")
"""The system message of the simulated human of code in the published protocol."""


class LLMHuman(AskedHuman):
    """Plays the human by asking `client` (implements sweet.humans.base.Human)."""

    async def reply(self, task: Task, dialogue: Sequence[Message]) -> HumanReply:
        """Ask the model for the next reply; raises what `ChatClient.chat` raises."""
        system = [UPSTREAM_SYSTEM] if self.protocol == "upstream" else []
        *before, last = self.kind.human_prompt(task, dialogue)
        asked = Message(role=last.role, content=self.persona.added_to(last.content))
        return await self.ask([*system, *before, asked], SAMPLING, task, dialogue)
