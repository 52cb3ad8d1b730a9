"""The selection of a table: conditions on dialogues and the search for a text, as a value and as the line of words that
users type and read.

`parse` and `describe` are inverses: `outcome=failed,error task=micro-* fault=* rounded down` has three conditions and
a text to search for.
"""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from sweet.errors import InputError, UsageError
from sweet.regular import open_regular
from sweet.runs.jsonl import bounded_lines, is_object, parse_row
from sweet.view.pairs import CHANGES, Change, Row, left_of
from sweet.view.records import Summary

EXAMPLE = "outcome=failed,error  task=micro-*  reward<0.5  reward>0  fault=*  any text"
_CONDITION = re.compile(
    r"(?P<name>outcome|task|fault)=(?P<value>.+)|change=(?P<change>.*)|reward(?P<bound>[<>])(?P<number>.*)"
)


@dataclass(frozen=True)
class Filter:
    """Conditions on a dialogue. Without any, every dialogue passes.

    Attributes:
        outcomes: its score or its ending is one of these; any if empty.
        task: pattern of its task's id; * matches anything.
        fault: pattern of its fault; a dialogue without a fault does not pass.
        reward_below, reward_above: exclusive bounds of its reward. A dialogue without a reward passes neither.
        change: of a pair of dialogues, how the reward of B differs from that of A.
        text: what `search` looks for; `passes` does not.
    """

    outcomes: frozenset[str] = frozenset()
    task: str | None = None
    fault: str | None = None
    reward_below: float | None = None
    reward_above: float | None = None
    change: Change | None = None
    text: str = ""


def passes(row: Row, filter: Filter) -> bool:
    """Return whether a dialogue, or the dialogue of A in a pair, passes all conditions but the text."""
    summary, change = left_of(row), filter.change
    if change is not None and (isinstance(row, Summary) or not CHANGES[change][1](row)):
        return False
    if filter.outcomes and not {summary.outcome, summary.ended} & filter.outcomes:
        return False
    if filter.task is not None and not fnmatch.fnmatchcase(summary.task_id, filter.task):
        return False
    if filter.fault is not None and not (summary.fault and fnmatch.fnmatchcase(summary.fault, filter.fault)):
        return False
    below, above, reward = filter.reward_below, filter.reward_above, summary.reward
    if below is None and above is None:
        return True
    return reward is not None and (below is None or reward < below) and (above is None or reward > above)


def failed(summary: Summary) -> bool:
    """Return whether a dialogue was scored and did not pass."""
    return summary.outcome not in ("passed", None)


def parse(line: str) -> Filter:
    """Parse a line of words into a filter. Words that are no condition are the text to search for.

    Raises:
        UsageError: the value of a condition is wrong.
    """
    found: dict[str, Any] = {}
    text = []
    for word in line.split():
        match = _CONDITION.fullmatch(word)
        if match is None:
            text.append(word)
        elif match["bound"]:
            found["reward_below" if match["bound"] == "<" else "reward_above"] = _number(word, match["number"])
        elif match["change"] is not None:
            if match["change"] not in CHANGES:
                raise UsageError(f"{word!r} is not a filter.", fix=f"change={', '.join(CHANGES)}")
            found["change"] = match["change"]
        elif match["name"] == "outcome":
            found["outcomes"] = frozenset(filter(None, match["value"].split(",")))
        else:
            found[match["name"]] = match["value"]
    return Filter(**found, text=" ".join(text))


def _number(word: str, given: str) -> float:
    try:
        value = float(given)
    except ValueError:
        value = math.nan
    if math.isnan(value):
        raise UsageError(f"{word!r} needs a number.", fix=f"{word[:7]}0.5")
    return value


def describe(filter: Filter) -> str:
    """Return the line that describes a filter; empty if everything passes."""
    words = []
    if filter.outcomes:
        words.append("outcome=" + ",".join(sorted(filter.outcomes)))
    if filter.task is not None:
        words.append(f"task={filter.task}")
    if filter.fault is not None:
        words.append(f"fault={filter.fault}")
    if filter.reward_below is not None:
        words.append(f"reward<{filter.reward_below!r}")
    if filter.reward_above is not None:
        words.append(f"reward>{filter.reward_above!r}")
    if filter.change is not None:
        words.append(f"change={filter.change}")
    return " ".join([*words, filter.text] if filter.text else words)


class _Task(BaseModel):
    problem_description: str = ""
    hidden_information: str = ""
    ground_truth: str = ""
    test_cases: dict[str, str] = {}


class _Turn(BaseModel):
    content: str = ""
    output: str | None = None
    thought: str | None = None


class _Row(BaseModel):
    """The fields that are searched."""

    id: str
    task: _Task
    dialogue_history: list[_Turn]
    answer: str = ""

    def texts(self, *, hidden: bool) -> Iterator[str]:
        yield self.task.problem_description
        for turn in self.dialogue_history:
            yield from (turn.content, turn.output or "", turn.thought or "")
        yield self.answer
        if hidden:
            yield from (self.task.hidden_information, self.task.ground_truth, *self.task.test_cases.values())


def search(
    path: Path, text: str, *, hidden: bool = False, stopped: Callable[[], bool] = lambda: False
) -> Iterator[str]:
    """Yield the ids of the dialogues that contain a text, until `stopped`.

    The request, the turns of both sides, the raw replies, thoughts and the answer are searched; with `hidden` also the
    information that is hidden from the agent.

    Raises:
        InputError: a line is damaged, or the file cannot be read.
    """
    wanted = text.casefold()
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
                    row = parse_row(line, _Row, path, number)
                    if any(wanted in part.casefold() for part in row.texts(hidden=hidden)):
                        yield row.id
    except OSError as error:
        raise InputError(f"The dialogues cannot be read: {error.strerror}.", path=path) from error
