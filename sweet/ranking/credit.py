"""How well a judge agrees with the credit that tasks themselves know of replies (`sweet.judges.control`).

Two metrics describe a judge: the mean advantage that it gives to each kind of reply, and its agreement: of two
different replies to one observation with different credit, how often it prefers the better one (a tie counts half).
Confidence intervals are clustered by task.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from statistics import fmean

from sweet.judges.control import CreditScorer
from sweet.learn.rows import CandidateRow
from sweet.ranking.metrics import CreditMetrics, KindAgreement, ReplyKindMetrics
from sweet.stages.intervals import clustered_mean
from sweet.tasks.base import Task


@dataclass
class _ReplyKind:
    """The replies of one kind.

    Attributes:
        value: their credit.
        advantages: one for each reply.
        tasks: the task of each reply, by id.
        turns: how many turns have such replies.
    """

    value: float
    advantages: list[float] = field(default_factory=list)
    tasks: list[str] = field(default_factory=list)
    turns: int = 0

    def metrics(self) -> ReplyKindMetrics:
        has_interval = len(set(self.tasks)) > 1 and min(self.advantages) < max(self.advantages)
        mean = clustered_mean(self.advantages, self.tasks) if has_interval else None
        return ReplyKindMetrics(
            turns=self.turns,
            replies=len(self.advantages),
            mean_advantage=round(fmean(self.advantages), 6),
            ci_low=round(mean.low, 6) if mean else None,
            ci_high=round(mean.high, 6) if mean else None,
        )


@dataclass
class _Couples:
    """Couples of replies: for each, how right its order is (0, 0.5 or 1), and its task."""

    right: list[float] = field(default_factory=list)
    tasks: list[str] = field(default_factory=list)


def credit_metrics(rows: Iterable[CandidateRow], tasks: Mapping[str, Task], scorer: CreditScorer) -> CreditMetrics:
    """Return the metrics of a ranking against the tasks' credit; empty where no reply has any.

    Args:
        tasks: by id.
    """
    kinds: dict[str, _ReplyKind] = {}
    couples: dict[str, _Couples] = {}
    for row in rows:
        texts = [candidate.whole for candidate in row.candidates]
        replies = [candidate.reply for candidate in row.candidates]
        credits = scorer.score(tasks[row.task_id], row.observation, replies)
        advantages = [candidate.advantage for candidate in row.candidates]
        judged = [(c, advantage) for c, advantage in zip(credits, advantages, strict=True) if c is not None]
        for credit, advantage in judged:
            kind = kinds.setdefault(credit.kind, _ReplyKind(credit.value))
            kind.advantages.append(advantage)
            kind.tasks.append(row.task_id)
        for name in {credit.kind for credit, _ in judged}:
            kinds[name].turns += 1
        different = {text: (c, advantage) for text, c, advantage in zip(texts, credits, advantages, strict=True) if c}
        for couple in combinations(different.values(), 2):
            (worse, lower), (better, upper) = sorted(couple, key=lambda judged: judged[0].value)
            if better.value > worse.value:
                of_kinds = couples.setdefault(f"{better.kind}>{worse.kind}", _Couples())
                of_kinds.right.append(0.5 if upper == lower else float(upper > lower))
                of_kinds.tasks.append(row.task_id)
    if not kinds:
        return CreditMetrics()
    best_first = sorted(kinds.items(), key=lambda item: (-item[1].value, item[0]))
    return _agreement({name: kind.metrics() for name, kind in best_first}, couples)


def _agreement(credit: dict[str, ReplyKindMetrics], couples: Mapping[str, _Couples]) -> CreditMetrics:
    right = [value for of_kinds in couples.values() for value in of_kinds.right]
    if not right:
        return CreditMetrics(credit=credit, couples=0)
    tasks = [task for of_kinds in couples.values() for task in of_kinds.tasks]
    by_kind = {
        name: KindAgreement(share=round(fmean(of_kinds.right), 6), couples=len(of_kinds.right))
        for name, of_kinds in sorted(couples.items())
    }
    agreement = clustered_mean(right, tasks).rate()
    return CreditMetrics(credit=credit, couples=len(right), agreement=agreement, agreement_by_kind=by_kind)
