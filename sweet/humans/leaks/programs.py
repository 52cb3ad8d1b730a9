"""Leaks of a program: which share of the reference's body the human has given in all turns so far.

The body is a sequence of statements and first lines of branches and loops, each a normalised tree
(sweet.humans.leaks.tree). A tree of the reference that the human has given counts with all its parts; of others the
trees inside that were given. What the request shows is no part of the body, and what the agent had written before is
not given by the human who repeats it.
"""

from __future__ import annotations

import functools
from collections.abc import Set
from dataclasses import dataclass

from sweet.humans.leaks.fragments import fragments_of
from sweet.humans.leaks.tree import Node
from sweet.humans.leaks.variants import LONGEST

SHARE = 0.5
"""The share of the body from which it is given away."""
LEAST = 4
"""Parts that must have been given; a smaller body is given away with the first line of its function only."""
_LEAST_PROGRAM = 0.5
"""The share of a text's characters that must be lines of statements for it to be a program without a function."""


@dataclass(frozen=True)
class Program:
    """The body of a reference, as its statements."""

    statements: tuple[Node, ...]

    def given(self, keys: Set[bytes], known: Set[bytes]) -> tuple[int, int]:
        """Return the size of what was given, and of the body without what is `known` anyway."""
        given = total = 0
        waiting = list(self.statements)
        while waiting:
            found = waiting.pop()
            if found.key in known and found.kind not in ("name", "literal"):
                continue
            if found.key in keys:
                given += found.size
                total += found.size
            else:
                total += found.size - sum(child.size for child in found.children)
                waiting.extend(found.children)
        return given, total


@functools.lru_cache(maxsize=256)
def program_of(reference: str) -> Program | None:
    """Return the program of a reference; None if it is none in Python."""
    text = reference[:LONGEST]
    fragments = fragments_of(text, inside=True)
    length = sum(not char.isspace() for char in text)
    read = sum(
        not char.isspace()
        for fragment in fragments
        if fragment.form != "expression" and fragment.marked
        for char in text[fragment.start : fragment.end]
    )
    if read < _LEAST_PROGRAM * length and not any(fragment.form == "definition" for fragment in fragments):
        return None
    body = (fragment.node for fragment in fragments if fragment.node is not None)
    return Program(tuple(found for found in body if found.kind not in ("literal", "name", "import")))
