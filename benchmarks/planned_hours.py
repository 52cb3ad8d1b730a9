"""The hours that `--dry-run` plans from earlier attempts, against the time that the stages then take.

Three situations with the packaged agent: (a) the same run with about four times as many dialogues, (b) another run with
other settings, by `--rates`, (c) the longer dialogues of micro-long, by the rates of micro. Besides wall-clock time the
CPU time of each attempt is measured, which other processes on the machine disturb less: `ratio_cpu` scales the plan by
the CPU time per second of the attempt that its rate is from.

    python -m benchmarks.planned_hours FOLDER    # a JSON object a line; FOLDER is emptied; about ten minutes
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from sweet.runs.attempt import ActiveAttempt
from sweet.runs.run import Run

PLAY = ["--num-tasks", "80", "--samples", "4"]
MORE = ["--num-tasks", "300", "--samples", "4"]
OTHER = ["--num-tasks", "160", "--samples", "6", "--seed", "5"]
LONG = ["--num-tasks", "160", "--samples", "6", "--tasks", "micro-long"]


class Spent(NamedTuple):
    """Wall-clock and CPU seconds of an attempt."""

    wall: float
    cpu: float


def stages(play: list[str], rank: list[str]) -> Iterator[tuple[str, list[str]]]:
    """The stages of one situation, with their options."""
    yield "rollout", play
    yield "eval", []
    yield "rank", ["--judge", "untrained", *rank]
    yield "train-actor", ["--method", "sft", "--limit", "400", "--epochs", "2"]
    if play is LONG:  # the agent solves too few of these tasks for preferences
        return
    yield "label", []
    yield "train-critic", []
    yield "rank", rank
    yield "pair", []
    yield "train-actor", []


def measure(
    situation: str, run: Path, play: list[str], spent: dict[str, Spent], rates: Path | None, *rank: str
) -> None:
    """Plan and run the stages of a situation, and print a row for each.

    Args:
        spent: by RUN:attempt; rows of this situation are added.
        rates: the run given by --rates.
    """
    for stage, options in stages(play, list(rank)):
        more = [] if rates is None else ["--rates", str(rates)]
        plan: dict[str, Any] = {"hours": None}
        if situation:
            plan = sweet(stage, str(run), *options, *more, "--dry-run")[0]["plan"]
        _, cpu = sweet(stage, str(run), *options)
        attempt = Run.open(run).manifest().attempts[-1]
        assert attempt.finished is not None
        now = Spent((attempt.finished - attempt.started).total_seconds(), cpu)
        spent[f"{run}:{attempt.id}"] = now
        row: dict[str, Any] = {"situation": situation or "earlier", "stage": stage, "load": os.getloadavg()[0]}
        row |= {"wall": round(now.wall, 2), "cpu": round(now.cpu, 2)}
        if plan["hours"] is not None:
            rate = plan["rates"]["seconds"]
            earlier, seconds = spent[rate["from"]], plan["hours"] * 3600
            row |= {"planned": round(seconds, 2), "differs": rate["differs"]}
            row |= {
                "ratio": round(seconds / now.wall, 2),
                "ratio_cpu": round(seconds * earlier.cpu / earlier.wall / now.cpu, 2),
            }
        print(json.dumps(row), flush=True)


def sweet(*words: str) -> tuple[dict[str, Any], float]:
    """Call the program; return its result and the CPU seconds of the attempt, 0 where there was none."""
    command = [sys.executable, "-m", "benchmarks.planned_hours", "--call", *words, "--json"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    *_, last = done.stderr.splitlines() or ["0"]
    return json.loads(done.stdout), float(last.removeprefix("cpu ")) if last.startswith("cpu ") else 0.0


def call(words: list[str]) -> None:
    """The process of one call: the program, which says at the end how much CPU time its attempt took."""
    from sweet.cli import main

    started, ended = ActiveAttempt.__init__, ActiveAttempt.end
    at: dict[str, float] = {}

    def start(self: ActiveAttempt, *args: Any, **options: Any) -> None:
        at["start"] = cpu_seconds()
        started(self, *args, **options)

    def end(self: ActiveAttempt, error: BaseException | None) -> None:
        ended(self, error)
        at["end"] = cpu_seconds()

    ActiveAttempt.__init__, ActiveAttempt.end = start, end  # type: ignore[method-assign]
    sys.argv = ["sweet", *words]
    try:
        main()
    finally:
        if "end" in at:
            sys.stderr.write(f"\ncpu {at['end'] - at['start']}\n")


def cpu_seconds() -> float:
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def main() -> None:
    if sys.argv[1] == "--call":
        call(sys.argv[2:])
        return
    home = Path(sys.argv[1]).absolute()
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    small, same = home / "small", home / "same"
    spent: dict[str, Spent] = {}
    measure("", small, PLAY, spent, None)
    shutil.copytree(small, same)
    spent |= {name.replace(str(small), str(same)): value for name, value in spent.items()}
    measure("same run", same, MORE, spent, None)
    measure("other run", home / "other", OTHER, spent, small, "--candidates", "8")
    measure("longer dialogues", home / "long", LONG, spent, small)


if __name__ == "__main__":
    main()
