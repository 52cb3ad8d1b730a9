"""Hostile values: the comparison of those that the sandbox reports, and their display.

A pair of values is given as it is, or as one value and what is different in the other one, which may be large.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from sweet.sandbox.child import MAX_DEPTH
from sweet.sandbox.literals import format_value
from sweet.sandbox.program import Limits
from sweet.sandbox.values import same, same_as_published

_TAGS = [
    *("int", "float", "complex", "decimal", "fraction", "bytes", "tuple", "set", "dict", "deque", "range", "iterator"),
    *("array", "datetime", "date", "time", "timedelta", "moment64", "enum", "dataclass", "exception", "callable"),
    *("object", "toolarge", "opaque", "unknown"),
]
_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=6),
    st.sampled_from(["nan", "inf", "-inf", "1e999999999", "sNaN", "-0", "f" * 5000, "x", "1/3"]),
)
ANY_VALUE = st.recursive(
    _SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(_TAGS), inner, min_size=1, max_size=1)
        | st.dictionaries(st.text(max_size=2), inner, max_size=2)
    ),
    max_leaves=25,
)
"""What a hostile program may write instead of a value."""
_NUMBERS = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["nan", "inf", "-inf"]).map(lambda text: {"float": text}),
    st.integers(2**63, 2**400).map(lambda value: {"int": format(value, "x")}),
    st.decimals().filter(lambda value: not value.is_snan()).map(lambda value: {"decimal": str(value)}),
    st.tuples(st.floats(-9, 9), st.floats(-9, 9)).map(lambda parts: {"complex": list(parts)}),
    st.fractions().map(lambda value: {"fraction": [format(value.numerator, "x"), format(value.denominator, "x")]}),
)
_LEAVES = st.one_of(
    st.none(),
    _NUMBERS,
    st.text(max_size=6),
    st.binary(max_size=4).map(lambda value: {"bytes": value.hex()}),
    st.just({"date": "2024-01-01"}),
    st.just({"callable": "len"}),
)


def _containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    items = st.lists(inner, max_size=5)
    pairs = st.lists(st.tuples(inner, inner).map(list), max_size=4)
    return st.one_of(
        items,
        st.tuples(st.sampled_from(["tuple", "set", "deque", "iterator"]), items).map(lambda both: dict([both])),
        pairs.map(lambda both: {"dict": both}),
        pairs.map(lambda both: {"object": ["A", "<A>", both]}),
        pairs.map(lambda both: {"dataclass": ["A", both]}),
        items.map(lambda both: {"exception": ["ValueError", both]}),
    )


TRUE_VALUE = st.recursive(_LEAVES, _containers, max_leaves=20)
"""Values as the child reports them."""
WRAPPERS = ("list", "tuple", "set", "dict", "keys", "object")
MAGNIFIED = st.fixed_dictionaries(
    {
        "value": TRUE_VALUE,
        "wrapped": st.lists(st.sampled_from(WRAPPERS), max_size=MAX_DEPTH),
        "copies": st.sampled_from([0, 1, 50, 4_000]),
        "change": st.sampled_from(["none", "floats", "leaf", "shuffled"]),
        "seed": st.integers(0, 99),
    }
)
"""A value, wrapped again and again and repeated with numbers, and what is different in the other one."""
COMPARISON = st.one_of(
    st.fixed_dictionaries({"any": st.tuples(ANY_VALUE, ANY_VALUE).map(list)}),
    st.fixed_dictionaries({"true": st.tuples(TRUE_VALUE, TRUE_VALUE).map(list)}),
    MAGNIFIED,
)


def wrapped(value: Any, kind: str) -> Any:
    """Return the value in one more container."""
    return {
        "list": [value],
        "tuple": {"tuple": [value, 0]},
        "set": {"set": [value, 0]},
        "dict": {"dict": [[0, value]]},
        "keys": {"dict": [[value, 0], [0, 0]]},
        "object": {"object": ["A", "<A>", [["a", value]]]},
    }[kind]


def magnified(value: dict[str, Any]) -> tuple[Any, Any]:
    """Return the two values that an input of `MAGNIFIED` describes."""
    change, draw = value["change"], random.Random(value["seed"])
    number: Callable[[int], Any] = float if change in ("floats", "shuffled") else int
    one, other = value["value"], copy.deepcopy(value["value"])
    if value["copies"]:
        order = list(range(value["copies"]))
        one = {"dict": [[n, [one, n]] for n in order]}
        if change == "shuffled":
            draw.shuffle(order)
        other = {"dict": [[number(n), [other, number(n)]] for n in order]}
    if change == "leaf":
        other = {"tuple": [other, 1]}
        one = {"tuple": [one, 2]}
    for kind in value["wrapped"]:
        one, other = wrapped(one, kind), wrapped(other, kind)
    return one, other


def check_comparison(value: dict[str, Any]) -> None:
    """Check that any two values are compared and shown, that a value equals itself, and that equality is symmetric."""
    if "any" in value:
        one, other = value["any"]
    elif "true" in value:
        one, other = value["true"]
        assert same(one, copy.deepcopy(one)), "a value equals itself"
        assert same(one, one, 0.0), "a value equals itself without tolerance"
        assert same(one, other, 0.0) == same(other, one, 0.0), "without tolerance, equality is symmetric"
        assert same(one, other, 0.0) <= same(one, other), "what is equal exactly is equal within the tolerance"
    else:
        one, other = magnified(value)
        if len(json.dumps(one)) > Limits().value_bytes:
            return  # a child's report is not read to its end
        assert same(one, one)
        equal = {"none": True, "floats": True, "shuffled": True, "leaf": False}[value["change"]]
        assert same(one, other) == equal
        assert same(other, one) == equal
    for each in (same, same_as_published):
        assert each(one, other) in (True, False)
    for each in (one, other):
        assert len(format_value(each, 200)) <= 200
