"""`--dry-run` of the trainings tells what they then do, and leaves the run as it was."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from sweet.errors import SweetError
from sweet.learn.distributed import Layout, world_size
from sweet.preferences.config import LabelConfig
from sweet.preferences.label import run_label
from sweet.runs.run import Run
from sweet.stages.base import Silent
from sweet.training.config import TrainActorConfig, TrainCriticConfig
from sweet.training.stage import plan_train_actor, plan_train_critic, run_train_actor, run_train_critic
from tests.stages.learn_runs import make_agent, make_run
from tests.training.test_train import put_pairs


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = make_run(tmp_path, make_agent(tmp_path / "agent", layers=2))
    run_label(run, LabelConfig(), Silent())
    return run


def files(run: Run) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in run.path.rglob("*") if path.is_file()}


def first_epoch(run: Run, attempt: str) -> list[dict[str, Any]]:
    lines = (run.path / "logs" / f"{attempt}.jsonl").read_text().splitlines()
    return [row for row in map(json.loads, lines) if row.get("epoch") == 1 and "loss" in row]


@pytest.mark.parametrize("packing", ["tree", "plain"])
def test_the_plan_counts_what_the_training_computes(run: Run, packing: Any) -> None:
    config = TrainCriticConfig(packing=packing, holdout=0.2, epochs=2, batch=3, micro_batch_tokens=600)
    before = files(run)
    plan = plan_train_critic(run, config, Silent()).as_json()
    assert files(run) == before
    made = run_train_critic(run, config, Silent())
    rows = first_epoch(run, made.artifacts[0].attempt)
    for name in ("tokens", "tokens_computed"):
        assert plan[name] == sum(row[name] for row in rows), name
    for name in ("steps", "parameters", "examples", "heldout", "lr", "batch"):
        assert plan[name] == getattr(made.metrics, name), name
    assert plan["trainable"] == plan["parameters"]
    assert (plan["sharing"] > 1.5) == (packing == "tree")
    assert plan["sharing"] == pytest.approx(made.metrics.sharing, rel=0.1)
    assert (plan["padding"] > 0) == (packing == "plain")
    assert plan["micro_batches"] >= len(rows)
    memory = plan["memory"]
    assert memory["total"] == pytest.approx(sum(memory.values()) - memory["total"] - memory["host"], abs=9)
    assert memory["optimizer"] == 2 * memory["weights"] == 8 * plan["parameters"]


def test_an_actor_is_planned_by_every_method(run: Run) -> None:
    put_pairs(run)
    for method in ("sweet", "multi-turn-dpo", "rft", "sft"):
        config = TrainActorConfig(algorithm=method, epochs=1)
        plan = plan_train_actor(run, config, Silent()).as_json()
        made = run_train_actor(run, config, Silent()).metrics
        assert {name: plan[name] for name in ("examples", "steps", "tokens", "tokens_computed")} == {
            name: getattr(made, name) for name in ("examples", "steps", "tokens", "tokens_computed")
        }
    assert "memory" not in plan_train_actor(run, TrainActorConfig(engine="openrlhf"), Silent()).as_json()


@pytest.mark.skipif(find_spec("deepspeed") is None, reason="deepspeed is not installed")
def test_several_devices_share_what_is_kept(run: Run, tmp_path: Path) -> None:
    alone = plan_train_critic(run, TrainCriticConfig(epochs=1), Silent()).as_json()
    hosts = tmp_path / "hosts"
    hosts.write_text("# two machines\nnode-1 slots=2\n\nnode-2 slots=2\n")
    config = TrainCriticConfig(epochs=1, engine="deepspeed", hostfile=hosts, device="cpu")
    four = plan_train_critic(run, config, Silent()).as_json()
    assert (four["devices"], four["zero"]) == (4, 3)
    assert four["memory"]["weights"] == round(alone["memory"]["weights"] / 4)
    assert four["tokens_computed"] >= alone["tokens_computed"]
    assert world_size(Layout(1, hosts)) == 2
    assert world_size(Layout(3)) == 3


def test_logits_are_counted_where_they_are_formed(run: Run) -> None:
    put_pairs(run)
    for nll in (0.0, 0.5):
        head = plan_train_critic(run, TrainCriticConfig(variant="regression", nll=nll), Silent()).as_json()
        assert (head["memory"]["logits"] > 0) == (nll > 0)
    replies, whole = (
        plan_train_actor(run, TrainActorConfig(protocol=protocol), Silent()).as_json()["memory"]["logits"]
        for protocol in ("paper", "upstream")
    )
    assert whole > 1.5 * replies, "upstream's likelihood is of every token"


def test_nothing_to_train_on_is_said(run: Run) -> None:
    with pytest.raises(SweetError):
        plan_train_actor(run, TrainActorConfig(), Silent()).as_json()
