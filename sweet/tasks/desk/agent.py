"""The scripted agent of the desk: at temperature 0 it does what the reference does, above it makes mistakes.

It is there to be imitated by the agent that a study starts from. At temperature 1 it mostly asks for any wish, whatever
was hinted, and often acts without reading the policy, against it, or on another order of the customer.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from sweet.json_value import JsonValue
from sweet.tasks.base import Message, ToolCall
from sweet.tasks.desk.generator import FEES, LIMITS, last_words
from sweet.tasks.desk.tools import OFFERED, WISHES
from sweet.tasks.markers import ANSWER_MARKER
from sweet.tasks.shops import DialogueState
from sweet.tasks.tools import calls_made

MISTAKES = {
    "unread": 0.85,  # asks for any wish, or reads any policy, and not that of a hinted one
    "early": 0.03,  # ends before the next step
    "unchecked": 0.5,  # does not read the policy before a step that needs it
    "hasty": 0.4,  # changes what the policy does not allow
    "confused": 0.25,  # changes any of the customer's orders
    "slip": 0.1,  # says a wrong number in the end
}
"""The probabilities of the agent's mistakes at temperature 1."""
_ORDER = re.compile(r"Item: ([^.\n]{1,200})\. Order (\d{1,9}), (\d{1,9}) days")
_CUSTOMER = re.compile(r"customer\D{0,40}(\d{1,9})")
_DAYS = re.compile(r"(?<!\d)(\d{1,9}) days")
_FEE = re.compile(r"(?:fee|costs)\D{0,8}(\d{1,9})")


def speak(messages: Sequence[Message], temperature: float, seed: int | None) -> Message:
    """Return the next reply: a call, a question, or the last message. It depends only on the arguments."""
    rng = random.Random(seed)

    def errs(mistake: str) -> bool:
        return rng.random() < MISTAKES[mistake] * temperature

    state, calls = DialogueState(messages, WISHES), calls_made(messages, OFFERED)
    orders = [order for (name, _), listed in calls if name == "find_orders" for order in _ORDER.findall(listed)]
    policies = {arguments["change"]: words for (name, arguments), words in calls if name == "read_policy"}
    changed = next((arguments for (name, arguments), _ in reversed(calls) if name == "change_order"), None)
    guess = rng.choice(list(WISHES) if errs("unread") else state.hinted or list(WISHES))
    wish, detail = next(iter(state.values.items()), (next(reversed(policies), guess), ""))
    words = policies.get(wish, "")
    numbers = ((_DAYS.search(words), LIMITS), (_FEE.search(words), FEES))
    days, fee = (int(match[1]) if match else rng.choice(guesses) for match, guesses in numbers)
    if not errs("early"):
        if not orders and (customer := _CUSTOMER.search(state.text)):
            return _call("find_orders", customer=int(customer[1]))
        if not detail and not state.last and (question := state.question(rng, MISTAKES["unread"] * temperature)):
            return Message(role="assistant", content=question)
        if not words and not errs("unchecked"):
            return _call("read_policy", change=wish)
        matching = [order for order in orders if order[0] in state.text]
        if orders and detail and not changed:
            _, number, passed = rng.choice(orders if errs("confused") else matching or orders)
            if not words or int(passed) <= days or errs("hasty"):
                return _call("change_order", order=int(number), change=wish, detail=detail)
    if errs("slip"):
        days, fee = rng.choice(LIMITS), rng.choice(FEES)
    return Message(role="assistant", content=f"{ANSWER_MARKER}\n{last_words(changed, days=days, fee=fee)}")


def _call(name: str, **arguments: JsonValue) -> Message:
    return Message(role="assistant", content="", tool_calls=(ToolCall.of(name, **arguments),))
