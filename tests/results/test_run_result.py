"""One result of a run, in everything that shows one: the kept agent on test tasks against the first agent, paired."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sweet.inspection.next_commands import suggest_next
from sweet.inspection.status import report as status
from sweet.pipeline.config import LoopConfig
from sweet.results.collect import collect
from sweet.results.report_page import markdown, report_page
from sweet.runs.manifest import Artifact, Kind
from sweet.runs.run import Run
from sweet.scoring.results.evaluation import find_evaluation
from sweet.scoring.results.run_result import result_of
from sweet.stages.base import StageConfig
from sweet.view.viewer import ViewConfig, Viewer
from tests.scoring.evaluations import grade, make_task, play

TASKS = [make_task(f"t{number}", f"A price, {number}.") for number in range(8)]
SOLVED = {"micro": "10000000", "actor-1": "11110000", "actor-2": "00000000"}
"""Tasks that each agent solves: the same ones of both splits."""


def evaluated(run: Run, agent: str, split: str) -> dict[str, str]:
    """The dialogues of an agent on a split, and their scores; their ids by step."""
    actor = run.manifest().artifact(agent)
    rollouts = play(run, TASKS, agent=agent if actor is None else str(run.file(actor)), split=split)
    solved = SOLVED.get(agent, "11111110")
    mean = solved.count("1") / len(TASKS)
    rate: dict[str, Any] = {"success_rate": mean, "success_rate_ci_low": mean / 2, "success_rate_ci_high": mean}
    rewards = {task.id: [float(one)] for task, one in zip(TASKS, solved, strict=True)}
    scores = grade(run, rollouts, rewards, **rate).scores
    return {f"rollout {split}": rollouts.id, f"eval {split}": scores.id}


def trained(run: Run, *inputs: Artifact) -> Artifact:
    kind: Kind = "actor"
    with run.attempt("train-actor", StageConfig(), inputs=inputs) as attempt:
        draft = attempt.start_artifact(kind, "", meta={"base": "micro", "algorithm": "sweet"})
        (draft.path / "weights").write_bytes(b"0")
        return attempt.finish_artifact(draft)


def round_of(number: int, agent: str, made: dict[str, str]) -> dict[str, Any]:
    rate = SOLVED[agent].count("1") / len(TASKS)
    rates = {f"{name}{end}": rate for name in ("test", "validation") for end in ("", "_ci_low", "_ci_high")}
    return {"round": number, "agent": agent, **rates, "usage": {"dialogues": 16, "seconds": 2.0}, "artifacts": made}


def trained_run(path: Path, best: str) -> Run:
    """A run as `sweet train` makes one of two rounds; the last dialogues are those of the last actor on validation
    tasks."""
    run = Run.create(path, "code")
    (path / "recipe.toml").touch()
    with run.attempt("train", LoopConfig(rounds=2)) as attempt:
        rounds = []
        for number, agent in enumerate(SOLVED):
            learned = [] if not number else [run.artifact("rollouts-1")]
            made = {} if not number else {"train-actor": trained(run, *learned).id}
            made |= evaluated(run, agent, "test") | evaluated(run, agent, "validation")
            rounds.append(round_of(number, agent, made))
        found = {"metric": "success_rate", "rounds": rounds, "best": best, "ended_early": False, "seconds": 6.0}
        attempt.metrics.update(found)
    return run


def test_the_dialogues_of_an_online_training_evaluate_no_agent(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", "code")
    evaluated(run, "micro", "train")
    file = run.path / "manifest.json"
    whole = json.loads(file.read_text().replace('"eval', '"train-online').replace("logs/eval", "logs/train-online"))
    file.write_text(json.dumps(whole))
    assert result_of(run.manifest()) is None
    assert status(run).result is None
    report = collect(run)
    assert (report.headline, report.citation) == (None, "")
    evaluated(run, "micro", "test")
    result = result_of(run.manifest())
    assert result is not None
    assert (result.scores.id, result.before) == ("scores-2", None)


def test_the_kept_actor_is_the_result_wherever_one_is_shown(tmp_path: Path) -> None:
    run = trained_run(tmp_path / "run", "actor-1")
    result = result_of(run.manifest())
    assert result is not None
    assert (result.agent, result.scores.id, result.before and result.before.id) == ("actor-1", "scores-3", "scores-1")
    assert find_evaluation(run.path, needed_by="compare").scores.id == "scores-3"

    shown = status(run)
    assert shown.result is not None
    assert (shown.result.of, shown.result.rate["success_rate"]) == ("actor-1 on test tasks", 0.5)
    assert shown.result.first == "micro"
    assert shown.result.paired is not None
    assert (shown.result.paired.difference.value, shown.result.paired.p_value) == (0.375, 0.25)
    assert {one.id: one.of for one in shown.artifacts if one.id in ("scores-1", "rollouts-6", "actor-2")} == {
        "scores-1": "micro on test tasks",
        "rollouts-6": "actor-2 on validation tasks",
        "actor-2": "",
    }
    assert suggest_next(run.manifest(), "RUN") == [
        "sweet compare RUN:scores-1 RUN:scores-3",
        "sweet report RUN",
        "sweet view RUN",
        "sweet train RUN --rounds 3 --patience 2",
    ]
    assert Viewer(run, ViewConfig()).title() == "run · rollouts-3 · actor-1 on test tasks · scores-3"

    report = collect(run)
    assert report.headline is not None
    assert (report.headline.scores, report.headline.rate.mean) == ("scores-3", 0.5)
    assert report.change is not None
    assert (report.change.before, report.change.figures["success_rate"].p_value) == ("scores-1", 0.25)
    assert report.as_json()["metrics"]["success_rate"] == 0.5
    assert "the agent actor-1 reaches a success rate of 50.0 %" in report.citation
    assert "the first agent, micro, reaches 12.5 %: a paired difference in success rate of +37.5 pp" in report.citation
    page = "".join(report_page(report))
    assert "success rate of actor-1 on test tasks" in page
    text = markdown(report)
    assert "| 1 | `actor-1 (kept)` | 50.0 % [50.0, 50.0] | 50.0 % [50.0, 50.0] | 16 |" in text
    assert "| 2 | `actor-2` | 0.0 % [0.0, 0.0] |" in text
    assert text.count("actor-1 (kept)") == page.count("actor-1 (kept)") == 1


def test_where_no_actor_is_better_the_first_agent_is_the_result(tmp_path: Path) -> None:
    run = trained_run(tmp_path / "run", "micro")
    shown = status(run).result
    assert shown is not None
    assert (shown.scores, shown.of, shown.first, shown.paired) == ("scores-1", "micro on test tasks", None, None)
    report = collect(run)
    assert (report.headline and report.headline.scores, report.change) == ("scores-1", None)
    assert "No actor is better on validation tasks than micro, which is kept." in markdown(report)
    assert suggest_next(run.manifest(), "RUN")[:2] == ["sweet report RUN", "sweet view RUN"]


def test_dialogues_by_hand_are_the_result_only_of_an_actor_of_the_users_own(tmp_path: Path) -> None:
    run = trained_run(tmp_path / "run", "actor-1")
    evaluated(run, "actor-2", "test")
    evaluated(run, "actor-1", "validation")
    result = result_of(run.manifest())
    assert result is not None
    assert result.scores.id == "scores-3", "a discarded actor stays discarded"
    own = trained(run, run.artifact("rollouts-1"))
    made = evaluated(run, own.id, "test")
    result = result_of(run.manifest())
    assert result is not None
    assert (result.agent, result.scores.id, result.train) == ("actor-3", made["eval test"], None)
    assert (result.before and result.before.id) == "scores-1"
    assert Viewer(run, ViewConfig()).records.rollouts.id == made["rollout test"]


def test_an_actor_of_the_users_own_is_evaluated_next(tmp_path: Path) -> None:
    run = trained_run(tmp_path / "run", "actor-1")
    learned = play(run, TASKS, samples=4, split="train")
    own = trained(run, learned)
    evaluated(run, "actor-1", "validation")
    assert suggest_next(run.manifest(), "RUN")[0].startswith(f"sweet rollout RUN --agent RUN/{own.path} ")
    scores = evaluated(run, own.id, "test")["eval test"]
    assert suggest_next(run.manifest(), "RUN")[0] == f"sweet compare RUN:scores-1 RUN:{scores}"


@pytest.mark.parametrize("change", [{"rounds": 3}, {"rounds": [{"agent": {}}]}, {"best": None}, {"rounds": []}])
def test_what_train_has_not_recorded_decides_nothing(tmp_path: Path, change: dict[str, Any]) -> None:
    run = trained_run(tmp_path / "run", "actor-1")
    with run.attempt("train", StageConfig()) as attempt:
        attempt.metrics.update({"rounds": [], "best": "actor-9"} | change)
    result = result_of(run.manifest())
    assert result is not None
    assert result.scores.id == "scores-3", "an earlier call has recorded it"
