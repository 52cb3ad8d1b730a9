"""The rules that compare the dialogues of a task, by hand, and trainings with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sweet.credit.base import Batch, Credit
from sweet.credit.groups import GRPO, RLOO
from sweet.credit.registry import credit_rule
from sweet.errors import SweetError, UsageError
from sweet.runs.run import Run
from sweet.stages.base import Silent
from sweet.tasks.registry import task_kind
from sweet.training.config import TrainActorConfig
from sweet.training.stage import plan_train_actor, run_train_actor
from tests.learn.builders import build_trajectory
from tests.stages.learn_runs import make_agent, make_dialogues, make_run, put, score

REWARDS = {"a": 1.0, "b": 0.0, "c": 0.5, "d": 0.5, "e": 0.3, "f": 0.3, "g": 1.0}
TASKS = {"a": "one", "b": "one", "c": "one", "d": "one", "e": "two", "f": "two", "g": "three"}
UNASKED: Any = None
"""In the models' place: this rule asks none."""
SPREAD = (1 / 6) ** 0.5
"""Standard deviation of 1, 0, 0.5 and 0.5 with n - 1: (0.25 + 0.25) / 3."""


def make_batch(rewards: dict[str, float] = REWARDS, **outcomes: str) -> Batch:
    dialogues = {
        name: build_trajectory(name, turns=2, task=TASKS[name], outcome=outcomes.get(name, "answered"))
        for name in rewards
    }
    return Batch(dialogues, task_kind("code").rewards, rewards=rewards, source="scores-1")


def advantages(credits: list[Credit]) -> dict[Any, float]:
    """One number for each dialogue: all of its turns have the same."""
    found = {credit.of: set(credit.policy.values()) for credit in credits}
    assert all(list(credit.policy) == [1, 3] for credit in credits)
    return {name: float(str(values.pop())) for name, values in found.items() if len(values) == 1}


def test_the_advantage_is_the_distance_to_the_mean_over_the_spread() -> None:
    found = advantages(GRPO().credit(make_batch(), UNASKED))
    high = 0.5 / (SPREAD + 1e-4)
    assert found == pytest.approx({"a": high, "b": -high, "c": 0, "d": 0})


def test_without_std_it_is_the_distance() -> None:
    assert advantages(GRPO(std=False).credit(make_batch(), UNASKED)) == {"a": 0.5, "b": -0.5, "c": 0.0, "d": 0.0}


def test_leave_one_out_is_the_distance_to_the_mean_of_the_others() -> None:
    found = advantages(RLOO().credit(make_batch(), UNASKED))
    assert found == pytest.approx({"a": 1 - 1 / 3, "b": -2 / 3, "c": 0, "d": 0})
    pair = advantages(RLOO().credit(make_batch({"a": 1.0, "b": 0.25}), UNASKED))
    assert pair == {"a": 0.75, "b": -0.75}


def test_a_session_counts_once_and_its_branches_in_its_place() -> None:
    """Session a has three rows: its mean and spread are those of a, b and c, and its branches have its advantage."""
    names = {"a": 1.0, "b": 0.0, "c": 0.5, "a~1": 1.0, "a~2": 1.0}
    dialogues = {
        name: build_trajectory(name, turns=2, task="one").model_copy(update={"session": "a" if "~" in name else None})
        for name in names
    }
    batch = Batch(dialogues, task_kind("code").rewards, rewards=names, source="scores-1")
    high = 0.5 / (0.5 + 1e-4)
    expected = {"a": high, "b": -high, "c": 0, "a~1": high, "a~2": high}
    assert advantages(GRPO().credit(batch, UNASKED)) == pytest.approx(expected)
    alone = Batch({name: dialogues[name] for name in ("a", "a~1")}, batch.rule, {"a": 1.0, "a~1": 1.0})
    assert GRPO().of_dialogues(alone) == {}


