"""The service desk: texts without ambiguity, splits apart, the reference succeeds and nothing else does, credit."""

from __future__ import annotations

import asyncio
import copy
import json
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from sweet.errors import InputError, UsageError
from sweet.tasks.base import Fact, Message, Task, ToolCall
from sweet.tasks.desk import generator
from sweet.tasks.desk.agent import speak
from sweet.tasks.desk.generator import CUSTOMERS, DAYS, DESK, FEES, LIMITS, NUMBERS, REFUSED, terms
from sweet.tasks.desk.kind import DeskKind
from sweet.tasks.desk.scoring import GUESSED, DeskScorer, judged
from sweet.tasks.desk.tools import RECORDS, WISHES, after, changes, records_of
from sweet.tasks.desk.tools import reference_of as names_and_arguments
from sweet.tasks.facts import VALUES, facts_asked_for
from sweet.tasks.kind import opening
from sweet.tasks.markers import ANSWER_MARKER
from sweet.tasks.shops import SHOPS
from sweet.tasks.tools import FAILED
from sweet.tasks.trajectory import Trajectory, Turn

pytestmark = pytest.mark.quick
KIND = DeskKind()
TURNS = DESK["desk"].turns
TEST = KIND.load("desk", "test")
ALLOWED = next(task for task in TEST if task.test_cases[RECORDS] != "no change")
DENIED = next(task for task in TEST if task.test_cases[RECORDS] == "no change")


class Played:
    """A dialogue as the program plays it: its messages, the kind of each reply, and the tools."""

    def __init__(self, task: Task) -> None:
        self.task, self.toolbox = task, KIND.toolbox(task)
        self.messages, self.kinds = opening(KIND, task, TURNS), list[str]()

    def call(self, *calls: ToolCall) -> None:
        """Make the calls of a reply."""
        named = tuple(call.model_copy(update={"id": f"{len(self.messages)}-{i}"}) for i, call in enumerate(calls))
        self.messages.append(Message(role="assistant", content="", tool_calls=named))

        async def make() -> None:
            for call in named:
                try:
                    result = (await self.toolbox.call(call.name, json.loads(call.arguments))).content
                except (ValueError, KeyError, TypeError) as error:
                    result = f"{FAILED}{error}"
                self.messages.append(Message(role="tool", content=result, tool_call_id=call.id))

        asyncio.run(make())

    def say(self, text: str) -> None:
        """Say something to the customer, who replies."""
        self.messages.append(Message(role="assistant", content=text))
        self.messages.append(Message(role="user", content=KIND.scripted_reply(self.task, self.messages)))

    def end(self, text: str) -> list[Message]:
        return [*self.messages, Message(role="assistant", content=text)]


def played(task: Task, temperature: float, seed: int) -> tuple[list[str], bool]:
    """Return the kinds of the scripted agent's replies, and whether it succeeds."""
    one, said = Played(task), 0
    for turn in range(40):
        reply = speak(one.messages, temperature, 1000 * seed + turn)
        calls, last = reply.tool_calls or (), said == TURNS - 1
        message = KIND.credit(task, one.messages, reply.content, last=last)
        one.kinds.append((KIND.call_credit(task, one.messages, calls) if calls else message).kind)
        if calls:
            one.call(*calls)
        elif KIND.move(reply.content, last=last).answer is not None:
            return one.kinds, is_solved(task, one.end(reply.content))
        else:
            one.say(reply.content)
            said += 1
    raise AssertionError("it calls on and on")


def reference_of(task: Task) -> list[ToolCall]:
    return [ToolCall.of(name, **arguments) for name, arguments in names_and_arguments(task)]


def is_solved(task: Task, messages: list[Message]) -> bool:
    return all(test.passed for test in judged(task, messages).values())


def ended(task: Task, calls: list[ToolCall], said: str) -> list[Message]:
    """Return a dialogue of calls, which all can be made, and a last message."""
    named = tuple(call.model_copy(update={"id": str(place)}) for place, call in enumerate(calls))
    results = [Message(role="tool", content="Done.", tool_call_id=call.id) for call in named]
    made = [Message(role="assistant", content="", tool_calls=named), *results]
    return [*opening(KIND, task, TURNS), *made, Message(role="assistant", content=f"{ANSWER_MARKER} {said}")]


def test_each_question_asks_for_one_wish_and_hints_and_answers_are_of_one() -> None:
    every = tuple(Fact(topic=name, cues=wish.cues, answer="Yes.") for name, wish in WISHES.items())
    task = ALLOWED.model_copy(update={"facts": every})
    for name, wish in WISHES.items():
        for question in wish.asks:
            assert [fact.topic for fact in facts_asked_for(task, question)] == [name]
        for answer in wish.answers:
            texts = [answer.format(v=value) for value in wish.values]
            assert all([value in text for value in wish.values].count(True) == 1 for text in texts)
    hints = Counter(hint for wish in WISHES.values() for hint in wish.hints)
    assert max(hints.values()) == 1


