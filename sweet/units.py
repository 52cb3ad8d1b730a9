"""Quantities as text, the same on every screen, page and in every message: shares in per cent, durations and bytes in
the unit that suits them, numbers of things with their noun, and the names of metrics.

The keys of JSON stay as they are; only what people read passes through here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SHARES = {
    *("success_rate", "tests_passed", "upstream_success_rate", "upstream_tests_passed", "win_rate", "cosine"),
    *("block_match", "text", "position", "color", "accuracy", "heldout_accuracy", "agreement", "share", "padding"),
    *("mfu", "mfu_computed", "answered", "before", "after"),
}
"""Metrics that are shares also where they are shown without an interval."""

ABBREVIATIONS = {"flops": "FLOPs", "mfu": "MFU", "zero": "ZeRO"}
SPOKEN = {"episodes": "dialogues", "trajectories": "dialogues", "seconds": "time", **ABBREVIATIONS}
"""Words for the names of metrics that are called otherwise on screen."""

format_moment = "{:%Y-%m-%d %H:%M %Z}".format
"""Return a moment to the minute, with its time zone: `2026-11-30 22:29 UTC`."""


def count(number: int, noun: str) -> str:
    """Return a number of things: `1 dialogue`, `1,200 dialogues`, `2 retries`, `3 tasks with pairs`."""
    first, space, rest = noun.partition(" with ")
    if number == 1:
        several = first
    elif first.endswith("y") and first[-2:-1] not in "aeiou":
        several = f"{first[:-1]}ies"
    else:
        several = f"{first}es" if first.endswith(("s", "x", "ch", "sh")) else f"{first}s"
    return f"{number:,} {several}{space}{rest}"


def percent(share: float, *, signed: bool = False) -> str:
    """Return a share of 1 as `6.4 %`; with `signed` a difference of shares as `+6.4 pp`, in percentage points."""
    return f"{_hundredths(share, signed=signed)} {'pp' if signed else '%'}"


def percent_bounds(low: float | None, high: float | None, *, signed: bool = False) -> str:
    """Return the interval of a share as `[4.5, 8.6]`, in per cent; empty without bounds."""
    if low is None or high is None:
        return ""
    return f"[{_hundredths(low, signed=signed)}, {_hundredths(high, signed=signed)}]"


def _hundredths(share: float, *, signed: bool) -> str:
    shown = round(100 * share, 1) + 0.0  # never "-0.0"
    return f"{shown:{'+' if signed else ''}.1f}"


def is_share(*values: float | None) -> bool:
    """Return whether all values can be shares or differences of shares: a kind of task may have a metric beyond 1."""
    return all(value is None or abs(value) <= 1 for value in values)


def rate(value: float, low: float | None = None, high: float | None = None, *, signed: bool = False) -> str:
    """Return a mean with its interval: `6.4 % [4.5, 8.6]`, or `5.2 [4.9, 5.5]` if it is beyond 1."""
    return f"{rate_value(value, low, high, signed=signed)} {rate_bounds(value, low, high, signed=signed)}".rstrip()


def rate_value(value: float, *others: float | None, signed: bool = False) -> str:
    """Return a mean without its interval.

    Args:
        others: the values that are shown with it, such as its interval; all are in per cent, or none is.
    """
    return percent(value, signed=signed) if is_share(value, *others) else _plain(value, signed=signed)


def rate_bounds(
    value: float, low: float | None, high: float | None, *others: float | None, signed: bool = False
) -> str:
    """Return the interval of a mean in the unit of `rate_value`; empty without bounds."""
    if low is None or high is None:
        return ""
    if is_share(value, low, high, *others):
        return percent_bounds(low, high, signed=signed)
    return f"[{_plain(low, signed=signed)}, {_plain(high, signed=signed)}]"


def _plain(value: float, *, signed: bool) -> str:
    return f"{value:{'+' if signed else ''}.3f}"


def plain_bounds(low: float | None, high: float | None, form: str = "+.3f") -> str:
    """Return the interval of what is no share, such as an advantage: `[-0.013, +0.036]`; empty without bounds."""
    return "" if low is None or high is None else f"[{low:{form}}, {high:{form}}]"


def format_bytes(number: float) -> str:
    """Return a number of bytes with three digits or so: `436 MB`, `1.2 GB`."""
    if number < 1000:
        return f"{number:.0f} B"
    power = next((power for power in (1, 2) if number < 999.5 * 1000**power), 3)
    shown = number / 1000**power
    return f"{shown:,.0f} {'kMG'[power - 1]}B" if shown >= 99.95 else f"{shown:,.1f} {'kMG'[power - 1]}B"


def format_duration(seconds: float) -> str:
    """Return a duration in the unit that suits it: `0.26 s`, `4.1 s`, `45 s`, `3.5 min`, `1.2 h`."""
    if seconds < 0.95:
        return f"{seconds:.2g} s" if seconds >= 0.001 else "0 s"
    if seconds < 59.5:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 3570 else f"{seconds / 3600:,.1f} h"


def format_rate(per_second: float) -> str:
    """Return how often something happens: `3.1/s`, `2.4/min`."""
    if per_second >= 0.1:
        return f"{per_second:,.1f}/s"
    return f"{per_second * 60:.1f}/min" if per_second * 60 >= 0.1 else f"{per_second * 3600:.2g}/h"


def format_value(value: Any) -> str:
    """Return any value of a metric or a setting."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return str(value)


def price(cost: float) -> str:
    """Return an amount of money of any currency: `12.40`, `0.00312`."""
    return f"{cost:,.2f}" if cost >= 1 or not cost else f"{cost:.3g}"


def metric_name(name: str) -> str:
    """Return the name of a metric as words: `success rate`, `dialogues` for `episodes`."""
    return SPOKEN.get(name, name.replace("_", " "))


def format_metric(name: str, value: Any, metrics: Mapping[str, Any] | None = None) -> str:
    """Return the value of a metric in its unit, with its interval if it has one.

    Args:
        metrics: the metrics that it is one of, which hold its interval as NAME_ci_low and NAME_ci_high.
    """
    low, high = ((metrics or {}).get(f"{name}_ci_{end}") for end in ("low", "high"))
    if isinstance(value, bool) or not isinstance(value, int | float):
        return format_value(value)
    if name == "seconds":
        return format_duration(value)
    share = low is not None or (name in SHARES and isinstance(value, float))
    return rate(value, low, high) if share else format_value(value)
