"""On how many of the tasks that score it an agent was trained, by the lineage of its training."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sweet.results.collect import collect
from sweet.runs.manifest import Artifact
from sweet.runs.run import Run
from sweet.scoring.config import EvalConfig
from sweet.scoring.results.compare import CompareConfig, run_compare
from sweet.scoring.results.trained_on import TrainingRecord, in_words, of_both_in_words
from sweet.scoring.stage import run_eval
from sweet.stages.base import Silent
from sweet.tasks.base import Task
from sweet.tasks.code.kind import CodeKind
from tests.scoring.evaluations import grade, play
from tests.stages.learn_runs import AnyConfig, put

CLEAN = range(10, 14)
SEEN = range(4)


def task(number: int, prefix: str = "own") -> Task:
    return Task(
        id=f"{prefix}-{number}",
        problem_description=f"Add {number}. def add_{number}(x)",
        ground_truth=f"def add_{number}(x):\n    return x + {number}",
        test_cases={"1": f"add_{number}(1)"},
    )


def tasks(numbers: Sequence[int], prefix: str = "own") -> list[Task]:
    return [task(number, prefix) for number in numbers]


def trained(run: Run, *inputs: Artifact, base: str = "org/base") -> Artifact:
    """An actor."""
    with run.attempt("train-actor", AnyConfig(), inputs=inputs) as attempt:
        draft = attempt.start_artifact("actor", suffix="", meta={"base": base, "algorithm": "sweet"})
        (draft.path / "weights").write_bytes(b"0")
        return attempt.finish_artifact(draft)


def pairs_of(run: Run, critic_learned: Artifact, ranked: Artifact) -> Artifact:
    """Pairs of replies at turns of dialogues, by a critic that learned from the preferences of other dialogues."""
    scores = grade(run, critic_learned, {}).scores
    preferences = put(run, "label", "preferences", [], [scores, critic_learned])
    critic = put(run, "train-critic", "critic", [], [preferences, critic_learned], base="micro")
    return put(run, "pair", "pairs", [], [put(run, "rank", "candidates", [], [critic, ranked])])


def path_of(run: Run, actor: Artifact) -> str:
    return str(run.file(actor))


def count(run: Run, agent: str, numbers: Sequence[int] = SEEN, prefix: str = "own", **settings: Any) -> int | None:
    """Return the figure of dialogues of an agent on the tasks of these numbers."""
    played = play(run, tasks(numbers, prefix), agent=agent, **settings)
    return TrainingRecord(CodeKind()).count(run, played)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Its actor-1 was trained on SEEN, and the critic that ranked for it on the tasks 6 to 9."""
    run = Run.create(tmp_path / "run", task="code")
    ranked = play(run, tasks(SEEN), agent="micro", split="train", dataset="own.jsonl")
    others = play(run, tasks(range(6, 10)), agent="micro", split="train", dataset="own.jsonl")
    trained(run, pairs_of(run, others, ranked))
    return run


@pytest.fixture
def actor(run: Run) -> str:
    return path_of(run, run.artifact("actor-1"))


def test_the_tasks_of_pairs_and_of_the_critic_count(run: Run, actor: str) -> None:
    assert count(run, actor, SEEN) == 4
    assert count(run, actor, [3, 4, 5, 6]) == 2
    assert count(run, actor, CLEAN) == 0


def test_a_task_is_found_by_its_content_in_another_file(run: Run, actor: str) -> None:
    assert count(run, actor, SEEN, prefix="other", dataset="other.jsonl") == 4
    assert count(run, actor, CLEAN, prefix="own", dataset="other.jsonl") == 0


def test_a_task_whose_reference_was_corrected_is_found_by_its_id_and_request_in_the_same_file(
    run: Run, actor: str
) -> None:
    corrected = [one.model_copy(update={"ground_truth": f"{one.ground_truth} + 0"}) for one in tasks(SEEN)]
    record = TrainingRecord(CodeKind())
    for dataset, found in (("own.jsonl", 4), ("other.jsonl", 0)):
        played = play(run, corrected, agent=actor, dataset=dataset)
        assert record.count(run, played) == found


def test_the_actor_that_a_training_started_from_counts_in_any_run(run: Run, actor: str, tmp_path: Path) -> None:
    other = Run.create(tmp_path / "other", task="code")
    second = trained(other, play(other, tasks(CLEAN), agent="micro", split="train"), base=actor)
    third = trained(other, play(other, tasks([20]), agent="micro", split="train"), base=path_of(other, second))
    assert count(other, path_of(other, third), [0, 6, 10, 20, 30]) == 4


