"""A language model as the simulated human: shown the reference, told to say what follows from it and nothing else.

As in the original protocol it answers greedily and its reply is cut, because a simulated human that writes at length
gives the solution away.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from sweet.humans.base import HumanReply
from sweet.humans.faults import fault_of
from sweet.llm.base import ChatClient, Completion, Sampling
from sweet.tasks.base import Message, Task
from sweet.tasks.kind import TaskKind
from sweet.tasks.trajectory import HumanFault

SAMPLING = Sampling(temperature=0.0, max_tokens=256)


class LLMHuman:
    """Plays the human by asking `client` (implements sweet.humans.base.Human).

    What is wrong with a reply is told with it (sweet.humans.faults); what follows from it is its caller's.
    """

    def __init__(self, client: ChatClient, kind: TaskKind) -> None:
        self.client = client
        self.kind = kind
        self.name = client.model

    async def reply(self, task: Task, dialogue: Sequence[Message]) -> HumanReply:
        """Ask for the next reply; errors as of `ChatClient.chat`."""
        completion = await self.client.chat(self.kind.human_prompt(task, dialogue), SAMPLING)
        return reply_of(completion, self.kind.human_reply_limit, partial(fault_of, task=task, dialogue=dialogue))


def reply_of(completion: Completion, limit: int, fault: Callable[[str], HumanFault | None]) -> HumanReply:
    """A model's completion as the human's reply, cut at `limit` characters; `fault` tells what is wrong with it."""
    text = completion.replies[0].text.strip()[:limit].rstrip()
    return HumanReply(text, completion.prompt_tokens, completion.completion_tokens, completion.retries, fault(text))