def test_groups_of_equal_rewards_are_counted() -> None:
    batch = make_batch()
    assert batch.groups() == {"one": ["a", "b", "c", "d"], "three": ["g"], "two": ["e", "f"]}
    assert batch.equal_groups() == ["three", "two"]
    assert make_batch({"a": 1.0, "b": 0.0}, b="agent_error").equal_groups() == ["one"], "one is left"


def test_dialogues_that_a_fault_ended_do_not_count() -> None:
    found = advantages(GRPO(std=False).credit(make_batch(b="agent_error"), UNASKED))
    assert found == pytest.approx({"a": 1 / 3, "c": -1 / 6, "d": -1 / 6})


def test_equal_groups_alone_leave_nothing_to_learn() -> None:
    rewards = {name: reward for name, reward in REWARDS.items() if TASKS[name] != "one"}
    with pytest.raises(SweetError, match="equal rewards") as error:
        GRPO().credit(make_batch(rewards), UNASKED)
    assert error.value.where == "scores-1"


def test_options_are_those_of_the_policy_gradient() -> None:
    rule = credit_rule("grpo", ["std=no", "clip-high=0.4", "average=dialogue", "bound=3"])
    policy = rule.objective(0.1, 0.0, "paper").policy
    assert policy is not None
    assert (policy.low, policy.high, policy.bound, policy.average) == (0.2, 0.4, 3.0, "dialogue")
    for wrong in ("clip-high=-1", "average=turn", "bound=0", "std=perhaps"):
        with pytest.raises(UsageError, match="does not take this value"):
            credit_rule("grpo", [wrong])
    with pytest.raises(UsageError, match=r"no such option.*clip-high"):
        credit_rule("grpo", ["clip-hihg=1"])


@pytest.mark.parametrize("method", ["grpo", "rloo"])
def test_a_training_reports_its_ratios_and_its_groups(tmp_path: Path, method: str) -> None:
    run = make_run(tmp_path, make_agent(tmp_path / "agent"))
    rollouts = run.artifact("rollouts-1")
    rows = [score(dialogue, 0.5 if dialogue.task_id == "task-0" else reward) for dialogue, reward in make_dialogues()]
    put(run, "eval", "scores", rows, [rollouts])
    config = TrainActorConfig(algorithm=method, epochs=2, batch=4, lr=1e-4, device="cpu")
    planned = plan_train_actor(run, config, Silent()).work
    assert (planned.examples, planned.steps) == (12, 6)
    result = run_train_actor(run, config, Silent())
    metrics = result.metrics
    assert (metrics.examples, metrics.accuracy, metrics.steps) == (12, None, 6)
    assert (metrics.groups, metrics.equal_groups) == (5, 1)
    recorded = run.manifest().attempts[-1].metrics
    assert (recorded["groups"], recorded["equal_groups"]) == (5, 1)
    # Nothing was recorded, so the policy itself sampled: before the first step every ratio is 1.
    log = (run.path / "logs" / "train-actor-1.jsonl").read_text().splitlines()
    first = json.loads(log[0])
    assert first["ratio"] == pytest.approx(1, abs=1e-3)
    assert first["difference"] == pytest.approx(0, abs=1e-3)
    assert (first["clipped"], first["masked"]) == (0, 0)
    assert metrics.ratio is not None
    assert metrics.difference is not None
    assert metrics.difference > 1e-3, "the policy moved"


def test_a_run_in_which_all_rewards_are_equal_says_so(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", task="code")
    dialogues = [trajectory for trajectory, _ in make_dialogues(2, 2)]
    rollouts = put(run, "rollout", "rollouts", dialogues, agent=make_agent(tmp_path / "agent"), split="train")
    put(run, "eval", "scores", [score(trajectory, 0.2) for trajectory in dialogues], [rollouts])
    with pytest.raises(SweetError, match="equal rewards"):
        run_train_actor(run, TrainActorConfig(algorithm="grpo", device="cpu"), Silent())
