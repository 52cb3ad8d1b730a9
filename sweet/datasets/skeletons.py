"""Folders that are written whole, from templates of the package.

A template's file has the suffix `.in` and placeholders such as `@name@`; the folder `package` in it gets the name of
the Python package.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from sweet.datasets.metrics import NewTaskMetrics
from sweet.errors import UsageError
from sweet.installation import DISTRIBUTION
from sweet.plugins import plugins
from sweet.stages.base import StageConfig, StageResult

_SUFFIX = ".in"


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Yield an empty folder whose content is moved to `folder`, which may not exist yet, when the block ends normally.

    Raises:
        UsageError: the folder is not empty, or is a file.
    """
    target = folder.resolve()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError("The folder already exists and is not empty.", where=folder, fix="name a new folder")
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as temporary:
        yield Path(temporary)
        for entry in sorted(Path(temporary).iterdir()):
            entry.rename(target / entry.name)


def copy_skeleton(source: Traversable, target: Path, values: Mapping[str, str]) -> int:
    """Copy a folder of templates and fill their placeholders. Return the number of files.

    Args:
        values: of the placeholders by their names, `package` among them.
    """
    count = 0
    for entry in source.iterdir():
        if entry.is_dir():
            folder = target / (values["package"] if entry.name == "package" else entry.name)
            folder.mkdir()
            count += copy_skeleton(entry, folder, values)
        elif entry.name.endswith(_SUFFIX):
            name = entry.name.removesuffix(_SUFFIX)
            file = target / (".gitignore" if name == "gitignore" else name)
            file.write_text(_fill(entry.read_text("utf-8"), values), encoding="utf-8")
            count += 1
    return count


def _fill(text: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    return text


_NAME = re.compile(r"[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*")
_MAX_LENGTH = 40


class NewTaskConfig(StageConfig):
    name: str
    """The kind's name for --task: lower-case letters and digits, with - or _ between them."""


def run_new_task(folder: Path, config: NewTaskConfig) -> StageResult[NewTaskMetrics]:
    """Write the skeleton into `folder`, which must be empty or missing. The result's `run` is the folder.

    Raises:
        UsageError: the folder is not empty, or the name is invalid or taken.
    """
    _check_name(config.name)
    package = f"sweet_{config.name.replace('-', '_')}"
    values = {
        "name": config.name,
        "package": package,
        "distribution": package.replace("_", "-"),
        "Class": "".join(part.capitalize() for part in re.split("[-_]", config.name)),
    }
    with new_folder(folder) as inside:
        count = copy_skeleton(resources.files("sweet.tasks") / "skeleton", inside, values)
    return StageResult("data new-task", folder, NewTaskMetrics(name=config.name, package=package, files=count))


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name) or len(name) > _MAX_LENGTH:
        plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-0123456789")[:_MAX_LENGTH].rstrip("-")
        raise UsageError(
            f"{name!r} is not a valid name of a kind of task: lower-case letters and digits, a letter first, "
            f"with - or _ between them, at most {_MAX_LENGTH} characters.",
            where="--name",
            fix=f"--name {plain or 'mine'}",
        )
    # The class of a kind called "task" would be TaskKind, and sweet-rl is an unrelated package.
    if name in plugins() or f"sweet-{name}" in (DISTRIBUTION, "sweet-rl") or name == "task":
        raise UsageError(f"The name {name!r} is taken.", where="--name", fix=f"--name my-{name}")
