"""Find the installed kinds of tasks by name, import them, and check those of other packages."""

from __future__ import annotations

from sweet.plugin_code import PluginCode, installed_plugin
from sweet.plugins import TASKS, Plugin, plugins
from sweet.tasks.kind import TaskKind
from sweet.tasks.plugin_checks import checked_kind

_WHAT = "kind of task"


def task_kind(name: str) -> TaskKind:
    """Return the kind called `name`.

    Raises:
        UsageError: no such kind is installed, several packages have one, or the kind cannot be loaded.
    """
    return load_kind(installed_plugin(TASKS, _WHAT, name, list(plugins(TASKS)), "task"))


def load_kind(plugin: Plugin) -> TaskKind:
    """Return the kind of a package.

    Raises:
        UsageError: it cannot be imported or created, or an attribute is invalid; names the package and the problem.
    """
    code = PluginCode(_WHAT, plugin)
    found = code.load(TaskKind)  # type: ignore[type-abstract]
    try:
        kind = found()
    except (Exception, SystemExit) as error:
        raise code.broken(f"cannot be created: {type(error).__name__}: {error}", error) from error
    return kind if plugin.ours else checked_kind(kind, plugin, code)
