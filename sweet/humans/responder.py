"""The scripted human as a chat model: it gets only a prompt, finds the task in it, and answers from the task's facts.

The prompt of the simulated human contains request, reference and dialogue and can be parsed back exactly
(`sweet.tasks.prompts`), so that this can replace a model that plays the human. It also plays the packaged personas that
need no model, which it finds in the prompt by their text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sweet.errors import UsageError
from sweet.humans.personas import Persona, packaged, text_in
from sweet.humans.styles import speak
from sweet.llm.base import Completion, Reply, RequestFailed, Sampling
from sweet.tasks.base import Message, Task
from sweet.tasks.kind import TaskKind

NAME = "scripted-human"
"""The model that it serves. The name `scripted` means the scripted human that runs without a server."""


class ScriptedResponder:
    """Implements `sweet.llm.base.ChatClient` for the prompts of the simulated human of given tasks."""

    context = None
    limiter = None

    def __init__(self, kind: TaskKind, tasks: Iterable[Task], model: str = NAME) -> None:
        self.kind, self.model = kind, model
        self._tasks = {
            (task.problem_description, hidden): task
            for task in tasks
            for hidden in (task.specification, task.hidden)
            if hidden
        }

    async def chat(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        """Return the human's reply; to a human that is asked again, after a reply that was withheld, the same one.

        Raises:
            RequestFailed: the first message of the user is not the human's prompt of a known task, or it has a persona
                that needs a model.
        """
        asked = next((message.content for message in messages if message.role == "user"), "")
        try:
            prompt = self.kind.prompts.read(asked)
        except ValueError as error:
            raise RequestFailed("The scripted human answers only the prompt of the simulated human.") from error
        task = self._tasks.get((prompt.request, prompt.hidden))
        if task is None:
            raise RequestFailed("The scripted human does not know this task: it was started with other tasks.")
        text = text_in(asked)
        persona = next((one for one in packaged().values() if one.text == text), Persona("of this prompt", text))
        try:
            reply = Reply(speak(self.kind, task, prompt.dialogue, persona), "stop")
        except UsageError as error:
            raise RequestFailed(error.what, fix=error.fix) from error
        return Completion((reply,) * sampling.n, 0, 0, self.model)

    async def aclose(self) -> None:
        """Do nothing: there is no connection to close."""
