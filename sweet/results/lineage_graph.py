"""Draw the lineage of a run's artifacts as a layered graph from top to bottom.

Every artifact is one layer below the lowest of its inputs. A link over several layers passes a point of its own in
each, so that no line crosses a box; within a layer nodes are placed as close below their inputs as possible (the
barycentre method of Sugiyama, Tagawa and Toda, 1981, one sweep). Links that follow from others are omitted; the table
next to the drawing has all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from markupsafe import Markup

from sweet.results.facts import ArtifactFact, Link
from sweet.results.pages import line
from sweet.units import count, format_bytes

BOX, TALL = 132, 40
"""Width and height of an artifact."""
ACROSS, DOWN = 152, 66
"""Horizontal and vertical distance of two artifacts."""
MAX_ARTIFACTS = 80
"""More artifacts are not drawn; the table lists all."""


@dataclass
class Layout:
    """The centres of the artifacts, and the points that each link passes."""

    centres: dict[str, tuple[float, float]] = field(default_factory=dict)
    routes: dict[tuple[str, str], list[tuple[float, float]]] = field(default_factory=dict)

    @property
    def size(self) -> tuple[float, float]:
        points = [*self.centres.values(), *(point for route in self.routes.values() for point in route)]
        across = max((x for x, _ in points), default=0.0) + BOX / 2 + 4
        return across, max((y for _, y in points), default=0.0) + TALL / 2 + 4


def drawing(artifacts: Sequence[ArtifactFact], links: Sequence[Link]) -> Markup:
    """Return the graph as SVG; empty without artifacts or with too many."""
    if not artifacts or len(artifacts) > MAX_ARTIFACTS:
        return Markup()
    played = {(link.source, link.target) for link in links if link.played}
    pairs = essential([artifact.id for artifact in artifacts], [(link.source, link.target) for link in links])
    layout = lay_out([artifact.id for artifact in artifacts], pairs)
    width, height = layout.size
    parts = [_route(route, pair in played) for pair, route in layout.routes.items()]
    parts += [_box(artifact, *layout.centres[artifact.id]) for artifact in artifacts]
    return Markup(
        f'<svg class="lineage" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}" '
        f'role="img" aria-label="What was made from what">{"".join(parts)}</svg>'
    )


def _box(artifact: ArtifactFact, x: float, y: float) -> str:
    state = "partial" if artifact.status == "partial" else "stale" if artifact.stale else "done"
    under = format_bytes(artifact.bytes) if artifact.rows is None else count(artifact.rows, "row")
    note = under if state == "done" else f"{state} · {under}"
    return (
        f'<g class="node {state}"><title>{line(artifact.stale or artifact.path)}</title>'
        f'<rect x="{x - BOX / 2:.1f}" y="{y - TALL / 2:.1f}" width="{BOX}" height="{TALL}" rx="5"/>'
        f'<text x="{x:.1f}" y="{y - 3:.1f}">{line(artifact.id)}</text>'
        f'<text class="note" x="{x:.1f}" y="{y + 12:.1f}">{line(note)}</text></g>'
    )


def _route(points: Sequence[tuple[float, float]], played: bool) -> str:
    """Draw a link from the bottom of one box to the top of another."""
    ends = [(points[0][0], points[0][1] + TALL / 2), *points[1:-1], (points[-1][0], points[-1][1] - TALL / 2)]
    path = f"M{ends[0][0]:.1f} {ends[0][1]:.1f}"
    for (x, y), (to_x, to_y) in pairwise(ends):
        half = (to_y - y) / 2
        path += f" C{x:.1f} {y + half:.1f} {to_x:.1f} {to_y - half:.1f} {to_x:.1f} {to_y:.1f}"
    x, y = ends[-1]
    head = f'<path class="arrow" d="M{x - 4:.1f} {y - 6:.1f} L{x:.1f} {y:.1f} L{x + 4:.1f} {y - 6:.1f}"/>'
    return f'<path class="link{" played" if played else ""}" d="{path}"/>{head}'


def essential(names: Sequence[str], links: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the links without those that follow from others and those that would close a cycle."""
    sources: dict[str, list[str]] = {name: [] for name in names}
    above: dict[str, set[str]] = {name: set() for name in names}
    for source, target in links:
        if source == target or source not in above or target not in above or target in above[source]:
            continue
        sources[target].append(source)
        gained = above[source] | {source}
        for name in names:
            if name == target or target in above[name]:
                above[name] |= gained
    return [
        (source, target)
        for target, found in sources.items()
        for source in dict.fromkeys(found)
        if not any(source in above[other] for other in found)
    ]


def lay_out(names: Sequence[str], links: Sequence[tuple[str, str]]) -> Layout:
    """Compute the positions of artifacts and of acyclic links."""
    layer = _layers(names, links)
    rows: list[list[str]] = [[] for _ in range(max(layer.values(), default=0) + 1)]
    for name in names:
        rows[layer[name]].append(name)
    chains = {}
    sources: dict[str, list[str]] = {}
    for source, target in links:
        between = [f"{source} {target} {level}" for level in range(layer[source] + 1, layer[target])]
        for level, point in enumerate(between, layer[source] + 1):
            rows[level].append(point)
        chains[source, target] = [source, *between, target]
        for one, other in pairwise(chains[source, target]):
            sources.setdefault(other, []).append(one)
    where = _across(rows, sources)
    at = {name: (where[name], TALL / 2 + 4 + DOWN * level) for level, row in enumerate(rows) for name in row}
    return Layout(
        {name: at[name] for name in names},
        {pair: [at[point] for point in chain] for pair, chain in chains.items()},
    )


def _layers(names: Sequence[str], links: Sequence[tuple[str, str]]) -> dict[str, int]:
    layer = dict.fromkeys(names, 0)
    for _ in names:
        for source, target in links:
            layer[target] = max(layer[target], layer[source] + 1)
    return layer


def _across(rows: Sequence[Sequence[str]], sources: Mapping[str, Sequence[str]]) -> dict[str, float]:
    where: dict[str, float] = {}
    for row in rows:
        wanted = {}
        for index, name in enumerate(row):
            above = [where[source] for source in sources.get(name, ())]
            wanted[name] = sum(above) / len(above) if above else BOX / 2 + 4 + ACROSS * index
        free = BOX / 2 + 4
        for name in sorted(row, key=lambda one: wanted[one]):
            where[name] = max(free, wanted[name])
            free = where[name] + ACROSS
    return where
