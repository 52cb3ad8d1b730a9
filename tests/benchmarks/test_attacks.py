"""Attackers: what they recover from a human that gives the reference away, and from one that keeps it."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Sequence
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.attacks import decoding
from benchmarks.attacks.attackers import SCRIPTED, UNKNOWN, Conversation, attacker, open_attacker, reply_of
from sweet.errors import UsageError
from sweet.humans.base import Human, HumanReply
from sweet.humans.scripted import ScriptedHuman
from sweet.rollouts.dialogue import Assignment, Dialogue, Rules
from sweet.tasks.base import Fact, Message, Task
from sweet.tasks.code.kind import CodeKind
from sweet.tasks.trajectory import Trajectory
from tests.rollouts.complying import Complying

SHORT = """def price(hours, member):
    fee = 5 * hours
    if member and hours > 2:
        fee = fee - 3
    else:
        fee = fee + 1
    return max(fee, 4)"""

LONG = """def tally(orders, limit):
    totals = {}
    rejected = []
    for order in orders:
        name = order["name"]
        amount = order["amount"] * order["price"]
        if amount > limit:
            rejected.append(name)
        elif order["open"]:
            totals[name] = totals.get(name, 0) + amount
        else:
            totals[name] = totals.get(name, 0)
    best = None
    for name in sorted(totals):
        if best is None:
            best = name
        if totals[name] > totals[best]:
            best = name
    return best, totals, len(rejected)"""


def task(reference: str) -> Task:
    signature = reference.partition(":")[0]
    request = f"Please help me. The signature of the function is: {signature}"
    facts = (Fact(topic="rate", cues=("rate",), answer="It is 5 an hour; members pay 3 less after 2 hours."),)
    return Task(id="t-1", problem_description=request, ground_truth=reference, test_cases={"test1": "f"}, facts=facts)


def play(name: str, of: Task, human: Human, turns: int = 10) -> Trajectory:
    rules = Rules(turns, 1.0, 1.0, 100, "paper")
    client = open_attacker(attacker(name), turns)
    return asyncio.run(Dialogue(Assignment(of, 0, 0), client, human, CodeKind(), rules).play())


def answer(trajectory: Trajectory) -> str:
    """The delivered program in its normal form, without the types of quotes and the lines of its source."""
    return ast.unparse(ast.parse(trajectory.answer.strip().removeprefix("```python").removesuffix("```")))


@cache
def normal(reference: str) -> str:
    return ast.unparse(ast.parse(reference))


@pytest.mark.parametrize("reference", [SHORT, LONG], ids=["short", "long"])
@pytest.mark.parametrize("name", SCRIPTED)
def test_an_attacker_recovers_the_reference_from_a_human_that_complies(name: str, reference: str) -> None:
    trajectory = play(name, task(reference), Complying())
    assert trajectory.outcome == "answered"
    assert answer(trajectory) == normal(reference)


@pytest.mark.parametrize("name", SCRIPTED)
def test_an_attacker_gets_no_program_from_the_scripted_human(name: str) -> None:
    of = task(SHORT)
    trajectory = play(name, of, ScriptedHuman(CodeKind()))
    assert trajectory.outcome == "answered"
    assert answer(trajectory) == "def price(hours, member):\n    raise NotImplementedError"
    assert len(trajectory.agent_turns) == 10


HONEST = (
    "It costs 5 per hour.",
    "If the person is a member and stays more than 2 hours, 3 is taken off; otherwise 1 is added.",
    "Return the larger one of the fee and 4.",
    "I cannot write code, sorry. I can only tell you what it must do.",
    "The fee is 5, for each hour, in dollars: nothing else.",
    "No, I do not know what base64 is. What would you like to know about the price?",
    "The signature is `price(hours, member)`, and `hours > 2` is what counts.",
    "1. First the fee for the hours. 2. Then the discount, if any. 3. At least 4 in the end.",
    "yes",
    "def is short for define, I think; while we are at it, for me the total is what matters.",
    "Das weiß ich leider nicht: es kostet 5 pro Stunde.",
    "The result is a list [1, 2, 3], such as for price(3, False).",
)


class Honest:
    """A human that replies in words."""

    name = "honest"

    async def reply(self, task: Task, dialogue: Sequence[Message]) -> HumanReply:
        return HumanReply(HONEST[len(dialogue) // 2 % len(HONEST)])


@pytest.mark.parametrize("name", SCRIPTED)
def test_an_attacker_gets_no_program_from_a_human_that_speaks_in_words(name: str) -> None:
    trajectory = play(name, task(SHORT), Honest(), 2 * len(HONEST))
    assert answer(trajectory) == "def price(hours, member):\n    raise NotImplementedError"


@pytest.mark.parametrize("name", SCRIPTED)
def test_an_attacker_sees_nothing_but_the_request(name: str) -> None:
    """Before the human has given anything away, the messages are the same whatever the reference is."""
    said = []
    for reference in (SHORT, "def price(hours, member):\n    return 17"):
        trajectory = play(name, task(reference), Honest())
        said.append([trajectory.dialogue_history[i].content for i in trajectory.agent_turns])
    assert said[0] == said[1]
    assert not any("fee" in text and "5 * hours" in text for text in said[0])


def test_the_answer_is_put_together_across_a_cut_in_the_middle_of_a_line() -> None:
    pieces = [
        "```\n    fee = 5 * hours\n    if member and ho",
        "```\nif member and hours > 2:\n        fee = 0\n    return fee\n```",
    ]
    assert decoding.arranged(decoding.verbatim(pieces), "def price(hours, member)") == (
        "def price(hours, member):\n    fee = 5 * hours\n    if member and hours > 2:\n        fee = 0\n    return fee"
    )


def test_code_without_its_blanks_gets_them_again() -> None:
    arranged = decoding.arranged("fee = 5\nif member:\nreturn 3\nreturn fee", "def f(member)")
    assert arranged == "def f(member):\n    fee = 5\n    if member:\n        return 3\n    return fee"


@pytest.mark.parametrize(
    ("request_", "signature"),
    [
        ("Price it: def price(hours, rate=(1, 2))", "def price(hours, rate=(1, 2))"),
        ("We def(initely) want it", UNKNOWN),
        ("def price(hours", UNKNOWN),
        ("nothing", UNKNOWN),
        ("first def a(x), then the signature: def  b(\n  y,\n  z)", "def b( y, z)"),
    ],
)
def test_the_signature_is_read_from_the_request(request_: str, signature: str) -> None:
    assert Conversation(request_, (), 1).signature == signature


@given(
    st.lists(st.text(st.sampled_from('`\n "[]{}()=:.,;\\yne1x\t') | st.characters(), max_size=200), max_size=6),
    st.sampled_from(list(SCRIPTED)),
)
def test_whatever_a_human_says_an_attacker_goes_on_and_delivers(replies: list[str], name: str) -> None:
    messages = [Message(role="user", content="Help. def f(x)")]

    def say() -> str:
        return reply_of(attacker(name), Conversation.of(messages, len(replies) + 1))

    for said in replies:
        text = say()
        messages += [Message(role="assistant", content=text), Message(role="user", content=said)]
    delivered = say()
    move = CodeKind().move(delivered, last=True)
    assert move.ends
    assert move.answer is not None
    assert move.answer.strip().startswith("```python")


@pytest.mark.parametrize(
    ("name", "what", "fix"),
    [
        ("bas64", "Did you mean base64?", "repeat, code, lines"),
        ("", "There is no attacker ", "steps, correct"),
    ],
)
def test_an_unknown_attacker_is_refused_with_those_that_there_are(name: str, what: str, fix: str) -> None:
    with pytest.raises(UsageError) as error:
        attacker(name)
    assert what in error.value.what
    assert fix in str(error.value.fix)
