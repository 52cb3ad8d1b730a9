"""Trainings by each credit rule, killed with SIGKILL and resumed, against trainings that nothing stopped.

    python -m benchmarks.killed_rules RUN [--methods grpo,opsd:teacher=average] [--kills 3] [-- OPTIONS OF THE STAGE]
    python -m benchmarks.killed_rules RUN --online

RUN is copied. Each training is killed after a random number of further steps, or online of dialogues, so many times,
and continued with `--resume`. A method is a rule, with an option of it after a colon. Prints JSON: for each the steps
or dialogues after which it was killed, and whether the bytes of both weights are the same. `sweet-pg` needs a critic in
RUN. Set OMP_NUM_THREADS=1: several threads add in an order of their own.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweet.runs.run import Run

PATIENCE = 600.0
"""Seconds of one training."""


@dataclass(frozen=True)
class Stage:
    """What is trained by.

    Attributes:
        algorithm: the option that names the rule.
        logs: the files that a training appends a row to, in the run, and `mark`, a text of the rows that count.
        most: rows until a kill, at most.
    """

    name: str
    algorithm: str
    methods: str
    options: list[str]
    logs: str
    mark: str
    most: int

    def words(self, run: Path, method: str, options: list[str]) -> list[str]:
        rule, _, option = method.partition(":")
        own = ["--rule-option", option] if option else []
        return [sys.executable, "-m", "sweet", self.name, str(run), self.algorithm, rule, *own, *options]

    def rows(self, run: Path) -> int:
        """Return the rows that count in the logs of the run."""
        return sum(self.mark in line for path in run.glob(self.logs) for line in path.read_text("utf-8").splitlines())


RECORDED = Stage(
    name="train-actor",
    algorithm="--method",
    methods="grpo,rloo,istar,opsd,sweet-pg,sweet-pg-candidates",
    options=["--limit", "16", "--epochs", "2", "--batch", "4", "--save-every", "2", "--device", "cpu", "--quiet"],
    logs="logs/train-actor-*.jsonl",
    mark='"loss"',
    most=4,
)
ONLINE = Stage(
    name="train-online",
    algorithm="--algorithm",
    methods="grpo,rloo,rft,istar,opsd,opsd:teacher=live,opsd:teacher=average,opsd:form=top,sweet-pg,sweet-pg:episode=yes",
    options=[
        *("--deterministic", "--steps", "3", "--tasks-per-step", "4", "--group", "4", "--max-turns", "6"),
        *("--max-tokens", "48", "--save-every", "1", "--device", "cpu", "--quiet"),
    ],
    logs="rollouts/*.jsonl",
    mark='"versions"',
    most=20,
)


def killed(run: Path, stage: Stage, words: list[str], kills: int, draw: random.Random) -> list[int]:
    """Train with kills; return the number of rows that were logged until each."""
    found: list[int] = []
    earlier = stage.rows(run)
    for number in range(kills + 1):
        before = stage.rows(run)
        more = draw.randint(1, stage.most)
        process = subprocess.Popen([*words, *(["--resume"] if number else [])], stdout=subprocess.DEVNULL)
        began = time.monotonic()
        while process.poll() is None and time.monotonic() - began < PATIENCE:
            if number < kills and stage.rows(run) >= before + more:
                process.send_signal(signal.SIGKILL)
                break
            time.sleep(0.02)
        process.wait(10)
        if process.returncode not in (0, -signal.SIGKILL):
            raise SystemExit(f"{' '.join(words)} ended with status {process.returncode}")
        if process.returncode == 0:
            return found
        found.append(stage.rows(run) - earlier)
    return found


def newest_weights(folder: Path) -> str:
    run = Run.open(folder)
    actor = run.manifest().of_kind("actor", "done")[-1]
    files = sorted(run.file(actor).glob("*.safetensors"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--online", action="store_true", help="trainings that play their own dialogues")
    parser.add_argument("--methods")
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("words", nargs="*", help="options of the stage")
    given = parser.parse_args()
    stage = ONLINE if given.online else RECORDED
    options, draw = given.words or stage.options, random.Random(given.seed)
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for number, method in enumerate((given.methods or stage.methods).split(",")):
            whole, stopped = Path(scratch) / f"{number}-whole", Path(scratch) / f"{number}-killed"
            for copy in (whole, stopped):
                shutil.copytree(given.run, copy)
            subprocess.run(stage.words(whole, method, options), check=True, stdout=subprocess.DEVNULL)
            at = killed(stopped, stage, stage.words(stopped, method, options), given.kills, draw)
            result[method] = {"killed_after": at, "same": newest_weights(whole) == newest_weights(stopped)}
            print(f"{method}: {result[method]}", file=sys.stderr)
    print(json.dumps(result, indent=1))
    raise SystemExit(not all(found["same"] and found["killed_after"] for found in result.values()))


if __name__ == "__main__":
    main()
