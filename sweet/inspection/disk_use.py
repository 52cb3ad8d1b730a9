"""What a run takes on the disk, by kind, and what of it could be deleted without losing what cannot be made again."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from sweet.files import UNFINISHED
from sweet.render.store import SCREENSHOTS
from sweet.runs.attempt import LOGS
from sweet.runs.manifest import Manifest
from sweet.runs.stages import KINDS
from sweet.runs.store import TEMPORARY

SHORT = 5_000_000_000
"""Bytes; less free space than this is told."""


class Disposable(BaseModel):
    """Something that could be deleted."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    path: str
    """Relative to the run."""
    bytes: int
    why: str
    """What it is, and what is lost with it."""


class DiskUse(BaseModel):
    """What a run takes on the disk."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    bytes: int
    by_kind: dict[str, int]
    """Bytes of each kind of artifact, of screenshots, logs and the rest, the largest first."""
    disposable: list[Disposable]
    free: int
    """Bytes that are free on the run's disk."""

    @property
    def is_short(self) -> bool:
        """Whether so little is free that the next stage may not fit."""
        return self.free < max(SHORT, self.bytes)


def disk_use(root: Path, manifest: Manifest) -> DiskUse:
    """Look at the files of the run at `root`. Those that vanish meanwhile are passed over."""
    by_kind: dict[str, int] = {}
    leftovers: list[Disposable] = []
    for path, size in files_below(str(root)):
        parts = Path(path).relative_to(root).parts
        kind = parts[0] if len(parts) > 1 and parts[0] in (*KINDS, SCREENSHOTS, LOGS) else "other"
        by_kind[kind] = by_kind.get(kind, 0) + size
        if why := _why_disposable(parts[-1]):
            leftovers.append(Disposable(path="/".join(parts), bytes=size, why=why))
    disposable = [*_partial(root, manifest), *leftovers]
    if by_kind.get(SCREENSHOTS):
        why = "pages as the human saw them; rendered again where they are needed"
        disposable.append(Disposable(path=SCREENSHOTS, bytes=by_kind[SCREENSHOTS], why=why))
    return DiskUse(
        bytes=sum(by_kind.values()),
        by_kind=dict(sorted(by_kind.items(), key=lambda item: -item[1])),
        disposable=sorted(disposable, key=lambda item: -item.bytes),
        free=shutil.disk_usage(root).free,
    )


def files_below(folder: str) -> Iterator[tuple[str, int]]:
    """The files below a folder with their sizes in bytes. Links are not followed."""
    with suppress(OSError), os.scandir(folder) as entries:  # it may have just been deleted
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from files_below(entry.path)
            else:
                with suppress(OSError):
                    yield entry.path, entry.stat(follow_symlinks=False).st_size


def size_below(path: Path) -> int:
    """Bytes of a file, or of all files below a folder; 0 where there is none."""
    return path.lstat().st_size if path.is_file() else sum(size for _, size in files_below(str(path)))


def _why_disposable(name: str) -> str | None:
    """Why a file may be deleted, by its name; None where it may not."""
    if name.startswith(TEMPORARY) or (name.startswith(".") and name.endswith((UNFINISHED, ".part"))):
        return "left by a process that was killed"
    if name.startswith(".") and name.endswith(".index"):
        return "where each row begins; found out again where it is needed"
    return None


def _partial(root: Path, manifest: Manifest) -> Iterator[Disposable]:
    for artifact in manifest.artifacts:
        maker = manifest.attempt(artifact.attempt)
        if artifact.status == "partial" and maker is not None and maker.status in ("failed", "interrupted"):
            size = size_below(root / artifact.path)
            if size:
                why = f"{artifact.id} is not finished, {maker.id} was {maker.status}; it could not be gone on with then"
                yield Disposable(path=artifact.path, bytes=size, why=why)
