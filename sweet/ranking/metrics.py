"""The metrics of `sweet rank`, and the work that its plan counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Annotated

from sweet.learn.rows import CandidateRow
from sweet.stages.failures import Failures
from sweet.stages.record import OMITTED_IF_NONE, Flat, Rate, Record


class ReplyKindMetrics(Record):
    """The replies of one kind, as the tasks classify them."""

    turns: int
    """turns with such replies"""
    replies: int
    """candidates of the kind"""
    mean_advantage: float
    """mean of their advantages"""
    ci_low: float | None
    """lower end of its 95 % interval; null where all are of one task or equal"""
    ci_high: float | None
    """upper end"""


class KindAgreement(Record):
    """Agreement of the judge with the tasks on couples of two kinds."""

    share: float
    """share of the couples that the judge orders as the tasks do, a tie counting half"""
    couples: int
    """couples of these kinds"""


class CreditMetrics(Record):
    """A ranking against the credit that tasks know (sweet.ranking.credit); its keys are absent where they know none."""

    credit: dict[str, ReplyKindMetrics] | None = None
    """where the tasks know what replies are worth: by kind of reply its turns, replies and mean advantage with
    interval, the best kind first"""
    couples: int | None = None
    """couples of different replies at a turn that the tasks tell apart"""
    agreement: Rate | None = None
    """share of them that the judge orders as the tasks do, a tie counting half, with interval"""
    agreement_by_kind: dict[str, KindAgreement] | None = None
    """the same by the two kinds, the better first: share and couples"""


class RankMetrics(Record):
    turns: int
    """turns ranked"""
    candidates: int
    """replies sampled at them"""
    prompt_tokens: int | None
    """tokens that the agent read for them, the prompt of a turn counted once; null where its server does not report
    them, 0 where the replies are those of an earlier ranking"""
    completion_tokens: int | None
    """tokens that the agent wrote, thoughts included; null and 0 as above"""
    unjudged: int
    """replies that the judge gave no value"""
    distinct: int
    """different replies"""
    basis: dict[str, int]
    """turns by what ranked them"""
    mean_spread: float | None
    """mean difference of a turn's best and worst candidate; null without ranked turns"""
    mean_taken_advantage: float | None
    """mean advantage of the replies that were really given; null without such replies"""
    failed: int
    """turns without a ranking; the same command tries them again"""
    failures: dict[str, int] | None = OMITTED_IF_NONE
    """the commonest reasons of turns that failed in this call, with their numbers; absent without any"""
    left_out: int
    """dialogues that a fault ended; their turns are not ranked"""
    known: Annotated[CreditMetrics, Flat()]
    """Metrics against the credit that the tasks know."""
    cost: float | None = OMITTED_IF_NONE
    """with --prices: price of all tokens of agent and judge, failed turns included; absent without"""


class RankWork(Record):
    """The work of a ranking; a number that is not known is null."""

    turns: int
    """turns to rank"""
    missing: int
    """those that are not ranked yet; all that follows is of these"""
    candidates: int
    """replies to sample or to judge"""
    tokens_read: int | None
    """tokens that the agent reads"""
    tokens_written: int | None
    """tokens that the agent writes"""
    tokens_judged: int | None
    """tokens that the judge computes"""


def tokens_written(row: CandidateRow) -> int | None:
    """Return the number of tokens of a turn's candidates; None where one is not known.

    The sampled ids are counted where they were recorded, with the end of the reply, otherwise what the critic reads.
    """
    return _sum(c.tokens if c.token_ids is None else len(c.token_ids) for c in row.candidates)


def ranking_metrics(
    rows: Iterable[CandidateRow],
    *,
    sampled: bool,
    failed: int,
    left_out: int,
    known: CreditMetrics,
    failures: Failures,
    cost: float | None,
) -> RankMetrics:
    """Return the metrics of all rows.

    Args:
        sampled: whether the replies were sampled for this ranking.
        failed: turns without a row.
        left_out: dialogues that a fault ended.
        known: the metrics of the rows against the tasks' credit.
        failures: the turns that failed in this call.
        cost: of the ranking; None without prices.
    """
    turns = candidates = distinct = unjudged = 0
    spread = 0.0
    taken_advantages: list[float] = []
    prompt_tokens: list[int | None] = []
    completion_tokens: list[int | None] = []
    basis: Counter[str] = Counter()
    for row in rows:
        advantages = [candidate.advantage for candidate in row.candidates]
        turns += 1
        candidates += len(advantages)
        unjudged += row.unjudged
        distinct += len({candidate.whole for candidate in row.candidates})
        spread += max(advantages) - min(advantages)
        taken_advantages += [] if row.taken is None else [row.taken.advantage]
        basis[row.basis] += 1
        if sampled:
            prompt_tokens.append(None if row.prompt_token_ids is None else len(row.prompt_token_ids))
            completion_tokens.append(tokens_written(row))
    return RankMetrics(
        turns=turns,
        candidates=candidates,
        prompt_tokens=_sum(prompt_tokens),
        completion_tokens=_sum(completion_tokens),
        unjudged=unjudged,
        distinct=distinct,
        basis=dict(basis),
        mean_spread=round(spread / turns, 6) if turns else None,
        mean_taken_advantage=round(sum(taken_advantages) / len(taken_advantages), 6) if taken_advantages else None,
        failed=failed,
        left_out=left_out,
        known=known,
        failures=failures.reasons() or None,
        cost=cost,
    )


def _sum(counts: Iterable[int | None]) -> int | None:
    """Return the sum; None where a count is not known."""
    values = list(counts)
    return None if None in values else sum(filter(None, values))
