"""What was made from dialogues on test tasks is not learned from, unless that is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sweet.errors import UsageError
from sweet.preferences.config import LabelConfig
from sweet.preferences.label import plan_label, run_label
from sweet.ranking.config import RankConfig
from sweet.ranking.plan import plan_rank
from sweet.ranking.stage import run_rank
from sweet.runs.manifest import Artifact
from sweet.runs.run import Run
from sweet.stages.base import Silent, StageConfig
from sweet.stages.unseen_tasks import check_not_test, dialogues_on_test_tasks, newest_to_learn
from sweet.training.config import TrainActorConfig, TrainCriticConfig
from sweet.training.stage import plan_train_actor, plan_train_critic, run_train_actor, run_train_critic
from tests.stages.learn_runs import make_dialogues, put, score


def played(run: Run, split: str, tasks: str = "toy") -> tuple[Artifact, Artifact]:
    """Dialogues on a split and their scores."""
    dialogues = make_dialogues(2)
    rollouts = put(run, "rollout", "rollouts", [t for t, _ in dialogues], agent="a", tasks=tasks, split=split)
    return rollouts, put(run, "eval", "scores", [score(t, reward) for t, reward in dialogues], [rollouts])


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Only dialogues on test tasks, with scores, and preferences that were asked for."""
    run = Run.create(tmp_path / "run", task="code")
    played(run, "test")
    run_label(run, LabelConfig(allow_test=True), Silent())
    return run


@pytest.mark.parametrize(
    ("stages", "config", "named"),
    [
        ((run_label, plan_label), LabelConfig(), "scores-1"),
        ((run_label, plan_label), LabelConfig(from_="scores-1"), "scores-1"),
        ((run_rank, plan_rank), RankConfig(judge="random"), "rollouts-1"),
        ((run_rank, plan_rank), RankConfig(judge="random", rollouts="rollouts-1"), "rollouts-1"),
        ((run_train_critic, plan_train_critic), TrainCriticConfig(), "preferences-1"),
        ((run_train_critic, plan_train_critic), TrainCriticConfig(variant="regression", target="real"), "scores-1"),
        ((run_train_actor, plan_train_actor), TrainActorConfig(algorithm="sft", model="micro"), "rollouts-1"),
        ((run_train_actor, plan_train_actor), TrainActorConfig(algorithm="rft", from_=["scores-1"]), "scores-1"),
        ((run_train_actor, plan_train_actor), TrainActorConfig(algorithm="multi-turn-dpo"), "preferences-1"),
    ],
)
def test_nothing_is_learned_from_test_tasks_unasked(run: Run, stages: Any, config: StageConfig, named: str) -> None:
    before = (run.path / "manifest.json").read_bytes()
    for stage in stages:
        with pytest.raises(UsageError, match=rf"would learn from test tasks: {named} .* of the split test") as error:
            stage(run, config, Silent())
        assert str(error.value.fix) == f"sweet rollout {run.path}"
        assert error.value.exit_code == 2
    assert (run.path / "manifest.json").read_bytes() == before


def test_dialogues_on_training_tasks_are_preferred_to_newer_ones_on_test_tasks(run: Run) -> None:
    train, scores = played(run, "train")
    played(run, "test")
    for allow in (False, True):
        found = [
            newest_to_learn(run, kind, None, allow_test=allow, needed_by="label") for kind in ("scores", "rollouts")
        ]
        assert [one.id for one in found] == [scores.id, train.id]
    assert newest_to_learn(run, "scores", "scores-1", allow_test=True, needed_by="label").id == "scores-1"


def test_dialogues_from_elsewhere_have_no_split_and_are_learned_from(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", task="code")
    imported = put(run, "data-import", "rollouts", [t for t, _ in make_dialogues(1)], agent="imported")
    check_not_test(run, [imported], allow=False, needed_by="train-actor")


def test_pairs_are_refused_whose_critic_learned_from_test_tasks(run: Run) -> None:
    train, _ = played(run, "train")
    critic = put(run, "train-critic", "critic", [], [run.artifact("preferences-1")])
    candidates = put(run, "rank", "candidates", [], [critic, train])
    pairs = put(run, "pair", "pairs", [], [candidates])
    found = dialogues_on_test_tasks(run.manifest(), pairs)
    assert found is not None
    assert found.id == "rollouts-1"
    with pytest.raises(UsageError, match="pairs-1 was made from rollouts-1, dialogues of the split test"):
        run_train_actor(run, TrainActorConfig(), Silent())
    clean = put(run, "train-critic", "critic", [], [train])
    assert dialogues_on_test_tasks(run.manifest(), put(run, "rank", "candidates", [], [clean, train])) is None


@pytest.mark.parametrize("config", [LabelConfig, RankConfig, TrainCriticConfig, TrainActorConfig])
def test_the_option_is_in_the_digest_only_where_it_is_given(config: type[Any]) -> None:
    assert config().digest() == config(allow_test=False).digest() != config(allow_test=True).digest()
