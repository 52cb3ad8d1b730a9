"""The selection of a table: conditions on dialogues and the search for a text, as a value and as the line of words that
users type and read.

`parse` and `describe` are inverses: `outcome=failed,error task=micro-* fault=* rounded down` has three conditions and
a text to search for.
"""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sweet.errors import InputError, UsageError
from sweet.regular import open_regular
from sweet.runs.jsonl import bounded_lines, is_object, parse_row
from sweet.tasks.base import with_calls
from sweet.tasks.trajectory import Trajectory
from sweet.view.pairs import CHANGES, Pair, Row, left_of
from sweet.view.records import Summary

EXAMPLE = "outcome=failed,error  task=micro-*  reward<0.5  reward>0  fault=*  any text"
_CONDITION = re.compile(r"(?P<name>(?:outcome|task|fault)=(?=.)|change=|reward[<>])(?P<value>.*)")
_HOLDS: dict[str, Callable[[Any, Any], bool]] = {
    "outcome=": lambda row, names: not {left_of(row).outcome, left_of(row).ended}.isdisjoint(names.split(",")),
    "task=": lambda row, pattern: fnmatch.fnmatchcase(left_of(row).task_id, pattern),
    "fault=": lambda row, pattern: bool(left_of(row).fault) and fnmatch.fnmatchcase(left_of(row).fault, pattern),
    "reward<": lambda row, bound: (reward := left_of(row).reward) is not None and reward < float(bound),
    "reward>": lambda row, bound: (reward := left_of(row).reward) is not None and reward > float(bound),
    "change=": lambda row, change: isinstance(row, Pair) and CHANGES[change][1](row),
}
"""Whether a condition with a value holds for a dialogue, or the dialogue of A in a pair. A dialogue without a fault has
none that matches, and one without a reward is within no bound."""


@dataclass(frozen=True)
class Filter:
    """Conditions on a dialogue. Without any, every dialogue passes.

    Attributes:
        conditions: their values by what their words begin with, such as `reward<`.
        text: what `search` looks for; `passes` does not.
    """

    conditions: Mapping[str, str] = field(default_factory=dict)
    text: str = ""


def passes(row: Row, filter: Filter) -> bool:
    """Return whether all conditions but the text hold for a row."""
    return all(_HOLDS[name](row, value) for name, value in filter.conditions.items())


def failed(summary: Summary) -> bool:
    """Return whether a dialogue was scored and did not pass."""
    return summary.outcome not in ("passed", None)


def parse(line: str) -> Filter:
    """Parse a line of words into a filter. Words that are no condition are the text to search for.

    Raises:
        UsageError: the value of a condition is wrong.
    """
    conditions: dict[str, str] = {}
    text = []
    for word in line.split():
        match = _CONDITION.fullmatch(word)
        if match is None:
            text.append(word)
            continue
        name, value = match["name"], match["value"]
        if name == "change=" and value not in CHANGES:
            raise UsageError(f"{word!r} is not a filter.", fix=f"change={', '.join(CHANGES)}")
        if name.startswith("reward") and not _is_number(value):
            raise UsageError(f"{word!r} needs a number.", fix=f"{name}0.5")
        conditions[name] = value
    return Filter(conditions, " ".join(text))


def _is_number(text: str) -> bool:
    try:
        return not math.isnan(float(text))
    except ValueError:
        return False


def describe(filter: Filter) -> str:
    """Return the line that describes a filter; empty if everything passes."""
    words = [name + value for name, value in filter.conditions.items()]
    return " ".join([*words, filter.text] if filter.text else words)


def _texts(trajectory: Trajectory, *, hidden: bool) -> Iterator[str]:
    task = trajectory.task
    yield task.problem_description
    for turn in trajectory.dialogue_history:
        yield from (turn.content, turn.output or "", turn.thought or "", with_calls("", turn.tool_calls))
    yield trajectory.answer
    if hidden:
        yield from (task.hidden_information, task.ground_truth, *task.test_cases.values())


def search(
    path: Path, text: str, *, hidden: bool = False, stopped: Callable[[], bool] = lambda: False
) -> Iterator[str]:
    """Yield the ids of the dialogues that contain a text, until `stopped`.

    The request, the turns of both sides, the raw replies, thoughts, calls of tools with their results, and the answer
    are searched; with `hidden` also the information that is hidden from the agent.

    Raises:
        InputError: a line is damaged, or the file cannot be read.
    """
    folded = text.casefold()
    # Bytes that every matching line contains; None if JSON has several spellings of them.
    plain = text.isascii() and text.isprintable() and not set('"\\/') & set(text)
    needle = text.lower().encode() if plain else None
    try:
        with open_regular(path) as file:
            for number, line in enumerate(bounded_lines(file, path), 1):
                whole = line.endswith(b"\n") or is_object(line)
                if stopped() or not whole:  # it is still being written
                    return
                may_match = needle is None or needle in line.lower() or b"\\u00" in line  # \u0041 is an A
                if may_match and not line.isspace():
                    row = parse_row(line, Trajectory, path, number)
                    if any(folded in part.casefold() for part in _texts(row, hidden=hidden)):
                        yield row.id
    except OSError as error:
        raise InputError(f"The dialogues cannot be read: {error.strerror}.", path=path) from error
