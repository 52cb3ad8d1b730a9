"""A running attempt: one call of a stage, and the artifacts that it writes.

Every step is in the manifest before it is on the disk: the attempt before it starts work, an artifact (as partial)
before its first byte. Files are written at their final path, so nothing is moved, or lost if the process is killed.
Each artifact that is being written is guarded by a lock that the system releases with the process: attempts that write
different artifacts run at the same time, and an attempt that would write the same artifact is refused.
"""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol, TypeVar

from filelock import FileLock

from sweet.errors import INTERRUPTED_BY, Interrupted, SweetError, UsageError
from sweet.hints import changed as changed_words
from sweet.hints import option
from sweet.hints import stage as stage_hint
from sweet.regular import check_file, check_tree, make_folder, open_descriptor, place_of
from sweet.runs.content import current_sha256, make_durable, measure
from sweet.runs.environment import environment, recordable
from sweet.runs.jsonl import sums_path
from sweet.runs.manifest import LOGS, Artifact, ArtifactRef, Attempt, Kind, Manifest, next_id, now
from sweet.runs.process import host, is_gone, process_mark
from sweet.runs.stages import KINDS
from sweet.runs.store import Store
from sweet.runs.tokens import TokenMeter, tokens_path
from sweet.runs.trust import remember

T = TypeVar("T")


class Config(Protocol):
    """The configuration of an attempt (sweet.stages.base.StageConfig)."""

    def model_dump(self, *, mode: str) -> dict[str, Any]: ...

    def digest(self) -> str: ...

    def outcome_settings(self) -> dict[str, Any]: ...


@dataclass
class Draft:
    """An artifact that is being written.

    Attributes:
        path: absolute; a file that the stage makes, or an existing folder.
        resumed: whether an earlier attempt started or finished it.
        meta: of the artifact; may be changed until it is finished.
    """

    id: str
    kind: Kind
    path: Path
    resumed: bool
    meta: dict[str, Any]
    lock: FileLock = field(repr=False)


