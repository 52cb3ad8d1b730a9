"""Default locations: of runs, of downloaded data, and of what can be computed again."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

RUNS = Path("runs")
"""Where new runs are created and where the newest run is looked up."""


def home() -> Path:
    """The user's home; of one without (in a container, an id of no account), a path below which no file can be made."""
    with suppress(RuntimeError):
        return Path.home()
    return Path(os.devnull)


def data_folder() -> Path:
    """The folder of downloaded data: `$SWEET_DATA`, otherwise the platform's data folder. It may not exist."""
    if configured := os.environ.get("SWEET_DATA"):
        return Path(configured).expanduser()
    return platform_folder() / "sweet"


def platform_folder() -> Path:
    """The platform's folder of the user's data."""
    if sys.platform == "darwin":
        return home() / "Library" / "Application Support"
    folder = Path(os.environ.get("XDG_DATA_HOME", ""))
    return folder if folder.is_absolute() else home() / ".local" / "share"


def cache_folder(what: str) -> Path:
    """Return the cache folder of one kind of result: under `$SWEET_CACHE`, else the user's cache folder."""
    if given := os.environ.get("SWEET_CACHE"):
        return Path(given).expanduser() / what
    general = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (general if general.is_absolute() else home() / ".cache") / "sweet" / what
