"""Where the ranks of a training are to run, as its options and the Slurm job say."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from sweet.errors import UsageError
from sweet.learn import distributed, slurm
from sweet.learn.distributed import Layout, Nodes, world_size
from sweet.training.config import TrainConfig
from sweet.training.layout import layout_of, unused_nodes

HOSTS = ("node-a", "node-b")


def config(**options: Any) -> TrainConfig:
    return TrainConfig(**{"engine": "deepspeed", "device": "cpu", **options})


@pytest.fixture(autouse=True)
def deepspeed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "find_spec", lambda name: object())


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What Slurm has given (`gpus` of a node), and the GPUs that torch sees (`seen`): to be changed."""
    told: dict[str, Any] = {"gpus": None, "seen": 0}
    monkeypatch.setattr(slurm, "allocation", lambda environment: slurm.Allocation(HOSTS, told["gpus"]))
    monkeypatch.setattr("torch.cuda.is_available", lambda: told["seen"] > 0)
    monkeypatch.setattr("torch.cuda.device_count", lambda: told["seen"])
    return told


def test_a_node_by_hand_is_told_by_three_options() -> None:
    layout = layout_of(config(nnodes=2, node_rank=1, devices=3, master_addr="node-a"))
    assert layout == Layout(3, nodes=Nodes(2, "node-a", 1))
    assert world_size(layout) == 6
    layout = layout_of(config(nnodes=2, node_rank=0))
    assert layout is not None
    assert layout.nodes == Nodes(2, socket.gethostname(), 0)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"nnodes": 2}, "told how many there are and which it is"),
        ({"node_rank": 0}, "told how many there are and which it is"),
        ({"nnodes": 2, "node_rank": 2}, "the first is 0 and the last 1"),
        ({"nnodes": 2, "node_rank": 0, "hostfile": Path("hosts")}, "each is started by itself"),
        ({"master_addr": "node-a"}, "where to meet"),
        ({"nnodes": 2, "node_rank": 0, "master_addr": "node-a:29500"}, "neither a host name nor"),
        ({"engine": "openrlhf", "nnodes": 2, "node_rank": 0}, "takes hosts from a file"),
        ({"engine": "openrlhf", "hostfile": Path("slurm")}, "takes hosts from a file"),
    ],
)
def test_options_of_nodes_go_together(options: dict[str, Any], what: str) -> None:
    with pytest.raises(UsageError, match=what):
        layout_of(config(**options))


def test_slurm_gives_nodes_and_gpus(given: dict[str, Any]) -> None:
    given |= {"gpus": 8, "seen": 8}
    by_slurm = config(device="auto", hostfile=Path("slurm"))
    assert layout_of(by_slurm) == Layout(8, nodes=Nodes(2, "node-a", gpus=8))
    assert world_size(layout_of(by_slurm)) == 16
    four = by_slurm.model_copy(update={"devices": 4, "master_addr": "10.0.0.1"})
    assert layout_of(four) == Layout(4, nodes=Nodes(2, "10.0.0.1", gpus=4))
    with pytest.raises(UsageError, match="given 8 GPUs of each node") as caught:
        layout_of(by_slurm.model_copy(update={"devices": 9}))
    assert caught.value.fix == "--devices 8"


def test_slurm_without_gpus_is_said_unless_cpus_are_asked_for(given: dict[str, Any]) -> None:
    by_slurm = config(device="auto", hostfile=Path("slurm"))
    with pytest.raises(UsageError, match="has no GPUs") as caught:
        layout_of(by_slurm)
    assert caught.value.fix == "sbatch --gpus-per-node=8, or --device cpu"
    given["gpus"] = 8
    with pytest.raises(UsageError, match="has 8 GPUs a node, and torch sees none here"):
        layout_of(by_slurm)
    on_cpus = by_slurm.model_copy(update={"device": "cpu", "devices": 2})
    assert layout_of(on_cpus) == Layout(2, nodes=Nodes(2, "node-a"))


def test_nodes_that_are_left_unused_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert unused_nodes(config()) is None
    for name, value in (("SLURM_JOB_ID", "7"), ("SLURM_JOB_NUM_NODES", "2")):
        monkeypatch.setenv(name, value)
    assert "2 nodes and one is used" in (unused_nodes(config()) or "")
    assert unused_nodes(config(hostfile=Path("slurm"))) is None
    assert unused_nodes(config(nnodes=2, node_rank=0)) is None
