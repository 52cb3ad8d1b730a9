"""A run: one directory with a manifest, and the access to its artifacts.

Nothing is cached between calls: every answer is read from the disk, so a `Run` may be used while other processes work
on the same directory. Files are found by the manifest, never by their names.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from pathlib import Path
from typing import Any

from sweet.errors import AGAIN, InputError, SweetError, UsageError
from sweet.full_disk import full_disk
from sweet.hints import stage
from sweet.installation import VERSION
from sweet.paths import RUNS
from sweet.runs.attempt import ActiveAttempt, Config, settle_attempts
from sweet.runs.content import check_content, check_size, current_content, current_sha256
from sweet.runs.lineage import Staleness, ancestors, input_of
from sweet.runs.manifest import Artifact, ArtifactRef, Kind, Manifest, now
from sweet.runs.stages import KINDS, stage_making, stage_named
from sweet.runs.store import LOCKS, NO_RUN, TEMPORARY, Store
from sweet.runs.tokens import metering
from sweet.runs.trust import only_known
from sweet.runs.unfinished import is_unseen
from sweet.suggestions import did_you_mean


class Run:
    """One run directory. `path` is as it was given, for messages; paths of files are absolute."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._root = self.path.absolute()
        self._store = Store(self._root)
        self._read: dict[str, str] = {}

    @classmethod
    def create(cls, path: str | Path, task: str = "code") -> Run:
        """Create a run.

        Raises:
            UsageError: there is a run already, or another directory or file.
        """
        run, is_new = cls._make(path, task)
        if not is_new:
            raise UsageError("There is a run already.", where=path, fix="name another directory, or use this run")
        return run

    @classmethod
    def open(cls, path: str | Path) -> Run:
        """Open an existing run.

        Raises:
            UsageError: it does not exist, or its manifest has another schema.
            InputError: its manifest is damaged.
        """
        run = cls(path)
        if not run._root.is_dir():
            what = f"There is no such run.{did_you_mean(str(path), _nearby_runs(run.path))}"
            raise UsageError(what, where=path, fix=NO_RUN)
        run._store.load()
        return run

    @classmethod
    def open_or_create(cls, path: str | Path, task: str = "code") -> Run:
        """Open the run at a path, or create it for this kind of task. Two processes may do so at once.

        Raises:
            UsageError: the path is something else.
        """
        return cls._make(path, task)[0]

    @property
    def name(self) -> str:
        """The name of its directory, whatever `path` says of it."""
        return self._root.resolve().name

    @property
    def exists(self) -> bool:
        """Whether it has a manifest, or a copy of it."""
        return self._store.exists() or self._store.backup.exists()

    @property
    def is_free(self) -> bool:
        """Whether a run can be created here: nothing is there, or a directory that contains nothing of others."""
        if not self._root.is_dir():
            return not self._root.exists()
        names = [entry.name for entry in self._root.iterdir()]
        return all(name == LOCKS or name.startswith(TEMPORARY) for name in names)

    @classmethod
    def newest(cls, root: Path = RUNS) -> Run:
        """Return the run under `root` that was created last.

        Raises:
            UsageError: there is none.
        """
        runs = [cls(path) for path in (root.iterdir() if root.is_dir() else ()) if Store(path.absolute()).exists()]
        if not runs:
            what = "There is no run yet. sweet rollout makes one of your own, sweet demo a first one."
            raise UsageError(what, where=root, fix="sweet demo")
        newest = max(runs, key=lambda run: (run._created(), run.name))
        newest._store.load()
        return newest

    @classmethod
    def _make(cls, path: str | Path, task: str) -> tuple[Run, bool]:
        run, fix = cls(path), "name a new or an empty directory"
        try:
            run._root.mkdir(parents=True, exist_ok=True)
            is_free = run.is_free
        except OSError as error:
            raise UsageError(f"The run cannot be created: {error.strerror}.", where=path, fix=fix) from error
        if not is_free and not run.exists:
            raise UsageError("The directory is not empty and is not a run.", where=path, fix=fix)
        with run._store.locked():
            if run.exists:
                run._store.load()
                return run, False
            run._store.save(Manifest(sweet_version=VERSION, task=task, created=now()))
        return run, True

    def _created(self) -> float:
        """Return when the run was created; if the manifest cannot be read, when that was last modified."""
        try:
            return self._store.load().created.timestamp()
        except SweetError:
            return self._store.path.stat().st_mtime

    def manifest(self) -> Manifest:
        """Return the current manifest. Attempts whose process has ended are interrupted in it."""
        manifest = self._store.load()
        settle_attempts(manifest)
        for artifact in manifest.artifacts:
            reopened = artifact.status == "partial" and artifact.sha256 is not None
            with suppress(InputError):  # what is in its place is not a file, or a link
                if reopened and current_content(self.file(artifact), artifact) == artifact.sha256:
                    artifact.status = "done"
        return manifest

    def file(self, artifact: Artifact) -> Path:
        """Return the absolute path of an artifact."""
        return self._root / artifact.path

    def artifact(self, id: str) -> Artifact:
        """Return the artifact of an id. Raises UsageError if there is none."""
        manifest = self.manifest()
        artifact = manifest.artifact(id)
        if artifact is None:
            raise self._unknown(id, [artifact.id for artifact in manifest.artifacts])
        return artifact

    def reading(self, inputs: Sequence[ArtifactRef], *, needed_by: str) -> Run:
        """Return this run with the inputs of an earlier attempt in the place of the newest artifacts.

        Raises:
            UsageError: one does not exist any more, or has another content than it had then.
        """
        manifest, same = self.manifest(), copy(self)
        same._read = {}
        for ref in inputs:
            artifact = manifest.artifact(ref.id)
            content = None if artifact is None else current_sha256(self.file(artifact), artifact)
            if content is None or content != ref.sha256:
                how = "it does not exist any more" if content is None else "it has changed since"
                raise UsageError(
                    f"{needed_by} needs {ref.id} as it was, and {how}.",
                    where=self.path if artifact is None else self.file(artifact),
                    fix="restore it from a copy, or begin again without --resume",
                )
            same._read.setdefault(ref.id.rpartition("-")[0], ref.id)
        return same

    def read_instead(self, kind: str) -> str | None:
        """Return the artifact that is read in the place of the newest of a kind (`reading`); None if there is none."""
        return self._read.get(kind)

    def find(self, kind: Kind, from_id: str | None = None, *, needed_by: str, as_it_is: bool = False) -> Artifact:
        """Return the newest finished artifact of a kind, or the one that `from_id` or `reading` names.

        Args:
            as_it_is: also one whose file has another size than when it was finished.

        Raises:
            UsageError: there is none; names the stage that makes it, or the existing ids.
            InputError: its file has another size than when it was finished, or is no regular file.
        """
        manifest = self.manifest()
        done = manifest.of_kind(kind, "done")
        from_id = from_id or self.read_instead(kind)
        if from_id is not None:
            chosen = manifest.artifact(from_id)
            if chosen is None or chosen.kind != kind:
                raise self._unknown(from_id, [artifact.id for artifact in done], kind)
            if chosen.status != "done":
                raise self._unfinished(manifest, chosen, needed_by)
        elif done:
            chosen = done[-1]
        else:
            partial = manifest.of_kind(kind, "partial")
            if partial:
                raise self._unfinished(manifest, partial[-1], needed_by)
            what = f"{needed_by} needs {kind}, and the run has none yet."
            raise UsageError(what, where=self.path, fix=self._maker(kind))
        if not self.file(chosen).exists():
            what = f"{needed_by} needs {chosen.id}, and its file does not exist."
            raise UsageError(what, where=self.file(chosen), fix=f"put it back, or {self._maker(kind)}")
        if not as_it_is:
            check_size(self.file(chosen), chosen, self._again(manifest, chosen))
        return chosen

    def verify(self, artifact: Artifact, *, sums: bool = True) -> None:
        """Check that an artifact is as it was finished.

        Args:
            sums: whether its sha256 is compared, too; its size and the number of its rows always are.

        Raises:
            InputError: it is not; the fix is the command that makes it again.
        """
        check_content(self.file(artifact), artifact, self._again(self._store.load(), artifact), sums=sums)

    def input_of(self, artifact: Artifact, kind: Kind) -> Artifact:
        """Return the nearest artifact of a kind that an artifact was made from; itself if it is of that kind.

        Raises:
            UsageError: there is none.
        """
        source = input_of(self.manifest(), artifact, kind)
        if source is None:
            raise UsageError(f"{artifact.id} was not made from any {kind} of this run.", where=self.path)
        return source

    def stale(self, artifact: Artifact) -> str | None:
        """Return why an artifact is stale, in one clause; None if it is not."""
        return self.staleness(self.manifest())(artifact)

    def staleness(self, manifest: Manifest) -> Staleness:
        """Return `stale` for many artifacts of one manifest."""
        return Staleness(manifest, lambda artifact: current_content(self.file(artifact), artifact))

    def unknown_files(self, manifest: Manifest) -> list[str]:
        """Return the entries of the artifacts' folders that are not in the manifest: added by hand, or left when the
        manifest was replaced by an older copy. They are never overwritten. Hidden files belong to the program."""
        recorded_paths = {artifact.path for artifact in manifest.artifacts}
        paths = [
            entry.relative_to(self._root).as_posix()
            for kind in KINDS
            if (self._root / kind).is_dir() and not (self._root / kind).is_symlink()
            for entry in (self._root / kind).iterdir()
            if not entry.name.startswith(".")
        ]
        return sorted(path for path in paths if path not in recorded_paths)

    @contextmanager
    def attempt(
        self,
        stage: str,
        config: Config,
        inputs: Sequence[Artifact] = (),
        environment: dict[str, Any] | None = None,
        *,
        verify: bool = True,
        warn: Callable[[str], None] | None = None,
    ) -> Iterator[ActiveAttempt]:
        """Record one call of a stage: running within the block, then done, failed or interrupted.

        Args:
            inputs: the artifacts it reads.
            environment: recorded in addition to versions and system.
            verify: whether the sha256 of its inputs is compared, too; their sizes and numbers of rows always are.
            warn: called with a sentence for each input that is stale.

        Raises:
            InputError: an input is not as it was finished.
            SweetError: the disk became full, or failed, within the block.
        """
        for artifact in inputs:
            self.verify(artifact, sums=verify)
        if warn is not None:
            for sentence in self._stale_inputs(inputs):
                warn(sentence)
        attempt = ActiveAttempt(self._store, stage, config, inputs, environment)
        try:
            with metering(attempt.tokens):
                yield attempt
        except BaseException as error:
            full = full_disk(error, self.path)
            if isinstance(ended := full or error, SweetError):
                ended.fix = self._going_on(ended.fix, stage, config)
            try:
                attempt.end(ended)
            except Exception as second:
                error.add_note(f"The manifest could not be updated: {second}")
            if full is not None:
                raise full from error
            raise
        attempt.end(None)

    def _going_on(self, fix: str | None, name: str, config: Config) -> str | None:
        """Return a fix by which a training that was begun without --resume is gone on with, and not begun again."""
        spec = stage_named(name)
        asks = spec is not None and spec.resumes == "if asked" and not getattr(config, "resume", True)
        return fix.replace(AGAIN, f"go on: {stage(name, self.path, resume=True)}") if fix and asks else fix

    def _stale_inputs(self, inputs: Sequence[Artifact]) -> Iterator[str]:
        """Yield a sentence for each stale input, and what makes the first stale artifact behind it again."""
        manifest = self.manifest()
        stale = self.staleness(manifest)
        for artifact in inputs:
            if (why := stale(artifact)) is not None:
                first = [ancestor for ancestor in ancestors(manifest, artifact) if stale(ancestor) is not None][-1]
                again = self._again(manifest, first)
                yield f"{artifact.id} is stale: {why}. It is used as it is; to make {first.id} again: {again}"

    @contextmanager
    def exclusive(self, name: str) -> Iterator[None]:
        """Hold a lock of the run.

        Raises:
            UsageError: another process holds it.
        """
        lock = self._store.lock(name)
        if lock is None:
            what = f"Another sweet {name} is working on this run."
            raise UsageError(what, where=self.path, fix="wait for it or stop it")
        try:
            yield
        finally:
            lock.release()

    def _maker(self, kind: Kind) -> str:
        return stage(stage_making(kind).name, self.path)

    def _again(self, manifest: Manifest, artifact: Artifact) -> str:
        """Return what makes an artifact again."""
        attempt = manifest.attempt(artifact.attempt)
        maker = None if attempt is None else stage_named(attempt.stage)
        if attempt is None or maker is None:
            return f"sweet data import FILE {shlex.quote(str(self.path))}"
        return maker.command(only_known(attempt.config), self.path)

    def _unfinished(self, manifest: Manifest, artifact: Artifact, needed_by: str) -> UsageError:
        attempt = manifest.attempt(artifact.attempt)
        maker = None if attempt is None else stage_named(attempt.stage)
        what, where = f"{needed_by} needs {artifact.kind}, and {artifact.id} is", self.file(artifact)
        fix = stage((maker or stage_making(artifact.kind)).name, self.path, resume=True)
        if attempt is not None and attempt.status == "running":
            follow = stage("status", self.path, follow=True)
            if not is_unseen(attempt):
                return UsageError(f"{what} being made.", where=where, fix=follow)
            what = f"{what} being made on {attempt.host}, if that still runs."
            return UsageError(what, where=where, fix=f"{follow}, or {fix}")
        return UsageError(f"{what} not finished; --resume goes on with it.", where=where, fix=fix)

    def _unknown(self, id: str, existing: list[str], kind: str = "artifact") -> UsageError:
        has = f"it has {', '.join(existing)}" if existing else "it has none that is finished"
        named = kind if kind == "artifact" else f"{kind} named"
        what = f"The run has no {named} {id}; {has}.{did_you_mean(id, existing)}"
        return UsageError(what, where=self.path, fix=f"name one of them, or {stage('status', self.path)}")


def _nearby_runs(path: Path) -> list[str]:
    """Return the runs in the folder of a path, and under `runs/`."""
    folders = {path.parent, RUNS}
    entries = [entry for folder in folders if folder.is_dir() for entry in folder.iterdir()]
    return [str(entry) for entry in entries if Store(entry).exists()]