class ActiveAttempt:
    """Made by `Run.attempt`.

    Attributes:
        id: `<stage>-<n>`.
        metrics, environment: may be changed; recorded when an artifact is finished and when the attempt ends.
        log_path: log of errors, for people. metrics_path: JSONL file for metrics during the work.
        progress_path: file of the progress so far (`sweet.runs.progress`).
        tokens: counts what its models read and write.
    """

    def __init__(
        self,
        store: Store,
        stage: str,
        config: Config,
        inputs: Sequence[Artifact] = (),
        ran_on: dict[str, Any] | None = None,
    ) -> None:
        self._store = store
        self.stage = stage
        self.metrics: dict[str, Any] = {}
        self.environment: dict[str, Any] = environment(store.load().task) | (ran_on or {})
        self._digest = config.digest()
        self._settings = recordable(config.outcome_settings())
        recorded = recordable(config.model_dump(mode="json"))
        remember(recorded)  # whoever begins an attempt has given its settings, or trusted them
        self._inputs = [  # as they are now, even if they were edited since they were finished
            ArtifactRef(id=source.id, sha256=current_sha256(store.root / source.path, source)) for source in inputs
        ]
        self._drafts: dict[str, Draft] = {}
        logs = store.root / LOGS
        with store.change() as manifest:
            settle_attempts(manifest, self._store)
            for attempt in manifest.attempts:
                if attempt.status == "interrupted" and attempt.finished is None:  # it died
                    _remove_progress(store.root, attempt.id)
            make_folder(logs)
            self.id = next_id(stage, [*(attempt.id for attempt in manifest.attempts), *_stems(logs)])
            self._alive, self._began = store.lock(self.id), time.monotonic()
            manifest.attempts.append(
                Attempt(
                    id=self.id,
                    stage=stage,
                    started=now(),
                    pid=os.getpid(),
                    host=host(),
                    process=process_mark(os.getpid()),
                    config=recorded,
                    digest=self._digest,
                    inputs=self._inputs,
                    environment=recordable(self.environment),
                    log=f"{LOGS}/{self.id}.log",
                )
            )
        self.log_path = logs / f"{self.id}.log"
        self.metrics_path = logs / f"{self.id}.jsonl"
        self.progress_path = progress_path(store.root, self.id)
        self.tokens = TokenMeter(tokens_path(store.root, self.id))
        self._log(f"{self.id} started")

    def start_artifact(
        self,
        kind: Kind,
        suffix: str = ".jsonl",
        meta: dict[str, Any] | None = None,
        resume: bool = False,
        restart: bool = False,
        allow_new: bool = True,
    ) -> Draft:
        """Register an artifact as partial and lock it; with an empty suffix it is a folder, which is made.

        Args:
            resume: continue the newest artifact, partial or finished, of the same stage, digest, inputs and meta, if
                there is one.
            restart: begin the newest of these again, without its content, if it never finished, or if it did and its
                attempt was stopped before it ended.
            allow_new: whether a new one may be started if the stage's newest is unfinished and has other settings.

        Raises:
            UsageError: a running attempt is writing that artifact; or it is unfinished, has other settings, and
                `allow_new` is False.
            InputError: it is not a regular file, or a folder with others, or reached over a link.
        """
        if kind not in KINDS:
            raise ValueError(f"{kind} is not a kind of artifact")
        meta = recordable(meta or {})
        with self._store.change() as manifest:
            previous = self._same(manifest, kind, meta) if resume or restart else None
            if restart and previous is not None and not _is_abandoned(manifest, previous):
                previous = None
            if previous is None:
                if not allow_new:
                    self._refuse_others(manifest, kind, meta)
                artifact = self._new(manifest, kind, suffix, meta)
                manifest.artifacts.append(artifact)
            else:
                artifact = previous
                if restart:
                    artifact.sha256 = artifact.rows = artifact.finished = None
            path = self._store.root / artifact.path
            (check_file if suffix else check_tree)(path)
            lock = self._lock(artifact, manifest)
            artifact.status = "partial"
            artifact.attempt = self.id
            attempt = _required(manifest.attempt(self.id), self.id)
            if artifact.id not in attempt.outputs:
                attempt.outputs.append(artifact.id)
            draft = Draft(artifact.id, kind, path, resume and previous is not None, dict(artifact.meta), lock)
            self._drafts[artifact.id] = draft
        if restart:
            path.unlink(missing_ok=True)
        make_folder(path.parent if suffix else path)
        return draft

    def finish_artifact(self, draft: Draft, rows: int | None = None, *, made_from: Sequence[Artifact] = ()) -> Artifact:
        """Flush the content to the disk and record the artifact as done.

        Args:
            made_from: artifacts that this attempt has finished and this one was made from; they are its first
                inputs.

        Raises:
            SweetError: the stage has not written it.
        """
        if not draft.path.exists():
            raise SweetError(f"{self.stage} has not written {draft.id}.", where=draft.path)
        make_durable(draft.path)
        content = measure(draft.path)
        with self._store.change() as manifest:
            artifact = _required(manifest.artifact(draft.id), draft.id)
            artifact.rows, artifact.sha256, artifact.bytes = rows, content.sha256, content.bytes
            artifact.meta, artifact.finished, artifact.status = recordable(draft.meta), now(), "done"
            artifact.inputs = [*(source.ref() for source in made_from), *self._inputs]
            manifest.artifacts.append(manifest.artifacts.pop(manifest.artifacts.index(artifact)))  # now the newest
            self._record(manifest)
        with place_of(sums_path(draft.path)) as sums:
            sums.unlink()
        self._drafts.pop(draft.id).lock.release()
        return artifact.model_copy(deep=True)

    def record(self) -> None:
        """Write the metrics so far into the manifest."""
        with self._store.change() as manifest:
            self._record(manifest)

    def end(self, error: BaseException | None) -> None:
        """Record how the attempt ended and release the locks of its artifacts."""
        status, text, code = _outcome(error)
        try:
            if error is not None and not isinstance(error, SweetError | KeyboardInterrupt):
                self._log("".join(traceback.format_exception(error)))
            self._log(f"{self.id} ended: {status}" + (f", {text}" if text else ""))
            with self._store.change() as manifest:
                attempt = self._record(manifest)
                attempt.status, attempt.error, attempt.exit_code = status, text, code
                attempt.finished = attempt.started + timedelta(seconds=time.monotonic() - self._began)  # clocks get set
        finally:
            _remove_progress(self._store.root, self.id)
            for lock in filter(None, (self._alive, *(draft.lock for draft in self._drafts.values()))):
                lock.release()
            self._drafts.clear()

    def _same(self, manifest: Manifest, kind: Kind, meta: dict[str, Any]) -> Artifact | None:
        for artifact in reversed(manifest.artifacts):
            maker = manifest.attempt(artifact.attempt)
            if (
                artifact.kind == kind
                and maker is not None
                and (maker.stage, maker.digest) == (self.stage, self._digest)
                and [ref for ref in artifact.inputs if ref.id not in maker.outputs] == self._inputs
                and all(artifact.meta.get(key) == value for key, value in meta.items())
            ):
                return artifact
        return None

    def _refuse_others(self, manifest: Manifest, kind: Kind, meta: dict[str, Any]) -> None:
        """Raise UsageError if the stage's newest artifact of this kind is unfinished; names the settings that differ.
        One that is empty, because a server refused everything, binds nobody."""
        pairs = [(a, manifest.attempt(a.attempt)) for a in manifest.artifacts if a.kind == kind]
        ours = [(artifact, maker) for artifact, maker in pairs if maker is not None and maker.stage == self.stage]
        if not ours or ours[-1][0].status != "partial" or not _has_content(self._store.root / ours[-1][0].path):
            return
        artifact, maker = ours[-1]
        before, now_ = maker.config | artifact.meta, self._settings | meta
        changed = [
            changed_words(option(key) if key in self._settings else key, before.get(key), value)
            for key, value in now_.items()
            if before.get(key) != value
        ]
        how, then = "is not finished", f"{stage_hint(self.stage, self._store.root, resume=True)} goes on with it"
        if maker.status == "running":
            how, then = f"is being written by {maker.id}, pid {maker.pid} on {maker.host}", "wait for it or stop it"
        raise UsageError(
            f"{artifact.id} {how}, and was started with other settings: {'; '.join(changed) or 'other inputs'}.",
            where=self._store.root / artifact.path,
            fix=f"{then}; --new begins another beside it",
        )

    def _new(self, manifest: Manifest, kind: Kind, suffix: str, meta: dict[str, Any]) -> Artifact:
        """Return an artifact with a number that neither the manifest nor the folder has."""
        used_ids = [*(artifact.id for artifact in manifest.artifacts), *_stems(self._store.root / kind)]
        id = next_id(kind, used_ids)
        path = f"{kind}/{id}{suffix}"
        return Artifact(
            id=id, kind=kind, path=path, attempt=self.id, inputs=list(self._inputs), created=now(), meta=meta
        )

    def _lock(self, artifact: Artifact, manifest: Manifest) -> FileLock:
        lock = self._store.lock(artifact.id)
        if lock is not None:
            return lock
        holder = manifest.attempt(artifact.attempt)
        who = f"{holder.id}, pid {holder.pid} on {holder.host}" if holder else "another attempt"
        raise UsageError(
            f"{artifact.id} is being written by {who}.",
            where=self._store.root / artifact.path,
            fix="wait for it or stop it, then run the same command again; it goes on from there",
        )

    def _record(self, manifest: Manifest) -> Attempt:
        attempt = _required(manifest.attempt(self.id), self.id)
        attempt.metrics, attempt.environment = recordable(self.metrics), recordable(self.environment)
        return attempt

    def _log(self, text: str) -> None:
        handle = open_descriptor(self.log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        with os.fdopen(handle, "a", encoding="utf-8", errors="replace") as file:
            file.write(f"{now().isoformat(timespec='seconds')} {recordable(text)}\n")


def settle_attempts(manifest: Manifest, locks: Store | None = None) -> None:
    """Mark running attempts whose process has ended as interrupted.

    Args:
        locks: of the run, which tell it of a process that cannot be seen from here.
    """
    for attempt in manifest.attempts:
        gone = attempt.status == "running" and is_gone(attempt.pid, attempt.host, attempt.process)
        if gone is None and locks is not None and (lock := locks.lock(attempt.id)) is not None:
            lock.release()
            gone = True
        if gone:
            attempt.status = "interrupted"
            attempt.error = f"died: process {attempt.pid} on {attempt.host} ended without a record"


def _outcome(error: BaseException | None) -> tuple[Any, str | None, int]:
    """Return the status, the error and the exit code of the command of an attempt that ends so."""
    if error is None:
        return "done", None, 0
    name = f"stopped by {INTERRUPTED_BY[-1]}" if isinstance(error, KeyboardInterrupt) else type(error).__name__
    text = str(error) if isinstance(error, SweetError) else f"{name}: {error}" if str(error) else name
    stopped = isinstance(error, Interrupted) or not isinstance(error, Exception)
    code = error.exit_code if isinstance(error, SweetError) else (Interrupted if stopped else SweetError).exit_code
    return ("interrupted" if stopped else "failed"), recordable(text), code


def progress_path(root: Path, attempt: str) -> Path:
    """Return the file of the progress of an attempt, below the root of its run."""
    return root / LOGS / f"{attempt}.progress.json"


def _remove_progress(root: Path, attempt: str) -> None:
    """Remove the file by which other processes see an attempt."""
    with suppress(OSError, SweetError), place_of(progress_path(root, attempt)) as place:
        place.unlink()


def _required(record: T | None, id: str) -> T:
    """Return what the manifest has under an id.

    Raises:
        SweetError: it was removed.
    """
    if record is None:
        raise SweetError(
            f"{id} was removed from the manifest while it was running. Its files are unchanged.",
            fix="run the same command again",
        )
    return record


def _is_abandoned(manifest: Manifest, artifact: Artifact) -> bool:
    """Return whether an artifact was never finished, or its attempt was stopped before it ended, and none writes it."""
    status = _required(manifest.attempt(artifact.attempt), artifact.attempt).status
    return status != "running" and (artifact.sha256 is None or status == "interrupted")


def _has_content(path: Path) -> bool:
    """Return whether there is anything in an artifact, or in the steps of what is under way beside it."""
    files = [*path.rglob("*"), path, *path.parent.glob(f".{path.stem}.steps")]
    return any(file.is_file() and file.stat().st_size for file in files)


def _stems(folder: Path) -> list[str]:
    try:
        return [entry.name.partition(".")[0] for entry in folder.iterdir()]
    except FileNotFoundError:
        return []
