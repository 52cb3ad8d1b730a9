"""Kinds of tasks by name. A kind is an entry point of the group `sweet.tasks`, so that a package can bring its own."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import cast

from sweet.errors import UsageError
from sweet.near import did_you_mean, nearest
from sweet.tasks.base import TaskKind

GROUP = "sweet.tasks"


def task_kind(name: str) -> TaskKind:
    """The kind called `name`.

    Raises:
        UsageError: no such kind is installed, or the package that brings it cannot be imported.
    """
    points = {point.name: point for point in entry_points(group=GROUP)}
    if name not in points:
        raise UsageError(
            f"There is no kind of task called {name!r}; installed: {', '.join(sorted(points)) or 'none'}."
            + did_you_mean(name, points),
            where="--task",
            fix=f"--task {nearest(name, points) or '|'.join(sorted(points))}",
        )
    try:
        return cast(TaskKind, points[name].load()())
    except ImportError as error:
        raise UsageError(
            f"The kind of task {name!r} cannot be imported: {error}.",
            where=f"entry point {points[name].value}",
            fix="install the package that brings it again, with its extras",
        ) from error
