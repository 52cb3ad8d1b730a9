"""`sweet data new-task`: the skeleton of a package that brings a kind of task.

The files lie in `sweet/tasks/skeleton`, each with its name, an ending `.in`, and places such as `@name@`. What is made
works from the first moment: a task, a scripted human, an agent of rules, a scorer, and a test of all of them.
"""

from __future__ import annotations

import re
import tempfile
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from sweet.datasets.metrics import NewTaskMetrics
from sweet.errors import UsageError
from sweet.installation import DISTRIBUTION, FORMER_DISTRIBUTION
from sweet.plugins import plugins
from sweet.stages.base import StageConfig, StageResult

_NAME = re.compile(r"[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*")
_LONGEST = 40
_ENDING = ".in"


class NewTaskConfig(StageConfig):
    name: str
    """The kind's name, as --task takes it: small letters and digits, with - or _ between them."""


def run_new_task(folder: Path, config: NewTaskConfig) -> StageResult[NewTaskMetrics]:
    """Write the skeleton into `folder`, which must be empty or not there. The result's `run` is the folder.

    Raises:
        UsageError: something is in the folder, or the name cannot be one or is taken.
    """
    _check_name(config.name)
    place = folder.resolve()
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise UsageError("The folder is there already and not empty.", where=folder, fix="name a new folder")
    package = f"sweet_{config.name.replace('-', '_')}"
    places = {
        "name": config.name,
        "package": package,
        "distribution": package.replace("_", "-"),
        "Class": "".join(part.capitalize() for part in re.split("[-_]", config.name)),
    }
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=f".{place.name}.") as beside:
        count = _copy(resources.files("sweet.tasks") / "skeleton", Path(beside), places)
        for made in sorted(Path(beside).iterdir()):
            made.rename(place / made.name)
    return StageResult("data new-task", folder, NewTaskMetrics(name=config.name, package=package, files=count))


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name) or len(name) > _LONGEST:
        plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-0123456789")[:_LONGEST].rstrip("-")
        raise UsageError(
            f"{name!r} cannot be the name of a kind of task: small letters and digits, with - or _ between them, "
            f"{_LONGEST} characters at most.",
            where="--name",
            fix=f"--name {plain or 'mine'}",
        )
    # The class of a kind called "task" would be TaskKind.
    if name in plugins() or f"sweet-{name}" in (DISTRIBUTION, FORMER_DISTRIBUTION) or name == "task":
        raise UsageError(f"The name {name!r} is taken.", where="--name", fix=f"--name my-{name}")


def _copy(source: Traversable, target: Path, places: dict[str, str]) -> int:
    """Copy a folder with everything in its place; how many files."""
    count = 0
    for entry in source.iterdir():
        if entry.is_dir():
            folder = target / (places["package"] if entry.name == "package" else entry.name)
            folder.mkdir()
            count += _copy(entry, folder, places)
        elif entry.name.endswith(_ENDING):
            name = entry.name.removesuffix(_ENDING)
            file = target / (".gitignore" if name == "gitignore" else name)
            file.write_text(_filled(entry.read_text("utf-8"), places), encoding="utf-8")
            count += 1
    return count


def _filled(text: str, places: dict[str, str]) -> str:
    for place, value in places.items():
        text = text.replace(f"@{place}@", value)
    return text
