"""Find the installed kinds of tasks by name, import them, and check those of other packages."""

from __future__ import annotations

import inspect

from sweet.errors import UsageError
from sweet.hints import Hint, option
from sweet.plugins import Plugin, plugins
from sweet.suggestions import did_you_mean, nearest
from sweet.tasks.kind import TaskKind
from sweet.tasks.plugin_checks import checked_kind, place_of_failure


def task_kind(name: str) -> TaskKind:
    """Return the kind called `name`.

    Raises:
        UsageError: no such kind is installed, several packages have one, or the kind cannot be loaded.
    """
    installed = plugins()
    if name not in installed:
        near = nearest(name, installed)
        raise UsageError(
            f"There is no kind of task called {name!r}; installed: {', '.join(installed) or 'none'}."
            + did_you_mean(name, installed),
            where=option("task"),
            fix=option("task", near)
            if near
            else Hint(f"install the package that has {name!r}, or ", option("task", tuple(installed))),
        )
    first, *others = installed[name]
    if others and not first.ours:
        raise UsageError(
            f"Several packages have a kind of task called {name!r}: {', '.join(map(str, installed[name]))}.",
            where=option("task"),
            fix=f"pip uninstall {others[0].package}",
        )
    return load_kind(first)


def load_kind(plugin: Plugin) -> TaskKind:
    """Return the kind of a package.

    Raises:
        UsageError: it cannot be imported or created, or an attribute is invalid; names the package and the problem.
    """
    kind = _create(plugin)
    return kind if plugin.ours else checked_kind(kind, plugin)


def _create(plugin: Plugin) -> TaskKind:
    try:
        found = plugin.point.load()
    except (Exception, SystemExit) as error:  # a plug-in's module may raise anything
        raise _broken(plugin, f"cannot be imported: {type(error).__name__}: {error}", error) from error
    if not (isinstance(found, type) and issubclass(found, TaskKind)):
        raise _broken(plugin, f"is not a class derived from sweet.tasks.kind.TaskKind but {found!r:.100}")
    if inspect.isabstract(found):
        missing = sorted(getattr(found, "__abstractmethods__", ()))
        raise _broken(plugin, f"lacks the method {', '.join(missing)}")
    try:
        return found()
    except (Exception, SystemExit) as error:
        raise _broken(plugin, f"cannot be created: {type(error).__name__}: {error}", error) from error


def _broken(plugin: Plugin, problem: str, error: BaseException | None = None) -> UsageError:
    where = f"entry point {plugin.name} = {plugin.point.value}"
    place = None if error is None else place_of_failure(error)
    return UsageError(
        f"The task kind {plugin.name!r} ({plugin}) {problem}.",
        where=where if place is None else f"{where}; {place}",
        fix=f"correct {plugin.package}, or install it again with its extras",
    )
