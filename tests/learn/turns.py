"""Turns with replies, as a critic reads them."""

from collections.abc import Sequence

from sweet.learn.rows import CandidateTurn
from sweet.llm.base import Reply
from sweet.tasks.base import Message, Task


def asked_turn(
    observation: Sequence[Message], hidden: str, replies: Sequence[Reply], *, turn: int = 1, taken: Reply | None = None
) -> CandidateTurn:
    task = Task(id="task", problem_description="Write fee.", ground_truth=hidden)
    return CandidateTurn("x", task, turn, tuple(observation), tuple(replies), taken)
