"""Read the rows of a run's files once and keep only a few values of each, so that 15,000 dialogues need some megabytes
of memory although their files have hundreds.

A damaged file does not end a report: the rows before the damaged line count, and the problem is recorded. Rows of an
unexpected form are skipped and recorded too.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sweet.errors import InputError
from sweet.results.facts import number
from sweet.runs.jsonl import scan_jsonl
from sweet.scoring.results.evaluation import Values
from sweet.tasks.scores import Metric, Score
from sweet.tasks.trajectory import FAULTS

Problems = list[str]


@dataclass(slots=True)
class Dialogue:
    """The values of one dialogue. `reward` is the one of its row, if it has one."""

    id: str
    task: str
    ended: str
    human_fault: str
    turns: int
    tokens: int | None
    seconds: float | None
    reward: float | None

    @property
    def fault(self) -> bool:
        return self.ended in FAULTS


@dataclass(slots=True)
class Scored:
    reward: float | None
    outcome: str


@dataclass
class Scores:
    """The rows of one evaluation: values by task, as `sweet compare` pairs them, and by the trajectory's id."""

    values: Values
    by_id: dict[str, Scored] = field(default_factory=dict)


@dataclass
class TurnAdvantages:
    """The advantages at one turn, over dialogues."""

    advantages: array[float] = field(default_factory=lambda: array("d"))
    taken: array[float] = field(default_factory=lambda: array("d"))
    spreads: array[float] = field(default_factory=lambda: array("d"))


@dataclass
class Ranked:
    """The content of a file of candidates: advantages by turn of the agent, from 1; ids of dialogues; bases of the
    advantages."""

    turns: dict[int, TurnAdvantages] = field(default_factory=dict)
    trajectories: set[str] = field(default_factory=set)
    bases: set[str] = field(default_factory=set)


def dialogues(path: Path, problems: Problems) -> list[Dialogue]:
    return [row for row in _rows(path, _dialogue, problems) if row is not None]


def scores(path: Path | None, figures: Mapping[str, Metric], problems: Problems) -> Scores:
    """Read scores; empty without a file."""
    result = Scores(Values(figures))
    if path is None:
        return result
    for score in _rows(path, _score, problems):
        result.by_id[score.id] = Scored(score.reward, score.outcome)
        result.values.add(score)
    return result


def ranked(path: Path, problems: Problems) -> Ranked:
    result = Ranked()
    for turn, trajectory, basis, advantages, taken in _rows(path, _candidates, problems):
        of_turn = result.turns.setdefault(turn, TurnAdvantages())
        of_turn.advantages.extend(advantages)
        of_turn.spreads.append(max(advantages) - min(advantages))
        if taken is not None:
            of_turn.taken.append(taken)
        result.trajectories.add(trajectory)
        result.bases.add(basis)
    return result


def steps(path: Path, problems: Problems) -> list[dict[str, float]]:
    """Return the rows of a training log with their numeric metrics; not the dialogues that failed in its steps."""
    return [row for row in _rows(path, _step, problems) if row]


def _rows(path: Path, read: Any, problems: Problems) -> Iterator[Any]:
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
        rows = "1 row" if unexpected == 1 else f"{unexpected:,} rows"
        problems.append(f"{path.name}: {rows} of an unexpected form, skipped.")


def _dialogue(row: dict[str, Any]) -> Dialogue:
    usage = row.get("usage") or {}
    return Dialogue(
        id=_name(row["id"]),
        task=_name(row["task"]["id"]),
        ended=_name(row.get("outcome", "answered")),
        human_fault=_name(row.get("fault") or ""),
        turns=sum(turn["role"] == "assistant" for turn in row["dialogue_history"]),
        tokens=int(number(usage.get("completion_tokens")) or 0) or None,
        seconds=number(usage.get("seconds")) or None,
        reward=number(row.get("reward")),
    )


def _score(row: dict[str, Any]) -> Score:
    return Score.model_validate({**row, "reward": number(row.get("reward"))})


def _candidates(row: dict[str, Any]) -> tuple[int, str, str, list[float], float | None]:
    advantages = [value for c in row["candidates"] if (value := number(c["advantage"])) is not None]
    if not advantages:
        raise ValueError("no candidate was judged")
    before = sum(message["role"] == "assistant" for message in row["observation"])
    taken = number((row.get("taken") or {}).get("advantage"))
    return before + 1, _name(row["trajectory_id"]), _name(row.get("basis", "critic")), advantages, taken


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
