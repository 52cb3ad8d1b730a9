"""The next commands: along the pipeline, on tasks for evaluation, over rounds, and where something is missing."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from sweet.errors import SweetError
from sweet.inspection.next_commands import suggest_next
from sweet.inspection.status import report
from sweet.online.config import TrainOnlineConfig
from sweet.pipeline.config import LoopConfig
from sweet.preferences.config import LabelConfig, PairConfig
from sweet.rollouts.config import RolloutConfig
from sweet.runs.manifest import Artifact, Kind
from sweet.runs.run import Run
from sweet.runs.stages import KINDS, stage_making, stage_named
from sweet.scoring.config import EvalConfig
from sweet.stages.base import StageConfig
from sweet.stages.failures import NOTHING_TO_PREFER
from sweet.training.config import TrainActorConfig, TrainCriticConfig
from tests.stages.learn_runs import make_agent, make_run

TEST: dict[str, Any] = {"split": "test", "agent": "micro", "samples": 1}
TRAIN: dict[str, Any] = {"split": "train", "agent": "micro", "samples": 6}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "run", task="code")


def make(
    run: Run, stage: str, kind: Kind, *inputs: Artifact, text: str = "{}\n", meta: Mapping[str, object] | None = None
) -> Artifact:
    """An attempt of a stage with its defaults that writes one file."""
    known = stage_named(stage)
    config = StageConfig() if known is None else known.config()
    with run.attempt(stage, config, inputs=inputs) as attempt:
        draft = attempt.start_artifact(kind, meta=dict(meta or {}))
        draft.path.write_text(text)
        return attempt.finish_artifact(draft, rows=text.count("\n"))


def pipeline(run: Run, until: Kind, text: str = "{}\n", **meta: object) -> dict[Kind, Artifact]:
    """Make one artifact of each kind up to `until`, each from the previous one."""
    made: dict[Kind, Artifact] = {}
    for kind in KINDS[: KINDS.index(until) + 1]:
        inputs = list(made.values())[-1:]
        stage = stage_making(kind).name
        made[kind] = make(run, stage, kind, *inputs, text=text, meta=meta if kind == "rollouts" else {})
    return made


def played(run: Run, config: RolloutConfig, text: str = "{}\n") -> Artifact:
    """Dialogues, as a rollout with these settings records them."""
    with run.attempt("rollout", config) as attempt:
        meta = config.model_dump(mode="json", include={"task", "tasks", "split", "agent", "sim", "samples"})
        draft = attempt.start_artifact("rollouts", meta=meta)
        draft.path.write_text(text)
        return attempt.finish_artifact(draft, rows=1)


def by_agent(run: Run, actor: Artifact, **meta: object) -> dict[str, object]:
    return {"agent": str(run.file(actor)), **meta}


def steps(run: Run) -> list[str]:
    """Return the suggestions without the name of the run."""
    return [line.replace(f" {run.path}", "", 1) for line in suggest_next(run.manifest(), run.path)]


@pytest.mark.parametrize("kind", KINDS[:-1])
def test_the_next_stage_of_the_pipeline(run: Run, kind: Kind) -> None:
    pipeline(run, kind)
    assert steps(run) == [f"sweet {stage_making(KINDS[KINDS.index(kind) + 1]).name}"]
    assert report(run).next == suggest_next(run.manifest(), run.path)


@pytest.mark.parametrize("agent", ["scripted", "imported"])
def test_what_learns_is_named_where_no_model_spoke(run: Run, agent: str) -> None:
    made = pipeline(run, "preferences", agent=agent)
    assert steps(run) == ["sweet train-critic --model MODEL"]
    critic = make(run, "train-critic", "critic", made["preferences"])
    assert steps(run) == ["sweet rank --agent MODEL"]
    make(run, "pair", "pairs", make(run, "rank", "candidates", critic))
    assert steps(run) == ["sweet train-actor --model MODEL"]


def test_the_model_that_the_critic_started_from_is_known_then(run: Run) -> None:
    made = pipeline(run, "preferences", agent="imported")
    make(run, "pair", "pairs", make(run, "rank", "candidates", critic_from(run, made["preferences"], "org/model")))
    assert steps(run) == ["sweet train-actor --model org/model"]


def critic_from(run: Run, preferences: Artifact, base: str) -> Artifact:
    return make(run, "train-critic", "critic", preferences, meta={"base": base})


def test_the_kind_of_task_is_named_where_it_is_not_the_usual_one(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "other", task="sql")
    assert steps(run) == ["sweet rollout --task sql"]


def test_learning_does_not_go_through_the_test_split(run: Run) -> None:
    config = RolloutConfig(split="test", sim="org/human", sim_url=["http://a/v1"], num_tasks=40)
    make(run, "eval", "scores", played(run, config))
    assert steps(run) == ["sweet rollout --sim org/human --sim-url http://a/v1 --num-tasks 40 --samples 4"]
    played(run, config.model_copy(update={"split": "train", "samples": 4}), text="2\n")
    assert steps(run) == ["sweet eval"]


def test_training_tasks_of_a_file_without_splits_are_another_file(run: Run, tmp_path: Path) -> None:
    make(run, "eval", "scores", played(run, RolloutConfig(split="test", tasks=str(tmp_path / "own.jsonl"))))
    assert steps(run) == ["sweet rollout --tasks FILE --samples 4"]


def test_labels_are_made_of_the_training_split_beside_newer_scores_of_another(run: Run) -> None:
    make(run, "eval", "scores", make(run, "rollout", "rollouts", meta=TRAIN))
    make(run, "eval", "scores", make(run, "rollout", "rollouts", meta=TEST, text="2\n"), text="2\n")
    assert steps(run) == ["sweet label"], "label does not choose test dialogues by itself"
    meta = {**TEST, "split": "validation"}
    make(run, "eval", "scores", make(run, "rollout", "rollouts", meta=meta, text="3\n"), text="3\n")
    assert steps(run) == ["sweet label --from scores-1"]


def test_one_dialogue_a_task_has_no_preferences(run: Run) -> None:
    make(run, "eval", "scores", played(run, RolloutConfig(num_tasks=40, seed=3)))
    assert steps(run) == ["sweet rollout --seed 3 --num-tasks 40 --samples 5"]


def test_several_dialogues_a_task_are_not_played_greedily(run: Run) -> None:
    rollouts = played(run, RolloutConfig(num_tasks=40, temperature=0))
    assert steps(run) == ["sweet eval"]
    make(run, "eval", "scores", rollouts)
    assert steps(run) == ["sweet rollout --num-tasks 40 --samples 5"]


def test_label_that_found_nothing_is_not_suggested_again(run: Run) -> None:
    rollouts = played(run, RolloutConfig(samples=2))
    scores = make(run, "eval", "scores", rollouts)
    assert steps(run) == ["sweet label"]
    with suppress(SweetError), run.attempt("label", LabelConfig(), inputs=[scores, rollouts]):
        raise SweetError("There is nothing to prefer.")
    assert steps(run) == ["sweet rollout --samples 6"]
    more = played(run, RolloutConfig(samples=6), text="2\n")
    make(run, "eval", "scores", more, text="2\n")
    assert steps(run) == ["sweet label"]


def test_candidates_without_pairs_are_ranked_again_with_more_replies(run: Run) -> None:
    candidates = pipeline(run, "candidates", **TRAIN)["candidates"]
    with suppress(SweetError), run.attempt("pair", PairConfig(), inputs=[candidates]):
        raise SweetError("No pair can be made.")
    assert steps(run) == ["sweet rank --candidates 32"]


def test_rollouts_whose_file_is_gone_are_played_again(run: Run) -> None:
    rollouts = played(run, RolloutConfig(samples=3, tasks="own.jsonl"))
    make(run, "eval", "scores", rollouts)
    run.file(rollouts).unlink()
    assert report(run).next == [f"sweet rollout {run.path} --tasks own.jsonl --samples 3"]


def test_scores_whose_file_is_gone_are_made_again_with_their_settings(run: Run) -> None:
    rollouts = played(run, RolloutConfig(samples=3))
    with run.attempt("eval", EvalConfig(scorer="both"), inputs=[rollouts]) as attempt:
        draft = attempt.start_artifact("scores")
        draft.path.write_text("{}\n")
        scores = attempt.finish_artifact(draft, rows=1)
    make(run, "label", "preferences", scores)
    run.file(scores).unlink()
    assert report(run).next == [f"sweet eval {run.path} --scorer both"]


def test_imported_dialogues_that_are_gone_are_imported_again(run: Run) -> None:
    rollouts = make(run, "data-import", "rollouts")
    run.file(rollouts).unlink()
    assert report(run).next == [f"sweet data import FILE {run.path}"]


def test_an_actor_is_evaluated_like_the_dialogues_on_the_test_split(run: Run) -> None:
    config = RolloutConfig(
        split="test", sim="org/human", sim_url=["http://h/v1"], agent_url=["http://a/v1"], num_tasks=9
    )
    before = make(run, "eval", "scores", played(run, config))
    actor = pipeline(run, "actor", text="2\n", **TRAIN)["actor"]
    path = run.path / actor.path
    options = f"--agent {path} --sim org/human --sim-url http://h/v1 --num-tasks 9 --split test"
    assert steps(run) == [f"sweet rollout {options}"]
    after = played(run, config.model_copy(update={"agent": str(path), "agent_url": []}), text="3\n")
    assert steps(run) == ["sweet eval"]
    ours = make(run, "eval", "scores", after, text="3\n")
    compare, shown, seen, again = suggest_next(run.manifest(), run.path)
    assert compare == f"sweet compare {run.path}:{before.id} {run.path}:{ours.id}"
    assert (shown, seen) == (f"sweet report {run.path}", f"sweet view {run.path}")
    assert again == f"sweet rollout {run.path} --agent {path} --seed 1000 --samples 6"


def test_the_first_agent_is_evaluated_where_only_the_actor_was(run: Run) -> None:
    played(run, RolloutConfig(tasks="micro", samples=6))
    made = pipeline(run, "actor", text="2\n", tasks="micro", **TRAIN)
    path = run.path / made["actor"].path
    assert steps(run) == [f"sweet rollout --agent {path} --split test"], "micro has a test split"
    after = played(run, RolloutConfig(tasks="micro", split="test", agent=str(path), num_tasks=7), text="3\n")
    make(run, "eval", "scores", after, text="3\n")
    assert steps(run) == ["sweet rollout --tasks micro --num-tasks 7 --split test"]
    base = played(run, RolloutConfig(tasks="micro", split="test", num_tasks=7), text="4\n")
    assert steps(run) == ["sweet eval"]
    make(run, "eval", "scores", base, text="4\n")
    assert steps(run)[0].startswith("sweet compare")


def test_on_a_file_without_splits_the_actor_plays_the_same_tasks_once(run: Run) -> None:
    config = RolloutConfig(tasks="my tasks.jsonl", samples=6)
    scores = make(run, "eval", "scores", played(run, config))
    critic = make(run, "train-critic", "critic", make(run, "label", "preferences", scores))
    actor = make(run, "train-actor", "actor", make(run, "pair", "pairs", make(run, "rank", "candidates", critic)))
    path = str(run.path / actor.path)
    assert steps(run) == [f"sweet rollout --agent {path} --tasks 'my tasks.jsonl'"]
    once = played(run, config.model_copy(update={"agent": path, "samples": 1}), text="2\n")
    make(run, "eval", "scores", once, text="2\n")
    assert suggest_next(run.manifest(), run.path)[0] == f"sweet compare {run.path}:scores-1 {run.path}:scores-2"


def test_scores_by_another_scorer_are_made_again_before_they_are_compared(run: Run) -> None:
    make(run, "eval", "scores", make(run, "rollout", "rollouts", meta=TEST), meta={"scorer": "strict"})
    actor = pipeline(run, "actor", text="2\n", **TRAIN)["actor"]
    meta = by_agent(run, actor, split="test", samples=1)
    after = make(run, "rollout", "rollouts", meta=meta, text="3\n")
    make(run, "eval", "scores", after, text="3\n", meta={"scorer": "upstream"})
    assert steps(run) == ["sweet eval"]


def test_scores_are_made_again_without_the_options_of_best_of_by(run: Run) -> None:
    before = make(run, "rollout", "rollouts", meta=TEST)
    config = EvalConfig(scorer="both", best_of_by="critic", reference_context="dialogue", turn_tokens="reply")
    with run.attempt("eval", config, inputs=[before]) as attempt:
        draft = attempt.start_artifact("scores", meta={"scorer": "strict"})
        draft.path.write_text("{}\n")
        attempt.finish_artifact(draft, rows=1)
    actor = pipeline(run, "actor", text="2\n", **TRAIN)["actor"]
    after = make(run, "rollout", "rollouts", meta=by_agent(run, actor, split="test", samples=1), text="3\n")
    make(run, "eval", "scores", after, text="3\n", meta={"scorer": "upstream"})
    assert steps(run) == ["sweet eval --scorer both"]


def test_an_actor_of_another_run_is_not_this_runs(run: Run) -> None:
    made = pipeline(run, "actor", agent="runs/other/actor/actor-1.jsonl", split="train")
    assert steps(run) == [f"sweet rollout --agent {run.path / made['actor'].path} --split test"]


def test_a_second_round_learns_from_all_rounds_from_the_first_model(run: Run) -> None:
    """After an actor's own dialogues: never past label and critic (docs/training.md)."""
    made = pipeline(run, "actor", **TRAIN)
    meta = by_agent(run, made["actor"], split="train", samples=6)
    second = make(run, "rollout", "rollouts", meta=meta, text="2\n")
    assert steps(run) == ["sweet eval"]
    scores = make(run, "eval", "scores", second, text="2\n")
    assert steps(run) == ["sweet label"]
    preferences = make(run, "label", "preferences", scores, text="2\n")
    assert steps(run) == ["sweet train-critic --model micro --from preferences-1 --from preferences-2"]
    critic = make(run, "train-critic", "critic", preferences, made["preferences"], text="2\n")
    assert steps(run) == ["sweet rank --rollouts rollouts-2"]
    pairs = make(run, "pair", "pairs", make(run, "rank", "candidates", critic, second, text="2\n"), text="2\n")
    assert steps(run) == ["sweet train-actor --model micro --from pairs-1 --from pairs-2"]
    actor = make(run, "train-actor", "actor", pairs, made["pairs"], text="2\n")
    assert [artifact.id for artifact in report(run).artifacts if artifact.stale] == []
    assert steps(run) == [f"sweet rollout --agent {run.path / actor.path} --split test"]


