"""Leaks of a reference that is neither Python nor a page (a query, a formula, a text): its lines, copied.

A line that is long enough not to be written by chance is given away if the human has written it, whatever the white
space. Words of the lines in another order are no leak.
"""

from __future__ import annotations

from collections.abc import Sequence

from sweet.humans.leaks.base import LONGEST_EXCERPT, Leak
from sweet.humans.leaks.variants import LONGEST, variants_of
from sweet.tasks.base import Message

LEAST_LINE = 16
"""Characters, without white space, from which a line is too long to be written by chance."""
SHARE = 0.5
"""The share of the reference from which it is given away."""


def find(reference: str, request: str, dialogue: Sequence[Message], reply: str) -> Leak | None:
    """Return the leak of a reference by its lines; the arguments are those of `sweet.humans.leaks.find.find_leak`."""
    shown = dense(request + "\n" + "\n".join(message.content for message in dialogue if message.role == "assistant"))
    body = [line for text in reference[:LONGEST].splitlines() if (line := dense(text))]
    if len(body) > 1 and body[0] in shown:
        body = body[1:]
    earlier = [message.content for message in dialogue if message.role == "user" and message.content != request]
    before = [dense(variant) for text in earlier for _, variant in variants_of(text)]
    now = [dense(variant) for _, variant in variants_of(reply)]
    open_lines = [line for line in body if len(line) >= LEAST_LINE and line not in shown]
    had = [line for line in open_lines if any(line in said for said in before)]
    given = [line for line in open_lines if line in had or any(line in said for said in now)]
    size, total = sum(map(len, given)), sum(map(len, body))
    if len(given) == len(had) or size < SHARE * total:
        return None
    return Leak("text", size / total, next(line for line in given if line not in had)[:LONGEST_EXCERPT])


def dense(text: str) -> str:
    """Return a text without white space."""
    return "".join(text.split())
