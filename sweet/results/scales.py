"""Map numbers to positions and to labels of charts."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

STEPS = (1.0, 2.0, 5.0, 10.0)
EQUAL = 1e-9
"""Values whose relative difference is smaller are drawn as equal."""
ZERO = 1e-12
"""Smaller values are drawn as zero."""


@dataclass(frozen=True)
class Scale:
    """The linear map from the values `low` to `high` to the positions `start` to `end`, in the drawing's units."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def ticks(low: float, high: float, about: int = 4) -> list[float]:
    """Return the labels of an axis: at least two round numbers, 1, 2 or 5 times a power of ten apart.

    They reach from the last one at or below `low` to the first one at or above `high`.
    """
    largest = max(abs(low), abs(high))
    if high - low <= max(EQUAL * largest, ZERO):
        reach = largest * 0.1 if largest > ZERO else 0.5
        low, high = low - reach, high + reach
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in STEPS if factor * power >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, max(last, first + 1) + 1)]


def labels(values: Iterable[float]) -> list[str]:
    """Format the values of an axis with as many digits as they need to differ."""
    listed = list(values)
    largest = max(map(abs, listed), default=0.0)
    step = min((b - a for a, b in pairwise(listed)), default=1.0)
    if largest and not 1e-3 <= largest < 1e7:
        return [_scientific(value, _magnitude(largest) - _magnitude(step)) for value in listed]
    digits = max(0, -_magnitude(step))
    return [minus(f"{value:,.{digits}f}") for value in listed]


def _magnitude(value: float) -> int:
    """Return the power of ten of the first digit."""
    return math.floor(math.log10(value) + 1e-9)


def _scientific(value: float, digits: int) -> str:
    mantissa, _, exponent = f"{value:.{max(digits, 0)}e}".partition("e")
    if "." in mantissa:
        mantissa = mantissa.rstrip("0").rstrip(".")
    return minus(f"{mantissa}e{int(exponent)}") if value else "0"


def short(value: float) -> str:
    """Format a number in a few characters: 1,234 · 0.422 · 1.5e-5."""
    if value == int(value) and abs(value) < 1e7:
        return minus(f"{value:,.0f}")
    if 1e-3 <= abs(value) < 1e7:
        return minus(f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}")
    return _scientific(value, 2)


def minus(shown: str) -> str:
    """Use a typographic minus sign, which is as wide as a plus; negative zero becomes zero."""
    return shown.lstrip("-") if not shown.strip("-0.,") else shown.replace("-", "−")
