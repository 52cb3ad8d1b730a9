"""The generated orders: texts without ambiguity, splits apart, an agent of mixed quality, scores and credit."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import pytest

from sweet.errors import UsageError
from sweet.tasks.base import Fact, Message, Task
from sweet.tasks.facts import facts_asked_for
from sweet.tasks.kind import opening, system_prompt
from sweet.tasks.orders.agent import speak
from sweet.tasks.orders.generator import ITEM, ORDERS, WISHES
from sweet.tasks.orders.scoring import GUESSED, OrderScorer, judged
from sweet.tasks.registry import task_kind
from sweet.tasks.shops import LOOKS, SHOPS

pytestmark = pytest.mark.quick
KIND = task_kind("orders")
HAT = Task(
    id="hat",
    problem_description="I want a sun hat.",
    ground_truth="Sun hat, in red, delivered to the office.",
    test_cases={ITEM: "sun hat", "colour": "red", "delivery": "the office"},
    facts=(
        Fact(topic="colour", cues=("colour",), answer="Make it red, please."),
        Fact(topic="delivery", cues=("where",), answer="To the office."),
    ),
)


def dialogue(task: Task, turns: int, temperature: float, seed: int) -> tuple[list[str], str]:
    """Return the kinds of the scripted agent's replies, and its order."""
    messages, kinds = opening(KIND, task, turns), []
    for turn in range(1, turns + 1):
        reply = speak(messages, temperature, 1000 * seed + turn)
        found = KIND.credit(task, messages, reply, last=turn == turns)
        assert found is not None
        kinds.append(found.kind)
        move = KIND.move(reply, last=turn == turns)
        if move.answer is not None:
            return kinds, move.answer
        messages.append(Message(role="assistant", content=reply))
        messages.append(Message(role="user", content=KIND.scripted_reply(task, messages)))
    raise AssertionError("no order")


def solved(task: Task, answer: str) -> bool:
    return all(test.passed for test in judged(task, answer).values())


def test_a_value_is_named_by_no_other_text() -> None:
    items = [item for shops in SHOPS.values() for shop, items in shops.items() for item in (shop, *items)]
    texts = [text for wish in WISHES.values() for text in (*wish.asks, *wish.hints, *wish.answers, wish.said)]
    items += LOOKS
    for name, wish in WISHES.items():
        task = HAT.model_copy(update={"test_cases": {name: wish.values[0]}})
        for text in (*texts, *items):
            assert {test.got for test in judged(task, text).values()} == {"nothing"}, (name, text)
        for value in wish.values:
            assert solved(HAT.model_copy(update={"test_cases": {name: value}}), f"With {value}!")


def test_each_question_asks_for_one_wish() -> None:
    every = tuple(Fact(topic=name, cues=wish.cues, answer="Yes.") for name, wish in WISHES.items())
    task = HAT.model_copy(update={"facts": every})
    for name, wish in WISHES.items():
        for question in wish.asks:
            assert [fact.topic for fact in facts_asked_for(task, question)] == [name]
    hints = Counter(hint for wish in WISHES.values() for hint in wish.hints)
    assert max(hints.values()) == 1


@pytest.mark.parametrize("name", ORDERS)
def test_tasks_are_distinct_and_give_hints_without_values(name: str) -> None:
    dataset = ORDERS[name]
    for split, count in dataset.splits.items():
        tasks = KIND.load(name, split)
        assert len(tasks) == len({task.ground_truth for task in tasks}) == count
        for task in tasks[:200]:
            texts = " ".join([task.problem_description, *(fact.answer for fact in task.facts)])
            assert len(task.facts) == dataset.questions
            assert (
                sum(any(hint in texts for hint in WISHES[fact.topic].hints) for fact in task.facts) == dataset.questions
            )
            request = judged(task, task.problem_description)
            assert {test.got for key, test in request.items() if key != ITEM} == {"nothing"}
            assert solved(task, task.ground_truth)


