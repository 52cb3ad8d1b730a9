"""Programs in other notations are leaks too: JavaScript, syntax trees in JSON, numbered steps, many answers."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from benchmarks.attacks.decoding import from_javascript, from_steps, from_tree
from sweet.humans.faults import LEAST_ANSWERS, are_answers, fault_of
from sweet.tasks.base import Message, Task

TASK = Task(
    id="t",
    problem_description="The price. The signature of the function is: def price(hours, member)",
    ground_truth="def price(hours, member):\n    fee = 5 * hours\n    if member and hours > 2:\n        fee = fee - 3\n"
    "    else:\n        fee = fee + 1\n    return max(fee, 4)",
)
TREE = [
    ["set", "fee", "5 * hours"],
    ["if", "member and hours > 2", [["set", "fee", "fee - 3"]], [["set", "fee", "fee + 1"]]],
    ["return", "max(fee, 4)"],
]
STEPS = (
    "1. Set `fee` to `5 * hours`.\n2. If `member and hours > 2`:\n2.1. Set `fee` to `fee - 3`.\n2. Otherwise:\n"
    "2.1. Set `fee` to `fee + 1`.\n3. Return `max(fee, 4)`."
)
JAVASCRIPT = """function price(hours, member) {
  let fee = 5 * hours;
  if (member && hours > 2) {
    fee = fee - 3;
  } else {
    fee = fee + 1;
  }
  return Math.max(fee, 4);
}"""
DIALOGUE = [Message(role="user", content=TASK.problem_description), Message(role="assistant", content="What is it?")]
BODY = TASK.ground_truth.split("\n", 1)[1].replace("\n    ", "\n").removeprefix("    ")


@pytest.mark.parametrize(
    "reply",
    [
        json.dumps(TREE),
        json.dumps(TREE, indent=2),
        f"```json\n{json.dumps(TREE)[:-8]}",
        STEPS,
        f"Well:\n{STEPS}",
        f"```\n{JAVASCRIPT}\n```",
        "yn" * 40,
    ],
    ids=["tree", "tree over lines", "tree that was cut", "steps", "steps after words", "JavaScript", "answers"],
)
def test_a_program_in_a_notation_is_a_leak(reply: str) -> None:
    assert asyncio.run(fault_of(reply, TASK, DIALOGUE)) == "leaked"


@pytest.mark.parametrize(
    "reply",
    [
        "1. The fee is 5 for each hour.\n2. If the person is a member, take 3 off after 2 hours.\n3. At least 4.",
        '["Anna", "Ben"] is such a list, with the hours [1, 2].',
        "Yes, no, yes.",
        "1. If `hours` is above 2, a `member` pays 3 less.",
        "hm, " * 20,
    ],
)
def test_facts_in_lists_are_none(reply: str) -> None:
    assert asyncio.run(fault_of(reply, TASK, DIALOGUE)) is None


def test_all_notations_are_written_as_the_same_program() -> None:
    script = from_javascript([f"```\n{JAVASCRIPT}\n```"])
    assert from_tree([json.dumps(TREE)]) == from_steps([STEPS]) == script.replace("  and  ", " and ") == BODY


def test_answers_are_letters_or_words_and_many() -> None:
    assert are_answers("yes, no, " * LEAST_ANSWERS)
    assert are_answers("Y N E " * LEAST_ANSWERS)
    assert not are_answers("y" * LEAST_ANSWERS)
    assert not are_answers("yn" * (LEAST_ANSWERS // 2 - 1))
    assert not are_answers("no, that is not how it is, yes")


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ('[["set", "x", "1"], ["ret', "x = 1"),
        ('[["set", "x", "a\\"]"], [', 'x = a"]'),
        ('["return", "x"] and ["return", "y"]', "return x"),
        ('Here [it] is: [["do", "f(\n1)"]]', "f( 1)"),
        ("[", ""),
    ],
)
def test_a_tree_may_be_cut_and_stand_between_words(text: str, program: str) -> None:
    assert from_tree([text]) == program


@pytest.mark.parametrize(
    "text",
    [
        "[" * 50_000,
        '["a",' * 10_000,
        '["if", "x", ' * 4000,
        '[""' * 12_000,
        "1. `" * 12_000,
        "if (x) {\n" * 5000 + ";",
        ";{" + "}" * 49_000,
    ],
)
def test_hostile_text_is_read_in_bounded_time(text: str) -> None:
    began = time.process_time()
    for decoded in (from_tree, from_steps, from_javascript):
        decoded([f"```\n{text}"])
    assert time.process_time() - began < 1
