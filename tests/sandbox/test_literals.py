"""Values as Python literals: they evaluate to the value if nothing was cut, and are bounded for any input."""

from __future__ import annotations

import ast
import json
from collections import deque
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweet.sandbox import child
from sweet.sandbox.literals import format_value

LITERALS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
    | st.binary(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.tuples(inner)
    | st.dictionaries(st.text() | st.integers(), inner) | st.sets(st.integers(), min_size=1),
)  # fmt: skip
JSON = st.recursive(
    st.none() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(
            st.sampled_from(["tuple", "dict", "int", "float", "object", "enum", "range", "bytes", "complex", "x"]),
            inner,
            max_size=2,
        )
    ),
)


def canonical(value: Any) -> Any:
    return json.loads(child.encode(value, 10**6))


@given(LITERALS)
def test_a_literal_evaluates_to_its_value(value: Any) -> None:
    assert ast.literal_eval(format_value(canonical(value), 10**6)) == value


class Account:
    def __init__(self, owner: str, balance: float) -> None:
        self.owner, self.balance = owner, balance


class Slotted:
    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = (Account("b", 1),)


class Own(Account):
    def __repr__(self) -> str:
        return "an account"


class Empty:
    pass


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Account("a", 2.5), "Account(owner='a', balance=2.5)"),
        ([Account("a", 1), Account("b", 1)], "[Account(owner='a', balance=1), Account(owner='b', balance=1)]"),
        (Slotted(), "Slotted(left=(Account(owner='b', balance=1),))"),
        (Own("a", 1), "an account"),
    ],
)
def test_an_object_is_shown_by_its_attributes_unless_it_has_a_form_of_its_own(value: object, text: str) -> None:
    assert format_value(canonical(value), 1000) == text


def test_an_object_without_attributes_is_shown_by_its_class() -> None:
    assert "Empty object" in format_value(canonical(Empty()), 1000)


@given(JSON, st.integers(1, 50))
def test_malformed_values_are_formatted_within_the_limit(value: Any, limit: int) -> None:
    text = format_value(value, limit)
    assert len(text) <= max(limit, len("<malformed>"))


@pytest.mark.parametrize(
    "value",
    [
        {"dataclass": ["A", [[["x"], 1]]]},
        {"range": ["", "x", 10**10]},
        {"range": [[], [0], 10**10]},
        {"exception": [["x"], [1]]},
        {"tuple": 5},
        {"int": ["1"]},
    ],
)
def test_a_malformed_value_costs_nothing(value: Any) -> None:
    assert len(format_value(value, 50)) <= 50


def test_a_long_value_is_cut_without_writing_all_of_it() -> None:
    assert format_value(canonical(list(range(1000))), 12) == "[0, 1, 2, 3…"
    assert format_value("x" * 100, 10) == "'xxxxxxxx…"


@dataclass
class Point:
    x: int


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (set(), "set()"),
        (Point(1), "Point(x=1)"),
        (ValueError("no"), "ValueError('no')"),
        (Fraction(1, 3), "Fraction(1, 3)"),
        (complex(1, 2), "complex(1.0, 2.0)"),
        (float("inf"), "inf"),
        (deque([1]), "deque([1])"),
        (range(1, 9, 2), "range(1, 9, 2)"),
        (2**100, str(2**100)),
        (len, "len"),
    ],
)
def test_formats(value: Any, text: str) -> None:
    assert format_value(canonical(value), 200) == text
