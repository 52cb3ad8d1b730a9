"""The facts of a report, of a complete run and of runs at any stage."""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweet.inspection.status import report as status
from sweet.results import pages
from sweet.results.collect import collect, falling
from sweet.results.facts import MAX_VALUE, Rate, Report, number
from sweet.results.report_page import tables
from sweet.runs.run import Run
from sweet.scoring.results.compare import CompareConfig, measure_comparison, run_compare
from sweet.scoring.results.evaluation import Values, find_evaluation
from sweet.scoring.results.pass_at_k import measure_samples
from sweet.scoring.results.statistics import TESTS
from sweet.tasks.kind import TaskKind
from sweet.tasks.scores import Metric, RewardRule, Score, solved
from sweet.tasks.trajectory import dump
from tests.report_run import AFTER, BEFORE, LOSSES, online_run, report_run, rewrite, step
from tests.view.conftest import HOSTILE, score, trajectory


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return report_run(tmp_path / "run")


@pytest.fixture
def report(run: Run) -> Report:
    return collect(run)


def test_the_headline_is_the_trained_actor(report: Report) -> None:
    assert report.headline is not None
    assert report.headline.scores == "scores-2"
    assert report.headline.rate.mean == pytest.approx(fmean(AFTER))
    assert report.problems == []
    assert report.method == "critic advantage, actor sweet (protocol paper)"


def test_before_and_after_are_paired_by_task(report: Report) -> None:
    (found,) = report.comparisons
    assert (found.before, found.after, found.tasks) == ("scores-1", "scores-2", 3)
    assert [warning.split(":")[0] for warning in found.warnings] == [
        "Dialogues that ended by a fault and count as unsolved"
    ]
    assert list(found.figures) == ["success_rate", "tests_passed"]
    success, tests = found.figures.values()
    assert success.difference.value == pytest.approx(2 / 6, abs=1e-6)
    assert tests.difference.value == pytest.approx(fmean(AFTER) - fmean(BEFORE), abs=1e-6)
    assert (tests.wins, tests.ties, tests.losses, tests.test) == (2, 1, 0, "permutation")


def test_before_and_after_equal_the_result_of_compare(run: Run, report: Report) -> None:
    result = run_compare(f"{run.path}:scores-1", f"{run.path}:scores-2", CompareConfig()).metrics.as_json()
    (found,) = report.comparisons
    assert found.warnings == [warning["text"] for warning in result["warnings"]]
    for name, figure in found.figures.items():
        assert figure.as_json() == result["figures"][name]
    assert "(paired permutation; 2 wins, 0 losses, 1 tie)" in report.citation


def test_the_quote_names_the_test_that_gave_p(report: Report) -> None:
    (found,) = report.comparisons
    for test, name in TESTS.items():
        figures = {key: figure.model_copy(update={"test": test}) for key, figure in found.figures.items()}
        other = report.model_copy(update={"comparisons": [found.model_copy(update={"figures": figures})]})
        assert f"({name}; " in pages.plain("citation.j2", report=other)


def test_differences_of_the_two_sides_are_reported(run: Run) -> None:
    def change(manifest: dict[str, Any]) -> None:
        manifest["artifacts"][-2]["meta"]["max_turns"] = 3
        manifest["artifacts"][-1]["meta"]["sandbox"] = "docker"

    rewrite(run, change)
    (found,) = collect(run).comparisons
    assert "Turn limit: 10 in A, 3 in B." in found.warnings
    assert "Sandbox: bwrap in A, docker in B." in found.warnings


def test_lineage_knows_who_spoke(report: Report) -> None:
    assert [result.agent for result in report.results] == ["base", "actor-1"]


def second_round(run: Run) -> None:
    """Add an actor that was trained from the first one, scored on the same tasks."""
    first = run.manifest().of_kind("actor")[-1]
    base = str(run.path / first.path)
    actor = step(run, "train-actor", "actor", [], meta={"algorithm": "sweet", "base": base, "protocol": "paper"})
    meta = run.manifest().of_kind("rollouts")[-1].meta | {"agent": str(run.path / actor.path)}
    played = step(run, "rollout", "rollouts", [dump(trajectory(number)) for number in range(6)], meta=meta)
    rows = [score(number, 1.0) for number in range(6)]
    step(run, "eval", "scores", rows, [played], meta={"scorer": "strict"}, metrics={"success_rate": 1.0})


