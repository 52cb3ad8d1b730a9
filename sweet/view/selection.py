"""Filter and sort trajectories."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from sweet.view.records import Summary

SortKey = Literal["order", "reward", "turns", "tokens", "seconds", "outcome", "task", "fault", "request"]
SORT_KEYS: tuple[SortKey, ...] = get_args(SortKey)
"""The keys to sort a table by; `order` is the order of the file."""


@dataclass(frozen=True)
class Filter:
    """Conditions on a trajectory. Without any, every trajectory passes.

    Attributes:
        outcomes: its score or its ending is one of these; any if empty.
        task: pattern of its task's id; * matches anything.
        reward_below, reward_above: exclusive bounds of its reward. A trajectory without a reward passes neither.
        faults: it has a fault.
        ids: its id is one of these: the result of a search, or the bookmarks.
    """

    outcomes: frozenset[str] = frozenset()
    task: str | None = None
    reward_below: float | None = None
    reward_above: float | None = None
    faults: bool = False
    ids: frozenset[str] | None = None


def passes(summary: Summary, filter: Filter) -> bool:
    """Return whether a trajectory passes the filter."""
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
    """Return whether the trajectory was scored and did not pass."""
    return summary.outcome not in ("passed", None)


def sort_summaries(summaries: Iterable[Summary], key: SortKey, reverse: bool = False) -> list[Summary]:
    """Return sorted summaries. Those without a value come last in both directions."""
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
    "request": lambda summary: summary.request or None,
}
