"""`--dry-run` of the stages tells what they then do, and leaves the run as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sweet.llm.weights import parameter_count
from sweet.preferences.config import LabelConfig, PairConfig
from sweet.preferences.label import plan_label, run_label
from sweet.preferences.pair import plan_pair, run_pair
from sweet.ranking.config import RankConfig
from sweet.ranking.stage import plan_rank, run_rank
from sweet.render.page import RenderFailed, RenderSettings, Screenshot, page_key
from sweet.render.store import SCREENSHOTS, ScreenshotStore
from sweet.rollouts.config import RolloutConfig
from sweet.rollouts.stage import plan_rollout, run_rollout
from sweet.runs.jsonl import read_jsonl
from sweet.runs.run import Run
from sweet.scoring.config import EvalConfig
from sweet.scoring.stage import plan_eval, run_eval
from sweet.stages.base import Silent
from sweet.stages.rows import CandidateRow
from sweet.tasks.trajectory import Trajectory
from sweet.training.config import TrainCriticConfig
from sweet.training.stage import plan_train_critic, run_train_critic
from tests.stages.learn_runs import put
from tests.stages.test_estimate import files

MICRO = parameter_count("micro") or 0

PLAYED: dict[str, Any] = {"num_tasks": 12, "samples": 4, "max_tokens": 64, "device": "cpu"}
RANKED: dict[str, Any] = {"candidates": 3, "fraction": 0.2, "max_tokens": 32, "device": "cpu"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Dialogues of the packaged agent, scored, labelled, with a critic of one epoch and ranked candidates."""
    run = Run.create(tmp_path_factory.mktemp("plans") / "run", task="code")
    run_rollout(run, RolloutConfig(**PLAYED), Silent())
    run_eval(run, EvalConfig(), Silent())
    run_label(run, LabelConfig(), Silent())
    run_train_critic(run, TrainCriticConfig(epochs=1, device="cpu"), Silent())
    run_rank(run, RankConfig(**RANKED), Silent())
    run_pair(run, PairConfig(), Silent())
    return run


@pytest.fixture(autouse=True)
def unchanged(run: Run) -> Any:
    before = files(run)
    yield
    assert files(run) == before, "a dry run changes nothing"


def done(run: Run, stage: str) -> dict[str, Any]:
    return next(dict(a.metrics) for a in reversed(run.manifest().attempts) if a.stage == stage)


def test_a_rollout_is_planned_by_the_dialogues_of_an_earlier_one(run: Run) -> None:
    plan = plan_rollout(run, RolloutConfig(**{**PLAYED, "num_tasks": 20}), Silent()).as_json()
    met = done(run, "rollout")
    assert (plan["tasks"], plan["dialogues"], plan["missing"]) == (20, 80, 80)
    times = 80 / met["episodes"]
    assert plan["turns"] == pytest.approx(times * met["turns"], abs=1)
    assert plan["tokens_read"] == pytest.approx(times * met["prompt_tokens"], abs=1)
    assert plan["tokens_written"] == pytest.approx(times * met["completion_tokens"], abs=1)
    tokens = times * (met["prompt_tokens"] + met["completion_tokens"])
    assert plan["flops"] == pytest.approx(2 * MICRO * tokens, rel=0.01)
    assert (plan["gpus"], plan["gpu_hours"]) == (0, 0)
    assert plan["hours"] > 0
    assert plan["rates"]["seconds"] | {"value": 0} == {
        "value": 0,
        "unit": "s a dialogue",
        "from": f"{run.path}:rollout-1",
        "differs": [],
    }


def test_what_is_there_is_not_played_again(run: Run) -> None:
    plan = plan_rollout(run, RolloutConfig(**PLAYED), Silent()).as_json()
    assert (plan["dialogues"], plan["missing"], plan["hours"]) == (48, 0, 0)


