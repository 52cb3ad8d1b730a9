"""`sweet status`: the content of a run, its stale artifacts, and the next commands.

`report` reads the manifest and examines the artifacts' files. The next commands depend on the manifest alone
(`suggest_next`): resume an interrupted stage, else make the first kind of the pipeline that is missing or stale, else
play and score the trained actor. A run may contain several lines of work (dialogues to learn from, dialogues on unseen
tasks); the suggestions continue the newest one.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from sweet.inspection.disk_use import DiskUse, disk_use
from sweet.runs.commands import command_of, current_settings
from sweet.runs.lineage import Staleness, ancestors
from sweet.runs.manifest import Artifact, Attempt, Manifest, json_schema, now
from sweet.runs.run import Run
from sweet.runs.stages import stage_making, stage_named
from sweet.stages.artifacts import NO_MODEL, agent_name, own_actor
from sweet.stages.base import StageConfig
from sweet.stages.record import Record

__all__ = ["ArtifactStatus", "AttemptStatus", "StatusConfig", "StatusReport", "json_schema", "report", "suggest_next"]

_HEADLINES = (
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
    all_: bool = False
    """Show every run of the folder runs/, or of the folder given instead of RUN, one line each."""


class _Plain(BaseModel):
    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


class AttemptStatus(_Plain):
    """The line of one attempt."""

    id: str
    stage: str
    status: Literal["running", "done", "failed", "interrupted", "interrupted (died)"]
    started: datetime
    seconds: float | None
    """Its duration so far; None if its end is unknown."""
    metrics: dict[str, JsonValue]
    """The most informative metrics."""
    outputs: list[str]
    error: str | None
    log: str


class ArtifactStatus(_Plain):
    """The line of one artifact."""

    id: str
    kind: str
    path: str
    rows: int | None
    bytes: int
    status: Literal["partial", "done"]
    attempt: str
    inputs: list[str]
    agent: str | None = None
    """The agent of dialogues, an actor of the run by its id; None if it is not recorded."""
    stale: str | None
    """Why it is stale; None if it is not."""


class StatusMetrics(Record):
    attempts: int
    """attempts in the manifest"""
    artifacts: int
    """artifacts in the manifest"""
    stale: int
    """artifacts whose inputs have changed since"""
    bytes: int
    """size of the run's folder"""


class StatusReport(_Plain):
    """The content of `sweet status`."""

    run: str
    task: str
    created: datetime
    sweet_version: str
    attempts: list[AttemptStatus]
    artifacts: list[ArtifactStatus]
    unknown: list[str] = Field(default_factory=list)
    """Files in the artifacts' folders that are not in the manifest."""
    disk: DiskUse
    next: list[str]
    """The next commands, the most likely first."""

    def as_json(self) -> dict[str, Any]:
        stale = sum(artifact.stale is not None for artifact in self.artifacts)
        metrics = StatusMetrics(
            attempts=len(self.attempts), artifacts=len(self.artifacts), stale=stale, bytes=self.disk.bytes
        )
        return {"stage": "status", **self.model_dump(mode="json"), "metrics": metrics.as_json()}


def report(run: Run) -> StatusReport:
    """Report on a run. Nothing is written."""
    manifest = run.manifest()
    staleness = run.staleness(manifest)
    stale = {artifact.id: why for artifact in manifest.artifacts if (why := staleness(artifact)) is not None}
    return StatusReport(
        run=str(run.path),
        task=manifest.task,
        created=manifest.created,
        sweet_version=manifest.sweet_version,
        attempts=[_attempt(attempt) for attempt in manifest.attempts],
        artifacts=[_artifact(run, manifest, artifact, stale.get(artifact.id)) for artifact in manifest.artifacts],
        unknown=run.unknown_files(manifest),
        disk=disk_use(run.path, manifest),
        next=suggest_next(manifest, run.path, stale),
    )


def suggest_next(manifest: Manifest, run: str | Path = "RUN", stale: Collection[str] | None = None) -> list[str]:
    """Return the next commands, the most likely first.

    Args:
        manifest: as `Run.manifest` returns it, with dead attempts as interrupted.
        run: the run's name in the commands.
        stale: ids of the stale artifacts; by default determined from the manifest alone.
    """
    if stale is None:
        staleness = Staleness(manifest, lambda artifact: artifact.sha256)
        stale = {artifact.id for artifact in manifest.artifacts if staleness(artifact) is not None}
    resuming = [command_of(attempt, run) for attempt in _unfinished(manifest)]
    return list(dict.fromkeys([*resuming, *_forward(manifest, Path(run), stale)]))


def _unfinished(manifest: Manifest) -> list[Attempt]:
    """Return the stopped attempts whose artifact is still partial, the newest first.

    An attempt whose stage has been called again since then does not count.
    """
    latest = {attempt.stage: attempt.id for attempt in manifest.attempts}
    writing = {artifact.attempt for artifact in manifest.artifacts if artifact.status == "partial"}
    return [
        attempt
        for attempt in reversed(manifest.attempts)
        if attempt.id in writing
        and _has_command(attempt)
        and attempt.status in ("failed", "interrupted")
        and latest[attempt.stage] == attempt.id
    ]


