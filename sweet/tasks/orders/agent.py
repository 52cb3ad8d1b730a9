"""The scripted agent of orders: at temperature 0 it reads the hints, above it makes mistakes.

It is there to be imitated by the agent that a study starts from, whose success should be rare and be lost at
identifiable turns. At temperature 1 it asks half of its questions for any wish, whatever was hinted, and sometimes
orders too early or with a wrong value.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from sweet.tasks.base import Message
from sweet.tasks.markers import ANSWER_MARKER
from sweet.tasks.orders.generator import WISHES, order_of
from sweet.tasks.shops import LOOKS, SHOPS, DialogueState

UNREAD = 0.5
"""The probability of asking for any wish instead of a hinted one, at temperature 1."""
EARLY = 0.05
"""The probability of ordering before the next question."""
SLIP = 0.1
"""The probability of a wrong value in the order."""


def speak(messages: Sequence[Message], temperature: float, seed: int | None) -> str:
    """Return the next reply: a question, or the order. It depends only on the arguments."""
    rng = random.Random(seed)
    state = DialogueState(messages, WISHES)
    is_early = state.last or rng.random() < EARLY * temperature
    if not is_early and (question := state.question(rng, UNREAD * temperature)):
        return question
    values = state.values
    if values and rng.random() < SLIP * temperature:
        name = rng.choice(sorted(values))
        values = {**values, name: rng.choice(WISHES[name].values)}
    items = [item for shops in SHOPS.values() for items in shops.values() for item in items]
    named_items = (f"{look} {item}" for look in LOOKS for item in items)
    item = max((item for item in named_items if item in state.text), key=len, default="order")
    return f"{ANSWER_MARKER}\n{order_of(item, values)}"
