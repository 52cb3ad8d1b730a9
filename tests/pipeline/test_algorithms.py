"""`sweet train --algorithm NAME`: its steps, the options of an online training, what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sweet.errors import UsageError
from sweet.online.config import TrainOnlineConfig
from sweet.pipeline.algorithm import algorithm_of
from sweet.pipeline.config import LoopConfig
from sweet.pipeline.loop import AS_EVAL, AS_ROLLOUT, Loop
from sweet.pipeline.plan import plan_train, walk
from sweet.pipeline.recipe import resolve
from sweet.pipeline.stage import run_train
from sweet.pipeline.steps import Step
from sweet.ranking.config import RankConfig
from sweet.rollouts.config import RolloutConfig
from sweet.runs.run import Run
from sweet.scoring.config import EvalConfig
from sweet.stages.base import Silent, StageConfig
from sweet.training.config import TrainActorConfig, TrainCriticConfig
from tests.pipeline.test_loop import TINY, Scripted
from tests.stages.heard import Heard

QUICK = [f"train-online.{one}" for one in ("steps=2", "tasks-per-step=2", "group=4", "save-every=1")]
ONLINE: dict[str, Any] = {name: value for name, value in TINY.items() if name != "samples"} | {
    "algorithm": "grpo",
    "set_": QUICK,
}
LEARNING = {
    "sweet": ["rollout train", "eval train", "label", "train-critic", "rank", "pair", "train-actor"],
    "multi-turn-dpo": ["rollout train", "eval train", "label", "train-actor"],
    "sweet-pg-candidates": ["rollout train", "eval train", "label", "train-critic", "rank", "train-actor"],
    "grpo": ["train-online"],
    "rft": ["train-online"],
    "sweet-pg": ["rollout train", "eval train", "label", "train-critic", "train-online"],
}


def played(**options: Any) -> tuple[Any, Scripted]:
    steps = Scripted([0.5] * 9)
    return Loop(resolve(LoopConfig(**TINY | options), None), steps, Silent()).play(), steps


@pytest.mark.parametrize("name", LEARNING)
def test_a_round_has_the_steps_of_its_algorithm(name: str) -> None:
    assert algorithm_of(LoopConfig(algorithm=name)).steps(1, True) == LEARNING[name]


@pytest.mark.parametrize("judge", ["lookahead", "oracle"])
def test_a_judge_that_is_no_critic_needs_none(judge: str, tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run")
    few = TINY | {"train_tasks": 8, "samples": 2}
    few["set_"] = [f"rank.judge={judge}", "rank.candidates=4", "rank.fraction=0.2", "pair.pairs=2"]
    result = run_train(run, LoopConfig(**few), Silent())
    stages = [attempt.stage for attempt in run.manifest().attempts]
    assert [stage for stage in stages if stage not in ("rollout", "eval")] == ["train", "rank", "pair", "train-actor"]
    [ranked] = [artifact for artifact in result.artifacts if artifact.kind == "candidates"]
    assert ranked.meta["judge"] == judge
    assert ranked.meta.get("sim") == ("scripted" if judge == "lookahead" else None)


@pytest.mark.parametrize(("given", "target"), [([], "real"), (["train-critic.target=binary"], "binary")])
def test_a_value_function_is_trained_where_it_judges(given: list[str], target: str) -> None:
    _, steps = played(set_=["rank.judge=value", *given])
    [critic] = [config for _, config in steps.done if isinstance(config, TrainCriticConfig)]
    assert (critic.variant, critic.target) == ("regression", target)
    assert [name.partition("-")[0] for name in critic.from_] == ["eval"], "rewards are in the scores"
    [rank] = [config for _, config in steps.done if isinstance(config, RankConfig)]
    assert rank.judge == "value"
    assert rank.from_ == "critic-1"


def test_the_judge_that_looks_ahead_asks_one_human() -> None:
    with pytest.raises(UsageError, match="asks one human, and the dialogues have several"):
        resolve(LoopConfig(**TINY, sim=["scripted", "org/model"], set_=["rank.judge=lookahead"]), None)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("grpo", {}),
        ("rloo", {}),
        ("sweet-pg", {}),
        ("multi-turn-dpo", {"rounds": 2, "retrain_critic": False}),
        ("sweet-pg-candidates", {"rounds": 3, "early_stop": False}),
        ("sweet-pg-candidates", {"rounds": 2, "retrain_critic": False}),
    ],
)
def test_a_walk_has_the_steps_of_every_algorithm(name: str, options: dict[str, Any]) -> None:
    if name in ("grpo", "rloo", "sweet-pg"):
        options = options | {"samples": 4}
    recipe = resolve(LoopConfig(**TINY), None)
    recipe = type(recipe)(recipe.train.model_copy(update={"algorithm": name, **options}), recipe.options)
    steps = Scripted([0.1, 0.2, 0.3, 0.4])
    metrics = Loop(recipe, steps, Silent()).play()
    assert walk(None, recipe).titles == steps.titles()
    assert (metrics.algorithm, metrics.rounds[-1].agent) == (
        name,
        f"{'train-online' if 'samples' in options else 'actor'}-{len(metrics.rounds) - 1}",
    )


def test_an_actor_learns_by_the_rule_from_what_it_reads_of_all_rounds() -> None:
    _, steps = played(algorithm="multi-turn-dpo", rounds=2, early_stop=False)
    actors = [config for _, config in steps.done if isinstance(config, TrainActorConfig)]
    assert [(one.algorithm, one.from_) for one in actors] == [
        ("multi-turn-dpo", ["preferences-1"]),
        ("multi-turn-dpo", ["preferences-1", "preferences-2"]),
    ]
    with pytest.raises(UsageError, match="Two rules"):
        played(algorithm="multi-turn-dpo", set_=["train-actor.algorithm=rft"])


def online(*sets: str, **options: Any) -> TrainOnlineConfig:
    recipe = resolve(LoopConfig(**ONLINE | {"set_": list(sets)} | options), None)
    return Loop(recipe, Scripted([]), Silent()).online()


def test_an_online_training_has_the_options_of_the_loop_and_plays_as_the_rollouts() -> None:
    found = online(
        *("rollout.max-turns=4", "rollout.persona=terse", "rollout.seed=9", "eval.workers=2", "train-online.lr=1e-4"),
        *("train-online.max-tokens=32", "train-online.lora=4"),
        sim=["org/human"],
        sim_url=["http://127.0.0.1:9/v1"],
        seed=5,
    )
    assert (found.algorithm, found.tasks, found.agent, found.seed) == ("grpo", "micro", "micro", 5)
    assert (found.sim, found.sim_url) == ("org/human", ["http://127.0.0.1:9/v1"])
    assert (found.num_tasks, found.validation_tasks) == (8, 4)
    assert (found.max_turns, found.persona, found.workers) == (4, ["terse"], 2)
    assert (found.lr, found.max_tokens, found.lora) == (1e-4, 32, 4), "its own table overrides [rollout]"
    assert found.resume
    given = online("train-online.rule-option=std=no", "train-online.rule-option=average=dialogue")
    assert given.rule_option == ["std=no", "average=dialogue"], "each --set of a list adds to it"
    assert online("train-online.seed=7").seed == 7


def test_a_program_plays_the_rounds_the_online_training_and_the_evaluations() -> None:
    options: dict[str, Any] = {"harness": "python agent.py", "rounds": 2, "early_stop": False}
    _, steps = played(algorithm="multi-turn-dpo", **options)
    rollouts = [config for _, config in steps.done if isinstance(config, RolloutConfig)]
    assert [(one.split, one.harness) for one in rollouts] == [
        (split, "python agent.py") for split in ("test", "train", "test", "train", "test")
    ]
    assert online(harness="python agent.py").harness == "python agent.py"
    with pytest.raises(UsageError, match="is decided by sweet train"):
        online("rollout.harness=python agent.py")


def test_an_online_training_on_pages_shows_and_compares_them_as_the_rollouts_and_evaluations() -> None:
    sets = ("rollout.window=800x600", "rollout.pictures=photo", "eval.similarity=pixels")
    found = online(*sets, task="html", tasks="pages", agent="org/model", recipe="paper")
    assert (found.task, found.window, found.pictures, found.similarity) == ("html", "800x600", "photo", "pixels")


def test_a_rule_that_asks_a_critic_gets_the_one_of_its_round() -> None:
    _, steps = played(algorithm="sweet-pg")
    (config,) = [config for _, config in steps.done if isinstance(config, TrainOnlineConfig)]
    assert config.critic == "critic-1"
    plan = plan_train(None, LoopConfig(**TINY | {"algorithm": "sweet-pg", "set_": QUICK}), Silent())
    works = {step.step: step.work for step in plan.steps}
    assert works["round 1: train-online"] == {"dialogues": 16}
    assert works["round 1: rollout train"] is not None


def test_the_options_that_an_online_training_takes_over_exist_on_both_sides() -> None:
    assert set(RolloutConfig.model_fields) >= AS_ROLLOUT <= set(TrainOnlineConfig.model_fields)
    assert {"max_turns", "persona", "vllm_options", "deadline"} <= AS_ROLLOUT
    assert not AS_ROLLOUT & {"tasks", "seed", "max_length", "turn_tokens", "temperature"}
    assert set(EvalConfig.model_fields) >= AS_EVAL <= set(TrainOnlineConfig.model_fields)


@pytest.mark.parametrize(
    ("options", "where", "fix"),
    [
        ({"algorithm": "grpo", "rounds": 2}, "--rounds 2", "--rounds 1 and --set train-online.steps=STEPS"),
        ({"algorithm": "grpo", "samples": 4}, "--samples", "--set train-online.group=DIALOGUES"),
        ({"algorithm": "grppo"}, "--algorithm", "--algorithm grpo"),
        ({"algorithm": "sft"}, "--algorithm sft", "sweet train-actor --algorithm sft"),
        ({"algorithm": "grpo", "set_": ["train-actor.lora=8"]}, "--set train-actor.lora=8", "train-online.lora=8"),
        ({"algorithm": "grpo", "set_": ["rank.candidates=8"]}, "--set rank.candidates=8", "omit it"),
        ({"set_": ["train-online.steps=8"]}, "--set train-online.steps=8", "--algorithm grpo"),
        ({"algorithm": "grpo", "set_": ["train-online.stps=8"]}, "train-online.stps", "train-online.steps"),
        ({"algorithm": "grpo", "set_": ["train-online.agent=a"]}, "train-online.agent", "set agent in [train]"),
        ({"algorithm": "grpo", "set_": ["train-online.algorithm=a"]}, "algorithm", "set algorithm in [train]"),
    ],
)
def test_options_that_do_not_fit_the_algorithm_are_refused(options: dict[str, Any], where: str, fix: str) -> None:
    with pytest.raises(UsageError) as error:
        resolve(LoopConfig(**options), None)
    assert where in str(error.value.where)
    assert fix in str(error.value.fix)


@pytest.mark.parametrize(
    ("wrong", "attempts"), [("train-online.rule-option=x=1", []), ("train-online.validate-every=1", ["train"])]
)
def test_a_wrong_option_of_the_training_is_found_before_a_dialogue_is_played(
    tmp_path: Path, wrong: str, attempts: list[str]
) -> None:
    rows = '{"problem_description": "P", "ground_truth": "def f():\\n    return 1", "test_cases": {"t": "f()"}, '
    file = tmp_path / "own.jsonl"
    file.write_text("".join(f'{rows}"split": "{split}"}}\n' for split in ("test", "train")))
    run = Run.create(tmp_path / "run")
    with pytest.raises(UsageError):
        run_train(run, LoopConfig(algorithm="grpo", tasks=str(file), set_=[*QUICK, wrong]), Silent())
    assert [attempt.stage for attempt in run.manifest().attempts] == attempts


def test_an_online_training_is_planned_and_counted(tmp_path: Path) -> None:
    plan = plan_train(None, LoopConfig(**ONLINE), Silent())
    works = {step.step: step.work or {} for step in plan.steps}
    assert (works["round 1: train-online"]["dialogues"], works["round 1: train-online"]["steps"]) == (16, 2)
    run = Run.create(tmp_path / "run")
    metrics = run_train(run, LoopConfig(**ONLINE), Silent()).metrics
    assert metrics.best_path == str(run.path / "actor" / "actor-1")
    assert metrics.rounds[1].usage.dialogues == 16 + 4
    (online,) = [one for one in run.manifest().attempts if one.stage == "train-online"]
    (played,) = [one for one in run.manifest().attempts if one.stage == "rollout" and one.config["agent"] != "micro"]
    written = [int(str(one.metrics["completion_tokens"])) for one in (online, played)]
    assert metrics.rounds[1].usage.completion_tokens == sum(written)
    attempts = len(run.manifest().attempts)
    assert run_train(run, LoopConfig(), Silent()).metrics.best == "actor-1"
    assert len(run.manifest().attempts) == attempts + 1, "a call again repeats nothing"
    plan = plan_train(run, LoopConfig(set_=["train-online.steps=3"]), Silent())
    assert plan.changed == ["train-online.steps was 2 and is 3"]
    assert plan.repeated == ["round 1: train-online", "round 1: rollout test", "round 1: eval test"]
    plan = plan_train(run, LoopConfig(algorithm="multi-turn-dpo"), Silent())
    assert plan.changed == ["train.algorithm was 'grpo' and is 'multi-turn-dpo'"]
    assert plan.repeated == ["round 1: rollout test", "round 1: eval test"]


class Untaught(Scripted):
    """An online training of which no step has anything to learn."""

    def do(self, config: StageConfig, title: str = "", *, matching: Sequence[str] = ()) -> Step:
        step = super().do(config, title)
        step.attempt.metrics["updates"] = 0
        return step


def test_an_online_training_that_learned_nothing_is_warned_of() -> None:
    heard = Heard()
    Loop(resolve(LoopConfig(**ONLINE), None), Untaught([]), heard).play()
    (warned,) = heard.warnings
    assert "taught anything" in warned
    assert "--set train-online.group=DIALOGUES" in warned
