"""Draw the tasks of the datasets `desk` and `desk-cloning`: a customer's item and wish, a shop's orders and its policy.

The customer has two or three orders, another customer has one. The policy says for each wish within how many days it is
possible, and its fee. Each pair of days and fee is in the policies of
one split only.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from typing import Any

from sweet.tasks import shops
from sweet.tasks.base import Fact, Task
from sweet.tasks.desk.tools import CALLS, NO_CHANGE, RECORDS, WISHES, Records, change_of
from sweet.tasks.shops import CLONING, LOOKS, OWN, SHOPS, SPLITS, Dataset

LIMITS = (5, 10, 15, 20, 25, 30)
"""Days within which a policy may allow a change."""
DAYS = tuple(days for days in range(1, 40) if days not in LIMITS)
FEES, NUMBERS, CUSTOMERS = range(41, 60), range(60, 80), range(80, 100)
"""Fees of policies, numbers of orders and of customers. They differ, so that a number tells what it is."""
ALLOWED = 0.75
"""The share of the tasks in which the policy allows the change."""
DESK = {
    dataset.name: dataset
    for dataset in (
        Dataset("desk", 2, SPLITS, OWN, reply_tokens=64, kind="desk"),
        Dataset("desk-cloning", 2, {"train": 4000}, CLONING, reply_tokens=64, kind="desk"),
    )
}
"""The datasets by name. One question of a task's two is to spare."""

_OPENINGS = (
    "Hello, I am customer {customer} of {shop}. I have an item of yours: {item}.",
    "Good morning, my number as a customer of {shop} is {customer}. I come because of this item: {item}.",
)
_POLICIES = (
    "It is possible within {limit} days. The fee is {fee}.",
    "We do it up to {limit} days after the purchase. It costs {fee}.",
    "For a fee of {fee}. Not later than {limit} days after the purchase.",
)


def load(name: str, split: str) -> list[Task]:
    """Return the tasks of a split: always the same, no two of them equal.

    Raises:
        UsageError: there is no such split.
    """
    return shops.load(DESK[name], split, draw)


@cache
def terms(key: str) -> Sequence[tuple[int, int]]:
    """Return the days and fees that the policies of a key of `SHOPS` have."""
    place = sorted(SHOPS).index(key)
    return [(days, fee) for days in LIMITS for fee in FEES if (days // 5 + fee) % len(SHOPS) == place]


def done_of(order: int, wish: str, detail: str, fee: int) -> str:
    """Return the agent's last message where it changed an order."""
    return f"Order {order} {WISHES[wish].said.format(v=detail)}. The fee is {fee}."


def refused_of(limit: int) -> str:
    """Return the agent's last message where the policy does not allow the change."""
    return f"I am sorry. That is possible within {limit} days only."


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
    calls: list[dict[str, Any]] = [
        {"name": "find_orders", "arguments": {"customer": customer}},
        {"name": "read_policy", "arguments": {"change": wish}},
    ]
    if is_allowed:
        calls.append({"name": "change_order", "arguments": {"order": number, "change": wish, "detail": detail}})
    records: Records = {
        "orders": {str(order): orders[order] for order in sorted(orders)},
        "policy": {name: rng.choice(_POLICIES).format(limit=days, fee=cost) for name, (cost, days) in policy.items()},
    }
    done = done_of(number, wish, detail, fee) if is_allowed else refused_of(limit)
    return Task(
        id="drawn",
        problem_description=f"{opening} {rng.choice(WISHES[wish].hints)}",
        ground_truth=f"Customer {customer}, order {number}, {wish}. {answer} {done}",
        test_cases={
            RECORDS: change_of(number, wish, detail) if is_allowed else NO_CHANGE,
            **({"fee": str(fee)} if is_allowed else {"days": str(limit)}),
        },
        facts=(Fact(topic=wish, cues=WISHES[wish].cues, answer=answer),),
        **{RECORDS: records, CALLS: calls},
    )
