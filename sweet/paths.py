"""Default locations: of runs, and of downloaded data."""

from __future__ import annotations

import os
import sys
from pathlib import Path

RUNS = Path("runs")
"""Where new runs are created and where the newest run is looked up."""


def data_folder() -> Path:
    """The folder of downloaded data: `$SWEET_DATA`, otherwise the platform's data folder. It may not exist."""
    if configured := os.environ.get("SWEET_DATA"):
        return Path(configured).expanduser()
    return _platform_folder() / "sweet"


def _platform_folder() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support"
    folder = Path(os.environ.get("XDG_DATA_HOME", ""))
    return folder if folder.is_absolute() else Path.home() / ".local" / "share"
