"""Canonical values: two values are equal after the sandbox's JSON if and only if they are equal in Python."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import fractions
import itertools
import json
import math
import time
from collections import Counter, OrderedDict, deque, namedtuple
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweet.sandbox import child, values
from sweet.sandbox.values import same, same_as_published

KEYS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(),
    st.decimals(allow_nan=False),
)
VALUES = st.recursive(
    st.one_of(KEYS, st.complex_numbers(allow_nan=False), st.fractions(), st.datetimes(), st.timedeltas()),
    lambda inner: st.one_of(
        st.lists(inner),
        st.tuples(inner, inner),
        st.dictionaries(KEYS, inner),
        st.sets(KEYS),
        st.frozensets(KEYS),
        st.builds(deque, st.lists(inner)),
    ),
    max_leaves=8,
)


def canonical(value: Any) -> Any:
    return json.loads(child.encode(value, 1 << 20))


@given(VALUES, VALUES)
@settings(max_examples=100)
def test_equality_is_pythons(a: Any, b: Any) -> None:
    assert same(canonical(a), canonical(b), tolerance=0) == (a == b)
    assert same_as_published(canonical(a), canonical(b)) == (a == b)


@given(VALUES)
def test_a_value_equals_itself(value: Any) -> None:
    assert same(canonical(value), canonical(value))


Point = namedtuple("Point", "x y")


@dataclasses.dataclass
class Box:
    side: float
    label: str = ""


class Plain:
    def __init__(self, x: int) -> None:
        self.x = x


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Number(enum.IntEnum):
    ONE = 1


class Name(str):
    __slots__ = ()


NAN = float("nan")


@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [
        (1, True, True),
        (1, 1.0, True),
        (0.0, -0.0, True),
        ((1,), [1], False),
        ({1, 2}, frozenset({2, 1.0}), True),
        ({"a": 1, "b": 2}, {"b": 2.0, "a": 1}, True),
        ({1: "x"}, {True: "x"}, True),
        (NAN, float("nan"), True),
        ([NAN, math.inf], [NAN, math.inf], True),
        (math.inf, -math.inf, False),
        (0.1 + 0.2, 0.3, True),
        (0.3 - 0.2 - 0.1, 0.0, True),
        (0, 1e-13, True),
        (1e-11, 0.0, False),
        (0.1 + 0.2 - 0.3 + 0j, 0j, True),
        (decimal.Decimal("1e-13"), decimal.Decimal(0), False),
        (1.0, 1.0 + 1e-7, False),
        (1e300, 1e300 * (1 + 1e-12), True),
        ({0.1 + 0.2}, {0.3}, True),
        ({0.1 + 0.2: 1}, {0.3: 1}, True),
        (10**400, 10**400, True),
        (10**400, 1.5, False),
        (-(2**70), -(2**70), True),
        (decimal.Decimal("1.0"), 1, True),
        (fractions.Fraction(1, 2), 0.5, True),
        (1 + 0j, 1, True),
        (b"a", bytearray(b"a"), True),
        (b"a", "a", False),
        ("1", 1, False),
        (None, False, False),
        (Point(1, 2), (1, 2), True),
        (OrderedDict(a=1), {"a": 1}, True),
        (Counter("aa"), {"a": 2}, True),
        (range(0), range(3, 3), True),
        (range(1, 10, 2), range(1, 11, 2), True),
        (range(3), [0, 1, 2], False),
        ({}.keys(), set(), True),
        (Number.ONE, 1, True),
        (Colour.RED, Colour.RED, True),
        (Colour.RED, Colour.BLUE, False),
        (Colour.RED, 1, False),
        (Box(1), Box(1.0), True),
        (Box(1), Box(2), False),
        (Plain(1), Plain(1), True),
        (Plain(1), Plain(2), False),
        ((x for x in (1, 2)), [1, 2], False),
        (ValueError("a"), ValueError("a"), True),
        (ValueError("a"), KeyError("a"), False),
        ("\ud800", "\ud800", True),
        (
            datetime.datetime(2024, 1, 1, 12, tzinfo=datetime.UTC),
            datetime.datetime(2024, 1, 1, 13, tzinfo=datetime.timezone(datetime.timedelta(hours=1))),
            True,
        ),
        (datetime.datetime(2024, 1, 1), datetime.date(2024, 1, 1), False),
    ],
)
def test_pairs(a: Any, b: Any, equal: bool) -> None:
    x, y = canonical(a), canonical(b)
    assert same(x, y) is equal
    assert same(y, x) is equal


@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [
        (decimal.Decimal("1E+400"), math.inf, False),
        (decimal.Decimal("-1E+400"), -math.inf, False),
        (decimal.Decimal("1E+400"), complex(math.inf), False),
        (decimal.Decimal("1E+999999"), 1.5, False),
        (10**400, math.inf, False),
        (fractions.Fraction(10**400), math.inf, False),
        (fractions.Fraction(10**400), complex(math.inf), False),
        (decimal.Decimal("Infinity"), math.inf, True),
        (decimal.Decimal("1E+400"), 10**400, True),
        (decimal.Decimal("1E-400"), 0.0, False),
        (fractions.Fraction(1, 10**400), -0.0, False),
        (decimal.Decimal("4E-324"), 5e-324, False),
        (decimal.Decimal("0.3"), 0.1 + 0.2, True),
        (fractions.Fraction(3, 10), 0.1 + 0.2, True),
        (fractions.Fraction(3, 10), 0.1 + 0.2 + 0j, True),
        (decimal.Decimal("0.3"), fractions.Fraction(3, 10) + fractions.Fraction(1, 10**30), False),
        (2**53 + 1, 2**53, False),
        (2**53 + 1, float(2**53), True),
        (complex(NAN, 1), complex(NAN, 1), True),
        (complex(NAN, 1), complex(NAN, 2), False),
        (complex(NAN, 1), complex(1, NAN), False),
        (complex(NAN, 5), NAN, False),
        (complex(NAN, 0), NAN, True),
        (complex(math.inf, 1), complex(math.inf, 2), False),
        (complex(math.inf, NAN), complex(math.inf, NAN), True),
        (decimal.Decimal("NaN"), NAN, True),
        (decimal.Decimal("sNaN"), decimal.Decimal("sNaN"), True),
        (decimal.Decimal("sNaN"), decimal.Decimal("NaN"), False),
        (decimal.Decimal("sNaN"), NAN, False),
        (NAN, decimal.Decimal("sNaN"), False),
        (decimal.Decimal("sNaN"), 1, False),
        ([decimal.Decimal("sNaN"), 1], [1, decimal.Decimal("sNaN")], False),
        ("nan", NAN, False),
        ("1", True, False),
        (Name("a"), "a", True),
        (Name("a"), Name("b"), False),
        (True, 1.0, True),
        (False, None, False),
        (False, -0.0, True),
        (0, "", False),
        ([], None, False),
        ({10**400, 0.1 + 0.2}, {0.3, 10**400}, True),
        ({10**400: 0, 0.1 + 0.2: 1}, {0.3: 1, 10**400: 0}, True),
        ({decimal.Decimal("1E+400"), 1}, {math.inf, 1}, False),
    ],
)
def test_numbers_are_equal_only_if_one_is_near_the_other(a: Any, b: Any, equal: bool) -> None:
    """A number that no float is near equals no float: neither infinity, nor zero, nor the nearest subnormal."""
    test_pairs(a, b, equal)


def test_generators_are_compared_by_what_they_yield() -> None:
    assert same(canonical(x for x in (1, 2)), canonical(map(int, "12")))


def test_the_published_equality_is_exact_and_nan_is_unequal() -> None:
    assert not same_as_published(canonical(NAN), canonical(NAN))
    assert not same_as_published(canonical(0.1 + 0.2), canonical(0.3))
    assert not same_as_published(canonical(Box(1)), canonical(Box(1)))
    assert same_as_published(canonical([1, (2.0,)]), canonical([True, (2,)]))


def test_lying_methods_are_not_called() -> None:
    class Liar(list):  # type: ignore[type-arg]
        def __iter__(self) -> Any:
            return iter([1, 2, 3])

        def __len__(self) -> int:
            return 3

        def __eq__(self, other: object) -> bool:
            return True

    assert same(canonical([7]), canonical(Liar([7])))
    assert not same(canonical([1, 2, 3]), canonical(Liar([7])))


@given(st.recursive(st.none() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)))
def test_malformed_values_never_raise_and_equal_nothing_plain(junk: Any) -> None:
    for value in (canonical({1, 2}), canonical((1,)), canonical({1: 2}), canonical(Box(1)), canonical(1j)):
        assert not same(value, junk)


def test_the_search_for_partners_is_bounded_by_the_reference() -> None:
    many = {"set": list(range(50_000))}
    assert not same(canonical({1, 2}), many)


def test_functions_and_coroutines_of_a_program_equal_nothing() -> None:
    assert canonical(lambda: 1) == {"opaque": None}
    assert same(canonical(len), canonical(len))
    assert not same(canonical([lambda: 1]), canonical([lambda: 1]))


def test_iterators_are_bounded() -> None:
    assert canonical(itertools.count()) == {"toolarge": None}
    assert same(canonical(itertools.chain([1], [2])), canonical(iter([1, 2])))


def test_slots_are_part_of_an_object() -> None:
    class Slotted:
        __slots__ = ("x",)

        def __init__(self, x: int) -> None:
            self.x = x

    assert same(canonical(Slotted(1)), canonical(Slotted(1)))
    assert not same(canonical(Slotted(1)), canonical(Slotted(2)))


ARRAYS: list[tuple[Callable[[Any], Any], Callable[[Any], Any], bool]] = [
    (lambda np: np.array([1, 2]), lambda np: np.array([1.0, 2.0]), True),
    (lambda np: np.array([1, 2]), lambda np: np.array([[1, 2]]), False),
    (lambda np: np.zeros((0, 3)), lambda np: np.zeros((3, 0)), False),
    (lambda np: np.array([1, 2]), lambda np: [1, 2], False),
    (lambda np: np.array([0.1 + 0.2, np.nan]), lambda np: np.array([0.3, np.nan]), True),
    (lambda np: np.array(["a", None], dtype=object), lambda np: np.array(["a", None], dtype=object), True),
    (lambda np: np.array(5), lambda np: 5, True),
    (lambda np: np.int64(5), lambda np: 5, True),
    (lambda np: np.uint8(255), lambda np: 255.0, True),
    (lambda np: np.float32(0.5), lambda np: 0.5, True),
    (lambda np: np.float64("nan"), lambda np: math.nan, True),
    (lambda np: np.longdouble(0.5), lambda np: 0.5, True),
    (lambda np: np.complex64(1j), lambda np: 1j, True),
    (lambda np: np.bool_(True), lambda np: True, True),
    (lambda np: np.str_("a"), lambda np: "a", True),
    (lambda np: np.datetime64("2024-01-01"), lambda np: np.datetime64("2024-01-01"), True),
    (lambda np: np.datetime64("2024-01-01"), lambda np: np.datetime64("2024-01-02"), False),
    (lambda np: [np.int64(1), (np.float64(2),)], lambda np: [1, (2.0,)], True),
]


@pytest.mark.parametrize(("a", "b", "equal"), ARRAYS)
def test_numpy(a: Callable[[Any], Any], b: Callable[[Any], Any], equal: bool) -> None:
    numpy = pytest.importorskip("numpy")
    assert same(canonical(a(numpy)), canonical(b(numpy))) is equal


def test_a_number_beyond_the_range_of_floats_keeps_its_value() -> None:
    numpy = pytest.importorskip("numpy")
    if numpy.isinf(numpy.longdouble("1e400")):
        pytest.skip("numpy's longdouble is a double on this machine")
    for text, rounded in (("1e400", math.inf), ("-1e400", -math.inf), ("1e-400", 0.0)):
        value = canonical(numpy.longdouble(text))
        assert same(value, canonical(numpy.longdouble(text)))
        assert not same(value, canonical(rounded))
        assert not same(canonical(numpy.longdouble(text) * numpy.clongdouble(1)), canonical(complex(rounded)))
        assert not same(canonical(numpy.array(numpy.longdouble(text))), canonical(rounded))
        assert not same(canonical(numpy.array([numpy.longdouble(text)])), canonical(numpy.array([rounded])))


def test_equal_arrays_have_no_truth_value_in_the_published_evaluator() -> None:
    numpy = pytest.importorskip("numpy")
    assert not same_as_published(canonical(numpy.array([1, 2])), canonical(numpy.array([1, 2])))
    assert same_as_published(canonical(numpy.array([1])), canonical(numpy.array([1])))
    assert canonical(numpy.zeros(10**6)) == {"toolarge": None}


def reversed_floats(count: int) -> tuple[Any, Any]:
    return {number: number for number in range(count)}, {float(n): float(n) for n in reversed(range(count))}


def nearly(count: int) -> tuple[Any, Any]:
    """Sets whose members differ by rounding, and stand in another order."""
    return {n / 7 for n in range(count)}, {n / 7 * (1 + 1e-15) for n in range(count)}


@pytest.mark.parametrize("made", [reversed_floats, nearly])
def test_large_dicts_and_sets_in_another_order_are_equal(made: Callable[[int], tuple[Any, Any]]) -> None:
    a, b = made(12_000)
    assert same(canonical(a), canonical(b))
    assert same([canonical(a)], [canonical(b)])


def nested(depth: int, leaf: Any) -> Any:
    return {"dict": [[1, nested(depth - 1, leaf)]]} if depth else leaf


BIG = {"int": "f" * 200_000}
HOSTILE: dict[str, tuple[Any, Any]] = {
    "equal hashes": tuple({"set": [n * (2**61 - 1) + end for n in range(9000)]} for end in (0, 1)),  # type: ignore[dict-item]
    "all near": ({"set": [1.0] * 9000}, {"set": [1 + 1e-6] * 9000}),
    "near but one": ({"set": [[1.0, n] for n in range(9000)]}, {"set": [[1.0, n + 0.5] for n in range(9000)]}),
    "nested": (nested(60, 1), nested(60, 2)),
    "nested around much": (nested(40, [1, *range(30_000)]), nested(40, [2, *range(30_000)])),
    "decimal and integer": ({"decimal": "1.5"}, BIG),
    "decimals and integers": ([{"decimal": "1.5"}] * 9, [BIG] * 9),
    "decimal of that size": ({"decimal": "1E+240823"}, BIG),
    "decimal and fraction": ({"decimal": "1.5"}, {"fraction": ["f" * 100_000, "e" * 100_000]}),
    "fractions": ({"fraction": ["3", "2"]}, {"fraction": ["f" * 100_000, "e" * 100_000]}),
    "float and fraction": (1.5, {"fraction": ["f" * 100_000, "e" * 100_000]}),
    "exponent": ({"decimal": "1E+999999999"}, {"fraction": ["1", "3"]}),
    "set of exponents": ({"set": [{"decimal": "1E+999999999"}, 1]}, {"set": [1, {"decimal": "2E+999999999"}]}),
    "shape": ({"array": [[1], [1]]}, {"array": [[10**9, [0]], [1]]}),
    "shapes": ({"array": [[10**9, [0]], [1]]}, {"array": [[10**9, [0]], [1]]}),
    "deep": (1, json.loads("[" * 900 + "]" * 900)),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_comparing_hostile_values_takes_bounded_work(name: str) -> None:
    a, b = HOSTILE[name]
    began = time.process_time()
    assert not same(a, b)
    assert not same_as_published(b, a)
    assert time.process_time() - began < 30, "the quadratic way takes minutes"


def test_the_work_of_a_comparison_is_linear_for_values_in_another_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part is compared, written and sorted a few times."""
    for made in (reversed_floats, nearly):
        for count in (100, 3000):
            a, b = map(canonical, made(count))
            monkeypatch.setattr(values, "_MOST_WORK", 20 * count)
            assert same(a, b)
            monkeypatch.setattr(values, "_MOST_WORK", count // 2)
            assert not same(a, b)


@pytest.mark.parametrize(
    "beside", [10**400, -(10**400), fractions.Fraction(10**400, 3), fractions.Fraction(10**30_000, 7)]
)
def test_pairs_are_found_beside_numbers_beyond_the_range_of_floats(beside: Any) -> None:
    a, b = {0.3: [beside], 1: beside, 2.5: {beside}}, {2.5: {beside}, 0.1 + 0.2: [beside], 1: beside}
    assert same(canonical(a), canonical(b))
    assert not same(canonical(a), canonical({**b, 1: beside + 1}))
    assert not same(canonical([beside]), canonical([math.inf]))


def test_long_integers_and_fractions_equal_themselves() -> None:
    long = fractions.Fraction(3**30_000, 2**50_000)
    assert same(canonical(long), canonical(long))
    assert not same(canonical(long), canonical(long + 1))
    assert same(canonical(2**100_000), canonical(2**100_000))
    harmonic = sum(fractions.Fraction(1, n) for n in range(1, 1000))
    assert same(canonical(float(harmonic)), canonical(harmonic))
    assert same(canonical(10**4000), canonical(decimal.Decimal(10**4000)))
