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
from sweet.study import study_steps
from sweet.study.accounting import generated_tokens
from sweet.study.settings import METHODS, StudySizes
from sweet.study.study_steps import StudySteps
from sweet.training.config import TrainActorConfig

WORDS = 10
"""Tokens of a dialogue of the first agent; those of an actor are half as long."""


def tokens_of(config: Any) -> dict[str, int]:
    """Return the metrics of a stage that samples from the agent."""
    if isinstance(config, RolloutConfig):
        dialogues = (config.num_tasks or 0) * config.samples
        words = WORDS if config.agent == "micro" else WORDS // 2
        return {"episodes": dialogues, "completion_tokens": words * dialogues}
    return {"completion_tokens": 0 if config.replies else 6000} if isinstance(config, RankConfig) else {}


SIZES: dict[str, int] = {"best_tasks": 5, "best_replies": 8, "train_tasks": 20, "samples": 5}


def toy(name: str, makes: Kind) -> Function:
    def stage(run: Run, config: Any, reporter: Reporter) -> StageResult:
        with run.attempt(name, config) as attempt:
            draft = attempt.start_artifact(makes)
            draft.path.write_text(config.model_dump_json())
            attempt.metrics.update(tokens_of(config))
            artifact = attempt.finish_artifact(draft)
        return StageResult(name, run.path, Record(), [artifact])

    return stage


@pytest.fixture
def steps(tmp_path: Path) -> StudySteps:
    toys: dict[type[StageConfig], tuple[str, Function]] = {
        stage.config: (stage.name, toy(stage.name, stage.makes)) for stage in STAGES
    }
    run = Run.create(tmp_path / "run", "code")
    return StudySteps(StepCache(run, Silent(), toys), StudySizes(**SIZES), seed=3)


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
    steps.making(METHODS["sweet-pg"].model_copy(update={"rounds": 2}))
    first, second = configs(steps, TrainActorConfig)
    assert (first.method, first.from_, first.critic) == ("sweet-pg", ["scores-1"], "critic-1")
    assert (second.method, second.from_, second.critic) == ("sweet-pg", ["scores-2"], "critic-1")
    offline, played = configs(steps, RolloutConfig)
    assert (offline.agent, offline.num_tasks, offline.samples) == ("micro", 20, 5)
    assert Path(played.agent).stem == "actor-1"


def test_whole_dialogues_have_as_many_tokens_as_sweet_on_more_tasks_and_then_more_often(
    steps: StudySteps, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert steps.budget() == 20 * 5 * WORDS + 6000 == 7000
    for available, tasks, samples in ((1000, 140, 5), (100, 100, 7)):
        monkeypatch.setattr(study_steps, "number_of_tasks", lambda _, available=available: available)
        steps.making(METHODS["rft"])
        newest = configs(steps, RolloutConfig)[-1]
        assert (newest.num_tasks, newest.samples, newest.agent) == (tasks, samples, "micro")
    equal = StudySteps(steps.cache, steps.sizes.model_copy(update={"equal": "dialogues"}), seed=3)
    equal.making(METHODS["rft"])
    assert len(configs(steps, RolloutConfig)) == 3, "they are the offline dialogues"


def test_rounds_share_the_tokens_and_each_actor_plays_the_next_one(steps: StudySteps) -> None:
    grpo = METHODS["grpo"].model_copy(update={"rounds": 3, "samples": 4})
    learned = steps.learning(grpo)
    offline, *played = configs(steps, RolloutConfig)
    assert (offline.agent, offline.samples) == ("micro", 5), "it gives the budget, and is no round"
    # 7000 tokens: 58 tasks of 4 dialogues of 10 tokens, then half of the 4680 left in dialogues of 10, then of 5
    assert [one.num_tasks for one in played] == [58, 58, 176]
    assert [one.samples for one in played] == [4, 4, 4]
    assert played[0].agent == "micro"
    assert [Path(one.agent).stem for one in played[1:]] == ["actor-1", "actor-2"]
    assert len({one.seed for one in (offline, *played)}) == 4, "each round draws its own tasks and samples"
    actors = configs(steps, TrainActorConfig)
    assert [Path(actor.model or "").stem for actor in actors] == ["micro", "actor-1", "actor-2"]
    assert [actor.from_ for actor in actors] == [["scores-1"], ["scores-2"], ["scores-3"]]

    assert [len(making) for making in learned] == [3, 6, 9]
    assert learned[-1] == steps.making(grpo)
    assert [step.attempt.stage for step in learned[0]] == ["rollout", "eval", "train-actor"]
    assert [generated_tokens(making, steps.cache) for making in learned] == [2320, 3480, 7000]
    assert [making[-1].id for making in learned] == ["actor-1", "actor-2", "actor-3"]


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