def test_an_actor_is_compared_with_its_base(run: Run) -> None:
    second_round(run)
    found = collect(run)
    assert found.headline is not None
    assert found.headline.scores == "scores-3"
    pairs = [(one.before, one.after) for one in found.comparisons]
    assert pairs == [("scores-1", "scores-3"), ("scores-1", "scores-2"), ("scores-2", "scores-3")]
    assert "the first agent, base, reaches" in found.citation


def test_an_agent_from_another_run_is_not_called_after_this_runs_actor(run: Run) -> None:
    def change(manifest: dict[str, Any]) -> None:
        for artifact in manifest["artifacts"]:
            for key in ("agent", "base"):
                if artifact["meta"].get(key) == "base":
                    artifact["meta"][key] = "runs/other/actor/actor-1"

    rewrite(run, change)
    found = collect(run)
    assert [result.agent for result in found.results] == ["runs/other/actor/actor-1", "actor-1"]
    assert [(one.before, one.after) for one in found.comparisons] == [("scores-1", "scores-2")]


def test_curves_are_the_logs(report: Report) -> None:
    critic = report.training[0]
    assert [point.y for point in critic.series["loss"]] == list(LOSSES)
    assert [(p.x, p.y) for p in critic.series["heldout_accuracy"]] == [(4, 0.75)]
    assert (critic.steps, critic.together) == (4, 1)


def test_a_long_training_is_thinned(run: Run) -> None:
    log = [{"step": number, "loss": float(number)} for number in range(1, 1001)]
    step(run, "train-critic", "critic", [], log=log)
    found = collect(run).training[-1]
    assert found.together == 5
    assert len(found.series["loss"]) == 200
    assert found.series["loss"][0].y == 3.0


def test_endings_are_counted(report: Report) -> None:
    after = report.dialogues[1]
    assert (after.count, after.ends) == (6, {"answered": 5, "deadline": 1})
    assert sum(after.outcomes.values()) == 6


def test_the_same_run_gives_the_same_report(run: Run, report: Report) -> None:
    assert collect(run) == report
    assert json.loads(json.dumps(report.as_json()))["metrics"]["success_rate"] == pytest.approx(fmean(AFTER))


def test_best_of_n_is_a_table(report: Report) -> None:
    (table,) = tables(report.results[0])
    assert table.title == "best of N by the critic, critic-1"
    assert [[cell.partition("\n")[0] for cell in row] for row in table.rows] == [
        ["1", "3", "50.0 %", "50.0 %", "75.0 %"],
        ["2", "3", "70.0 %", "50.0 %", "75.0 %"],
    ]


def test_pass_at_k_is_read_as_eval_writes_it(report: Report) -> None:
    values = Values({"success_rate": Metric(solved)})
    for index, reward in enumerate((1.0, 0.5, 0.0, 0.5)):
        row = {"id": str(index), "task_id": f"t{index // 2}", "reward": reward, "passed": 0, "total": 0}
        values.add(Score.model_validate(row | {"outcome": "failed"}))
    metrics = measure_samples(values, RewardRule()).as_json()
    found = tables(report.results[0].model_copy(update={"metrics": metrics}))
    assert [table.title for table in found] == ["pass@k", "pass^k", "best of k, by reward"]
    every = (["25.0 %", "50.0 %"], ["25.0 %", "0.0 %"], ["50.0 %", "75.0 %"])
    for table, means in zip(found, every, strict=True):
        assert [row[0] for row in table.rows] == ["1", "2"]
        for (*_, rate), mean in zip(table.rows, means, strict=True):
            assert re.fullmatch(rf"{re.escape(mean)}\n\[.+, .+\]", rate)


@pytest.mark.parametrize(
    "value", [None, 3, "x", [], {}, {"a": {"b": "c"}}, {"1": "x"}, {"1": {"rate": None}}, {"1": {"tasks": 10**5000}}]
)
@pytest.mark.parametrize("name", ["humans", "pass_at_k", "best_of"])
def test_what_eval_has_not_written_is_no_table(report: Report, name: str, value: Any) -> None:
    found = tables(report.results[0].model_copy(update={"metrics": {name: value}}))
    assert [table for table in found if table.rows] == []


