"""Lets a copy of the repository that is not installed be used as if it were.

`sweet` finds its kinds of tasks and its credit rules by the entry points of its distribution, and a machine without a
network may lack what an installation is built with.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

from sweet.installation import DISTRIBUTION, VERSION, installed_version

ROOT = Path(__file__).resolve().parents[2]


def is_installed() -> bool:
    """Whether Python knows the distribution."""
    return installed_version(DISTRIBUTION) is not None


def write_metadata(folder: Path) -> Path:
    """Write the distribution's metadata to a folder for PYTHONPATH, and return that folder."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    own = folder / f"{DISTRIBUTION.replace('-', '_')}-{VERSION}.dist-info"
    own.mkdir(parents=True, exist_ok=True)
    (own / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {DISTRIBUTION}\nVersion: {VERSION}\n")
    lines = []
    for group, points in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {target}" for name, target in points.items()), ""]
    (own / "entry_points.txt").write_text("\n".join(lines))
    return folder
