"""What goes into the sandbox and what comes out of it."""

from __future__ import annotations

import re
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from types import CodeType
from typing import Any, Literal

from sweet.sandbox.child import FILENAME

Status = Literal["value", "raised", "timeout", "crash"]


_LONGEST_COMPILED = 100_000
_warnings = threading.RLock()
MARSHAL = 2
"""The version of `marshal` in which zygotes are spoken to: every Python 3 reads, those of containers too."""

Warmth = Literal["bare", "usual", "wide"]
"""What a zygote has imported. What every child is forked with every child pays for, and what an answer has to read
first takes of its time: so an answer is forked from the leanest that has what it may import."""

_USUAL = (
    *("bisect", "collections", "contextlib", "copy", "datetime", "decimal", "enum", "fractions", "functools", "heapq"),
    *("itertools", "json", "math", "operator", "random", "re", "statistics", "string", "time", "types", "typing"),
)
_WIDE = (
    *("abc", "argparse", "ast", "asyncio", "base64", "calendar", "concurrent.futures", "csv", "dataclasses", "difflib"),
    *("hashlib", "html", "inspect", "io", "ipaddress", "logging", "pathlib", "pprint", "secrets", "socket", "tempfile"),
    *("textwrap", "threading", "urllib.parse", "uuid", "zlib", "zoneinfo"),
)
MODULES: dict[Warmth, tuple[str, ...]] = {"bare": (), "usual": _USUAL, "wide": _USUAL + _WIDE}
"""Of the standard library. `wide` has numpy too, where it is installed."""

_MENTIONS_WIDE = re.compile(rf"\b(?:numpy|{'|'.join(name.partition('.')[0] for name in _WIDE)})\b")


@dataclass(frozen=True)
class Limits:
    """Bounds on one answer.

    Attributes:
        call_seconds: wall clock of one call, the execution of the source before it included.
        total_seconds: wall clock of all calls together.
        memory_bytes: address space of the child, and memory that it and all it started hold together.
        tasks: threads and processes of the child and all it started.
        value_bytes: length of one value in canonical JSON; a longer one is reported as too large.
        sift_seconds: wall clock of one call after another has run out of time; what needs longer is put off to the end.
        late_calls: after so many calls that ran out of `call_seconds` what was put off is not tried again.
    """

    call_seconds: float = 1.0
    total_seconds: float = 10.0
    memory_bytes: int = 512 * 2**20
    tasks: int = 256
    value_bytes: int = 256 * 2**10
    sift_seconds: float = 0.02
    late_calls: int = 3


@dataclass(frozen=True)
class Program:
    """Source to execute and expressions to evaluate in it, each in a fresh copy of it.

    Attributes:
        source: Python source.
        calls: Python expressions.
        scoped: execute and evaluate in one function's local scope, as the published evaluator does: names that the
            source defines are not seen by its own functions.
        slack: multiplies the limits of time. References get some, so that a busy machine makes no task invalid.
    """

    source: str
    calls: tuple[str, ...]
    scoped: bool = False
    slack: float = 1.0

    @property
    def warmth(self) -> Warmth:
        """Of the zygote to fork it from."""
        if "import" not in self.source:
            return "bare"
        return "wide" if _MENTIONS_WIDE.search(self.source) else "usual"

    def within(self, limits: Limits) -> Limits:
        """The limits of this program."""
        return replace(
            limits,
            call_seconds=limits.call_seconds * self.slack,
            total_seconds=limits.total_seconds * self.slack,
            sift_seconds=limits.sift_seconds * self.slack,
        )


@dataclass(frozen=True)
class Result:
    """What one call did.

    Attributes:
        status: it gave a value, raised an exception, ran out of time or took its process down.
        value: the value in canonical JSON (sweet.sandbox.values) where it gave one.
        error: the exception's type name, or what happened to the process.
        message: the exception's text, cut.
        line: the line of `source` that raised, where the exception came straight from it.
    """

    status: Status
    value: Any = None
    error: str = ""
    message: str = ""
    line: int | None = None

    @property
    def told(self) -> str:
        """One line for people."""
        return f"{self.error}: {self.message}" if self.message else self.error


@dataclass(frozen=True)
class Execution:
    """The results of a program, one a call in their order, and the wall clock they took together."""

    results: tuple[Result, ...]
    seconds: float


@lru_cache(maxsize=256)
def compiled(source: str, mode: Literal["exec", "eval"] = "exec") -> CodeType | None:
    """The code of a source, or of an expression; None where it is too long or cannot be compiled: why, the child tells.

    It is compiled here because this process can keep what it has compiled, and a child has to read the compiler's
    memory first. Nothing of it is executed here.
    """
    if len(source) > _LONGEST_COMPILED:
        return None
    try:
        with quiet():
            return compile(source, FILENAME if mode == "exec" else "<call>", mode, dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
        return None


@contextmanager
def quiet() -> Iterator[None]:
    """What the compiler warns of in an answer (an invalid escape) concerns nobody, and would be shown with its text.

    Warnings are switched off for a whole process, so one thread does it at a time.
    """
    with _warnings, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
