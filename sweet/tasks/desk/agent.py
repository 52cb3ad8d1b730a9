"""The scripted agent of the desk: at temperature 0 it does what the reference does, above it makes mistakes.

It is there to be imitated by the agent that a study starts from. At temperature 1 it mostly asks for any wish, whatever
was hinted, and often acts without reading the policy, against it, or on another order of the customer.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from typing import Any

from sweet.json_value import JsonValue
from sweet.tasks.base import Message
from sweet.tasks.desk.generator import FEES, LIMITS, done_of, refused_of
from sweet.tasks.desk.tools import TOOLS, WISHES, arguments_of
from sweet.tasks.markers import ANSWER_MARKER
from sweet.tasks.shops import Heard
from sweet.tasks.tools import FAILED, ToolCall

UNREAD = 0.95
"""The probability of asking for any wish, or reading any policy, instead of that of a hinted one, at temperature 1."""
EARLY = 0.03
"""The probability of the last message before the next step."""
UNCHECKED = 0.7
"""The probability of not reading the policy before a step that needs it."""
HASTY = 0.5
"""The probability of a change that the policy does not allow."""
CONFUSED = 0.3
"""The probability of changing any of the customer's orders."""
SLIP = 0.15
"""The probability of a wrong number in the last message."""


_ORDER = re.compile(r"Item: ([^.\n]{1,200})\. Order (\d{1,9}), (\d{1,9}) days")
_CUSTOMER = re.compile(r"customer\D{0,40}(\d{1,9})")
_DAYS = re.compile(r"(?<!\d)(\d{1,9}) days")
_FEE = re.compile(r"(?:fee|costs)\D{0,8}(\d{1,9})")


def speak(messages: Sequence[Message], temperature: float, seed: int | None) -> Message:
    """Return the next reply: a call, a question, or the last message. It depends only on the arguments."""
    rng = random.Random(seed)

    def errs(probability: float) -> bool:
        return rng.random() < probability * temperature

    heard, made = Heard(messages, WISHES), _made(messages)
    orders = [order for _, listed in made["find_orders"] for order in _ORDER.findall(listed)]
    policies = {arguments["change"]: words for arguments, words in made["read_policy"]}
    changed = made["change_order"][-1][0] if made["change_order"] else None
    guess = rng.choice(list(WISHES) if errs(UNREAD) else heard.hinted or list(WISHES))
    wish, detail = next(iter(heard.told.items()), (next(reversed(policies), guess), ""))
    words = policies.get(wish, "")
    days, fee = _number(_DAYS, words, rng.choice(LIMITS)), _number(_FEE, words, rng.choice(FEES))
    if not errs(EARLY):
        if not orders and (customer := _CUSTOMER.search(heard.text)):
            return _call("find_orders", customer=int(customer[1]))
        if not detail and not heard.last and (question := heard.question(rng, UNREAD * temperature)):
            return Message(role="assistant", content=question)
        if not words and not errs(UNCHECKED):
            return _call("read_policy", change=wish)
        own = [order for order in orders if order[0] in heard.text]
        if orders and detail and not changed:
            _, number, passed = rng.choice(orders if errs(CONFUSED) else own or orders)
            if not words or int(passed) <= days or errs(HASTY):
                return _call("change_order", order=int(number), change=wish, detail=detail)
    if errs(SLIP):
        days, fee = rng.choice(LIMITS), rng.choice(FEES)
    last = done_of(changed["order"], changed["change"], changed["detail"], fee) if changed else refused_of(days)
    return Message(role="assistant", content=f"{ANSWER_MARKER}\n{last}")


def _call(name: str, **arguments: JsonValue) -> Message:
    return Message(role="assistant", content="", tool_calls=(ToolCall.of(name, **arguments),))


def _number(pattern: re.Pattern[str], words: str, guessed: int) -> int:
    found = pattern.search(words)
    return int(found[1]) if found else guessed


def _made(messages: Sequence[Message]) -> Mapping[str, list[tuple[dict[str, Any], str]]]:
    """Return the arguments and the result of each call that did not fail, by the name of the tool."""
    results = {message.tool_call_id: message.content for message in messages if message.role == "tool"}
    made: dict[str, list[tuple[dict[str, Any], str]]] = {name: [] for name in TOOLS}
    for call in [call for message in messages for call in message.tool_calls or ()]:
        result = results.get(call.id, FAILED)
        if call.name in made and not result.startswith(FAILED):
            made[call.name].append((arguments_of(call), result))
    return made
