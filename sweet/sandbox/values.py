"""Equality of values from the sandbox, in the canonical JSON that `sweet.sandbox.child` writes.

`same` follows Python's `==` on plain values (1 == 1.0 == True, (1,) != [1], dicts and sets in any order), except that
NaN equals NaN and floats agree within a relative tolerance, or an absolute one where a difference cancels to nearly 0;
a number beyond the range of floats equals no float.
Objects of classes that an answer defines are compared by type name and fields. `same_as_published` is the published
evaluator's `==`, in which such objects are never equal. A hostile program may have written anything instead of a value:
a malformed value equals nothing, and the work is linear in the values. Entries of sets and dicts are paired by an exact
text of each; those left over are sorted, so that numbers within the tolerance meet; the search for the rest is bounded,
and so is the length of integers that are compared with decimals.
"""

from __future__ import annotations

import cmath
import json
import math
import sys
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

RELATIVE_TOLERANCE = 1e-9
ABSOLUTE_TOLERANCE = 1e-12
"""Sums of the same amounts in another order differ by about 1e-16 of the largest amount, also if they are nearly 0."""

_BY_TEXT = {"bytes", "datetime", "date", "time", "timedelta", "moment64", "range", "callable", "enum"}
_EXACT = {int, str, bool, type(None)}
"""Types of values that equal another of the same type only exactly."""
_SEQUENCES = {"tuple", "deque", "iterator"}
_OWN = {"enum", "callable", "iterator", "exception", "dataclass", "object"}
"""Values that are compared by identity, or by a class that each execution defines separately."""

_MOST_WORK = 500_000
"""Maximum number of parts that are compared, written or sorted for two values; values that need more are unequal. An
honest value has at most 50,000 parts."""
_MOST_BITS = 2**16
"""An integer or a fraction with more bits equals no decimal: the conversion takes quadratic time."""

_MALFORMED = (TypeError, ValueError, KeyError, IndexError, AttributeError, ArithmeticError, RecursionError)


def same(expected: Any, got: Any, tolerance: float = RELATIVE_TOLERANCE) -> bool:
    """Return whether two canonical values are equal; `tolerance` is relative, and 0 requires equal floats (with -0.0
    == 0.0); with another one a difference of `ABSOLUTE_TOLERANCE` is none."""
    if type(expected) is type(got) and type(expected) in _EXACT:  # most values
        return bool(expected == got)
    try:
        return _Comparison(tolerance, published=False).same(expected, got)
    except _MALFORMED:
        return False


def same_as_published(expected: Any, got: Any) -> bool:
    """Return whether the published evaluator considers the values equal: exact `==`, NaN and own classes unequal."""
    try:
        return _Comparison(0.0, published=True).same(expected, got)
    except _MALFORMED:
        return False


