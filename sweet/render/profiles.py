"""The folders of browsers: profile, log and temporary files of one browser are in one folder.

A folder is removed with its browser. If this process is killed, the folder stays; but it is held by a lock, which the
kernel releases with the process, so that the next process that opens browsers finds it free and removes it.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

PREFIX = "sweet-firefox-"

NEW = 60.0
"""Seconds for which a folder counts as being created."""

_LOCK = "owner.lock"


class Profile:
    """A new folder with Firefox's preferences. `remove` must be called after the browser has ended."""

    def __init__(self, preferences: Mapping[str, Any]) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        self._lock = FileLock(self.folder / _LOCK, thread_local=False)
        self._lock.acquire(blocking=False)
        lines = [f"user_pref({json.dumps(name)}, {json.dumps(value)});\n" for name, value in preferences.items()]
        (self.folder / "user.js").write_text("".join(lines), encoding="utf-8")

    @property
    def log(self) -> Path:
        """The file with the browser's output."""
        return self.folder / "firefox.log"

    def port(self) -> int | None:
        """Return the port on which the browser accepts commands; None until it does."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            return int(json.loads((self.folder / "WebDriverBiDiServer.json").read_bytes())["ws_port"])
        return None

    def last_output(self) -> str:
        """Return the last line that the browser printed."""
        with suppress(OSError):
            lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            return "".join(character for character in lines[-1][:300] if character.isprintable()) if lines else ""
        return ""

    def remove(self) -> None:
        self._lock.release()
        shutil.rmtree(self.folder, ignore_errors=True)


def remove_stale() -> None:
    """Remove the folders of browsers whose process was killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError, Timeout):  # another user's, just removed, or in use
            status = folder.lstat()
            if status.st_uid != os.getuid() or time.time() - status.st_mtime < NEW:
                continue
            with FileLock(folder / _LOCK, blocking=False):
                shutil.rmtree(folder, ignore_errors=True)
