"""The script for sbatch: its header, and what it does, run by bash with stand-ins for Slurm and for `sweet train`."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from sweet.pipeline.slurm import SlurmTable, batch_script

FULL = SlurmTable(
    nodes=2,
    gpus_per_node="h100:8",
    cpus_per_task=64,
    mem="900G",
    time="2-12:00:00",
    partition="gpu,big",
    account="lab_1",
    qos="high",
    exclusive=True,
    setup=["module load cuda", 'export HF_HOME="$SCRATCH/hf"'],
)
TRAIN = """\
#!/bin/bash
printf '%s\\n' "$PWD" "$SETUP" "$@" >> "$LOG"
trap 'echo ended >> "$LOG"; exit "$(cat "$FINISH" || echo 130)"' TERM
for i in {1..1000}; do [ -e "$FINISH" ] && exit "$(cat "$FINISH")"; sleep 0.02; done
"""


class Job:
    """A submitted script: it runs in bash, with a program instead of Python and an scontrol that writes a log."""

    def __init__(self, folder: Path, **arguments: Any) -> None:
        self.log, self.finish = folder / "log", folder / "finish"
        for name, text in (("train", TRAIN), ("scontrol", '#!/bin/sh\necho "$@" >> "$LOG"\n')):
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        script = folder / "job.sh"
        script.write_text(batch_script(python=str(folder / "train"), folder=folder, **arguments))
        names = {"LOG": self.log, "FINISH": self.finish, "SLURM_JOB_ID": "77"}
        environment = os.environ | {name: str(value) for name, value in names.items()}
        environment["PATH"] = f"{folder}{os.pathsep}{environment['PATH']}"
        self.process = subprocess.Popen(["bash", str(script)], env=environment, cwd="/")

    def lines(self, wanted: int = 0) -> list[str]:
        """What was logged, once there are `wanted` lines."""
        ends = time.monotonic() + 90
        while wanted > len(found := self.log.read_text().splitlines() if self.log.exists() else []):
            assert time.monotonic() < ends, found
            time.sleep(0.01)
        return found


def job(folder: Path, **arguments: Any) -> Job:
    return Job(folder, **{"run": Path("runs/a"), "table": SlurmTable(), "words": ["--recipe", "r.toml"]} | arguments)


def test_the_header_has_every_option_that_was_given(tmp_path: Path) -> None:
    script = batch_script(Path("runs/big one"), FULL, words=["--recipe", "paper.toml"], folder=tmp_path)
    header = [line.removeprefix("#SBATCH ") for line in script.splitlines() if line.startswith("#SBATCH")]
    assert header == [
        "--job-name=sweet-big-one",
        "--nodes=2",
        "--ntasks-per-node=1",
        "--gpus-per-node=h100:8",
        "--cpus-per-task=64",
        "--mem=900G",
        "--time=2-12:00:00",
        "--partition=gpu,big",
        "--account=lab_1",
        "--qos=high",
        "--signal=B:USR1@300",
        "--open-mode=append",
        "--exclusive",
        "--requeue",
    ]
    assert script.startswith("#!/bin/bash\n#SBATCH")
    few = batch_script(Path("a"), SlurmTable())
    assert not any(
        name in few for name in ("gpus", "cpus", "mem=", "time=", "partition", "account", "qos", "exclusive")
    )
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)


def test_the_command_is_run_as_it_was_given_after_the_setup(tmp_path: Path) -> None:
    recipe, run, words = "it's; $(touch x).toml", "runs/a b\n`c`", ["--set", 'rank.x="1 2"']
    table = SlurmTable(setup=["export SETUP='done here'"])
    submitted = job(tmp_path, run=Path(run), table=table, words=["--recipe", recipe, *words])
    submitted.finish.write_text("4")
    assert submitted.process.wait(90) == 4, "its status is that of sweet train"
    given = ["-m", "sweet", "train", run, "--recipe", recipe, *words]
    assert submitted.lines() == "\n".join([str(tmp_path), "done here", *given]).split("\n")


def test_before_the_time_limit_it_stops_and_is_queued_again(tmp_path: Path) -> None:
    submitted = job(tmp_path)
    started = submitted.lines(8)
    submitted.process.send_signal(signal.SIGUSR1)
    assert submitted.process.wait(90) == 130
    assert submitted.lines()[len(started) :] == ["ended", "requeue 77"]


def test_a_job_that_is_ended_is_not_queued_again(tmp_path: Path) -> None:
    submitted = job(tmp_path)
    started = submitted.lines(8)
    submitted.process.send_signal(signal.SIGTERM)
    assert submitted.process.wait(90) == 130
    assert submitted.lines()[len(started) :] == ["ended"]


def test_a_training_that_is_done_is_not_queued_again(tmp_path: Path) -> None:
    """Slurm's signal comes while it ends."""
    submitted = job(tmp_path)
    submitted.lines(8)
    submitted.finish.write_text("0")
    submitted.process.send_signal(signal.SIGUSR1)
    assert submitted.process.wait(90) == 0
    assert "requeue 77" not in submitted.lines()


def test_a_signal_during_the_setup_is_not_lost(tmp_path: Path) -> None:
    submitted = job(tmp_path, table=SlurmTable(setup=["kill -USR1 $$; true"]))
    assert submitted.process.wait(90) in (130, 143)
    assert submitted.lines()[-1] == "requeue 77"


@pytest.mark.parametrize(
    "table",
    [
        {"partition": "gpu\n#SBATCH --uid=0"},
        {"partition": "gpu; rm"},
        {"account": "a b"},
        {"qos": "--x"},
        {"qos": "$(x)"},
        {"time": "1 day"},
        {"time": "1:2:3:4"},
        {"time": "1:00\n"},
        {"mem": "much"},
        {"gpus_per_node": 0},
        {"gpus_per_node": "h100:"},
        {"nodes": 0},
        {"setup": ["a\nb"]},
        {"nods": 2},
    ],
)
def test_other_values_are_refused(table: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        SlurmTable.model_validate(table)
    SlurmTable.model_validate({"time": "1-0", "mem": 0, "gpus_per_node": 8, "partition": "a", "setup": ["x; y"]})
