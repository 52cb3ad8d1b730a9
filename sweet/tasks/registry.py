"""Kinds of tasks by name: found among what is installed, imported, and checked where another package brought them."""

from __future__ import annotations

import inspect

from sweet.errors import UsageError
from sweet.plugins import Plugin, plugins
from sweet.suggestions import did_you_mean, nearest
from sweet.tasks.kind import TaskKind
from sweet.tasks.plugin_checks import checked_kind, place_of_failure


def task_kind(name: str) -> TaskKind:
    """The kind called `name`.

    Raises:
        UsageError: no such kind is installed, several packages bring one, or the one that does is broken.
    """
    installed = plugins()
    if name not in installed:
        near = nearest(name, installed)
        raise UsageError(
            f"There is no kind of task called {name!r}; installed: {', '.join(installed) or 'none'}."
            + did_you_mean(name, installed),
            where="--task",
            fix=f"--task {near}"
            if near
            else f"install the package that brings {name!r}, or --task {'|'.join(installed)}",
        )
    first, *others = installed[name]
    if others and not first.ours:
        raise UsageError(
            f"Several packages bring a kind of task called {name!r}: {', '.join(map(str, installed[name]))}.",
            where="--task",
            fix=f"pip uninstall {others[0].package}",
        )
    return opened(first)


def opened(plugin: Plugin) -> TaskKind:
    """The kind that a package brings.

    Raises:
        UsageError: it cannot be imported or made, or is not as a kind must be; names the package and what is wrong.
    """
    kind = _made(plugin)
    return kind if plugin.ours else checked_kind(kind, plugin)


def _made(plugin: Plugin) -> TaskKind:
    try:
        found = plugin.point.load()
    except (Exception, SystemExit) as error:  # a module of somebody else's may raise anything
        raise _broken(plugin, f"cannot be imported: {type(error).__name__}: {error}", error) from error
    if not (isinstance(found, type) and issubclass(found, TaskKind)):
        raise _broken(plugin, f"is no class derived from sweet.tasks.kind.TaskKind but {found!r:.100}")
    lacking = sorted(getattr(found, "__abstractmethods__", ()))
    if inspect.isabstract(found):
        raise _broken(plugin, f"lacks the method {', '.join(lacking)}")
    try:
        return found()
    except (Exception, SystemExit) as error:
        raise _broken(plugin, f"cannot be made: {type(error).__name__}: {error}", error) from error


def _broken(plugin: Plugin, what: str, error: BaseException | None = None) -> UsageError:
    where = f"entry point {plugin.name} = {plugin.point.value}"
    place = None if error is None else place_of_failure(error)
    return UsageError(
        f"The task kind {plugin.name!r} ({plugin}) {what}.",
        where=where if place is None else f"{where}; {place}",
        fix=f"mend {plugin.package}, or install it again with its extras",
    )
