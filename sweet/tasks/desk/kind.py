"""The kind of task `desk`: its texts, tools, scripted customer, and the value of a reply."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sweet.errors import described
from sweet.tasks import prompts
from sweet.tasks.base import Credit, Message, Task, ToolCall
from sweet.tasks.desk.agent import speak
from sweet.tasks.desk.generator import DESK, last_words
from sweet.tasks.desk.scoring import DeskScorer, kind_of_calls, kind_of_last, questions_of
from sweet.tasks.desk.tools import CALLS, OFFERED, RECORDS, TOOLS, after, records_of, reference_of, run
from sweet.tasks.facts import VALUES, kind_of_question
from sweet.tasks.files import Wrong
from sweet.tasks.scores import ALL_OR_NOTHING, ScoringRequest
from sweet.tasks.shops import ShopKind
from sweet.tasks.toolboxes.functions import FunctionTools
from sweet.tasks.tools import read_call, rest_of


class Prompts(prompts.Prompts):
    """The prompts of the desk."""

    package = "sweet.tasks.desk"
    speaker = "Desk"


class DeskKind(ShopKind):
    """Customers at the desk of a shop."""

    name = "desk"
    texts = Prompts
    generated = DESK
    metrics = ALL_OR_NOTHING
    scripted_agent = staticmethod(speak)

    def fields(self, row: dict[str, Any], wrong: Wrong) -> dict[str, Any]:
        """Check a row's records, and the calls of its reference by making them."""
        try:
            records = after(row[RECORDS], ())
            for call in row[CALLS]:
                run(records, read_call(ToolCall.of(call["name"], **call["arguments"]), OFFERED))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            what = f"The calls of the reference cannot be made on the records: {described(error)}."
            raise wrong(what, f"correct {RECORDS!r} and {CALLS!r}") from error
        return {}

    def toolbox(self, task: Task) -> FunctionTools:
        return FunctionTools(records_of(task), tuple(TOOLS.values()))

    @contextmanager
    def open_scorer(self, request: ScoringRequest) -> Iterator[DeskScorer]:
        yield DeskScorer()

    def reference_from(self, task: Task, dialogue: Sequence[Message]) -> list[Message]:
        calls, tests = reference_of(task), task.test_cases
        last = last_words(dict(calls).get("change_order"), days=tests.get("days"), fee=tests.get("fee"))
        return rest_of(calls, last, dialogue, OFFERED)

    def credit(self, task: Task, observation: Sequence[Message], reply: str, *, last: bool) -> Credit:
        """Return the value of a message to the customer: of a question by the facts that it asks for, of the last one
        by whether the dialogue then succeeds."""
        move = self.move(reply, last=last)
        kind = kind_of_question(task, move.content, questions_of(observation))
        if move.answer is not None:
            kind = kind_of_last(task, [*observation, Message(role="assistant", content=move.content)])
        return Credit(kind, VALUES[kind])

    def call_credit(self, task: Task, observation: Sequence[Message], calls: Sequence[ToolCall]) -> Credit:
        """Return the value of calls, by what the reference calls."""
        kind = kind_of_calls(task, observation, calls)
        return Credit(kind, VALUES[kind])
