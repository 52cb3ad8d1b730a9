"""The expected values of code tasks: computed once from each reference, and cached by content in memory and on disk.

A reference runs in its own child, every call twice, so that one that is not deterministic is detected. The results are
cached under a hash of all that determines them (source, calls, limits, interpreter, numpy, the encoding), but not of
the sandbox's tier. On disk each is one file, written atomically; a damaged file is computed again, and the oldest files
are deleted when they take too much room. Timeouts and crashes are not cached on disk, since they may not happen again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from sweet.files import write_whole
from sweet.installation import installed_version
from sweet.runs.cache import prune
from sweet.sandbox import child, determinism
from sweet.sandbox.program import Code, Execution, Limits, Program, Result
from sweet.sandbox.values import RELATIVE_TOLERANCE, same
from sweet.tasks.base import Task
from sweet.tasks.code.reader import TaskCode, read_task
from sweet.tasks.findings import Problem

Scorer = Literal["strict", "upstream"]
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_REFERENCE_SLACK = 3.0
_MOST_ON_DISK = 128 * 2**20
"""Bytes of the files."""
_MOST_IN_MEMORY = 4096
_MOST_BYTES = 64 * 2**20
"""Bytes of the references in memory, as texts of their values and sources."""
_PRUNE_EVERY = 1000
_NONE = Result("value")


@dataclass(frozen=True)
class Expected:
    """The results of the reference, one for each test, and why the task is invalid, if it is."""

    results: tuple[Result, ...]
    invalid: str | None = None


@dataclass
class Reference:
    """A task's reference: the program that computes the expected values, and the values once they are known.

    Attributes:
        name: the texts of the task that determine it.
        size: bytes of the values in memory.
        key: of its results in the cache on disk.
        read: what was read from the texts of the task.
    """

    name: tuple[str, tuple[str, ...]]
    key: str
    read: TaskCode
    program: Program
    expected: Expected | None = None
    size: int = 0
    running: bool = False

    @property
    def times(self) -> int:
        """How often the program makes each call."""
        return len(self.program.calls) // len(self.name[1])

    def both(self, results: tuple[Result, ...]) -> tuple[tuple[Result, ...], tuple[Result, ...]]:
        """Return the results of each call, and those of making it again."""
        return results[: len(self.name[1])], results[len(self.name[1]) :]


class BoundedCache(Generic[K, V]):
    """The newest values by key, up to a number of them and up to a sum of their sizes.

    What programs of models return, and their sources, can each have megabytes: a number of entries alone does not bound
    the memory of the process that scores.

    Args:
        most: maximum number of entries.
        most_bytes: maximum sum of the sizes of entries.
    """

    def __init__(self, most: int, most_bytes: int = sys.maxsize) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._entries: OrderedDict[K, V] = OrderedDict()
        self._sizes: dict[K, int] = {}
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> V | None:
        return self._entries.get(key)

    def add(self, key: K, value: V, size: int = 0) -> None:
        """Add an entry whose key is new."""
        self._entries[key], self._sizes[key] = value, 0
        self.grow(key, size)

    def grow(self, key: K, size: int) -> None:
        """Add bytes to an entry's size, unless it has been dropped."""
        if key not in self._sizes:
            return
        self._sizes[key] += size
        self.bytes += size
        while self._entries and (len(self._entries) > self._most or self.bytes > self._most_bytes):
            oldest, _ = self._entries.popitem(last=False)
            self.bytes -= self._sizes.pop(oldest)


