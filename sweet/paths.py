"""Where things lie that nobody named a place for: runs, and what was downloaded."""

from __future__ import annotations

import os
import sys
from pathlib import Path

RUNS = Path("runs")
"""Where new runs are made and the newest one is looked for."""


def data_folder() -> Path:
    """The folder of what was downloaded, `$SWEET_DATA`, else the user's data folder of the platform; it need not
    exist."""
    if given := os.environ.get("SWEET_DATA"):
        return Path(given).expanduser()
    return _platform_folder() / "sweet"


def _platform_folder() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support"
    given = Path(os.environ.get("XDG_DATA_HOME", ""))
    return given if given.is_absolute() else Path.home() / ".local" / "share"
