"""Trainings by each credit rule, killed with SIGKILL and resumed, against trainings that nothing stopped.

    python -m benchmarks.killed_rules RUN [--methods grpo,rloo] [--kills 3] [-- OPTIONS OF SWEET TRAIN-ACTOR]

RUN is copied. Each training is killed after a random number of further steps, so many times, and continued with
`--resume`. Prints JSON: for each rule the steps after which it was killed, and whether the bytes of both weights are
the same.
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
from pathlib import Path
from typing import Any

from sweet.runs.run import Run

METHODS = "grpo,rloo,sweet-pg,sweet-pg-candidates"
OPTIONS = ["--limit", "16", "--epochs", "2", "--batch", "4", "--save-every", "2", "--device", "cpu", "--quiet"]
PATIENCE = 600.0
"""Seconds of one training."""


def words_of(run: Path, method: str, options: list[str]) -> list[str]:
    return [sys.executable, "-m", "sweet", "train-actor", str(run), "--method", method, *options]


def steps_done(run: Path) -> int:
    """Return the steps that the logs of the run's trainings of actors have."""
    logs = (run / "logs").glob("train-actor-*.jsonl")
    return sum('"loss"' in line for path in logs for line in path.read_text(encoding="utf-8").splitlines())


def killed(run: Path, words: list[str], kills: int, draw: random.Random) -> list[int]:
    """Train with kills; return the number of steps that were logged until each."""
    found: list[int] = []
    earlier = steps_done(run)
    for number in range(kills + 1):
        before = steps_done(run)
        more = draw.randint(1, 4)
        process = subprocess.Popen([*words, *(["--resume"] if number else [])], stdout=subprocess.DEVNULL)
        began = time.monotonic()
        while process.poll() is None and time.monotonic() - began < PATIENCE:
            if number < kills and steps_done(run) >= before + more:
                process.send_signal(signal.SIGKILL)
                break
            time.sleep(0.02)
        process.wait(10)
        if process.returncode not in (0, -signal.SIGKILL):
            raise SystemExit(f"{' '.join(words)} ended with status {process.returncode}")
        if process.returncode == 0:
            return found
        found.append(steps_done(run) - earlier)
    return found


def newest_weights(folder: Path) -> str:
    run = Run.open(folder)
    actor = run.manifest().of_kind("actor", "done")[-1]
    files = sorted(run.file(actor).glob("*.safetensors"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--methods", default=METHODS)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("words", nargs="*", help="options of sweet train-actor")
    given = parser.parse_args()
    options, draw = given.words or OPTIONS, random.Random(given.seed)
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for method in given.methods.split(","):
            whole, stopped = Path(scratch) / f"{method}-whole", Path(scratch) / f"{method}-killed"
            for copy in (whole, stopped):
                shutil.copytree(given.run, copy)
            subprocess.run(words_of(whole, method, options), check=True, stdout=subprocess.DEVNULL)
            at = killed(stopped, words_of(stopped, method, options), given.kills, draw)
            result[method] = {"killed_after": at, "same": newest_weights(whole) == newest_weights(stopped)}
            print(f"{method}: {result[method]}", file=sys.stderr)
    print(json.dumps(result, indent=1))
    raise SystemExit(not all(found["same"] and found["killed_after"] for found in result.values()))


if __name__ == "__main__":
    main()