class References:
    """The references of tasks under one scorer's rules, each read from the cache or computed once.

    A caller that gets a `Reference` whose `expected` is None and that is not `running` runs its program and passes the
    results to `store`.

    Args:
        limits: the limits of the sandbox, on which the results may depend.
        scorer: `upstream` runs references in the published scoping, and considers no task invalid.
        folder: the cache folder; None caches in memory only.
    """

    def __init__(self, limits: Limits, scorer: Scorer, folder: Path | None = None) -> None:
        self.limits, self.scorer, self.folder = limits, scorer, folder
        self._known: BoundedCache[tuple[str, tuple[str, ...]], Reference] = BoundedCache(_MOST_IN_MEMORY, _MOST_BYTES)
        self._rules = (scorer, asdict(limits))
        self._stored = 0

    def of(self, task: Task) -> Reference:
        """Return the task's reference."""
        name = (task.ground_truth, tuple(task.test_cases.values()))
        reference = self._known.get(name)
        if reference is None:
            key, read = _hash([_environment(), *name, *self._rules]), read_task(task)
            fault = self._fault_of(read)
            expected, size = (Expected((), fault), 0) if fault else self._from_disk(key)
            reference = Reference(name, key, read, self._program(task, read), expected, size)
            self._known.add(name, reference, size + reference.program.size)
        return reference

    def store(self, reference: Reference, execution: Execution) -> None:
        """Store the results of the reference's program."""
        reference.expected = self._expected(reference, execution.results)
        reference.size = execution.size
        self._known.grow(reference.name, execution.size)
        self._to_disk(reference.key, reference.expected)

    def _fault_of(self, read: TaskCode) -> str | None:
        """Return why a task that cannot be read is invalid; None if it can, or if no task is considered invalid."""
        if read.fault is None or self.scorer == "upstream":
            return None
        return f"the reference or a call cannot be read: {read.fault}"

    def _program(self, task: Task, read: TaskCode) -> Program:
        calls, code = tuple(task.test_cases.values()), Code(read.source, read.calls)
        if self.scorer == "upstream":
            return Program(task.ground_truth, calls, scoped=True, slack=_REFERENCE_SLACK, code=code)
        twice = [*range(len(calls))] * 2
        return Program(task.ground_truth, calls, slack=2 * _REFERENCE_SLACK, code=code).only(twice)

    def _expected(self, reference: Reference, results: tuple[Result, ...]) -> Expected:
        if self.scorer == "upstream":
            return Expected(results)
        once, again = reference.both(results)
        fault = fault_of(reference, once, again)
        return Expected(once, None if fault is None else fault[1])

    def _from_disk(self, key: str) -> tuple[Expected | None, int]:
        """Return the cached results and their bytes; None and 0 if there are none."""
        if self.folder is None:
            return None, 0
        try:
            data = (self.folder / f"{key}.json").read_bytes()
            content = json.loads(data)
            expected = content["expected"]
            if content["sha256"] != _hash(expected):
                return None, 0
            return Expected(tuple(Result(**result) for result in expected["results"]), expected["invalid"]), len(data)
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None, 0

    def _to_disk(self, key: str, expected: Expected) -> None:
        if self.folder is None or any(result.status in ("timeout", "crash") for result in expected.results):
            return
        record = {"results": [result._asdict() for result in expected.results], "invalid": expected.invalid}
        content = {"sha256": _hash(record), "expected": record}
        with contextlib.suppress(OSError):  # a folder that cannot be written only costs time
            write_whole(self.folder / f"{key}.json", json.dumps(content).encode("utf-8"))
        self._stored += 1
        if self._stored % _PRUNE_EVERY == 1:
            prune(self.folder, _MOST_ON_DISK, lambda file: file.suffix == ".json")


@cache
def _environment() -> tuple[str, str | None, str]:
    """Return the versions of the interpreter and of numpy, and the hash of the modules that determine values."""
    modules = b"".join(Path(file).read_bytes() for file in (child.__file__, determinism.__file__))
    return sys.version, installed_version("numpy"), hashlib.sha256(modules).hexdigest()


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def fault_of(reference: Reference, once: tuple[Result, ...], again: tuple[Result, ...]) -> tuple[Problem, str] | None:
    """Return why the reference makes its task invalid, and which problem this is; None if it does not. Exceptions of a
    `raise` statement are intended."""
    for call, a, b in zip(reference.program.calls, once, again, strict=False):
        call = call.strip()[:100]
        if a.status not in ("value", "raised") or (a.status == "raised" and a.line not in reference.read.raising):
            return "slow" if a.status == "timeout" else "invalid", f"the reference fails on {call}: {a.explanation}"
        if a.status == "value" and not agree(a, a):
            return "invalid", f"the reference returns a value on {call} that cannot be compared"
        if not agree(a, b):
            return "flaky", f"the reference does not return the same value twice on {call}"
    if all(result == _NONE for result in once):
        return "trivial", "the reference returns None on every test"
    return None


def agree(a: Result, b: Result) -> bool:
    """Return whether two results of a call are the same."""
    return a.status == b.status and a.error == b.error and same(a.value, b.value, RELATIVE_TOLERANCE)
