"""What it takes to open, to search and to follow a large run: 15,000 trajectories, 436 MB.

    python -m benchmarks.cli_view [--run FOLDER] [--trajectories 15000] [--rounds 5] [--open COMMAND]

Prints one JSON object, medians over the rounds, goals beside them. Every figure is of a fresh process as a whole,
imports included: wall-clock seconds and peak resident memory. The files are in the system's cache. The run is made in
FOLDER, where it stays and is used again, or in a temporary folder; it is the same every time.

screen    `sweet view RUN` on a terminal of 120 x 40 (a pty), from its start until the first trajectory stands on it;
          then it is killed. COMMAND stands for another program ({run} for the run), as one of words.
print     `sweet view RUN --print`, into a pipe: records and the table without the application.
unindexed the same where no index is there, and it is made: the first opening of a run from elsewhere.
extended  the same where the last hundredth of the file has come since the index was made.
find      `sweet view RUN --id ID --json`, candidates and pairs with it.
text      `--search` for words that stand in 30 dialogues.  regex: the same as a regular expression.
hidden    `--search` for words that stand nowhere, with --hidden.
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
from sweet.runs.index import index_path
from sweet.runs.run import Run

ROOT = Path(__file__).resolve().parent.parent
SWEET = (sys.executable, "-m", "sweet")
FRESH = Path(__file__).with_name("fresh.py")
GOALS = {"seconds": 1.5, "peak_rss_mib": 200}
"""Of `screen` and `print`."""

Figures = dict[str, Any]


def measure(
    folder: Path | None = None, trajectories: int = TRAJECTORIES, rounds: int = 5, command: str | None = None
) -> Figures:
    """All figures.

    Args:
        folder: where the run is, or is made and stays; without it a temporary one.
        command: what is measured as `screen` in place of `sweet view {run}`.
    """
    with tempfile.TemporaryDirectory() as temporary:
        place = (folder or Path(temporary) / "run").resolve()
        run = Run.open(place) if place.exists() else make(place, trajectories)
        return _measured(run, rounds, command)


def _measured(run: Run, rounds: int, command: str | None) -> Figures:
    rollouts = run.file(run.find("rollouts", needed_by="the benchmark"))
    with rollouts.open("rb") as file:
        first = json.loads(file.readline())["id"]
    view = (*SWEET, "view", str(run.path))

    def printed(*options: str) -> Callable[[], Figures]:
        return lambda: fresh([*view, *options])

    works: dict[str, Callable[[], Figures]] = {
        "print": printed("--print"),
        "unindexed": lambda: _unindexed(rollouts, printed("--print")),
        "extended": lambda: _extended(rollouts, printed("--print")),
        "find": printed("--id", first, "--json"),
        "text": printed("--print", "--search", NEEDLE),
        "regex": printed("--print", "--regex", "--search", NEEDLE.replace(" ", r"\s+")),
        "hidden": printed("--print", "--hidden", "--search", NEEDLE.replace("z", "zz")),
    }
    if command is not None or importlib.util.find_spec("sweet.view.app"):
        words = view if command is None else [word.format(run=run.path) for word in shlex.split(command)]
        works = {"screen": lambda: fresh(words, first.removesuffix("-s0-r0")), **works}
    fresh([*view, "--print"])  # the index is there
    figures = {name: [work() for _ in range(rounds)] for name, work in works.items()}
    return {
        "trajectories": run.find("rollouts", needed_by="the benchmark").rows,
        "megabytes": round(rollouts.stat().st_size / 1e6, 1),
        "index_megabytes": round(index_path(rollouts).stat().st_size / 1e6, 1) if index_path(rollouts).exists() else 0,
        "rounds": rounds,
        "goals": GOALS,
        **{name: _median(told) for name, told in figures.items()},
    }


def _median(told: Sequence[Figures]) -> Figures:
    return {key: round(statistics.median(figures[key] for figures in told), 3) for key in told[0]}


def fresh(words: Sequence[str], until: str | None = None) -> Figures:
    """A process from its start to its end, or on a terminal until a text is shown."""
    options = [] if until is None else ["--until", until]
    command = [sys.executable, "-I", "-S", str(FRESH), *options, *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{shlex.join(words)} failed: {done.stderr}")
    told: Figures = json.loads(done.stdout)
    return told


def _unindexed(rollouts: Path, opened: Callable[[], Figures]) -> Figures:
    for artifact in (rollouts, *rollouts.parent.parent.glob("scores/*.jsonl")):
        index_path(artifact).unlink(missing_ok=True)
    return opened()


def _extended(rollouts: Path, opened: Callable[[], Figures]) -> Figures:
    """The file is shortened, opened, made whole again, and opened."""
    size = rollouts.stat().st_size
    with rollouts.open("r+b") as file:
        file.seek(size - size // 100)
        file.readline()
        end = file.tell()
        rest = file.read()
        try:
            file.truncate(end)
            opened()
        finally:
            file.seek(end)
            file.write(rest)
    return opened()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path)
    parser.add_argument("--trajectories", type=int, default=TRAJECTORIES)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--open")
    given = parser.parse_args()
    print(json.dumps(measure(given.run, given.trajectories, given.rounds, given.open), indent=2))


if __name__ == "__main__":
    main()
