"""Where the ranks of a training run, from its options and the Slurm job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sweet.errors import UsageError
from sweet.learn import distributed, slurm
from sweet.learn.distributed import Layout, world_size
from sweet.training.config import TrainActorConfig, TrainConfig
from sweet.training.layout import layout_of, unused_nodes
from sweet.training.openrlhf import check_openrlhf

HOSTS = ("node-a", "node-b")


def config(**options: Any) -> TrainConfig:
    return TrainConfig(**{"engine": "deepspeed", "device": "cpu", **options})


@pytest.fixture(autouse=True)
def deepspeed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "find_spec", lambda name: object())


@pytest.fixture
def allocation(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The GPUs of each node that Slurm has allocated (`gpus`) and those that torch sees (`seen`); tests change them."""
    found: dict[str, Any] = {"gpus": None, "seen": 0}
    monkeypatch.setattr(slurm, "allocation", lambda environment: slurm.Allocation(HOSTS, found["gpus"]))
    monkeypatch.setattr("torch.cuda.is_available", lambda: found["seen"] > 0)
    monkeypatch.setattr("torch.cuda.device_count", lambda: found["seen"])
    return found


def test_openrlhf_needs_a_file_of_hosts() -> None:
    with pytest.raises(UsageError, match="reads hosts from a file"):
        check_openrlhf(TrainActorConfig(engine="openrlhf", hostfile=Path("slurm")))


def test_slurm_provides_nodes_and_gpus(allocation: dict[str, Any]) -> None:
    allocation |= {"gpus": 8, "seen": 8}
    by_slurm = config(device="auto", hostfile=Path("slurm"))
    assert layout_of(by_slurm) == Layout(8, nodes=slurm.Allocation(HOSTS, gpus=8))
    assert world_size(layout_of(by_slurm)) == 16
    assert layout_of(by_slurm.model_copy(update={"devices": 4})) == Layout(4, nodes=slurm.Allocation(HOSTS, gpus=4))
    with pytest.raises(UsageError, match="allocated 8 GPUs of each node") as caught:
        layout_of(by_slurm.model_copy(update={"devices": 9}))
    assert caught.value.fix == "--devices 8"


def test_slurm_without_gpus_is_an_error_unless_cpus_are_requested(allocation: dict[str, Any]) -> None:
    by_slurm = config(device="auto", hostfile=Path("slurm"))
    with pytest.raises(UsageError, match="has no GPUs") as caught:
        layout_of(by_slurm)
    assert caught.value.fix == "sbatch --gpus-per-node=8, or --device cpu"
    allocation["gpus"] = 8
    with pytest.raises(UsageError, match="has 8 GPUs per node, and torch sees none here"):
        layout_of(by_slurm)
    on_cpus = by_slurm.model_copy(update={"device": "cpu", "devices": 2})
    assert layout_of(on_cpus) == Layout(2, nodes=slurm.Allocation(HOSTS, None))


def test_unused_nodes_of_a_slurm_job_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert unused_nodes(config()) is None
    for name, value in (("SLURM_JOB_ID", "7"), ("SLURM_JOB_NUM_NODES", "2")):
        monkeypatch.setenv(name, value)
    assert "2 nodes and one is used" in (unused_nodes(config()) or "")
    assert unused_nodes(config(hostfile=Path("slurm"))) is None
