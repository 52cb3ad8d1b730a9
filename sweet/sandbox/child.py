"""The code that runs in a forked child: execute a program, report the values of its calls. Standard library only.

Values are reported in canonical typed JSON, which `sweet.sandbox.values` compares outside. Nothing here is trusted: the
program shares this interpreter and may patch all of it, so it can misreport its own values, but nothing else.

Plain JSON: None, bools, ints below 2**63, finite floats, strings, lists. Everything else is an object with one key: int
(hex), float (nan, inf, -inf), complex, decimal, fraction, bytes, tuple, set, dict, deque, range, iterator, array,
datetime, date, time, timedelta, moment64, enum, dataclass, exception, callable (builtin or class), object; `toolarge`
and `opaque` (functions that the program defines, coroutines) equal nothing.
"""

from __future__ import annotations

import builtins
import marshal
import os
import sys
import types
from _json import encode_basestring_ascii, make_encoder  # as `json` uses them, without the modules around them
from math import copysign, isfinite

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    StartCall = Callable[[bool], None]

MAX_DEPTH = 60
MAX_NODES = 50_000
MODULE = "answer"
FILENAME = "<answer>"
CALL_FILENAME = "<call>"

_BUILTINS = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)
_UNKNOWABLE = (types.FunctionType, types.MethodType, types.CoroutineType, types.AsyncGeneratorType)


def _class(module: str, name: str) -> Any:
    """Return a class for `isinstance`, or () if its module is not imported, so that there are no values of it."""
    return getattr(sys.modules.get(module), name, ())


class TooLargeError(Exception):
    """The value exceeds the limits."""


class OpaqueError(Exception):
    """The value cannot be distinguished from others."""


