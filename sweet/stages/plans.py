"""Plans: what a stage would do, for `--dry-run`.

Each stage counts its work in a record of its own (dialogues, turns, tokens, memory). What only the work itself
determines, such as the turns of a dialogue, is taken from the newest finished attempt of the same stage in the run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Generic, NamedTuple

from typing_extensions import TypeVar

from sweet.json_value import JsonValue
from sweet.runs.manifest import Artifact, Kind
from sweet.runs.run import Run
from sweet.stages.record import Flat, Record

W = TypeVar("W", bound=Record, default=Any)
"""The work of a stage."""


class Plan(Record, Generic[W]):
    """What a stage would do."""

    work: Annotated[W, Flat()]
    """Counts of the stage's own."""
    assumed: list[str]
    """assumptions of the plan, in sentences"""


class EarlierWork(NamedTuple):
    """What the newest finished attempt of a stage has done."""

    artifact: Artifact
    metrics: dict[str, Any]

    def of_a_dialogue(self, metric: str) -> float | None:
        """Return a metric divided by the number of dialogues; None where one of them is no number."""
        amount, dialogues = self.metrics.get(metric), self.metrics.get("episodes")
        is_known = isinstance(amount, int | float) and isinstance(dialogues, int | float) and dialogues > 0
        return amount / dialogues if is_known and math.isfinite(amount / dialogues) else None  # type: ignore[operator]


def earlier_work(run: Run | None, stage: str) -> EarlierWork | None:
    """Return what the newest finished attempt of a stage has done; None where there is none, or no run yet."""
    manifest = None if run is None else run.manifest()
    for artifact in reversed([] if manifest is None else manifest.artifacts):
        attempt = None if manifest is None else manifest.attempt(artifact.attempt)
        if attempt is not None and (attempt.stage, attempt.status, artifact.status) == (stage, "done", "done"):
            return EarlierWork(artifact, attempt.metrics)
    return None


def begun_file(run: Run, kind: Kind, digest: str, inputs: Sequence[Artifact], **meta: JsonValue) -> Path | None:
    """Return the rows that earlier attempts at the same work have written; None where there are none.

    Args:
        digest: of the configuration.
        inputs: the artifacts that are read.
        meta: what the artifact records of its making.
    """
    manifest = run.manifest()
    attempts = {attempt.id for attempt in manifest.attempts if attempt.digest == digest}
    read = {artifact.id: artifact.sha256 for artifact in inputs}
    same = [
        run.file(artifact)
        for artifact in manifest.of_kind(kind)
        if artifact.attempt in attempts
        and {ref.id: ref.sha256 for ref in artifact.inputs} == read
        and all(artifact.meta.get(key) == value for key, value in meta.items())
    ]
    return next((path for path in reversed(same) if path.exists()), None)


def times(*factors: float | None) -> int | None:
    """Return the rounded product; None where a factor is unknown."""
    known = [factor for factor in factors if factor is not None]
    return round(math.prod(known)) if len(known) == len(factors) else None