def test_an_actor_of_another_run_is_found_by_its_path(
    run: Run, actor: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Run.create(tmp_path / "folder" / "other", task="code")
    (tmp_path / "link").symlink_to(actor)
    for name in (actor, f"{actor}/", "run/actor/actor-1", "../tmp/../run/actor/actor-1", str(tmp_path / "link")):
        monkeypatch.chdir(tmp_path / "folder" if name.startswith("..") else tmp_path)
        (tmp_path / "tmp").mkdir(exist_ok=True)
        assert count(other, name, [0, 1, 30]) == 2, name
    monkeypatch.chdir("/")
    assert count(other, "run/actor/actor-1", [0, 1, 30]) == 2, "relative to a folder above the run"


def test_an_actor_of_another_run_is_not_taken_for_the_runs_own_of_the_same_id(
    run: Run, actor: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Run.create(tmp_path / "other", task="code")
    own = trained(other, play(other, tasks(CLEAN), agent="micro", split="train"))
    assert own.id == "actor-1"
    monkeypatch.chdir(tmp_path)
    assert count(other, "run/actor/actor-1", [0, 1, 10]) == 2
    assert [count(other, name, [0, 1, 10]) for name in ("other/actor/actor-1", "actor-1", path_of(other, own))] == [
        1
    ] * 3


def test_what_is_not_recorded_is_not_known(run: Run, actor: str, tmp_path: Path) -> None:
    other = Run.create(tmp_path / "other", task="code")
    assert count(other, "org/model") is None
    assert count(other, "imported") is None
    shutil.copytree(actor, tmp_path / "copy")
    assert count(other, str(tmp_path / "copy")) is None
    started = trained(other, play(other, tasks(CLEAN), agent="micro", split="train"), base=actor)
    (run.path / "manifest.json").write_text("{")
    assert count(other, actor) is None
    assert count(other, path_of(other, started), SEEN) is None, "the run of its base cannot be read"
    assert count(other, path_of(other, started), [0, 10, 11]) == 2, "but these are certain"


def test_packaged_and_rule_based_agents_were_trained_on_no_task(run: Run) -> None:
    assert [count(run, agent, seed=seed) for seed, agent in enumerate(("micro", "scripted"))] == [0, 0]


def test_dialogues_that_are_gone_are_not_known(run: Run, actor: str) -> None:
    run.file(run.artifact("rollouts-1")).unlink()
    assert count(run, actor, CLEAN) is None
    assert count(run, actor, SEEN) is None
    assert count(run, actor, [6, 7]) == 2


def test_a_critic_that_chose_the_replies_counts(run: Run, actor: str) -> None:
    with run.attempt("rollout", AnyConfig(number=7), inputs=[run.artifact("critic-1")]) as attempt:
        draft = attempt.start_artifact("rollouts", meta={"agent": "micro", "best_of": 4})
        rows = [{"id": one.id, "task": one.model_dump(mode="json"), "dialogue_history": []} for one in tasks([0, 6, 7])]
        draft.path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        played = attempt.finish_artifact(draft, rows=3)
    record = TrainingRecord(CodeKind())
    assert record.count(run, played) == 2


@pytest.mark.parametrize("name", ["~nobody-of-this-name/actor/actor-1", "a\0b", "x" * 5000, "", ".", "/"])
def test_a_name_in_a_manifest_may_be_any_text(run: Run, name: str) -> None:
    path = run.path / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["artifacts"][0]["meta"]["agent"] = name
    path.write_text(json.dumps(manifest))
    record = TrainingRecord(CodeKind())
    played = run.artifact("rollouts-1")
    assert record.count(run, played) is None


def test_eval_compare_and_report_say_it(run: Run, actor: str) -> None:
    shared = [*range(2, 6)]
    before = grade(run, play(run, tasks(shared), agent="micro"), {f"own-{n}": [0.0] for n in shared}).scores
    play(run, tasks(shared), agent=actor)
    scored = run_eval(run, EvalConfig(sandbox="unsafe"), Silent())
    assert (scored.metrics.trained_on_tasks, scored.metrics.tasks) == (2, 4)
    assert run.manifest().attempts[-1].metrics["trained_on_tasks"] == 2
    compared = run_compare(
        f"{run.path}:{before.id}", f"{run.path}:{scored.artifacts[0].id}", CompareConfig(allow_different=True)
    ).metrics
    assert (compared.a.trained_on_tasks, compared.b.trained_on_tasks, compared.tasks) == (0, 2, 4)
    report = collect(run)
    assert [result.trained_on_tasks for result in report.results] == [0, 0, 2]
    said = "The agent was trained on 2 of these 4 tasks: they do not show how it does on unseen ones."
    assert said in report.citation
    assert report.as_json()["metrics"]["trained_on_tasks"] == 2


@pytest.mark.parametrize(("numbers", "figure"), [(CLEAN, 0), (range(2, 6), 2)])
def test_what_eval_has_recorded_is_used_where_the_dialogues_are_gone(
    run: Run, actor: str, numbers: Sequence[int], figure: int
) -> None:
    played = play(run, tasks(numbers), agent=actor)
    grade(run, played, {f"own-{n}": [1.0] for n in numbers}, trained_on_tasks=figure, tasks=len(numbers))
    for rollouts in ("rollouts-1", played.id):
        run.file(run.artifact(rollouts)).unlink()
    assert collect(run).results[-1].trained_on_tasks == figure


def test_words() -> None:
    assert in_words(None, 3) == "Whether the agent was trained on these tasks is not recorded."
    assert in_words(0, 1000) == "The agent was trained on none of these tasks (1,000)."
    assert of_both_in_words(0, 0, 40) == "Of these tasks (40) A was trained on none, B on none."
    assert of_both_in_words(None, 30, 40) == (
        "Of these tasks (40) A was trained on an unknown number, B on 30. The difference is not that on unseen tasks."
    )
