"""Which stages a method calls, with which options. The stages are toys that write their configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sweet.pipeline.steps import Function, StepCache
from sweet.preferences.config import PairConfig
from sweet.ranking.config import RankConfig
from sweet.rollouts.config import RolloutConfig
from sweet.runs.manifest import Kind
from sweet.runs.run import Run
from sweet.runs.stages import STAGES
from sweet.stages.base import Reporter, Silent, StageConfig, StageResult
from sweet.stages.record import Record
from sweet.study.settings import METHODS, StudySizes
from sweet.study.study_steps import StudySteps
from sweet.training.config import TrainActorConfig


def toy(name: str, makes: Kind) -> Function:
    def stage(run: Run, config: Any, reporter: Reporter) -> StageResult:
        with run.attempt(name, config) as attempt:
            draft = attempt.start_artifact(makes)
            draft.path.write_text(config.model_dump_json())
            artifact = attempt.finish_artifact(draft)
        return StageResult(name, run.path, Record(), [artifact])

    return stage


@pytest.fixture
def steps(tmp_path: Path) -> StudySteps:
    toys: dict[type[StageConfig], tuple[str, Function]] = {
        stage.config: (stage.name, toy(stage.name, stage.makes)) for stage in STAGES
    }
    run = Run.create(tmp_path / "run", "code")
    return StudySteps(StepCache(run, Silent(), toys), StudySizes(best_tasks=5, best_replies=8), seed=3)


def configs(steps: StudySteps, kind: type[StageConfig]) -> list[Any]:
    """Return the configurations of all calls of a stage, in order."""
    (name,) = (stage.name for stage in STAGES if stage.config is kind)
    return [
        kind.model_validate(attempt.config) for attempt in steps.cache.run.manifest().attempts if attempt.stage == name
    ]


def test_the_same_critic_ranks_with_a_reference_model_that_does_not_see_the_solution(steps: StudySteps) -> None:
    for name in ("sweet", "no-info-reference"):
        steps.making(METHODS[name])
    sampling, *rankings = configs(steps, RankConfig)
    assert sampling.judge == "random"
    assert [(one.from_, one.replies, one.reference_context) for one in rankings] == [
        ("critic-1", "candidates-1", None),
        ("critic-1", "candidates-1", "dialogue"),
    ]


def test_a_credit_rule_learns_from_what_it_reads(steps: StudySteps) -> None:
    steps.making(METHODS["sweet-pg-candidates"])
    (actor,) = configs(steps, TrainActorConfig)
    assert (actor.method, actor.from_, actor.critic) == ("sweet-pg-candidates", ["candidates-2"], None)
    assert configs(steps, PairConfig) == [], "it reads the ranked replies themselves"
    steps.making(METHODS["sweet"])
    assert [one.from_ for one in configs(steps, TrainActorConfig)][1:] == [["pairs-1"]]


def test_a_rule_that_asks_a_critic_gets_the_one_of_the_offline_dialogues(steps: StudySteps) -> None:
    steps.sizes = steps.sizes.model_copy(update={"equal": "dialogues"})
    steps.making(METHODS["sweet-pg"])
    (actor,) = configs(steps, TrainActorConfig)
    assert (actor.method, actor.from_, actor.critic) == ("sweet-pg", ["scores-1"], "critic-1")


def test_each_judge_chooses_the_best_of_n_replies_at_the_turns_of_the_same_tasks(steps: StudySteps) -> None:
    for name in ("sweet", "no-info", "oracle", "untrained"):
        assert list(steps.best_of_turns(METHODS[name])) == [1, 2, 4, 8]
    played = [one for one in configs(steps, RolloutConfig) if one.split == "validation"]
    single, *chosen = played
    assert (single.best_of, single.samples) == (None, steps.sizes.best_samples)
    assert [(one.judge, one.critic, one.best_of) for one in chosen] == [
        (judge, critic, n)
        for judge, critic in (("critic", "critic-1"), ("critic", "critic-2"), ("oracle", None), ("untrained", None))
        for n in (2, 4, 8)
    ]
    assert {(one.num_tasks, one.draw_tasks, one.agent, one.temperature, one.seed) for one in played} == {
        (5, False, "micro", 1.0, 3)
    }
    assert {one.samples for one in chosen} == {1}