def test_a_comparison_with_another_run_is_reported(run: Run) -> None:
    sides = [find_evaluation(f"{run.path}:scores-{number}", needed_by="test") for number in (1, 2)]

    def change(manifest: dict[str, Any]) -> None:
        output = {
            "win_rate": 0.6,
            "win_rate_ci_low": 0.5,
            "win_rate_ci_high": 0.7,
            "compare": measure_comparison(*sides).as_json(),
        }
        manifest["attempts"][-1]["metrics"] |= output

    rewrite(run, change)
    result = collect(run).results[-1]
    assert (result.against, result.win_rate) == ("run:scores-1", Rate(name="win_rate", mean=0.6, low=0.5, high=0.7))
    assert [rate.name for rate in result.rates] == ["success_rate"]


def test_commands_and_settings_are_portable(run: Run, tmp_path: Path) -> None:
    def change(manifest: dict[str, Any]) -> None:
        first = next(one for one in manifest["attempts"] if one["id"] == "rollout-2")
        first["config"] = {"agent": str(run.path / "actor" / "actor-1"), "num_tasks": 7, "sim": None, "seed": 0}
        manifest["attempts"][1]["stage"], manifest["attempts"][1]["id"] = "knit", "knit-1"
        manifest["artifacts"][1]["attempt"] = "knit-1"

    rewrite(run, change)
    attempts = {one.id: one for one in collect(run).attempts}
    assert attempts["rollout-2"].command == "sweet rollout RUN --agent RUN/actor/actor-1 --num-tasks 7"
    assert attempts["rollout-2"].defaults.keys() >= {"seed"}
    assert attempts["knit-1"].command is None
    assert attempts["train-critic-1"].command == "sweet train-critic RUN"


