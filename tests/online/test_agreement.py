"""The share of turns that a rule's credit orders as the task does."""

from __future__ import annotations

import pytest

from sweet.credit.base import Batch, Credit
from sweet.judges.control import CreditScorer
from sweet.online.safeguards import turns_in_order
from sweet.tasks.kind import TaskKind
from sweet.tasks.orders.generator import WISHES
from sweet.tasks.registry import task_kind
from sweet.tasks.trajectory import Trajectory, Turn

KIND: TaskKind = task_kind("orders")
TASK = KIND.load("orders", "validation")[0]


def dialogue(name: str, *said: str) -> Trajectory:
    history = [Turn(role="user", content=TASK.problem_description)]
    for text in said:
        history += [Turn(role="assistant", content=text, output=text), Turn(role="user", content="As you like.")]
    return Trajectory(
        id=name, task_id=TASK.id, sample=0, seed=0, task=TASK, dialogue_history=tuple(history), outcome="answered"
    )


@pytest.mark.parametrize(
    ("weights", "right"),
    [({1: 0.3, 3: -0.2}, 1.0), ({1: -0.3, 3: [0.5, 0.1]}, 0.0), ({1: 0.1, 3: [0.2, 0.0]}, 0.5), ({3: 1.0}, 0.0)],
)
def test_couples_of_turns_are_in_the_order_of_their_worth(weights: dict[int, float], right: float) -> None:
    wished = {fact.topic for fact in TASK.facts}
    useful, useless = (
        next(wish.asks[0] for name, wish in WISHES.items() if (name in wished) == wanted) for wanted in (True, False)
    )
    batch = Batch({"a": dialogue("a", useful, useless)}, KIND.rewards, rewards={"a": 1.0})
    couples = int(len(weights) == 2)
    assert turns_in_order([Credit("a", policy=weights)], batch, CreditScorer(KIND, 3)) == (right * couples, couples)


def test_tasks_that_do_not_know_give_no_couple() -> None:
    unknown = TASK.model_copy(update={"facts": ()})
    batch = Batch({"a": dialogue("a", "x", "y").model_copy(update={"task": unknown})}, KIND.rewards, rewards={"a": 1.0})
    assert turns_in_order([Credit("a", policy={1: 1.0, 3: 0.0})], batch, CreditScorer(KIND, 3)) == (0, 0)