def test_no_two_splits_share_an_item() -> None:
    items = {split: {item for items in shops.values() for item in items} for split, shops in SHOPS.items()}
    assert all(a.isdisjoint(b) for a, b in combinations(items.values(), 2))
    assert all(SHOPS[a].keys().isdisjoint(SHOPS[b].keys()) for a, b in combinations(SHOPS, 2))
    with pytest.raises(UsageError):
        KIND.load("orders-cloning", "test")


@pytest.mark.parametrize(("name", "low", "high"), [("orders", 0.2, 0.31), ("orders-long", 0.12, 0.22)])
def test_the_scripted_agent_reads_hints_and_errs_by_temperature(name: str, low: float, high: float) -> None:
    tasks, turns = KIND.load(name, "test"), ORDERS[name].turns
    for index, task in enumerate(tasks[:100]):
        kinds, answer = dialogue(task, turns, 0.0, index)
        assert kinds == ["useful"] * (turns - 1) + ["full"]
        assert solved(task, answer)
    played = [dialogue(task, turns, 1.0, index) for index, task in enumerate(tasks)]
    assert low < sum(solved(task, answer) for task, (_, answer) in zip(tasks, played, strict=True)) / len(tasks) < high
    assert {kind for kinds, _ in played for kind in kinds} == {"useful", "useless", "early", "full", "partial", "wrong"}


@pytest.mark.parametrize(
    ("answer", "failed"),
    [
        ("A SUN HAT: red; please deliver it to office", set()),
        ("Sun hat, in blue, to the office.", {"colour"}),
        ("Sun hat, in red or blue, to the office.", {"colour"}),
        ("Sun hat, in reddish, to the officer.", {"colour", "delivery"}),
        ("Hat, in red, to the office, wrapped in gold foil.", {ITEM, GUESSED}),
        ("", {ITEM, "colour", "delivery"}),
    ],
)
def test_an_order_is_judged_by_the_values_that_it_names(answer: str, failed: set[str]) -> None:
    assert {name for name, test in judged(HAT, answer).items() if not test.passed} == failed


def test_a_missing_order_scores_zero() -> None:
    verdicts = list(OrderScorer().verdicts([(HAT, "No answer"), (HAT, HAT.ground_truth)]))
    assert [(verdict.outcome, verdict.reward) for verdict in verdicts] == [("no_answer", 0.0), ("passed", 1.0)]


@pytest.mark.parametrize(
    ("asked", "reply", "last", "kind"),
    [
        ((), "Which colour?", False, "useful"),
        ((), "Which pattern?", False, "useless"),
        (("Which colour?",), "What colour?", False, "repeated"),
        (("Which pattern?",), "Which pattern?", False, "repeated"),
        ((), "I WANT TO ANSWER: Sun hat", False, "early"),
        (("Which colour?",), "I WANT TO ANSWER: Sun hat, in red", True, "partial"),
        (("Which colour?",), "I WANT TO ANSWER: Sun hat, in blue", True, "wrong"),
        (("Which colour?",), "I WANT TO ANSWER: sun hat, in red, for Monday", True, "wrong"),
        (("Which colour?", "Where?"), "I WANT TO ANSWER: Sun hat, red, the office", False, "full"),
    ],
)
def test_credit_of_a_reply(asked: tuple[str, ...], reply: str, last: bool, kind: str) -> None:
    messages = opening(KIND, HAT, 3)
    for question in asked:
        messages.append(Message(role="assistant", content=question))
        messages.append(Message(role="user", content=KIND.scripted_reply(HAT, messages)))
    found = KIND.credit(HAT, messages, reply, last=last)
    assert found is not None
    assert found.kind == kind


def test_the_customer_does_not_mind_what_was_not_wished() -> None:
    replies = {
        KIND.scripted_reply(HAT.model_copy(update={"id": str(i)}), [Message(role="assistant", content="Which size?")])
        for i in range(40)
    }
    assert len(replies) == 3
    assert not any(test.passed for reply in replies for name, test in judged(HAT, reply).items() if name != GUESSED)


def test_the_prompt_says_the_number_of_turns() -> None:
    assert "You have 3 turns." in system_prompt(KIND, 3)
