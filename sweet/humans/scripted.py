"""The scripted human: it answers by its task kind's rules, from the task's facts. Without a model, dialogues replay.

Without a model it also plays these personas:

    terse       one fact a reply
    talkative   small talk around the facts
    unsure      hedges, and at a quarter of the questions asks to be asked again
    slips       at a quarter of the questions with a number in the answer it says another number, and corrects itself in
                its next reply

All decisions are drawn by a hash of the task and of the dialogue so far, not by a seed: the same human says the same in
the same dialogue, in this process or served, and is compared with others at the same questions. What it said before is
read in the dialogue, so it holds no state, and corrects only what it really said.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence

from sweet.errors import UsageError
from sweet.hints import option
from sweet.humans.base import HumanReply
from sweet.humans.personas import PLAIN, Persona, packaged, text_in
from sweet.llm.base import Completion, Reply, RequestFailed, Sampling
from sweet.llm.scripted import SCRIPTED
from sweet.tasks.base import Message, Task
from sweet.tasks.facts import UNKNOWN, facts_asked_for, reply_from_facts
from sweet.tasks.kind import TaskKind

SERVED_NAME = "scripted-human"
"""The model that a server of the scripted human serves. The name `scripted` means the one that runs without a
server."""

SHARE = 0.25
"""Share of the questions at which a human slips, or asks to be asked again."""

ASK_AGAIN = "I am not certain, I would have to look. Could you ask me that once more?"
SORRY = "Sorry, what I said before was wrong."

_OPENINGS = (
    "Thanks for asking, I was about to mention that.",
    "Oh, we talked about this in the office only yesterday.",
    "Good that you ask, my colleagues always forget it.",
    "Let me think, I have it somewhere in my notes.",
)
_CLOSINGS = (
    "I hope that helps, it has been a long day here.",
    "Tell me if I am talking too much.",
    "I am really looking forward to seeing this work.",
    "Thank you for your patience with me.",
)


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


class ScriptedResponder:
    """The scripted human as a chat model, which can replace a model that plays the human: it implements
    `sweet.llm.base.ChatClient` for the prompts of the simulated human of given tasks.

    The prompt contains request, reference and dialogue and can be parsed back exactly (`sweet.tasks.prompts`); a
    packaged persona is found in it by its text.
    """

    context = None
    limiter = None

    def __init__(self, kind: TaskKind, tasks: Iterable[Task], model: str = SERVED_NAME) -> None:
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


def _talkative(task: Task, dialogue: Sequence[Message]) -> str:
    opening = _OPENINGS[int(_draw("opening", task, dialogue) * len(_OPENINGS))]
    closing = _CLOSINGS[int(_draw("closing", task, dialogue) * len(_CLOSINGS))]
    return f"{opening} {_answer(task, dialogue)} {closing}"


def _unsure(task: Task, dialogue: Sequence[Message]) -> str:
    put_off = _said_before(dialogue) == ASK_AGAIN
    if not put_off and _draw("unsure", task, dialogue) < SHARE:
        return ASK_AGAIN
    answer = _answer(task, dialogue)
    return answer if answer == UNKNOWN else f"If I remember well: {answer} At least I think so."


def _slips(task: Task, dialogue: Sequence[Message]) -> str:
    said, before = _said_before(dialogue), dialogue[: _place_before(dialogue)]
    if said and said == _slip(task, before):
        return f"{SORRY} {_answer(task, before)} {_answer(task, dialogue)}"
    return _slip(task, dialogue) or _answer(task, dialogue)


STYLES: Mapping[str, Callable[[Task, Sequence[Message]], str]] = {
    "terse": _terse,
    "talkative": _talkative,
    "unsure": _unsure,
    "slips": _slips,
}
"""The packaged personas that need no model. Each maps a task and a dialogue, which ends with the agent's message, to
the reply."""


def _slip(task: Task, dialogue: Sequence[Message]) -> str:
    """Return the wrong reply to a dialogue; empty where the human does not slip."""
    answer = _answer(task, dialogue)
    start = next((place for place, sign in enumerate(answer) if sign in "0123456789"), None)
    if start is None or _draw("slip", task, dialogue) >= SHARE:
        return ""
    end = next((place for place in range(start, len(answer)) if answer[place] not in "0123456789"), len(answer))
    wrong = int(answer[start:end][:15]) + 1 + int(_draw("by", task, dialogue) * 3)
    return f"{answer[:start]}{wrong}{answer[end:]}"


def _answer(task: Task, dialogue: Sequence[Message]) -> str:
    return reply_from_facts(task, _question(dialogue))


def _question(dialogue: Sequence[Message]) -> str:
    return next((message.content for message in reversed(dialogue) if message.role == "assistant"), "")


def _place_before(dialogue: Sequence[Message]) -> int:
    """Return the index of the human's last reply; 0 if there is none after the request."""
    return next((place for place in range(len(dialogue) - 1, 0, -1) if dialogue[place].role == "user"), 0)


def _said_before(dialogue: Sequence[Message]) -> str:
    """Return the human's last reply; empty if it has said nothing but its request."""
    place = _place_before(dialogue)
    return dialogue[place].content if place else ""


def _draw(what: str, task: Task, dialogue: Sequence[Message]) -> float:
    """Return a number in [0, 1) that depends on the task and the dialogue so far."""
    digest = hashlib.sha256(f"{what}\0{task.id}".encode(errors="replace"))
    for message in dialogue:
        digest.update(f"\0{message.role}\0{message.content}".encode(errors="replace"))
    return int.from_bytes(digest.digest()[:6], "big") / 2**48
