"""Rewards of turns: of a scorer, of what tasks know, of imported dialogues; their sums, and what learns from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import sweet
from sweet.credit.base import missing_rewards
from sweet.credit.groups import GRPO
from sweet.datasets.importing import DataImportConfig, run_data_import
from sweet.errors import InputError, SweetError, UsageError
from sweet.runs.jsonl import read_jsonl
from sweet.runs.run import Run
from sweet.scoring.config import EvalConfig
from sweet.scoring.results.compare import pair_figures
from sweet.scoring.results.evaluation import Values
from sweet.scoring.stage import run_eval
from sweet.stages.base import Silent
from sweet.stages.record import Rate
from sweet.tasks.base import Fact, Task, TurnRewards
from sweet.tasks.registry import task_kind
from sweet.tasks.scores import Score
from sweet.tasks.tools import MOST_NAMES, ToolResult
from sweet.tasks.trajectory import Trajectory, Turn
from sweet.training.sources import Sources
from sweet.view.records import Records
from tests.datasets.test_published import row, write
from tests.learn.builders import build_trajectory
from tests.stages.learn_runs import put

WISHES = ("colour", "red"), ("size", "large")
USEFUL, USELESS, ANSWER = "Which {}?", "How are you?", "I WANT TO ANSWER: a large red one"
ASKED = {
    "a": (USEFUL.format("colour"), USEFUL.format("size"), ANSWER),
    "b": (USELESS, USEFUL.format("size"), USEFUL.format("size"), USEFUL.format("colour"), ANSWER),
    "c": (ANSWER,),
}
CREDITS = {"a": [1.0, 1.0, 2.0], "b": [-0.5, 1.0, -0.5, 1.0, 2.0], "c": [-1.0]}
"""Useful questions, useless and repeated ones, full answers, and an early one (`sweet.tasks.facts.VALUES`)."""


def order(name: str, *said: str, own: TurnRewards | None = None) -> Trajectory:
    facts = tuple(Fact(topic=wish, cues=(wish,), answer=f"{value}.") for wish, value in WISHES)
    task = Task(id="o", problem_description="A shirt.", ground_truth="large, red", test_cases=dict(WISHES), facts=facts)
    turns = [Turn(role="user", content="A shirt.")]
    for text in said:
        turns += [Turn(role="assistant", content=text, output=text), Turn(role="user", content="Well.")]
    dialogue = Trajectory(id=name, task=task, dialogue_history=tuple(turns[:-1]), answer="a large red one")
    return dialogue.with_rewards(own or {})


def orders_run(path: Path, *dialogues: Trajectory) -> Run:
    run = Run.create(path, "orders")
    put(run, "rollout", "rollouts", dialogues, agent="scripted", tasks="toy", split="train", max_turns=10)
    return run


def scores_of(run: Run) -> list[Score]:
    return list(read_jsonl(run.file(run.find("scores", needed_by="test")), Score))


def test_the_credit_of_turns_is_the_oracle_s_and_a_rule_learns_its_returns(tmp_path: Path) -> None:
    run = orders_run(tmp_path / "run", *(order(name, *said) for name, said in ASKED.items()))
    metrics = run_eval(run, EvalConfig(scorer="credit"), Silent()).metrics.as_json()
    rows = {score.id: score for score in scores_of(run)}
    found = {name: [given["credit"] for given in score.turn_rewards.values()] for name, score in rows.items()}
    assert found == CREDITS
    assert [*rows["b"].turn_rewards] == [1, 3, 5, 7, 9]
    assert metrics["turn_reward_credit"] == pytest.approx((4 + 3 - 1) / 3, abs=1e-6)
    assert {score.reward for score in rows.values()} == {1.0}, "the credit is no part of the reward"
    batch = Sources.find(run, "scores", [], allow_test=False, needed_by="test").batch(
        "scores", task_kind("orders").rewards
    )
    with pytest.raises(SweetError, match="equal rewards"):
        GRPO().credit(batch, None)  # type: ignore[arg-type]
    rule = GRPO(turns="credit", gamma=0.5, std=False)
    # From the end, with the reward 1 at the last turn: a 3, 2.5, 2.25; b 3, 2.5, 0.75, 1.375, 0.1875; c 0.
    returns = {name: rule.returns(batch.dialogues[name], 1.0)[:-1] for name in "abc"}
    assert returns == {"a": [2.25, 2.5, 3.0], "b": [0.1875, 1.375, 0.75, 2.5, 3.0], "c": [0.0]}
    policy = {credit.of: credit.policy for credit in rule.credit(batch, None)}  # type: ignore[arg-type]
    # c has ended after its first turn, a after its third: they count with their reward of 1 from then on.
    first, second, third = (2.25 + 0.1875) / 3, (2.5 + 1.375 + 1) / 3, (3 + 0.75 + 1) / 3
    assert policy["a"] == pytest.approx({1: 2.25 - first, 3: 2.5 - second, 5: 3 - third})
    expected = {1: 0.1875 - first, 3: 1.375 - second, 5: 0.75 - third, 7: 2.5 - 4.5 / 3, 9: 3 - 5 / 3}
    assert policy["b"] == pytest.approx(expected)
    assert policy["c"] == pytest.approx({1: -first})
    missing = missing_rewards(GRPO(turns="credit,facts"), batch.dialogues.values())
    assert missing == "No turn has a reward facts; there are: credit."


def test_tasks_that_know_no_credit_are_refused(tmp_path: Path) -> None:
    dialogue = order("a", ANSWER)
    plain = dialogue.model_copy(update={"task": dialogue.task.model_copy(update={"facts": ()})})
    with pytest.raises(UsageError, match="do not know what a reply is worth") as error:
        run_eval(orders_run(tmp_path / "run", plain), EvalConfig(scorer="credit"), Silent())
    assert error.value.where == "--scorer credit"


def test_a_scorer_adds_to_the_rewards_that_turns_have_and_the_view_shows_them(tmp_path: Path) -> None:
    own = {1: {"tool": 0.25, "both": 9.0}}
    run = orders_run(tmp_path / "run", order("a", USELESS, ANSWER, own=own), order("b", ANSWER))

    def reward(dialogue: Trajectory) -> Any:
        return (0.5, {1: {"both": 1.0}, 3: {"both": -0.5}}) if dialogue.id == "a" else 0.5

    metrics = sweet.evaluate(run, reward=reward).metrics.as_json()
    a, b = scores_of(run)
    assert a.turn_rewards == {1: {"tool": 0.25, "both": 1.0}, 3: {"both": -0.5}}
    assert (b.turn_rewards, "turn_rewards" in b.model_dump()) == ({}, False)
    assert (metrics["turn_reward_both"], metrics["turn_reward_tool"]) == (0.25, 0.125)
    records = Records(run)
    shown = records.record(records.find("a")).trajectory
    assert shown.turn_rewards == a.turn_rewards


@pytest.mark.parametrize(
    "wrong", [{2: {"x": 1.0}}, {7: {"x": 1.0}}, {1: {"x": float("nan")}}, {1: {"a b": 1.0}}, {1: 1.0}, None, [1]]
)
def test_wrong_rewards_of_turns_of_a_function_are_errors(tmp_path: Path, wrong: Any) -> None:
    run = orders_run(tmp_path / "run", order("a", USELESS, ANSWER))
    with pytest.raises(SweetError, match=r"(rewards of turns of a are wrong|turn [27] has a reward)"):
        sweet.evaluate(run, reward=lambda dialogue: (0.5, wrong))


def score(name: str, task: str, turn_rewards: TurnRewards, reward: float = 0.5) -> Score:
    return Score(id=name, task_id=task, reward=reward, passed=0, total=0, outcome="failed", turn_rewards=turn_rewards)


def test_sums_are_compared_by_task_and_are_0_where_no_turn_has_one() -> None:
    a, b = Values({}), Values({})
    for one in (score("1", "s", {}), score("2", "t", {1: {"x": 1.0}, 3: {"x": 2.0, "y": 1.0}})):
        a.add(one)
    for one in (score("1", "s", {1: {"x": 1.0}}), score("2", "t", {5: {"x": -7.0}})):
        b.add(one)
    assert (a.of("turn_reward_x"), a.bounds("turn_reward_x")) == ({"s": [0.0], "t": [3.0]}, (0.0, 3.0))
    figures = pair_figures(a, b)
    assert list(figures) == ["reward", "turn_reward_x"], "the other side has no y"
    x = figures["turn_reward_x"]
    assert (x.a.value, x.b.value, x.difference.value) == (1.5, -3.0, -4.5)
    assert (x.wins, x.losses) == (1, 1)
    rate = a.rates()["turn_reward_x"]
    assert isinstance(rate, Rate)
    assert rate.value == 1.5
    with pytest.raises(SweetError, match=f"more than {MOST_NAMES} names"):
        a.add(score("3", "u", {1: {f"n{number}": 1.0 for number in range(MOST_NAMES + 1)}}))


def test_an_import_reads_them(tmp_path: Path) -> None:
    given = row(id="mine", reward=0.5)
    given["dialogue_history"][1]["rewards"] = {"asks": 1}
    run_data_import(write(tmp_path / "a.jsonl", [given]), tmp_path / "run", DataImportConfig(), Silent())
    assert [one.turn_rewards for one in scores_of(Run.open(tmp_path / "run"))] == [{1: {"asks": 1.0}}]


@pytest.mark.parametrize(
    ("turn", "rewards", "match"),
    [
        (0, {"x": 1}, r"dialogue_history\.0\.rewards is of a turn that is not the agent's\."),
        (1, {"x": float("inf")}, "finite number"),
        (1, {"x": 1e7}, "less than or equal to"),
        (1, {"\x1b[31m": 1}, "match pattern"),
        (1, [1], "valid dictionary"),
        (1, {f"n{number}": 1 for number in range(MOST_NAMES + 1)}, "more than 32 names"),
    ],
)
def test_an_import_refuses_wrong_ones_and_writes_nothing(tmp_path: Path, turn: int, rewards: Any, match: str) -> None:
    given = row()
    given["dialogue_history"][turn]["rewards"] = rewards
    with pytest.raises((InputError, UsageError), match=match):
        run_data_import(write(tmp_path / "a.jsonl", [given]), tmp_path / "run", DataImportConfig(), Silent())
    assert not (tmp_path / "run").exists()


def test_a_tool_s_rewards_are_bounded() -> None:
    with pytest.raises(ValueError, match="less than or equal"):
        ToolResult(content="", rewards={"x": 1e4})


def test_differences_of_states_are_what_a_turn_adds() -> None:
    dialogue = build_trajectory(turns=4).with_rewards({1: {"x": 0.5, "z": 9.0}, 5: {"x": 2.0, "y": 1.0}})
    rule = GRPO(turns="x,y", states=True, weight=2.0)
    # x and y together: 0.5 after the first turn, still 0.5 after the second, 3 after the third and the last.
    assert rule.returns(dialogue, 1.0) == [1.0 + 5.0 + 1.0, 5.0 + 1.0, 5.0 + 1.0, 1.0, 1.0]
    halved = GRPO(turns="x,y", states=True, gamma=0.5)
    # 0.25 - 0, 0.25 - 0.5, 1.5 - 0.5, 1.5 - 3, and the reward at the last turn.
    last = 1.5 - 3 + 1
    third = 1.5 - 0.5 + 0.5 * last
    second = 0.25 - 0.5 + 0.5 * third
    assert halved.returns(dialogue, 1.0) == [0.25 + 0.5 * second, second, third, last, 1.0]
