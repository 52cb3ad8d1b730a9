"""The scripted human: it answers by its task kind's rules, from the task's facts. Without a model, dialogues replay.

Without a model it also plays these personas:

    terse       one fact a reply
    unsure      hedges, and at a quarter of the questions asks to be asked again

Its decisions are drawn by a hash of the task and of the dialogue so far, not by a seed: the same human says the same in
the same dialogue, in this process or served, and is compared with others at the same questions. What it said before is
read in the dialogue, so it holds no state.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence

from sweet.errors import UsageError
from sweet.hints import option
from sweet.humans.base import HumanReply
from sweet.humans.personas import PLAIN, Persona, packaged, text_in
from sweet.llm.base import RequestFailed
from sweet.llm.scripted import SCRIPTED, ScriptedClient
from sweet.tasks.base import Message, Task
from sweet.tasks.facts import UNKNOWN, facts_asked_for, reply_from_facts
from sweet.tasks.kind import TaskKind

SERVED_NAME = "scripted-human"
"""The model that a server of the scripted human serves. The name `scripted` means the one that runs without a
server."""

SHARE = 0.25
"""Share of the questions at which an unsure human asks to be asked again."""

ASK_AGAIN = "I am not certain, I would have to look. Could you ask me that once more?"


class ScriptedHuman:
    """Answers by `TaskKind.scripted_reply`, or as a persona (implements sweet.humans.base.Human).

    Raises:
        UsageError: the persona needs a model.
    """

    def __init__(self, kind: TaskKind, persona: Persona = PLAIN) -> None:
        check_style(kind, persona)
        self.kind, self.persona = kind, persona
        self.name = persona.of(SCRIPTED)

    async def reply(self, task: Task, dialogue: Sequence[Message]) -> HumanReply:
        return HumanReply(speak(self.kind, task, dialogue, self.persona))


class ScriptedResponder(ScriptedClient):
    """The scripted human as a chat model, which can replace a model that plays the human of given tasks.

    The prompt contains request, reference and dialogue and can be parsed back exactly (`sweet.tasks.prompts`); a
    packaged persona is found in it by its text.
    """

    def __init__(self, kind: TaskKind, tasks: Iterable[Task], model: str = SERVED_NAME) -> None:
        super().__init__(self._reply, model)
        self.kind = kind
        self._tasks = {
            (task.problem_description, hidden): task
            for task in tasks
            for hidden in (task.specification, task.hidden)
            if hidden
        }

    def _reply(self, messages: Sequence[Message], _temperature: float, _seed: int | None) -> str:
        """Return the human's reply; to a human that is asked again, after a reply that was withheld, the same one.

        Raises:
            RequestFailed: the first message of the user is not the human's prompt of a known task, or it has a persona
                that needs a model.
        """
        prompt_text = next((message.content for message in messages if message.role == "user"), "")
        try:
            prompt = self.kind.prompts.read(prompt_text)
        except ValueError as error:
            raise RequestFailed("The scripted human answers only the prompt of the simulated human.") from error
        task = self._tasks.get((prompt.request, prompt.hidden))
        if task is None:
            raise RequestFailed("The scripted human does not know this task: it was started with other tasks.")
        text = text_in(prompt_text)
        persona = next((p for p in packaged().values() if p.text == text), Persona("of this prompt", text))
        try:
            return speak(self.kind, task, prompt.dialogue, persona)
        except UsageError as error:
            raise RequestFailed(error.what, fix=error.fix) from error


def speak(kind: TaskKind, task: Task, dialogue: Sequence[Message], persona: Persona) -> str:
    """Return the scripted reply to `dialogue`, whose last message is the agent's.

    Raises:
        UsageError: this persona needs a model; see `check_style`.
    """
    if not persona.text:
        return kind.scripted_reply(task, dialogue)
    check_style(kind, persona)
    return STYLES[persona.name](task, dialogue)[: kind.human_reply_limit].rstrip()


def check_style(kind: TaskKind, persona: Persona) -> None:
    """Check that the scripted human can play a persona.

    Raises:
        UsageError: only a model can: it is another language, a persona of the user, or the kind's human has no facts.
    """
    if not persona.text:
        return
    by_facts = type(kind).scripted_reply is TaskKind.scripted_reply and not kind.visual
    if persona.name in STYLES and persona == packaged()[persona.name] and by_facts:
        return
    who = "scripted human" if by_facts else f"scripted human of {kind.name} tasks"
    raise UsageError(
        f"The {who} cannot play the persona {persona.name}, which needs a model.",
        where=option("persona", persona.name),
        fix=f"--sim MODEL, or one of {', '.join(STYLES)}" if by_facts else "--sim MODEL, or no persona",
    )


def _terse(task: Task, dialogue: Sequence[Message]) -> str:
    facts = facts_asked_for(task, _question(dialogue))
    return facts[0].answer if facts else _answer(task, dialogue)


def _unsure(task: Task, dialogue: Sequence[Message]) -> str:
    put_off = next((message.content for message in reversed(dialogue[1:]) if message.role == "user"), None) == ASK_AGAIN
    if not put_off and _draw(task, dialogue) < SHARE:
        return ASK_AGAIN
    answer = _answer(task, dialogue)
    return answer if answer == UNKNOWN else f"If I remember well: {answer} At least I think so."


STYLES: Mapping[str, Callable[[Task, Sequence[Message]], str]] = {"terse": _terse, "unsure": _unsure}
"""The packaged personas that need no model. Each maps a task and a dialogue, which ends with the agent's message, to
the reply."""


def _answer(task: Task, dialogue: Sequence[Message]) -> str:
    return reply_from_facts(task, _question(dialogue))


def _question(dialogue: Sequence[Message]) -> str:
    return next((message.content for message in reversed(dialogue) if message.role == "assistant"), "")


def _draw(task: Task, dialogue: Sequence[Message]) -> float:
    """Return a number in [0, 1) that depends on the task and the dialogue so far."""
    digest = hashlib.sha256(f"unsure\0{task.id}".encode(errors="replace"))
    for message in dialogue:
        digest.update(f"\0{message.role}\0{message.content}".encode(errors="replace"))
    return int.from_bytes(digest.digest()[:6], "big") / 2**48
