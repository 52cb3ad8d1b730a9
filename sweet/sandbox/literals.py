"""Format values from the sandbox as Python literals: `(1, 'a')` for `{"tuple": [1, "a"]}`.

The text is for display only: different values may have the same text, and a text that was cut is not a literal. A
hostile program may have written anything instead of a value, of any size: only the part that is shown is formatted.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Iterator
from typing import Any

_BRACKETS = {"tuple": ("(", ")"), "set": ("{", "}"), "deque": ("deque([", "])"), "iterator": ("iterator([", "])")}
_UNREPORTED = {"toolarge": "<too large to report>", "opaque": "<a value that cannot be distinguished from others>"}
_LONGEST_INT = 300
"""Maximum hexadecimal digits of an integer that is formatted as decimal."""


def format_value(value: Any, limit: int) -> str:
    """Format a canonical value (sweet.sandbox.child) as Python, cut to `limit` characters with … as the last."""
    try:
        text = repr(value) if type(value) is int else _joined(_parts(value, limit), limit)
    except (TypeError, ValueError, KeyError, IndexError, AttributeError, RecursionError):
        return "<malformed>"
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _joined(parts: Iterator[str], limit: int) -> str:
    """Return the parts as one text, up to the one that makes it longer than `limit`."""
    joined: list[str] = []
    length = 0
    for part in parts:
        joined.append(part)
        length += len(part)
        if length > limit:
            break
    return "".join(joined)


def _parts(value: Any, limit: int) -> Iterator[str]:
    if isinstance(value, str):
        yield repr(value[:limit])
    elif isinstance(value, list):
        yield from _row("[", value, "]", limit)
    elif isinstance(value, dict):
        ((kind, inner),) = value.items()
        yield from _tagged(kind, inner, limit)
    else:
        yield repr(value)


def _row(before: str, items: list[Any], after: str, limit: int) -> Iterator[str]:
    yield before
    for number, item in enumerate(items):
        yield ", " if number else ""
        yield from _parts(item, limit)
    yield after


def _pairs(before: str, pairs: list[Any], between: str, after: str, limit: int, *, names: bool) -> Iterator[str]:
    yield before
    for number, (key, item) in enumerate(pairs):
        yield ", " if number else ""
        yield from [key[:limit]] if names else _parts(key, limit)
        yield between
        yield from _parts(item, limit)
    yield after


def _tagged(kind: str, inner: Any, limit: int) -> Iterator[str]:
    if kind in _UNREPORTED:
        yield _UNREPORTED[kind]
    elif kind in _BRACKETS:
        before, after = _BRACKETS[kind]
        if kind == "set" and not inner:
            yield "set()"
        else:
            yield from _row(before, inner, ",)" if kind == "tuple" and len(inner) == 1 else after, limit)
    elif kind == "dict":
        yield from _pairs("{", inner, ": ", "}", limit, names=False)
    elif kind == "dataclass":
        yield from _pairs(f"{inner[0][:limit]}(", inner[1], "=", ")", limit, names=True)
    elif kind == "object" and inner[2] and str(inner[1]).endswith(" object>"):  # it has no form of its own
        yield from _pairs(f"{inner[0][:limit]}(", inner[2], "=", ")", limit, names=True)
    elif kind == "exception":
        yield from _row(f"{inner[0][:limit]}(", inner[1], ")", limit)
    elif kind == "array":
        yield from _row("array(", [inner[1]], ")", limit)
    else:
        yield _scalar(kind, inner, limit)


def _scalar(kind: str, inner: Any, limit: int) -> str:
    if kind == "int":
        return str(int(inner, 16)) if len(inner) <= _LONGEST_INT else f"0x{inner[:limit]}"
    if kind == "fraction":
        over, under = (_scalar("int", part, limit) for part in inner)
        return f"Fraction({over}, {under})"
    if kind == "complex":
        real, imaginary = (part["float"] if isinstance(part, dict) else repr(part) for part in inner)
        return f"complex({real}, {imaginary})"
    if kind == "bytes":
        return repr(bytes.fromhex(inner[: 2 * limit]))
    if kind == "range":
        start, step, count = map(operator.index, inner)
        return f"range({start}, {start + step * count}, {step})"
    if kind == "enum":
        return f"{inner[0]}.{inner[1]}"
    if kind == "object":
        return str(inner[1])
    if kind in ("float", "callable"):
        return str(inner)
    if kind == "decimal":
        return f"Decimal({inner!r})"
    return f"{kind}({str(inner) if isinstance(inner, str) else json.dumps(inner)[1:-1]})"
