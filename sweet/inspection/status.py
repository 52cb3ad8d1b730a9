"""`sweet status`: the content of a run, its stale artifacts, its size, the next commands.

`report` reads the manifest and examines the artifacts' files. The next commands are those of
`sweet.inspection.next_commands`.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import suppress

from sweet.errors import SweetError, UsageError
from sweet.inspection.next_commands import advice, suggest_next
from sweet.inspection.status_report import ArtifactStatus, AttemptStatus, ResultStatus, StatusReport
from sweet.runs.attempt import progress_path
from sweet.runs.content import size_of
from sweet.runs.lineage import input_of
from sweet.runs.manifest import Artifact, Attempt, Manifest, now
from sweet.runs.progress import read_progress
from sweet.runs.run import Run
from sweet.runs.unfinished import is_unseen
from sweet.scoring.results.compare import paired_figures
from sweet.scoring.results.run_result import RunResult, played_by, result_of
from sweet.stages.artifacts import agent_name
from sweet.stages.base import StageConfig
from sweet.stages.prices import spending

_HEADLINES = (
    "best",
    "before",
    "after",
    "success_rate",
    "tests_passed",
    "cosine",
    "episodes",
    "failed",
    "trajectories",
    "win_rate",
    "pairs",
    "candidates",
    "steps",
    "loss",
    "accuracy",
    "tokens_per_second",
)
"""Metrics that summarize an attempt in one line."""


class StatusConfig(StageConfig):
    schema_: bool = False
    """Print the JSON Schema of the manifest instead."""
    follow: bool = False
    """Show the progress of what is running until it ends, and exit as it does."""


def report(run: Run) -> StatusReport:
    """Report on a run. Nothing is written."""
    manifest = run.manifest()
    staleness = run.staleness(manifest)
    spent, problem = None, None
    try:
        spent = spending(run, manifest)
    except SweetError as error:
        problem = str(error)
    stale = {artifact.id: why for artifact in manifest.artifacts if (why := staleness(artifact)) is not None}
    return StatusReport(
        run=str(run.path),
        task=manifest.task,
        created=manifest.created,
        sweet_version=manifest.sweet_version,
        attempts=[attempt_status(run, manifest, attempt) for attempt in manifest.attempts],
        artifacts=[_artifact(run, manifest, artifact, stale.get(artifact.id)) for artifact in manifest.artifacts],
        unknown=run.unknown_files(manifest),
        bytes=size_of(run.path),
        result=_result(run, manifest, result_of(manifest, stale)),
        next=suggest_next(manifest, run.path, stale),
        advice=advice(manifest),
        spent=spent,
        problem=problem,
    )


def attempt_status(run: Run, manifest: Manifest, attempt: Attempt) -> AttemptStatus:
    """Return the line of an attempt of a manifest that `Run.manifest` returned."""
    running = attempt.status == "running"
    died = attempt.status == "interrupted" and attempt.finished is None
    end = now() if running else attempt.finished
    return AttemptStatus(
        **attempt.model_dump(include={"id", "stage", "started", "outputs", "error", "exit_code", "log"}),
        of=_of(manifest, attempt.outputs),
        status="interrupted (died)" if died else attempt.status,
        seconds=None if end is None or end < attempt.started else round((end - attempt.started).total_seconds(), 1),
        metrics={
            name: attempt.metrics[name]
            for name in _HEADLINES
            if isinstance(attempt.metrics.get(name), str | int | float)
        },
        progress=read_progress(progress_path(run.path.absolute(), attempt.id)) if running else None,
        host=attempt.host if is_unseen(attempt) else None,
    )


def _artifact(run: Run, manifest: Manifest, artifact: Artifact, stale: str | None) -> ArtifactStatus:
    return ArtifactStatus(
        **artifact.model_dump(include={"id", "kind", "path", "rows", "sha256", "status", "attempt"}),
        bytes=size_of(run.file(artifact)) if artifact.status == "partial" else artifact.bytes,
        inputs=[ref.id for ref in artifact.inputs],
        agent=agent_name(manifest, artifact),
        of=_of(manifest, [artifact.id]),
        stale=stale,
    )


def _of(manifest: Manifest, ids: Sequence[str]) -> str:
    """Return whose dialogues are among these artifacts, or were scored by them, and on which tasks; empty of others."""
    made = [artifact for id in ids if (artifact := manifest.artifact(id)) is not None]
    return next((played_by(manifest, one) for one in made if one.kind in ("rollouts", "scores")), "")


def attempt_to_follow(run: Run) -> str:
    """Return the id of the attempt that `sweet status --follow` follows: the first of those that run, such as a
    training loop that calls stages; where nothing runs the one that ended last.

    Raises:
        UsageError: the run has no attempt.
    """
    manifest = run.manifest()
    if not manifest.attempts:
        fix = shlex.join(["sweet", "status", str(run.path)])
        raise UsageError("Nothing has been begun in this run.", where=run.path, fix=fix)
    last = manifest.attempts[-1]
    of_last = manifest.begun_by(last.pid, last.host, last.process)
    ended_last = max(of_last, key=lambda attempt: attempt.finished or attempt.started)  # a loop ends after its stages
    return (_running(manifest) or [ended_last])[0].id


def followed(run: Run, attempt: str) -> list[AttemptStatus]:
    """Return the attempt that is followed and, while it runs, what runs beside or within it.

    Raises:
        UsageError: it has been removed from the manifest.
    """
    manifest = run.manifest()
    own = manifest.attempt(attempt)
    if own is None:
        raise UsageError(f"{attempt} has been removed from the manifest.", where=run.path)
    shown = [own] if own.status != "running" else [own, *(one for one in _running(manifest) if one.id != attempt)]
    return [attempt_status(run, manifest, one) for one in shown]


def _running(manifest: Manifest) -> list[Attempt]:
    return [attempt for attempt in manifest.attempts if attempt.status == "running"]


def _result(run: Run, manifest: Manifest, result: RunResult | None) -> ResultStatus | None:
    """Return a result, paired with that of the first agent where its scores can be read."""
    attempt = None if result is None else manifest.attempt(result.scores.attempt)
    if result is None or attempt is None:
        return None
    known = {name: value for name, value in attempt.metrics.items() if isinstance(value, int | float)}
    metric = next((name for name in known if f"{name}_ci_low" in known and name != "win_rate"), None)
    first = None if result.before is None else input_of(manifest, result.before, "rollouts")
    paired = None
    if metric is not None:
        with suppress(SweetError, OSError):
            paired = paired_figures(run, manifest, result).get(metric)
    return ResultStatus(
        scores=result.scores.id,
        agent=result.agent,
        of=played_by(manifest, result.scores),
        rate={name: known[name] for name in (metric, f"{metric}_ci_low", f"{metric}_ci_high") if name in known},
        first=None if first is None else agent_name(manifest, first),
        paired=paired,
    )
