"""Each credit rule learns online, and a training that was interrupted ends with bitwise the same weights.

What is stored of a training of a rule without models of its own, and whose dialogues are no trees, is that of `grpo`,
whose training is interrupted in `test_train_online`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from sweet.credit.names import rule_names
from sweet.credit.registry import rule_class
from sweet.errors import UsageError
from sweet.learn.trainee import save_model
from sweet.llm.pretrained import load_model, load_tokenizer
from sweet.online.config import TrainOnlineConfig
from sweet.online.stage import plan_train_online, run_train_online
from sweet.runs.run import Run
from sweet.stages.base import Reporter, Silent, StageResult
from tests.packages import write_package
from tests.runs.conftest import Settings
from tests.stages.counting import Copying

OPTIONS: dict[str, Any] = {
    "steps": 2,
    "tasks_per_step": 1,
    "group": 4,
    "tasks": "micro",
    "max_turns": 6,
    "max_tokens": 48,
    "seed": 8,  # some dialogues of each step solve its task, and some do not
    "save_every": 1,
    "device": "cpu",
    "deterministic": True,
}

SPREAD = """
from sweet.credit.base import Credit, nothing_to_learn
from sweet.credit.groups import GRPO

class Spread(GRPO):
    name = "spread"

    def credit(self, batch, models):
        found = []
        for one in super().credit(batch, models):
            found.append(Credit(one.of, policy={turn: value / len(one.policy) for turn, value in one.policy.items()}))
        return found
"""

DIALOGUES = OPTIONS["tasks_per_step"] * OPTIONS["group"]
"""Of one step."""

STORED_AS_GRPO: list[tuple[str, list[str]]] = [
    ("rloo", []),
    ("rft", []),
    ("gigpo", []),
    ("mt-grpo", ["turns=credit"]),
    ("igpo", []),
    ("infopo", []),
    ("spread", []),
]
WITH_MORE = [
    ("ppo", ["value-epochs=2"]),
    ("tree-grpo", ["branches=1"]),
    ("mr", []),
    ("istar", ["reward-epochs=2", "reward-batch=4"]),
    ("itpo", ["reward-batch=4"]),
    ("opsd", ["teacher=average", "rate=0.5"]),
    ("opsd", ["form=top", "k=4"]),
    ("sweet-pg", ["episode=yes"]),
]


def config(algorithm: str, **more: Any) -> TrainOnlineConfig:
    return TrainOnlineConfig.model_validate(OPTIONS | {"algorithm": algorithm} | more)


def make_run(path: Path, *, critic: bool) -> Run:
    """A run; with a critic, one that is not yet trained far: its reference with noise."""
    run = Run.create(path, "code")
    if critic:
        model, tokenizer = load_model("micro", "cpu"), load_tokenizer("micro")
        noise = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.02 * parameter.std() * torch.randn(parameter.shape, generator=noise)
        with run.attempt("train-critic", Settings()) as attempt:
            meta = {"variant": "advantage", "base": "micro", "protocol": "paper", "beta": 0.1, "normalize": "turn"}
            draft = attempt.start_artifact("critic", suffix="", meta=meta)
            save_model(model, tokenizer, draft.path)
            attempt.finish_artifact(draft)
    return run


def weights(run: Run) -> dict[str, torch.Tensor]:
    return load_file(run.path / "actor" / "actor-1" / "model.safetensors")


def rows(run: Run) -> list[str]:
    return (run.path / "rollouts" / "rollouts-1.jsonl").read_text().splitlines()


@pytest.fixture
def spread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule of another package."""
    site = tmp_path / "site"
    for folder in write_package(site, "sweet-spread", "", {"spread": "sweet_spread_rule:Spread"}, group="sweet.credit"):
        monkeypatch.syspath_prepend(folder)
    (site / "sweet_spread_rule.py").write_text(SPREAD)


def trained(run: Run, asked: TrainOnlineConfig, reporter: Reporter | None = None) -> StageResult:
    """Train two steps to their end, after which the weights are others."""
    whole = run_train_online(run, asked, reporter or Silent())
    assert whole.metrics.updates >= 2
    assert whole.artifacts[-1].id == "rollouts-1"
    trees = [json.loads(row).get("branched") for row in rows(run)]
    branched = {"tree-grpo": 4, "mr": 2}.get(asked.algorithm, 8)
    assert sum(one is None for one in trees) == branched, "the others are branches"
    found, start = weights(run), load_model("micro", "cpu").state_dict()
    assert not all(torch.equal(found[name], start[name]) for name in found)
    return whole


@pytest.mark.usefixtures("spread")
@pytest.mark.parametrize(("rule", "options"), STORED_AS_GRPO)
def test_a_rule_learns(tmp_path: Path, rule: str, options: list[str]) -> None:
    result = trained(make_run(tmp_path / "run", critic=False), config(rule, rule_option=options))
    assert [ref.id for ref in result.artifacts[0].inputs] == ["scores-1", "rollouts-1"]


