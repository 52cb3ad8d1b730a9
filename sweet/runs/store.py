"""The manifest on disk: read without a lock, written whole under a lock.

A write goes to a temporary file, is flushed to the disk, replaces the manifest in one step (`os.replace`), and the
folder is synced; then the same is done for `manifest.json.bak`. A reader therefore sees the manifest before or after a
change, even if the writer is killed. The lock is one of the system (flock), which releases it with the process. A
change is applied to the manifest as it is on disk at that time, so processes do not undo each other's changes.
"""

from __future__ import annotations

import errno
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from sweet.errors import AGAIN, InputError, SweetError, UsageError
from sweet.files import replaced, sync_folder
from sweet.installation import VERSION
from sweet.regular import check_file, confine, make_folder, read_regular
from sweet.runs.manifest import Manifest, parse, render

NAME = "manifest.json"
BACKUP = "manifest.json.bak"
NO_RUN = "sweet status"
"""What is tried where a run is not there: it shows the newest one."""

LOCKS = ".locks"
TEMPORARY = f".{NAME}."
"""Beginning of the names of its temporary files."""

LARGEST = 1 << 26
"""Most bytes of a manifest that is read: those of some ten thousand attempts."""

LOCK_TIMEOUT = 60.0
"""Seconds to wait for another process's change of the manifest, which takes milliseconds."""


class Store:
    """The manifest of the run at `root`.

    Reading or changing it declares the folder to be a run, whose files are reached without links (sweet.regular).
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.path = root / NAME
        self.backup = root / BACKUP

    def exists(self) -> bool:
        return self.path.is_file()

    def load(self) -> Manifest:
        """Read the manifest.

        Raises:
            UsageError: there is none, or it has another schema.
            InputError: it is damaged; the fix is the command that restores the last good copy, if there is one. Or it
                is not a regular file.
        """
        try:
            data = self._read(self.path)
        except FileNotFoundError as error:
            if self.backup.is_file():
                raise InputError("The run has lost its manifest.", path=self.path, fix=self._restore_hint()) from error
            what = "This is not a run: it has no manifest." if self.root.is_dir() else "There is no such run."
            raise UsageError(what, where=self.root, fix=NO_RUN) from error
        except OSError as error:
            raise UsageError(f"The manifest cannot be read: {error.strerror}.", where=self.path) from error
        try:
            return parse(data, self.path, "")
        except InputError as error:  # only now: checking the backup takes as long as reading the manifest
            error.fix = self._restore_hint()
            raise

    @contextmanager
    def change(self) -> Iterator[Manifest]:
        """Yield the manifest to be changed in place; it is written if the block ends without an error."""
        with self.locked():
            manifest = self.load()
            yield manifest
            self.save(manifest)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of the manifest: one process and thread at a time."""
        confine(self.root)
        lock = FileLock(self.lock_path("manifest"))
        try:
            lock.acquire(timeout=LOCK_TIMEOUT)
        except Timeout as error:
            what = f"Another process has held the lock of the run's manifest for {LOCK_TIMEOUT:.0f} seconds."
            raise SweetError(what, where=lock.lock_file, fix="end the stopped process, then try again") from error
        except OSError as error:
            raise self._unwritable(error) from error
        try:
            yield
        finally:
            lock.release()

    def lock_path(self, name: str) -> Path:
        """Return the lock file of the manifest, or of an artifact. Its content and existence have no meaning.

        Raises:
            InputError: it or its folder is a link, or something else that is not a file.
            UsageError: the run cannot be written.
        """
        path = self.root / LOCKS / f"{name}.lock"
        try:
            make_folder(path.parent)
            check_file(path)
        except OSError as error:
            raise self._unwritable(error) from error
        return path

    def lock(self, name: str) -> FileLock | None:
        """Acquire a lock of the run, which the system releases with the process; None if it is held."""
        lock = FileLock(self.lock_path(name), thread_local=False)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            return None
        return lock

    def save(self, manifest: Manifest) -> None:
        """Write the manifest, then its copy. The caller holds the lock."""
        manifest.sweet_version = VERSION
        data = render(Manifest.model_validate(manifest.model_dump()))
        for target in (self.path, self.backup):
            with replaced(target, durable=True, alone=True) as file:
                file.write(data)
            sync_folder(self.root)

    def _read(self, path: Path) -> bytes:
        if os.path.lexists(path):
            confine(self.root)
        return read_regular(path, LARGEST)

    def _unwritable(self, error: OSError) -> SweetError:
        what = f"The run cannot be written: {error.strerror}."
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return SweetError(what, where=self.root, fix=f"free some space, then {AGAIN}")
        return UsageError(what, where=self.root, fix="work on a copy of it, or make it writable")

    def _restore_hint(self) -> str:
        try:
            parse(self._read(self.backup), self.backup, "")
        except (OSError, SweetError):
            return (
                f"repair it by hand (sweet status --schema prints its form); the artifacts in {self.root} are unchanged"
            )
        return shlex.join(["cp", str(self.backup), str(self.path)])