def test_a_run_at_any_stage_has_a_report(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", task="code")
    assert collect(run).headline is None
    step(run, "rollout", "rollouts", [dump(trajectory(number)) for number in range(3)])
    found = collect(run)
    assert (found.headline, found.citation, found.dialogues[0].count) == (None, "", 3)


def test_broken_and_missing_files_are_reported(run: Run) -> None:
    scores = run.path / "scores" / "scores-2.jsonl"
    scores.write_bytes(b"{]\n")
    rollouts = run.path / "rollouts" / "rollouts-2.jsonl"
    lines = rollouts.read_bytes().splitlines(keepends=True)
    rollouts.write_bytes(b"".join([*lines[:2], b'{"id": 3}\n', b"[broken\n", *lines[2:]]))
    (run.path / "candidates" / "candidates-1.jsonl").unlink()
    (run.path / "logs" / "train-critic-1.jsonl").write_text('{"step": 1, "loss": 0.5}\n{"lo')
    found = collect(run)
    result = "\n".join(found.problems)
    for word in ("scores-2.jsonl", "rollouts-2.jsonl", "rollouts-2.jsonl, line 3", "candidates-1"):
        assert word in result
    assert (found.dialogues[1].count, found.dialogues[1].ends) == (6, {}), "the manifest contains their number"
    assert found.headline is not None, "the manifest contains the metrics of the evaluation"
    assert len(found.training[0].series["loss"]) == 1
    assert {artifact.id for artifact in found.artifacts if artifact.stale} >= {"scores-2", "candidates-1", "actor-1"}


def test_an_unfinished_evaluation_is_reported_from_its_rows(run: Run) -> None:
    def change(manifest: dict[str, Any]) -> None:
        manifest["artifacts"][1] |= {"status": "partial", "sha256": None, "finished": None}
        manifest["attempts"][1] |= {"status": "failed", "error": HOSTILE, "metrics": {}}

    rewrite(run, change)
    first = collect(run).results[0]
    assert (first.status, first.trajectories) == ("partial", 6)
    assert [rate.name for rate in first.rates] == ["success_rate", "tests_passed"]
    assert first.rates[1].mean == pytest.approx(fmean(BEFORE))


def test_a_kind_that_is_not_installed_is_reported(run: Run) -> None:
    rewrite(run, lambda manifest: manifest.update(task="knitting"))
    found = collect(run)
    assert "knitting" in found.problems[0]
    assert list(found.comparisons[0].figures) == ["reward"]


def test_a_kind_of_a_package_is_reported_with_its_own_rates(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    class Kind:
        metrics: ClassVar = {"rows_matched": Metric(solved)}
        rewards = RewardRule(solved=None, margin=0.1)
        name = "queries"
        problem = TaskKind.problem

    monkeypatch.setattr("sweet.results.collect.task_kind", lambda name: {"queries": Kind()}[name])

    def change(manifest: dict[str, Any]) -> None:
        manifest["task"] = "queries"
        metrics = manifest["attempts"][-1]["metrics"]
        for part in ("", "_ci_low", "_ci_high"):
            metrics[f"rows_matched{part}"] = metrics.pop(f"success_rate{part}")

    rewrite(run, change)
    found = collect(run)
    assert found.headline is not None
    assert found.headline.rate.name == "rows_matched"
    assert list(found.comparisons[0].figures) == ["reward", "rows_matched"]
    assert "a rows matched of 75.0 %" in found.citation


def test_a_hostile_manifest_breaks_nothing(run: Run) -> None:
    strange = [HOSTILE, 10**400, 1e300, True, None, [], {"a": {"b": HOSTILE}}]

    def change(manifest: dict[str, Any]) -> None:
        for index, attempt in enumerate(manifest["attempts"]):
            attempt["config"] = {"agent": strange[index % 7], "vllm_options": 5, HOSTILE: strange}
            attempt["environment"] = {HOSTILE: strange[index % 7], "sweet": HOSTILE}
            attempt["metrics"] |= {
                "outcomes": strange[index % 7],
                "faults": 1e300,
                "humans": strange[index % 7],
                "best_of": strange[index % 7],
            }
            attempt["metrics"] |= {HOSTILE: 0.5, f"{HOSTILE}_ci_low": HOSTILE, "x": 10**400, "x_ci_low": 0}
        for artifact in manifest["artifacts"]:
            artifact["meta"] |= {"tasks": HOSTILE, "sim": strange, "max_turns": 10**400, "scorer": {"a": 1}}
        manifest["artifacts"][0]["inputs"] = [{"id": "actor-1", "sha256": None}, {"id": "scores-9", "sha256": None}]

    rewrite(run, change)
    found = collect(run)
    assert found.citation
    json.dumps(found.as_json())


def test_a_report_in_the_run_is_no_unknown_file(run: Run) -> None:
    (run.path / "report.html").write_text("")
    assert status(run).unknown == []


def test_names_beyond_a_dozen_are_counted_together() -> None:
    found = falling([f"outcome {number:02}" for number in range(20)] + ["passed"] * 2)
    assert len(found) == 13
    assert (found["passed"], found["others"], sum(found.values())) == (2, 9, 22)


@given(st.one_of(st.none(), st.booleans(), st.text(), st.integers(), st.floats()))
def test_numbers_of_a_manifest(value: Any) -> None:
    found = number(value)
    assert found is None or (found == value and abs(found) < MAX_VALUE and not isinstance(value, bool))


@pytest.mark.parametrize("done", [True, False])
def test_an_online_training_has_its_learning_curve_over_generated_tokens(tmp_path: Path, done: bool) -> None:
    report = collect(online_run(tmp_path / "run", done=done))
    assert report.problems == []
    (training,) = report.training
    found = training.online
    assert found is not None
    assert (found.algorithm, training.steps) == ("grpo", 6)
    assert [point.x for point in found.curve["reward"]] == [1000.0 * number for number in range(1, 7)]
    assert [(point.x, point.y) for point in found.curve["validation"]] == [(3000.0, 0.3), (6000.0, 0.2)]
    assert {"kl_start", "entropy_late", "leak_rate", "equal_groups"} <= training.series.keys()
    its = found.metrics
    assert (its.ended, its.kept_step, its.seconds) == (("collapse", 3, 70.0) if done else ("", 0, 0.0))
    assert (its.completion_tokens, its.episodes, its.play_seconds) == ((6000, 48, 12.0) if done else (0, 0, 0.0))


def test_trainings_on_recorded_data_are_not_online(report: Report) -> None:
    assert [one.online for one in report.training] == [None, None]
