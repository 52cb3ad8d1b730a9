"""Kinds of tasks that are installed, and the packages they come from. Nothing of them is imported here.

A package brings a kind by an entry point of the group `sweet.tasks`, whose name is the kind's. The kinds that come with
`sweet` are found in the same way; their names are taken, so that no other package can put itself in their place.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import Distribution, EntryPoint, distributions, entry_points

GROUP = "sweet.tasks"


@dataclass(frozen=True)
class Plugin:
    """One kind of task that a package brings.

    Attributes:
        name: the kind's.
        package: the distribution.
        version: the distribution's.
        point: what imports it.
    """

    name: str
    package: str
    version: str
    point: EntryPoint

    @property
    def ours(self) -> bool:
        """Whether the kind comes with `sweet`, under whichever name its distribution was installed."""
        return self.point.module.partition(".")[0] == "sweet"

    def __str__(self) -> str:
        return f"{self.package} {self.version}".rstrip()


def plugins() -> dict[str, list[Plugin]]:
    """What is installed under each name, names in order. More than one package under a name is its user's to mend;
    those that would take the name of a kind of ours stand behind it."""
    found: dict[str, list[Plugin]] = {}
    for point in _points():
        dist = point.dist
        package, version = ("", "") if dist is None else (dist.name or "", dist.version or "")
        plugin = Plugin(point.name, package or point.value, version, point)
        found.setdefault(point.name, []).append(plugin)
    return {name: sorted(found[name], key=lambda plugin: (not plugin.ours, plugin.package)) for name in sorted(found)}


def _points() -> Iterable[EntryPoint]:
    try:
        return entry_points(group=GROUP)
    except Exception:  # one package whose file nobody can read, whatever it is for, spoils the answer for all
        first: dict[str, Distribution] = {}
        for dist in distributions():
            first.setdefault(dist.name, dist)
        return [point for dist in first.values() for point in _points_of(dist)]


def _points_of(dist: Distribution) -> Iterable[EntryPoint]:
    try:
        return dist.entry_points.select(group=GROUP)
    except Exception:  # this is the one
        return ()


def package_of(name: str) -> str:
    """The package that brings the kind called `name`, with its version; empty where none is installed."""
    return next((str(plugin) for plugin in plugins().get(name, ())), "")
