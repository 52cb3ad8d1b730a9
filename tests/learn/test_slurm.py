"""Reading a Slurm allocation and building srun's command line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sweet.errors import SweetError, UsageError
from sweet.learn.slurm import Allocation, allocated_nodes, allocation, srun_command, srun_environment

FAKE_SLURM = Path(__file__).parents[1] / "training" / "fake_slurm"
JOB = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "3", "SLURM_JOB_NODELIST": "gpu[08-10]", "SLURM_GPUS_ON_NODE": "8"}


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the whole PATH, with an srun and an scontrol."""
    monkeypatch.setenv("PATH", str(tmp_path))
    put(tmp_path / "srun", "")
    put(tmp_path / "scontrol", 'test "$1 $2" = "show hostnames" && echo "$3"')
    return tmp_path


def put(program: Path, script: str) -> None:
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


@pytest.mark.parametrize(
    ("nodes", "names"),
    [
        ("node1", "node1"),
        ("node[01-03,7],gpu-a", "node01 node02 node03 node7 gpu-a"),
        ("rack[1-2]-n[1,3].example", "rack1-n1.example rack1-n3.example rack2-n1.example rack2-n3.example"),
    ],
)
def test_a_node_list_with_brackets_is_expanded(nodes: str, names: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{FAKE_SLURM}{os.pathsep}{os.environ['PATH']}")
    assert allocation(JOB | {"SLURM_JOB_NODELIST": nodes}).hosts == tuple(names.split())


def test_the_environment_names_the_nodes_and_their_gpus(tools: Path) -> None:
    assert allocation(JOB) == Allocation(("gpu[08-10]",), 8)
    requested = JOB | {"SLURM_GPUS_ON_NODE": "", "SLURM_GPUS_PER_NODE": "a100:4,h100:2"}
    assert allocation(requested).gpus == 6
    assert allocation({"SLURM_JOB_NODELIST": "a"}) == Allocation(("a",), None)
    assert (allocated_nodes(JOB), allocated_nodes({})) == (3, 0)


def test_errors_of_scontrol_are_reported(tools: Path) -> None:
    put(tools / "scontrol", "echo not today >&2; exit 1")
    with pytest.raises(SweetError, match="not today"):
        allocation(JOB)
    put(tools / "scontrol", "")
    with pytest.raises(SweetError, match="to no host"):
        allocation(JOB)
    (tools / "scontrol").unlink()
    with pytest.raises(SweetError, match="scontrol does not expand the node list") as caught:
        allocation(JOB)
    assert caught.value.fix == "load Slurm's commands into PATH, or pass a hostfile"


def test_missing_prerequisites_are_reported(tools: Path) -> None:
    with pytest.raises(UsageError, match="not a Slurm job"):
        allocation({})
    with pytest.raises(UsageError, match="started this command 16 times") as caught:
        allocation(JOB | {"SLURM_STEP_NUM_TASKS": "16"})
    assert caught.value.fix == "run it without srun"
    (tools / "srun").unlink()
    with pytest.raises(UsageError, match="srun is not found"):
        allocation(JOB)


def test_each_node_gets_one_task_with_all_resources_of_the_job() -> None:
    command = srun_command(2, 8, ["python", "x"])
    assert command[:4] == ["srun", "--nodes=2", "--ntasks=2", "--ntasks-per-node=1"]
    assert command[-3:] == ["--gpus-per-node=8", "python", "x"]
    assert not any("gpus" in word for word in srun_command(2, None, ["python"]))
    task_options = [
        "SLURM_CPUS_PER_TASK",
        "SRUN_CPUS_PER_TASK",
        "SLURM_GPUS_PER_TASK",
        "SLURM_NTASKS_PER_GPU",
        "SLURM_TRES_PER_TASK",
    ]
    task_options += [
        "SLURM_CPU_BIND",
        "SLURM_CPU_BIND_TYPE",
        "SLURM_GPU_BIND",
        "SLURM_MEM_PER_GPU",
        "SLURM_DISTRIBUTION",
    ]
    inherited = {"SLURM_JOB_ID": "7", "SLURM_GPUS_PER_NODE": "8", "HOME": "/h"}
    assert srun_environment(dict.fromkeys(task_options, "1") | inherited) == inherited
