"""Which stages a method calls, with which options. The stages are toys that write their configuration."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sweet.online.config import TrainOnlineConfig
from sweet.pipeline.steps import StepCache
from sweet.preferences.config import PairConfig
from sweet.ranking.config import RankConfig
from sweet.rollouts.config import RolloutConfig
from sweet.runs.run import Run
from sweet.runs.stages import STAGES, Stage
from sweet.stages.base import Reporter, Silent, StageConfig, StageResult
from sweet.stages.record import Record
from sweet.study import study_steps
from sweet.study.settings import METHODS, StudySizes
from sweet.study.study_steps import StudySteps, generated_tokens
from sweet.training.config import TrainActorConfig

WORDS = 10
"""Tokens of a dialogue."""


def tokens_of(config: Any) -> dict[str, int]:
    """Return the metrics of a stage that samples from the agent."""
    if isinstance(config, RolloutConfig):
        dialogues = (config.num_tasks or 0) * config.samples
        return {"episodes": dialogues, "completion_tokens": WORDS * dialogues}
    return {"completion_tokens": 0 if config.replies else 6000} if isinstance(config, RankConfig) else {}


SIZES: dict[str, int] = {"best_tasks": 5, "best_replies": 8, "train_tasks": 20, "samples": 5}


class Toy(Stage):
    @property
    def run(self) -> Callable[..., StageResult]:
        return self._write

    def _write(self, run: Run, config: Any, reporter: Reporter) -> StageResult:
        with run.attempt(self.name, config) as attempt:
            draft = attempt.start_artifact(self.makes)
            draft.path.write_text(config.model_dump_json())
            attempt.metrics.update(tokens_of(config))
            artifact = attempt.finish_artifact(draft)
        return StageResult(self.name, run.path, Record(), [artifact])


@pytest.fixture
def steps(tmp_path: Path) -> StudySteps:
    toys = [Toy(**vars(stage)) for stage in STAGES]
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
    assert (actor.algorithm, actor.from_, actor.critic) == ("sweet-pg-candidates", ["candidates-2"], None)
    assert configs(steps, PairConfig) == [], "it reads the ranked replies themselves"
    steps.making(METHODS["sweet"])
    assert [one.from_ for one in configs(steps, TrainActorConfig)][1:] == [["pairs-1"]]


def test_a_rule_that_asks_a_critic_gets_the_one_of_the_offline_dialogues_whose_tokens_count(steps: StudySteps) -> None:
    making = steps.making(METHODS["sweet-pg"])
    (actor,) = configs(steps, TrainOnlineConfig)
    assert (actor.algorithm, actor.critic) == ("sweet-pg", "critic-1")
    assert actor.generated_tokens == 7000 - 20 * 5 * WORDS
    assert [step.attempt.stage for step in making] == ["rollout", "eval", "label", "train-critic", "train-online"]
    assert generated_tokens(making[:-1]) == 20 * 5 * WORDS


def test_whole_dialogues_have_as_many_tokens_as_sweet_on_more_tasks_and_then_more_often(
    steps: StudySteps, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert steps.budget() == 20 * 5 * WORDS + 6000 == 7000
    for available, tasks, samples in ((1000, 140, 5), (100, 100, 7)):
        monkeypatch.setattr(study_steps, "number_of_tasks", lambda *_, available=available: available)
        steps.making(METHODS["rft"])
        newest = configs(steps, RolloutConfig)[-1]
        assert (newest.num_tasks, newest.samples, newest.agent) == (tasks, samples, "micro")


def test_an_online_method_has_the_tokens_of_sweet_and_the_tasks_of_the_other_curves(steps: StudySteps) -> None:
    making = steps.making(METHODS["grpo"])
    (config,) = configs(steps, TrainOnlineConfig)
    assert (config.algorithm, config.agent, config.tasks, config.seed) == ("grpo", "micro", "micro", 3)
    assert config.generated_tokens == steps.budget() == 7000
    assert (config.max_turns, config.max_tokens) == (steps.sizes.turns, steps.sizes.reply_tokens)
    assert (config.validate_every, config.keep) == (steps.sizes.curve_steps, "last")
    assert config.model_dump(include=set(METHODS["grpo"].actor)) == METHODS["grpo"].actor
    assert [step.attempt.stage for step in making] == ["train-online"]
    made, scores = steps.validated(METHODS["grpo"])
    assert made == making
    assert scores.attempt.stage == "eval"
    played = configs(steps, RolloutConfig)[-1]
    online = config.rollout(validation=True)
    same = ("tasks", "split", "num_tasks", "draw_tasks", "max_turns", "max_tokens", "temperature")
    assert [getattr(played, name) for name in same] == [getattr(online, name) for name in same]


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
