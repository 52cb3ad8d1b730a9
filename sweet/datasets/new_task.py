"""`sweet data new-task`: write the skeleton of a package with a kind of task.

The templates are in `sweet/tasks/skeleton`, with the suffix `.in` and placeholders such as `@name@`. The result works
at once: a task, a scripted human, a rule-based agent, a scorer, and a test of all of them.
"""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

from sweet.datasets.metrics import NewTaskMetrics
from sweet.datasets.skeletons import copy_skeleton, new_folder
from sweet.errors import UsageError
from sweet.installation import DISTRIBUTION, FORMER_DISTRIBUTION
from sweet.plugins import plugins
from sweet.stages.base import StageConfig, StageResult

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
            f"{name!r} is not a valid name of a kind of task: lower-case letters and digits, with - or _ between them, "
            f"at most {_MAX_LENGTH} characters.",
            where="--name",
            fix=f"--name {plain or 'mine'}",
        )
    # The class of a kind called "task" would be TaskKind.
    if name in plugins() or f"sweet-{name}" in (DISTRIBUTION, FORMER_DISTRIBUTION) or name == "task":
        raise UsageError(f"The name {name!r} is taken.", where="--name", fix=f"--name my-{name}")
