"""The tools of the desk: functions of a shop's records, and what calls of them leave.

The records of a shop, as JSON: `orders` by number, each with `customer`, `item`, the `days` since it was bought and the
details of changes that were made, by the names of the wishes; and the words of the `policy` for each wish. The tools do
not enforce the policy: that is the agent's part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Field

from sweet.json_value import JsonValue
from sweet.tasks.base import Task
from sweet.tasks.shops import read_wishes
from sweet.tasks.tools import ToolCall, read_arguments

Records = dict[str, Any]
RECORDS = "records"
"""The test that the records are right, and the key of a task's row with those at the beginning."""
NO_CHANGE = "no change"
CALLS = "calls"
"""The key of a task's row with the calls of the reference."""

WISHES = read_wishes(__package__)
Change = Annotated[str, Field(json_schema_extra={"enum": [*WISHES]})]


def find_orders(records: Records, *, customer: int) -> str:
    """Find the orders of a customer by the customer's number."""
    found = [(number, order) for number, order in records["orders"].items() if order["customer"] == customer]
    if not found:
        raise ValueError(f"there is no customer {customer}")
    return "\n".join(f"Item: {order['item']}. Order {number}, {order['days']} days ago." for number, order in found)


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


class _Order(BaseModel):
    model_config = ConfigDict(extra="allow")

    customer: int
    item: str
    days: int


class _Records(BaseModel):
    orders: dict[Annotated[str, Field(pattern=r"^[1-9]\d{0,8}$")], _Order]
    policy: dict[str, str]


class _Call(BaseModel):
    name: str
    arguments: dict[str, JsonValue]


class Row(BaseModel):
    """The fields of a task's row that the kind adds: the records at the beginning, and the calls of the reference."""

    records: _Records
    calls: tuple[_Call, ...]
    test_cases: dict[str, str]


def records_of(task: Task) -> Records:
    """Return the records of a task at the beginning."""
    records: Records = (task.model_extra or {})[RECORDS]
    return records


def reference_of(task: Task) -> list[ToolCall]:
    """Return the calls of the reference."""
    return [ToolCall.of(call["name"], **call["arguments"]) for call in (task.model_extra or {})[CALLS]]


TOOLS: Mapping[str, Callable[..., str]] = {tool.__name__: tool for tool in (find_orders, read_policy, change_order)}
_TYPES = {
    name: {argument: of for argument, of in get_type_hints(tool).items() if argument not in ("records", "return")}
    for name, tool in TOOLS.items()
}
"""The types of the arguments of each tool."""


def arguments_of(call: ToolCall) -> dict[str, Any]:
    """Return the arguments of a call.

    Raises:
        ValueError: there is no such tool, or the arguments do not fit it.
    """
    arguments = read_arguments(call.arguments)
    types = {name: type(value) for name, value in arguments.items()}
    if types != _TYPES.get(call.name) or arguments.get("change", "refund") not in WISHES:
        raise ValueError(f"{call.name} cannot be called so")
    return arguments


def run(records: Records, call: ToolCall) -> str:
    """Make a call on the records, which it may change, and return its result.

    Raises:
        ValueError: the call cannot be made.
    """
    arguments = arguments_of(call)
    return TOOLS[call.name](records, **arguments)


def after(records: Records, calls: Iterable[ToolCall]) -> Records:
    """Return the records after calls; those that cannot be made change nothing."""
    changed = {**records, "orders": {number: {**order} for number, order in records["orders"].items()}}
    for call in calls:
        try:
            run(changed, call)
        except ValueError:
            continue
    return changed


def changes(before: Records, now: Records) -> str:
    """Return the changes of orders in words."""
    made = [
        change_of(number, name, detail)
        for number, order in now["orders"].items()
        for name, detail in order.items()
        if detail != before["orders"].get(number, {}).get(name)
    ]
    return ", ".join(made) or NO_CHANGE


def change_of(order: int | str, change: str, detail: str) -> str:
    """Return a change of an order in words."""
    return f"order {order}: {change} {detail}"
