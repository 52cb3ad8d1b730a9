"""Rounds of the demo: which dialogues, agent, critic and starting model each stage uses."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from sweet.inspection.status import report as status
from sweet.runs.lineage import input_of
from sweet.runs.manifest import Artifact, Manifest
from sweet.runs.run import Run
from sweet.stages.base import Silent, StageResult
from sweet.study.demo import run_demo
from sweet.study.settings import DemoConfig

SMALL: dict[str, Any] = {"train_tasks": 4, "samples": 4, "eval_tasks": 4, "candidates": 2, "fraction": 0.1}


def play(run: Run, **more: Any) -> StageResult:
    return run_demo(run, DemoConfig.model_validate(SMALL | more), Silent())


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run with the first round, which no test repeats."""
    run = Run.create(tmp_path_factory.mktemp("first") / "run", task="code")
    play(run)
    return run


@pytest.fixture
def run(first: Run, tmp_path: Path) -> Run:
    return Run.open(shutil.copytree(first.path, tmp_path / "run"))


def source(manifest: Manifest, artifact: Artifact, kind: str) -> str:
    found = input_of(manifest, artifact, kind)
    assert found is not None
    return found.id


def learned_from(artifact: Artifact, kind: str) -> list[str]:
    return [ref.id for ref in artifact.inputs if ref.id.startswith(f"{kind}-")]


@pytest.mark.parametrize("retrained", [False, True])
def test_the_second_round_learns_from_the_first_actor(run: Run, retrained: bool) -> None:
    before = run.manifest().artifacts
    metrics = play(run, rounds=2, retrain_critic=retrained).metrics.as_json()
    manifest = run.manifest()
    assert manifest.artifacts[: len(before)] == before, "the second round goes on from the first"
    first, second = manifest.of_kind("actor")

    dialogues = manifest.artifact(source(manifest, second, "rollouts"))
    assert dialogues is not None
    assert (dialogues.meta["agent"], dialogues.meta["split"]) == ("actor-1", "train")
    candidates = manifest.of_kind("candidates")[1]
    assert source(manifest, candidates, "rollouts") == dialogues.id
    assert candidates.meta["agent"] == str(run.file(first)), "the replies that are ranked are the actor's"
    assert second.meta["base"] == "micro", "training starts from it and is measured against it"
    assert learned_from(second, "pairs") == ["pairs-2", "pairs-1"]

    critics = manifest.of_kind("critic")
    assert candidates.meta["critic"] == critics[-1].id
    assert [one.meta["base"] for one in critics] == ["micro"] * (2 if retrained else 1)
    rounds = ["preferences-2", "preferences-1"] if retrained else ["preferences-1"]
    assert learned_from(critics[-1], "preferences") == rounds
    assert source(manifest, critics[-1], "rollouts") == (dialogues.id if retrained else "rollouts-2")

    played = [one.meta["agent"] for one in manifest.of_kind("rollouts") if one.meta["split"] == "test"]
    assert played == ["micro", "actor-1", "actor-2"]
    assert [artifact.id for artifact in status(run).artifacts if artifact.stale] == []
    check_rounds(run, metrics)


def check_rounds(run: Run, metrics: dict[str, Any]) -> None:
    scored = [attempt.metrics for attempt in run.manifest().attempts if attempt.stage == "eval"]
    assert [one["round"] for one in metrics["rounds"]] == [0, 1, 2]
    for one, scores in zip(metrics["rounds"], [scored[0], *scored[2::2]], strict=True):
        ends = ("", "_ci_low", "_ci_high")
        assert [one[f"test{end}"] for end in ends] == [scores[f"success_rate{end}"] for end in ends]
    assert metrics["before"] == scored[0]["success_rate"]
    assert metrics["success_before"] == metrics["before"]
    assert metrics["success_after"] == metrics["after"]
    assert metrics["after"] == metrics["rounds"][-1]["test"]
    attempts = [attempt for attempt in run.manifest().attempts if attempt.stage != "train"]
    assert len(metrics["steps"]) == len(attempts), "each step has its own name"
    assert metrics["seconds"] == pytest.approx(sum(metrics["steps"].values()), abs=0.1)
