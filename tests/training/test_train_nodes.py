"""Two nodes, each with its own launcher, started separately or by srun: the result of one process, and a common end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from sweet.preferences.config import LabelConfig
from sweet.preferences.label import run_label
from sweet.runs.run import Run
from sweet.stages.base import Silent
from sweet.training.config import TrainCriticConfig
from sweet.training.stage import run_train_critic
from sweet.training.trainer import RANKS
from tests import programs
from tests.stages.learn_runs import make_agent, make_run
from tests.training.test_train_ranks import PATIENCE, processes_about, wait_until

pytestmark = [
    pytest.mark.skipif(find_spec("deepspeed") is None, reason="deepspeed is not installed"),
    pytest.mark.skipif(sys.platform != "linux", reason="processes are found under /proc"),
]

OPTIONS = ["--engine", "deepspeed", "--device", "cpu", "--master-addr", "127.0.0.1", "--batch", "2", "--lr", "1e-3"]
SLURM = ["--hostfile", "slurm"]
JOB = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "node-a,node-b", "SLURM_JOB_NUM_NODES": "2"}
FAKES = Path(__file__).parent / "fake_slurm"
PYTHON = Path(sys.executable).parent
"""The folder of the `python3` that runs the fakes. Another one, a shim say, might change the environment."""


def by_hand(rank: int) -> list[str]:
    return ["--nnodes", "2", "--node-rank", str(rank)]


@pytest.fixture(autouse=True)
def job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The environment of a Slurm job of two nodes, whose tasks were to be one a GPU."""
    monkeypatch.setenv("SWEET_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PATH", os.pathsep.join([str(FAKES), str(PYTHON), os.environ["PATH"]]))
    monkeypatch.setenv("FAKE_SRUN_CALL", str(tmp_path / "srun.json"))
    for name, value in (JOB | {"SLURM_CPUS_PER_TASK": "1", "SLURM_NTASKS_PER_NODE": "8"}).items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = make_run(tmp_path, make_agent(tmp_path / "agent"))
    run_label(run, LabelConfig(), Silent())
    return run


@contextlib.contextmanager
def sweet(run: Run, *options: str) -> Iterator[subprocess.Popen[str]]:
    """The program itself, training a critic; what it tells is on its stderr."""
    words = [*programs.SWEET, "train-critic", str(run.path), *OPTIONS, *options]
    pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    environment = os.environ | {"COLUMNS": "300"}
    with programs.start(words, env=environment, executable=sys.executable, text=True, **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


def same_weights(run: Run, one: str, other: str) -> None:
    first, second = (load_file(run.path / "critic" / name / "model.safetensors") for name in (one, other))
    assert first.keys() == second.keys()
    for name, weights in first.items():
        torch.testing.assert_close(weights, second[name], rtol=1e-3, atol=1e-5)


@pytest.mark.usefixtures("forked_python")
def test_two_nodes_train_as_one_process(run: Run, tmp_path: Path) -> None:
    with sweet(run, *by_hand(1), "--epochs", "1", "--json") as other:
        with sweet(run, *by_hand(0), "--epochs", "1") as first:
            said = first.communicate(timeout=PATIENCE)[1]
        helped, narration = other.communicate(timeout=PATIENCE)
    assert (first.returncode, other.returncode) == (0, 0), said + narration
    told = json.loads(helped)
    assert told["metrics"].items() >= {"node": 1, "nodes": 2, "ranks": 1}.items()
    assert [artifact["id"] for artifact in told["artifacts"]] == ["critic-1"]
    attempts = [attempt for attempt in run.manifest().attempts if attempt.stage == "train-critic"]
    assert [(attempt.status, attempt.outputs) for attempt in attempts] == [("done", ["critic-1"])]

    with sweet(run, *SLURM, "--epochs", "1") as by_srun:
        said = by_srun.communicate(timeout=PATIENCE)[1]
    assert by_srun.returncode == 0, said
    call = json.loads((tmp_path / "srun.json").read_text())
    assert {"--nodes=2", "--ntasks=2"} <= set(call["words"])
    assert "SLURM_CPUS_PER_TASK" not in call["environment"]

    one = TrainCriticConfig(epochs=1, batch=2, lr=1e-3, device="cpu")
    assert run_train_critic(run, one, Silent()).artifacts[0].id == "critic-3"
    same_weights(run, "critic-1", "critic-3")
    same_weights(run, "critic-2", "critic-3")
    assert not processes_about(run.path)


@pytest.mark.usefixtures("forked_python")
@pytest.mark.parametrize("killed", [0, 1])
def test_a_node_that_is_killed_ends_the_other(run: Run, killed: int) -> None:
    with sweet(run, *by_hand(0), "--epochs", "4000") as first, sweet(run, *by_hand(1), "--epochs", "4000") as second:
        nodes = [first, second]
        progress = run.path / "critic" / "critic-1" / RANKS / "progress.jsonl"
        wait_until(lambda: (progress.exists() and progress.stat().st_size) or first.poll() is not None)
        nodes[killed].kill()
        said = nodes[1 - killed].communicate(timeout=PATIENCE)[1]
    assert nodes[1 - killed].returncode == 1, said
    assert ("The command on node 0 (" if killed == 0 else "Node 1 (") in said
    assert "is gone" in said
    wait_until(lambda: not processes_about(run.path))
    assert run.manifest().artifacts[-1].status == "partial"


def test_a_node_lost_by_srun_is_named(run: Run) -> None:
    with sweet(run, *SLURM, "--epochs", "4000") as command:
        progress = run.path / "critic" / "critic-1" / RANKS / "progress.jsonl"
        wait_until(lambda: (progress.exists() and progress.stat().st_size) or command.poll() is not None)
        for number in (signal.SIGSTOP, signal.SIGKILL):  # all at once, as a machine is lost: none reports the others
            for pid in processes_about(run.path):
                with contextlib.suppress(OSError):
                    if b"SLURM_NODEID=1\0" in Path(f"/proc/{pid}/environ").read_bytes():
                        os.kill(pid, number)
        said = command.communicate(timeout=PATIENCE)[1]
    assert command.returncode == 1, said
    assert "Node 1 (" in said, said
    assert "is gone" in said
    wait_until(lambda: not processes_about(run.path))


def test_a_killed_command_leaves_no_rank_that_srun_has_started(run: Run) -> None:
    with sweet(run, *SLURM, "--epochs", "4000") as command:
        progress = run.path / "critic" / "critic-1" / RANKS / "progress.jsonl"
        wait_until(lambda: (progress.exists() and progress.stat().st_size) or command.poll() is not None)
        command.kill()
    wait_until(lambda: not processes_about(run.path))


def test_a_node_that_does_not_see_the_run_is_an_error(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_SRUN_UNSHARED", "1")
    with sweet(run, *SLURM) as command:
        said = command.communicate(timeout=PATIENCE)[1]
    assert command.returncode == 2, said
    assert "does not see the run: the disk is not shared" in said
    assert not processes_about(run.path)
