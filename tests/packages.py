"""Make packages importable without installing them (no network, no build backend), or hide installed ones."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parent / "example_kind"
"""The worked example: SQL queries."""


def register(project: Path, site: Path) -> list[Path]:
    """Write what an installer leaves of a project (its name, version and entry points) into the folder `site`.

    Returns:
        the folders that must be on the path of who is to find it.
    """
    told = tomllib.loads((project / "pyproject.toml").read_text("utf-8"))["project"]
    [(group, points)] = told["entry-points"].items()
    return [write_metadata(site, told["name"], told["version"], points, group), project]


def write_package(
    site: Path, name: str, source: str, points: dict[str, str], version: str = "1.0", group: str = "sweet.tasks"
) -> list[Path]:
    """A package of one module; the same for it."""
    site.mkdir(parents=True, exist_ok=True)
    (site / f"{name.replace('-', '_')}.py").write_text(source)
    return [write_metadata(site, name, version, points, group)]


def write_metadata(site: Path, name: str, version: str, points: dict[str, str], group: str = "sweet.tasks") -> Path:
    """Write the metadata of an installed distribution, with entry points of one group. Returns `site`."""
    folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = "".join(f"{point} = {value}\n" for point, value in points.items())
    (folder / "entry_points.txt").write_text(f"[{group}]\n{lines}")
    return site


def hide_package(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `import name` fail as if the package were not installed.

    None as an entry of `sys.modules` is the way that Python's reference names ("The import system", 5.3.1).
    """
    monkeypatch.setitem(sys.modules, name, None)
