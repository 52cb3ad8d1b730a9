"""The script for sbatch in docs: run by bash with stand-ins for Slurm and for `sweet`."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "docs" / "train.sbatch"
TRAIN = """\
#!/bin/bash
printf '%s\\n' "$@" >> "$LOG"
trap 'echo ended >> "$LOG"; exit "$(cat "$FINISH" || echo 130)"' TERM
for i in {1..1000}; do [ -e "$FINISH" ] && exit "$(cat "$FINISH")"; sleep 0.02; done
"""


class Job:
    """The submitted script: it runs in bash, with a stand-in for `sweet` and an scontrol that writes a log."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.log, self.finish = folder / "log", folder / "finish"
        for name, text in (("sweet", TRAIN), ("scontrol", '#!/bin/sh\necho "$@" >> "$LOG"\n')):
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        names = {"LOG": self.log, "FINISH": self.finish, "SLURM_JOB_ID": "77"}
        environment = os.environ | {name: str(value) for name, value in names.items()}
        environment["PATH"] = f"{folder}{os.pathsep}{environment['PATH']}"
        self.process = subprocess.Popen(["bash", str(SCRIPT), *(words or ("runs/a",))], env=environment)

    def lines(self, wanted: int = 0) -> list[str]:
        """What was logged, once there are `wanted` lines."""
        ends = time.monotonic() + 90
        while wanted > len(found := self.log.read_text().splitlines() if self.log.exists() else []):
            assert time.monotonic() < ends, found
            time.sleep(0.01)
        return found


def test_the_words_after_the_file_are_those_of_sweet_train(tmp_path: Path) -> None:
    words = ["runs/a b\n`c`", "--recipe", "it's; $(touch x).toml", "--set", 'rank.x="1 2"']
    (tmp_path / "finish").write_text("4")
    submitted = Job(tmp_path, *words)
    assert submitted.process.wait(90) == 4, "its status is that of sweet train"
    assert submitted.lines() == "\n".join(["train", *words]).split("\n")


def test_before_the_time_limit_it_stops_and_is_queued_again(tmp_path: Path) -> None:
    submitted = Job(tmp_path)
    started = submitted.lines(2)
    submitted.process.send_signal(signal.SIGUSR1)
    assert submitted.process.wait(90) == 130
    assert submitted.lines()[len(started) :] == ["ended", "requeue 77"]


def test_a_job_that_is_ended_is_not_queued_again(tmp_path: Path) -> None:
    submitted = Job(tmp_path)
    started = submitted.lines(2)
    submitted.process.send_signal(signal.SIGTERM)
    assert submitted.process.wait(90) == 130
    assert submitted.lines()[len(started) :] == ["ended"]


def test_a_training_that_is_done_is_not_queued_again(tmp_path: Path) -> None:
    """Slurm's signal comes while it ends."""
    submitted = Job(tmp_path)
    submitted.lines(2)
    submitted.finish.write_text("0")
    submitted.process.send_signal(signal.SIGUSR1)
    assert submitted.process.wait(90) == 0
    assert "requeue 77" not in submitted.lines()
