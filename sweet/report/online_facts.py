"""Facts about an online training: its learning curve over generated tokens, how it ended, and where its time went.

All is read from the metrics of its steps, so a training that is still running, or was killed, has them too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from sweet.report.averaging import averaged
from sweet.report.schema import OnlineFact, number, words
from sweet.runs.manifest import Artifact, Attempt

CURVE = ("reward", "success", "validation")
"""What is drawn over generated tokens."""
ENDS = 5
"""The first and the last so many steps are compared."""


def online_fact(artifact: Artifact, attempt: Attempt, rows: Sequence[Mapping[str, float]]) -> OnlineFact:
    """Return the facts of a training.

    Args:
        artifact: the actor.
        attempt: the last one that trained it.
        rows: the metrics of its steps, in their order.
    """

    def total(name: str) -> float:
        return sum(row.get(name, 0.0) for row in rows)

    def mean(name: str, part: Sequence[Mapping[str, float]]) -> float | None:
        values = [row[name] for row in part if name in row]
        return fmean(values) if values else None

    metrics = attempt.metrics
    last = rows[-1] if rows else {}
    kept = number(metrics.get("kept_step"))
    over_tokens = {
        name: [(row["tokens"], row[name]) for row in rows if "tokens" in row and name in row] for name in CURVE
    }
    return OnlineFact(
        algorithm=words(artifact.meta.get("method")),
        steps=len(rows),
        tokens=int(last.get("tokens", 0)),
        dialogues=int(total("dialogues")),
        staleness=int(number(attempt.config.get("staleness")) or 0),
        behind=mean("behind", rows),
        ended=words(metrics.get("ended")),
        collapse=words(metrics.get("collapse")),
        kept_step=None if kept is None else int(kept),
        reward=(mean("reward", rows[:ENDS]), mean("reward", rows[-ENDS:])),
        success=(mean("success", rows[:ENDS]), mean("success", rows[-ENDS:])),
        validation=next((row["validation"] for row in rows if row["step"] == kept and "validation" in row), None),
        play_seconds=total("play_seconds"),
        train_seconds=total("train_seconds"),
        update_seconds=total("update_seconds"),
        validation_seconds=number(metrics.get("validation_seconds")) or last.get("validation_seconds", 0.0),
        seconds=number(metrics.get("seconds")) or last.get("seconds", 0.0),
        curve={name: averaged(points) for name, points in over_tokens.items() if points},
    )