def test_a_rollout_without_a_run_is_counted_and_told_by_runs_that_are_named(run: Run) -> None:
    config = RolloutConfig(**PLAYED)
    alone = plan_rollout(None, config, Silent()).as_json()
    assert (alone["dialogues"], alone["turns"], alone["hours"], alone["flops"]) == (48, None, None, None)
    told = plan_rollout(None, config.model_copy(update={"rates": [str(run.path)]}), Silent()).as_json()
    assert told["turns"] == done(run, "rollout")["turns"]
    other = plan_rollout(
        run, RolloutConfig(**{**PLAYED, "agent": "elsewhere", "agent_url": ["http://x/v1"]}), Silent()
    ).as_json()
    assert (other["hours"], other["gpus"], other["flops"]) == (None, None, None)
    assert "agent" in other["rates"]["turns"]["differs"]


def test_servers_share_the_dialogues(run: Run, tmp_path: Path) -> None:
    served = RolloutConfig(**{**PLAYED, "agent_url": ["http://a/v1"]})
    there = Run.create(tmp_path / "served", task="code")
    with there.attempt("rollout", served, environment={"gpus": None}) as attempt:
        draft = attempt.start_artifact("rollouts", meta={"tasks": "micro"})
        draft.path.write_text("{}\n")
        attempt.metrics.update({"episodes": 1, "turns": 1})
        attempt.finish_artifact(draft, rows=1)
    more = served.model_copy(update={"agent_url": ["http://a/v1", "http://b/v1"], "rates": [str(there.path)]})
    one = plan_rollout(None, served.model_copy(update={"rates": [str(there.path)]}), Silent()).as_json()
    two = plan_rollout(None, more, Silent()).as_json()
    assert two["hours"] == pytest.approx(one["hours"] / 2, rel=1e-4)
    assert any("2 times" in sentence for sentence in two["assumed"])


def test_an_evaluation_counts_tests(run: Run) -> None:
    plan = plan_eval(run, EvalConfig(), Silent()).as_json()
    met = done(run, "eval")
    assert (plan["dialogues"], plan["tasks"]) == (met["trajectories"], met["tasks"])
    assert plan["tests"] == 10 * plan["dialogues"]
    assert plan["reference_tests"] == 10 * plan["tasks"]
    assert 0 < plan["answers"] <= plan["dialogues"]
    assert plan["bytes"] == (run.path / "scores/scores-1.jsonl").stat().st_size
    assert plan["hours"] > 0
    assert plan["rates"]["seconds"]["differs"] == []
    assert plan_eval(run, EvalConfig(scorer="upstream"), Silent()).as_json()["hours"] is None, "another scorer's pace"


@pytest.mark.parametrize(
    ("environment", "by"),
    [
        ({"cores": 4}, 0.5),
        ({"cores": 1, "nodes": {name: {"cores": 8} for name in "ab"}}, 0.125),
        ({"cores": None}, 1),
        ({"cores": 4, "nodes": {"a": {"cores": 8}, "b": {}}}, 1),
    ],
)
def test_an_evaluation_is_faster_by_the_cores(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, Any], by: float
) -> None:
    monkeypatch.setattr("sweet.scoring.stage.usable_cores", lambda: 2)
    there, dialogues = Run.create(tmp_path / "there", task="code"), Run.create(tmp_path / "dialogues", task="code")
    with there.attempt("eval", EvalConfig(), environment={"gpus": 0} | environment) as attempt:
        draft = attempt.start_artifact("scores", meta={"scorer": "strict"})
        draft.path.write_text("{}\n")
        attempt.metrics.update({"trajectories": 1})
        attempt.finish_artifact(draft, rows=1)
    put(
        dialogues,
        "rollout",
        "rollouts",
        [row.model_dump() for row in read_jsonl(run.path / "rollouts/rollouts-1.jsonl", Trajectory)],
    )
    plan = plan_eval(dialogues, EvalConfig(device="cpu", rates=[str(there.path)]), Silent()).as_json()
    seconds = plan["dialogues"] * plan["rates"]["seconds"]["value"]
    assert plan["hours"] * 3600 == pytest.approx(seconds / by, rel=1e-3)
    assert bool([sentence for sentence in plan["assumed"] if "times as much" in sentence]) == (by != 1)