@pytest.mark.parametrize(("name", "split"), [(name, split) for name in DESK for split in DESK[name].splits])
def test_the_reference_succeeds_and_each_part_of_it_is_needed(name: str, split: str) -> None:
    tasks = KIND.load(name, split)
    assert len(tasks) == len({task.ground_truth for task in tasks}) == DESK[name].splits[split]
    for task in tasks[:100]:
        reference, records = reference_of(task), records_of(task)
        last = task.ground_truth.partition(task.facts[0].answer)[2]
        assert is_solved(task, ended(task, reference, last))
        assert changes(after(records, names_and_arguments(task))) == task.test_cases[RECORDS]
        assert not is_solved(task, ended(task, reference, "It is done."))
        if task.test_cases[RECORDS] != "no change":
            assert not is_solved(task, ended(task, reference[:-1], last))
        assert any(hint in task.problem_description for hint in WISHES[task.facts[0].topic].hints)
        assert not set(WISHES[task.facts[0].topic].values) & set(task.problem_description.rstrip(".").split())


def test_a_wrong_change_never_succeeds() -> None:
    numbers = sorted(int(number) for number in records_of(ALLOWED)["orders"])
    for task in (ALLOWED, DENIED):
        last = task.ground_truth.partition(task.facts[0].answer)[2]
        right = after(records_of(task), names_and_arguments(task))
        for number, (change, wish) in [(number, one) for number in numbers for one in WISHES.items()]:
            for detail in wish.values if str(number) in right["orders"] else ():
                arguments: dict[str, Any] = {"order": number, "change": change, "detail": detail}
                if after(right, [("change_order", arguments)]) != right:
                    calls = [*reference_of(task), ToolCall.of("change_order", **arguments)]
                    assert not is_solved(task, ended(task, calls, last)), arguments


def test_no_two_splits_share_an_item_or_a_policy() -> None:
    keys = {"desk-cloning" if key == "cloning" else f"desk {key}": key for key in SHOPS}
    policies, items = {}, {}
    for name, key in keys.items():
        tasks = KIND.load(name.partition(" ")[0], "train" if key == "cloning" else key)
        policies[key] = {text for task in tasks for text in records_of(task)["policy"].values()}
        orders = [order for task in tasks for order in records_of(task)["orders"].values()]
        items[key] = {" ".join(order["item"].split()[1:]) for order in orders}
    for one, other in combinations(SHOPS, 2):
        assert policies[one].isdisjoint(policies[other])
        assert items[one].isdisjoint(items[other])
        assert set(terms(one)).isdisjoint(terms(other))
    with pytest.raises(UsageError):
        KIND.load("desk-cloning", "test")


def test_a_number_tells_what_it_is() -> None:
    for one, other in combinations((DAYS, LIMITS, FEES, NUMBERS, CUSTOMERS), 2):
        assert set(one).isdisjoint(other)


def test_the_scripted_agent_errs_by_temperature() -> None:
    for index, task in enumerate(TEST[:40]):
        kinds, is_right = played(task, 0.0, index)
        assert (kinds, is_right) == (["useful"] * (len(kinds) - 1) + ["full"], True)
    found = [played(task, 1.0, index) for index, task in enumerate(TEST[:300])]
    assert 0.15 < sum(is_right for _, is_right in found) / len(found) < 0.32
    assert all(is_right == (kinds[-1] == "full") for kinds, is_right in found)
    assert {kind for kinds, _ in found for kind in kinds} == {"useful", "useless", "early", "full", "wrong"}


NUMBER = int(next(number for number in records_of(ALLOWED)["orders"] if number in ALLOWED.test_cases[RECORDS]))
WISH = ALLOWED.facts[0].topic
FIND, READ, CHANGE = reference_of(ALLOWED)
DETAIL = json.loads(CHANGE.arguments)["detail"]
FEE = int(ALLOWED.test_cases["fee"])
OTHER = next(name for name in WISHES if name != WISH)
BLACK = ToolCall.of("change_order", order=NUMBER, change=OTHER, detail=WISHES[OTHER].values[0])
AGAIN = ToolCall.of(
    "change_order", order=NUMBER, change=WISH, detail=next(value for value in WISHES[WISH].values if value != DETAIL)
)
ASK, ASK_OTHER = WISHES[WISH].asks[0], WISHES[OTHER].asks[0]
DONE = f"{ANSWER_MARKER}\n{generator.DONE.format(order=NUMBER, said=WISHES[WISH].said.format(v=DETAIL), fee=FEE)}"


