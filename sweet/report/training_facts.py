"""Facts about the trainings of a run: the curves of each model, from the logs of all attempts that trained it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sweet.report.averaging import POINTS, averaged
from sweet.report.online_facts import online_fact
from sweet.report.row_reader import Problems, steps
from sweet.report.schema import TrainingFact, number
from sweet.runs.manifest import Artifact, Attempt, Manifest
from sweet.runs.run import Run

ONLINE = "train-online"
"""The stage whose trainings have `OnlineFact`."""
SAFEGUARDS = (
    *("leak_rate", "limits", "equal_groups", "clipped", "masked", "entropy_first", "entropy_late"),
    *("kl_start", "behind", "reply_tokens"),
)
"""Metrics by which the steps of an online training are watched (docs/online.md)."""
LEARNED = ("loss", "accuracy", "heldout_accuracy", "margin", "lr", "grad_norm", "tokens_per_second")
SERIES = (*LEARNED, *SAFEGUARDS)
SHOWN_METRICS = (*LEARNED, "steps", "epochs", "batch", "examples", "heldout", "parameters", "mfu", "seconds")
"""Metrics of a training that are reported."""


def trainings(run: Run, manifest: Manifest, problems: Problems) -> Iterator[TrainingFact]:
    """Yield the training of each model in the manifest's order. Without a log it has no curves."""
    for artifact in manifest.artifacts:
        attempts = [a for a in manifest.attempts if artifact.id in a.outputs or a.id == artifact.attempt]
        logs = [path for a in attempts if (path := (run.path / a.log).with_suffix(".jsonl")).exists()]
        if artifact.kind not in ("critic", "actor"):
            continue
        by_step: dict[int, dict[str, float]] = {}
        for log in logs:
            for row in steps(log, problems):
                by_step.setdefault(int(row["step"]), {}).update(row)
        yield _training(artifact, attempts, [by_step[step] for step in sorted(by_step)])


def _training(artifact: Artifact, attempts: Sequence[Attempt], rows: Sequence[dict[str, float]]) -> TrainingFact:
    together = -(-len(rows) // POINTS) or 1
    series = {}
    for name in SERIES:
        points = [(row["step"], row[name]) for row in rows if name in row]
        if points and (name != "behind" or any(y for _, y in points)):
            series[name] = averaged(points, together)
    online = None
    if attempts and attempts[-1].stage == ONLINE:
        online = online_fact(artifact, attempts[-1], rows)
    last = attempts[-1].metrics if attempts else {}
    return TrainingFact(
        artifact=artifact.id,
        attempts=[attempt.id for attempt in attempts],
        steps=len(rows) if online is not None else sum("loss" in row for row in rows),
        together=together,
        series=series,
        metrics={name: value for name in SHOWN_METRICS if (value := number(last.get(name))) is not None},
        online=online,
    )
