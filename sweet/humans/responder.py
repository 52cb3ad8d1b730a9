"""The scripted human behind a server: it is told only a prompt, finds the task in it, and answers from its facts.

The prompt of the simulated human holds request, reference and dialogue and can be read back exactly
(`sweet.tasks.prompts`), so a program that asks a model to play the human can be given this one instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sweet.llm.base import Completion, Reply, RequestFailed, Sampling
from sweet.tasks.base import Message, Task
from sweet.tasks.kind import TaskKind


class ScriptedResponder:
    """Implements `sweet.llm.base.ChatClient` for the prompts of the simulated human of some tasks.

    It is not called `scripted`: that name means the scripted human that runs without any server.
    """

    context = None

    def __init__(self, kind: TaskKind, tasks: Iterable[Task], model: str = "scripted-human") -> None:
        self.kind, self.model = kind, model
        self._tasks = {(task.problem_description, task.hidden): task for task in tasks}

    async def chat(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        """The human's reply; RequestFailed where the last message is not the human's prompt of a known task."""
        try:
            prompt = self.kind.prompts.read(messages[-1].content)
        except ValueError as error:
            raise RequestFailed("The scripted human answers only the prompt of the simulated human.") from error
        task = self._tasks.get((prompt.request, prompt.hidden))
        if task is None:
            raise RequestFailed("The scripted human does not know this task: it was started with other tasks.")
        reply = Reply(self.kind.scripted_reply(task, prompt.dialogue), "stop")
        return Completion((reply,) * sampling.n, 0, 0, self.model)

    async def aclose(self) -> None:
        """Nothing is held."""