def test_a_further_round_has_the_settings_of_the_one_before(run: Run) -> None:
    rollouts = played(run, RolloutConfig(samples=6))
    scores = make(run, "eval", "scores", rollouts)
    with run.attempt("label", LabelConfig(margin=0.25), inputs=[scores, rollouts]) as attempt:
        draft = attempt.start_artifact("preferences")
        draft.path.write_text("{}\n")
        preferences = attempt.finish_artifact(draft, rows=1)
    with run.attempt("train-critic", TrainCriticConfig(lr=1e-4, engine="deepspeed"), inputs=[preferences]) as attempt:
        draft = attempt.start_artifact("critic")
        draft.path.write_text("{}\n")
        critic = attempt.finish_artifact(draft, rows=1)
    actor = make(run, "train-actor", "actor", make(run, "pair", "pairs", make(run, "rank", "candidates", critic)))
    second = make(run, "rollout", "rollouts", meta=by_agent(run, actor, split="train", samples=6), text="2\n")
    scores = make(run, "eval", "scores", second, text="2\n")
    assert steps(run) == ["sweet label --margin 0.25"]
    make(run, "label", "preferences", scores, text="2\n")
    learn = "--lr 0.0001 --model micro --engine deepspeed --from preferences-1 --from preferences-2"
    assert steps(run) == [f"sweet train-critic {learn}"]


