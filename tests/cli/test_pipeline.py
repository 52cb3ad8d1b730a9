"""The whole pipeline on the command line with the packaged agent: every stage finds the artifacts of the one before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Program


@pytest.fixture
def demo(sweet: Program) -> dict[str, Any]:
    sizes = ["--train-tasks", "8", "--samples", "4", "--eval-tasks", "4", "--candidates", "2", "--fraction", "0.1"]
    outcome = sweet("demo", "runs/demo", *sizes, "--json")
    assert outcome.code == 0, outcome.err
    return dict(json.loads(outcome.out))


def test_the_demo_and_its_run(sweet: Program, demo: dict[str, Any]) -> None:
    metrics = demo["metrics"]
    for when in ("before", "after"):
        low, rate, high = (metrics[f"{when}{end}"] for end in ("_ci_low", "", "_ci_high"))
        assert 0 <= low <= rate <= high <= 1
    assert metrics["seconds"] == pytest.approx(sum(metrics["steps"].values()), abs=0.1)
    kinds = [artifact["kind"] for artifact in demo["artifacts"]]
    expected = ["rollouts", "scores", "rollouts", "scores", "preferences", "critic", "candidates", "pairs", "actor"]
    assert kinds == [*expected, "rollouts", "scores"]

    report = json.loads(sweet("status", "runs/demo", "--json").out)
    assert {attempt["status"] for attempt in report["attempts"]} == {"done"}
    assert [artifact["id"] for artifact in report["artifacts"] if artifact["stale"]] == []

    manifest = json.loads(Path("runs/demo/manifest.json").read_text())
    last = manifest["artifacts"][-2]
    actor = next(artifact for artifact in manifest["artifacts"] if artifact["kind"] == "actor")
    assert last["meta"]["agent"] == actor["id"], "the last dialogues are the trained actor's"
    assert last["meta"]["split"] == "test"

    shown = sweet("view", "runs/demo")
    assert shown.code == 0
    assert "micro-test-" in shown.out
