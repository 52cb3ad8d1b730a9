"""Measure opening, searching and following a large run in the viewer: 15,000 trajectories, 436 MB.

    python -m benchmarks.cli_view [--run FOLDER] [--trajectories 15000] [--rounds 5] [--open COMMAND]

Prints one JSON object: medians over the rounds, and the goals. Every measurement is of a whole new process, imports
included: wall-clock seconds and peak resident memory. The files are in the system's cache. The run is made in FOLDER,
where it stays and is used again, or in a temporary folder; its content is always the same.

screen    `sweet view RUN` on a terminal of 120 x 40 (a pty), from its start until the first trajectory is shown; then
          it is killed. COMMAND measures another program instead, with {run} for the run.
print     `sweet view RUN --print` into a pipe: records and the table without the application.
find      `sweet view RUN --id ID --json`, with candidates and pairs.
text      `--filter` for words that occur in 30 dialogues.
hidden    `--filter` for words that do not occur, with --hidden.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.large_run import NEEDLE, TRAJECTORIES, make
from sweet.runs.run import Run

ROOT = Path(__file__).resolve().parent.parent
SWEET = (sys.executable, "-m", "sweet")
FRESH = Path(__file__).with_name("fresh.py")
GOALS = {"seconds": 1.5, "peak_rss_mib": 200}
"""The goals of `screen` and `print`."""

Metrics = dict[str, Any]


def measure(
    folder: Path | None = None, trajectories: int = TRAJECTORIES, rounds: int = 5, command: str | None = None
) -> Metrics:
    """Run all measurements.

    Args:
        folder: the run, which is made if it does not exist; by default a temporary one.
        command: measured as `screen` instead of `sweet view {run}`.
    """
    with tempfile.TemporaryDirectory() as temporary:
        path = (folder or Path(temporary) / "run").resolve()
        run = Run.open(path) if path.exists() else make(path, trajectories)
        return _measured(run, rounds, command)


def _measured(run: Run, rounds: int, command: str | None) -> Metrics:
    rollouts = run.file(run.find("rollouts", needed_by="the benchmark"))
    with rollouts.open("rb") as file:
        first = json.loads(file.readline())["id"]
    view = (*SWEET, "view", str(run.path))

    def printed(*options: str) -> Callable[[], Metrics]:
        return lambda: fresh([*view, *options])

    works: dict[str, Callable[[], Metrics]] = {
        "print": printed("--print"),
        "find": printed("--id", first, "--json"),
        "text": printed("--print", "--filter", NEEDLE),
        "hidden": printed("--print", "--hidden", "--filter", NEEDLE.replace("z", "zz")),
    }
    if command is not None or importlib.util.find_spec("sweet.view.app"):
        words = view if command is None else [word.format(run=run.path) for word in shlex.split(command)]
        works = {"screen": lambda: fresh(words, first.removesuffix("-s0-r0")), **works}
    metrics = {name: [work() for _ in range(rounds)] for name, work in works.items()}
    return {
        "trajectories": run.find("rollouts", needed_by="the benchmark").rows,
        "megabytes": round(rollouts.stat().st_size / 1e6, 1),
        "rounds": rounds,
        "goals": GOALS,
        **{name: _median(rows) for name, rows in metrics.items()},
    }


def _median(rows: Sequence[Metrics]) -> Metrics:
    return {key: round(statistics.median(metrics[key] for metrics in rows), 3) for key in rows[0]}


def fresh(words: Sequence[str], until: str | None = None) -> Metrics:
    """Measure a new process from its start to its end, or on a terminal until a text is shown."""
    options = [] if until is None else ["--until", until]
    command = [sys.executable, "-I", "-S", str(FRESH), *options, *words]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if process.returncode:
        raise RuntimeError(f"{shlex.join(words)} failed: {process.stderr}")
    metrics: Metrics = json.loads(process.stdout)
    return metrics


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path)
    parser.add_argument("--trajectories", type=int, default=TRAJECTORIES)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--open")
    options = parser.parse_args()
    print(json.dumps(measure(options.run, options.trajectories, options.rounds, options.open), indent=2))


if __name__ == "__main__":
    main()
