"""What a task itself knows of replies, and how a judge of replies does against it.

Two figures stand for a judge: the mean advantage that it gives to each kind of reply, and its agreement: of two
different replies to one observation that the task tells apart, how often it prefers the better one (a tie counts half).
Intervals are over tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from statistics import fmean
from typing import Any

from sweet.runs.manifest import Artifact
from sweet.runs.run import Run
from sweet.scoring.results.statistics import clustered_mean
from sweet.stages.rows import CandidateRow
from sweet.tasks.base import Credit, Message, Task
from sweet.tasks.kind import TaskKind
from sweet.tasks.markers import MAX_TURNS
from sweet.tasks.registry import task_kind


@dataclass(frozen=True)
class Knowledge:
    """What the tasks of a kind know of replies in dialogues of at most so many turns of the agent."""

    kind: TaskKind
    max_turns: int

    @classmethod
    def about(cls, run: Run, rollouts: Artifact) -> Knowledge:
        """Of replies in these dialogues."""
        limit = rollouts.meta.get("max_turns")
        return cls(task_kind(run.manifest().task), limit if isinstance(limit, int) else MAX_TURNS)

    def of(self, task: Task, observation: Sequence[Message], replies: Sequence[str]) -> list[Credit | None]:
        """Of raw replies to an observation, in order; None where the task does not know."""
        last = sum(message.role == "assistant" for message in observation) + 1 >= self.max_turns
        known = {reply: self.kind.credit(task, observation, reply, last=last) for reply in set(replies)}
        return [known[reply] for reply in replies]


@dataclass
class _OfKind:
    """The replies of one kind: advantages with their tasks, and the turns at which there are such."""

    value: float
    advantages: list[float] = field(default_factory=list)
    tasks: list[str] = field(default_factory=list)
    turns: int = 0

    def told(self) -> dict[str, Any]:
        spread = len(set(self.tasks)) > 1 and min(self.advantages) < max(self.advantages)
        mean = clustered_mean(self.advantages, self.tasks) if spread else None
        return {
            "turns": self.turns,
            "replies": len(self.advantages),
            "mean_advantage": round(fmean(self.advantages), 6),
            "ci_low": round(mean.low, 6) if mean else None,
            "ci_high": round(mean.high, 6) if mean else None,
        }


@dataclass
class _Couples:
    """Couples of replies: how rightly each was ordered, from 0 to 1, and its task."""

    right: list[float] = field(default_factory=list)
    tasks: list[str] = field(default_factory=list)


def credit_figures(rows: Iterable[CandidateRow], tasks: Mapping[str, Task], knowledge: Knowledge) -> dict[str, Any]:
    """The figures, for `metrics`; none where nothing is known of any reply.

    Args:
        tasks: by id.
    """
    kinds: dict[str, _OfKind] = {}
    couples: dict[str, _Couples] = {}
    for row in rows:
        texts = [candidate.text for candidate in row.candidates]
        known = knowledge.of(tasks[row.task_id], row.observation, texts)
        judged = [(c, one.advantage) for c, one in zip(known, row.candidates, strict=True) if c is not None]
        for credit, advantage in judged:
            of_kind = kinds.setdefault(credit.kind, _OfKind(credit.value))
            of_kind.advantages.append(advantage)
            of_kind.tasks.append(row.task_id)
        for kind in {credit.kind for credit, _ in judged}:
            kinds[kind].turns += 1
        different = {text: (c, one.advantage) for text, c, one in zip(texts, known, row.candidates, strict=True) if c}
        for couple in combinations(different.values(), 2):
            (worse, lower), (better, upper) = sorted(couple, key=lambda judged: judged[0].value)
            if better.value > worse.value:
                found = couples.setdefault(f"{better.kind}>{worse.kind}", _Couples())
                found.right.append(0.5 if upper == lower else float(upper > lower))
                found.tasks.append(row.task_id)
    if not kinds:
        return {}
    best_first = sorted(kinds.items(), key=lambda item: (-item[1].value, item[0]))
    return {"credit": {kind: found.told() for kind, found in best_first}} | _agreement(couples)


def _agreement(couples: Mapping[str, _Couples]) -> dict[str, Any]:
    right = [value for found in couples.values() for value in found.right]
    if not right:
        return {"couples": 0}
    tasks = [task for found in couples.values() for task in found.tasks]
    by_kind = {
        name: {"share": round(fmean(found.right), 6), "couples": len(found.right)}
        for name, found in sorted(couples.items())
    }
    return {"couples": len(right)} | clustered_mean(right, tasks).told("agreement") | {"agreement_by_kind": by_kind}
