"""The benchmark of the page of dialogues in a real browser."""

from __future__ import annotations

from pathlib import Path

from benchmarks.view_page import measure
from tests.render.real_browser import needs_firefox

pytestmark = needs_firefox


def test_every_figure_is_there(tmp_path: Path) -> None:
    figures = measure(tmp_path / "run", trajectories=60, rounds=1)
    assert (figures["trajectories"], figures["rounds"]) == (60, 1)
    assert 0 < figures["megabytes_900"] <= figures["megabytes"] < figures["most_megabytes"]
    for name in ("first_row", "loaded", "sort", "dialogue", "search"):
        assert 0 < figures[name] < 60
    assert figures["first_row"] <= figures["loaded"]
    assert figures["search"] > 0.15
    assert 50 < figures["memory_mib_before"] < 10_000
    assert figures["memory_mib"] > 50
