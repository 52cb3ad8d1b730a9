"""`sweet status --all`: the runs of a folder, one line each. The line of a run with a broken manifest says so."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from sweet.errors import SweetError, UsageError, first_line
from sweet.inspection.disk_use import size_below
from sweet.paths import cache_folder
from sweet.runs.manifest import Attempt, Manifest, now
from sweet.runs.run import Run
from sweet.runs.store import Store

RATES = ("success_rate", "cosine")
"""Metrics that summarize a run, the most informative first."""


class Headline(BaseModel):
    """The newest result of a run, with its interval if it has one."""

    model_config = ConfigDict(frozen=True)

    metric: str
    value: float
    ci_low: float | None = None
    ci_high: float | None = None


class RunSummary(BaseModel):
    """The line of one run."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    run: str
    bytes: int
    touched: datetime
    """The time of the last activity."""
    task: str | None = None
    stage: str | None = None
    """The last stage."""
    status: str | None = None
    """Its status: running, done, failed, interrupted."""
    headline: Headline | None = None
    problem: str | None = None
    """Why the run cannot be read; None if it can."""


class Overview(BaseModel):
    """The runs of a folder, the most recent first."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    folder: str
    runs: list[RunSummary]
    bytes: int
    cache: str
    """The cache folder of all runs; its content can be computed again."""
    cached: int
    """Bytes in the cache."""

    def as_json(self) -> dict[str, Any]:
        broken = sum(run.problem is not None for run in self.runs)
        metrics = {"runs": len(self.runs), "broken": broken, "bytes": self.bytes}
        return {"stage": "status", "run": None, **self.model_dump(mode="json"), "metrics": metrics, "artifacts": []}


def overview(folder: Path) -> Overview:
    """Summarize the runs of a folder. Nothing is written.

    Raises:
        UsageError: there is no such folder, or it cannot be read.
    """
    try:
        paths = [path for path in folder.iterdir() if _is_run(path)]
    except OSError as error:
        what = f"The folder of runs cannot be read: {error.strerror}."
        raise UsageError(what, where=folder, fix="sweet rollout makes a run under runs/") from error
    runs = sorted((_summary(path) for path in paths), key=lambda run: (run.touched, run.run), reverse=True)
    cache = cache_folder("")
    total = sum(run.bytes for run in runs)
    return Overview(folder=str(folder), runs=runs, bytes=total, cache=str(cache), cached=size_below(cache))


def _is_run(path: Path) -> bool:
    store = Store(path)
    return store.exists() or store.backup.is_file()


def _summary(path: Path) -> RunSummary:
    size = size_below(path)
    try:
        manifest = Run(path).manifest()
    except (SweetError, OSError) as error:
        problem = error.what if isinstance(error, SweetError) else first_line(error)
        return RunSummary(run=str(path), bytes=size, touched=_modified(path), problem=problem)
    last = manifest.attempts[-1] if manifest.attempts else None
    return RunSummary(
        run=str(path),
        bytes=size,
        touched=_last_activity(manifest, last),
        task=manifest.task,
        stage=last.stage if last else None,
        status=last.status if last else None,
        headline=next(_headlines(manifest), None),
    )


def _last_activity(manifest: Manifest, last: Attempt | None) -> datetime:
    if last is None:
        return manifest.created
    return now() if last.status == "running" else last.finished or last.started


def _modified(path: Path) -> datetime:
    try:
        return datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except OSError:
        return now()


def _headlines(manifest: Manifest) -> Iterator[Headline]:
    """Yield the results of a run's evaluations, the newest first."""
    for attempt in reversed(manifest.attempts):
        values = {name: value for name, value in attempt.metrics.items() if isinstance(value, int | float)}
        for metric in RATES:
            if attempt.stage == "eval" and attempt.status == "done" and metric in values:
                low, high = values.get(f"{metric}_ci_low"), values.get(f"{metric}_ci_high")
                yield Headline(metric=metric, value=values[metric], ci_low=low, ci_high=high)
