"""A small study on the packaged agent in real processes: killed, resumed, and called again."""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from sweet.errors import UsageError
from sweet.learn.rows import CandidateRow
from sweet.pipeline.steps import ReadOnlyStepCache, Step
from sweet.results.study_page import study_page
from sweet.rollouts.config import RolloutConfig
from sweet.runs.jsonl import read_jsonl
from sweet.runs.manifest import Attempt
from sweet.runs.run import Run
from sweet.stages.base import Silent
from sweet.study.results import MethodResult, read_results
from sweet.study.settings import METHODS as STUDY_METHODS
from sweet.study.settings import StudyConfig
from sweet.study.study import run_study, seed_jobs
from sweet.tasks.trajectory import Trajectory
from tests.cli.processes import started, sweet

SIZES = {"train_tasks": 4, "samples": 4, "eval_tasks": 4, "candidates": 4, "fraction": 0.1, "figures": False}
METHODS = ("zero-shot", "multi-turn-dpo", "sweet")  # rft takes 40 epochs
WORDS = ["--seeds", "2", "--methods", ",".join(METHODS), "--train-tasks", "4", "--samples", "4"]
WORDS += ["--eval-tasks", "4", "--candidates", "4", "--fraction", "0.1", "--no-figures"]


def attempts(folder: Path) -> list[Attempt]:
    return [attempt for run in sorted(folder.glob("seed-*/")) for attempt in Run.open(run).manifest().attempts]


def finished(run: Path) -> list[Attempt]:
    return [attempt for attempt in Run.open(run).manifest().attempts if attempt.status == "done"]


def kill_after_a_part(folder: Path) -> None:
    """Start the study and kill its command (not its workers) after the first part that a seed has finished."""
    process = started(["bench", str(folder), *WORDS])
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("seed-"):
            break
    process.send_signal(signal.SIGKILL)
    process.communicate()
    ends = time.monotonic() + 60
    while any(attempt.status == "running" for attempt in attempts(folder)):
        assert time.monotonic() < ends, "the workers are still running"
        time.sleep(0.2)


def metrics_of(folder: Path) -> dict[str, Any]:
    called = started(["bench", str(folder), *WORDS, "--json"])
    out, err = called.communicate()  # without a timeout other than the test's
    assert called.returncode == 0, err
    return dict(json.loads(out)["metrics"])


