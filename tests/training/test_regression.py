"""`train-critic --variant regression`: its data, what is recorded, and the stages that use the critic."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest
import torch

from sweet.errors import UsageError
from sweet.judges.options import find_critic
from sweet.learn.critic import RegressionCritic
from sweet.learn.head import FILE
from sweet.learn.rows import CandidateRow
from sweet.preferences.config import LabelConfig, PairConfig
from sweet.preferences.label import run_label
from sweet.preferences.pair import run_pair
from sweet.ranking.config import RankConfig
from sweet.ranking.stage import run_rank
from sweet.runs.jsonl import read_jsonl
from sweet.runs.run import Run
from sweet.scoring.config import EvalConfig
from sweet.scoring.stage import run_eval
from sweet.stages.base import Silent
from sweet.stages.critics import CriticSettings, load_critic
from sweet.training.config import TrainConfig, TrainCriticConfig
from sweet.training.hyperparameters import LARGE, resolve
from sweet.training.prepare import prepare_critic
from sweet.training.stage import run_train_critic
from tests.learn.builders import assert_trained_alike
from tests.stages.counting import Copying
from tests.stages.learn_runs import make_agent, make_dialogues, make_run, put, score
from tests.training.test_train import weights
from tests.training.test_train_lora import needs_peft
from tests.training.test_train_ranks import needs_deepspeed

TARGETS = ["preference", "binary", "real"]
KINDS: list[dict[str, Any]] = [{"target": "preference"}, {"target": "real"}, {"protocol": "upstream"}]


def config(**changes: Any) -> TrainCriticConfig:
    return TrainCriticConfig(**{"variant": "regression", "epochs": 2, "lr": 2e-3, "batch": 4, **changes})


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_agent(tmp_path_factory.mktemp("models") / "agent")


@pytest.fixture
def run(tmp_path: Path, agent: str) -> Run:
    run = make_run(tmp_path, agent)
    run_label(run, LabelConfig(), Silent())
    return run


@pytest.mark.parametrize("target", TARGETS)
def test_the_target_and_what_a_reader_needs_are_recorded(run: Run, target: str) -> None:
    result = run_train_critic(run, config(target=target, holdout=0.2), Silent())
    artifact, metrics = result.artifacts[0], result.metrics
    source = "preferences" if target == "preference" else "scores"
    attempt = run.manifest().attempts[-1]
    assert [reference.id for reference in attempt.inputs] == [f"{source}-1", "rollouts-1"]
    # Of five tasks with three dialogues each, one of which is preferred to two, one task is kept apart.
    assert (metrics.examples, metrics.heldout) == (8 if target == "preference" else 12, 2)
    assert 0 <= metrics.as_json()["heldout_accuracy"] <= 1
    assert (metrics.accuracy is None) == (target != "preference")
    assert metrics.nll == 0.0
    assert (artifact.meta["variant"], artifact.meta["target"]) == ("regression", target)
    assert "normalize" not in artifact.meta
    assert (run.file(artifact) / FILE).exists()
    assert sorted(path.name for path in run.file(artifact).iterdir()).count("checkpoint.pt") == 0


def test_protocol_upstream_trains_the_published_head(run: Run) -> None:
    from safetensors.torch import load_file

    artifact = run_train_critic(run, config(protocol="upstream"), Silent()).artifacts[0]
    assert (artifact.meta["target"], artifact.meta["beta"], artifact.meta["protocol"]) == ("dialogue", 1.0, "upstream")
    assert load_file(run.file(artifact) / FILE).keys() == {"weight"}
    critic = load_critic(run, artifact, Silent(), CriticSettings())
    assert isinstance(critic, RegressionCritic)
    dialogues = [trajectory for trajectory, _ in make_dialogues()][:4]
    scores = critic.turn_scores(dialogues, None)
    assert critic.score_dialogues(dialogues, None) == pytest.approx([list(found.values())[-1] for found in scores])
    upstream, paper = (training_ids(run, protocol) for protocol in ("upstream", "paper"))
    assert len(upstream) == len(paper)
    assert all(one != other for one, other in zip(upstream, paper, strict=True))


def training_ids(run: Run, protocol: str) -> list[tuple[int, ...]]:
    """The ids of the sequences that a critic is trained on."""
    training, _ = prepare_critic(run, config(protocol=protocol), Silent(), weights=False)
    return [sequence.ids for sequence in training.pool.sequences]


def test_outcomes_are_learned_from_the_scores_behind_the_preferences(run: Run) -> None:
    others = make_dialogues(tasks=2)
    rollouts = put(run, "rollout", "rollouts", [t for t, _ in others], agent="x", tasks="toy", split="test")
    put(run, "eval", "scores", [score(t, reward) for t, reward in others], [rollouts])
    assert run_train_critic(run, config(target="real", holdout=0.0), Silent()).metrics.examples == 15
    agent = str(run.artifact("rollouts-1").meta["agent"])
    named = config(target="real", holdout=0.0, from_="scores-2", model=agent, allow_test=True)
    assert run_train_critic(run, named, Silent()).metrics.examples == 6


def test_scores_alone_are_enough_for_outcomes(tmp_path: Path, agent: str) -> None:
    run = make_run(tmp_path, agent)
    assert run_train_critic(run, config(target="binary"), Silent()).metrics.examples == 15
    with pytest.raises(UsageError, match="preferences"):
        run_train_critic(run, config(), Silent())


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"normalize": "turn"}, "--normalize turn"),
        ({"target": "real", "nll": 0.1}, "--nll 0.1"),
        ({"protocol": "upstream", "beta": 0.5}, "--beta 0.5"),
        ({"variant": "advantage", "target": "binary"}, "--target binary"),
    ],
)
def test_options_that_do_not_go_together_are_refused(run: Run, options: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError) as caught:
        run_train_critic(run, config(**options), Silent())
    assert caught.value.where == named


def test_the_likelihood_term_is_added_with_nll(run: Run) -> None:
    without, with_it = (run_train_critic(run, config(nll=nll), Silent()) for nll in (0.0, 0.5))
    assert with_it.metrics.as_json()["loss"] > without.metrics.as_json()["loss"] + 0.5


@pytest.mark.parametrize("kind", KINDS)
def test_interrupted_and_resumed_equals_uninterrupted(run: Run, kind: dict[str, Any]) -> None:
    settings = config(**kind, batch=2, save_every=2)
    copying = Copying(run, 5, "train-critic")
    whole = run_train_critic(run, settings, copying)
    killed = copying.killed()
    again = run_train_critic(killed, settings.model_copy(update={"resume": True}), Silent())
    first, second = run.file(whole.artifacts[0]), killed.file(again.artifacts[0])
    assert first != second
    assert torch.equal(weights(first), weights(second))
    assert (first / FILE).read_bytes() == (second / FILE).read_bytes()
    assert again.metrics.loss == whole.metrics.loss


def test_trees_train_the_same_as_plain_sequences(run: Run) -> None:
    found = [run.file(run_train_critic(run, config(packing=p), Silent()).artifacts[0]) for p in ("tree", "plain")]
    assert_trained_alike(weights(found[0]), weights(found[1]))


@pytest.mark.parametrize("kind", [{}, {"target": "binary"}, {"protocol": "upstream"}])
def test_it_ranks_candidates_and_chooses_dialogues(run: Run, kind: dict[str, Any]) -> None:
    run_train_critic(run, config(**kind), Silent())
    judge: Literal["critic", "value"] = "value" if kind.get("target") == "binary" else "critic"
    ranked = run_rank(run, RankConfig(judge=judge, candidates=3, fraction=0.2, max_tokens=8), Silent())
    assert ranked.artifacts[0].meta["judge"] == judge
    assert ranked.artifacts[0].meta["protocol"] == kind.get("protocol", "paper")
    assert ranked.artifacts[0].meta["reference_context"] is None, "it has no reference"
    for row in read_jsonl(run.file(ranked.artifacts[0]), CandidateRow):
        scores = [candidate.score for candidate in row.candidates]
        usual = sum(score for score in scores if score is not None) / len(scores)
        assert row.taken is not None
        assert row.basis == "regression"
        for one in (*row.candidates, row.taken):
            assert one.score is not None
            assert one.advantage == pytest.approx(one.score - usual, abs=5e-6)
            assert (one.logprob, one.reference) == (None, None)
    assert run_pair(run, PairConfig(), Silent()).metrics.pairs > 0
    told = run_eval(run, EvalConfig(best_of_by=judge), Silent()).metrics.as_json()["best_of"]
    assert told["critic"] == "critic-1"
    assert told["n"]["1"]["critic"] == told["n"]["1"]["random"]


def test_a_value_function_is_the_newest_critic_that_learned_outcomes(run: Run) -> None:
    with pytest.raises(UsageError, match="needs critic"):
        find_critic(run, "value", None, needed_by="rank")
    made = [run_train_critic(run, config(target=t, epochs=1), Silent()).artifacts[0] for t in ("real", "preference")]
    assert [find_critic(run, judge, None, needed_by="rank").id for judge in ("value", "critic")] == [a.id for a in made]
    with pytest.raises(UsageError, match="critic-2 was not trained on outcomes"):
        find_critic(run, "value", "critic-2", needed_by="rank")


def test_a_regression_critic_has_no_reference_and_needs_its_head(run: Run, agent: str) -> None:
    artifact = run_train_critic(run, config(), Silent()).artifacts[0]
    with pytest.raises(UsageError, match="no reference"):
        load_critic(run, artifact, Silent(), CriticSettings(reference=agent))
    (run.file(artifact) / FILE).unlink()
    with pytest.raises(UsageError, match="cannot be read"):
        load_critic(run, artifact, Silent(), CriticSettings())


@needs_deepspeed
@needs_peft
@pytest.mark.usefixtures("forked_python")
def test_two_ranks_write_the_same_head_and_adapter_as_one_process(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from safetensors.torch import load_file

    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    # All that a job carries to the ranks in one start, most of which is importing; the head is protocol upstream's.
    settings = config(
        target="real",
        protocol="upstream",
        seed=1,
        holdout=0.2,
        shuffle="grouped",
        lora=4,
        lora_output="adapter",
        lr=2e-2,
    )
    several = {"engine": "deepspeed", "devices": 2, "zero": 3, "gradient_checkpointing": "on"}
    one, two = (run_train_critic(run, settings.model_copy(update=more), Silent()) for more in ({}, several))
    same = ("steps", "loss", "heldout_accuracy", "best_step", "parameters", "trained_parameters", "examples")
    for name in same:
        assert getattr(two.metrics, name) == pytest.approx(getattr(one.metrics, name), rel=1e-4, abs=1e-4), name
    folders = [run.file(result.artifacts[0]) for result in (one, two)]
    assert not (folders[1] / "config.json").exists()
    for file in (FILE, "adapter_model.safetensors"):
        expected, found = (load_file(folder / file) for folder in folders)
        assert expected.keys() == found.keys()
        for name, tensor in expected.items():
            assert bool(tensor.any()), name
            assert_trained_alike(found[name], tensor, name)
    ranked = run_rank(run, RankConfig(candidates=2, fraction=0.1, max_tokens=8), Silent())
    assert ranked.metrics.basis == {"regression": ranked.metrics.turns}


def test_hyperparameters_depend_on_the_size_and_have_no_likelihood_term() -> None:
    large, small = (resolve(TrainConfig(), "regression", size, "paper") for size in (LARGE, LARGE - 1))
    assert (large.epochs, large.nll) == (4, 0.0)
    assert small.nll == 0.0
    rates = [resolve(TrainConfig(), "regression", size, "paper").lr for size in (8 * 10**9, 10**6)]
    assert rates == [2e-7, 1.5e-4]
    assert resolve(TrainConfig.model_validate({"nll": 0.1}), "regression", LARGE, "paper").nll == 0.1