def test_a_baseline_is_continued_by_its_method(run: Run) -> None:
    scores = make(run, "eval", "scores", make(run, "rollout", "rollouts", meta=TRAIN))
    with run.attempt("train-actor", TrainActorConfig(algorithm="rft"), inputs=[scores]) as attempt:
        draft = attempt.start_artifact("actor", meta={"algorithm": "rft"})
        draft.path.write_text("{}\n")
        actor = attempt.finish_artifact(draft, rows=1)
    second = make(run, "rollout", "rollouts", meta=by_agent(run, actor, split="train", samples=6), text="2\n")
    make(run, "eval", "scores", second, text="2\n")
    assert steps(run) == ["sweet train-actor --model micro --from scores-1 --from scores-2 --algorithm rft"]


def test_older_dialogues_without_scores_are_named(run: Run) -> None:
    make(run, "rollout", "rollouts", meta={"split": "train"})
    make(run, "eval", "scores", make(run, "rollout", "rollouts", meta={"split": "test"}))
    assert steps(run) == ["sweet eval --from rollouts-1"]


def test_ranking_asks_the_server_of_the_agent(run: Run) -> None:
    rollouts = played(run, RolloutConfig(agent="org/model", agent_url=["http://a/v1"], samples=6))
    preferences = make(run, "label", "preferences", make(run, "eval", "scores", rollouts))
    make(run, "train-critic", "critic", preferences)
    assert steps(run) == ["sweet rank --agent-url http://a/v1"]


