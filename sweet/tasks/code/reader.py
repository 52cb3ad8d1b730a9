"""Read the texts of models, and of tasks, in a process with limits (`sweet.sandbox.reader`), which executes none.

Where the machine has a jail, the process is in it.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sweet.sandbox.reader import Reader, Unreadable
from sweet.tasks.base import Task
from sweet.tasks.code.extract import LONGEST

_SERVICE = "from sweet.sandbox.reading import prepare; from sweet.tasks.code.reading import serve; prepare()"
_reader = Reader(_SERVICE, in_jail=True)
_AT_ONCE = 256
"""Tasks whose texts are encoded at once."""


@dataclass(frozen=True)
class AnswerCode:
    """The code in an answer: its source, None if there is none, and the same compiled."""

    source: str | None
    code: bytes | None


@dataclass(frozen=True)
class TaskCode:
    """What is read from a task.

    Attributes:
        names: the names defined by the reference that the tests use.
        raising: the lines of the reference's `raise` statements.
        source: the compiled reference; None if the child has to compile it.
        calls: each compiled call; None if the child has to compile it.
        fault: why the task cannot be read, if so; the rest is then empty.
    """

    names: frozenset[str]
    raising: frozenset[int]
    source: bytes | None
    calls: tuple[bytes | None, ...]
    fault: str | None = None


@dataclass(frozen=True)
class Statement:
    """A statement of a source.

    Attributes:
        tree: the hash of its syntax tree.
        line: its text, if it is on one line.
    """

    tree: str
    line: str | None


def read_answer(answer: str, names: frozenset[str] | None) -> AnswerCode:
    """Return the code in an answer that defines one of the names; without names, the code that the published evaluator
    runs (sweet.tasks.code.extract).

    Raises:
        Unreadable: the answer exceeds a limit.
    """
    arguments: list[Any] = [answer] if names is None else [answer[:LONGEST], sorted(names)]
    source, [code] = _reader.ask("read_answer", *arguments)
    return AnswerCode(source, code)


def read_task(task: Task) -> TaskCode:
    """Return what is read from a task's reference and calls."""
    return _read_task(task.ground_truth, tuple(task.test_cases.values()))


@functools.lru_cache(maxsize=4096)
def _read_task(reference: str, calls: tuple[str, ...]) -> TaskCode:
    try:
        value, (source, *codes) = _reader.ask("read_task", reference, list(calls))
    except Unreadable as error:
        return TaskCode(frozenset(), frozenset(), None, (None,) * len(calls), str(error))
    return TaskCode(frozenset(value["names"]), frozenset(value["raising"]), source, tuple(codes))


@dataclass(frozen=True)
class TextFaults:
    """What the texts of a task show.

    Attributes:
        source: why the reference does not compile; None if it does. calls: the same for each call.
        uses: the names of the reference that the calls use, None if it could not be parsed.
        imports: those of them that the reference imports.
        swapped: whether the names of the tests use some of its names.
    """

    source: str | None = None
    calls: Sequence[str | None] = ()
    uses: Sequence[str] | None = None
    imports: Sequence[str] = ()
    swapped: bool = False


def read_faults(tasks: Iterable[Task]) -> Iterator[TextFaults]:
    """Yield what the texts of each task show, without running any."""
    tests = (("read_faults", task.ground_truth, [*task.test_cases.values()], [*task.test_cases]) for task in tasks)
    for requests in iter(lambda: list(itertools.islice(tests, _AT_ONCE)), []):
        for reply in _reader.ask_all(requests):
            yield TextFaults(str(reply)) if isinstance(reply, Unreadable) else TextFaults(**reply[0])


@functools.lru_cache(maxsize=4096)
def statements(source: str) -> tuple[Statement, ...]:
    """Return the statements of a source in their order, with those of functions; none if it cannot be parsed."""
    return _statements("read_statements", source)


def statements_of_answer(answer: str, names: frozenset[str]) -> tuple[Statement, ...]:
    """Return the statements of the code in an answer; none if there is no code."""
    return _statements("read_answer_statements", answer[:LONGEST], sorted(names))


def mutants_of(source: str) -> list[tuple[str, str]]:
    """Return mutants of a source: of each what was changed, and its source.

    Raises:
        Unreadable: the source exceeds a limit, or does not parse.
    """
    return [(what, text) for what, text in _reader.ask("read_mutants", source)[0]]


def _statements(*request: Any) -> tuple[Statement, ...]:
    try:
        return tuple(Statement(tree, line) for tree, line in _reader.ask(*request)[0])
    except Unreadable:
        return ()
