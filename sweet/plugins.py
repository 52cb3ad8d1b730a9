"""Lists what installed packages add to `sweet`, without importing them: kinds of tasks, and credit rules.

A package provides a kind by an entry point of the group `sweet.tasks` with the name of the kind, and a credit rule by
one of the group `sweet.credit`. The kinds of `sweet` itself are found in the same way; their names are reserved, so
that no other package can replace them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import Distribution, EntryPoint, distributions, entry_points
from pathlib import Path
from typing import Any

TASKS = "sweet.tasks"
"""The group of the kinds of tasks."""
CREDIT = "sweet.credit"
"""The group of the credit rules (`sweet.credit.registry`)."""


class Registered(EntryPoint):
    """A class of the running program, in the place of an entry point."""

    def __init__(self, name: str, found: type) -> None:
        super().__init__(name, f"{found.__module__}:{found.__name__}", "")
        vars(self)["found"] = found  # entry points are immutable

    def load(self) -> Any:
        return vars(self)["found"]


@dataclass(frozen=True)
class Plugin:
    """One kind of task, or credit rule, that a package or the running program provides.

    Attributes:
        name: of the kind.
        package: the name of the distribution; of the running program that of the module.
        version: of the distribution.
        point: the entry point, which imports the kind.
    """

    name: str
    package: str
    version: str
    point: EntryPoint

    @property
    def ours(self) -> bool:
        """Whether the kind comes with `sweet`, under whichever name its distribution was installed."""
        return self.point.module.partition(".")[0] == "sweet"

    @property
    def registered(self) -> bool:
        """Whether the running program provides it."""
        return isinstance(self.point, Registered)

    def __str__(self) -> str:
        return f"{self.package} {self.version}".rstrip()


def plugins(group: str = TASKS) -> dict[str, list[Plugin]]:
    """Return what is installed under each name of a group, sorted by name.

    Several packages under one name are a conflict that the user has to resolve. A kind of `sweet` itself comes first.
    """
    found = _plugins(group, entry_points, tuple((folder, _changed(folder)) for folder in sys.path))
    own = {plugin.name: [plugin] for plugin in _registered.get(group, {}).values()}
    return {name: list(installed) for name, installed in found.items()} | own


_registered: dict[str, dict[str, Plugin]] = {}


def register(group: str, plugin: Plugin) -> None:
    """Provide a class of the running program, in this process, in the place of an earlier one of the same name."""
    _registered.setdefault(group, {})[plugin.name] = plugin


def _changed(folder: str) -> int:
    """Return when an entry of the module search path was last changed; packages are installed as entries of these."""
    try:
        return Path(folder).stat().st_mtime_ns
    except OSError:
        return 0


@lru_cache(maxsize=4)
def _plugins(
    group: str, look_up: Callable[..., Iterable[EntryPoint]], _path: tuple[tuple[str, int], ...]
) -> dict[str, list[Plugin]]:
    """Return what is installed on this search path. Reading the metadata of all packages takes tens of
    milliseconds, and every attempt of a stage asks for the package of its kind."""
    found: dict[str, list[Plugin]] = {}
    for point in _points(group, look_up):
        dist = point.dist
        package, version = ("", "") if dist is None else (dist.name or "", dist.version or "")
        plugin = Plugin(point.name, package or point.value, version, point)
        found.setdefault(point.name, []).append(plugin)
    return {name: sorted(found[name], key=lambda plugin: (not plugin.ours, plugin.package)) for name in sorted(found)}


def _points(group: str, look_up: Callable[..., Iterable[EntryPoint]]) -> Iterable[EntryPoint]:
    try:
        return look_up(group=group)
    except Exception:  # a single package with unreadable metadata makes the look-up fail for all
        first: dict[str, Distribution] = {}
        for dist in distributions():
            first.setdefault(dist.name, dist)
        return [point for dist in first.values() for point in _points_of(group, dist)]


def _points_of(group: str, dist: Distribution) -> Iterable[EntryPoint]:
    try:
        return dist.entry_points.select(group=group)
    except Exception:  # the package with unreadable metadata
        return ()
