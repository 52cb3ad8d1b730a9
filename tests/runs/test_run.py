"""Runs: making and finding them, artifacts by kind and lineage, resuming, staleness, how attempts end."""

# ruff: noqa: PT012 - what is expected to raise is an attempt, with what is done in it

from __future__ import annotations

import json
import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from sweet.errors import Interrupted, ServerError, SweetError, UsageError
from sweet.runs import attempt as attempts
from sweet.runs.content import measure
from sweet.runs.environment import recordable
from sweet.runs.jsonl import JsonlWriter
from sweet.runs.manifest import Artifact, Manifest, now
from sweet.runs.run import Run
from sweet.stages.artifacts import actor_of
from tests.runs.conftest import Settings, make


def edit(run: Run, change: dict[str, object], artifact: int = 0) -> None:
    path = run.path / "manifest.json"
    value = json.loads(path.read_text())
    value["artifacts"][artifact].update(change)
    path.write_text(json.dumps(value))


class TestMaking:
    def test_create_open_and_open_or_create(self, tmp_path: Path) -> None:
        path = tmp_path / "deep" / "run"
        with pytest.raises(UsageError, match="no such run"):
            Run.open(path)
        assert Run.create(path, "code").manifest().task == "code"
        with pytest.raises(UsageError, match="a run already"):
            Run.create(path, "code")
        assert Run.open_or_create(path, "html").manifest() == Run.open(path).manifest(), "it is not made anew"

    def test_what_is_no_run_is_left_alone(self, tmp_path: Path) -> None:
        (tmp_path / "thesis.tex").write_text("years of work")
        for make_run in (Run.create, Run.open_or_create):
            with pytest.raises(UsageError, match="is not empty"):
                make_run(tmp_path, "code")
        with pytest.raises(UsageError, match="not a run"):
            Run.open(tmp_path)
        assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.tex"]
        with pytest.raises(UsageError, match="cannot be created") as error:
            Run.create(tmp_path / "thesis.tex", "code")
        assert error.value.fix == "name a new or an empty directory"
        with pytest.raises(UsageError):
            Run.open(tmp_path / "thesis.tex")

    def test_newest_is_the_one_made_last(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="no run yet"):
            Run.newest(tmp_path / "runs")
        for name in ("b", "c", "a"):
            Run.create(tmp_path / "runs" / name, "code")
            time.sleep(0.002)
        (tmp_path / "runs" / "notes").mkdir()
        make(Run.open(tmp_path / "runs" / "b"), "rollout", "rollouts")
        assert Run.newest(tmp_path / "runs").path == tmp_path / "runs" / "a"

    def test_a_relative_path_is_shown_as_given_and_addressed_absolutely(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        run = Run.create(Path("runs/x"), "code")
        artifact = make(run, "rollout", "rollouts")
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        assert str(run.path) == "runs/x"
        assert run.file(artifact).read_text() == "{}\n"
        assert len(run.manifest().artifacts) == 1


class TestFinding:
    def test_the_newest_finished_one(self, run: Run) -> None:
        first = make(run, "rollout", "rollouts")
        second = make(run, "rollout", "rollouts", seed=1)
        with run.attempt("rollout", Settings(seed=2)) as attempt:
            attempt.start_artifact("rollouts")
        assert run.find("rollouts", needed_by="eval") == second
        assert run.find("rollouts", first.id, needed_by="eval") == first
        assert run.artifact("rollouts-3").status == "partial"

    def test_finished_last_is_newest_even_if_begun_first(self, run: Run) -> None:
        make(run, "rollout", "rollouts")
        make(run, "rollout", "rollouts", seed=1)
        with run.attempt("rollout", Settings()) as attempt:
            draft = attempt.start_artifact("rollouts", resume=True)
            draft.path.write_text("{}\n{}\n")
            attempt.finish_artifact(draft, rows=2)
        assert run.find("rollouts", needed_by="eval").id == "rollouts-1"

    def test_the_order_is_that_of_the_manifest_where_the_clock_was_set_back(
        self, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = make(run, "rollout", "rollouts", text="{}\n")
        scores = make(run, "eval", "scores", first)
        actor = make(run, "train-actor", "actor", scores)
        monkeypatch.setattr(attempts, "now", lambda: now() - timedelta(days=365))
        second = make(run, "rollout", "rollouts", text='{"other": 1}\n')
        played = make(run, "rollout", "rollouts", meta={"agent": actor.id}, seed=1)
        assert second.finished < first.finished, "a year before"  # type: ignore[operator]
        assert run.find("rollouts", needed_by="eval") == played
        assert run.stale(scores) == "rollouts-2 is newer than its input rollouts-1"
        assert actor_of(run.manifest(), played) == actor

    def test_what_is_missing_names_the_stage_that_makes_it(self, run: Run) -> None:
        with pytest.raises(UsageError, match="label needs scores, and the run has none") as error:
            run.find("scores", needed_by="label")
        assert error.value.fix == f"sweet eval {run.path}"
        with run.attempt("rollout", Settings()) as attempt:
            attempt.start_artifact("rollouts")
        for id in (None, "rollouts-1"):
            with pytest.raises(UsageError, match="rollouts-1 is not finished") as error:
                run.find("rollouts", id, needed_by="eval")
            assert (error.value.fix or "").startswith(f"sweet rollout {run.path}")

    def test_what_is_being_made_is_waited_for(self, run: Run) -> None:
        with run.attempt("rollout", Settings()) as attempt:
            attempt.start_artifact("rollouts")
            with pytest.raises(UsageError, match="rollouts-1 is being made") as error:
                run.find("rollouts", needed_by="eval")
        assert error.value.fix == f"sweet status {run.path} --follow"

    def test_an_id_that_is_not_there_lists_those_that_are(self, run: Run) -> None:
        with pytest.raises(UsageError, match="none that is finished"):
            run.find("scores", "scores-1", needed_by="label")
        rollouts = make(run, "rollout", "rollouts")
        make(run, "eval", "scores", rollouts)
        make(run, "eval", "scores", rollouts)
        for wrong in ("scores-3", "rollouts-1", "../x"):
            with pytest.raises(UsageError, match="it has scores-1, scores-2"):
                run.find("scores", wrong, needed_by="label")
        with pytest.raises(UsageError, match="no artifact x; it has rollouts-1, scores-1, scores-2"):
            run.artifact("x")

    def test_a_file_that_is_gone(self, run: Run) -> None:
        artifact = make(run, "rollout", "rollouts")
        run.file(artifact).unlink()
        with pytest.raises(UsageError, match="its file does not exist"):
            run.find("rollouts", needed_by="eval")

    def test_lineage(self, run: Run) -> None:
        rollouts = make(run, "rollout", "rollouts")
        scores = make(run, "eval", "scores", rollouts)
        preferences = make(run, "label", "preferences", scores)
        make(run, "rollout", "rollouts", seed=1)
        assert run.input_of(preferences, "rollouts") == rollouts
        assert run.input_of(scores, "scores") == scores
        with pytest.raises(UsageError, match="not made from any critic"):
            run.input_of(scores, "critic")

    def test_a_ring_made_by_hand_ends(self, run: Run) -> None:
        rollouts = make(run, "rollout", "rollouts")
        make(run, "eval", "scores", rollouts)
        edit(run, {"inputs": [{"id": "scores-1", "sha256": None}]})
        bent = run.artifact("scores-1")
        assert run.stale(bent) is not None
        with pytest.raises(UsageError):
            run.input_of(bent, "critic")


class TestStale:
    def test_fresh_and_changed_and_downstream(self, run: Run) -> None:
        rollouts = make(run, "rollout", "rollouts")
        scores = make(run, "eval", "scores", rollouts)
        preferences = make(run, "label", "preferences", scores)
        assert [run.stale(one) for one in (rollouts, scores, preferences)] == [None] * 3
        run.file(rollouts).write_text('{"other": 1}\n')
        assert run.stale(rollouts) == "rollouts/rollouts-1.jsonl was changed since it was finished"
        assert run.stale(scores) == "its input rollouts-1 was changed since"
        assert run.stale(preferences) == "its input scores-1 is stale"
        run.file(rollouts).write_text("{}\n")
        assert run.stale(preferences) is None, "content counts, not times"
        run.file(rollouts).unlink()
        assert "no longer exists" in (run.stale(rollouts) or "")

    def test_a_change_of_the_same_length(self, run: Run) -> None:
        rollouts = make(run, "rollout", "rollouts")
        time.sleep(0.05)
        run.file(rollouts).write_text("[]\n")
        assert run.stale(rollouts) is not None

    def test_an_input_that_was_grown(self, run: Run) -> None:
        rollouts = make(run, "rollout", "rollouts")
        scores = make(run, "eval", "scores", rollouts)
        with run.attempt("rollout", Settings()) as attempt:
            draft = attempt.start_artifact("rollouts", resume=True)
            with JsonlWriter(draft.path) as writer:
                assert writer.rows == 1
                writer.write({})
            assert run.stale(scores) == "its input rollouts-1 is being made again"
            attempt.finish_artifact(draft, rows=2)
        assert run.stale(scores) == "its input rollouts-1 was changed since"

    def test_what_a_hand_changed_before_it_was_used_is_what_was_used(self, run: Run) -> None:
        rollouts = make(run, "rollout", "rollouts")
        time.sleep(0.05)
        run.file(rollouts).write_text("[]\n")
        with run.attempt("eval", Settings(), inputs=[rollouts], verify=False) as attempt:
            draft = attempt.start_artifact("scores")
            draft.path.write_text("{}\n")
            scores = attempt.finish_artifact(draft, rows=1)
        assert run.manifest().attempts[-1].inputs[0].sha256 == measure(run.file(rollouts)).sha256
        assert run.stale(scores) == "its input rollouts-1 is stale"

    def test_newer_in_the_same_place_only(self, run: Run) -> None:
        train, test = {"agent": "micro", "split": "train"}, {"agent": "micro", "split": "test"}
        rollouts = make(run, "rollout", "rollouts", meta=train)
        scores = make(run, "eval", "scores", rollouts)
        preferences = make(run, "label", "preferences", scores)
        make(run, "eval", "scores", make(run, "rollout", "rollouts", meta=test))
        assert run.stale(preferences) is None, "unseen tasks are another line of work"
        make(run, "eval", "scores", rollouts, text='{"a": 1}\n')
        assert run.stale(preferences) == "scores-3 is newer than its input scores-1"
        make(run, "rollout", "rollouts", text='{"a": 1}\n', meta=train, num_tasks=20)
        assert run.stale(scores) == "rollouts-3 is newer than its input rollouts-1"

    @pytest.mark.parametrize("other", [{"seed": 1}, {"temperature": 0.5}, {"max_turns": 5}, {"sim": "a-model"}])
    def test_dialogues_of_other_settings_stand_beside_each_other(self, run: Run, other: dict[str, Any]) -> None:
        meta = {"agent": "micro", "split": "test"}
        scores = make(run, "eval", "scores", make(run, "rollout", "rollouts", meta=meta))
        make(run, "eval", "scores", make(run, "rollout", "rollouts", text='{"a": 1}\n', meta=meta, **other))
        assert run.stale(scores) is None, "a repeat takes nothing's place"

    def test_scores_by_another_scorer_stand_beside_each_other(self, run: Run) -> None:
        rollouts = make(run, "rollout", "rollouts")
        preferences = make(
            run, "label", "preferences", make(run, "eval", "scores", rollouts, meta={"scorer": "strict"})
        )
        make(run, "eval", "scores", rollouts, text='{"a": 1}\n', meta={"scorer": "upstream"})
        assert run.stale(preferences) is None
        make(run, "eval", "scores", rollouts, text='{"a": 2}\n', meta={"scorer": "strict"})
        assert run.stale(preferences) == "scores-3 is newer than its input scores-1"

    @pytest.mark.parametrize("differs", [{"variant": "no-info"}, {"protocol": "upstream"}, {"normalize": "none"}])
    def test_candidates_by_one_kind_of_critic_are_not_replaced_by_another_kind(
        self, run: Run, differs: dict[str, Any]
    ) -> None:
        meta = {"variant": "advantage", "protocol": "paper", "normalize": "turn"}
        rollouts = make(run, "rollout", "rollouts")
        critic = make(run, "train-critic", "critic", rollouts, meta=meta)
        candidates = make(run, "rank", "candidates", critic, meta={"judge": "critic"})
        other = make(run, "train-critic", "critic", rollouts, text='{"a": 1}\n', meta=meta | differs)
        pairs = make(run, "pair", "pairs", candidates)
        make(run, "rank", "candidates", other, text='{"a": 2}\n', meta={"judge": "critic"})
        assert [run.stale(artifact) for artifact in (critic, candidates, pairs)] == [None] * 3
        make(run, "train-critic", "critic", rollouts, text='{"a": 3}\n', meta=meta)
        assert run.stale(candidates) == "critic-3 is newer than its input critic-1"

    def test_dialogues_that_a_training_played_are_replaced_by_no_others(self, run: Run) -> None:
        def trained(text: str) -> list[Artifact]:
            with run.attempt("train-online", Settings()) as attempt:
                actor, rollouts = attempt.start_artifact("actor"), attempt.start_artifact("rollouts")
                for draft in (actor, rollouts):
                    draft.path.write_text(text)
                played = attempt.finish_artifact(rollouts, rows=1)
                return [attempt.finish_artifact(actor, made_from=[played]), played]

        first, second = trained('{"a": 1}\n'), trained('{"a": 2}\n')
        assert {run.stale(one) for one in (*first, *second)} == {None}

    def test_the_same_content_once_more_changes_nothing(self, run: Run) -> None:
        rollouts = make(run, "rollout", "rollouts")
        preferences = make(run, "label", "preferences", make(run, "eval", "scores", rollouts))
        make(run, "eval", "scores", rollouts)
        assert run.stale(preferences) is None

    def test_an_input_that_a_hand_took_out(self, run: Run) -> None:
        rollouts = make(run, "rollout", "rollouts")
        scores = make(run, "eval", "scores", rollouts)
        path = run.path / "manifest.json"
        value = json.loads(path.read_text())
        del value["artifacts"][0]
        path.write_text(json.dumps(value))
        assert run.stale(scores) == "its input rollouts-1 is no longer in the run"
        assert run.unknown_files(run.manifest()) == ["rollouts/rollouts-1.jsonl"]
        assert make(run, "rollout", "rollouts").id == "rollouts-2", "a file that is not known is not written over"


class TestAttempts:
    def test_what_is_recorded(self, run: Run) -> None:
        rollouts = make(run, "rollout", "rollouts", meta={"agent": "micro"})
        with run.attempt("eval", Settings(seed=3), [rollouts], {"sandbox": "bwrap"}) as attempt:
            during = run.manifest().attempts[-1]
            assert (during.status, during.pid, during.inputs) == ("running", os.getpid(), [rollouts.ref()])
            draft = attempt.start_artifact("scores", meta={"scorer": "strict"})
            partial = run.artifact(draft.id)
            assert (partial.status, partial.path, partial.attempt) == ("partial", "scores/scores-1.jsonl", "eval-1")
            assert not draft.path.exists(), "it is registered before its first byte"
            draft.path.write_text("{}\n")
            attempt.metrics.update(success_rate=float("nan"), outcomes={"passed": 1})
            attempt.environment["served"] = Path("a/b")
            draft.meta["late"] = True
            artifact = attempt.finish_artifact(draft, rows=1)
        after = run.manifest()
        recorded = after.attempts[-1]
        assert recorded.status == "done"
        assert recorded.finished is not None
        assert recorded.config == {"seed": 3, "workers": 1, "urls": []}
        assert recorded.digest == Settings(seed=3, workers=9).digest()
        assert recorded.metrics == {"success_rate": None, "outcomes": {"passed": 1}}
        assert recorded.environment.items() >= {"sandbox": "bwrap", "served": "a/b"}.items()
        assert recorded.environment["versions"]["pydantic"]  # type: ignore[index,call-overload]
        assert recorded.outputs == ["scores-1"]
        assert after.artifacts[-1] == artifact
        assert (artifact.rows, artifact.bytes, artifact.meta) == (1, 3, {"scorer": "strict", "late": True})
        assert artifact.sha256 == measure(run.file(artifact)).sha256
        assert (run.path / recorded.log).read_text().count("\n") == 2

    @pytest.mark.parametrize(
        ("error", "status", "text"),
        [
            (KeyboardInterrupt(), "interrupted", "stopped by Ctrl-C"),
            (Interrupted("Stopped."), "interrupted", "Stopped."),
            (SystemExit(3), "interrupted", "SystemExit: 3"),
            (ServerError("No answer.", where="http://u:secret@host/?key=abc"), "failed", "No answer. · where: http://***@host/?key=***"),
            (ValueError("odd"), "failed", "ValueError: odd"),
        ],
    )  # fmt: skip
    def test_how_it_ends(self, run: Run, error: BaseException, status: str, text: str) -> None:
        with pytest.raises(type(error)) as raised, run.attempt("eval", Settings()) as attempt:
            attempt.metrics["seconds"] = 1
            attempt.start_artifact("scores").path.write_text("{")
            raise error
        assert raised.value is error
        recorded = run.manifest().attempts[0]
        assert (recorded.status, recorded.error, recorded.metrics) == (status, text, {"seconds": 1})
        assert run.artifact("scores-1").status == "partial"
        assert ("Traceback" in attempt.log_path.read_text()) == isinstance(error, ValueError | SystemExit)

    def test_an_error_is_not_hidden_by_a_damaged_manifest(self, run: Run) -> None:
        with pytest.raises(ServerError) as raised, run.attempt("eval", Settings()):
            (run.path / "manifest.json").write_text("{")
            raise ServerError("No answer.")
        assert "damaged" in raised.value.__notes__[0]

    def test_a_folder(self, run: Run) -> None:
        with run.attempt("train-critic", Settings()) as attempt:
            draft = attempt.start_artifact("critic", suffix="")
            assert list(draft.path.iterdir()) == []
            (draft.path / "a").mkdir()
            (draft.path / "a" / "weights").write_bytes(b"123")
            (draft.path / "config.json").write_text("{}")
            artifact = attempt.finish_artifact(draft)
        assert (artifact.path, artifact.bytes, artifact.rows) == ("critic/critic-1", 5, None)
        assert run.stale(artifact) is None
        (draft.path / "a" / "weights").rename(draft.path / "weights")
        assert run.stale(artifact) is not None

    def test_what_was_not_written_cannot_be_finished(self, run: Run) -> None:
        with pytest.raises(SweetError, match="has not written scores-1"), run.attempt("eval", Settings()) as attempt:
            attempt.finish_artifact(attempt.start_artifact("scores"))

    def test_an_artifact_taken_out_by_hand_meanwhile(self, run: Run) -> None:
        with pytest.raises(SweetError, match="removed from the manifest"), run.attempt("eval", Settings()) as attempt:
            draft = attempt.start_artifact("scores")
            draft.path.write_text("{}\n")
            value = json.loads((run.path / "manifest.json").read_text())
            value["artifacts"] = []
            (run.path / "manifest.json").write_text(json.dumps(value))
            attempt.finish_artifact(draft)
        assert draft.path.read_text() == "{}\n"

    def test_secrets_are_not_kept(self) -> None:
        told = {
            "url": "https://me:pw@host/v1?api_key=abc&x=1",
            "header": "Authorization: Bearer abcdef123456",
            "model": "hf-internal-testing/tiny-random",
            "key": "sk-abcdefghijklmnopqrstuvwx",
        }
        assert recordable(told) == {
            "url": "https://***@host/v1?api_key=***&x=1",
            "header": "Authorization: Bearer ***",
            "model": "hf-internal-testing/tiny-random",
            "key": "sk-***",
        }


class TestResume:
    def test_the_same_work_goes_on_in_the_same_file(self, run: Run) -> None:
        with pytest.raises(KeyboardInterrupt), run.attempt("rollout", Settings()) as attempt:
            draft = attempt.start_artifact("rollouts", meta={"agent": "micro"}, resume=True)
            assert not draft.resumed
            draft.path.write_text("{}\n")
            raise KeyboardInterrupt
        with run.attempt("rollout", Settings(workers=8)) as attempt:
            again = attempt.start_artifact("rollouts", meta={"agent": "micro"}, resume=True)
            assert (again.id, again.path, again.resumed) == (draft.id, draft.path, True)
            artifact = attempt.finish_artifact(again, rows=1)
        assert artifact.attempt == "rollout-2"
        assert [attempt.outputs for attempt in run.manifest().attempts] == [["rollouts-1"], ["rollouts-1"]]

    def test_one_attempt_writes_several_of_which_one_is_made_from_another(self, run: Run) -> None:
        tasks = make(run, "rollout", "rollouts")

        def attempted(until: int) -> list[Artifact]:
            """Start an actor, dialogues and scores; finish the scores and dialogues, or all."""
            with run.attempt("train-online", Settings(), inputs=[tasks]) as attempt:
                actor = attempt.start_artifact("actor", resume=True)
                rollouts = attempt.start_artifact("rollouts", resume=True)
                scores = attempt.start_artifact("scores", resume=True)
                for draft in (actor, rollouts, scores):
                    draft.path.write_text("{}\n")
                played = attempt.finish_artifact(rollouts, rows=1)
                scored = attempt.finish_artifact(scores, rows=1, made_from=[played])
                made = [played, scored]
                return made if until == 2 else [*made, attempt.finish_artifact(actor, made_from=[scored, played])]

        attempted(2)
        played, scored, actor = attempted(3)
        assert [one.id for one in (played, scored, actor)] == ["rollouts-2", "scores-1", "actor-1"], "nothing is new"
        assert [ref.id for ref in played.inputs] == [tasks.id]
        assert [ref.id for ref in scored.inputs] == ["rollouts-2", tasks.id]
        assert [ref.id for ref in actor.inputs] == ["scores-1", "rollouts-2", tasks.id]
        assert [one.id for one in attempted(3)] == ["rollouts-2", "scores-1", "actor-1"], "also once all are finished"
        assert run.input_of(run.artifact("scores-1"), "rollouts").id == "rollouts-2"
        assert {run.stale(one) for one in run.manifest().artifacts} == {None}

    def test_other_work_gets_a_file_of_its_own(self, run: Run) -> None:
        first = make(run, "rollout", "rollouts", meta={"tasks": "a"})
        made = [first.id]
        for seed, meta, stage in ((1, {"tasks": "a"}, "rollout"), (0, {"tasks": "b"}, "rollout"), (0, {}, "play")):
            with run.attempt(stage, Settings(seed=seed)) as attempt:
                made.append(attempt.start_artifact("rollouts", meta=dict(meta), resume=True).id)
        other = make(run, "rollout", "rollouts", seed=9)
        for inputs in ([first], [other]):
            with run.attempt("eval", Settings(), inputs=inputs) as attempt:
                made.append(attempt.start_artifact("scores", resume=True).id)
        with run.attempt("eval", Settings(), inputs=[first]) as attempt:
            made.append(attempt.start_artifact("scores").id)
        assert len(set(made)) == len(made)

    def test_a_finished_one_reopened_in_vain_is_still_finished(self, run: Run) -> None:
        before = make(run, "rollout", "rollouts")
        for error in (ServerError("No answer."), KeyboardInterrupt()):
            with pytest.raises(type(error)), run.attempt("rollout", Settings()) as attempt:
                attempt.start_artifact("rollouts", resume=True)
                raise error
        found = run.find("rollouts", needed_by="eval")
        assert (found.sha256, found.rows, found.status) == (before.sha256, 1, "done")

    def test_a_finished_one_that_has_changed_is_not(self, run: Run) -> None:
        make(run, "rollout", "rollouts")
        with pytest.raises(KeyboardInterrupt), run.attempt("rollout", Settings()) as attempt:
            with JsonlWriter(attempt.start_artifact("rollouts", resume=True).path) as writer:
                writer.write({})
            raise KeyboardInterrupt
        with pytest.raises(UsageError, match="not finished"):
            run.find("rollouts", needed_by="eval")

    def test_two_live_attempts_do_not_write_one_artifact(self, run: Run) -> None:
        with run.attempt("rollout", Settings()) as first:
            draft = first.start_artifact("rollouts", resume=True)
            before: Manifest = run.manifest()
            told = rf"being written by rollout-1, pid {os.getpid()}"
            with pytest.raises(UsageError, match=told), run.attempt("rollout", Settings()) as second:
                second.start_artifact("rollouts", resume=True)
            assert run.manifest().artifacts == before.artifacts
            with run.attempt("rollout", Settings(seed=1)) as third:
                other = third.start_artifact("rollouts", resume=True)
                other.path.write_text("{}\n")
                third.finish_artifact(other, rows=1)
            draft.path.write_text("{}\n")
            first.finish_artifact(draft, rows=1)
            with run.attempt("rollout", Settings()) as fourth:
                assert fourth.start_artifact("rollouts", resume=True).id == draft.id, "finishing lets it go"
        assert [attempt.status for attempt in run.manifest().attempts] == ["done", "failed", "done", "done"]