@pytest.mark.parametrize(("rule", "options"), WITH_MORE)
def test_an_interrupted_training_ends_in_the_same_weights(tmp_path: Path, rule: str, options: list[str]) -> None:
    run = make_run(tmp_path / "run", critic=rule == "sweet-pg")
    asked = config(rule, rule_option=options)
    # In the last step: weights, optimizer and the state of the other models come from the checkpoint before it.
    copying = Copying(run, DIALOGUES + 2, "dialogues")
    trained(run, asked, copying)
    killed = copying.killed()
    before = rows(killed)
    assert DIALOGUES < len(before) < 2 * DIALOGUES
    again = run_train_online(killed, asked.model_copy(update={"resume": True}), Silent())
    assert [artifact.id for artifact in again.artifacts] == ["actor-1", "scores-1", "rollouts-1"]
    assert rows(killed)[: len(before)] == before, "no dialogue is played twice"
    first, second = weights(run), weights(killed)
    assert all(torch.equal(first[name], second[name]) for name in first)
    inputs = [ref.id for ref in again.artifacts[0].inputs]
    assert inputs == ["scores-1", "rollouts-1", *(["critic-1"] if rule == "sweet-pg" else [])]


def test_every_rule_that_learns_online_is_tested() -> None:
    online = {name for name in rule_names() if rule_class(name).online}
    tested = {rule for rule, _ in (*STORED_AS_GRPO, *WITH_MORE)} - {"spread"} | {"grpo"}
    assert online == tested, "grpo is in test_train_online"


def test_a_rule_that_asks_a_critic_needs_one_in_the_run(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", critic=False)
    for planned in (run, None):
        with pytest.raises(UsageError, match="train-online --algorithm sweet-pg needs") as error:
            plan_train_online(planned, config("sweet-pg"), Silent())
        assert "train-critic" in str(error.value.fix)
    with pytest.raises(UsageError, match="grpo asks no critic"):
        plan_train_online(run, config("grpo", critic="critic-1"), Silent())


@pytest.mark.parametrize(("more", "what"), [({"staleness": 1}, "depends on the time"), ({"sim": "micro"}, "last bits")])
def test_a_deterministic_training_depends_on_nothing_else(tmp_path: Path, more: dict[str, Any], what: str) -> None:
    run = make_run(tmp_path / "run", critic=False)
    with pytest.raises(UsageError, match=what):
        plan_train_online(run, config("grpo", **more), Silent())


def test_a_training_beyond_the_free_memory_is_warned_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Noting(Silent):
        def warn(self, text: str) -> None:
            warnings.append(text)

    warnings: list[str] = []
    run = make_run(tmp_path / "run", critic=False)
    for free in (100_000, 10):
        monkeypatch.setattr("sweet.training.model.free_memory", lambda free=free: free)
        plan_train_online(run, config("grpo"), Noting())
    [warning] = warnings
    assert "10.5 MB are free" in warning


def test_a_finished_training_is_not_repeated_when_it_is_resumed(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", critic=False)
    asked = config("grpo", steps=1)
    first = run_train_online(run, asked, Silent())
    again = run_train_online(run, asked.model_copy(update={"resume": True}), Silent())
    assert again.metrics == first.metrics
    assert [one.id for one in again.artifacts] == ["actor-1", "scores-1", "rollouts-1"]
    assert [one.sha256 for one in again.artifacts] == [one.sha256 for one in first.artifacts]
    assert {run.stale(artifact) for artifact in run.manifest().artifacts} == {None}
    new = run_train_online(run, asked, Silent())
    assert new.artifacts[0].id == "actor-2"


@pytest.mark.parametrize(
    ("rule", "options"), [("istar", ["reward-batch=4"]), ("opsd", ["teacher=average", "rate=0.5"])]
)
def test_an_adapter_s_other_models_are_adapters_too(tmp_path: Path, rule: str, options: list[str]) -> None:
    pytest.importorskip("peft")
    run = make_run(tmp_path / "run", critic=False)
    asked = config(rule, rule_option=options, lora=2, lr=5e-3)
    copying = Copying(run, DIALOGUES + 2, "dialogues")
    whole = run_train_online(run, asked, copying)
    killed = copying.killed()
    saved = torch.load(killed.path / "actor" / "actor-1" / "checkpoint.pt", weights_only=True)["state"]["models"]
    kept = saved["average"] if rule == "opsd" else saved["reward"]["model"]
    assert all("lora_" in name for name in kept), "only the adapter's weights are kept twice"
    again = run_train_online(killed, asked.model_copy(update={"resume": True}), Silent())
    first, second = weights(run), weights(killed)
    assert all(torch.equal(first[name], second[name]) for name in first)
    for result in (whole, again):
        assert result.metrics.kl_start is not None
        assert result.metrics.kl_start > 0, "the start is the model without the adapter"
        assert result.metrics.trained_parameters < result.metrics.parameters  # type: ignore[operator]
    assert whole.artifacts[0].meta["lora"] == 2
