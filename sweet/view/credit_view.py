"""Show the critic's judgements of a turn: advantages as bars, candidates, and the pairs made from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from rich.table import Table
from rich.text import Text

from sweet.learn.rows import Basis, Candidate, Pair
from sweet.tasks.trajectory import Choice
from sweet.units import count
from sweet.view.parts import Part
from sweet.view.records import Record
from sweet.view.text import printable, signed

BASES: dict[Basis, str] = {
    "critic": "by the critic, nats a token",
    "summed": "by the critic, nats",
    "regression": "by the regression head",
    "expected": "by a language model, mean points",
    "number": "by a language model, points",
    "oracle": "by the task's own knowledge",
    "random": "drawn at random",
    "untrained": "by the untrained critic, nats a token",
    "function": "by a Python function",
    "lookahead": "by what comes next, nats",
}
TAKEN = "●"
BAR = 4
"""Cells of a bar on either side of zero."""

Abbreviate = Callable[[str], str]
"""Shortens a reply for a list: unchanged, or with its page replaced by a name."""


def bar(value: float, scale: float) -> Text:
    """Return an advantage as a number and a bar: right of the line if positive, left of it if negative."""
    halves = round(2 * BAR * min(abs(value) / scale, 1.0)) if scale > 0 else 0
    full, half = "█" * (halves // 2), halves % 2
    left = f"{'▐' * half}{full}" if value < 0 else ""
    right = f"{full}{'▌' * half}" if value > 0 else ""
    text = Text(f"{signed(value)} ").append(f"{left:>{BAR}}", "red").append("│", "dim")
    return text.append(f"{right:<{BAR}}", "green")


def choice_note(choice: Choice) -> str:
    """Return how a reply was chosen among several: their number, its advantage and the range of all."""
    advantages = [advantage for advantage in choice.advantages if advantage is not None]
    note = f"best of {len(choice.advantages)}"
    if choice.advantage is None:
        return f"{note}: none was judged, the first was taken"
    return f"{note}: {signed(choice.advantage)} of {signed(min(advantages))} to {signed(max(advantages))}"


def rewards_note(rewards: Mapping[str, float]) -> str:
    """Return rewards of turns by name."""
    return ", ".join(f"{name} {signed(value)}" for name, value in rewards.items())


def candidates_part(record: Record, index: int, abbreviate: Abbreviate, note: str) -> list[Part]:
    """Return the candidates of a turn, best first, with the reply that was given marked; empty without candidates."""
    row = record.ranked.get(index)
    if row is None or not row.candidates:
        return []
    notes = [BASES[row.basis]]
    if row.unjudged:
        notes.append(f"{row.unjudged} not judged")
    if note:
        notes.append(note)
    title = Text(count(len(row.candidates), "candidate"), style="blue")
    characters = sum(len(candidate.whole) for candidate in row.candidates)
    body = partial(_candidates, record, index, abbreviate)
    return [Part("candidates", title, body, index, " · ".join(notes), characters, inner=True)]


@dataclass(frozen=True)
class Distinct:
    """Equal candidates of a turn.

    Attributes:
        times: how many there are; 0 for the reply that was given, if it is not a candidate.
        taken: it is the reply that was given.
    """

    candidate: Candidate
    times: int
    taken: bool

    @property
    def notes(self) -> str:
        """What is to be said behind its text."""
        cut = "" if self.candidate.ended else " … cut at the token limit"
        return cut + ("" if self.times else " (given, not a candidate)")


def distinct_candidates(record: Record, index: int) -> list[Distinct]:
    """Return the candidates of a turn, best first, equal ones as one, with the reply that was given."""
    row = record.ranked.get(index)
    if row is None or not row.candidates:
        return []
    times = Counter(candidate.whole for candidate in row.candidates)
    by_text = {candidate.whole: candidate for candidate in row.candidates}
    taken = None if row.taken is None else row.taken.whole
    if row.taken is not None:
        by_text.setdefault(row.taken.whole, row.taken)
    best_first = sorted(by_text.values(), key=lambda candidate: candidate.advantage, reverse=True)
    return [Distinct(candidate, times[candidate.whole], candidate.whole == taken) for candidate in best_first]


def _candidates(record: Record, index: int, abbreviate: Abbreviate) -> Table:
    """Return a row for each candidate: a mark for the given reply, its advantage, how many are equal, its text."""
    table = grid(4)
    for distinct in distinct_candidates(record, index):
        text = Text(printable(abbreviate(distinct.candidate.whole)), overflow="fold").append(distinct.notes, "dim")
        mark, times = TAKEN if distinct.taken else " ", f"{distinct.times}×" if distinct.times > 1 else ""
        table.add_row(Text(mark, "bold"), bar(distinct.candidate.advantage, record.scale), Text(times, "dim"), text)
    return table


def pairs_part(record: Record, index: int, abbreviate: Abbreviate, note: str) -> list[Part]:
    """Return the pairs made from a turn's candidates; empty without pairs."""
    pairs = record.pairs.get(index, [])
    if not pairs:
        return []
    characters = sum(len(side.whole) for pair in pairs for side in pair.sides.values())
    body = partial(_pairs, pairs, abbreviate)
    return [Part("pairs", Text(pairs_title(pairs), style="blue"), body, index, note, characters, inner=True)]


def pairs_title(pairs: Sequence[Pair]) -> str:
    """Return the title of a turn's pairs, of which there are some: `2 pairs`, or `kept without a pair`."""
    return count(len(pairs), "pair") if pairs[0].rejected is not None else "kept without a pair"


def _pairs(pairs: Sequence[Pair], abbreviate: Abbreviate) -> Table:
    table = grid(3)
    for name, reply in (side for pair in pairs for side in pair.sides.items()):
        content = Text(printable(abbreviate(reply.whole)), overflow="fold")
        style = "green" if name == "chosen" else "red"
        table.add_row(Text(f"{name:8}", style=style), signed(reply.advantage), content)
    return table


def grid(columns: int) -> Table:
    """Return a grid whose last column takes the remaining width."""
    table = Table.grid(padding=(0, 1, 0, 0))
    for _ in range(columns - 1):
        table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    return table
