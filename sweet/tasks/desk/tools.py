"""The tools of the desk: functions of a shop's records, and what calls of them leave.

The records of a shop, as JSON: `orders` by number, each with `customer`, `item`, the `days` since it was bought and the
details of changes that were made, by the names of the wishes; and the words of the `policy` for each wish. The tools do
not enforce the policy: that is the agent's part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Annotated, Any

from pydantic import Field

from sweet.tasks.base import Task
from sweet.tasks.shops import read_wishes
from sweet.tasks.toolboxes.functions import tool_of
from sweet.tasks.tools import Call

Records = dict[str, Any]
RECORDS = "records"
"""The test that the records are right, and the key of a task's row with those at the beginning."""
CALLS = "calls"
"""The key of a task's row with the calls of the reference."""

WISHES = read_wishes(__package__)
Change = Annotated[str, Field(json_schema_extra={"enum": [*WISHES]})]


def find_orders(records: Records, *, customer: int) -> str:
    """Find the orders of a customer by the customer's number."""
    orders = [(number, order) for number, order in records["orders"].items() if order["customer"] == customer]
    if not orders:
        raise ValueError(f"there is no customer {customer}")
    return "\n".join(f"Item: {order['item']}. Order {number}, {order['days']} days ago." for number, order in orders)


def read_policy(records: Records, *, change: Change) -> str:
    """Read the shop's policy for a change of orders."""
    words: str = records["policy"].get(change, "We do not do this.")
    return words


def change_order(records: Records, *, order: int, change: Change, detail: str) -> str:
    """Change an order. The detail of the change is what the customer said about it."""
    if str(order) not in records["orders"]:
        raise ValueError(f"there is no order {order}")
    values = {value.casefold(): value for value in WISHES[change].values}
    if detail.strip().casefold() not in values:
        raise ValueError(f"the detail of {change} must be one of {', '.join(values.values())}")
    records["orders"][str(order)][change] = values[detail.strip().casefold()]
    return "Done."


TOOLS: Mapping[str, Callable[..., str]] = {tool.__name__: tool for tool in (find_orders, read_policy, change_order)}
OFFERED = [tool_of(tool) for tool in TOOLS.values()]


def records_of(task: Task) -> Records:
    """Return the records of a task at the beginning."""
    records: Records = (task.model_extra or {})[RECORDS]
    return records


def reference_of(task: Task) -> list[Call]:
    """Return the calls of the reference."""
    return [(call["name"], call["arguments"]) for call in (task.model_extra or {})[CALLS]]


def run(records: Records, call: Call) -> str:
    """Make a call on the records, which it may change, and return its result; raise ValueError where it fails."""
    name, arguments = call
    return TOOLS[name](records, **arguments)


def after(records: Records, calls: Iterable[Call]) -> Records:
    """Return the records after calls; those that fail change nothing."""
    changed = {**records, "orders": {number: {**order} for number, order in records["orders"].items()}}
    for call in calls:
        with suppress(ValueError):
            run(changed, call)
    return changed


def changes(records: Records) -> str:
    """Return the changes of orders in words."""
    orders = records["orders"].items()
    words = [f"order {number}: {name} {order[name]}" for number, order in orders for name in WISHES if name in order]
    return ", ".join(words) or "no change"