@pytest.mark.usefixtures("forked_python")
def test_a_killed_study_resumes_and_repeats_no_step(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    kill_after_a_part(folder)
    before = {attempt.id for attempt in attempts(folder) if attempt.status == "done"}
    assert before
    metrics = metrics_of(folder)
    done = [attempt for attempt in attempts(folder) if attempt.status == "done"]
    calls = Counter((run, a.stage, a.digest) for run in sorted(folder.glob("seed-*/")) for a in finished(run))
    assert set(calls.values()) == {1}
    assert {attempt.id for attempt in done} >= before, "finished steps are kept"

    results = read_results(folder / "study.json")
    assert [row.method for row in results.methods] == list(METHODS)
    assert results.seeds == [0, 1]
    assert results.test_tasks == 4
    for row in results.methods:
        assert len(row.success_by_seed) == 2
        assert row.success.ci is not None
        assert 0 <= row.success.ci[0] <= row.success.mean <= row.success.ci[1] <= 1
        assert (row.against_sweet is None) == (row.method == "sweet")
        assert row.against_plus is None, "sweet-plus is no method of this study"
        assert (row.seconds > 0) == (row.method != "zero-shot")
    assert metrics["methods"] == results.model_dump(mode="json")["methods"]
    costs(folder, {row.method: row for row in results.methods})
    assert metrics["failed"] == []

    assert (folder / "report.html").stat().st_size > 0
    logs = [log.read_bytes() for log in sorted(folder.glob("seed-*.log"))]
    assert metrics_of(folder)["methods"] == metrics["methods"]
    assert sum(attempt.status == "done" for attempt in attempts(folder)) == len(done), "no step was done again"
    assert [log.read_bytes() for log in sorted(folder.glob("seed-*.log"))] == logs, "no process was started for them"
    figures(folder)


def played(run: Run, step: Step) -> int:
    """Return the tokens of the agent in dialogues, counted in their rows."""
    rows = read_jsonl(run.file(step.artifact), Trajectory)
    return sum(len(turn.token_ids or ()) for row in rows for turn in row.dialogue_history)


def sampled(run: Run, step: Step) -> int:
    """Return the tokens of candidates, counted in their rows."""
    rows = read_jsonl(run.file(step.artifact), CandidateRow)
    return sum(len(candidate.token_ids or ()) for row in rows for candidate in row.candidates)


def costs(folder: Path, methods: dict[str, MethodResult]) -> None:
    """Check tokens and seconds of the methods against the rows and the steps of their runs."""
    for job in seed_jobs(folder, StudyConfig.model_validate({**SIZES, "seeds": 2, "methods": METHODS})):
        steps = job.steps(ReadOnlyStepCache, Silent())
        run = steps.cache.run
        making = steps.making(STUDY_METHODS["sweet"])
        by_stage = {step.attempt.stage: step for step in reversed(making)}
        assert sorted(step.attempt.stage for step in making) == [
            *("eval", "label", "pair", "rank", "rank", "rollout", "train-actor", "train-critic")
        ]
        assert by_stage["rank"].attempt.config["replies"] is None, "the sampling is before the judging"
        said, more = played(run, by_stage["rollout"]), sampled(run, by_stage["rank"])
        assert said > 0 < more
        assert methods["sweet"].generated_tokens_by_seed[job.seed] == said + more == steps.budget()
        assert methods["sweet"].seconds_by_seed[job.seed] == pytest.approx(sum(s.seconds for s in making), abs=0.1)
        rollouts, *rest = steps.making(STUDY_METHODS["multi-turn-dpo"])
        assert [step.attempt.stage for step in rest] == ["eval", "label", "train-actor"]
        assert methods["multi-turn-dpo"].generated_tokens_by_seed[job.seed] == played(run, rollouts)
        assert played(run, rollouts) == pytest.approx(said + more, rel=0.25), "few tasks have few dialogues"
        config = RolloutConfig.model_validate(rollouts.attempt.config)
        assert config.num_tasks is not None
        assert config.num_tasks > 4
        assert config.samples == 4
    assert methods["zero-shot"].generated_tokens_by_seed == [0, 0]


def success(curve: list[dict[str, Any]]) -> list[float]:
    return [point["success"]["mean"] for point in curve]


def figures(folder: Path) -> None:
    """Check the figures of one seed, made in the existing folder."""
    small = {"best_tasks": 4, "best_samples": 4, "best_replies": 4, "credit_turns": 8, "parts": (1,), "curve_tasks": 5}
    config = StudyConfig.model_validate({**SIZES, **small, "seeds": 1, "methods": METHODS, "figures": True})
    metrics = run_study(folder, config, Silent()).metrics.as_json()
    turns, dialogues = metrics["best_of_turns"], metrics["best_of"]
    assert turns.keys() == {"critic", "random"}
    assert [point["n"] for point in turns["critic"]] == [1, 2, 4]
    assert success(turns["random"]) == [success(turns["critic"])[0]] * 3
    assert success(turns["random"]) == pytest.approx([success(dialogues["random"])[0]] * 3)
    assert [point["success"]["ci"] for point in turns["critic"]] == [None] * 3, "one seed has no interval"
    chosen = [
        attempt.config for attempt in attempts(folder) if attempt.stage == "rollout" and attempt.config["best_of"]
    ]
    assert [(config["best_of"], config["split"], config["num_tasks"]) for config in chosen] == [
        (2, "validation", 4),
        (4, "validation", 4),
    ]
    assert [point["n"] for point in dialogues["critic"]] == [1, 2, 4]
    assert success(dialogues["critic"])[0] == pytest.approx(success(dialogues["random"])[0])
    assert success(dialogues["random"]) == [success(dialogues["random"])[0]] * 3
    assert success(dialogues["oracle"]) == sorted(success(dialogues["oracle"]))
    assert [point["success"]["ci"] for point in dialogues["critic"]] == [None] * 3, "one seed has no interval"
    start, *curved = metrics["methods"]
    assert start["curve"] == []
    for row in curved:
        at_start, part, whole = row["curve"]
        assert (at_start["tokens"], at_start["seconds"]) == (0, 0)
        assert part == whole, "a part of all tasks is the whole"
        assert (whole["tokens"], whole["seconds"]) == (row["generated_tokens"], row["seconds"])
        assert 0 <= whole["success"]["mean"] <= 1
        assert whole["success"]["ci"] is None, "one seed has no interval"
    sweet = curved[-1]
    assert sweet["at_equal_seconds"]["success"] == sweet["curve"][-1]["success"]
    assert sweet["at_equal_seconds"]["sweet_minus"]["mean"] == 0
    assert "no_info" not in metrics["best_of"]


@pytest.mark.usefixtures("forked_python")
def test_the_best_of_the_tried_settings_is_compared(tmp_path: Path) -> None:
    method = STUDY_METHODS["unfiltered"]
    method = method.model_copy(update={"actor": {**method.actor, "lr": 5e-4, "epochs": 1}})
    sizes = {**SIZES, "train_tasks": 2, "samples": 2, "curve_tasks": 8, "seeds": 1, "tries": 2}
    methods = {"zero-shot": STUDY_METHODS["zero-shot"], "unfiltered": method}
    study = run_study(tmp_path, StudyConfig.model_validate(sizes), Silent(), methods=methods).metrics.study
    assert study.tries is not None
    (start,), tries = study.tries["zero-shot"], study.tries["unfiltered"]
    assert len({json.dumps(one.settings["actor"]) for one in tries}) > 1
    assert tries[0].settings == method.settings()
    best = max(tries, key=lambda one: one.success)
    assert study.methods[1].settings == best.settings
    splits = {attempt.config.get("split") for attempt in finished(tmp_path / "seed-1000")}
    assert splits == {"train", "validation", None}
    trained = [attempt for attempt in finished(tmp_path / "seed-1000") if attempt.stage == "train-actor"]
    assert len(trained) == 2
    text = "".join(study_page(study))
    assert "settings tried on validation tasks" in text
    assert f"{100 * start.success:.1f}" in text


def test_a_study_needs_its_own_folder_and_the_same_agent_and_tasks(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    config = StudyConfig(methods=("zero-shot",), seeds=1)
    with pytest.raises(UsageError, match="contains other things"):
        run_study(tmp_path, config, Silent())
    folder = tmp_path / "study"
    folder.mkdir()
    (folder / "begun.json").write_text('{"agent": "another"}')
    with pytest.raises(UsageError, match="another agent"):
        run_study(folder, config, Silent())


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--methods", "swet"], "there is no method 'swet'"),
        (["--methods", "nowhere.toml"], "There is no such file of methods."),
        (["--tasks", "micro-lon"], "a study is of generated tasks"),
    ],
)
def test_wrong_options_are_refused(tmp_path: Path, words: list[str], what: str) -> None:
    called = sweet("bench", str(tmp_path / "x"), *words, env={"COLUMNS": "200"})
    assert called.returncode == 2
    assert what in called.stderr
    assert not (tmp_path / "x").exists()
