"""A human on a real server that leaks the solution in its prompt so many times at each message, and then behaves; an
agent that asks it, and tasks with a solution that can be leaked."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from starlette.responses import Response

from sweet.tasks.prompts import HumanPrompt
from sweet.tasks.registry import task_kind
from tests.stages.chat_server import ChatServer, said

HUMAN, AGENT = "leaky", "asking"
BEHAVES = "I really cannot say more about that."


class Leaky:
    """Answers the prompts of the human of code.

    Args:
        times: leaks before the first good reply to each message; None leaks for ever.
        starts: whether a dialogue is one with leaks, by its request; by default each is.

    Attributes:
        prompts: what was asked, and the number of messages that came with it.
    """

    def __init__(self, times: int | None, starts: str = "") -> None:
        self.times, self.starts = times, starts
        self.leaks: Counter[str] = Counter()
        self.prompts: list[tuple[HumanPrompt, int]] = []

    def __call__(self, body: dict[str, Any]) -> Response:
        text = next(message["content"] for message in body["messages"] if message["role"] == "user")
        prompt = task_kind("code").prompts.read(text)
        self.prompts.append((prompt, len(body["messages"])))
        if self.starts in prompt.request and (self.times is None or self.leaks[text] < self.times):
            self.leaks[text] += 1
            return said(prompt.hidden)
        return said(BEHAVES)

    def server(self) -> ChatServer:
        return ChatServer(HUMAN, self)


def agent() -> ChatServer:
    """An agent that asks until its third turn, and then delivers a function that is wrong."""

    def answer(body: dict[str, Any]) -> Response:
        turn = sum(message["role"] == "assistant" for message in body["messages"])
        return said(f"What about detail {turn}?" if turn < 2 else "I WANT TO ANSWER: def fee(hours):\n    return 0")

    return ChatServer(AGENT, answer)


def tasks(folder: Path, number: int = 4) -> Path:
    """A file of tasks: a fee for so many hours, each with another rate."""
    file = folder / "fees.jsonl"
    rows = [
        {
            "id": f"fee-{rate}",
            "problem_description": f"Write def fee(hours). This is variant {rate}.",
            "ground_truth": f"def fee(hours):\n    total = {rate} * hours + 17\n"
            "    return total if hours < 10 else 2 * total",
            "test_cases": {"test1": "fee(1)", "test2": "fee(12)"},
        }
        for rate in range(number)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file
