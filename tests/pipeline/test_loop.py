"""The loop: what it does, what it does not repeat, when it ends, and which actor it keeps."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest

from sweet.cli.loops import show_rounds
from sweet.errors import InputError, Interrupted, SweetError, UsageError
from sweet.pipeline.config import LoopConfig
from sweet.pipeline.loop import Loop
from sweet.pipeline.plan import plan_train, walk
from sweet.pipeline.recipe import resolve
from sweet.pipeline.stage import run_train
from sweet.pipeline.steps import Step, StepCache
from sweet.runs.run import Run
from sweet.runs.tokens import Tokens, TokensByRole, tokens_of_run
from sweet.scoring.results.run_result import result_of
from sweet.stages.base import Silent, StageConfig, StageResult
from sweet.stages.meta import RolloutsMeta
from sweet.stages.record import Rate
from sweet.tasks.micro.family import MICRO
from sweet.training.config import TrainActorConfig
from tests.stages.heard import Heard

TINY: dict[str, Any] = {"tasks": MICRO.name, "train_tasks": 8, "samples": 4, "eval_tasks": 4}
SMALL = TINY | {"train_tasks": 4}
SETS = ["rank.candidates=2", "rank.fraction=0.1"]


class Scripted(StepCache):
    """Steps that do nothing and return success rates of a script.

    Args:
        validation: success of the agents on validation tasks, from the starting agent on.
        leaks: share of the dialogues on test tasks in which the human leaked, likewise; none where no model plays it.
    """

    def __init__(self, validation: Sequence[float], leaks: Sequence[float] = ()) -> None:
        self.validation, self.leaks = list(validation), list(leaks)
        self.done: list[tuple[str, StageConfig]] = []

    def do(self, config: StageConfig, title: str = "", *, matching: Sequence[str] = ()) -> Step:
        self.done.append((title, config))
        stage = title.partition(": ")[2].split()[0]
        rate = self.validation.pop(0) if title.endswith("eval validation") else 0.5
        number = sum(done.partition(": ")[2].split()[0] == stage for done, _ in self.done)
        kind = {"train-actor": "actor", "train-critic": "critic", "label": "preferences", "pair": "pairs"}.get(
            stage, stage
        )
        metrics = {"success_rate": rate, "success_rate_ci_low": 0.0, "success_rate_ci_high": 1.0, "episodes": 3}
        if title.endswith("eval test") and self.leaks:
            leaks = self.leaks.pop(0)
            metrics |= {"leak_rate": leaks, "leak_rate_ci_low": leaks - 0.1, "leak_rate_ci_high": leaks + 0.1}
        now = datetime.now(UTC)
        attempt = SimpleNamespace(metrics=metrics, started=now, finished=now)
        return Step(cast(Any, attempt), cast(Any, SimpleNamespace(id=f"{kind}-{number}")))

    def file(self, step: Step) -> Path:
        return Path(step.id)

    def tokens(self, step: Step | None = None) -> TokensByRole:
        """Each step has read a million tokens as the agent, and a step that failed another one."""
        return {"agent": Tokens(prompt=10**6 if step is not None else 10**6 * (len(self.done) + 1))}

    def titles(self) -> list[str]:
        return [title for title, _ in self.done]


def loop(validation: Sequence[float], **options: Any) -> tuple[Any, Scripted]:
    steps = Scripted(validation)
    recipe = resolve(LoopConfig(**TINY | options), None)
    return Loop(recipe, steps, Silent()).play(), steps


def test_the_best_actor_on_validation_tasks_is_kept_and_training_ends_early() -> None:
    metrics, steps = loop([0.1, 0.4, 0.3, 0.9], rounds=5)
    assert metrics.best == "actor-1"
    assert metrics.best_path == "actor-1"
    assert metrics.ended_early
    assert [one.agent for one in metrics.rounds] == ["micro", "actor-1", "actor-2"]
    assert not any(title.startswith("round 3") for title in steps.titles())


def test_patience_waits_for_a_later_improvement() -> None:
    metrics, _ = loop([0.1, 0.4, 0.3, 0.9, 0.2], rounds=4, patience=2)
    assert (metrics.best, metrics.ended_early, len(metrics.rounds)) == ("actor-3", False, 5)


def test_an_agent_that_no_actor_beats_is_kept() -> None:
    metrics, _ = loop([0.5, 0.5], rounds=2)
    assert (metrics.best, metrics.best_path, metrics.ended_early) == ("micro", None, True)
    assert metrics.after == metrics.before


@pytest.mark.parametrize("options", [{"rounds": 1}, {"rounds": 2, "early_stop": False}])
def test_without_validation_the_last_actor_is_kept(options: dict[str, Any]) -> None:
    metrics, steps = loop([], **options)
    assert metrics.best == f"actor-{options['rounds']}"
    assert not any(title.endswith("validation") for title in steps.titles())
    assert all(one.validation is None for one in metrics.rounds)


def test_critic_and_actor_learn_from_all_rounds_from_the_starting_model() -> None:
    _, steps = loop([0.1, 0.2, 0.3, 0.4], rounds=3)
    actors = [config for _, config in steps.done if isinstance(config, TrainActorConfig)]
    assert [one.from_ for one in actors] == [["pairs-1"], ["pairs-1", "pairs-2"], ["pairs-1", "pairs-2", "pairs-3"]]
    assert {one.model for one in actors} == {"micro"}
    assert [one.seed for one in actors] == [0, 1000, 2000]


def test_after_the_largest_seed_the_rounds_go_on_from_0() -> None:
    _, steps = loop([0.1, 0.2, 0.3], rounds=2, seed=2**32 - 1)
    assert [one.seed for _, one in steps.done if isinstance(one, TrainActorConfig)] == [2**32 - 1, 999]


def test_a_walk_has_the_steps_in_their_order() -> None:
    for options in ({"rounds": 1}, {"rounds": 3}, {"rounds": 2, "retrain_critic": False}):
        _, steps = loop([0.1, 0.2, 0.3, 0.4], **options)
        recipe = resolve(LoopConfig(**TINY | options), None)
        assert walk(None, recipe).titles == steps.titles()


def test_a_leak_rate_that_rises_along_the_rounds_is_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    steps, reporter = Scripted([], [0.1, 0.25, 0.46]), Heard()
    metrics = Loop(resolve(LoopConfig(**TINY, rounds=2, early_stop=False), None), steps, reporter).play()
    assert [one.leak_rate.value for one in metrics.rounds if isinstance(one.leak_rate, Rate)] == [0.1, 0.25, 0.46]
    (warned,) = [text for text in reporter.warnings if "leaked" in text]
    assert "Round 2: the human leaked the solution in 46.0 % [36.0, 56.0]" in warned
    assert "10.0 % [0.0, 20.0] at the start" in warned, "round 1 may be chance"
    show_rounds(StageResult("train", Path("runs/x"), metrics))
    shown = " ".join(capsys.readouterr().out.split())
    assert "human" in shown
    assert "46.0 %" in shown


@pytest.mark.parametrize("leaks", [[], [0.0, 0.0]])
def test_a_human_that_never_leaks_has_no_column(leaks: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    metrics = Loop(resolve(LoopConfig(**TINY), None), Scripted([], leaks), Silent()).play()
    show_rounds(StageResult("train", Path("runs/x"), metrics))
    assert "leaked" not in capsys.readouterr().out
    assert ("leak_rate" in metrics.as_json()["rounds"][0]) == bool(leaks)


def test_an_agent_at_a_server_is_not_asked_for_its_trained_actors() -> None:
    _, steps = loop([], agent="m", agent_url=["http://h/v1"])
    urls = {title: cast(Any, config).agent_url for title, config in steps.done if hasattr(config, "agent_url")}
    assert urls["round 1: rank"] == urls["start: rollout test"] == ["http://h/v1"]
    assert urls["round 1: rollout test"] == []


def test_prices_give_the_cost_of_each_round(tmp_path: Path) -> None:
    file = tmp_path / "priced.toml"
    file.write_text("[prices.agent]\nprompt = 1\n")
    metrics, steps = loop([], recipe=str(file))
    of_round = [float(sum(title.startswith(start) for title in steps.titles())) for start in ("start", "round 1")]
    assert [one.cost for one in metrics.rounds] == of_round == [2.0, 9.0]
    assert metrics.cost == 12.0, "what failed counts for the run"
    other = tmp_path / "prices.toml"
    other.write_text("[agent]\nprompt = 2\n")
    assert loop([], recipe=str(file), prices=other)[0].cost == 24.0
    with pytest.raises(UsageError, match="needs the prices"):
        run_train(Run.create(tmp_path / "run"), LoopConfig(**TINY, max_cost=1), Silent())


def test_a_run_stops_at_the_limit_of_its_cost_and_goes_on_with_a_higher_one(tmp_path: Path) -> None:
    """A token that the agent writes costs 1. The recipe of the run keeps the prices and the limit."""
    run, file = Run.create(tmp_path / "run"), tmp_path / "prices.toml"
    file.write_text("[agent]\ncompletion = 1000000\n")
    with pytest.raises(Interrupted, match="the limit is 1") as stopped:
        run_train(run, LoopConfig(**SMALL, set_=SETS, prices=file, max_cost=1), Silent())
    assert "--max-cost" in str(stopped.value.needs)
    file.unlink()
    spent = sum(tokens.completion for tokens in tokens_of_run(run.path, run.manifest()).values())
    assert spent >= 1
    before = attempts(run)
    with pytest.raises(Interrupted, match="the limit is 1"):
        run_train(run, LoopConfig(), Silent())
    again = sum(tokens.completion for tokens in tokens_of_run(run.path, run.manifest()).values())
    assert again == spent, "nothing is begun above the limit"
    assert attempts(run)[: len(before)] == before
    with pytest.raises(Interrupted, match="missing"):
        run_train(run, LoopConfig(max_cost=spent + 300), Silent())
    metrics = run_train(run, LoopConfig(max_cost=1e9), Silent()).metrics
    total = tokens_of_run(run.path, run.manifest())["agent"].completion
    assert metrics.cost == total == sum(one.cost or 0 for one in metrics.rounds)
    assert total > spent + 300
    test = [attempt for attempt in run.manifest().attempts if attempt.stage == "eval"]
    for one, evaluated in zip(metrics.rounds, (test[0], test[-1]), strict=True):
        assert one.cost_per_solved_task == evaluated.metrics.get("cost_per_solved_task")
    ranked = [attempt for attempt in run.manifest().attempts if attempt.stage == "rank"][-1]
    assert ranked.metrics["cost"] == ranked.metrics["completion_tokens"] != 0
    assert len(run.manifest().of_kind("rollouts")) == 3, "the rollouts that were stopped went on"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = Run.create(tmp_path_factory.mktemp("loop") / "run")
    run_train(run, LoopConfig(**SMALL, set_=SETS), Silent())
    return run


def attempts(run: Run) -> list[str]:
    return [attempt.stage for attempt in run.manifest().attempts]


def test_a_call_again_repeats_nothing(trained: Run) -> None:
    before = attempts(trained)
    again = run_train(trained, LoopConfig(), Silent())
    assert attempts(trained) == [*before, "train"]
    assert again.metrics.best == "actor-1"
    assert {artifact.id for artifact in again.artifacts} == {artifact.id for artifact in trained.manifest().artifacts}


def test_a_moved_run_repeats_nothing(trained: Run, tmp_path: Path) -> None:
    moved = shutil.copytree(trained.path, tmp_path / "moved")
    before = attempts(trained)
    run_train(Run.open(moved), LoopConfig(), Silent())
    assert attempts(Run.open(moved)) == [*before, "train"]


def test_changed_settings_say_what_they_would_repeat(trained: Run) -> None:
    before = attempts(trained)
    changed = LoopConfig(set_=["pair.pairs=3"])
    with pytest.raises(UsageError, match=r"pair\.pairs was 4 and is 3") as error:
        run_train(trained, changed, Silent())
    assert "round 1: pair, round 1: train-actor, round 1: rollout test, round 1: eval test" in str(error.value)
    assert "rank," not in str(error.value)
    plan = plan_train(trained, changed, Silent())
    assert plan.repeated[0] == "round 1: pair"
    assert [step.step for step in plan.steps if step.status == "next"] == ["round 1: pair"]
    assert attempts(trained) == before


def test_more_rounds_and_operational_settings_are_no_change(trained: Run) -> None:
    plan = plan_train(trained, LoopConfig(rounds=2, set_=["rollout.concurrency=7"]), Silent())
    assert plan.repeated == []
    assert plan.changed == ["train.rounds was 1 and is 2"]
    done = [step.step for step in plan.steps if step.status == "done"]
    assert len(done) == 11
    assert next(step for step in plan.steps if step.status == "next").step == "start: rollout validation"


def test_evaluations_that_are_left_out_are_not_repeated(trained: Run, tmp_path: Path) -> None:
    run = Run.open(shutil.copytree(trained.path, tmp_path / "run"))
    metrics = run_train(run, LoopConfig(rounds=2), Silent()).metrics
    result = result_of(run.manifest())
    assert result is not None
    assert (result.agent, RolloutsMeta.of(result.rollouts).split) == (metrics.best, "test")
    assert (metrics.paired is None) == (metrics.best == "micro")
    before = attempts(run)
    run_train(run, LoopConfig(early_stop=False, rounds=1), Silent())
    assert attempts(run) == [*before, "train"]


def test_a_step_that_was_changed_by_hand_is_done_again(trained: Run, tmp_path: Path) -> None:
    run = Run.open(shutil.copytree(trained.path, tmp_path / "edited"))
    pairs = run.file(run.artifact("pairs-1"))
    pairs.write_bytes(pairs.read_bytes()[:-1])
    recipe = resolve(LoopConfig(), run.path)
    assert walk(run, recipe).finished[-1] == "round 1: rank"


def test_a_failed_stage_leaves_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run.create(tmp_path / "run")
    with pytest.raises(SweetError, match="nothing to prefer") as error:
        run_train(run, LoopConfig(**TINY, set_=[*SETS, "label.margin=1.0", "rollout.max-tokens=1"]), Silent())
    assert "--samples 8 --redo" in str(error.value.fix)
    statuses = {attempt.stage: attempt.status for attempt in run.manifest().attempts}
    assert statuses["train"] == statuses["label"] == "failed"
    assert statuses["eval"] == "done"


def test_two_calls_at_once_are_refused(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run")
    with run.exclusive("train"), pytest.raises(UsageError, match="Another sweet train"):
        run_train(run, LoopConfig(**TINY), Silent())


def test_a_new_run_is_planned_without_being_made(tmp_path: Path) -> None:
    plan = plan_train(None, LoopConfig(**TINY), Silent())
    assert plan.done == 0
    assert plan.steps[0].status == "next"
    assert (plan.recipe, plan.changed) == (
        "recipe micro",
        [
            "train.tasks was not set and is 'micro'",
            f"train.train-tasks was not set and is {TINY['train_tasks']}",
            "train.samples was 6 and is 4",
            "train.eval-tasks was not set and is 4",
        ],
    )
    used = ("rollout.max-turns", "evaluation.max-turns", "train-critic.lr", "train-actor.epochs", "rank.judge")
    assert [plan.config[name] for name in used] == [6, 6, 7e-5, 2, "critic"], "and no default that is not used"
    works = {step.step: step.work for step in plan.steps}
    assert works["round 1: rollout train"] == {
        **(works["round 1: rollout train"] or {}),
        "dialogues": 32,
        "missing": 32,
    }
    turns = (works["round 1: rank"] or {})["turns_at_most"]
    assert isinstance(turns, int)
    assert turns > 0


def test_a_task_that_cannot_be_scored_ends_the_call_before_the_first_dialogue(tmp_path: Path) -> None:
    rows = [
        {"split": split, "problem_description": "A fee.", "ground_truth": source, "test_cases": ["fee(1)", "fee(2)"]}
        for split, source in (("test", "def fee(h):\n    return 2 * h"), ("train", "def fee(1"))
    ]
    file = tmp_path / "own.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = Run.create(tmp_path / "run")
    with pytest.raises(InputError, match="SyntaxError") as error:
        run_train(run, LoopConfig(tasks=str(file)), Silent())
    assert error.value.line == 2
    assert attempts(run) == ["train"]


def test_few_validation_tasks_are_warned_of(tmp_path: Path) -> None:
    row = (
        '{{"problem_description": "{0}", "ground_truth": "def f():\\n    return {0}", "test_cases": {{"t": "f()"}}}}\n'
    )
    file = tmp_path / "mine.jsonl"
    file.write_text("".join(row.format(number) for number in range(60)))

    class Heard(Silent):
        lines: ClassVar[list[str]] = []

        def warn(self, text: str) -> None:
            self.lines.append(text)

    recipe = resolve(LoopConfig(tasks=str(file), rounds=2), None)
    assert Loop(recipe, Scripted([]), Heard()).selects
    assert [line for line in Heard.lines if "validation task" in line]
    Heard.lines.clear()
    assert Loop(resolve(LoopConfig(tasks=MICRO.name, rounds=2), None), Scripted([]), Heard()).selects
    assert Heard.lines == []
