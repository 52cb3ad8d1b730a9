"""Bookmarked trajectories with their notes, stored in the run; and the export of a selection to a file.

`RUN/bookmarks.json` is read again before each change and rewritten as a whole under a lock, so that two viewers do not
undo each other's changes. The file is small and indented, and may be edited by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal

from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import to_json

from sweet.datasets.layout import known_system, published_line, published_row
from sweet.errors import InputError, SweetError, UsageError
from sweet.files import check_target, replacing, write_whole
from sweet.regular import read_regular
from sweet.runs.run import Run
from sweet.runs.store import Store
from sweet.view.records import Records, Summary

NAME = "bookmarks.json"
LARGEST = 1 << 26
"""Most bytes of a file of bookmarks that is read."""
LOCK_TIMEOUT = 5.0
"""Seconds to wait for another viewer's change, which takes milliseconds."""


class _File(BaseModel):
    """The notes of each rollouts artifact, by trajectory id, because the same task, sample and seed may occur twice."""

    model_config = ConfigDict(extra="forbid")

    schema_version: Literal[1] = 1
    bookmarks: dict[str, dict[str, str]] = Field(default_factory=dict)


class Bookmarks:
    """The bookmarks of one rollouts artifact.

    Args:
        rollouts: the id of the artifact.

    Raises:
        InputError: the file is damaged.
    """

    def __init__(self, run: Run, rollouts: str) -> None:
        self.path = run.path / NAME
        self.rollouts = rollouts
        self._store = Store(run.path.absolute())
        self._notes = self._read().bookmarks.get(rollouts, {})

    @property
    def notes(self) -> dict[str, str]:
        """The note of each bookmarked trajectory by its id; empty for a bookmark without a note."""
        return dict(self._notes)

    def reload(self) -> None:
        """Read the changes of other viewers."""
        self._notes = self._read().bookmarks.get(self.rollouts, {})

    def set(self, id: str, note: str = "") -> None:
        """Bookmark a trajectory, or change its note.

        Raises:
            UsageError: the run cannot be written.
        """
        self._change(lambda notes: notes.update({id: note}))

    def remove(self, id: str) -> None:
        """Remove a bookmark.

        Raises:
            UsageError: the run cannot be written.
        """
        self._change(lambda notes: notes.pop(id, None))

    def _change(self, change: Callable[[dict[str, str]], object]) -> None:
        try:
            with FileLock(self._store.lock_path("bookmarks"), timeout=LOCK_TIMEOUT):
                kept = self._read()
                notes = kept.bookmarks.setdefault(self.rollouts, {})
                change(notes)
                write_whole(self.path, to_json(kept, indent=1) + b"\n")
        except Timeout as error:
            what = f"Another process has held the bookmarks for {LOCK_TIMEOUT:.0f} seconds."
            raise SweetError(what, where=error.lock_file, fix="end the stopped process, then try again") from error
        except OSError as error:
            raise UsageError(f"The bookmark cannot be saved: {error.strerror}.", where=self.path) from error
        self._notes = notes

    def _read(self) -> _File:
        try:
            return _File.model_validate_json(read_regular(self.path, LARGEST))
        except FileNotFoundError:
            return _File()
        except OSError as error:
            raise InputError(f"The bookmarks cannot be read: {error.strerror}.", path=self.path) from error
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"])) or "the whole file"
            what = f"The bookmarks are damaged: {where}: {first['msg']}."
            raise InputError(what, path=self.path, fix=f"fix them by hand, or mv {self.path} elsewhere") from error


def export(records: Records, summaries: Iterable[Summary], path: Path) -> int:
    """Write trajectories with their rewards in the published layout, like `sweet data export`, but in the given order
    and without the prompts of the turns.

    Returns:
        the number of trajectories.

    Raises:
        UsageError: the file cannot be written.
    """
    check_target(path)
    written = 0
    system = known_system(records.run, records.rollouts)
    with replacing(path) as file:
        for summary in summaries:
            record = records.record(summary)
            file.write(published_line(published_row(record.trajectory, record.reward, system)))
            written += 1
    return written