def _has_command(attempt: Attempt) -> bool:
    """Return whether a command can repeat the attempt; a ranking by a Python function has none."""
    stage = stage_named(attempt.stage)
    if stage is None:
        return False
    settings = current_settings(attempt)
    try:
        stage.config.model_validate({name: settings[name] for name in settings.keys() & stage.config.model_fields})
    except ValidationError:
        return False
    return True


def _forward(manifest: Manifest, run: Path, stale: Collection[str]) -> list[str]:
    """Return the commands of the next stage of the pipeline."""
    rollouts = manifest.of_kind("rollouts", "done")
    if not rollouts:
        return [_sweet("rollout", run, *_kind(manifest))]
    unscored = _without(manifest, rollouts, "scores", stale)
    actor = _fresh(manifest, "actor", stale)
    if unscored is not None and (actor is None or unscored is rollouts[-1]):
        source = [] if unscored is rollouts[-1] else ["--from", unscored.id]
        return [_sweet("eval", run, *source)]
    if actor is not None:
        following = stage_making(_newest(manifest, stale).kind).next
        return _after_training(manifest, run, actor) if following is None else [_sweet(following, run)]
    for kind in ("preferences", "critic", "candidates", "pairs"):
        if _fresh(manifest, kind, stale) is None:
            stage = stage_making(kind).name
            return [_sweet(stage, run, *_model(rollouts[-1], stage))]
    return [_sweet("train-actor", run, *_model(rollouts[-1], "train-actor"))]


def _model(rollouts: Artifact, stage: str) -> list[str]:
    """Return the option for a model, if the stage needs one and the dialogues are not of a model."""
    option = {"train-critic": "--model", "rank": "--agent", "train-actor": "--model"}.get(stage)
    return [option, "MODEL"] if option and rollouts.meta.get("agent") in NO_MODEL else []


def _fresh(manifest: Manifest, kind: str, stale: Collection[str]) -> Artifact | None:
    fresh = [artifact for artifact in manifest.of_kind(kind, "done") if artifact.id not in stale]
    return fresh[-1] if fresh else None


def _without(manifest: Manifest, sources: Iterable[Artifact], kind: str, stale: Collection[str]) -> Artifact | None:
    """Return the newest source that no fresh artifact of a kind was made from."""
    used = {
        ancestor.id
        for artifact in manifest.of_kind(kind, "done")
        if artifact.id not in stale
        for ancestor in ancestors(manifest, artifact)
    }
    return next((source for source in reversed(list(sources)) if source.id not in used), None)


def _newest(manifest: Manifest, stale: Collection[str]) -> Artifact:
    """Return the fresh artifact that was finished last."""
    done = [artifact for artifact in manifest.artifacts if artifact.status == "done" and artifact.id not in stale]
    return max(done, key=lambda artifact: artifact.finished or artifact.created)


def _after_training(manifest: Manifest, run: Path, actor: Artifact) -> list[str]:
    """Return the command to play the actor on the tasks of the first dialogues; then to view them, or to rank again."""
    rollouts = manifest.of_kind("rollouts", "done")
    played = [one for one in rollouts if own_actor(manifest, one.meta.get("agent"), one.created) == actor]
    if played:
        again = played[-1].meta.get("split") == "train" and manifest.of_kind("critic", "done")
        return [_sweet("view", run), *([_sweet("rank", run)] if again else [])]
    first = min(rollouts, key=lambda one: one.created)
    options = [*_kind(manifest), "--agent", str(run / actor.path)]
    for key, default in (("tasks", None), ("split", "train")):
        value = first.meta.get(key)
        if isinstance(value, str) and value != default:
            options += [f"--{key}", value]
    return [_sweet("rollout", run, *options)]


def _kind(manifest: Manifest) -> list[str]:
    """Return the option of `rollout` for the kind of task, if it is not the default."""
    return [] if manifest.task == "code" else ["--task", manifest.task]


def _sweet(stage: str, run: Path, *options: str) -> str:
    return shlex.join(["sweet", stage, str(run), *options])


def _attempt(attempt: Attempt) -> AttemptStatus:
    running = attempt.status == "running"
    died = attempt.status == "interrupted" and attempt.finished is None
    end = now() if running else attempt.finished
    return AttemptStatus(
        id=attempt.id,
        stage=attempt.stage,
        status="interrupted (died)" if died else attempt.status,
        started=attempt.started,
        seconds=None if end is None else round((end - attempt.started).total_seconds(), 1),
        metrics={name: attempt.metrics[name] for name in _HEADLINES if attempt.metrics.get(name) is not None},
        outputs=list(attempt.outputs),
        error=attempt.error,
        log=attempt.log,
    )


def _artifact(run: Run, manifest: Manifest, artifact: Artifact, stale: str | None) -> ArtifactStatus:
    path = run.file(artifact)
    partial = artifact.status == "partial" and path.is_file()
    return ArtifactStatus(
        id=artifact.id,
        kind=artifact.kind,
        path=artifact.path,
        rows=artifact.rows,
        bytes=path.stat().st_size if partial else artifact.bytes,
        status=artifact.status,
        attempt=artifact.attempt,
        inputs=[ref.id for ref in artifact.inputs],
        agent=agent_name(manifest, artifact),
        stale=stale,
    )
