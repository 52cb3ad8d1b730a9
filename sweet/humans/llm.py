"""A language model as the simulated human: its prompt contains the reference and asks it to answer from that alone.

As in the original protocol it is decoded greedily and its reply is cut, because a long reply leaks the solution.
Recipe `upstream` puts the original's system message before the prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from sweet.humans.base import HumanReply
from sweet.humans.faults import fault_of
from sweet.llm.base import ChatClient, Completion, Sampling
from sweet.tasks.base import Message, Recipe, Task
from sweet.tasks.kind import TaskKind
from sweet.tasks.trajectory import HumanFault

SAMPLING = Sampling(temperature=0.0, max_tokens=256)

UPSTREAM_SYSTEM = Message(role="system", content="You are a helpful assistant.")
"""The system message of the simulated human of code in the published protocol."""


class LLMHuman:
    """Plays the human by asking `client` (implements sweet.humans.base.Human).

    A faulty reply is returned with its fault (sweet.humans.faults); the caller decides what to do with it.
    """

    def __init__(self, client: ChatClient, kind: TaskKind, recipe: Recipe = "paper") -> None:
        self.client, self.kind = client, kind
        self.before = [UPSTREAM_SYSTEM] if recipe == "upstream" else []
        self.name = client.model

    async def reply(self, task: Task, dialogue: Sequence[Message]) -> HumanReply:
        """Ask the model for the next reply; raises what `ChatClient.chat` raises."""
        completion = await self.client.chat([*self.before, *self.kind.human_prompt(task, dialogue)], SAMPLING)
        return reply_of(completion, self.kind.human_reply_limit, partial(fault_of, task=task, dialogue=dialogue))


def reply_of(completion: Completion, limit: int, fault: Callable[[str], HumanFault | None]) -> HumanReply:
    """Return a model's completion as the human's reply, cut to `limit` characters; `fault` returns its fault."""
    text = completion.replies[0].text.strip()[:limit].rstrip()
    return HumanReply(text, completion.prompt_tokens, completion.completion_tokens, completion.retries, fault(text))
