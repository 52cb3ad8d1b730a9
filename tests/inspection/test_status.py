"""The content of a run and the next commands, along a whole pipeline."""

# ruff: noqa: PT012 - what is expected to raise is an attempt, with what is done in it

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from sweet.errors import ServerError
from sweet.inspection.next_commands import suggest_next
from sweet.inspection.status import report
from sweet.inspection.status_report import StatusReport
from sweet.rollouts.config import RolloutConfig
from sweet.runs.manifest import Artifact, Kind, json_schema, now
from sweet.runs.run import Run
from sweet.runs.stages import KINDS, stage_making
from tests.runs.conftest import Settings, make


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "run", task="code")


def pipeline(run: Run, until: Kind, **meta: object) -> dict[Kind, Artifact]:
    """Make one artifact of each kind up to `until`, each from the previous one."""
    made: dict[Kind, Artifact] = {}
    for kind in KINDS[: KINDS.index(until) + 1]:
        inputs = list(made.values())[-1:]
        made[kind] = make(run, stage_making(kind).name, kind, *inputs, meta=meta if kind == "rollouts" else {})
    return made


def steps(run: Run) -> list[str]:
    """Return the suggestions without the name of the run."""
    return [line.replace(f" {run.path}", "", 1) for line in suggest_next(run.manifest(), run.path)]


def test_an_empty_run(run: Run) -> None:
    shown = report(run)
    assert (shown.attempts, shown.artifacts, shown.unknown) == ([], [], [])
    assert shown.next == [f"sweet rollout {run.path}"]


def test_the_agent_of_dialogues_is_shown(run: Run) -> None:
    made = pipeline(run, "actor", agent="micro")
    make(run, "rollout", "rollouts", meta={"agent": f"/elsewhere/run/{made['actor'].path}"})
    make(run, "rollout", "rollouts", meta={"agent": "org/model"})
    result = [artifact.agent for artifact in report(run).artifacts if artifact.kind == "rollouts"]
    assert result == ["micro", "actor-1", "org/model"]
    assert all(artifact.agent is None for artifact in report(run).artifacts if artifact.kind != "rollouts")


def test_stale_artifacts_are_made_again(run: Run) -> None:
    made = pipeline(run, "pairs")
    make(run, "train-critic", "critic", made["preferences"], text='{"a": 1}\n', seed=1)
    assert steps(run) == ["sweet rank"]
    run.file(made["scores"]).write_text("changed\n")
    shown = report(run)
    stale = {artifact.id: artifact.stale for artifact in shown.artifacts if artifact.stale}
    assert stale["scores-1"] == "scores/scores-1.jsonl was changed since it was finished"
    assert set(stale) == {"scores-1", "preferences-1", "critic-1", "critic-2", "candidates-1", "pairs-1"}
    assert shown.next == [f"sweet eval {run.path} --workers 1"], "with the settings of the scores that changed"


def test_a_stopped_stage_is_resumed(run: Run) -> None:
    config = RolloutConfig(samples=4, agent_url=["http://a", "http://b"], temperature=0.5, tasks="a b.jsonl")
    with pytest.raises(KeyboardInterrupt), run.attempt("rollout", config) as attempt:
        attempt.start_artifact("rollouts", resume=True)
        raise KeyboardInterrupt
    shown = report(run)
    assert steps(run)[0] == "sweet rollout --resume"
    options = "--tasks 'a b.jsonl' --agent-url http://a --agent-url http://b --temperature 0.5 --samples 4"
    assert stage_making("rollouts").command(run.manifest().attempts[0].config, "RUN") == f"sweet rollout RUN {options}"
    assert shown.attempts[0].status == "interrupted"
    with run.attempt("rollout", RolloutConfig()) as attempt:
        draft = attempt.start_artifact("rollouts", resume=True)
        draft.path.write_text("{}\n")
        attempt.finish_artifact(draft, rows=1)
    assert steps(run) == ["sweet eval"], "a later call replaced it"


def test_arguments_after_two_dashes_stay_after_them(run: Run) -> None:
    config = RolloutConfig(agent="m", vllm_options=["--max-model-len", "9"], samples=2)
    with run.attempt("rollout", config):
        pass
    (attempt,) = run.manifest().attempts
    assert (
        stage_making("rollouts").command(attempt.config, "RUN")
        == "sweet rollout RUN --agent m --samples 2 -- --max-model-len 9"
    )


def test_what_a_stopped_training_wrote_has_a_size(run: Run) -> None:
    with pytest.raises(ServerError), run.attempt("train-actor", Settings()) as attempt:
        folder = attempt.start_artifact("actor", suffix="").path
        (folder / "checkpoint").mkdir(parents=True)
        (folder / "checkpoint" / "weights").write_bytes(b"12345")
        raise ServerError("No answer.")
    (partial,) = report(run).artifacts
    assert (partial.status, partial.bytes) == ("partial", 5)


def test_the_report_in_full(run: Run) -> None:
    with pytest.raises(ServerError), run.attempt("eval", Settings()) as attempt:
        attempt.metrics.update(success_rate=0.5, success_rate_ci_low=0.4, scorer="strict", trajectories=8)
        attempt.start_artifact("scores").path.write_text("{}")
        raise ServerError("No answer.")
    (run.path / "scores" / "stray.jsonl").write_text("")
    shown = report(run)
    (tried,), (partial,) = shown.attempts, shown.artifacts
    assert (tried.status, tried.error, tried.metrics) == (
        "failed",
        "No answer.",
        {"success_rate": 0.5, "trajectories": 8},
    )
    assert tried.seconds is not None
    assert (partial.status, partial.bytes, partial.rows, partial.attempt) == ("partial", 2, None, "eval-1")
    assert shown.unknown == ["scores/stray.jsonl"]
    assert StatusReport.model_validate_json(json.dumps({**shown.as_json(), "stage": "status"})) == shown


def test_a_clock_that_is_set_back_makes_no_negative_time(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    later = now() + timedelta(hours=2)
    with monkeypatch.context() as ahead:
        ahead.setattr("sweet.runs.attempt.now", lambda: later)
        with run.attempt("rollout", Settings()):
            ahead.undo()
            assert report(run).attempts[0].seconds is None
    took = report(run).attempts[0].seconds
    assert took is not None
    assert 0 <= took < 60, "the clock of the machine does not measure it"
    assert run.manifest().attempts[0].started == later


def test_looking_writes_nothing(run: Run) -> None:
    pipeline(run, "scores")
    before = {path: path.stat().st_mtime_ns for path in run.path.rglob("*")}
    report(run)
    assert {path: path.stat().st_mtime_ns for path in run.path.rglob("*")} == before


def test_the_schema_is_the_manifests() -> None:
    assert json_schema()["title"] == "Manifest"
