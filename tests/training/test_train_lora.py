"""`--lora`, `--gradient-checkpointing` and `--keep`: every stage that accepts a model accepts the result."""

from __future__ import annotations

import json
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from sweet.errors import UsageError
from sweet.learn.critic import AdvantageCritic
from sweet.learn.lora import LoraSettings
from sweet.learn.rows import CandidateRow
from sweet.learn.tokens import ChatEncoder
from sweet.learn.trainee import Start, Trainee
from sweet.llm.pretrained import load_model, load_tokenizer
from sweet.preferences.config import LabelConfig
from sweet.preferences.label import run_label
from sweet.ranking.config import RankConfig
from sweet.ranking.stage import run_rank
from sweet.runs.jsonl import read_jsonl
from sweet.runs.run import Run
from sweet.stages.base import Silent
from sweet.stages.critics import CriticSettings, load_critic
from sweet.training import model
from sweet.training.config import TrainActorConfig, TrainConfig, TrainCriticConfig
from sweet.training.hyperparameters import LARGE, LORA, resolve
from sweet.training.model import start_of, starting_model, warn_if_too_large
from sweet.training.openrlhf import check_openrlhf
from sweet.training.stage import run_train_actor, run_train_critic
from tests.stages.learn_runs import make_agent, make_run

needs_peft = pytest.mark.skipif(find_spec("peft") is None, reason="peft is not installed")

SETTINGS: dict[str, Any] = {"lora": 4, "lr": 2e-2, "batch": 4, "epochs": 3, "holdout": 0.2}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = make_run(tmp_path, make_agent(tmp_path / "agent", layers=2))
    run_label(run, LabelConfig(), Silent())
    return run


def parameters(path: Path) -> dict[str, torch.Tensor]:
    return dict(load_model(str(path), "cpu").named_parameters())


@needs_peft
def test_a_critic_trained_by_lora_ranks_merged_or_as_an_adapter(run: Run, tmp_path: Path) -> None:
    merged, adapter = (
        run_train_critic(run, TrainCriticConfig(**SETTINGS, lora_output=output), Silent())
        for output in ("merged", "adapter")
    )
    assert 0 < merged.metrics.as_json()["trained_parameters"] < merged.metrics.as_json()["parameters"]
    assert merged.metrics.accuracy == 1.0
    assert merged.artifacts[0].meta["lora"] == 4
    assert merged.artifacts[0].meta["lora_alpha"] == 8
    folders = [run.file(result.artifacts[0]) for result in (merged, adapter)]
    assert {path.name for path in folders[0].iterdir()} >= {"config.json", "model.safetensors"}
    assert not any("adapter" in path.name or "checkpoint" in path.name for path in folders[0].iterdir())
    one, other = map(parameters, folders)
    for name, weights in one.items():
        torch.testing.assert_close(weights, other[name], rtol=1e-5, atol=1e-6)
    base = str(shutil.copytree(tmp_path / "agent", tmp_path / "other"))
    sampled: dict[str, Any] = {"candidates": 2, "limit": 2, "max_tokens": 4}
    advantages: list[dict[Any, float]] = []
    for result in (merged, adapter):
        judge = result.artifacts[0]
        for reference, loads in ((None, result is merged), (base, True)):
            critic = load_critic(run, judge, Silent(), CriticSettings(device="cpu", reference=reference))
            assert isinstance(critic, AdvantageCritic)
            assert (critic.reference.model is not critic.critic.model) == loads, (
                "an adapter has its reference beneath it"
            )
        ranked = run_rank(run, RankConfig(from_=judge.id, device="cpu", **sampled), Silent())
        assert ranked.metrics.failed == 0
        assert (ranked.metrics.mean_spread or 0.0) > 0
        rows = read_jsonl(run.file(ranked.artifacts[0]), CandidateRow)
        advantages.append({(row.key, place): one.advantage for row in rows for place, one in enumerate(row.candidates)})
        sampled = {"replies": ranked.artifacts[0].id}
    assert advantages[0] == pytest.approx(advantages[1], abs=1e-4)


@needs_peft
def test_an_actors_adapter_can_be_trained_further(run: Run, tmp_path: Path) -> None:
    config = TrainActorConfig(algorithm="multi-turn-dpo", lora=4, epochs=1, lr=1e-2, lora_output="adapter")
    folder = run.file(run_train_actor(run, config, Silent()).artifacts[0])
    again = {"algorithm": "rft", "model": str(folder), "epochs": 1}
    further = run_train_actor(run, TrainActorConfig(**again, lora=4, lora_output="adapter"), Silent())
    assert further.artifacts[0].meta["lora_output"] == "adapter"
    own = run.file(further.artifacts[0]) / "adapter_config.json"
    assert json.loads(own.read_text())["r"] == 8, "both as one"
    other = tmp_path / "dora"
    shutil.copytree(folder, other)
    changed = json.loads((other / "adapter_config.json").read_text()) | {"use_dora": True}
    (other / "adapter_config.json").write_text(json.dumps(changed))
    with pytest.raises(UsageError, match="this one has DoRA"):
        start_of(str(other), TrainConfig(lora=4, lora_output="adapter"))
    merged = run_train_actor(run, TrainActorConfig(**again, lora=4), Silent())
    whole = run_train_actor(run, TrainActorConfig(**again), Silent())
    for result in (merged, whole):
        assert (run.file(result.artifacts[0]) / "config.json").exists()


