"""Score a dialogue at the desk by the records that its calls leave, and by what the agent said.

The calls are made again on the task's records: the tools are functions of them, so the state is that of the dialogue,
also of one that was played elsewhere. The records must be those that the reference calls leave. The agent must have
said the number that the task asks for (`Task.test_cases`): the fee, or the days of the policy; and none of the shop's
other policies, which would be guessed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence

from sweet.tasks.base import Credit, Message, Move, Task, spoken
from sweet.tasks.desk.tools import RECORDS, Records, after, arguments_of, changes, records_of, reference_of, run
from sweet.tasks.facts import VALUES, kind_of_question, unknown_facts
from sweet.tasks.scores import DialogueScorer, JudgedTest, Verdict, tally
from sweet.tasks.tools import FAILED, ToolCall
from sweet.tasks.trajectory import Trajectory

GUESSED = "nothing else"
"""The test that the agent said no number of another policy."""
_NUMBER = re.compile(r"\d+")


class DeskScorer(DialogueScorer):
    """Compares records and numbers. Its name changes with its rules."""

    def __init__(self) -> None:
        super().__init__("desk-1")

    def verdict(self, trajectory: Trajectory) -> Verdict:
        return tally(judged(trajectory.task, trajectory.messages(None)))


def judged(task: Task, messages: Sequence[Message]) -> dict[str, JudgedTest]:
    """Return the result of each test on a dialogue."""
    records, reference = records_of(task), reference_of(task)
    goal, state = after(records, reference), after(records, calls_made(messages))
    expected, got = changes(records, goal), changes(records, state)
    tests = {RECORDS: JudgedTest(passed=state == goal, expected=expected, got=got)}
    said = _numbers(m.content for m in spoken(messages) if m.role == "assistant")
    for name, wanted in task.test_cases.items():
        if name != RECORDS:
            tests[name] = JudgedTest(passed=wanted in said, expected=wanted, got=", ".join(sorted(said)) or "nothing")
    read = {arguments_of(call)["change"] for call in reference if call.name == "read_policy"}
    known = [records["policy"][change] for change in read] + [json.dumps(records["orders"])]
    guessed = said & (_numbers(records["policy"].values()) - _numbers([*known, task.problem_description]))
    tests[GUESSED] = JudgedTest(passed=not guessed, expected="nothing", got=", ".join(sorted(guessed)) or "nothing")
    return tests


def calls_made(messages: Iterable[Message]) -> list[ToolCall]:
    """Return the calls that did not fail."""
    messages = list(messages)
    failed = {m.tool_call_id for m in messages if m.role == "tool" and m.content.startswith(FAILED)}
    return [call for m in messages for call in m.tool_calls or () if call.id not in failed]


def credit_of(
    task: Task, observation: Sequence[Message], move: Move, *, last: bool, calls: Sequence[ToolCall]
) -> Credit:
    """Return the value of a reply: of calls that of the worst of them, of a question by the facts that it asks for, of
    the last message by whether the dialogue then succeeds."""
    asked = [m.content for m in spoken(observation) if m.role == "assistant"]
    if calls:
        before = calls_made(observation)
        kinds = [_kind_of_call(task, [*before, *calls[:place]], call) for place, call in enumerate(calls)]
        kind = min(kinds, key=VALUES.__getitem__)
    elif move.answer is None:
        kind = kind_of_question(task, move.content, asked)
    else:
        kind = _kind_of_last(task, [*observation, Message(role="assistant", content=move.content)], asked, last=last)
    return Credit(kind, VALUES[kind])


def _kind_of_call(task: Task, before: Sequence[ToolCall], call: ToolCall) -> str:
    """Return the kind of a call after others. A call that reads is useful if the reference makes it, one that changes
    if the records are then nearer to those of the reference; otherwise that is wrong."""
    now, goal = after(records_of(task), before), after(records_of(task), reference_of(task))
    then = after(now, ())
    try:
        run(then, call)
    except ValueError:
        return "useless"
    if then != now:
        return "useful" if _differences(then, goal) < _differences(now, goal) else "wrong"
    if call.name == "change_order" or _same(call) in map(_same, before):
        return "repeated"
    return "useful" if _same(call) in map(_same, reference_of(task)) else "useless"


def _kind_of_last(task: Task, messages: Sequence[Message], asked: Sequence[str], *, last: bool) -> str:
    """Return the kind of the last message: `early` leaves out calls that the reference makes, `partial` only one that
    needed a question which was not asked in the turns that there are."""
    tests, made = judged(task, messages), calls_made(messages)
    if all(test.passed for test in tests.values()):
        return "full"
    records = records_of(task)
    missing = [call for call in reference_of(task) if _kind_of_call(task, made, call) == "useful"]
    is_wrong = not tests[GUESSED].passed or after(records, [*made, *missing]) != after(records, reference_of(task))
    if is_wrong or not missing:
        return "wrong"
    changes_only = all(call.name == "change_order" for call in missing)
    return "partial" if last and changes_only and unknown_facts(task, asked) else "early"


def _differences(records: Records, goal: Records) -> int:
    """Return how many changes of orders are in one of the records only."""
    pairs = [
        {(number, *item) for number, order in one["orders"].items() for item in order.items()}
        for one in (records, goal)
    ]
    return len(pairs[0] ^ pairs[1])


def _same(call: ToolCall) -> tuple[str, str]:
    """Return what two calls that are the same have in common."""
    try:
        return call.name, json.dumps(arguments_of(call), sort_keys=True)
    except ValueError:
        return call.name, call.arguments


def _numbers(texts: Iterable[str]) -> set[str]:
    return {number for text in texts for number in _NUMBER.findall(text)}
