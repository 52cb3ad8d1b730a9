"""The benchmark of engines in several processes: that it measures both ways, on two dialogues."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.processes import measure
from sweet.llm.hosted import client as hosted


def test_both_ways_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("sweet.llm.local", "benchmarks.processes"):
        monkeypatch.setattr(f"{module}.allowed_threads", lambda: 2)
    try:
        rates = measure(tmp_path, tasks=2, samples=1, rounds=1)
    finally:
        hosted.stop()
    assert rates.lowest == rates.ratio == rates.highest == rates.processes / rates.one_process > 0
    assert len(list(tmp_path.iterdir())) == 4
