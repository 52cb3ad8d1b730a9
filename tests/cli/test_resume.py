"""`--resume`: a stage goes on with the settings of its unfinished attempt, which the manifest has."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import sweet as package
from sweet.errors import Interrupted, TooManyFailures, UsageError
from sweet.inspection.status import report
from sweet.preferences.config import LabelConfig
from sweet.ranking.config import RankConfig
from sweet.ranking.inputs import find_inputs
from sweet.rollouts.config import RolloutConfig
from sweet.rollouts.stage import run_rollout
from sweet.runs.manifest import Artifact, Kind
from sweet.runs.run import Run
from sweet.runs.stages import RECIPE, STAGES, Stage
from sweet.scoring.config import EvalConfig
from sweet.stages.base import PlannedConfig, Silent
from sweet.stages.resuming import with_settings_of_unfinished
from sweet.stages.unseen_tasks import newest_to_learn
from sweet.training.config import TrainCriticConfig
from tests import programs
from tests.cli.conftest import Program
from tests.runs.conftest import make
from tests.stages.heard import Heard

BEGUN = RolloutConfig(tasks="micro", num_tasks=3, samples=2, seed=5, max_turns=3, concurrency=2)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "run", task="code")


def interrupt(run: Run, stage: str, kind: Kind, config: PlannedConfig, *inputs: Artifact, **meta: object) -> None:
    """An attempt that is stopped while it writes."""
    with suppress(KeyboardInterrupt), run.attempt(stage, config, inputs=inputs) as attempt:
        attempt.start_artifact(kind, meta=meta, resume=True).path.write_text("{}\n")
        raise KeyboardInterrupt


def stopped_rollout(monkeypatch: pytest.MonkeyPatch) -> Run:
    """A new run with a real rollout that the user stops after its first dialogue."""
    from sweet.runs.jsonl import JsonlWriter

    run, write = Run.create("runs/r"), JsonlWriter.write

    def stop(writer: JsonlWriter, row: Any) -> None:
        write(writer, row)
        raise Interrupted("Stopped.")

    with monkeypatch.context() as patch, suppress(Interrupted):
        patch.setattr(JsonlWriter, "write", stop)
        run_rollout(run, BEGUN, Silent())
    return run


def test_a_rollout_goes_on_with_its_settings(sweet: Program, workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = stopped_rollout(monkeypatch)
    assert json.loads(sweet("status", "runs/r", "--json").out)["next"][0] == "sweet rollout runs/r --resume"
    outcome = sweet("rollout", "--resume", "--json", "--concurrency", "1")
    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out)["metrics"]["episodes"] == 6
    first, second = run.manifest().attempts
    assert second.digest == first.digest
    assert (second.config["concurrency"], first.config["concurrency"]) == (1, 2)
    assert [artifact.id for artifact in run.manifest().artifacts] == ["rollouts-1"]
    again = sweet("rollout", "runs/r", "--resume")
    assert again.code == 2
    assert "There is no unfinished attempt of rollout" in again.err


def test_a_call_that_was_refused_does_not_hide_what_can_be_resumed(
    sweet: Program, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = stopped_rollout(monkeypatch)
    refused = sweet("rollout", "runs/r", "--samples", "3")
    assert refused.code == 2
    assert "sweet rollout" in refused.err
    assert "--resume goes on with it" in refused.err
    assert [attempt.status for attempt in run.manifest().attempts] == ["interrupted", "failed"]
    (command,) = report(run).next[:1]
    assert command == "sweet rollout runs/r --resume"
    assert sweet(*command.split()[1:]).code == 0


def test_a_call_that_was_refused_beside_a_running_one_is_not_resumed_in_its_place(
    sweet: Program, workplace: Path
) -> None:
    run = Run.create("runs/r")
    with run.attempt("rollout", BEGUN) as running:
        running.start_artifact("rollouts", meta={"agent": "micro"}, resume=True).path.write_text("{}\n")
        refused = sweet("rollout", "runs/r", "--num-tasks", "3", "--samples", "4")
        assert refused.code == 2
        assert f"rollouts-1 is being written by rollout-1, pid {os.getpid()}" in refused.err
        assert "--samples was 2 and is 4" in refused.err
        assert "wait for it or stop it; --new begins another beside it" in refused.err
        assert "--resume" not in refused.err
        for words in (["--dry-run"], []):
            again = sweet("rollout", "runs/r", "--resume", *words)
            assert again.code == 2
            assert "no unfinished attempt of rollout to go on with: rollout-1 is running" in again.err
        assert report(run).next == ["sweet status runs/r --follow"]
    assert [attempt.status for attempt in run.manifest().attempts] == ["done", "failed"]


def elsewhere(run: Run) -> None:
    """Let the first attempt run where its process cannot be seen, as in another container."""
    file = run.path / "manifest.json"
    manifest = json.loads(file.read_text())
    manifest["attempts"][0] |= {"host": "elsewhere", "status": "running", "finished": None, "error": None}
    file.write_text(json.dumps(manifest))


def test_what_was_killed_in_another_container_goes_on(
    sweet: Program, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = stopped_rollout(monkeypatch)
    elsewhere(run)
    outcome = sweet("rollout", "runs/r", "--resume", "--json")
    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out)["metrics"]["episodes"] == 6
    assert [artifact.id for artifact in run.manifest().artifacts] == ["rollouts-1"]
    assert run.manifest().attempts[1].digest == BEGUN.digest()
    assert [attempt.status for attempt in run.manifest().attempts] == ["interrupted", "done"]
    assert report(run).next == ["sweet eval runs/r"]


def test_what_may_run_in_another_container_is_followed_or_gone_on_with(
    sweet: Program, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = stopped_rollout(monkeypatch)
    elsewhere(run)
    assert report(run).next == ["sweet status runs/r --follow", "sweet rollout runs/r --resume"]
    assert "running on elsewhere" in sweet("status", "runs/r").out
    refused = sweet("eval", "runs/r", "--json")
    assert refused.code == 2
    assert "rollouts-1 is being made on elsewhere, if that still runs." in refused.err
    assert json.loads(refused.out)["fix"] == "sweet status runs/r --follow, or sweet rollout runs/r --resume"


@pytest.mark.parametrize("stage", ["train", "eval", "label"])
def test_an_attempt_that_was_killed_in_another_container_has_ended_when_the_next_begins(run: Run, stage: str) -> None:
    with run.attempt(stage, BEGUN):
        elsewhere(run)
        with run.attempt("rollout", BEGUN):
            assert run.manifest().attempts[0].status == "running", "its lock is held"
    elsewhere(run)
    with run.attempt("rollout", BEGUN):
        first = run.manifest().attempts[0]
    assert (first.status, first.finished) == ("interrupted", None)
    assert (first.error or "").startswith("died: process ")


def test_a_training_loop_that_was_killed_in_another_container_is_called_again(run: Run) -> None:
    (run.path / RECIPE).write_text("")
    with run.attempt("train", BEGUN), run.attempt("rollout", BEGUN):
        assert report(run).next == [f"sweet status {run.path} --follow"]
    elsewhere(run)
    assert report(run).next == [f"sweet status {run.path} --follow", f"sweet train {run.path}"]


def test_what_runs_in_another_container_is_waited_for(sweet: Program, workplace: Path) -> None:
    run = Run.create("runs/r")
    with run.attempt("rollout", BEGUN) as running:
        running.start_artifact("rollouts", meta={"agent": "micro"}, resume=True).path.write_text("{}\n")
        elsewhere(run)
        for _ in range(2):
            outcome = sweet("rollout", "runs/r", "--resume", "--samples", "2")
            assert outcome.code == 2
            assert f"rollouts-1 is being written by rollout-1, pid {os.getpid()} on elsewhere" in outcome.err


def test_a_setting_that_would_change_the_result_is_named(sweet: Program, workplace: Path) -> None:
    run = Run.create("runs/r")
    interrupt(run, "rollout", "rollouts", BEGUN)
    outcome = sweet("rollout", "runs/r", "--resume", "--samples", "4", "--seed", "5", "--deadline", "9")
    assert outcome.code == 2
    assert "--samples was 2 and is 4" in outcome.err
    assert "--seed" not in outcome.err
    assert "omit --samples, or omit --resume" in outcome.err
    with pytest.raises(UsageError, match="samples was 2 and is 4"):
        package.rollout(run, RolloutConfig(resume=True, samples=4))


def test_without_a_run_the_newest_is_resumed_and_none_is_made(sweet: Program, workplace: Path) -> None:
    assert sweet("rollout", "--resume").code == 2
    assert not Path("runs").exists()
    Run.create("runs/r", "html")
    outcome = sweet("rollout", "--resume")
    assert "There is no unfinished attempt of rollout to go on with." in outcome.err
    assert [path.name for path in Path("runs").iterdir()] == ["r"]


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.name)
def test_every_stage_has_the_option_and_says_what_is_missing(sweet: Program, workplace: Path, stage: Stage) -> None:
    Run.create("runs/r")
    outcome = sweet(stage.name, "runs/r", "--resume")
    assert outcome.code == 2
    assert f"There is no unfinished attempt of {stage.name} to go on with." in outcome.err


def test_settings_that_are_not_valid_any_more_are_named(sweet: Program, workplace: Path) -> None:
    run = Run.create("runs/r")
    interrupt(run, "rollout", "rollouts", BEGUN)
    file = run.path / "manifest.json"
    file.write_text(file.read_text().replace('"samples": 2', '"samples": -2'))
    outcome = sweet("rollout", "runs/r", "--resume")
    assert outcome.code == 2
    assert "The settings of rollout-1 are not valid: samples:" in outcome.err
    assert report(run).next[:1] != ["sweet rollout runs/r --resume"]


def test_the_inputs_are_those_of_the_attempt(run: Run) -> None:
    rollouts = make(run, "rollout", "rollouts", meta={"split": "train"})
    scores = make(run, "eval", "scores", rollouts)
    critic = make(run, "train-critic", "critic", make(run, "label", "preferences", scores))
    interrupt(run, "rank", "candidates", RankConfig(seed=3), critic, rollouts)
    interrupt(run, "label", "preferences", LabelConfig(margin=0.5), scores, rollouts)
    newer = make(run, "rollout", "rollouts", text="2\n", meta={"split": "train"})
    newer_critic = make(run, "train-critic", "critic", make(run, "eval", "scores", newer, text="2\n"), text="2\n")
    read = find_inputs(run, RankConfig())
    assert [artifact.id for artifact in read if artifact] == [newer_critic.id, newer.id]

    going_on, config = with_settings_of_unfinished(run, "rank", RankConfig(resume=True), Silent())
    assert config.seed == 3
    read = find_inputs(going_on, RankConfig())
    assert [artifact.id for artifact in read if artifact] == [critic.id, rollouts.id]

    going_on, label = with_settings_of_unfinished(run, "label", LabelConfig(resume=True), Silent())
    assert label.margin == 0.5
    assert newest_to_learn(going_on, "scores", None, allow_test=False, needed_by="label").id == scores.id

    run.file(rollouts).write_text("edited\n")
    with pytest.raises(UsageError, match="rank --resume needs rollouts-1 as it was, and it has changed since"):
        with_settings_of_unfinished(run, "rank", RankConfig(resume=True), Silent())


def test_a_training_goes_on_in_its_own_order(run: Run) -> None:
    interrupt(run, "train-critic", "critic", TrainCriticConfig(lr=1e-4, shuffle="examples"))
    for given in ({}, {"lr": 1e-4}, {"save_every": 5}):
        _, config = with_settings_of_unfinished(run, "train-critic", TrainCriticConfig(resume=True, **given), Silent())
        assert (config.shuffle, config.lr) == ("examples", 1e-4)
        assert config.digest() == run.manifest().attempts[0].digest


def test_a_training_goes_on_beside_options_that_do_not_decide_its_result(run: Run) -> None:
    begun = TrainCriticConfig(lr=1e-4, epochs=3, device="cpu")
    interrupt(run, "train-critic", "critic", begun)
    heard = Heard()
    bare = with_settings_of_unfinished(run, "train-critic", TrainCriticConfig(resume=True), heard)[1]
    assert bare == begun.model_copy(update={"resume": True})
    assert heard.said == ["Going on with train-critic-1: --device cpu --lr 0.0001 --epochs 3."]
    same = TrainCriticConfig(resume=True, lr=1e-4, save_every=7)
    assert with_settings_of_unfinished(run, "train-critic", same, heard)[1] == bare.model_copy(update={"save_every": 7})
    other = TrainCriticConfig(resume=True, lr=2e-4)
    with pytest.raises(UsageError, match=r"train-critic-1 was begun with .*: --lr was 0\.0001 and is 0\.0002") as error:
        with_settings_of_unfinished(run, "train-critic", other, heard)
    assert error.value.fix == "omit --lr, or omit --resume"


def test_a_training_with_settings_and_nothing_unfinished_begins(run: Run) -> None:
    config = TrainCriticConfig(resume=True, save_every=100)
    assert with_settings_of_unfinished(run, "train-critic", config, Silent()) == (run, config)


@pytest.mark.parametrize("empty", [False, True], ids=["no folder", "an empty folder"])
def test_a_training_with_settings_begins_in_a_run_that_is_not_there_yet(
    sweet: Program, workplace: Path, empty: bool
) -> None:
    words = ["train-online", "runs/new", "--resume"]
    settings = ["--steps", "1", "--tasks-per-step", "1", "--group", "1", "--max-turns", "1", "--max-tokens", "4"]
    if empty:
        Path("runs/new").mkdir(parents=True)
    for alone in (words, [*words, "--trust"], ["rollout", "runs/new", "--resume", "--samples", "2"]):
        refused = sweet(*alone)
        assert refused.code == 2
        assert ("This is not a run" if empty else "There is no such run.") in refused.err
    planned = sweet(*words, *settings, "--dry-run", "--json")
    assert json.loads(planned.out)["plan"]["dialogues"] == 1
    assert not list(Path().glob("runs/new/*"))
    assert sweet(*words, *settings, "--json").code == 0
    assert "There is no unfinished attempt" in sweet(*words).err


def test_an_evaluation_that_was_made_again_is_not_unfinished(run: Run) -> None:
    rollouts = make(run, "rollout", "rollouts")
    interrupt(run, "eval", "scores", EvalConfig(), rollouts)
    assert report(run).next[0] == f"sweet eval {run.path} --resume"
    make(run, "eval", "scores", rollouts)
    with pytest.raises(UsageError, match="no unfinished attempt of eval"):
        with_settings_of_unfinished(run, "eval", EvalConfig(resume=True), Silent())


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_rollout_prints_the_command_that_goes_on(tmp_path: Path, how: signal.Signals) -> None:
    words = ["rollout", "runs/r", "--tasks", "micro", "--num-tasks", "60", "--samples", "4", "--concurrency", "2"]
    process = programs.start(
        [*programs.SWEET, *words], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    file = tmp_path / "runs/r/rollouts/rollouts-1.jsonl"
    deadline = time.monotonic() + 60
    while not (file.exists() and file.stat().st_size):
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(process.pid, how)
    _, narration = process.communicate(timeout=60)
    command = "sweet rollout runs/r --resume"
    if how == signal.SIGINT:
        assert process.returncode == 130
        assert command in narration
    run = Run(tmp_path / "runs/r")
    assert report(run).next[:1] == [f"sweet rollout {run.path} --resume"]


def test_what_failed_in_a_finished_rollout_is_played_again(run: Run) -> None:
    with suppress(TooManyFailures), run.attempt("rollout", BEGUN) as attempt:
        draft = attempt.start_artifact("rollouts")
        draft.path.write_text("{}\n")
        attempt.finish_artifact(draft, rows=1)
        raise TooManyFailures("5 of 6 dialogues failed.")
    config = with_settings_of_unfinished(run, "rollout", RolloutConfig(resume=True), Silent())[1]
    assert config.digest() == BEGUN.digest()
    assert report(run).next == [f"sweet eval {run.path}"], "what was finished is used"
