"""How much of a reference a program recovers, by a measure of its own, independent of the detector of leaks.

Both are cut into tokens of the body: comments, blanks, brackets and commas do not count, quotes are alike, and names
that the program itself gives to values are all one. The share is the longest common subsequence of these tokens, over
those of the reference. Two programs for different requests share some tokens by chance, so a share says something from
`RECOVERED` on; `benchmarks/extraction.py` prints the share of references of other tasks beside it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from sweet.rollouts.extraction.decoding import words_of

RECOVERED = 0.7
"""Share from which a program counts as that of the reference, whether or not it passes its tests."""
MOST_TOKENS = 1500
"""Tokens of a program that are compared; the time grows with the product of both numbers."""

_IGNORED = frozenset("()[]{},.;:")


def share_recovered(reference: str, program: str) -> float:
    """Return the share of the reference's tokens, from 0 to 1, that the program has in the same order."""
    wanted, found = _tokens(reference), _tokens(program)
    if not wanted or not found:
        return 0.0
    row = [0] * (len(found) + 1)
    for one in wanted:
        before = 0
        for i, other in enumerate(found):
            before, row[i + 1] = row[i + 1], before + 1 if one == other else max(row[i + 1], row[i])
    return row[-1] / len(wanted)


def _tokens(program: str) -> list[str]:
    """Return the tokens of a program's body; what stands before and in the line of its `def` is no part of it."""
    lines = program.split("\n")
    start = next((i + 1 for i, line in enumerate(lines) if line.lstrip().startswith("def ")), 0)
    body = lines[start:] if any(map(str.strip, lines[start:])) else [lines[0].partition("):")[2]]  # in one line
    words = [word for line in body for word in _words(line)][:MOST_TOKENS]
    own = {word for word, after in itertools.pairwise(words) if after == "=" and word.isidentifier()}
    own |= {word for before, word in itertools.pairwise(words) if before == "for"}
    return ["name" if word in own else word for word in words if word not in _IGNORED]


def _words(line: str) -> Iterator[str]:
    text = line.strip()
    if text[:1] in ("'", '"') and text[-1:] in ("'", '"'):
        return  # a docstring
    for word in words_of(text):
        if word == "#":
            return
        yield f'"{word[1:-1]}"' if word[0] == "'" and len(word) > 1 else word
