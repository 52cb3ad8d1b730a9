"""Put the dialogues of two rollouts beside each other: A, and B after a training or with other settings.

Dialogues are paired by task; of several of a task the first of A, by sample, meets the first of B, and so on. What is
left over has no partner. A dialogue solves its task if every test passes, as the success rate counts it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from sweet.runs.run import Run
from sweet.scoring.results.evaluation import split_reference
from sweet.view.dialogue_view import DisplayOptions
from sweet.view.records import Records, Summary


class Pair(NamedTuple):
    """Two dialogues of a task."""

    left: Summary
    right: Summary

    @property
    def id(self) -> str:
        return self.left.id

    @property
    def task_id(self) -> str:
        return self.left.task_id

    @property
    def change(self) -> float | None:
        """The reward of B less that of A; None unless both have one."""
        a, b = self.left.reward, self.right.reward
        return None if a is None or b is None else b - a


def solves(summary: Summary) -> bool:
    return summary.reward is not None and summary.reward >= 1


def _changed(pair: Pair, way: int) -> bool:
    return pair.change is not None and pair.change * way > 0


Row = Summary | Pair
"""A row of a table: a dialogue, or a pair of two."""


def left_of(row: Row) -> Summary:
    """Return the dialogue of a row, or that of A in a pair."""
    return row if isinstance(row, Summary) else row.left


CHANGES: dict[str, tuple[str, Callable[[Pair], bool]]] = {
    "solved": ("A fails, B solves", lambda pair: _changed(pair, 1) and solves(pair.right)),
    "lost": ("A solves, B fails", lambda pair: _changed(pair, -1) and solves(pair.left)),
    "better": ("B better", lambda pair: _changed(pair, 1)),
    "worse": ("B worse", lambda pair: _changed(pair, -1)),
    "differs": ("rewards differ", lambda pair: bool(pair.change)),
}
"""The filters of pairs, in words and as a condition."""


def pair_up(left: Iterable[Summary], right: Iterable[Summary]) -> list[Pair]:
    """Return the pairs in the order of the left ones."""
    partners: dict[str, list[Summary]] = {}
    for summary in sorted(right, key=lambda summary: summary.sample):
        partners.setdefault(summary.task_id, []).append(summary)
    listed = list(left)
    pairs: dict[str, Pair] = {}
    for summary in sorted(listed, key=lambda summary: summary.sample):
        if others := partners.get(summary.task_id):
            pairs[summary.id] = Pair(summary, others.pop(0))
    return [pairs[summary.id] for summary in listed if summary.id in pairs]


@dataclass(frozen=True)
class Side:
    """One of two rollouts that are compared, and how its dialogues are shown."""

    records: Records
    options: DisplayOptions

    @classmethod
    def of(cls, run: Run, rollouts: str | None, *, draw: bool) -> Side:
        """Return rollouts of a run by their id; by default as `Records` chooses.

        Raises:
            UsageError: they do not exist.
        """
        records = Records(run, rollouts)
        return cls(records, DisplayOptions.of(records, draw=draw))

    @property
    def name(self) -> str:
        """Its run and artifact, the agent that played, on which tasks, and that they are not finished or scored."""
        records = self.records
        about = ", ".join(filter(None, (records.played_by, "" if records.scores else records.state)))
        return f"{records.run.name}:{records.rollouts.id}" + (f" ({about})" if about else "")


def open_side(run: Run, reference: str, *, draw: bool) -> Side:
    """Return the rollouts that are called `rollouts-1` of this run, RUN or RUN:rollouts-1.

    Raises:
        UsageError: they do not exist.
    """
    if run.manifest().artifact(reference) is not None or reference.startswith("rollouts-"):
        return Side.of(run, reference, draw=draw)
    path, id = split_reference(reference)
    return Side.of(Run.open(path), id, draw=draw)
