"""Evaluation by a Python function, and what else of the public interface a notebook uses."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest

import sweet
from sweet.errors import UsageError
from sweet.inspection.next_commands import suggest_next
from sweet.plugins import TASKS, plugins
from sweet.runs.jsonl import read_jsonl
from sweet.stages.record import Rate
from sweet.tasks.base import NO_ANSWER, Task
from sweet.tasks.kind import TaskKind
from sweet.tasks.prompts import Prompts
from sweet.tasks.registry import task_kind
from sweet.tasks.scores import AnswerScorer, Score, ScoringRequest, Verdict
from tests.learn.builders import build_trajectory
from tests.ranking.test_function_judge import function_of
from tests.stages.learn_runs import put


@pytest.fixture
def run(tmp_path: Path) -> sweet.Run:
    run = sweet.Run.create(tmp_path / "run")
    dialogues = [build_trajectory(f"{number} + 1", turns=1 + number) for number in range(4)]
    dialogues = [one.model_copy(update={"answer": "7"}) for one in dialogues]
    dialogues[3] = dialogues[3].model_copy(update={"outcome": "deadline"})
    put(run, "rollout", "rollouts", dialogues, agent="micro", tasks="toy", split="test", max_turns=4)
    return run


def brevity(trajectory: sweet.Trajectory) -> float | None:
    turns = sum(turn.role == "assistant" for turn in trajectory.dialogue_history)
    if trajectory.answer == NO_ANSWER:
        return -1
    return None if turns == 3 else 1 / turns


def test_a_function_gives_the_rewards(run: sweet.Run) -> None:
    result = sweet.evaluate(run, reward=brevity)
    rows = list(read_jsonl(run.file(result.artifacts[0]), Score))
    assert [(row.reward, row.outcome) for row in rows] == [
        (1.0, "passed"),
        (0.5, "failed"),
        (None, "invalid"),
        (-1.0, "failed"),
    ]
    rate = result.metrics.success_rate
    assert rate is not None
    assert rate.value == pytest.approx(1 / 3, abs=1e-6)
    reward = result.metrics.rates["reward"]
    assert isinstance(reward, Rate)
    assert reward.value == pytest.approx(0.5 / 3, abs=1e-6)
    name = "function tests.scoring.test_function_reward.brevity#"
    assert str(result.artifacts[0].meta["scorer"]).startswith(name)
    again = sweet.evaluate(run, reward=lambda trajectory: 1.0)
    assert again.metrics.success_rate is not None
    assert again.metrics.success_rate.value == 1.0
    assert not any("<lambda>" in command for command in suggest_next(run.manifest())), "no command can do that"
    with pytest.raises(UsageError, match="scorer"):
        sweet.compare(f"{run.path}:scores-1", f"{run.path}:scores-2")
    third = sweet.evaluate(run, reward=brevity)
    compared = sweet.compare(f"{run.path}:scores-1", f"{run.path}:{third.artifacts[0].id}").metrics
    assert {name: row.b.value for name, row in compared.figures.items()} == pytest.approx(
        {"success_rate": 1 / 3, "reward": 0.5 / 3}, abs=1e-6
    )


def test_the_rewards_of_a_function_that_was_changed_are_not_compared(run: sweet.Run, tmp_path: Path) -> None:
    for name, reward in (("a", "1.0"), ("b", "1.0"), ("c", "0.5")):
        sweet.evaluate(run, reward=function_of(tmp_path / name, f"def function(trajectory):\n    return {reward}\n"))
    assert sweet.compare(f"{run.path}:scores-1", f"{run.path}:scores-2").metrics.figures["reward"].b.value == 1
    with pytest.raises(UsageError, match="scorer"):
        sweet.compare(f"{run.path}:scores-1", f"{run.path}:scores-3")


@pytest.mark.parametrize("value", [1.5, -2, math.nan, "high", 10**400])
def test_a_wrong_reward_is_an_error(run: sweet.Run, value: Any) -> None:
    with pytest.raises(UsageError, match="return a number from -1 to 1, or None"):
        sweet.evaluate(run, reward=lambda trajectory: value)


@pytest.mark.parametrize(
    ("config", "what"),
    [
        (sweet.EvalConfig(scorer="strict"), "two scorers"),
        (sweet.EvalConfig(tolerance=0.1), "--tolerance is an option of the kind's scorer"),
    ],
)
def test_options_of_a_scorer_are_refused_beside_a_function(run: sweet.Run, config: Any, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        sweet.evaluate(run, config, reward=brevity)


class Counting(sweet.Reporter):
    """Defines one of the methods."""

    def __init__(self) -> None:
        self.bars: list[tuple[str, int | None]] = []

    @contextmanager
    def progress(self, title: str, total: int | None) -> Iterator[sweet.Progress]:
        self.bars.append((title, total))
        yield Bar()


class Bar(sweet.Progress):
    pass


def test_reporter_and_progress_are_base_classes(run: sweet.Run) -> None:
    counting = Counting()
    sweet.evaluate(run, reward=brevity, reporter=counting)
    assert counting.bars == [("answers", 4)]


class Same(AnswerScorer):
    def verdicts(self, answers: Any) -> Iterator[Verdict]:
        for task, answer in answers:
            same = answer == task.ground_truth
            yield Verdict(float(same), int(same), 1, "passed" if same else "failed")


def registered(name: str, answer: str) -> type[TaskKind]:
    class Texts(Prompts):
        texts: ClassVar = {"agent": "Be brief.", "human": "A\n{request}\nB\n{reference}\nC\n{dialogue}"}

    class Kind(TaskKind):
        texts = Texts

        @property
        def scripted_agent(self) -> Any:
            return lambda messages, temperature, seed: f"I WANT TO ANSWER: {answer}"

        def load(self, tasks: str, split: str) -> list[Task]:
            return [Task(id="t", problem_description="A number.", ground_truth=" 7", facts=())]

        def default_tasks(self) -> str:
            return "one"

        def check_scripted_human(self, tasks: Any) -> None:
            pass

        @contextmanager
        def open_scorer(self, request: ScoringRequest) -> Iterator[AnswerScorer]:
            yield Same("sameness")

    Kind.name = name
    return Kind


def test_a_kind_that_the_program_registers_needs_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweet.plugins._registered", {})
    with pytest.raises(UsageError, match="no kind of task called 'notebook'"):
        task_kind("notebook")
    for answer, solved in (("5", 0.0), ("7", 1.0)):  # the second one replaces the first
        kind = registered("notebook", answer)
        assert sweet.register_kind(kind) is kind
        run = sweet.Run.create(tmp_path / answer, "notebook")
        sweet.rollout(run, sweet.RolloutConfig(task="notebook", agent="scripted", split="test"))
        rate = sweet.evaluate(run).metrics.success_rate
        assert rate is not None
        assert rate.value == solved
    assert [str(plugin) for plugin in plugins(TASKS)["notebook"]] == [__name__]


@pytest.mark.parametrize(("name", "what"), [("code", "sweet.* has a kind of task called 'code'"), ("", "needs a name")])
def test_a_kind_that_cannot_be_registered(name: str, what: str) -> None:
    before = plugins(TASKS)
    with pytest.raises(UsageError, match=what):
        sweet.register_kind(registered(name, "7"))
    with pytest.raises(UsageError, match="lacks open_scorer"):
        sweet.register_kind(type("Lacking", (TaskKind,), {"name": "lacking"}))
    assert plugins(TASKS) == before