def test_while_something_runs_it_can_be_followed(run: Run) -> None:
    with run.attempt("rollout", RolloutConfig()) as attempt:
        draft = attempt.start_artifact("rollouts")
        assert steps(run) == ["sweet status --follow"]
        draft.path.write_text("{}\n")
        attempt.finish_artifact(draft, rows=1)


def test_an_online_training_needs_no_dialogues_before_it(run: Run) -> None:
    with suppress(KeyboardInterrupt), run.attempt("train-online", TrainOnlineConfig()) as attempt:
        attempt.start_artifact("actor")
        assert steps(run) == ["sweet status --follow"]
        raise KeyboardInterrupt
    assert steps(run) == ["sweet train-online --resume"]
    played(run, RolloutConfig(samples=6))
    assert steps(run)[1:] == ["sweet eval"], "the user has dialogues as well"


def test_a_run_of_train_goes_on_with_it(run: Run) -> None:
    (run.path / "recipe.toml").write_text("")
    pipeline(run, "scores")
    assert steps(run) == ["sweet train"]
    make(run, "train", "rollouts")
    assert steps(run)[0] != "sweet train"


def test_what_is_made_by_hand_after_train_is_continued(run: Run) -> None:
    made = pipeline(run, "actor", split="train", samples=4)
    rollouts = played(run, RolloutConfig(split="test", agent=str(run.file(made["actor"]))))
    scores = make(run, "eval", "scores", rollouts)
    ids = {stage_making(kind).name: artifact.id for kind, artifact in made.items()}
    ids |= {"rollout test": rollouts.id, "eval test": scores.id}
    with run.attempt("train", LoopConfig()) as attempt:
        attempt.metrics.update(rounds=[{"agent": "micro"}, {"agent": "actor-1", "artifacts": ids}], best="actor-1")
    by_train = ["sweet report", "sweet view", "sweet train --rounds 2"]
    assert steps(run) == by_train
    ranked = make(run, "rank", "candidates", made["critic"], made["rollouts"], text="{}\n{}\n")
    assert steps(run) == ["sweet pair"]
    make(run, "pair", "pairs", ranked, text="{}\n{}\n")
    assert [line.split(" --")[0] for line in steps(run)] == ["sweet train-actor"]


