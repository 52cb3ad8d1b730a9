"""What runs in a run, seen from another process: for `sweet status --follow`.

The attempt to follow is the newest that runs, or the one that has begun it in the same process (such as a training loop
that calls stages). Where nothing runs it is the newest one, or again the one within which that ran, so that work that
has ended in the meantime is reported.
"""

from __future__ import annotations

import shlex

from sweet.errors import UsageError
from sweet.inspection.status import AttemptStatus, attempt_status
from sweet.runs.manifest import Attempt, Manifest
from sweet.runs.run import Run


def attempt_to_follow(run: Run) -> str:
    """Return the id of the attempt.

    Raises:
        UsageError: the run has no attempt.
    """
    manifest = run.manifest()
    if not manifest.attempts:
        fix = shlex.join(["sweet", "status", str(run.path)])
        raise UsageError("Nothing has been begun in this run.", where=run.path, fix=fix)
    newest = (_running(manifest) or manifest.attempts)[-1]
    return next(attempt for attempt in manifest.attempts if attempt is newest or _is_within(newest, attempt)).id


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
    return [attempt_status(run, one) for one in shown]


def _running(manifest: Manifest) -> list[Attempt]:
    return [attempt for attempt in manifest.attempts if attempt.status == "running"]


def _is_within(inner: Attempt, outer: Attempt) -> bool:
    """Return whether an attempt was begun while another of the same process ran."""
    same = (inner.host, inner.pid, inner.process) == (outer.host, outer.pid, outer.process)
    lasted = outer.status == "running" or (outer.finished is not None and outer.finished >= inner.started)
    return same and lasted and outer.started <= inner.started
