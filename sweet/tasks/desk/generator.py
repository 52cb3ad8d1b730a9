"""Draw the tasks of the datasets `desk` and `desk-cloning`: a customer's item and wish, a shop's orders and its policy.

The customer has two or three orders, another customer has one. The policy says for each wish within how many days it is
possible, and its fee. Each pair of days and fee is in the policies of one split only.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from sweet.tasks.base import Fact, Task
from sweet.tasks.desk.tools import CALLS, RECORDS, WISHES, Records
from sweet.tasks.shops import LOOKS, SHOPS, Dataset

LIMITS = (5, 10, 15, 20, 25, 30)
"""Days within which a policy may allow a change."""
DAYS = tuple(days for days in range(1, 40) if days not in LIMITS)
FEES, NUMBERS, CUSTOMERS = range(41, 60), range(60, 80), range(80, 100)
"""Fees of policies, numbers of orders and of customers. They differ, so that a number tells what it is."""
ALLOWED = 0.75
"""The share of the tasks in which the policy allows the change."""
DONE = "Order {order} {said}. The fee is {fee}."
REFUSED = "I am sorry. That is possible within {days} days only."
"""The agent's last message where it changed an order, and where the policy does not allow that."""

_OPENINGS = (
    "Hello, I am customer {customer} of {shop}. I have an item of yours: {item}.",
    "Good morning, my number as a customer of {shop} is {customer}. I come because of this item: {item}.",
)
_POLICIES = (
    "It is possible within {limit} days. The fee is {fee}.",
    "We do it up to {limit} days after the purchase. It costs {fee}.",
    "For a fee of {fee}. Not later than {limit} days after the purchase.",
)


def last_words(changed: Mapping[str, Any] | None, *, days: object, fee: object) -> str:
    """Return the agent's last message after a call of `change_order` with these arguments, or where there was none.

    Args:
        days: of the policy. fee: of the change.
    """
    if changed is None:
        return REFUSED.format(days=days)
    wish = WISHES[changed["change"]].said.format(v=changed["detail"])
    return DONE.format(order=changed["order"], said=wish, fee=fee)


@cache
def terms(key: str) -> Sequence[tuple[int, int]]:
    """Return the days and fees that the policies of a key of `SHOPS` have."""
    place = sorted(SHOPS).index(key)
    return [(days, fee) for days in LIMITS for fee in FEES if (days // 5 + fee) % len(SHOPS) == place]


def draw(rng: random.Random, key: str, _: int = 1) -> Task:
    """Return a task with a shop of a key of `SHOPS`."""
    shop, wish = rng.choice(sorted(SHOPS[key])), rng.choice(sorted(WISHES))
    days_of = {fee: days for days, fee in rng.sample(terms(key), len(terms(key)))}
    policy = dict(zip(WISHES, rng.sample(sorted(days_of.items()), len(WISHES)), strict=True))
    fee, limit = policy[wish]
    is_allowed = rng.random() < ALLOWED
    customer, other = rng.sample(CUSTOMERS, 2)
    numbers = rng.sample(NUMBERS, rng.choice((3, 4)))
    number = numbers[0]
    orders = {
        order: {
            "customer": other if order == numbers[-1] else customer,
            "item": f"{look} {rng.choice(SHOPS[key][shop])}",
            "days": rng.choice([days for days in DAYS if order != number or (days < limit) == is_allowed]),
        }
        for order, look in zip(numbers, rng.sample(LOOKS, len(numbers)), strict=True)
    }
    detail = rng.choice(WISHES[wish].values)
    answer = rng.choice(WISHES[wish].answers).format(v=detail)
    opening = rng.choice(_OPENINGS).format(customer=customer, shop=shop, item=orders[number]["item"])
    calls: dict[str, Any] = {"find_orders": {"customer": customer}, "read_policy": {"change": wish}}
    tests = {RECORDS: "no change", "days": str(limit)}
    if is_allowed:
        calls["change_order"] = {"order": number, "change": wish, "detail": detail}
        tests = {RECORDS: f"order {number}: {wish} {detail}", "fee": str(fee)}
    done = last_words(calls.get("change_order"), days=limit, fee=fee)
    records: Records = {
        "orders": {str(order): orders[order] for order in sorted(orders)},
        "policy": {name: rng.choice(_POLICIES).format(limit=days, fee=cost) for name, (cost, days) in policy.items()},
    }
    return Task(
        id="drawn",
        problem_description=f"{opening} {rng.choice(WISHES[wish].hints)}",
        ground_truth=f"Customer {customer}, order {number}, {wish}. {answer} {done}",
        test_cases=tests,
        facts=(Fact(topic=wish, cues=WISHES[wish].cues, answer=answer),),
        **{RECORDS: records, CALLS: [{"name": name, "arguments": arguments} for name, arguments in calls.items()]},
    )


DESK = {
    "desk": Dataset("desk", 2, draw, reply_tokens=64, kind="desk", agent="desk"),
    "desk-cloning": Dataset("desk-cloning", 2, draw, cloning=True, reply_tokens=64, kind="desk"),
}
"""The datasets by name. One question of a task's two is to spare."""
