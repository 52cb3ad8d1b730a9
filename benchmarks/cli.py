"""Measure the start-up time of the command line. Prints JSON.

    python -m benchmarks.cli [--rounds 15] [--runs 200]

Each round starts every command once, in alternating order, and also `python -c "import typer, rich"`, which each is
compared with: the ratio is that of the medians over the rounds. Times of a busy machine mean little, therefore the
output contains the load.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from sweet.runs.run import Run
from sweet.stages.base import StageConfig

BASE = ("-c", "import typer, rich")
SWEET = ("-m", "sweet")
LIMIT = 2.5
"""The largest acceptable ratio."""


def completing(line: str) -> dict[str, str]:
    words = line.split(" ")
    return {"_SWEET_COMPLETE": "complete_bash", "COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}


STARTS: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "import typer, rich": (BASE, {}),
    "sweet --help": ((*SWEET, "--help"), {}),
    "sweet rollout --help": ((*SWEET, "rollout", "--help"), {}),
    "sweet rank --help": ((*SWEET, "rank", "--help"), {}),
    "sweet train-critic --help": ((*SWEET, "train-critic", "--help"), {}),
    "sweet data import --help": ((*SWEET, "data", "import", "--help"), {}),
    "completion of a command": (SWEET, completing("sweet ro")),
    "completion of an option": (SWEET, completing("sweet rollout --num")),
    "completion of a run": (SWEET, completing("sweet eval runs/")),
    "completion of an artifact": (SWEET, completing("sweet label runs/run-1 --from ")),
}


def seconds(words: tuple[str, ...], environment: dict[str, str], folder: Path) -> float:
    """Return the seconds from the start of a process to its end."""
    paths = os.pathsep.join([str(Path.cwd()), os.environ.get("PYTHONPATH", "")])
    started = time.perf_counter()
    subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths, **environment},
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return time.perf_counter() - started


def measure_starts(rounds: int, folder: Path) -> dict[str, Any]:
    """Return the milliseconds of each start and its ratio to the first."""
    samples: dict[str, list[float]] = {name: [] for name in STARTS}
    for number in range(rounds):
        names = list(STARTS) if number % 2 else list(reversed(STARTS))
        for name in names:
            samples[name].append(seconds(*STARTS[name], folder))
    medians = {name: statistics.median(values) for name, values in samples.items()}
    base = next(iter(medians.values()))
    return {
        name: {
            "median_ms": round(1000 * median, 1),
            "least_ms": round(1000 * min(samples[name]), 1),
            "ratio": round(median / base, 2),
        }
        for name, median in medians.items()
    }


def make_runs(folder: Path, number: int) -> None:
    """Create runs with several attempts and artifacts each."""
    for index in range(1, number + 1):
        run = Run.create(folder / "runs" / f"run-{index}", "code")
        with run.attempt("rollout", StageConfig()) as attempt:
            for _ in range(5):
                draft = attempt.start_artifact("rollouts")
                draft.path.write_bytes(b"{}\n" * 1000)
                attempt.finish_artifact(draft, rows=1000)
        for _ in range(5):
            with run.attempt("eval", StageConfig()) as attempt:
                draft = attempt.start_artifact("scores")
                draft.path.write_bytes(b"{}\n" * 100)
                attempt.finish_artifact(draft, rows=100)
                attempt.metrics.update(success_rate=0.5, success_rate_ci_low=0.4, success_rate_ci_high=0.6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--runs", type=int, default=200)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_runs(folder, options.runs)
        before = os.getloadavg()[0]
        starts = measure_starts(options.rounds, folder)
        results = {
            "load": {"before": round(before, 2), "after": round(os.getloadavg()[0], 2), "cores": os.cpu_count()},
            "limit": LIMIT,
            "starts": starts,
            "worst_ratio": max(one["ratio"] for one in starts.values()),
        }
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
