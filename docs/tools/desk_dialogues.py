"""Dialogues of the scripted agent of the desk, at temperature 1, from which the desk agent is cloned.

Their tasks have the shops and policies of `desk-cloning`. In a share of the dialogues the request contains the
reference (the training-time information c), as a critic sees it. There the agent makes few mistakes, so that it learns
to read c. In half of the dialogues the items have invented names: a model that has only seen a few dozen items does not
read a request with another one.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice

from sweet.tasks.base import Message, Task, with_hidden
from sweet.tasks.desk.agent import speak
from sweet.tasks.desk.generator import DESK, draw
from sweet.tasks.desk.kind import DeskKind
from sweet.tasks.desk.tools import OFFERED, after, records_of, run
from sweet.tasks.kind import opening
from sweet.tasks.tools import read_call

TOLD = 0.1
"""The temperature of the scripted agent where the request contains the reference."""
INVENTED = 0.5
"""The share of the dialogues in which the items have invented names."""


def dialogue(task: Task, rng: random.Random, temperature: float) -> list[Message]:
    """Return a dialogue with the scripted customer, system prompt first."""
    kind, turns = DeskKind(), DESK["desk"].turns
    messages, records = opening(kind, task, turns), after(records_of(task), ())
    said = 0
    while True:
        reply = speak(messages, temperature, rng.getrandbits(31))
        calls = tuple(call.model_copy(update={"id": f"call-{len(messages)}"}) for call in reply.tool_calls or ())
        messages.append(reply.model_copy(update={"tool_calls": calls or None}))
        for call in calls:
            messages.append(Message(role="tool", content=run(records, read_call(call, OFFERED)), tool_call_id=call.id))
        if not calls:
            said += 1
            if said == turns or kind.move(reply.content, last=False).ends:
                return messages
            messages.append(Message(role="user", content=kind.scripted_reply(task, messages)))


def with_invented_items(task: Task, rng: random.Random) -> Task:
    """Return the task with invented nouns in the place of its items."""
    text = task.model_dump_json()
    for item in {order["item"] for order in records_of(task)["orders"].values()}:
        nouns = (
            "".join(rng.choice("bdfgklmnprstvw") + rng.choice("aeiou") for _ in range(rng.choice((1, 2, 3))))
            for _ in "12"
        )
        text = text.replace(item, f"{item.partition(' ')[0]} {' '.join(islice(nouns, rng.choice((1, 2))))}")
    return Task.model_validate_json(text)


def cloning_dialogues(count: int, *, seed: int, told_share: float) -> Iterator[list[Message]]:
    """Yield dialogues, system prompt first.

    Args:
        told_share: share of the dialogues in which the request contains the reference.
    """
    rng = random.Random(f"sweet desk dialogues {seed}")
    for _ in range(count):
        task = draw(rng, "cloning")
        if rng.random() < INVENTED:
            task = with_invented_items(task, rng)
        told = rng.random() < told_share
        messages = dialogue(task, rng, TOLD if told else 1.0)
        yield with_hidden(messages, task.hidden) if told else messages