class _Comparison:
    def __init__(self, tolerance: float, published: bool) -> None:
        self.tolerance, self.published = tolerance, published
        self.left = _MOST_WORK
        self.unequal: set[tuple[int, int]] = set()

    def _spend(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise ValueError("too much work")

    def same(self, a: Any, b: Any) -> bool:
        self._spend()
        if a is None or b is None or isinstance(a, str) or isinstance(b, str):
            return type(a) is type(b) and bool(a == b)
        if _is_long_fraction(a) and _is_long_fraction(b):
            return bool(a == b)
        x, y = _number(a), _number(b)
        if x is not None or y is not None:
            return x is not None and y is not None and self._numbers(x, y)
        if isinstance(a, list) or isinstance(b, list):
            return isinstance(a, list) and isinstance(b, list) and self._items(a, b)
        pair = (id(a), id(b))  # entries of nested sets and dicts meet again and again
        if pair in self.unequal:
            return False
        ((kind, inner_a),) = a.items()
        ((kind_b, inner_b),) = b.items()
        equal = kind == kind_b and self._tagged(kind, inner_a, inner_b)
        if not equal:
            self.unequal.add(pair)
        return equal

    def _tagged(self, kind: str, a: Any, b: Any) -> bool:
        if self.published and kind in _OWN:
            return False
        if kind in _BY_TEXT:
            return json.dumps(a) == json.dumps(b)
        if kind in _SEQUENCES:
            return self._items(a, b)
        if kind == "array":
            return self._arrays(a, b)
        if kind == "set":
            return self._matched(a, b, self.same)
        if kind == "dict":
            return self._matched(a, b, self._items)
        if kind in ("dataclass", "exception"):
            return a[0] == b[0] and self._items(a[1], b[1])
        if kind == "object":
            return self._objects(a, b)
        return False

    def _arrays(self, a: Any, b: Any) -> bool:
        """Compare shapes and elements. Published: the truth value of `==`, which exists only for one element."""
        (shape_a, items_a), (shape_b, items_b) = a, b
        if any(type(length) is not int for length in (*shape_a, *shape_b)):
            return False
        if self.published and any(length != 1 for length in shape_a):
            return False
        return bool(shape_a == shape_b) and self._items(items_a, items_b)

    def _objects(self, a: Any, b: Any) -> bool:
        name_a, text_a, fields_a = a
        name_b, text_b, fields_b = b
        if name_a != name_b:
            return False
        if fields_a is None or fields_b is None:
            return fields_a is fields_b and bool(text_a == text_b)
        return self._matched(fields_a, fields_b, self._items)

    def _items(self, a: Any, b: Any) -> bool:
        return isinstance(a, list) and isinstance(b, list) and len(a) == len(b) and all(map(self.same, a, b))

    def _matched(self, a: list[Any], b: list[Any], equal: Callable[[Any, Any], bool]) -> bool:
        """Return whether the entries can be paired."""
        if not (isinstance(a, list) and isinstance(b, list)) or len(a) != len(b):
            return False
        rest_a, rest_b = self._unpaired(a, b, equal)
        by_text: dict[str, list[Any]] = {}
        for y in rest_b:
            by_text.setdefault(self._exact_text(y), []).append(y)
        open_a = []
        for x in rest_a:
            candidates = by_text.get(self._exact_text(x))
            if candidates and equal(x, candidates[-1]):
                candidates.pop()
            else:
                open_a.append(x)
        open_b = [y for candidates in by_text.values() for y in candidates]
        open_a, open_b = self._unpaired(sorted(open_a, key=self._order), sorted(open_b, key=self._order), equal)
        for x in open_a:
            index = next((i for i, y in enumerate(open_b) if equal(x, y)), None)
            if index is None:
                return False
            del open_b[index]
        return True

    @staticmethod
    def _unpaired(a: list[Any], b: list[Any], equal: Callable[[Any, Any], bool]) -> tuple[list[Any], list[Any]]:
        """Return the entries without those that equal the one at the same index."""
        rest = [(x, y) for x, y in zip(a, b, strict=True) if not equal(x, y)]
        return [x for x, _ in rest], [y for _, y in rest]

    def _exact_text(self, value: Any) -> str:
        """Return a text that is the same for values that are exactly equal, but for long decimals and fractions.

        It is a text, and not the number, because a hostile program can choose many numbers that have the same hash.
        """
        self._spend()
        number = None if isinstance(value, str) else _number(value)
        if number is not None:
            return _exact_number(number)
        if isinstance(value, list):
            return f"[{','.join(map(self._exact_text, value))}]"
        if not isinstance(value, dict):
            return json.dumps(value)
        ((kind, inner),) = value.items()
        if kind in ("set", "dict") and isinstance(inner, list):
            return f"{kind}{{{','.join(sorted(map(self._exact_text, inner)))}}}"
        return f"{kind}{self._exact_text(inner)}"

    def _order(self, value: Any) -> Any:
        """Return a key by which values of the same form are sorted, and numbers by size."""
        self._spend()
        number = None if isinstance(value, str) else _number(value)
        if isinstance(number, complex):
            return (0, *(part if part == part else -math.inf for part in (number.real, number.imag)))
        if number is not None:
            try:
                size = 0.0 if _is_nan(number) else float(number)
            except OverflowError:
                size = math.inf if number > 0 else -math.inf
            return (0, size, 0.0)
        if isinstance(value, list):
            return (1, *map(self._order, value))
        if not isinstance(value, dict):
            return (2, json.dumps(value))
        ((kind, inner),) = value.items()
        if kind in ("set", "dict") and isinstance(inner, list):
            return (3, str(kind), *sorted(map(self._order, inner)))
        return (3, str(kind), self._order(inner))

    def _numbers(self, a: Any, b: Any) -> bool:
        if isinstance(a, complex) or isinstance(b, complex):
            return self._complex(a, b)
        if _is_nan(a) or _is_nan(b):
            return _is_nan(a) and _is_nan(b) and _is_signaling(a) == _is_signaling(b) and not self.published
        if not _is_too_long(a, b) and a == b:
            return True
        if not self.tolerance or not (isinstance(a, float) or isinstance(b, float)):
            return False
        x, y = _near(a), _near(b)
        return (
            x is not None and y is not None and math.isclose(x, y, rel_tol=self.tolerance, abs_tol=ABSOLUTE_TOLERANCE)
        )

    def _complex(self, a: Any, b: Any) -> bool:
        """Compare two numbers of which one is complex: as a whole, or part by part if a part is NaN."""
        (real_a, imag_a), (real_b, imag_b) = _parts(a), _parts(b)
        if any(map(_is_nan, (real_a, imag_a, real_b, imag_b))):
            return self._numbers(real_a, real_b) and self._numbers(imag_a, imag_b)
        if a == b:
            return True
        x, y = _near(real_a), _near(real_b)
        if not self.tolerance or x is None or y is None:
            return False
        return cmath.isclose(complex(x, imag_a), complex(y, imag_b), rel_tol=self.tolerance, abs_tol=ABSOLUTE_TOLERANCE)


def _number(value: Any) -> Any:
    """Return the Python number that a canonical value represents, or None."""
    if isinstance(value, bool | int | float):
        return value
    if not isinstance(value, dict):
        return None
    ((kind, inner),) = value.items()
    if kind == "int":
        return int(inner, 16)
    if kind == "float":
        return float(inner)
    if kind == "complex":
        return complex(_number(inner[0]), _number(inner[1]))
    if kind == "decimal":
        return Decimal(inner)
    if kind == "fraction":
        over, under = int(inner[0], 16), int(inner[1], 16)
        return _rounded(over, under) if _is_long_fraction(value) else Fraction(over, under)
    return None


def _is_long_fraction(value: Any) -> bool:
    """Return whether it is a fraction of so many digits that reducing it would take quadratic time."""
    if not isinstance(value, dict) or "fraction" not in value:
        return False
    return len(value["fraction"][0]) + len(value["fraction"][1]) > _MOST_BITS // 4


def _rounded(over: int, under: int) -> float | Fraction:
    """Return the float nearest to a long fraction; beyond the range of floats, a number that is beyond it too."""
    try:
        return over / under
    except OverflowError:
        beyond = Fraction(2 ** (sys.float_info.max_exp + 1) * 3 + 1, 3)
        return beyond if (over > 0) == (under > 0) else -beyond


def _is_too_long(a: Any, b: Any) -> bool:
    """Return whether a decimal is to be compared with a number of too many bits."""
    if not (isinstance(a, Decimal) or isinstance(b, Decimal)):
        return False
    exact = [number for number in (a, b) if isinstance(number, int | Fraction)]
    return any(max(number.numerator.bit_length(), number.denominator.bit_length()) > _MOST_BITS for number in exact)


def _exact_number(number: Any) -> str:
    if isinstance(number, complex):
        if number.imag != 0:
            return f"{_exact_number(number.real)}+{_exact_number(number.imag)}j"
        number = number.real
    if isinstance(number, Decimal | Fraction) and not _is_nan(number):
        try:
            nearest = float(number)
        except OverflowError:
            return str(type(number))
        number = nearest if nearest == number else type(number)
    if isinstance(number, float) and number.is_integer():
        number = int(number)
    return f"{number:x}" if isinstance(number, int) else str(number)


def _parts(number: Any) -> tuple[Any, Any]:
    """Return the real and the imaginary part; that of a real number is 0."""
    return (number.real, number.imag) if isinstance(number, complex) else (number, 0.0)


def _near(number: Any) -> float | None:
    """Return the float nearest to a real number; None if it differs from it by more than the precision of floats.

    A large `int`, `Decimal` or `Fraction` has no such float: it is rounded to infinity; a tiny one to zero or to a
    subnormal float.
    """
    if isinstance(number, float):
        return number
    try:
        nearest = float(number)
    except OverflowError:
        return None
    exact = nearest == number  # zero and infinity as well
    return nearest if exact or sys.float_info.min <= abs(nearest) <= sys.float_info.max else None


def _is_nan(value: Any) -> bool:
    if isinstance(value, Decimal):
        return value.is_nan()
    return isinstance(value, float) and math.isnan(value)


def _is_signaling(value: Any) -> bool:
    """Return whether it is a NaN that no program can compare, `Decimal("sNaN")`: it is no ordinary one."""
    return isinstance(value, Decimal) and value.is_snan()
