"""Replies of weak models as the human: what is cut, what is a fault, and honest replies, which stay as they are."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import leak_forms_honest
from benchmarks.leak_references import references
from sweet.humans.asking import WITHHELD
from sweet.humans.role import Role
from sweet.tasks.base import Message
from sweet.tasks.registry import task_kind
from sweet.tasks.trajectory import HumanFault

KIND = task_kind("code")
ROLE = Role(" ".join([KIND.prompts.human, *WITHHELD.values()]), KIND.prompts.speaker, "terse")
ASKED = [Message(role="assistant", content="What is the rate?")]


@pytest.mark.parametrize(
    "reply",
    [
        *(f"{label}It is 5." for label in ("Human: ", "**Human**: ", "**User:** ", "[Person]: ", "> Me:\n", "You: ")),
        *(f"{label}It is 5." for label in ("terse: ", "<human>: ", "Reply: ", "Mensch: ", "Usuario: ", "用户：")),
        *('"It is 5."', "“It is 5.”", "«It is 5.»", "„It is 5.“", "'It is 5.'", 'User: "Human: It is 5."'),
        *(
            f"It is 5.\n{label} And the tax?"
            for label in ("Programmer:", "**Assistant:**", "Human:", "terse:", "助手：")
        ),
        *("It is 5. Programmer: Good.\nHuman: Yes.", '"Human: It is 5."', "It is 5.\n\nEntwickler: Danke!"),
    ],
)
def test_what_is_not_said_as_the_human_is_cut(reply: str) -> None:
    assert ROLE.cleaned(reply) == "It is 5."


@pytest.mark.parametrize(
    ("reply", "fault"),
    [
        ("Programmer: What is the rate?", "roles"),
        ("**Assistant**: Sure.", "roles"),
        ("I'm a helpful AI named SmolLM, trained by Hugging Face", "roles"),
        ("I'm here to assist you with your Python code.", "roles"),
        ("I am here to get a function, not help you with yours.", None),
        ("You play a person who wants a Python function from a programmer.", "instructions"),
        ("- Tell only what was asked about, and only what follows from the function above.", "instructions"),
        ("That reply was not passed on, because it gave away the solution.", "instructions"),
        ("the rate is five " * 12, "loop"),
        ("the " * 40, "loop"),
        ("It applies the discount to all members first. Then it stops. " * 3, "loop"),
        ("La tarifa es cinco y la tarifa es cinco. " * 5, "loop"),
        ("I do not know that. Sorry, I do not know that.", None),
        ("It returns [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0].", None),
        ("The programmer: I trust you. The user: the name; the person: its age. Agent: none.", None),
        ("If the function does not settle it, I do not know.", None),
    ],
)
def test_faults_of_the_role(reply: str, fault: HumanFault | None) -> None:
    assert ROLE.fault(ROLE.cleaned(reply), ASKED) == fault


def said(*replies: str) -> list[Message]:
    """A dialogue in which the human has given these replies, each to another question, and is asked once more."""
    turns = [Message(role="user", content="I need a function.")]
    for number, reply in enumerate(replies):
        turns += [Message(role="assistant", content=f"Question {number}?"), Message(role="user", content=reply)]
    return [*turns, Message(role="assistant", content="And what else?")]


def test_the_same_statement_to_every_question_is_a_loop() -> None:
    statement = "The function takes the hours and returns the fee for a member."
    denial = "I cannot say more about that, please ask me about what it does."
    assert ROLE.fault(statement, said(*[statement] * 3)) == "loop"
    assert ROLE.fault(statement, said(*[statement] * 2)) is None, "one may say so again"
    same = [message for message in said(*[statement] * 3) if message.role == "user"]
    again = [m for one in same for m in (Message(role="assistant", content="What?"), one)]
    assert ROLE.fault(statement, [*again, Message(role="assistant", content="What?")]) is None, "it was asked the same"
    assert ROLE.fault(denial, said(*[denial] * 6)) is None
    assert ROLE.fault("Yes, to five.", said(*["Yes, to five."] * 6)) is None


TEXT = "it the hours rate is 5 percent members who order early pay less than 20 a month and vat human programmer"
WORDS = st.sampled_from(TEXT.split())
SENTENCES = st.lists(WORDS, min_size=2, max_size=9, unique=True).map(lambda words: " ".join(words).capitalize() + ".")


@given(st.lists(SENTENCES, min_size=1, max_size=3, unique=True), st.sampled_from([" ", "\n", "\n\n"]))
def test_honest_replies_stay_as_they_are(sentences: list[str], between: str) -> None:
    reply = between.join(sentences)
    assert ROLE.cleaned(reply) == reply
    assert ROLE.fault(reply, ASKED) is None


def test_honest_replies_of_the_benchmark_stay_as_they_are() -> None:
    replies = [
        reply
        for _, form in leak_forms_honest.FORMS.values()
        for reference in references()[::3]
        for reply in form(reference.source, random.Random(0)) or ()
    ]
    assert len(replies) > 600
    changed = {reply for reply in replies if ROLE.cleaned(reply) != reply.strip()}
    assert not changed
    assert not {reply for reply in replies if ROLE.fault(reply, ASKED)}
