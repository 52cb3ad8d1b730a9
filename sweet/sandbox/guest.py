"""What runs inside a forked child: execute a program, report the values of its calls. Standard library only.

Values are reported in canonical typed JSON, which `sweet.sandbox.values` compares outside. Nothing here is trusted by
anybody: the program shares this interpreter and may patch all of it, so it can misreport its own values and no more.

JSON as it stands: None, bools, ints below 2**63, finite floats, strings, lists. All else is an object with one key:
int (hex), float (nan, inf, -inf), complex, decimal, fraction, bytes, tuple, set, dict, deque, range, iterator,
datetime, date, time, timedelta, enum, dataclass, exception, callable, object; `toolarge` and `opaque` equal nothing.
"""

from __future__ import annotations

import builtins
import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import json
import math
import os
import random
import re
import sys
import types
from typing import Any

MAX_DEPTH = 60
MAX_NODES = 50_000
MODULE = "answer"
FILENAME = "<answer>"

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_ITERATORS = (types.GeneratorType, map, filter, zip, enumerate, reversed)


class TooLargeError(Exception):
    """The value does not fit the bounds."""


class _Encoder:
    """Turns one value into canonical JSON types, within bounds on depth, number of nodes and bytes."""

    def __init__(self, max_bytes: int) -> None:
        self.nodes = MAX_NODES
        self.room = max_bytes

    def encode(self, value: Any, depth: int = 0) -> Any:
        self.nodes -= 1
        if self.nodes < 0 or depth > MAX_DEPTH:
            raise TooLargeError
        if value is None or value is True or value is False:
            return value
        if isinstance(value, enum.Enum) and not isinstance(value, (int, float, str, bytes, tuple)):
            return {"enum": [type(value).__name__, value.name]}
        scalar = self._scalar(value)
        if scalar is not None:
            return scalar
        return self._container(value, depth + 1)

    def _take(self, size: int) -> None:
        self.room -= size
        if self.room < 0:
            raise TooLargeError

    def _scalar(self, value: Any) -> Any:
        if isinstance(value, int):
            plain = int.__index__(value)
            self._take(plain.bit_length() // 4)
            return plain if -(2**63) <= plain < 2**63 else {"int": format(plain, "x")}
        if isinstance(value, float):
            return self._float(float.__add__(value, 0.0) if value != 0 else math.copysign(0.0, value))
        if isinstance(value, str):
            self._take(str.__len__(value))
            return str.__str__(value)
        if isinstance(value, complex):
            return {"complex": [self._float(value.real), self._float(value.imag)]}
        if isinstance(value, (bytes, bytearray)):
            self._take(2 * len(value))
            return {"bytes": bytes(value).hex()}
        if isinstance(value, decimal.Decimal):
            return {"decimal": decimal.Decimal.__str__(value)}
        if isinstance(value, fractions.Fraction):
            self._take((value.numerator.bit_length() + value.denominator.bit_length()) // 4)
            return {"fraction": [format(value.numerator, "x"), format(value.denominator, "x")]}
        return self._moment(value)

    @staticmethod
    def _float(value: float) -> Any:
        return value if math.isfinite(value) else {"float": repr(value)}

    @staticmethod
    def _moment(value: Any) -> Any:
        if isinstance(value, datetime.datetime):
            if value.utcoffset() is None:
                return {"datetime": value.isoformat()}
            return {"datetime": value.astimezone(datetime.UTC).isoformat()}
        if isinstance(value, datetime.date):
            return {"date": value.isoformat()}
        if isinstance(value, datetime.time):
            return {"time": value.isoformat()}
        if isinstance(value, datetime.timedelta):
            return {"timedelta": [value.days, value.seconds, value.microseconds]}
        return None

    def _container(self, value: Any, depth: int) -> Any:
        if isinstance(value, list):
            return self._items(list.__iter__(value), depth)
        if isinstance(value, tuple):
            return {"tuple": self._items(tuple.__iter__(value), depth)}
        if isinstance(value, set):
            return {"set": self._items(set.__iter__(value), depth)}
        if isinstance(value, frozenset):
            return {"set": self._items(frozenset.__iter__(value), depth)}
        if isinstance(value, dict):
            return {"dict": self._pairs(dict.items(value), depth)}
        if isinstance(value, (type({}.keys()), type({}.items()))):
            return {"set": self._items(iter(value), depth)}
        if isinstance(value, collections.deque):
            return {"deque": self._items(collections.deque.__iter__(value), depth)}
        if isinstance(value, range):
            return {"range": [value.start if value else 0, value.step if len(value) > 1 else 1, len(value)]}
        if isinstance(value, (type({}.values()), *_ITERATORS)):
            return {"iterator": self._items(iter(value), depth)}
        return self._object(value, depth)

    def _items(self, items: Any, depth: int) -> list[Any]:
        return [self.encode(item, depth) for item in items]

    def _pairs(self, items: Any, depth: int) -> list[Any]:
        return [[self.encode(key, depth), self.encode(item, depth)] for key, item in items]

    def _object(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType)):
            return {"callable": value.__qualname__}
        if isinstance(value, BaseException):
            return {"exception": [kind.__name__, self._items(iter(value.args), depth)]}
        if dataclasses.is_dataclass(kind):
            names = [field.name for field in dataclasses.fields(kind) if field.compare]
            return {"dataclass": [kind.__name__, self._pairs([(n, getattr(value, n)) for n in names], depth)]}
        text = _ADDRESS.sub("", repr(value))
        self._take(len(text))
        fields = getattr(value, "__dict__", None)
        shown = self._pairs(dict.items(fields), depth) if isinstance(fields, dict) else None
        return {"object": [kind.__name__, text, shown]}


def encode(value: Any, max_bytes: int) -> str:
    """The value as one line of canonical JSON, at most `max_bytes` long."""
    try:
        text = json.dumps(_Encoder(max_bytes).encode(value), separators=(",", ":"), allow_nan=False)
    except (TooLargeError, RecursionError, MemoryError):
        return '{"toolarge":null}'
    except Exception:
        return '{"opaque":null}'
    return text if len(text) <= max_bytes else '{"toolarge":null}'


class _Program:
    """A program's source, compiled once and executed afresh for every call."""

    def __init__(self, source: str, scoped: bool) -> None:
        self.scoped = scoped
        self.code = compile(source, FILENAME, "exec", dont_inherit=True)

    def value(self, call: str) -> Any:
        random.seed(0)
        if self.scoped:
            seen: dict[str, Any] = {"__name__": MODULE, "__builtins__": builtins}
            names: dict[str, Any] = {}
        else:
            module = types.ModuleType(MODULE)
            sys.modules[MODULE] = module
            seen = names = module.__dict__
        exec(self.code, seen, names)
        return eval(compile(call.strip(), "<call>", "eval", dont_inherit=True), seen, names)


def _raised(error: BaseException) -> str:
    line = None
    trace = error.__traceback__
    while trace is not None:
        line = trace.tb_lineno if trace.tb_frame.f_code.co_filename == FILENAME else None
        trace = trace.tb_next
    try:
        message = str(error)[:300]
    except BaseException:
        message = ""
    return json.dumps({"type": type(error).__name__[:100], "message": message, "line": line})


def run(order: dict[str, Any], report: int) -> None:
    """Evaluate the calls of `order`, one record each to the file descriptor `report`."""
    nonce, max_bytes = order["nonce"], order["value_bytes"]

    def tell(index: int, kind: str, text: str) -> None:
        data = f"{nonce} {index} {kind} {len(text)}\n{text}".encode("ascii", "backslashreplace")
        while data:
            data = data[os.write(report, data) :]

    tell(-1, "begun", "")
    program: _Program | None = None
    for index, call in enumerate(order["calls"]):
        try:
            program = program or _Program(order["source"], order["scoped"])
            kind, text = "value", encode(program.value(call), max_bytes)
        except BaseException as error:
            kind, text = "raised", _raised(error)
        tell(index, kind, text)
