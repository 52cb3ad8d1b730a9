"""Curves of long trainings: thinned so that a page and a drawing stay small."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from sweet.report.schema import Point

POINTS = 240
"""Most points of a curve; in a longer training each point is the mean of several steps."""


def averaged(points: Sequence[tuple[float, float]], together: int | None = None) -> list[Point]:
    """Return the points of a curve, each the mean of several.

    Args:
        together: how many; None for as few as leave `POINTS`.
    """
    step = together or -(-len(points) // POINTS) or 1
    parts = [points[start : start + step] for start in range(0, len(points), step)]
    return [Point(x=fmean(x for x, _ in part), y=fmean(y for _, y in part)) for part in parts]