def test_an_evaluation_of_pages_counts_those_without_a_screenshot(tmp_path: Path) -> None:
    one, other, reference = (f"<html><body>{name}</body></html>" for name in "abc")
    run = Run.create(tmp_path / "pages", task="html")
    task = {"id": "t", "problem_description": "A page.", "ground_truth": reference}
    said = [{"role": "user", "content": "A page."}, {"role": "assistant", "content": "no page"}]
    answers = [{"answer": one}, {"answer": other}, {"answer": one}, {}]
    rows = [{"id": f"t-s{n}", "task": task, "dialogue_history": said, **rest} for n, rest in enumerate(answers)]
    put(run, "rollout", "rollouts", rows)
    plan = plan_eval(run, EvalConfig(device="cpu"), Silent()).as_json()
    assert (plan["dialogues"], plan["tasks"], plan["screenshots"], plan["screenshots_missing"]) == (4, 1, 3, 3)
    store = ScreenshotStore(run.path / SCREENSHOTS)
    store.put(page_key(one, RenderSettings()), RenderFailed("blocked", "it went away"))
    store.put(page_key(reference, RenderSettings()), Screenshot(b"a picture", 224, 224, ()))
    assert plan_eval(run, EvalConfig(device="cpu"), Silent()).as_json()["screenshots_missing"] == 1


def test_labels_and_pairs_are_counted_as_they_are_made(run: Run) -> None:
    label, pair = plan_label(run, LabelConfig(), Silent()).as_json(), plan_pair(run, PairConfig(), Silent()).as_json()
    assert label["pairs"] == done(run, "label")["pairs"]
    assert (pair["pairs"], pair["turns"]) == (done(run, "pair")["pairs"], done(run, "pair")["turns"])
    assert pair["bytes"] == (run.path / "pairs/pairs-1.jsonl").stat().st_size
    assert label["hours"] > 0
    assert pair["hours"] > 0


def test_a_ranking_draws_the_turns_that_it_ranks(run: Run) -> None:
    config = RankConfig(**{**RANKED, "seed": 1})
    plan, met = plan_rank(run, config, Silent()).as_json(), done(run, "rank")
    assert (plan["turns"], plan["missing"], plan["candidates"]) == (met["turns"], met["turns"], met["candidates"])
    assert plan["hours"] > 0
    tokens = plan["tokens_read"] + plan["tokens_written"] + 2 * plan["tokens_judged"]
    assert plan["flops"] == pytest.approx(2 * MICRO * tokens, rel=0.01)
    plain = plan_rank(run, config.model_copy(update={"packing": "plain"}), Silent()).as_json()
    assert plain["tokens_judged"] > 2 * plan["tokens_judged"]
    there = plan_rank(run, RankConfig(**RANKED), Silent()).as_json()
    assert (there["turns"], there["missing"], there["candidates"]) == (met["turns"], 0, 0)


def test_given_replies_are_only_read(run: Run) -> None:
    plan = plan_rank(run, RankConfig(replies="candidates-1", judge="oracle"), Silent()).as_json()
    rows = list(read_jsonl(run.path / "candidates/candidates-1.jsonl", CandidateRow))
    assert plan["turns"] == len(rows)
    assert (plan["tokens_written"], plan["tokens_judged"], plan["flops"]) == (0, 0, 0)


def test_a_training_has_operations_and_hours(run: Run) -> None:
    plan = plan_train_critic(run, TrainCriticConfig(epochs=2, device="cpu"), Silent()).as_json()
    assert plan["hours"] > 0
    assert (plan["gpus"], plan["gpu_hours"]) == (0, 0)
    trained = 6 * plan["parameters"] * plan["tokens_computed"] * 2
    assert trained < plan["flops"] < 1.5 * trained
    assert plan["bytes"] == pytest.approx((run.path / "critic/critic-1/model.safetensors").stat().st_size, rel=0.02)
    other = plan_train_critic(run, TrainCriticConfig(variant="no-info", epochs=2, device="cpu"), Silent()).as_json()
    assert other["hours"] is None
