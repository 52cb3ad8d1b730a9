"""The scripted agent of orders: at temperature 0 it reads the hints, above it makes mistakes.

It is there to be imitated by the agent that a study starts from, whose success should be rare and be lost at
identifiable turns. At temperature 1 it mostly asks for any wish, whatever was hinted, and sometimes orders too early or
with a wrong value.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence

from sweet.tasks.base import Message
from sweet.tasks.markers import ANSWER_MARKER, MAX_TURNS
from sweet.tasks.orders.generator import LOOKS, SHOPS, WISHES, order_of

UNREAD = 0.75
"""The probability of asking for any wish instead of a hinted one, at temperature 1."""
EARLY = 0.05
"""The probability of ordering before the next question."""
SLIP = 0.1
"""The probability of a wrong value in the order."""

_TURNS = re.compile(r"(?<!\d)(\d{1,4}) turns")


def speak(messages: Sequence[Message], temperature: float, seed: int | None) -> str:
    """Return the next reply: a question, or the order. It depends only on the arguments."""
    rng = random.Random(seed)
    wishes = {question: name for name, wish in WISHES.items() for question in wish.asks}
    asked = [wishes.get(message.content, "") for message in messages if message.role == "assistant"]
    heard = " ".join(message.content for message in messages if message.role == "user")
    last = len(asked) + 1 >= _turns(messages)
    if not last and rng.random() >= EARLY * temperature:
        hinted = [name for name, wish in WISHES.items() if any(hint in heard for hint in wish.hints)]
        if rng.random() < UNREAD * temperature:
            hinted = list(WISHES)
        if rest := [name for name in hinted if name not in asked]:
            return rng.choice(WISHES[rng.choice(rest)].asks)
    values = _told(messages, asked)
    if values and rng.random() < SLIP * temperature:
        name = rng.choice(sorted(values))
        values = {**values, name: rng.choice(WISHES[name].values)}
    items = [item for shops in SHOPS.values() for items in shops.values() for item in items]
    known = (f"{look} {item}" for look in LOOKS for item in items)
    item = max((item for item in known if item in heard), key=len, default="order")
    return f"{ANSWER_MARKER}\n{order_of(item, values)}"


def _turns(messages: Sequence[Message]) -> int:
    found = _TURNS.search(messages[0].content) if messages else None
    return int(found[1]) if found else MAX_TURNS


def _told(messages: Sequence[Message], asked: Sequence[str]) -> Mapping[str, str]:
    """Return the values in the replies to the questions, by wish."""
    replies = [message.content for message in messages if message.role == "user"][1:]
    told: dict[str, str] = {}
    for name, reply in zip(asked, replies, strict=False):
        values = WISHES[name].values if name in WISHES else ()
        if value := next((value for value in values if value.casefold() in reply.casefold()), None):
            told[name] = value
    return told
