"""What a model that plays the human does wrong, found in its reply by rules that are written down here.

A dialogue with such a reply says nothing about the agent, so it ends and is counted apart. The rules are meant to be
right where they speak: a human may quote a number or a short expression, and may repeat a word of the question.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from sweet.tasks.base import Message, Task
from sweet.tasks.trajectory import HumanFault

ECHO_CHARACTERS = 20
"""A shorter reply may well be what was asked ("the name?" - "the name")."""
LEAKED_LINE = 16
"""Characters, blanks aside, of a line of code that nobody writes by chance."""
LEAKED_SHARE = 0.5
"""A reply that holds so much of the reference's body gives it away."""
MOST_TAGS = 3
"""Of HTML: who speaks of a page may name a tag; more of them are a piece of a page."""

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
    """What is wrong with the human's `reply` to `dialogue`, whose last message is the agent's, if something is.

    `leaks` says whether a reply gives a reference away; without it `leaks_code` does.
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
    """Whether lines of the reference's body stand in the reply and make up much of it. The first line, the signature
    of a function, may be told; a single line is all there is."""
    said = _dense(reply)
    first, *rest = reference.splitlines() or [""]
    body = [line for text in rest or [first] if (line := _dense(text))]
    told = [line for line in body if len(line) >= LEAKED_LINE and line in said]
    return bool(told) and sum(map(len, told)) >= LEAKED_SHARE * sum(map(len, body))


def leaks_page(reply: str, reference: str) -> bool:
    """Whether the reply tells a page by its source: a tag of the reference with its attributes, many tags, styles.

    The words on the page are no leak: the human is to quote them.
    """
    tags = _TAG.findall(reply)
    source = _dense(reference)
    told = [tag for tag in map(_dense, tags) if len(tag) >= LEAKED_LINE and tag in source]
    return bool(told) or len(tags) > MOST_TAGS or _STYLES.search(reply) is not None


def _dense(text: str) -> str:
    return "".join(text.split())
