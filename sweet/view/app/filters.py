"""The filter as one line of words, as a person types and reads it: `outcome=failed,error task=micro-* fault`.

`parsed` and `told` are each other's inverse. Which trajectories a search or the bookmarks leave is not part of it.
"""

from __future__ import annotations

import math
import shlex
from dataclasses import replace

from sweet.errors import UsageError
from sweet.view.selection import Filter

EXAMPLE = "outcome=failed,error  task=micro-*  reward<0.5  reward>0  fault"
_QUOTED = frozenset(" \t\r\n'\"\\")
"""What parts words, or holds them together: a task with such a character in its name stands in quotation marks."""


def parsed(line: str) -> Filter:
    """The filter that a line of words asks for; every word narrows.

    Raises:
        UsageError: a word is none of them.
    """
    found = Filter()
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise UsageError("A quotation mark is left open.", fix=EXAMPLE) from error
    for word in words:
        if word == "fault":
            found = replace(found, faults=True)
        elif word.startswith("outcome=") and word != "outcome=":
            found = replace(found, outcomes=frozenset(filter(None, word.removeprefix("outcome=").split(","))))
        elif word.startswith("task=") and word != "task=":
            found = replace(found, task=word.removeprefix("task="))
        elif word.startswith("reward<"):
            found = replace(found, reward_below=_number(word))
        elif word.startswith("reward>"):
            found = replace(found, reward_above=_number(word))
        else:
            raise UsageError(f"{word!r} is no filter.", fix=EXAMPLE)
    return found


def _number(word: str) -> float:
    try:
        value = float(word[len("reward<") :])
    except ValueError:
        value = math.nan
    if math.isnan(value):
        raise UsageError(f"{word!r} needs a number.", fix=f"{word[:7]}0.5")
    return value


def told(filter: Filter) -> str:
    """The line for a filter; empty where everything passes."""
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
