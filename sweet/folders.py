"""Where what was downloaded lies: `$SWEET_DATA`, else the user's data folder of the platform."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def data_folder() -> Path:
    """The folder of what was downloaded; it need not exist."""
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
