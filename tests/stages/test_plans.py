"""`--dry-run` of the stages tells what they then do, and leaves the run as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sweet.learn.rows import CandidateRow
from sweet.preferences.config import LabelConfig, PairConfig
from sweet.preferences.label import plan_label, run_label
from sweet.preferences.pair import plan_pair, run_pair
from sweet.ranking.config import RankConfig
from sweet.ranking.plan import plan_rank
from sweet.ranking.stage import run_rank
from sweet.rollouts.config import RolloutConfig
from sweet.rollouts.plan import plan_rollout
from sweet.rollouts.stage import run_rollout
from sweet.runs.jsonl import read_jsonl
from sweet.runs.run import Run
from sweet.scoring.config import EvalConfig
from sweet.scoring.stage import plan_eval, run_eval
from sweet.stages.base import Silent
from sweet.training.config import TrainCriticConfig
from sweet.training.stage import run_train_critic
from tests.stages.learn_runs import put
from tests.stages.test_estimate import files

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
    assert plan["assumed"] == ["A dialogue has as many turns and tokens as one of rollouts-1."]


def test_what_is_there_is_not_played_again(run: Run) -> None:
    plan = plan_rollout(run, RolloutConfig(**PLAYED), Silent()).as_json()
    assert (plan["dialogues"], plan["missing"], plan["turns"]) == (48, 0, 0)


def test_a_rollout_without_a_run_is_counted() -> None:
    alone = plan_rollout(None, RolloutConfig(**PLAYED), Silent()).as_json()
    assert (alone["dialogues"], alone["turns"], alone["tokens_read"], alone["assumed"]) == (48, None, None, [])


def test_an_evaluation_counts_tests(run: Run) -> None:
    plan = plan_eval(run, EvalConfig(), Silent()).as_json()
    met = done(run, "eval")
    assert (plan["dialogues"], plan["tasks"]) == (met["trajectories"], met["tasks"])
    assert plan["tests"] == 10 * plan["dialogues"]
    assert plan["reference_tests"] == 10 * plan["tasks"]
    assert 0 < plan["answers"] <= plan["dialogues"]


def test_an_evaluation_of_pages_counts_dialogues_and_answers(tmp_path: Path) -> None:
    one, other, reference = (f"<html><body>{name}</body></html>" for name in "abc")
    run = Run.create(tmp_path / "pages", task="html")
    task = {"id": "t", "problem_description": "A page.", "ground_truth": reference}
    said = [{"role": "user", "content": "A page."}, {"role": "assistant", "content": "no page"}]
    answers = [{"answer": one}, {"answer": other}, {"answer": one}, {}]
    rows = [{"id": f"t-s{n}", "task": task, "dialogue_history": said, **rest} for n, rest in enumerate(answers)]
    put(run, "rollout", "rollouts", rows)
    plan = plan_eval(run, EvalConfig(device="cpu"), Silent()).as_json()
    assert (plan["dialogues"], plan["tasks"], plan["answers"]) == (4, 1, 3)
    assert "tests" not in plan


def test_labels_and_pairs_are_counted_as_they_are_made(run: Run) -> None:
    label, pair = plan_label(run, LabelConfig(), Silent()).as_json(), plan_pair(run, PairConfig(), Silent()).as_json()
    assert label["pairs"] == done(run, "label")["pairs"]
    assert (pair["pairs"], pair["turns"]) == (done(run, "pair")["pairs"], done(run, "pair")["turns"])


def test_a_ranking_draws_the_turns_that_it_ranks(run: Run) -> None:
    config = RankConfig(**{**RANKED, "seed": 1})
    plan, met = plan_rank(run, config, Silent()).as_json(), done(run, "rank")
    assert (plan["turns"], plan["missing"], plan["candidates"]) == (met["turns"], met["turns"], met["candidates"])
    assert plan["tokens_judged"] > plan["tokens_written"] > 0
    plain = plan_rank(run, config.model_copy(update={"packing": "plain"}), Silent()).as_json()
    assert plain["tokens_judged"] > 2 * plan["tokens_judged"]
    there = plan_rank(run, RankConfig(**RANKED), Silent()).as_json()
    assert (there["turns"], there["missing"], there["candidates"]) == (met["turns"], 0, 0)


def test_given_replies_are_only_read(run: Run) -> None:
    plan = plan_rank(run, RankConfig(replies="candidates-1", judge="oracle"), Silent()).as_json()
    rows = list(read_jsonl(run.path / "candidates/candidates-1.jsonl", CandidateRow))
    assert plan["turns"] == len(rows)
    assert (plan["tokens_written"], plan["tokens_judged"]) == (0, 0)
