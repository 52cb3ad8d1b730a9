"""The search for leaks in a process of its own: with many dialogues at once it is most of the work of a rollout.

The process keeps what it has read of each dialogue (sweet.humans.leaks.find), and has limits of time and memory
(sweet.tasks.code.reader). It imports the standard library only.
"""

from __future__ import annotations

from typing import NamedTuple

from sweet.humans.leaks.find import is_leak
from sweet.tasks.code.reading import Reply, main

CPU_SECONDS, MEMORY_BYTES = 10.0, 1 << 30
"""Limits of a search. It takes a millisecond for a usual reply."""


class _Message(NamedTuple):
    role: str
    content: str


def search(references: list[str], request: str, roles: list[str], contents: list[str], reply: str) -> Reply:
    """Return whether the reply to a dialogue gives one of the references away (`is_leak`)."""
    said = list(map(_Message, roles, contents))
    return any(is_leak(reference, request, said, reply) for reference in references), []


def serve() -> None:
    """Serve requests."""
    main({"search": search}, CPU_SECONDS, MEMORY_BYTES)