def test_the_best_epoch_is_kept_where_preferences_are_held_out(run: Run) -> None:
    settings: dict[str, Any] = {"epochs": 2, "batch": 4, "lr": 1e-3}
    kept = run_train_critic(run, TrainCriticConfig(**settings, holdout=0.2), Silent())
    assert kept.metrics.best_step in (2, 4)
    assert not [path for path in run.file(kept.artifacts[0]).iterdir() if "checkpoint" in path.name]
    for more in ({"holdout": 0.2, "keep": "last"}, {"holdout": 0.0}):
        assert run_train_critic(run, TrainCriticConfig(**settings, **more), Silent()).metrics.best_step is None
    with pytest.raises(UsageError, match="there are none"):
        run_train_critic(run, TrainCriticConfig(**settings, holdout=0.0, keep="best"), Silent())


def test_recomputed_layers_train_the_same(run: Run) -> None:
    ends = [
        parameters(
            run.file(
                run_train_critic(
                    run, TrainCriticConfig(epochs=2, batch=4, lr=1e-3, gradient_checkpointing=choice), Silent()
                ).artifacts[0]
            )
        )
        for choice in ("on", "off")
    ]
    assert all(torch.equal(weights, ends[1][name]) for name, weights in ends[0].items())


@pytest.mark.parametrize(
    ("choice", "hidden", "on_cpu", "on_gpu"),
    [("auto", 576, False, None), ("auto", 1152, True, None), ("on", 576, True, True), ("off", 1152, False, False)],
)
def test_gradient_checkpointing_depends_on_the_size(
    monkeypatch: pytest.MonkeyPatch, choice: str, hidden: int, on_cpu: bool, on_gpu: bool | None
) -> None:
    """On a CPU both sides of a preference of a model of 500M parameters would save several gigabytes."""
    from transformers import LlamaConfig

    large = LlamaConfig(
        hidden_size=hidden, num_hidden_layers=30, intermediate_size=1536, num_attention_heads=hidden // 64
    )
    monkeypatch.setattr(model, "load_config", lambda _: large)
    starts = []

    def load(start: Start, tokenizer: Any) -> Trainee:
        starts.append(start.recompute)
        return Trainee.on_meta(start, tokenizer=tokenizer)

    config = TrainConfig.model_validate({"gradient_checkpointing": choice})
    for device in ("cpu", "cuda"):
        monkeypatch.setattr(model, "resolve_device", lambda _, device=device: torch.device(device))
        starting_model(config, "micro", ChatEncoder(load_tokenizer("micro")), load)
    assert starts == [on_cpu, on_gpu]
    assert start_of("micro", TrainConfig()) == Start("micro", recompute=False)


def test_a_training_beyond_the_free_memory_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    def warnings(free: int, device: str = "cpu") -> list[str]:
        monkeypatch.setattr(model, "free_memory", lambda: free)
        monkeypatch.setattr(model, "resolve_device", lambda _: torch.device(device))
        found: list[str] = []
        encoder = ChatEncoder(load_tokenizer("micro"))
        start = starting_model(TrainConfig(), "micro", encoder, Trainee.on_meta)
        warn_if_too_large(start, 100, found.append)
        return found

    [warning] = warnings(10)
    assert "10.5 MB are free" in warning
    assert "--lora 16" in warning
    assert not warnings(10_000)
    assert not warnings(10, device="cuda"), "the memory of a GPU is not that of the machine"


@needs_peft
def test_the_options_of_lora_make_its_settings() -> None:
    assert start_of("micro", TrainConfig(lora=16, seed=5)).lora == LoraSettings(16, 32, (), 5)
    options = TrainConfig(lora=8, lora_alpha=8, lora_target=["q_proj", "v_proj"], lora_output="adapter")
    assert start_of("micro", options) == Start("micro", LoraSettings(8, 8, ("q_proj", "v_proj")), "adapter")


@pytest.mark.parametrize(
    ("options", "where"),
    [
        ({"lora_alpha": 8}, "--lora-alpha"),
        ({"lora_output": "merged"}, "--lora-output merged"),
        ({"lora_target": ["q_proj"], "lora_output": "adapter"}, "--lora-target, --lora-output adapter"),
    ],
)
def test_options_of_an_adapter_need_its_rank(options: dict[str, Any], where: str) -> None:
    with pytest.raises(UsageError) as caught:
        start_of("micro", TrainConfig(**options))
    assert caught.value.where == where


def test_openrlhf_trains_no_adapter() -> None:
    with pytest.raises(UsageError) as caught:
        check_openrlhf(TrainActorConfig(engine="openrlhf", lora=8))
    assert caught.value.where == "--lora --engine openrlhf"


def test_an_adapters_rate_is_a_multiple_of_the_whole_models() -> None:
    for size in (LARGE, 10**6):
        whole, adapter = (resolve(TrainConfig(lora=lora), "critic", size, "paper") for lora in (None, 8))
        assert adapter.lr == pytest.approx(LORA * whole.lr)
        assert (adapter.nll, adapter.epochs, adapter.batch) == (whole.nll, whole.epochs, whole.batch)
    assert resolve(TrainConfig.model_validate({"lr": 1.0, "lora": 8}), "critic", LARGE, "paper").lr == 1.0
