"""How well the credit of turns agrees with what their tasks know of them.

Of two turns of a task's dialogues that are not worth the same (`sweet.judges.control.CreditScorer`), how often does the
better one have the greater weight; equal weights count half. The turns that a rule gives no weight are not counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from statistics import fmean

from sweet.credit.base import Batch, Credit
from sweet.judges.control import CREDIT, CreditScorer


def turns_in_order(credits: Sequence[Credit], batch: Batch, scorer: CreditScorer) -> tuple[float, int]:
    """Return the number of couples in the right order, and of all couples; weights are means over the tokens."""
    by_task: dict[str, list[tuple[float, float]]] = {}
    for credit in credits:
        if isinstance(credit.of, str) and credit.policy:
            known = scorer.turn_rewards(batch.dialogues[credit.of])
            by_task.setdefault(batch.dialogues[credit.of].task_id, []).extend(
                (known[turn][CREDIT], values if isinstance(values, float | int) else fmean(values))
                for turn, values in credit.policy.items()
                if turn in known
            )
    couples = [
        0.5 if one[1] == other[1] else float((one[0] < other[0]) == (one[1] < other[1]))
        for turns in by_task.values()
        for one, other in combinations(turns, 2)
        if one[0] != other[0]
    ]
    return sum(couples), len(couples)
