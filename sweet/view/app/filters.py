"""The filter as one line of words, as users type and read it: `outcome=failed,error task=micro-* fault`.

`parse` and `describe` are inverses. The selection by a search or by bookmarks is not part of the line.
"""

from __future__ import annotations

import math
import shlex
from dataclasses import replace

from sweet.errors import UsageError
from sweet.view.selection import Filter

EXAMPLE = "outcome=failed,error  task=micro-*  reward<0.5  reward>0  fault"
_QUOTED = frozenset(" \t\r\n'\"\\")
"""Separators and quotes of the shell syntax: a task whose name has one of these characters is quoted."""


def parse(line: str) -> Filter:
    """Parse a line of words into a filter. A trajectory has to match every word.

    Raises:
        UsageError: a word is not a filter.
    """
    result = Filter()
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise UsageError("A quotation mark is not closed.", fix=EXAMPLE) from error
    for word in words:
        if word == "fault":
            result = replace(result, faults=True)
        elif word.startswith("outcome=") and word != "outcome=":
            result = replace(result, outcomes=frozenset(filter(None, word.removeprefix("outcome=").split(","))))
        elif word.startswith("task=") and word != "task=":
            result = replace(result, task=word.removeprefix("task="))
        elif word.startswith("reward<"):
            result = replace(result, reward_below=_number(word))
        elif word.startswith("reward>"):
            result = replace(result, reward_above=_number(word))
        else:
            raise UsageError(f"{word!r} is not a filter.", fix=EXAMPLE)
    return result


def _number(word: str) -> float:
    try:
        value = float(word[len("reward<") :])
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
        words.append(f"task={shlex.quote(filter.task) if _QUOTED & set(filter.task) else filter.task}")
    if filter.reward_below is not None:
        words.append(f"reward<{filter.reward_below!r}")
    if filter.reward_above is not None:
        words.append(f"reward>{filter.reward_above!r}")
    if filter.faults:
        words.append("fault")
    return " ".join(words)
