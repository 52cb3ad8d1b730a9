"""The vocabulary of the generated families: the functions that are requested and the rules that they can have.

A function computes a price from one whole number. It always has a rate; further rules change the quantity or the
price, each with one line of code and one value. Everything that a dialogue says about a rule has exactly one wording.

The rules of a task are not stated, but they are not uniformly random either: each function has typical rules
(`Function.typical`), which an agent can learn from many dialogues.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Rule:
    """One kind of rule.

    Attributes:
        name: its key.
        values: the values from which it is drawn.
        line: the line of code, with `{v}` for the value and `{n}` for the function's argument.
        question: the agent's question for it.
        cues: words by which the scripted human recognises a question for it.
        answer: the human's answer, with `{v}` for the value.
        effect: the effect of the line: maps quantity, price and value to quantity and price.
    """

    name: str
    values: tuple[int, ...]
    line: str
    question: str
    cues: tuple[str, ...]
    answer: str
    effect: Callable[[int, int, int], tuple[int, int]]


@dataclass(frozen=True)
class Function:
    """A function of the family: its name, its argument, the sentence that requests it, and its typical rules."""

    name: str
    argument: str
    opening: str
    typical: tuple[str, ...]


RATE = Rule(
    "rate",
    tuple(range(2, 10)),
    "x = {n} * {v}",
    "What is the rate?",
    ("rate", "price per", "cost per", "how much per", "how much does each", "how much is each"),
    "The rate is {v}.",
    lambda n, _, v: (n, n * v),
)

RULES: tuple[Rule, ...] = (
    Rule(
        "smallest",
        (4, 5, 6, 7, 8, 9, 10),
        "{n} = max({n}, {v})",
        "What is the smallest order?",
        ("smallest", "order size"),
        "The smallest order is {v}.",
        lambda n, x, v: (max(n, v), x),
    ),
    Rule(
        "pack",
        (2, 3, 4, 5, 6, 7, 8),
        "{n} = {n} + -{n} % {v}",
        "How many are in a pack?",
        ("pack", "packs", "batch", "bundle"),
        "A pack holds {v}.",
        lambda n, x, v: (n + -n % v, x),
    ),
    Rule(
        "free",
        (1, 2, 3, 4, 5, 6),
        "{n} = max({n} - {v}, 0)",
        "How much is free?",
        ("free", "allowance", "included"),
        "The free part is {v}.",
        lambda n, x, v: (max(n - v, 0), x),
    ),
    RATE,
    Rule(
        "insurance",
        (1, 2, 3, 4, 5, 6),
        "x = x + {n} * {v}",
        "How much is the insurance?",
        ("insurance", "insured", "insure"),
        "The insurance is {v} for each.",
        lambda n, x, v: (n, x + n * v),
    ),
    Rule(
        "fixed",
        tuple(range(4, 14)),
        "x = x + {v}",
        "How much is the fixed charge?",
        ("fixed", "flat fee", "base fee", "base charge", "starting fee"),
        "The fixed charge is {v}.",
        lambda n, x, v: (n, x + v),
    ),
    Rule(
        "double",
        (4, 7, 10, 13, 16, 19, 22),
        "x = x * 2 if {n} > {v} else x",
        "When does it double?",
        ("double", "doubles", "doubled", "twice"),
        "It doubles above {v}.",
        lambda n, x, v: (n, x * 2 if n > v else x),
    ),
    Rule(
        "halve",
        (5, 8, 11, 14, 17, 20, 23),
        "x = x // 2 if {n} > {v} else x",
        "When is it halved?",
        ("half", "halve", "halves", "halved"),
        "It is halved above {v}.",
        lambda n, x, v: (n, x // 2 if n > v else x),
    ),
    Rule(
        "tax",
        (5, 6, 8, 12, 15, 18, 20, 25),
        "x = x + x * {v} // 100",
        "How high is the tax?",
        ("tax", "taxes", "vat"),
        "The tax is {v} percent.",
        lambda n, x, v: (n, x + x * v // 100),
    ),
    Rule(
        "service",
        (4, 7, 9, 10, 11, 14, 16, 22),
        "x = x + x * {v} // 100",
        "How much is added for service?",
        ("service", "tip", "gratuity"),
        "Service adds {v} percent.",
        lambda n, x, v: (n, x + x * v // 100),
    ),
    Rule(
        "discount",
        (5, 10, 15, 20, 25, 30, 40, 50),
        "x = x - x * {v} // 100",
        "How high is the discount?",
        ("discount", "rebate", "reduction"),
        "The discount is {v} percent.",
        lambda n, x, v: (n, x - x * v // 100),
    ),
    Rule(
        "voucher",
        (3, 4, 5, 6, 7, 8, 9, 10, 11, 12),
        "x = max(x - {v}, 0)",
        "How much does a voucher take off?",
        ("voucher", "vouchers", "coupon", "gift card"),
        "A voucher takes off {v}.",
        lambda n, x, v: (n, max(x - v, 0)),
    ),
    Rule(
        "step",
        (4, 5, 6, 7, 8, 9, 10, 11, 12),
        "x = x - x % {v}",
        "How is it rounded?",
        ("round", "rounded", "rounding", "multiple"),
        "It is rounded down to a multiple of {v}.",
        lambda n, x, v: (n, x - x % v),
    ),
    Rule(
        "floor",
        (16, 18, 20, 24, 25, 28, 30, 35),
        "x = max(x, {v})",
        "What is the minimum?",
        ("minimum", "least", "lowest", "floor"),
        "The minimum is {v}.",
        lambda n, x, v: (n, max(x, v)),
    ),
    Rule(
        "cap",
        (45, 50, 55, 60, 65, 70, 75, 80, 90),
        "x = min(x, {v})",
        "What is the maximum?",
        ("maximum", "most", "highest", "cap", "upper limit"),
        "The maximum is {v}.",
        lambda n, x, v: (n, min(x, v)),
    ),
)
"""Every kind of rule, in the order of their lines in the code. No two ever have the same line."""

BY_NAME = {rule.name: rule for rule in RULES}

FUNCTIONS: tuple[Function, ...] = (
    Function("parking_price", "hours", "I need the price of parking in my garage.", ("free", "tax", "step", "cap")),
    Function("bike_rental", "hours", "I rent out bikes and need the price.", ("discount", "step", "floor", "cap")),
    Function("boat_rental", "hours", "I rent out boats and need the price.", ("free", "discount", "step", "cap")),
    Function("hall_rent", "hours", "I need the rent of our town hall.", ("free", "fixed", "tax", "floor")),
    Function("hotel_bill", "nights", "I need the bill for a stay in my hotel.", ("fixed", "discount", "floor", "cap")),
    Function("camping_fee", "nights", "I need the fee of our camping site.", ("double", "tax", "discount", "cap")),
    Function("late_fine", "days", "I need the fine for late books.", ("fixed", "double", "tax", "step")),
    Function("car_rental", "days", "I rent out cars and need the price.", ("fixed", "double", "tax", "discount")),
    Function("taxi_fare", "miles", "I need the fare of a taxi ride.", ("free", "double", "tax", "floor")),
    Function("towing_cost", "miles", "I need the cost of towing a car.", ("free", "fixed", "step", "floor")),
    Function("shipping_fee", "pounds", "I need the fee for shipping a parcel.", ("free", "double", "discount", "cap")),
    Function("print_cost", "pages", "I need the cost of printing a book.", ("double", "tax", "step", "floor")),
    Function("phone_bill", "minutes", "I need the bill for phone calls.", ("fixed", "double", "step", "cap")),
    Function(
        "cleaning_price", "rooms", "I need the price of cleaning a house.", ("free", "fixed", "discount", "floor")
    ),
)
