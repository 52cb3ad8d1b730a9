"""Compare a value with the type that an interface declares for it.

`declared(TaskKind, "load")` is `list[Task]`, and `mismatch(3, list[Task])` says "int instead of list[Task]". Containers
and the fields of dataclasses are compared part by part. The types may be classes, generic classes,
`X | None` and literals.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Mapping
from functools import cache
from math import isfinite
from types import NoneType, UnionType
from typing import Any, Literal, Self, Union, get_args, get_origin, get_type_hints


@cache
def declared(interface: type, name: str) -> Any:
    """Return the type of an attribute or of a method's result. It is Any for a method that returns nothing, or Self."""
    member = inspect.getattr_static(interface, name, None)
    function = member.fget if isinstance(member, property) else member
    if inspect.isfunction(function):
        hint = get_type_hints(function).get("return", Any)
    else:
        hint = get_type_hints(interface).get(name, Any)
    return Any if hint in (NoneType, Self) else hint


def mismatch(value: Any, hint: Any, at: str = "") -> str | None:
    """Say which part of a value is not of the type `hint`; None if every part is.

    Args:
        at: the path of the value, as in "datasets.tiny.train".
    """
    base, args = get_origin(hint) or hint, get_args(hint)
    if base is Any or (base in (Union, UnionType) and value is None):
        return None
    if base in (Union, UnionType):
        return mismatch(value, args[0], at)
    if base is type:
        fits = isinstance(value, type) and issubclass(value, args[0])
    elif base is Literal:
        fits = value in args
    elif base is float:
        fits = isinstance(value, int | float) and isfinite(value)
    else:
        fits = isinstance(value, (list, tuple) if base is list else base)
    if not fits:
        found = repr(value) if isinstance(value, float) or base is Literal else type(value).__name__
        expected = re.sub(r"(\w+\.)+", "", str(hint)) if args else base.__name__
        return f"{found} instead of {expected}" + (f" in {at}" if at else "")
    path = f"{at}." if at else ""
    problems = (mismatch(part, of, f"{path}{key}") for key, part, of in _parts(value, base, args))
    return next(filter(None, problems), None)


def _parts(value: Any, base: type, args: tuple[Any, ...]) -> list[tuple[object, Any, Any]]:
    """Return the name, the value and the declared type of each part."""
    if isinstance(value, Mapping):
        return [(key, part, args[1]) for key, part in value.items()]
    if isinstance(value, list | tuple | frozenset):
        return [(number, part, args[0]) for number, part in enumerate(value)]
    if dataclasses.is_dataclass(base):
        hints = get_type_hints(base)
        return [(field.name, getattr(value, field.name), hints[field.name]) for field in dataclasses.fields(base)]
    return []
