"""The metrics of a ranking: counts, and how far apart the judge puts the candidates of a turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from sweet.stages.rows import CandidateRow


def ranking_metrics(rows: Iterable[CandidateRow]) -> dict[str, Any]:
    """Return the metrics of all rows, as JSON types."""
    turns = candidates = distinct = unjudged = 0
    spread = 0.0
    taken: list[float] = []
    basis: Counter[str] = Counter()
    for row in rows:
        advantages = [candidate.advantage for candidate in row.candidates]
        turns += 1
        candidates += len(advantages)
        unjudged += row.unjudged
        distinct += len({candidate.text for candidate in row.candidates})
        spread += max(advantages) - min(advantages)
        taken += [] if row.taken is None else [row.taken.advantage]
        basis[row.basis] += 1
    return {
        "turns": turns,
        "candidates": candidates,
        "unjudged": unjudged,
        "distinct": distinct,
        "basis": dict(basis),
        "mean_spread": round(spread / max(turns, 1), 6),
        "mean_taken_advantage": round(sum(taken) / len(taken), 6) if taken else None,
    }