class _Encoder:
    """Converts one value to canonical JSON types, with limits on depth, number of nodes and bytes."""

    def __init__(self, max_bytes: int) -> None:
        self.nodes = MAX_NODES
        self.room = max_bytes

    def encode(self, value: Any, depth: int = 0) -> Any:
        self.nodes -= 1
        if self.nodes < 0 or depth > MAX_DEPTH:
            raise TooLargeError
        if value is None or value is True or value is False:
            return value
        if isinstance(value, _class("enum", "Enum")) and not isinstance(value, (int, float, str, bytes, tuple)):
            return {"enum": [type(value).__name__, value.name]}
        scalar = self._scalar(value)
        if scalar is not None:
            return scalar
        numpy = sys.modules.get("numpy")
        if numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
            return self._numpy(numpy, value, depth + 1)
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
            return self._float(float.__add__(value, 0.0) if value != 0 else copysign(0.0, value))
        if isinstance(value, str):
            self._take(str.__len__(value))
            return str.__str__(value)
        if isinstance(value, complex):
            return {"complex": [self._float(value.real), self._float(value.imag)]}
        if isinstance(value, (bytes, bytearray)):
            self._take(2 * len(value))
            return {"bytes": bytes(value).hex()}
        if isinstance(value, _class("decimal", "Decimal")):
            return {"decimal": sys.modules["decimal"].Decimal.__str__(value)}
        if isinstance(value, _class("fractions", "Fraction")):
            self._take((value.numerator.bit_length() + value.denominator.bit_length()) // 4)
            return {"fraction": [format(value.numerator, "x"), format(value.denominator, "x")]}
        return self._moment(value)

    @staticmethod
    def _float(value: float) -> Any:
        return value if isfinite(value) else {"float": repr(value)}

    @staticmethod
    def _moment(value: Any) -> Any:
        datetime = sys.modules.get("datetime")
        if datetime is None:
            return None
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

    def _numpy(self, numpy: Any, value: Any, depth: int) -> Any:
        if isinstance(value, numpy.ndarray) and value.ndim:
            if value.size > self.nodes:
                raise TooLargeError
            return {"array": [list(value.shape), self.encode(value.tolist(), depth)]}
        if value.dtype.kind in "mM":
            return {"moment64": str(value)}
        value = value[()]  # the scalar in an array without dimensions
        if value.dtype.kind == "f":
            return self._numpy_float(value)
        if value.dtype.kind == "c":
            parts = [self._numpy_float(value.real), self._numpy_float(value.imag)]
            if any(isinstance(part, dict) and "fraction" in part for part in parts):
                raise OpaqueError  # beyond the range of complex numbers
            return {"complex": parts}
        plain = value.item()
        if isinstance(plain, (numpy.ndarray, numpy.generic)):
            raise OpaqueError
        return self.encode(plain, depth)

    def _numpy_float(self, value: Any) -> Any:
        """Return a float, or a fraction for a longdouble that is beyond the range of floats."""
        plain = float(value)
        if plain == value or plain != plain or (plain != 0 and isfinite(plain)):
            return self._float(plain)
        return {"fraction": [format(part, "x") for part in value.as_integer_ratio()]}

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
        deque = _class("_collections", "deque")
        if isinstance(value, deque):
            return {"deque": self._items(deque.__iter__(value), depth)}
        if isinstance(value, range):
            return {"range": [value.start if value else 0, value.step if len(value) > 1 else 1, len(value)]}
        if isinstance(value, type({}.values())) or _is_iterator(value):
            return {"iterator": self._items(iter(value), depth)}
        return self._object(value, depth)

    def _items(self, items: Any, depth: int) -> list[Any]:
        return [self.encode(item, depth) for item in items]

    def _pairs(self, items: Any, depth: int) -> list[Any]:
        return [[self.encode(key, depth), self.encode(item, depth)] for key, item in items]

    def _object(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if isinstance(value, _UNKNOWABLE):
            raise OpaqueError
        if isinstance(value, (type, *_BUILTINS)):
            return {"callable": value.__qualname__}
        if isinstance(value, BaseException):
            return {"exception": [kind.__name__, self._items(iter(value.args), depth)]}
        dataclasses = sys.modules.get("dataclasses")
        if dataclasses is not None and dataclasses.is_dataclass(kind):
            names = [field.name for field in dataclasses.fields(kind) if field.compare]
            return {"dataclass": [kind.__name__, self._pairs([(n, getattr(value, n)) for n in names], depth)]}
        text = _without_addresses(repr(value))
        self._take(len(text))
        fields = _fields(value)
        attributes = None if fields is None else self._pairs(fields.items(), depth)
        return {"object": [kind.__name__, text, attributes]}


def _is_iterator(value: Any) -> bool:
    """Return whether it is an iterator of the interpreter or the standard library, not of the program's own class."""
    kind = type(value)
    return hasattr(kind, "__next__") and hasattr(kind, "__iter__") and kind.__module__ != MODULE


def _fields(value: Any) -> dict[Any, Any] | None:
    """Return an object's attributes, from its dictionary and its slots; None if it has neither."""
    attributes = getattr(value, "__dict__", None)
    fields = dict(attributes) if isinstance(attributes, dict) else None
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else tuple(slots):
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                fields = fields or {}
                fields[name] = getattr(value, name)
    return fields


def _without_addresses(text: str) -> str:
    first, *rest = text.split(" at 0x")
    return first + "".join(part.lstrip("0123456789abcdefABCDEF") for part in rest)


def _refuse(_value: Any) -> Any:
    raise OpaqueError


_in_parts = make_encoder(None, _refuse, encode_basestring_ascii, None, ":", ",", False, False, False)


def dumps(value: Any) -> str:
    """Return JSON without blanks, in ASCII.

    Raises:
        ValueError: a float is not finite.
    """
    return "".join(_in_parts(value, 0))


def encode(value: Any, max_bytes: int) -> str:
    """Return the value as one line of canonical JSON of at most `max_bytes`."""
    kind = type(value)
    try:
        if kind is int and -(2**63) <= value < 2**63:  # most values
            text = int.__repr__(value)
        elif kind is str and len(value) <= max_bytes:
            text = encode_basestring_ascii(value)
        else:
            text = dumps(_Encoder(max_bytes).encode(value))
    except (TooLargeError, RecursionError, MemoryError):
        return '{"toolarge":null}'
    except Exception:  # OpaqueError, or whatever the value's own methods raise
        return '{"opaque":null}'
    return text if len(text) <= max_bytes else '{"toolarge":null}'


class _Program:
    """A program, compiled once (or unmarshalled, if its code is known) and executed again for every call."""

    def __init__(self, program: dict[str, Any], start_call: StartCall) -> None:
        self.scoped, self.uses_random, self.start_call = program["scoped"], program["uses_random"], start_call
        code = program["code"]
        self.code = marshal.loads(code) if code else compile(program["source"], FILENAME, "exec", dont_inherit=True)

    def value(self, call: str, code: bytes | None) -> Any:
        self.start_call(self.uses_random)
        if self.scoped:
            namespace: dict[str, Any] = {"__name__": MODULE, "__builtins__": builtins}
            names: dict[str, Any] = {}
        else:
            module = types.ModuleType(MODULE)
            sys.modules[MODULE] = module
            namespace = names = module.__dict__
        exec(self.code, namespace, names)
        expression = marshal.loads(code) if code else compile(call.strip(), CALL_FILENAME, "eval", dont_inherit=True)
        return eval(expression, namespace, names)


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
    return dumps({"type": type(error).__name__[:100], "message": message, "line": line})


def run(order: dict[str, Any], report: int, start_call: StartCall) -> None:
    """Evaluate the calls of the program in `order`, and write a record for each to the file descriptor `report`.

    Args:
        start_call: called before each call, with whether the program may use random numbers.
    """
    nonce, max_bytes = order["nonce"], order["value_bytes"]

    def send(index: int, kind: str, text: str) -> None:
        data = f"{nonce} {index} {kind} {len(text)}\n{text}".encode("ascii", "backslashreplace")
        while data:
            data = data[os.write(report, data) :]

    send(-1, "begun", "")
    described, program = order["program"], None
    codes = described["call_codes"] or [None] * len(described["calls"])
    for index, (call, code) in enumerate(zip(described["calls"], codes)):  # noqa: B905  # a keyword takes longer
        try:
            program = program or _Program(described, start_call)
            kind, text = "value", encode(program.value(call, code), max_bytes)
        except BaseException as error:
            kind, text = "raised", _raised(error)
        send(index, kind, text)
