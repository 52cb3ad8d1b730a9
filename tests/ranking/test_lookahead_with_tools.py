"""The judge that looks one step ahead, at the desk of a shop: calls are made, and the reference's that are left are
read."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sweet.learn.rows import Candidate, CandidateTurn
from sweet.llm.base import Reply
from sweet.stages.tool_calls import with_results
from sweet.tasks.base import Message, Task, ToolCall
from sweet.tasks.desk.generator import DESK
from sweet.tasks.desk.kind import DeskKind
from sweet.tasks.desk.tools import RECORDS, TOOLS, WISHES, records_of, reference_of
from sweet.tasks.kind import opening
from sweet.tasks.markers import ANSWER_MARKER
from sweet.tasks.toolboxes.functions import FunctionTools, tool_of
from tests.ranking import test_lookahead

KIND, DATASET = DeskKind(), DESK["desk"]
TASK = next(task for task in KIND.load("desk", "train") if task.test_cases[RECORDS] != "no change")
FIND, READ, CHANGE = (ToolCall.of(name, **arguments) for name, arguments in reference_of(TASK))
WISH = TASK.facts[0].topic
OTHER = next(name for name in WISHES if name != WISH)
WRONG = ToolCall.of(
    "change_order", order=reference_of(TASK)[-1][1]["order"], change=OTHER, detail=WISHES[OTHER].values[0]
)
ASK, ASK_OTHER = WISHES[WISH].asks[0], WISHES[OTHER].asks[0]
LAST = KIND.reference_from(TASK, ())[-1].content


def turn_of(task: Task, replies: Sequence[str | ToolCall], before: Sequence[str | ToolCall] = ()) -> CandidateTurn:
    """The turn of a dialogue after some calls and questions."""
    messages = opening(KIND, task, DATASET.turns)
    for one in before:
        if isinstance(one, str):
            messages.append(Message(role="assistant", content=one))
            messages.append(Message(role="user", content=KIND.scripted_reply(task, messages)))
        else:
            call = Message(role="assistant", content="", tool_calls=(one,))
            messages = asyncio.run(with_results(KIND.toolbox(task), [*messages, call]))
    written = (Reply("", tool_calls=(one,)) if isinstance(one, ToolCall) else Reply(one) for one in replies)
    tools = tuple(tool_of(tool) for tool in TOOLS.values())
    return CandidateTurn("d", task, len(messages) - 1, tuple(messages), tuple(written), tools=tools)


def judged(turn: CandidateTurn, folder: Path, kind: DeskKind = KIND) -> list[Any]:
    _, found = test_lookahead.judged(turn, folder, family=DATASET, kind=kind)
    return [one.score if isinstance(one, Candidate) else one for one in found]


def test_calls_are_worth_what_they_bring_the_reference_nearer(tmp_path: Path) -> None:
    read_other = ToolCall.of("read_policy", change=OTHER)
    nothing = ToolCall(name="read_policy", arguments="{")
    replies: list[str | ToolCall] = [READ, READ.model_copy(update={"id": "another"}), read_other, nothing, WRONG, LAST]
    of_read, again, of_other, of_nothing, of_wrong, of_answer = judged(turn_of(TASK, replies, [FIND, ASK]), tmp_path)
    assert of_read == again > of_other + 0.3
    assert of_read > of_nothing + 0.3
    assert of_wrong == of_answer == -0.75, "no reply makes it good"
    of_change, of_wrong, of_read = judged(turn_of(TASK, [CHANGE, WRONG, READ], [FIND, ASK, READ]), tmp_path)
    assert of_change > max(0.3, of_read + 0.3)
    assert of_wrong == -0.75
    assert judged(turn_of(TASK, [LAST, f"{ANSWER_MARKER}\nDone."], [FIND, ASK, READ, CHANGE]), tmp_path) == [3, -0.75]


def test_questions_are_worth_what_the_calls_need(tmp_path: Path) -> None:
    useful, useless = judged(turn_of(TASK, [ASK, ASK_OTHER], [FIND]), tmp_path)
    assert useful > useless + 0.3


def test_where_the_reference_has_lost_already_calls_differ_by_what_they_bring(tmp_path: Path) -> None:
    of_read, of_wrong = judged(turn_of(TASK, [READ, WRONG], [FIND, ASK, WRONG]), tmp_path)
    assert of_read > 0.3 > of_wrong != -0.75


def test_calls_of_tools_that_cannot_be_opened_are_not_judged(tmp_path: Path) -> None:
    class Closed(DeskKind):
        def toolbox(self, task: Task) -> FunctionTools:
            class Tools(FunctionTools):
                async def __aenter__(self) -> Any:
                    raise OSError("the shop is closed")

            return Tools(records_of(task), ())

    why = "The tools cannot be opened: OSError: the shop is closed"
    found = judged(turn_of(TASK, [FIND, ASK, LAST]), tmp_path, Closed())
    assert all(str(one).startswith(why) for one in found), found


@pytest.mark.parametrize("task", KIND.load("desk", "test")[:40])
def test_the_reference_solves_the_task_from_any_point(task: Task, tmp_path: Path) -> None:
    calls = [ToolCall.of(name, **arguments) for name, arguments in reference_of(task)]
    for made in range(len(calls) + 1):
        messages = turn_of(task, (), calls[:made]).observation
        rest = KIND.reference_from(task, messages)
        assert [call for message in rest for call in message.tool_calls or ()] == calls[made:]
        whole = asyncio.run(with_results(KIND.toolbox(task), rest, messages))
        assert KIND.credit(task, whole[:-1], whole[-1].content, last=True).kind == "full"


def test_recorded_results_stay_and_calls_get_ids_of_their_own() -> None:
    given = ToolCall.of("find_orders", customer=1).model_copy(update={"id": "a"})
    messages = [
        Message(role="assistant", content="", tool_calls=(given, FIND)),
        Message(role="tool", content="As it was.", tool_call_id="a"),
        Message(role="assistant", content="", tool_calls=(given,)),
    ]
    found = asyncio.run(with_results(KIND.toolbox(TASK), messages))
    ids = [call.id for message in found for call in message.tool_calls or ()]
    assert len(set(ids)) == 3
    assert [message.tool_call_id for message in found if message.role == "tool"] == ids
    results = [message.content for message in found if message.role == "tool"]
    assert results[0] == "As it was."
    assert "Order" in results[1]
    assert results[2] == "Error: there is no customer 1"
    assert asyncio.run(with_results(None, messages)) == messages
