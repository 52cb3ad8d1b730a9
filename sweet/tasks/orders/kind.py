"""The kind of task `orders`: its texts, scripted customer, and the value of a reply."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sweet.tasks import prompts
from sweet.tasks.base import Credit, Message, Task
from sweet.tasks.facts import VALUES, kind_of_question, unknown_facts
from sweet.tasks.files import Wrong
from sweet.tasks.orders.agent import speak
from sweet.tasks.orders.generator import ORDERS
from sweet.tasks.orders.scoring import OrderScorer, judged
from sweet.tasks.scores import ScoringRequest
from sweet.tasks.shops import ShopKind


class Prompts(prompts.Prompts):
    """The prompts of the orders."""

    package = "sweet.tasks.orders"
    speaker = "Shop"


class OrdersKind(ShopKind):
    """Orders in a shop."""

    name = "orders"
    texts = Prompts
    generated = ORDERS
    scripted_agent = staticmethod(speak)

    def fields(self, row: dict[str, Any], wrong: Wrong) -> dict[str, Any]:
        """Check a row's tests: what an order must say, by the names of the wishes."""
        tests = row.get("test_cases")
        if (
            not isinstance(tests, dict)
            or not tests
            or not all(isinstance(v, str) and v.strip() for v in tests.values())
        ):
            raise wrong("'test_cases' must name what the order says.", 'write "test_cases": {"colour": "red"}')
        return {}

    @contextmanager
    def open_scorer(self, request: ScoringRequest) -> Iterator[OrderScorer]:
        yield OrderScorer()

    def credit(self, task: Task, observation: Sequence[Message], reply: str, *, last: bool) -> Credit | None:
        """Return the value of a reply: of a question by the facts it asks for, of an answer by what it can say."""
        if not task.facts:
            return None
        questions = [message.content for message in observation if message.role == "assistant"]
        unknown = {fact.topic for fact in unknown_facts(task, questions)}
        move = self.move(reply, last=last)
        if move.answer is None:
            kind = kind_of_question(task, move.content, questions)
        elif unknown and not last:
            kind = "early"
        else:
            failed = {name for name, test in judged(task, move.answer).items() if not test.passed}
            kind = "wrong" if failed - unknown else "partial" if unknown else "full"
        return Credit(kind, VALUES[kind])
