"""Which attempt `sweet STAGE RUN --resume` goes on with.

An attempt is unfinished if it was interrupted or failed. A call that was refused, or stopped before it had an artifact,
does not hide an earlier attempt whose artifact is partial. A person who plays also goes on with one that ended well.
Of one that may still run where this cannot be seen, as in a container that was killed, the locks decide.
"""

from __future__ import annotations

from pydantic import ValidationError

from sweet.runs.manifest import Attempt, Manifest
from sweet.runs.process import is_gone
from sweet.runs.stages import Stage, stage_named

STOPPED = ("failed", "interrupted")


def unfinished(manifest: Manifest, stage: Stage) -> Attempt | None:
    """Return the newest attempt of a stage that can be gone on with; None if there is none.

    Args:
        manifest: as `Run.manifest` returns it, with dead attempts as interrupted.
    """
    tried = [attempt for attempt in reversed(manifest.attempts) if attempt.stage == stage.name]
    for attempt in tried:
        reopened = stage.reopens and attempt.outputs and attempt.status == "done"
        if reopened or left_partial(manifest, attempt):
            return attempt
        if attempt.outputs and attempt.status == "done" and stage.resumes == "never":
            break
    newest = next((attempt for attempt in tried if attempt.outputs), None)
    if newest is not None and newest.status == "running":  # what was called beside it was refused
        return None
    since = tried if newest is None else tried[: tried.index(newest) + 1]
    return next((attempt for attempt in since if attempt.status in STOPPED), None)


def is_unseen(attempt: Attempt) -> bool:
    """Return whether an attempt runs, or did, on another host or in a container, which cannot be seen from here."""
    return attempt.status == "running" and is_gone(attempt.pid, attempt.host, attempt.process) is None


def to_resume(manifest: Manifest) -> list[Attempt]:
    """Return the unfinished attempts to suggest, the newest first: one of each stage at most.

    Those whose stage has made an artifact since do not count, nor those that failed before they had one.
    """
    suggested = []
    for name in {attempt.stage for attempt in manifest.attempts}:
        stage = stage_named(name)
        attempt = None if stage is None else unfinished(manifest, stage)
        if attempt is None or valid_settings(attempt) is None:
            continue
        with_outputs = [other for other in manifest.attempts if other.stage == name and other.outputs]
        stopped_early = attempt.status == "interrupted" and not attempt.outputs
        if stopped_early or (with_outputs[-1:] == [attempt] and left_partial(manifest, attempt)):
            suggested.append(attempt)
    return sorted(suggested, key=manifest.attempts.index, reverse=True)


def left_partial(manifest: Manifest, attempt: Attempt) -> bool:
    """Return whether a stopped attempt, or one that cannot be seen, has a partial artifact."""
    stopped = attempt.status in STOPPED or is_unseen(attempt)
    partial = (artifact for artifact in manifest.artifacts if artifact.status == "partial")
    return stopped and any(artifact.attempt == attempt.id for artifact in partial)


def valid_settings(attempt: Attempt) -> dict[str, object] | None:
    """Return the settings of an attempt; None if no command can repeat it, such as a ranking by a Python function."""
    stage = stage_named(attempt.stage)
    if stage is None:
        return None
    config = stage.config
    settings: dict[str, object] = {name: value for name, value in attempt.config.items() if name in config.model_fields}
    try:
        config.model_validate(settings)
    except ValidationError:
        return None
    return settings
