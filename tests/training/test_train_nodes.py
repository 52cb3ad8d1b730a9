"""Two machines, on which srun or ssh starts torchrun: the result of one process, a common end, and clear errors."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from sweet.preferences.config import LabelConfig
from sweet.preferences.label import run_label
from sweet.runs.run import Run
from sweet.stages.base import Silent
from sweet.training.checkpoints import RANKS
from sweet.training.config import TrainCriticConfig
from sweet.training.stage import run_train_critic
from tests import programs
from tests.learn.builders import assert_trained_alike
from tests.stages.learn_runs import make_agent, make_run
from tests.training.test_train_ranks import PATIENCE, processes_about, wait_until

pytestmark = [
    pytest.mark.skipif(find_spec("deepspeed") is None, reason="deepspeed is not installed"),
    pytest.mark.skipif(sys.platform != "linux", reason="processes are found under /proc"),
]

OPTIONS = ["--engine", "deepspeed", "--device", "cpu", "--batch", "2", "--lr", "1e-3", "--zero", "1"]
SLURM = ["--hostfile", "slurm"]
JOB = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "127.0.0.1,127.0.0.2", "SLURM_JOB_NUM_NODES": "2"}
FAKES = Path(__file__).parent / "fake_slurm"
PYTHON = Path(sys.executable).parent
"""The folder of the `python3` that runs the fakes. Another one, a shim say, might change the environment."""


@pytest.fixture(autouse=True)
def job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The environment of a Slurm job of two nodes, whose tasks were to be one a GPU."""
    monkeypatch.setenv("SWEET_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    monkeypatch.setenv("PATH", os.pathsep.join([str(FAKES), str(PYTHON), os.environ["PATH"]]))
    monkeypatch.setenv("FAKE_SRUN_CALL", str(tmp_path / "srun.json"))
    for name, value in (JOB | {"SLURM_CPUS_PER_TASK": "1", "SLURM_NTASKS_PER_NODE": "8"}).items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def hosts(tmp_path: Path) -> list[str]:
    """Options of a hostfile."""
    path = tmp_path / "hosts"
    path.write_text("127.0.0.1 slots=1\n127.0.0.2 slots=1\n")
    return ["--hostfile", str(path)]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = make_run(tmp_path, make_agent(tmp_path / "agent", layers=2))
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
        assert_trained_alike(weights, second[name], name)


@pytest.mark.usefixtures("forked_python")
def test_two_machines_train_as_one_process(run: Run, tmp_path: Path, hosts: list[str]) -> None:
    with sweet(run, *hosts, "--epochs", "1") as by_ssh, sweet(run, *SLURM, "--epochs", "1") as by_srun:
        for command in (by_ssh, by_srun):
            said = command.communicate(timeout=PATIENCE)[1]
            assert command.returncode == 0, said
    call = json.loads((tmp_path / "srun.json").read_text())
    assert {"--nodes=2", "--ntasks=2"} <= set(call["words"])
    assert "SLURM_CPUS_PER_TASK" not in call["environment"]

    one = TrainCriticConfig(epochs=1, batch=2, lr=1e-3, device="cpu")
    assert run_train_critic(run, one, Silent()).artifacts[0].id == "critic-3"
    same_weights(run, "critic-1", "critic-3")
    same_weights(run, "critic-2", "critic-3")
    assert not processes_about(run.path)


def wait_for_steps(run: Run, command: subprocess.Popen[str]) -> None:
    progress = run.path / "critic" / "critic-1" / RANKS / "progress.jsonl"
    wait_until(lambda: (progress.exists() and progress.stat().st_size) or command.poll() is not None)


def ranks_of_second_machine(run: Run) -> Iterator[int]:
    """The ranks of the training whose environment says that they were started on the second machine."""
    for pid in processes_about(run.path):
        with contextlib.suppress(OSError):
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            if b"FAKE_SSH_HOST=127.0.0.2" in variables and any(each.startswith(b"RANK=") for each in variables):
                yield pid


@pytest.mark.usefixtures("forked_python")
def test_a_rank_that_is_killed_on_another_machine_is_named_and_ends_all(run: Run, hosts: list[str]) -> None:
    with sweet(run, *hosts, "--epochs", "4000") as command:
        wait_for_steps(run, command)
        [rank] = ranks_of_second_machine(run)
        os.kill(rank, signal.SIGKILL)
        said = command.communicate(timeout=PATIENCE)[1]
    assert command.returncode == 1, said
    assert "was killed by SIGKILL" in said
    assert f"on {socket.gethostname()}" in said
    wait_until(lambda: not processes_about(run.path))
    assert run.manifest().artifacts[-1].status == "partial"


@pytest.mark.usefixtures("forked_python")
def test_a_lost_connection_is_named_and_ends_all(run: Run, hosts: list[str]) -> None:
    with sweet(run, *hosts, "--epochs", "4000") as command:
        wait_for_steps(run, command)
        [connection] = [pid for pid in processes_about(run.path) if is_ssh(pid, b"127.0.0.2")]
        os.kill(connection, signal.SIGUSR1)  # which the fake takes for an end of the connection
        said = command.communicate(timeout=PATIENCE)[1]
    assert command.returncode == 1, said
    assert "The connection to 127.0.0.2 has failed" in said
    wait_until(lambda: not processes_about(run.path))


@pytest.mark.usefixtures("forked_python")
@pytest.mark.parametrize(("by", "how"), [("ssh", signal.SIGKILL), ("srun", signal.SIGINT)])
def test_a_command_that_ends_leaves_no_rank_on_other_machines(
    run: Run, hosts: list[str], by: str, how: signal.Signals
) -> None:
    with sweet(run, *(hosts if by == "ssh" else SLURM), "--epochs", "4000") as command:
        wait_for_steps(run, command)
        command.send_signal(how)
        command.communicate(timeout=PATIENCE)
    wait_until(lambda: not processes_about(run.path))


def is_ssh(pid: int, host: bytes) -> bool:
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return any(word.endswith(b"/ssh") for word in words[:2]) and host in words


@pytest.mark.usefixtures("forked_python")
def test_a_machine_that_does_not_see_the_run_is_an_error(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_SRUN_UNSHARED", "1")
    with sweet(run, *SLURM) as command:
        said = command.communicate(timeout=PATIENCE)[1]
    assert command.returncode == 1, said
    assert "does not see the run: the disk is not shared" in said
    assert not processes_about(run.path)
