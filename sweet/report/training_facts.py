"""Facts about the trainings of a run: the curves of each model, from the logs of all attempts that trained it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

from sweet.report.row_reader import Problems, steps
from sweet.report.schema import Point, TrainingFact, number
from sweet.runs.manifest import Artifact, Attempt, Manifest
from sweet.runs.run import Run

POINTS = 240
"""Most points of a curve; in a longer training each point is the mean of several steps."""
SERIES = ("loss", "accuracy", "heldout_accuracy", "margin", "lr", "grad_norm", "tokens_per_second")
SHOWN_METRICS = (*SERIES, "steps", "epochs", "batch", "examples", "heldout", "parameters", "mfu", "seconds")
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
        if points:
            series[name] = list(_averaged(points, together))
    last = attempts[-1].metrics if attempts else {}
    return TrainingFact(
        artifact=artifact.id,
        attempts=[attempt.id for attempt in attempts],
        steps=sum("loss" in row for row in rows),
        together=together,
        series=series,
        metrics={name: value for name in SHOWN_METRICS if (value := number(last.get(name))) is not None},
    )


def _averaged(points: Sequence[tuple[float, float]], together: int) -> Iterator[Point]:
    for start in range(0, len(points), together):
        part = points[start : start + together]
        yield Point(x=fmean(x for x, _ in part), y=fmean(y for _, y in part))
