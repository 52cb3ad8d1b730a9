"""The disk use of a run by kind, and the files that can be deleted because they can be made again."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from sweet.files import UNFINISHED
from sweet.render.store import SCREENSHOTS
from sweet.runs.manifest import LOGS, Manifest
from sweet.runs.stages import KINDS, stage_named
from sweet.runs.store import TEMPORARY
from sweet.runs.unfinished import STOPPED

LOW_SPACE = 5_000_000_000
"""Bytes of free space below which a warning is shown."""


class Disposable(BaseModel):
    """A file or folder that can be deleted."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    path: str
    """Relative to the run."""
    bytes: int
    why: str
    """What it is, and what is lost by deleting it."""


class DiskUse(BaseModel):
    """The disk use of a run."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    bytes: int
    by_kind: dict[str, int]
    """Bytes of each kind of artifact, of screenshots, logs and the rest, the largest first."""
    disposable: list[Disposable]
    free: int
    """Free bytes on the run's disk."""

    @property
    def is_short(self) -> bool:
        """Whether the free space may be too small for the next stage."""
        return self.free < max(LOW_SPACE, self.bytes)


def disk_use(root: Path, manifest: Manifest) -> DiskUse:
    """Measure the files of the run at `root`. Files that vanish meanwhile are skipped."""
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
        why = "pages as the human saw them; rendered again when needed"
        disposable.append(Disposable(path=SCREENSHOTS, bytes=by_kind[SCREENSHOTS], why=why))
    return DiskUse(
        bytes=sum(by_kind.values()),
        by_kind=dict(sorted(by_kind.items(), key=lambda item: -item[1])),
        disposable=sorted(disposable, key=lambda item: -item.bytes),
        free=shutil.disk_usage(root).free,
    )


def files_below(folder: str) -> Iterator[tuple[str, int]]:
    """Yield the files below a folder with their sizes in bytes. Links are not followed."""
    with suppress(OSError), os.scandir(folder) as entries:  # it may have just been deleted
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from files_below(entry.path)
            else:
                with suppress(OSError):
                    yield entry.path, entry.stat(follow_symlinks=False).st_size


def size_below(path: Path) -> int:
    """Return the bytes of a file, or of all files below a folder; 0 if it does not exist."""
    return path.lstat().st_size if path.is_file() else sum(size for _, size in files_below(str(path)))


def _why_disposable(name: str) -> str | None:
    """Return why a file of this name can be deleted; None if it cannot."""
    if name.startswith(TEMPORARY) or (name.startswith(".") and name.endswith((UNFINISHED, ".part"))):
        return "left by a process that was killed"
    if name.startswith(".") and name.endswith(".index"):
        return "positions of the rows; computed again when needed"
    return None


def _partial(root: Path, manifest: Manifest) -> Iterator[Disposable]:
    """Yield the partial artifacts of stopped attempts that no later one goes on with."""
    for artifact in manifest.artifacts:
        maker = manifest.attempt(artifact.attempt)
        stage = None if maker is None else stage_named(maker.stage)
        if stage is not None and stage.resumes != "never":
            continue
        if artifact.status == "partial" and maker is not None and maker.status in STOPPED:
            size = size_below(root / artifact.path)
            if size:
                why = f"{artifact.id} is unfinished, {maker.id} was {maker.status}; {maker.stage} begins again"
                yield Disposable(path=artifact.path, bytes=size, why=why)
