"""Equality of values from the sandbox, in the canonical JSON that `sweet.sandbox.child` writes.

`same` follows Python's `==` on plain values (1 == 1.0 == True, (1,) != [1], dicts and sets in any order), except that
NaN equals NaN and floats agree within a relative tolerance; a number beyond the range of floats equals no float.
Objects of classes that an answer defines are compared by type name and fields. `same_as_published` is the published
evaluator's `==`, in which such objects are never equal. A hostile program may have written anything instead of a value:
a malformed value equals nothing.
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

_BY_TEXT = {"bytes", "datetime", "date", "time", "timedelta", "moment64", "range", "callable", "enum"}
_SEQUENCES = {"tuple", "deque", "iterator"}
_OWN = {"enum", "callable", "iterator", "exception", "dataclass", "object"}
"""Values that are compared by identity, or by a class that each execution defines separately."""

_MALFORMED = (TypeError, ValueError, KeyError, IndexError, AttributeError, ArithmeticError, RecursionError)


def same(expected: Any, got: Any, tolerance: float = RELATIVE_TOLERANCE) -> bool:
    """Return whether two canonical values are equal; `tolerance` 0 requires equal floats (with -0.0 == 0.0)."""
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

    def same(self, a: Any, b: Any) -> bool:
        if a is None or b is None or isinstance(a, str) or isinstance(b, str):
            return type(a) is type(b) and bool(a == b)
        x, y = _number(a), _number(b)
        if x is not None or y is not None:
            return x is not None and y is not None and self._numbers(x, y)
        if isinstance(a, list) or isinstance(b, list):
            return isinstance(a, list) and isinstance(b, list) and self._items(a, b)
        ((kind, inner_a),) = a.items()
        ((kind_b, inner_b),) = b.items()
        return kind == kind_b and self._tagged(kind, inner_a, inner_b)

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
        if self.published and math.prod(shape_a) != 1:
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
        """Return whether the entries can be paired. Those at the same index are tried first, to avoid a search."""
        if not (isinstance(a, list) and isinstance(b, list)) or len(a) != len(b):
            return False
        rest_a, rest_b = [], []
        for x, y in zip(a, b, strict=True):
            if not equal(x, y):
                rest_a.append(x)
                rest_b.append(y)
        by_text: dict[str, list[Any]] = {}
        for y in rest_b:
            by_text.setdefault(json.dumps(y), []).append(y)
        open_a = []
        for x in rest_a:
            candidates = by_text.get(json.dumps(x))
            if candidates and equal(x, candidates[-1]):
                candidates.pop()
            else:
                open_a.append(x)
        open_b = [y for candidates in by_text.values() for y in candidates]
        for x in open_a:
            index = next((i for i, y in enumerate(open_b) if equal(x, y)), None)
            if index is None:
                return False
            del open_b[index]
        return True

    def _numbers(self, a: Any, b: Any) -> bool:
        if isinstance(a, complex) or isinstance(b, complex):
            return self._complex(a, b)
        if _is_nan(a) or _is_nan(b):
            return _is_nan(a) and _is_nan(b) and not self.published
        if a == b:
            return True
        if not self.tolerance or not (isinstance(a, float) or isinstance(b, float)):
            return False
        x, y = _near(a), _near(b)
        return x is not None and y is not None and math.isclose(x, y, rel_tol=self.tolerance)

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
        return cmath.isclose(complex(x, imag_a), complex(y, imag_b), rel_tol=self.tolerance)


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
        return Fraction(int(inner[0], 16), int(inner[1], 16))
    return None


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
