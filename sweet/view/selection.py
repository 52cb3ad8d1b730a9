"""Which trajectories are shown, and in what order."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from sweet.view.records import Summary

SortKey = Literal["order", "reward", "turns", "tokens", "seconds", "outcome", "task", "fault"]
SORT_KEYS: tuple[SortKey, ...] = get_args(SortKey)
"""What a table may be sorted by; `order` is that of the file."""


@dataclass(frozen=True)
class Filter:
    """What a trajectory must be like to be shown. As it is made, everything passes.

    Attributes:
        outcomes: it scored or ended in one of these ways; any where there is none.
        task: its task's id; * stands for anything.
        reward_below, reward_above: bounds that its reward lies within. One without a reward passes neither.
        faults: it has a fault.
        ids: it is one of these: what a search found, or what is bookmarked.
    """

    outcomes: frozenset[str] = frozenset()
    task: str | None = None
    reward_below: float | None = None
    reward_above: float | None = None
    faults: bool = False
    ids: frozenset[str] | None = None


def passes(summary: Summary, filter: Filter) -> bool:
    """Whether a trajectory passes the filter."""
    if filter.outcomes and not {summary.outcome, summary.ended} & filter.outcomes:
        return False
    if filter.task is not None and not fnmatch.fnmatchcase(summary.task_id, filter.task):
        return False
    if filter.faults and not summary.fault:
        return False
    if filter.ids is not None and summary.id not in filter.ids:
        return False
    return _within(summary.reward, filter.reward_below, filter.reward_above)


def _within(reward: float | None, below: float | None, above: float | None) -> bool:
    if below is None and above is None:
        return True
    return reward is not None and (below is None or reward < below) and (above is None or reward > above)


def failed(summary: Summary) -> bool:
    """Whether it was scored, and its answer did not pass."""
    return summary.outcome not in ("passed", None)


def in_order(summaries: Iterable[Summary], key: SortKey, reverse: bool = False) -> list[Summary]:
    """Sorted; what is not known comes last either way."""
    listed = list(summaries)
    if key == "order":
        return listed[::-1] if reverse else listed
    value = _VALUES[key]
    known = [summary for summary in listed if value(summary) is not None]
    unknown = [summary for summary in listed if value(summary) is None]
    return [*sorted(known, key=value, reverse=reverse), *unknown]


_VALUES: dict[SortKey, Callable[[Summary], Any]] = {
    "reward": lambda summary: summary.reward,
    "turns": lambda summary: summary.turns,
    "tokens": lambda summary: summary.tokens,
    "seconds": lambda summary: summary.seconds,
    "outcome": lambda summary: summary.outcome or summary.ended,
    "task": lambda summary: summary.task_id,
    "fault": lambda summary: summary.fault or None,
}
