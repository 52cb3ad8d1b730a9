"""Read the rows of a run's files once and keep only a few values of each, so that 15,000 dialogues need some megabytes
of memory although their files have hundreds.

A damaged file does not end a report: the rows before the damaged line count, and the problem is recorded. Rows of an
unexpected form are skipped and recorded too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from sweet.errors import InputError
from sweet.results.facts import number
from sweet.runs.jsonl import scan_jsonl
from sweet.scoring.results.evaluation import Values
from sweet.tasks.scores import Metric, Score
from sweet.units import count

Problems = list[str]
V = TypeVar("V")

MOST_NAMES = 12


@dataclass
class Dialogues:
    """How the dialogues of a file ended, and what their humans did wrong."""

    ends: Counter[str] = field(default_factory=Counter)
    human_faults: Counter[str] = field(default_factory=Counter)


@dataclass
class Scores:
    """The rows of one evaluation: values by task, as `sweet compare` pairs them, and how many have each outcome."""

    values: Values
    outcomes: Counter[str] = field(default_factory=Counter)


def dialogues(path: Path, problems: Problems) -> Dialogues:
    result = Dialogues()
    for ended, fault in _rows(path, _end, problems):
        result.ends[ended] += 1
        if fault:
            result.human_faults[fault] += 1
    return result


def scores(path: Path | None, figures: Mapping[str, Metric], problems: Problems) -> Scores:
    """Read scores; empty without a file."""
    result = Scores(Values(figures))
    for score in () if path is None else _rows(path, _score, problems):
        result.outcomes[score.outcome] += 1
        result.values.add(score)
    return result


def steps(path: Path, problems: Problems) -> list[dict[str, float]]:
    """Return the rows of a training log with their numeric metrics; not the dialogues that failed in its steps."""
    return [row for row in _rows(path, _step, problems) if row]


def falling(names: Counter[str]) -> dict[str, int]:
    """Return counted names, the most frequent first; those after the first dozen are counted together as others."""
    sorted_names = sorted(names.items(), key=lambda item: (-item[1], item[0]))
    rest = sum(number for _, number in sorted_names[MOST_NAMES:])
    return dict(sorted_names[:MOST_NAMES]) | ({"others": rest} if rest else {})


def _rows(path: Path, read: Callable[[dict[str, Any]], V], problems: Problems) -> Iterator[V]:
    unexpected = 0
    try:
        for row in scan_jsonl(path):
            try:
                yield read(row)
            except (KeyError, TypeError, ValueError, AttributeError):
                unexpected += 1
    except (InputError, OSError) as error:
        problems.append(f"{error} The rows before it are used.")
    if unexpected:
        problems.append(f"{path.name}: {count(unexpected, 'row')} of an unexpected form, skipped.")


def _end(row: dict[str, Any]) -> tuple[str, str]:
    _name(row["id"])
    return _name(row.get("outcome", "answered")), _name(row.get("fault") or "")


def _score(row: dict[str, Any]) -> Score:
    return Score.model_validate({**row, "reward": number(row.get("reward"))})


def _step(row: dict[str, Any]) -> dict[str, float]:
    if isinstance(row.get("failed"), str):  # the id of a dialogue; of a step it is their number
        return {}
    metrics = {name: value for name, item in row.items() if (value := number(item)) is not None}
    if "step" not in metrics:
        raise ValueError("no step")
    return metrics


def _name(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("not a string")
    return value
