"""Where datasets that were downloaded lie: `$SWEET_DATA`, else the user's data folder of the platform."""

from __future__ import annotations

import os
import sys
from pathlib import Path

COLBENCH_SPLITS = ("train", "test")
"""The splits of ColBench's backend tasks."""


def data_folder() -> Path:
    """The folder of downloaded datasets; it need not exist."""
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


def websight_file(split: str) -> Path:
    """The file of ColBench's frontend tasks of one split."""
    return data_folder() / "websight" / f"{split}.jsonl"


def colbench_file(split: str) -> Path:
    """The file of ColBench's backend tasks of one split, as `sweet data colbench` lays it down."""
    return data_folder() / "colbench" / f"{split}.jsonl"
