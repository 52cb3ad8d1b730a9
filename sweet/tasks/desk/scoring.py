"""Score a dialogue at the desk by the records that its calls leave, and by what the agent said.

The calls are made again on the task's records: the tools are functions of them, so the state is that of the dialogue,
also of one that was played elsewhere. The records must be those that the reference calls leave. The agent must have
said the number that the task asks for (`Task.test_cases`): the fee, or the days of the policy; and none of the shop's
other policies, which would be guessed. The reward is 1 where all of this holds, and else 0: with the share of the tests
that passed, a dialogue that says every fee and changes no order would be two thirds as good as one that succeeds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from sweet.tasks.base import Message, Task, ToolCall, spoken
from sweet.tasks.desk.tools import OFFERED, RECORDS, after, changes, records_of, reference_of, run
from sweet.tasks.facts import VALUES
from sweet.tasks.scores import ALL_OR_NOTHING, DialogueScorer, JudgedTest, Verdict, tally
from sweet.tasks.tools import Call, calls_made, read_call
from sweet.tasks.trajectory import Trajectory

GUESSED = "nothing else"
"""The test that the agent said no number of another policy."""
_NUMBER = re.compile(r"\d+")


class DeskScorer(DialogueScorer):
    """Compares records and numbers. Its name changes with its rules."""

    metrics = ALL_OR_NOTHING

    def __init__(self) -> None:
        super().__init__("desk-1")

    def verdict(self, trajectory: Trajectory) -> Verdict:
        verdict = tally(judged(trajectory.task, trajectory.messages(None)))
        return replace(verdict, reward=float(verdict.passed == verdict.total))


def judged(task: Task, messages: Sequence[Message]) -> dict[str, JudgedTest]:
    """Return the result of each test on a dialogue."""
    records, reference = records_of(task), reference_of(task)
    goal, state = after(records, reference), after(records, _valid_calls(messages))
    tests = {RECORDS: JudgedTest(passed=state == goal, expected=changes(goal), got=changes(state))}
    numbers = set(_NUMBER.findall(" ".join(questions_of(messages))))
    got = ", ".join(sorted(numbers)) or "nothing"
    for name, number in task.test_cases.items():
        if name != RECORDS:
            tests[name] = JudgedTest(passed=number in numbers, expected=number, got=got)
    read = [run(records, call) for call in reference if call[0] == "read_policy"]
    readable = " ".join([task.problem_description, json.dumps(records["orders"]), *read])
    guessed = numbers & set(_NUMBER.findall(json.dumps(records["policy"]))) - set(_NUMBER.findall(readable))
    tests[GUESSED] = JudgedTest(passed=not guessed, expected="nothing", got=", ".join(sorted(guessed)) or "nothing")
    return tests


def kind_of_calls(task: Task, observation: Sequence[Message], tool_calls: Sequence[ToolCall]) -> str:
    """Return the kind of a reply with calls: that of the worst of them."""
    earlier_calls, kinds = _valid_calls(observation), ["useful"]
    for tool_call in tool_calls:
        try:
            call = read_call(tool_call, OFFERED)
            run(after(records_of(task), earlier_calls), call)
        except ValueError:
            kinds.append("useless")
        else:
            kinds.append(_kind_of_call(task, earlier_calls, call))
            earlier_calls.append(call)
    return min(kinds, key=VALUES.__getitem__)


def _kind_of_call(task: Task, earlier_calls: Sequence[Call], call: Call) -> str:
    """Return the kind of a call after others. One of the reference is useful; any other that changes is wrong."""
    reads, now = call[0] != "change_order", after(records_of(task), earlier_calls)
    if after(now, [call]) == now and (call in earlier_calls or not reads):
        return "repeated"
    return "useful" if call in reference_of(task) else "useless" if reads else "wrong"


def kind_of_last(task: Task, messages: Sequence[Message]) -> str:
    """Return the kind of a last message: `early` leaves out calls that the reference makes."""
    calls = _valid_calls(messages)
    if all(test.passed for test in judged(task, messages).values()):
        return "full"
    return "wrong" if all(call in calls for call in reference_of(task)) else "early"


def questions_of(messages: Iterable[Message]) -> list[str]:
    """Return what the agent said to the customer."""
    return [message.content for message in spoken(messages) if message.role == "assistant"]


def _valid_calls(messages: Sequence[Message]) -> list[Call]:
    return [call for call, _ in calls_made(messages, OFFERED)]
