"""Rounds of a study with the packaged agent: each actor plays the dialogues that the next one learns from."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweet.pipeline.steps import ReadOnlyStepCache, StepCache
from sweet.runs.run import Run
from sweet.stages.base import Silent
from sweet.study.accounting import generated_tokens
from sweet.study.settings import METHODS, StudySizes
from sweet.study.study_steps import StudySteps

SIZES = StudySizes(train_tasks=24, samples=4, candidates=4, fraction=0.1, curve_tasks=5)
METHOD = METHODS["grpo"].model_copy(update={"rounds": 2, "samples": 4})


def test_the_curve_of_a_method_with_rounds_has_a_point_for_each_of_its_actors(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", "code")
    steps = StudySteps(StepCache(run, Silent()), SIZES, seed=0)
    (first, after_first), (second, after_second) = steps.validated_actors(METHOD)
    assert [step.attempt.stage for step in first] == ["rollout", "eval", "train-actor"]
    assert second[:3] == first
    played = run.manifest().artifact(second[3].id)
    assert played is not None
    assert Path(str(played.meta["agent"])).name == first[-1].id, "the first actor plays the second round"
    assert Path(str(second[-1].artifact.meta["base"])).name == first[-1].id, "and it is trained on"
    assert after_first.metrics["tasks"] == after_second.metrics["tasks"] == 5

    tokens = [generated_tokens(making, steps.cache) or 0 for making in (first, second)]
    assert tokens[0] == pytest.approx(steps.budget() / 2, rel=0.3)
    assert tokens[1] == pytest.approx(steps.budget(), rel=0.3)

    attempts = len(run.manifest().attempts)
    again = StudySteps(ReadOnlyStepCache(run, Silent()), SIZES, seed=0).validated_actors(METHOD)
    assert [scores.id for _, scores in again] == [after_first.id, after_second.id]
    assert len(run.manifest().attempts) == attempts
