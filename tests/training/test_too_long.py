"""A dialogue whose last turn does not fit is omitted and reported; the others are trained on, ranked and compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweet.errors import TooManyFailures, UsageError
from sweet.learn.rows import CandidateRow
from sweet.learn.tokens import ChatEncoder
from sweet.llm.pretrained import load_tokenizer
from sweet.preferences.config import LabelConfig
from sweet.preferences.label import run_label
from sweet.ranking.config import RankConfig
from sweet.ranking.stage import run_rank
from sweet.runs.jsonl import read_jsonl
from sweet.runs.run import Run
from sweet.scoring.config import EvalConfig
from sweet.scoring.stage import run_eval
from sweet.stages.artifacts import agent_system
from sweet.stages.base import Silent
from sweet.tasks.base import ProtocolName
from sweet.tasks.trajectory import Trajectory
from sweet.training.config import TrainActorConfig, TrainCriticConfig
from sweet.training.stage import plan_train_critic, run_train_actor, run_train_critic
from tests.stages.heard import Heard
from tests.stages.learn_runs import make_agent, make_dialogues, put, score

LONG = "7-0-1"
"""The dialogue that is longer than the 1024 positions of the model, and not preferred to another."""


def lengthened(dialogue: Trajectory) -> Trajectory:
    """With a last reply of thousands of ids."""
    *before, last = dialogue.dialogue_history
    said = last.said + " 5" * 3000
    return dialogue.model_copy(
        update={"dialogue_history": (*before, last.model_copy(update={"content": said, "output": said}))}
    )


def make(folder: Path, *long: str) -> Run:
    """Twelve preferences, one of which needs each of the long dialogues."""
    run = Run.create(folder / "run", task="code")
    dialogues = [(lengthened(t) if t.id in long else t, reward) for t, reward in make_dialogues(tasks=6)]
    agent = make_agent(folder / "agent")
    rollouts = put(run, "rollout", "rollouts", [t for t, _ in dialogues], agent=agent, tasks="toy", split="train")
    put(run, "eval", "scores", [score(t, reward) for t, reward in dialogues], [rollouts])
    run_label(run, LabelConfig(), Silent())
    return run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return make(tmp_path, LONG)


def train(run: Run, **more: object) -> None:
    settings = {"epochs": 1, "holdout": 0.0} | more
    run_train_critic(run, TrainCriticConfig.model_validate(settings), Silent())


def test_training_omits_a_dialogue_that_is_too_long_and_warns(run: Run) -> None:
    heard = Heard()
    made = run_train_critic(run, TrainCriticConfig(epochs=1, holdout=0.0), heard)
    assert (made.metrics.examples, made.metrics.left_out) == (11, 1)
    (warning,) = heard.warnings
    assert LONG in warning
    assert "1 of 12" in warning
    assert plan_train_critic(run, TrainCriticConfig(epochs=1, holdout=0.0), Silent()).as_json()["left_out"] == 1


def test_more_than_a_tenth_of_omitted_examples_is_an_error(tmp_path: Path) -> None:
    run = make(tmp_path, LONG, "7-1-1")
    config = TrainActorConfig(algorithm="multi-turn-dpo", epochs=1)
    for limit, counted in ((None, "2 of 12"), (8, "12 of 12")):
        with pytest.raises(UsageError, match=f"{counted} .* Dialogue ") as caught:
            run_train_actor(run, config.model_copy(update={"max_length": limit}), Silent())
        assert "--max-length" in str(caught.value.fix)
    assert not run.manifest().of_kind("actor")


@pytest.mark.parametrize("variant", ["advantage", "regression"])
def test_ranking_counts_a_turn_that_is_too_long_as_failed(run: Run, variant: str) -> None:
    train(run, variant=variant)
    config = RankConfig(candidates=2, fraction=1.0, max_tokens=8, fail_on_error=1)
    with pytest.raises(TooManyFailures):
        run_rank(run, config.model_copy(update={"fail_on_error": 0}), Silent())
    result = run_rank(run, config, Silent())
    assert result.metrics.failed == 1
    rows = list(read_jsonl(run.file(result.artifacts[0]), CandidateRow))
    assert len(rows) == result.metrics.turns
    # Its earlier turns are short.
    assert sorted(row.turn for row in rows if row.trajectory_id == LONG) == [1, 3]
    log = (run.path / "logs" / f"{result.artifacts[0].attempt}.jsonl").read_text()
    assert "--max-length" in log


@pytest.mark.parametrize("protocol", ["paper", "upstream"])
def test_omitted_early_turns_are_reported(tmp_path: Path, protocol: ProtocolName) -> None:
    run = make(tmp_path)
    encoder = ChatEncoder(load_tokenizer(str(tmp_path / "agent")))
    system = agent_system(run, run.artifact("rollouts-1"))
    lengths = [
        sum(len(row.ids) for row in encoder.dialogue(t, system, hidden=t.task.hidden, protocol=protocol).sequences)
        for t, _ in make_dialogues(tasks=6)
    ]
    longest = max(lengths)
    train(run, protocol=protocol)
    heard = Heard()
    config = RankConfig(candidates=2, fraction=1.0, max_tokens=8, max_length=longest - 1)
    assert run_rank(run, config, heard).metrics.failed == 0
    (told,) = heard.warnings
    # At the last turns of the longest dialogues the reply that was given does not fit behind all of the others.
    assert told == f"{lengths.count(longest)} early turns were omitted to fit --max-length {longest - 1}."


@pytest.mark.parametrize("variant", ["advantage", "regression"])
def test_best_of_n_omits_dialogues_that_are_too_long(run: Run, variant: str) -> None:
    train(run, variant=variant)
    heard = Heard()
    told = run_eval(run, EvalConfig(best_of_by="critic"), heard).metrics.as_json()["best_of"]
    assert told["left_out"] == 1
    assert told["n"]["1"]["tasks"] == 6
    assert any("1 dialogue" in text for text in heard.warnings)
