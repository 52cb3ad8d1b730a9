"""Two texts line by line: what one has, what the other has, and which words of a changed line differ.

A line of the first begins with -, one of the second with +, a common one with a blank; so colours are not needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Literal

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from sweet.view.code import Code
from sweet.view.terminal import count
from sweet.view.text import printable

CONTEXT = 3
"""Common lines that are shown around a change."""
MOST = 2_000_000
"""Pairs of lines that are compared; beyond it all lines between the first change and the last count as changed."""
LONGEST_LINE = 1_000
"""Characters up to which the words of a changed line are compared."""

_STYLES = {"-": "red", "+": "green", " ": "", "@": "dim"}
_WORDS = re.compile(r"\w+|[^\w\s]|\s+")


@dataclass(frozen=True)
class DiffLine:
    """A line: its sign (@ where common lines are left out), its text, and where changed words begin and end."""

    sign: Literal["-", "+", " ", "@"]
    text: str
    changed: tuple[tuple[int, int], ...] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        text = Text(printable(self.text), _STYLES[self.sign])
        if text.plain == self.text:  # else a mark has moved the places
            for start, end in self.changed:
                text.stylize("bold underline", start, end)
        table = Table.grid()
        table.add_column(width=2, no_wrap=True)
        table.add_column(overflow="fold")
        table.add_row(Text("⋯" if self.sign == "@" else self.sign, _STYLES[self.sign]), Code(text))
        yield table


def diff(left: str, right: str) -> list[DiffLine]:
    """Every line of both texts, in the order of `diff -u`."""
    a, b = left.split("\n"), right.split("\n")
    lines: list[DiffLine] = []
    for kind, i, j, k, m in _opcodes(a, b):
        if kind == "equal":
            lines += [DiffLine(" ", line) for line in a[i:j]]
        else:
            lines += _changed(a[i:j], b[k:m])
    return lines


def in_context(lines: list[DiffLine]) -> list[DiffLine]:
    """The same with one line in place of each long stretch of common ones."""
    near = set[int]()
    for place, line in enumerate(lines):
        if line.sign != " ":
            near.update(range(place - CONTEXT, place + CONTEXT + 1))
    shown: list[DiffLine] = []
    skipped = 0
    for place, line in enumerate([*lines, DiffLine("@", "")]):
        if place < len(lines) and place not in near:
            skipped += 1
            continue
        if skipped:
            shown.append(DiffLine("@", count(skipped, "common line")))
        skipped = 0
        shown.append(line)
    return shown[:-1]


def _opcodes(a: list[str], b: list[str]) -> Iterator[tuple[str, int, int, int, int]]:
    """As of SequenceMatcher, which is asked only about what lies between the common beginning and the common end."""
    least = min(len(a), len(b))
    begin = next((n for n in range(least) if a[n] != b[n]), least)
    end = next((n for n in range(least - begin) if a[-1 - n] != b[-1 - n]), least - begin)
    middle_a, middle_b = a[begin : len(a) - end], b[begin : len(b) - end]
    yield "equal", 0, begin, 0, begin
    if len(middle_a) * len(middle_b) > MOST:
        yield "replace", begin, len(a) - end, begin, len(b) - end
    else:
        for kind, i, j, k, m in SequenceMatcher(None, middle_a, middle_b).get_opcodes():
            yield kind, begin + i, begin + j, begin + k, begin + m
    yield "equal", len(a) - end, len(a), len(b) - end, len(b)


def _changed(before: list[str], after: list[str]) -> list[DiffLine]:
    """Lines in place of others: those at the same place of a stretch are compared word by word."""
    old = [DiffLine("-", line) for line in before]
    new = [DiffLine("+", line) for line in after]
    for place, (one, other) in enumerate(zip(before, after, strict=False)):
        if max(len(one), len(other)) <= LONGEST_LINE:
            ours, theirs = _words(one, other)
            old[place], new[place] = replace(old[place], changed=ours), replace(new[place], changed=theirs)
    return old + new


def _words(one: str, other: str) -> tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]:
    """Which parts of two lines differ; none where they have little in common."""
    a, b = _WORDS.findall(one), _WORDS.findall(other)
    matcher = SequenceMatcher(None, a, b)
    if matcher.ratio() < 0.5:
        return (), ()
    ours, theirs = [], []
    for kind, i, j, k, m in matcher.get_opcodes():
        if kind != "equal":
            ours.append((len("".join(a[:i])), len("".join(a[:j]))))
            theirs.append((len("".join(b[:k])), len("".join(b[:m]))))
    return (
        tuple(place for place in ours if place[0] < place[1]),
        tuple(place for place in theirs if place[0] < place[1]),
    )
