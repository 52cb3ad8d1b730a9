"""The data types of the sandbox: limits, programs, results and executions."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

Tier = Literal["bwrap", "landlock", "docker", "unsafe"]
"""Kind of jail in which a program runs."""

TierChoice = Literal["auto", Tier]
"""The same as an option; auto is the strongest that works."""

Status = Literal["value", "raised", "timeout", "crash"]

MARSHAL = 2
"""The version of `marshal` for messages to zygotes, which every Python 3 reads, also in containers."""

Warmth = Literal["bare", "usual", "wide"]
"""The set of modules that a zygote has imported. Every imported module makes every fork slower, and a module that an
answer has to import uses its time: therefore an answer is forked from the smallest set with all modules it may need."""

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
"""Modules of the standard library. `wide` also has numpy, if it is installed."""

_RANDOM_WORDS = ("random", "secrets", "uuid", "shuffle", "sample", "tempfile", "import_", "getattr")
"""Words that occur in programs that use random numbers."""

_MENTIONS_WIDE = re.compile(rf"\b(?:numpy|{'|'.join(name.partition('.')[0] for name in _WIDE)})\b")


@dataclass(frozen=True)
class Limits:
    """The limits of one answer.

    Attributes:
        call_seconds: time of one call, including the execution of the source before it.
        total_seconds: time of all calls together.
        memory_bytes: address space of the child, and also the memory of the child and its descendants together.
        tasks: number of threads and processes of the child and its descendants.
        value_bytes: length of one value in canonical JSON; a longer one is reported as too large.
        all_bytes: memory of the texts of all values, equal ones once; a value for which none is left is too large.
        sift_seconds: time of one call after another one has timed out; a call that needs longer is postponed.
        late_calls: number of calls that timed out after which postponed calls are not run again.
    """

    call_seconds: float = 1.0
    total_seconds: float = 10.0
    memory_bytes: int = 512 * 2**20
    tasks: int = 256
    value_bytes: int = 256 * 2**10
    all_bytes: int = 8 * 2**20
    sift_seconds: float = 0.02
    late_calls: int = 3


@dataclass(frozen=True)
class Code:
    """A program compiled by this interpreter, so that its children need not: marshalled code objects.

    It is compiled in a process with limits (sweet.tasks.code.reader), never in this one.

    Attributes:
        source: the source's code; None if the child has to compile it.
        calls: the code of each call; None if the child has to compile it.
    """

    source: bytes | None
    calls: tuple[bytes | None, ...]


@dataclass(frozen=True)
class Program:
    """Source to execute and expressions to evaluate in it, each in a fresh execution of the source.

    Attributes:
        source: Python source.
        calls: Python expressions.
        scoped: whether to execute and evaluate in one function's local scope, as the published evaluator does: the
            functions of the source cannot see the names that it defines.
        slack: a factor for the time limits. References get more time, so that a busy machine makes no task invalid.
        code: the program compiled, for jails that run this interpreter; without it, each child compiles the program.
        beside: bytes that stay in memory until its results are judged.
    """

    source: str
    calls: tuple[str, ...]
    scoped: bool = False
    slack: float = 1.0
    code: Code | None = field(default=None, compare=False)
    beside: int = field(default=0, compare=False)

    def only(self, indices: Sequence[int]) -> Program:
        """Return the program with only these calls."""
        code = self.code and Code(self.code.source, tuple(self.code.calls[index] for index in indices))
        return replace(self, calls=tuple(self.calls[index] for index in indices), code=code)

    @property
    def size(self) -> int:
        """Bytes of the source and of its code, and those beside it, about."""
        return len(self.source) + (len(self.code.source) if self.code and self.code.source else 0) + self.beside

    @property
    def warmth(self) -> Warmth:
        """The modules of the zygote from which to fork."""
        if "import" not in self.source:
            return "bare"
        return "wide" if _MENTIONS_WIDE.search(self.source) else "usual"

    @property
    def uses_random(self) -> bool:
        """Whether it may use random numbers. Seeding takes longer than most calls."""
        imported = "import" in self.source and any(word in self.source for word in _RANDOM_WORDS)
        return imported or any("random" in call for call in self.calls)

    def within(self, limits: Limits) -> Limits:
        """Return the limits of this program."""
        if self.slack == 1.0:
            return limits
        return replace(
            limits,
            call_seconds=limits.call_seconds * self.slack,
            total_seconds=limits.total_seconds * self.slack,
            sift_seconds=limits.sift_seconds * self.slack,
        )


class Result(NamedTuple):
    """The result of one call.

    A value is kept as text, and parsed when it is judged: parsed it can take 50 times as much memory, which few values
    may do at once, whatever the number of tests.

    Attributes:
        status: whether it returned a value, raised an exception, timed out or ended its process.
        text: the value in canonical JSON (sweet.sandbox.child), if it returned one.
        error: the exception's type name, or `timeout` or `crash`.
        message: the exception's text, cut, or how the process ended.
        line: the line of `source` that raised, if the exception came directly from it.
    """

    status: Status
    text: str = "null"
    error: str = ""
    message: str = ""
    line: int | None = None

    @property
    def value(self) -> Any:
        """The value (sweet.sandbox.values), parsed anew each time; one that cannot be parsed equals nothing."""
        try:
            return parsed_json(self.text)
        except (ValueError, RecursionError):
            return {"opaque": None}

    @property
    def explanation(self) -> str:
        """The error as one line for display."""
        return f"{self.error}: {self.message}" if self.message else self.error


@dataclass(frozen=True)
class Execution:
    """The results of a program, one for each call in their order.

    Attributes:
        seconds: the time that they took together.
        size: bytes that they take in memory, about.
    """

    results: tuple[Result, ...]
    seconds: float
    size: int = 0


_decode: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]


def parsed_json(text: str) -> Any:
    """Return the value of a JSON text without blanks around it, as children write it; faster than `json.loads`.

    Raises:
        ValueError: it is no such text.
        RecursionError: it is nested too deeply.
    """
    try:
        value, end = _decode(text, 0)
    except StopIteration:
        raise ValueError("no value") from None
    if end != len(text):
        raise ValueError("text after the value")
    return value
