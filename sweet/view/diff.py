"""Line diff of two texts, with the words that differ in a changed line.

A line of the first text begins with -, one of the second with +, a common one with a blank; so no colours are needed.
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

from sweet.units import count
from sweet.view.code import Code
from sweet.view.text import printable

CONTEXT = 3
"""Common lines that are shown around a change."""
COMPARED_PAIRS = 2_000_000
"""Most pairs of lines to compare; in longer texts all lines between the first and the last change count as changed."""
LONGEST_LINE = 1_000
"""Characters up to which the words of a changed line are compared."""

_STYLES = {"-": "red", "+": "green", " ": "", "@": "dim"}
_WORDS = re.compile(r"\w+|[^\w\s]|\s+")


@dataclass(frozen=True)
class DiffLine:
    """A line: its sign (@ for omitted common lines), its text, and the ranges of changed words."""

    sign: Literal["-", "+", " ", "@"]
    text: str
    changed: tuple[tuple[int, int], ...] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        text = Text(printable(self.text), _STYLES[self.sign])
        if text.plain == self.text:  # else inserted marks have shifted the ranges
            for start, end in self.changed:
                text.stylize("bold underline", start, end)
        table = Table.grid()
        table.add_column(width=2, no_wrap=True)
        table.add_column(overflow="fold")
        table.add_row(Text("⋯" if self.sign == "@" else self.sign, _STYLES[self.sign]), Code(text))
        yield table


def diff(left: str, right: str) -> list[DiffLine]:
    """Return every line of both texts in the order of `diff -u`."""
    a, b = left.split("\n"), right.split("\n")
    lines: list[DiffLine] = []
    for kind, i, j, k, m in _opcodes(a, b):
        if kind == "equal":
            lines += [DiffLine(" ", line) for line in a[i:j]]
        else:
            lines += _changed(a[i:j], b[k:m])
    return lines


def in_context(lines: list[DiffLine]) -> list[DiffLine]:
    """Replace each long sequence of common lines by one line."""
    near = set[int]()
    for index, line in enumerate(lines):
        if line.sign != " ":
            near.update(range(index - CONTEXT, index + CONTEXT + 1))
    shown: list[DiffLine] = []
    skipped = 0
    for index, line in enumerate([*lines, DiffLine("@", "")]):
        if index < len(lines) and index not in near:
            skipped += 1
            continue
        if skipped:
            shown.append(DiffLine("@", count(skipped, "common line")))
        skipped = 0
        shown.append(line)
    return shown[:-1]


def _opcodes(a: list[str], b: list[str]) -> Iterator[tuple[str, int, int, int, int]]:
    """Yield opcodes as SequenceMatcher does, which gets only the lines between the common prefix and suffix."""
    least = min(len(a), len(b))
    begin = next((n for n in range(least) if a[n] != b[n]), least)
    end = next((n for n in range(least - begin) if a[-1 - n] != b[-1 - n]), least - begin)
    middle_a, middle_b = a[begin : len(a) - end], b[begin : len(b) - end]
    yield "equal", 0, begin, 0, begin
    if len(middle_a) * len(middle_b) > COMPARED_PAIRS:
        yield "replace", begin, len(a) - end, begin, len(b) - end
    else:
        for kind, i, j, k, m in SequenceMatcher(None, middle_a, middle_b).get_opcodes():
            yield kind, begin + i, begin + j, begin + k, begin + m
    yield "equal", len(a) - end, len(a), len(b) - end, len(b)


def _changed(before: list[str], after: list[str]) -> list[DiffLine]:
    """Return replaced lines. Lines at the same index of both sides are compared word by word."""
    old = [DiffLine("-", line) for line in before]
    new = [DiffLine("+", line) for line in after]
    for index, (one, other) in enumerate(zip(before, after, strict=False)):
        if max(len(one), len(other)) <= LONGEST_LINE:
            left, right = _words(one, other)
            old[index], new[index] = replace(old[index], changed=left), replace(new[index], changed=right)
    return old + new


def _words(one: str, other: str) -> tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]:
    """Return the ranges in which two lines differ; none if they have little in common."""
    a, b = _WORDS.findall(one), _WORDS.findall(other)
    matcher = SequenceMatcher(None, a, b)
    if matcher.ratio() < 0.5:
        return (), ()
    left, right = [], []
    for kind, i, j, k, m in matcher.get_opcodes():
        if kind != "equal":
            left.append((len("".join(a[:i])), len("".join(a[:j]))))
            right.append((len("".join(b[:k])), len("".join(b[:m]))))
    return (
        tuple(span for span in left if span[0] < span[1]),
        tuple(span for span in right if span[0] < span[1]),
    )
