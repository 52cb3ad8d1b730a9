"""Rules that detect faults in the reply of a model that plays the human: empty, echo, refusal, ended, leaked.

A dialogue with such a reply says nothing about the agent, so it ends and is counted separately. The rules prefer
precision: a human may quote a number or a short expression, and may repeat a word of the question.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from sweet.tasks.base import Message, Task
from sweet.tasks.trajectory import HumanFault

ECHO_CHARACTERS = 20
"""Shorter replies may repeat the question legitimately ("the name?" - "the name")."""
LEAKED_LINE = 16
"""Characters, without whitespace, from which a line of code is too long to be written by chance."""
LEAKED_SHARE = 0.5
"""A reply that contains this share of the reference's body leaks it."""
MOST_TAGS = 3
"""HTML tags that a reply may mention; more of them are a piece of a page."""

_REFUSAL = re.compile(
    r"\W*(?:(?:i['\u2019]?m sorry|i am sorry|sorry|i apologi[sz]e|unfortunately)\W+)?(?:but\W+)?"
    r"(?:as an ai\b|as a (?:large )?language model\b"
    r"|i (?:can(?:no|['\u2019])t|am (?:not able|unable) to|won['\u2019]t)"
    r" (?:assist|help|comply|continue|engage|fulfil|participate|role-?play)\b)",
    re.IGNORECASE,
)
_TAG = re.compile(r"</?[a-z][a-z0-9]*(?:\s[^<>]*)?>", re.IGNORECASE)
_STYLES = re.compile(r"\{\s*[a-z-]+\s*:[^{}]+\}", re.IGNORECASE)
_DELIVERS = re.compile(r"I\s+WANT\s+TO\s+ANSWER\s*:", re.IGNORECASE)


def fault_of(
    reply: str, task: Task, dialogue: Sequence[Message], leaks: Callable[[str, str], bool] | None = None
) -> HumanFault | None:
    """Return the fault of the human's `reply` to `dialogue`, whose last message is the agent's, or None.

    Args:
        leaks: decides whether a reply leaks a reference; None is `leaks_code`.
    """
    said = _plain(reply)
    if not said:
        return "empty"
    if _DELIVERS.search(reply):
        return "ended"
    if _REFUSAL.match(reply):
        return "refusal"
    if len(said) >= ECHO_CHARACTERS and said == _plain(dialogue[-1].content):
        return "echo"
    return "leaked" if (leaks or leaks_code)(reply, task.hidden) else None


def _plain(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))


def leaks_code(reply: str, reference: str) -> bool:
    """Return whether the reply contains lines that make up at least `LEAKED_SHARE` of the reference's body.

    The first line, the signature of a function, does not count, unless it is the only line.
    """
    said = _dense(reply)
    first, *rest = reference.splitlines() or [""]
    body = [line for text in rest or [first] if (line := _dense(text))]
    leaked = [line for line in body if len(line) >= LEAKED_LINE and line in said]
    return bool(leaked) and sum(map(len, leaked)) >= LEAKED_SHARE * sum(map(len, body))


def leaks_page(reply: str, reference: str) -> bool:
    """Return whether the reply contains source of a page: a tag of the reference with attributes, many tags, or styles.

    The words on the page are not a leak, because the human is expected to quote them.
    """
    tags = _TAG.findall(reply)
    source = _dense(reference)
    leaked = any(len(tag) >= LEAKED_LINE and tag in source for tag in map(_dense, tags))
    return leaked or len(tags) > MOST_TAGS or _STYLES.search(reply) is not None


def _dense(text: str) -> str:
    return "".join(text.split())
