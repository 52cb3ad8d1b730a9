"""What the references of code tasks give: computed once for each task, kept by content, in memory and on disk.

A reference runs in a child of its own, every call twice, so that one that does not reproduce itself is found out. The
results are kept under a hash of all that decides them (source, calls, limits, interpreter, numpy, the encoding), never
of the tier. On disk they lie one file each, written atomically; a file that is damaged is computed anew, and the
oldest go when there are too many. What ran out of time or crashed is not kept on disk: another day it may not.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib.metadata
import json
import os
import sys
from collections import OrderedDict
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from sweet.files import write_whole
from sweet.sandbox import child
from sweet.sandbox.program import Limits, Program, Result, quiet
from sweet.sandbox.values import RELATIVE_TOLERANCE, same
from sweet.tasks.base import Task

Scorer = Literal["strict", "upstream"]

_REFERENCE_SLACK = 3.0
_MOST_FILES = 20_000
_MOST_IN_MEMORY = 4096
_PRUNE_EVERY = 1000
_NONE = Result("value")


@dataclass(frozen=True)
class Expected:
    """What the reference gives: one result a test, and why the task is invalid, if it is."""

    results: tuple[Result, ...]
    invalid: str | None = None


@dataclass
class Reference:
    """A task's reference: the program that tells what is expected, and what it told once that is known."""

    key: str
    program: Program
    expected: Expected | None = None
    under_way: bool = False


class References:
    """References of tasks under one scorer's rules, each found where it is kept or computed once.

    Who gets a `Reference` whose `expected` is None and that is not `under_way` runs its program and tells `keep`.

    Args:
        limits: of the sandbox in which they run: what they give may depend on them.
        scorer: `upstream` runs them in the published scoping, and finds no task invalid.
        folder: where values are kept on disk; without it they are not.
    """

    def __init__(self, limits: Limits, scorer: Scorer, folder: Path | None = None) -> None:
        self.limits, self.scorer, self.folder = limits, scorer, folder
        self._known: OrderedDict[tuple[str, tuple[str, ...]], Reference] = OrderedDict()
        self._kept = 0

    def of(self, task: Task) -> Reference:
        """The task's reference."""
        name = (task.ground_truth, tuple(task.test_cases.values()))
        reference = self._known.get(name)
        if reference is None:
            key = _key(*name, self.scorer, self.limits)
            reference = self._known[name] = Reference(key, self._program(task), self._from_disk(key))
            if len(self._known) > _MOST_IN_MEMORY:
                self._known.popitem(last=False)
        return reference

    def keep(self, reference: Reference, results: tuple[Result, ...]) -> None:
        """Take what the reference's program gave."""
        reference.expected = self._expected(reference.program, results)
        self._to_disk(reference.key, reference.expected)

    def _program(self, task: Task) -> Program:
        calls = tuple(task.test_cases.values())
        if self.scorer == "upstream":
            return Program(task.ground_truth, calls, scoped=True, slack=_REFERENCE_SLACK)
        return Program(task.ground_truth, calls * 2, slack=2 * _REFERENCE_SLACK)

    def _expected(self, program: Program, results: tuple[Result, ...]) -> Expected:
        if self.scorer == "upstream":
            return Expected(results)
        half = len(results) // 2
        once, again = results[:half], results[half:]
        return Expected(once, _fault(program.source, program.calls, once, again))

    def _from_disk(self, key: str) -> Expected | None:
        if self.folder is None:
            return None
        try:
            kept = json.loads((self.folder / f"{key}.json").read_bytes())
            if kept["sha256"] != _hash(kept["expected"]):
                return None
            told = kept["expected"]
            return Expected(tuple(Result(**result) for result in told["results"]), told["invalid"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None

    def _to_disk(self, key: str, expected: Expected) -> None:
        if self.folder is None or any(result.status in ("timeout", "crash") for result in expected.results):
            return
        told = asdict(expected)
        with contextlib.suppress(OSError):  # a folder that cannot be written only costs time
            write_whole(
                self.folder / f"{key}.json", json.dumps({"sha256": _hash(told), "expected": told}).encode("utf-8")
            )
        self._kept += 1
        if self._kept % _PRUNE_EVERY == 1:
            self._prune(self.folder)

    @staticmethod
    def _prune(folder: Path) -> None:
        with contextlib.suppress(OSError):
            files = [entry for entry in os.scandir(folder) if entry.is_file()]
            if len(files) > _MOST_FILES:
                files.sort(key=lambda entry: entry.stat().st_mtime)
                for entry in files[: len(files) - _MOST_FILES * 9 // 10]:
                    Path(entry.path).unlink(missing_ok=True)


@cache
def _environment() -> tuple[str, str | None, str]:
    """Interpreter, numpy and what encodes the values."""
    try:
        numpy = importlib.metadata.version("numpy")
    except importlib.metadata.PackageNotFoundError:
        numpy = None
    return sys.version, numpy, hashlib.sha256(Path(child.__file__).read_bytes()).hexdigest()


def _key(source: str, calls: tuple[str, ...], scorer: Scorer, limits: Limits) -> str:
    return _hash([_environment(), source, calls, scorer, asdict(limits)])


def _hash(told: Any) -> str:
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def _fault(source: str, calls: tuple[str, ...], once: tuple[Result, ...], again: tuple[Result, ...]) -> str | None:
    """Why the reference cannot decide anything, if so."""
    raises = _raising_lines(source)
    for call, a, b in zip(calls, once, again, strict=False):
        call = call.strip()[:100]
        if a.status not in ("value", "raised") or (a.status == "raised" and a.line not in raises):
            return f"the reference fails on {call}: {a.told}"
        if a.status == "value" and not same(a.value, a.value):
            return f"the reference gives a value on {call} that cannot be compared"
        if a.status != b.status or a.error != b.error or not same(a.value, b.value, RELATIVE_TOLERANCE):
            return f"the reference does not give the same twice on {call}"
    if all(result == _NONE for result in once):
        return "the reference returns None on every test"
    return None


def _raising_lines(source: str) -> set[int]:
    """Lines of `raise` statements: an exception that comes from one was meant."""
    try:
        with quiet():
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return set()
    return {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.Raise)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
