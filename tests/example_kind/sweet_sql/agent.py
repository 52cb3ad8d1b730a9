"""A rule-based agent: asks for what such requests omit, and builds the query from the replies.

It knows only the words of the packaged tasks. At a temperature above 0 it sometimes stops asking too early, so that its
dialogues differ in quality.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from sweet.tasks.base import Message
from sweet.tasks.markers import ANSWER_MARKER

QUESTIONS = (
    "Which rows count?",
    "What about rows with a missing value?",
    "May rows repeat?",
    "How should I sort them?",
)
HASTE = 0.2
"""The probability of delivering before the next question, at temperature 1."""

_REQUEST = re.compile(r"I need (?P<wanted>.+) from (?P<table>\w+)\(")
_TOTAL = re.compile(r"the total (?P<of>\w+) of each (?P<by>\w+)")
_IS = re.compile(r"Only rows where (?P<column>\w+) is (?P<value>\w+) count")
_ABOVE = re.compile(r"Only rows where (?P<column>\w+) is above (?P<value>[\d.]+) count")
_PRESENT = re.compile(r"Leave out rows without (?P<column>\w+)")
_ONCE = re.compile(r"Show each row once")
_SORTED = re.compile(r"Sort them by (?P<column>\w+), the (?P<first>smallest|largest) first")


def speak(messages: Sequence[Message], temperature: float, seed: int | None) -> str:
    """Return the next reply: a question, or the query."""
    asked = sum(message.role == "assistant" for message in messages)
    hasty = random.Random(seed).random() < HASTE * temperature
    if asked < len(QUESTIONS) and not hasty:
        return QUESTIONS[asked]
    human = [message.content for message in messages if message.role == "user"]
    return f"{ANSWER_MARKER}\n```sql\n{_query(human[0], ' '.join(human[1:]))}\n```"


@dataclass
class _Parts:
    columns: str
    group: str = ""
    conditions: list[str] = field(default_factory=list)


def _query(request: str, replies: str) -> str:
    found = _REQUEST.search(request)
    if found is None:
        return "SELECT 1"
    parts = _parts(found["wanted"])
    if (above := _ABOVE.search(replies)) is not None:
        parts.conditions.append(f"{above['column']} > {above['value']}")
    elif (equal := _IS.search(replies)) is not None:
        parts.conditions.append(f"{equal['column']} = '{equal['value']}'")
    if (present := _PRESENT.search(replies)) is not None:
        parts.conditions.append(f"{present['column']} IS NOT NULL")
    once = "DISTINCT " if _ONCE.search(replies) else ""
    lines = [f"SELECT {once}{parts.columns}", f"FROM {found['table']}"]
    lines += [f"WHERE {' AND '.join(parts.conditions)}"] if parts.conditions else []
    lines += [f"GROUP BY {parts.group}"] if parts.group else []
    if (order := _SORTED.search(replies)) is not None:
        lines.append(f"ORDER BY {order['column']}{' DESC' if order['first'] == 'largest' else ''}, id")
    return "\n".join(lines)


def _parts(wanted: str) -> _Parts:
    total = _TOTAL.search(wanted)
    if total is not None:
        return _Parts(f"{total['by']}, SUM({total['of']})", group=total["by"])
    return _Parts(", ".join(re.findall(r"\w+", wanted.replace(" and ", " "))))
