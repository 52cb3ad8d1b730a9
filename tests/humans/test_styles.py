"""The scripted human as a persona: what it says follows from the dialogue, and no fact is added or lost for good."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from sweet.errors import UsageError
from sweet.humans.personas import PLAIN, Persona, packaged
from sweet.humans.scripted import ASK_AGAIN, SHARE, STYLES, ScriptedHuman, speak
from sweet.tasks.base import Message, Task
from sweet.tasks.code.kind import CodeKind
from sweet.tasks.facts import UNKNOWN
from sweet.tasks.html.kind import HtmlKind
from sweet.tasks.micro import generator

KIND = CodeKind()
TASKS = [task for task in generator.load("test")[:60] if len(task.facts) > 2]


def talk(task: Task, name: str, questions: Sequence[str]) -> list[str]:
    """Return the replies of a persona to questions."""
    dialogue = [Message(role="user", content=task.problem_description)]
    replies = []
    for question in questions:
        dialogue.append(Message(role="assistant", content=question))
        replies.append(speak(KIND, task, dialogue, packaged()[name]))
        dialogue.append(Message(role="user", content=replies[-1]))
    return replies


def asking(*facts: int) -> Callable[[Task], str]:
    return lambda task: " and ".join(f"the {task.facts[fact].cues[0]}" for fact in facts) + "?"


def test_terse_gives_one_fact_a_reply() -> None:
    for task in TASKS:
        both = KIND.scripted_reply(task, [Message(role="assistant", content=asking(0, 1)(task))])
        (said, unknown) = talk(task, "terse", [asking(0, 1)(task), "Why?"])
        assert both.startswith(said)
        assert said in {fact.answer for fact in task.facts}
        assert unknown == UNKNOWN


def test_unsure_answers_when_it_is_asked_again() -> None:
    put_off = 0
    for task in TASKS:
        question = asking(0)(task)
        first, second = talk(task, "unsure", [question, question])
        answers = [reply for reply in (first, second) if task.facts[0].answer in reply]
        assert answers
        if first == ASK_AGAIN:
            put_off += 1
            assert task.facts[0].answer in second
    assert 0.3 * SHARE * len(TASKS) < put_off < 2.5 * SHARE * len(TASKS)


def test_the_same_dialogue_gives_the_same_reply() -> None:
    for name in STYLES:
        for task in TASKS[:10]:
            questions = [asking(0)(task), asking(1)(task)]
            assert talk(task, name, questions) == talk(task, name, questions)


def test_what_needs_a_model_is_refused() -> None:
    for kind, persona in (
        (KIND, packaged()["german"]),
        (KIND, Persona("own", "Whisper.")),
        (KIND, Persona("terse", "Another text under a packaged name.")),
        (HtmlKind(), packaged()["terse"]),
    ):
        with pytest.raises(UsageError, match="needs a model"):
            ScriptedHuman(kind, persona)
    assert ScriptedHuman(KIND, PLAIN).name == "scripted"
    assert ScriptedHuman(KIND, packaged()["terse"]).name == "scripted:terse"


def test_a_kind_with_rules_of_its_own_has_no_personas() -> None:
    class Own(CodeKind):
        def scripted_reply(self, task: Task, dialogue: Sequence[Message]) -> str:
            return "Yes."

    with pytest.raises(UsageError, match="scripted human of code tasks"):
        ScriptedHuman(Own(), packaged()["terse"])
