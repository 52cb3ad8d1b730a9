"""Facts about the trainings of a run: the curves of each model, from the logs of all attempts that trained it.

Curves of long trainings are thinned, so that a page and a drawing stay small. A training that is still running, or was
killed, has its curves too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from sweet.errors import InputError
from sweet.online.metrics import OnlineMetrics
from sweet.results.facts import OnlineFact, Point, TrainingFact, number, words
from sweet.runs.jsonl import scan_jsonl
from sweet.runs.manifest import Artifact, Attempt, Manifest
from sweet.runs.run import Run

POINTS = 240
"""Most points of a curve; in a longer training each point is the mean of several steps."""
ONLINE = "train-online"
"""The stage whose trainings have `OnlineFact`."""
TRAINED = (
    ("loss", ("loss",), False),
    ("accuracy", ("accuracy", "heldout_accuracy"), True),
    ("margin of chosen over rejected", ("margin",), False),
    ("learning rate", ("lr",), False),
    ("gradient norm", ("grad_norm",), False),
    ("tokens a second", ("tokens_per_second",), False),
    ("dialogues: the human leaked, at a limit; groups of equal rewards", ("leak_rate", "limits", "equal_groups"), True),
    ("entropy at the first and at later turns, nats a token", ("entropy_first", "entropy_late"), False),
    ("divergence from the start, nats a token", ("kl_start",), False),
    ("tokens that were clipped and masked", ("clipped", "masked"), True),
    ("versions that turns were behind", ("behind",), False),
    ("tokens of a reply", ("reply_tokens",), False),
)
"""The charts of a training: title, metrics, whether they are shares. An online training is watched by the last six
(docs/online.md)."""
SERIES = tuple(name for _, names, _ in TRAINED for name in names)
CURVE = ("reward", "success", "validation")
"""What is drawn over generated tokens."""
LEARNED = ("loss", "accuracy", "heldout_accuracy", "margin", "lr", "grad_norm", "tokens_per_second")
REPORTED = (*LEARNED, "steps", "epochs", "batch", "examples", "heldout", "parameters", "mfu", "seconds")
"""Metrics of a training that are reported."""


def trainings(run: Run, manifest: Manifest, problems: list[str]) -> Iterator[TrainingFact]:
    """Yield the training of each model in the manifest's order. Without a log it has no curves."""
    for artifact in manifest.artifacts:
        attempts = [a for a in manifest.attempts if artifact.id in a.outputs or a.id == artifact.attempt]
        logs = [path for a in attempts if (path := (run.path / a.log).with_suffix(".jsonl")).exists()]
        if artifact.kind not in ("critic", "actor"):
            continue
        by_step: dict[int, dict[str, float]] = {}
        for log in logs:
            for row in _steps(log, problems):
                by_step.setdefault(int(row["step"]), {}).update(row)
        yield _training(artifact, attempts, [by_step[step] for step in sorted(by_step)])


def _steps(log: Path, problems: list[str]) -> Iterator[dict[str, float]]:
    """Yield the numeric metrics of each step of a log; not the dialogues that failed in its steps."""
    try:
        for row in scan_jsonl(log):
            metrics = {name: value for name, item in row.items() if (value := number(item)) is not None}
            if "step" in metrics and not isinstance(row.get("failed"), str):  # how a dialogue failed
                yield metrics
    except (InputError, OSError) as error:
        problems.append(f"{error} The rows before it are used.")


def _training(artifact: Artifact, attempts: Sequence[Attempt], rows: Sequence[dict[str, float]]) -> TrainingFact:
    together = -(-len(rows) // POINTS) or 1
    series = {}
    for name in SERIES:
        points = [(row["step"], row[name]) for row in rows if name in row]
        if points and (name != "behind" or any(y for _, y in points)):
            series[name] = _averaged(points)
    online = None
    if attempts and attempts[-1].stage == ONLINE:
        online = _online(artifact, attempts[-1], rows)
    last = attempts[-1].metrics if attempts else {}
    return TrainingFact(
        artifact=artifact.id,
        attempts=[attempt.id for attempt in attempts],
        steps=len(rows) if online is not None else sum("loss" in row for row in rows),
        together=together,
        series=series,
        metrics={name: value for name in REPORTED if (value := number(last.get(name))) is not None},
        online=online,
    )


def _online(artifact: Artifact, attempt: Attempt, rows: Sequence[Mapping[str, float]]) -> OnlineFact:
    """Return the facts of a training.

    Args:
        artifact: the actor.
        attempt: the last one that trained it.
        rows: the metrics of its steps, in their order.
    """
    over_tokens = {
        name: [(row["tokens"], row[name]) for row in rows if "tokens" in row and name in row] for name in CURVE
    }
    return OnlineFact(
        algorithm=words(artifact.meta.get("algorithm")),
        metrics=OnlineMetrics.read(attempt.metrics),
        curve={name: _averaged(points) for name, points in over_tokens.items() if points},
    )


def _averaged(points: Sequence[tuple[float, float]]) -> list[Point]:
    """Return the points of a curve, at most `POINTS`, each the mean of equally many."""
    step = -(-len(points) // POINTS) or 1
    parts = [points[start : start + step] for start in range(0, len(points), step)]
    return [Point(x=fmean(x for x, _ in part), y=fmean(y for _, y in part)) for part in parts]
