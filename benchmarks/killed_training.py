"""`sweet train`, killed with SIGKILL at random moments and called again, against a run that nothing stopped.

    python -m benchmarks.killed_training [--kills 20] [--seed 0] [-- OPTIONS OF SWEET TRAIN]

Prints JSON: the kills, what was running at each, and whether both runs ended in the same artifacts: the same ids with
the same inputs, rows and content. Of a model directory the bytes of the weights are compared; of rows everything but
durations, and numbers up to `TOLERANCE`, because a log-probability depends in its last digits on what was computed
with it in one batch. The largest difference of two numbers is printed too.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from sweet.runs.manifest import Artifact
from sweet.runs.run import Run

TOLERANCE = 1e-4
"""Difference of two numbers that are the same."""

OPTIONS = ["--tasks", "micro", "--train-tasks", "24", "--samples", "4", "--eval-tasks", "24", "--rounds", "2"]
SETS = [
    "rank.candidates=4",
    "train-critic.epochs=1",
    "train-actor.epochs=1",
    "train-critic.save-every=2",
    "train-actor.save-every=4",
]


def train(run: Path, words: list[str]) -> list[str]:
    return [sys.executable, "-m", "sweet", "train", str(run), *words]


def kill_and_continue(run: Path, words: list[str], kills: int, longest: float, draw: random.Random) -> list[str]:
    """Call the command until it ends, killing it `kills` times; return what was running at each kill."""
    stopped: list[str] = []
    while True:
        process = subprocess.Popen(train(run, words), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if len(stopped) == kills:
            if process.wait():
                raise SystemExit(f"the last call failed with status {process.returncode}")
            return stopped
        try:
            if process.wait(draw.uniform(0.2, longest)):
                raise SystemExit(f"a call after {len(stopped)} kills failed with status {process.returncode}")
            return stopped
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            stopped.append(_running(run))


def _running(run: Path) -> str:
    """Return the stages that the kill has interrupted."""
    if not (run / "manifest.json").exists():
        return "before the run was made"
    attempts = json.loads((run / "manifest.json").read_text())["attempts"]
    found = [attempt["stage"] for attempt in attempts if attempt["status"] == "running" and attempt["stage"] != "train"]
    return found[-1] if found else "between stages"


def compare(whole: Run, killed: Run) -> tuple[list[str], float]:
    """Return the ids of the artifacts that differ, and the largest difference of two numbers in rows."""
    sides = [{artifact.id: artifact for artifact in run.manifest().artifacts} for run in (whole, killed)]
    different, largest = [], 0.0
    for id in sorted(sides[0].keys() | sides[1].keys()):
        one, other = (side.get(id) for side in sides)
        if one is None or other is None or _facts(one) != _facts(other):
            different.append(id)
            continue
        difference = _distance(_content(whole, one), _content(killed, other))
        if difference > TOLERANCE:
            different.append(id)
        else:
            largest = max(largest, difference)
    return different, largest


def _facts(artifact: Artifact) -> tuple[Any, ...]:
    return artifact.status, artifact.rows, [ref.id for ref in artifact.inputs]


def _content(run: Run, artifact: Artifact) -> Any:
    path = run.file(artifact)
    if path.is_dir():
        return [hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(path.glob("*.safetensors"))]
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return sorted(rows, key=lambda row: [str(row.get(key)) for key in ("id", "trajectory_id", "task_id", "turn")])


def _distance(one: Any, other: Any) -> float:
    """Return the largest difference of two numbers at the same place; infinity where anything else differs."""
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other)
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return max((_distance(one[key], other[key]) for key in one if not key.endswith("seconds")), default=0.0)
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return max((_distance(*pair) for pair in zip(one, other, strict=True)), default=0.0)
    return 0.0 if one == other else math.inf


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--longest", type=float, default=20.0, help="seconds between two kills at most")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("words", nargs="*", help="options of sweet train")
    given = parser.parse_args()
    words = given.words or [*OPTIONS, *(word for one in SETS for word in ("--set", one))]
    folder = given.folder or Path(tempfile.mkdtemp(prefix="killed-"))
    began = time.monotonic()
    subprocess.run(train(folder / "whole", words), check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    whole = time.monotonic() - began
    stopped = kill_and_continue(folder / "killed", words, given.kills, given.longest, random.Random(given.seed))
    killed = time.monotonic() - began - whole
    different, largest = compare(Run.open(folder / "whole"), Run.open(folder / "killed"))
    result = {
        "kills": len(stopped),
        "killed_in": dict(Counter(stopped)),
        "artifacts": len(Run.open(folder / "whole").manifest().artifacts),
        "different": different,
        "same": not different,
        "largest_difference": largest,
        "seconds_whole": round(whole, 1),
        "seconds_killed": round(killed, 1),
        "folder": str(folder),
    }
    print(json.dumps(result, indent=1))
    raise SystemExit(bool(different))


if __name__ == "__main__":
    main()
