"""The credit of replies to code tasks: which question asks for an unknown fact, and which answer is the reference."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweet.errors import InputError
from sweet.tasks.base import Credit, Fact, Message, Task
from sweet.tasks.code.kind import CodeKind
from sweet.tasks.facts import reply_from_facts
from sweet.tasks.micro.family import FAMILIES
from sweet.tasks.registry import task_kind

SOURCE = "def fee(n):\n    x = n * 3\n    x = x + 7\n    return min(x, 40)"
TASK = Task(
    id="fee",
    problem_description="I need a fee. def fee(n)",
    ground_truth=SOURCE,
    test_cases={"a": "fee(1)"},
    facts=(
        Fact(topic="rate", cues=("rate",), answer="It is 3.", line="x = n * 3"),
        Fact(topic="fixed", cues=("fixed", "flat"), answer="It is 7 more.", line="x = x + 7"),
    ),
)
RATE, FIXED, BOTH, ODD = "What is the rate?", "How much is fixed?", "Rate and flat charge?", "Which colour?"


def answer(source: str = SOURCE) -> str:
    return f"I WANT TO ANSWER:\n```python\n{source}\n```"


def kind(asked: Sequence[str], reply: str, *, last: bool = False, task: Task = TASK) -> str:
    observation = [Message(role="system", content="rate, fixed"), Message(role="user", content="fixed rate")]
    for question in asked:
        observation.append(Message(role="assistant", content=question))
        observation.append(Message(role="user", content=reply_from_facts(task, question)))
    found = task_kind("code").credit(task, observation, reply, last=last)
    assert isinstance(found, Credit)
    return found.kind


@pytest.mark.parametrize(
    ("asked", "reply", "expected"),
    [
        ([], RATE, "useful"),
        ([RATE], FIXED, "useful"),
        ([RATE], BOTH, "useful"),
        ([RATE], "And the RATE again?", "repeated"),
        ([BOTH], FIXED, "repeated"),
        ([ODD], f" {ODD}", "repeated"),
        ([], ODD, "useless"),
        ([RATE], ODD, "useless"),
        ([], f"The rate? OUTPUT: {ODD}", "useless"),
    ],
)
def test_a_question(asked: list[str], reply: str, expected: str) -> None:
    assert kind(asked, reply) == expected


WITHOUT = SOURCE.replace("    x = x + 7\n", "")


@pytest.mark.parametrize(
    ("asked", "source", "last", "expected"),
    [
        ([RATE], SOURCE, False, "early"),
        ([BOTH], SOURCE, False, "full"),
        ([BOTH], SOURCE, True, "full"),
        ([BOTH], SOURCE.replace("n * 3", "n*3  # each"), False, "full"),
        ([BOTH], SOURCE.replace("3", "4"), False, "wrong"),
        ([BOTH], WITHOUT, True, "wrong"),
        ([RATE], WITHOUT, True, "partial"),
        ([FIXED], WITHOUT, True, "wrong"),
        ([RATE], WITHOUT.replace("3", "4"), True, "wrong"),
        ([RATE], SOURCE.replace("7", "8"), True, "wrong"),
        ([RATE], WITHOUT.replace("    return min(x, 40)", "    return x"), True, "wrong"),
        ([RATE], SOURCE.replace("    x = x + 7", "x = x + 7"), True, "wrong"),
        ([BOTH], "no code", False, "wrong"),
        ([BOTH], "def fee(n):\n    return " + "1+" * 20_000 + "1", False, "wrong"),
    ],
)
def test_an_answer(asked: list[str], source: str, last: bool, expected: str) -> None:
    assert kind(asked, answer(source), last=last) == expected


def test_on_the_last_turn_a_question_is_a_wrong_answer() -> None:
    assert kind([], RATE, last=True) == "wrong"


def test_a_fact_without_a_line_is_never_optional() -> None:
    facts = tuple(fact.model_copy(update={"line": None}) for fact in TASK.facts)
    task = TASK.model_copy(update={"facts": facts})
    assert kind([RATE], answer(WITHOUT), last=True, task=task) == "wrong"


def test_without_facts_there_is_no_credit() -> None:
    task = TASK.model_copy(update={"facts": ()})
    assert task_kind("code").credit(task, [], RATE, last=False) is None
    assert task_kind("html").credit(task, [], RATE, last=False) is None


@given(st.text(), st.booleans())
def test_any_text_has_a_credit(text: str, last: bool) -> None:
    assert kind([RATE], text, last=last) in ("useful", "useless", "repeated", "early", "wrong", "partial")


@pytest.mark.parametrize("name", FAMILIES)
def test_the_solution_of_every_micro_task_is_full_after_all_questions(name: str) -> None:
    for task in task_kind("code").load(name, "validation")[:40]:
        asked = [fact.cues[0] for fact in task.facts]
        said = [f"PART:\n{line}" for line in task.ground_truth.split("\n")[:-1]] if task.part_lines else []
        last = task.ground_truth.split("\n")[-1] if said else task.ground_truth
        assert kind([*asked, *said], answer(last), task=task) == "full"
        if said:
            continue
        lines = [fact.line for fact in task.facts if fact.line is not None]
        assert lines
        for line in lines:
            less = "\n".join(one for one in task.ground_truth.split("\n") if one.strip() != line)
            assert kind([], answer(less), last=True, task=task) == "partial"


def test_a_line_that_is_not_in_the_reference_is_refused() -> None:
    def wrong(what: str, fix: str) -> InputError:
        return InputError(what, path="tasks.jsonl", line=3, fix=fix)

    row = TASK.model_dump(mode="json")
    assert CodeKind().fields(row, wrong)
    row["facts"][0]["line"] = "x = n * 4"
    with pytest.raises(InputError, match="'rate' names a line"):
        CodeKind().fields(row, wrong)