def test_a_run_of_train_that_found_nothing_to_prefer_plays_more_dialogues_a_task(run: Run) -> None:
    (run.path / "recipe.toml").write_text("")
    with pytest.raises(SweetError), run.attempt("train", LoopConfig(samples=6)):
        raise SweetError(f"{NOTHING_TO_PREFER}: no task has a dialogue that solves it and a worse one.")
    assert steps(run) == ["sweet train --samples 12 --redo"]


def test_placeholders_are_explained(capsys: pytest.CaptureFixture[str], run: Run) -> None:
    from sweet.cli.app import run as call

    pipeline(run, "preferences", agent="imported")
    assert call(["status", str(run.path)]) == 0
    assert "MODEL is the model to train: micro, a directory or a hub id." in capsys.readouterr().out
    assert call(["status", str(run.path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["next"] == [f"sweet train-critic {run.path} --model MODEL"]


def test_scores_lead_to_an_actor_by_the_commands_alone(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the real stages, which print them."""
    from sweet.cli.app import run as call

    # Most replies of a model of one layer cannot be ranked.
    made = make_run(workplace, make_agent(workplace / "agent", layers=2), tasks=3)
    (line,), called = suggest_next(made.manifest(), made.path), []
    while "rollout" not in line:
        called.append(line.split()[1])
        assert call(shlex.split(line)[1:]) == 0, (line, capsys.readouterr().err)
        offered = [text for text in capsys.readouterr().err.splitlines() if text.startswith("next: ")]
        (line, *_) = [text.removeprefix("next: ") for text in offered]
    assert called == ["label", "train-critic", "rank", "pair", "train-actor"]
    assert line == f"sweet rollout {made.path} --agent {made.path / 'actor/actor-1'}", "the dataset is not known here"
