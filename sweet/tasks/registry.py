"""Kinds of tasks by name. A kind is an entry point of the group `sweet.tasks`, so that a package can bring its own."""

from __future__ import annotations

import difflib
from importlib.metadata import entry_points
from typing import cast

from sweet.errors import UsageError
from sweet.tasks.base import TaskKind

GROUP = "sweet.tasks"


def task_kind(name: str) -> TaskKind:
    """The kind called `name`.

    Raises:
        UsageError: no such kind is installed, or the package that brings it cannot be imported.
    """
    points = {point.name: point for point in entry_points(group=GROUP)}
    if name not in points:
        near = difflib.get_close_matches(name, points, n=1)
        hint = f"--task {near[0]}" if near else "--task " + "|".join(sorted(points))
        raise UsageError(
            f"There is no kind of task called {name!r}; installed: {', '.join(sorted(points)) or 'none'}.",
            where="--task",
            fix=hint,
        )
    try:
        return cast(TaskKind, points[name].load()())
    except ImportError as error:
        raise UsageError(
            f"The kind of task {name!r} cannot be imported: {error}.",
            where=f"entry point {points[name].value}",
            fix="install the package that brings it again, with its extras",
        ) from error