@pytest.mark.parametrize(
    ("before", "reply", "last", "kind"),
    [
        ((), FIND, False, "useful"),
        ((FIND,), FIND, False, "repeated"),
        ((), ToolCall.of("find_orders", customer=1), False, "useless"),
        ((), ToolCall.of("read_policy", change=OTHER), False, "useless"),
        ((), ToolCall(name="read_policy", arguments="{"), False, "useless"),
        ((), ToolCall(name="change_order", arguments='{"order": [[[]]]}'), False, "useless"),
        ((), ToolCall(name="no_tool", arguments="{}"), False, "useless"),
        ((FIND, READ), CHANGE, False, "useful"),
        ((CHANGE,), CHANGE, False, "repeated"),
        ((FIND,), BLACK, False, "wrong"),
        ((FIND,), (READ, BLACK), False, "wrong"),
        ((FIND,), (READ, CHANGE), False, "useful"),
        ((), ASK, False, "useful"),
        ((ASK,), WISHES[WISH].asks[1], False, "repeated"),
        ((FIND,), ASK_OTHER, False, "useless"),
        ((FIND, ASK, READ, CHANGE), DONE, False, "full"),
        ((FIND, ASK, READ), DONE, False, "early"),
        ((FIND, ASK_OTHER, ASK_OTHER, READ), f"{ANSWER_MARKER} I am sorry.", True, "early"),
        ((FIND, ASK_OTHER, ASK_OTHER), f"{ANSWER_MARKER} I am sorry.", True, "early"),
        ((FIND, READ, BLACK, CHANGE), DONE, False, "wrong"),
        ((FIND, READ, CHANGE, AGAIN), CHANGE, False, "useful"),
        ((FIND, READ, CHANGE), f"{ANSWER_MARKER} Done.", True, "wrong"),
        ((FIND, READ, CHANGE), f"{ANSWER_MARKER} The fee is one of {list(FEES)}.", True, "wrong"),
    ],
)
def test_credit_of_a_reply(
    before: tuple[ToolCall | str, ...], reply: ToolCall | str | tuple[ToolCall, ...], last: bool, kind: str
) -> None:
    dialogue = Played(ALLOWED)
    for one in before:
        dialogue.say(one) if isinstance(one, str) else dialogue.call(one)
    calls = () if isinstance(reply, str) else (reply,) if isinstance(reply, ToolCall) else reply
    seen = dialogue.messages
    found = (
        KIND.credit(ALLOWED, seen, reply, last=last)
        if isinstance(reply, str)
        else KIND.call_credit(ALLOWED, seen, calls)
    )
    assert (found.kind, found.value) == (kind, VALUES[kind])


def test_a_refusal_says_the_days_and_changes_nothing() -> None:
    days = int(DENIED.test_cases["days"])
    assert is_solved(DENIED, ended(DENIED, reference_of(DENIED), REFUSED.format(days=days)))
    tests = judged(DENIED, ended(DENIED, [], REFUSED.format(days=LIMITS[LIMITS.index(days) - 1])))
    assert {name for name, test in tests.items() if not test.passed} >= {"days"}
    assert GUESSED in tests


@pytest.mark.parametrize(("outcome", "reward"), [("answered", 1.0), ("human_error", 0.0)])
def test_a_dialogue_is_scored_by_its_calls_and_words(outcome: str, reward: float) -> None:
    messages = ended(ALLOWED, reference_of(ALLOWED), DONE)[1:]
    turns = [Turn.model_validate(message.model_dump()) for message in messages]
    row = {"id": "a", "task": ALLOWED, "dialogue_history": turns, "outcome": outcome, "answer": DONE}
    ((_, score),) = DeskScorer().score([Trajectory.model_validate(row)])
    assert score.reward == reward
    failed = [message.model_copy(update={"content": f"{FAILED}no"}) for message in messages if message.role == "tool"]
    turns[2:-1] = [Turn.model_validate(message.model_dump()) for message in failed]
    ((_, score),) = DeskScorer().score([Trajectory.model_validate({**row, "dialogue_history": turns})])
    assert (score.reward, score.passed > 0) == (0.0, outcome == "answered"), "no part of a success is worth anything"
    shares = {name: metric.value(score) for name, metric in DeskKind().metrics.items()}
    assert shares == {"success_rate": 0.0, "tests_passed": score.passed / score.total}


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("records", {}, "cannot be made on the records: KeyError: 'orders'"),
        ("records", {"orders": {"a": {}}, "policy": {}}, "KeyError: 'customer'"),
        ("records", [1], "TypeError"),
        ("calls", None, "KeyError: 'calls'"),
        ("calls", [{"name": "change_order", "arguments": {"order": 1}}], "they must have 'change'"),
        ("test_cases", {"fee": 3}, "'test_cases.fee'"),
    ],
)
def test_an_invalid_row_of_a_file_is_named(tmp_path: Path, key: str, value: object, said: str) -> None:
    row = copy.deepcopy(ALLOWED.model_dump(mode="json"))
    file = tmp_path / "tasks.jsonl"
    file.write_text(json.dumps(row) + "\n")
    assert KIND.load(str(file), "test") == [ALLOWED]
    file.write_text(json.dumps({**row, key: value}) + "\n")
    with pytest.raises(InputError, match=said):
        KIND.load(str(file), "test")
