"""Measure the dialogues per second of the packaged agent in several processes against one, and the ratio.

    python -m benchmarks.processes [--tasks 200] [--samples 6] [--rounds 5]

Each round plays the same dialogues both ways, in alternating order, as `sweet rollout` does by default; the seconds in
which the model is loaded are left out. Prints the medians, and that of the rounds' ratios, as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from sweet.device import allowed_threads
from sweet.llm import local
from sweet.rollouts.config import RolloutConfig
from sweet.rollouts.stage import run_rollout
from sweet.runs.run import Run
from sweet.stages.base import Progress, Silent


@dataclass(frozen=True)
class Rates:
    """Dialogues per second, medians over the rounds, and the median of the rounds' ratios."""

    one_process: float
    processes: float
    ratio: float
    lowest: float
    highest: float


class Timed(Silent):
    """Measures the seconds in which dialogues are played."""

    seconds = 0.0

    @contextmanager
    def progress(self, title: str, total: int | None) -> Iterator[Progress]:
        began = time.monotonic()
        with super().progress(title, total) as bar:
            yield bar
        self.seconds += time.monotonic() - began


def dialogues_per_second(folder: Path, tasks: int, samples: int, *, hosted: bool) -> float:
    """Play the dialogues in a new run.

    Args:
        hosted: whether in several processes, whatever the number of dialogues.
    """
    default, local.HOSTED_REPLIES = local.HOSTED_REPLIES, 0 if hosted else sys.maxsize
    try:
        run = Run.create(folder)
        config = RolloutConfig(tasks="micro", split="train", num_tasks=tasks, samples=samples, device="cpu")
        metrics = run_rollout(run, config, timed := Timed()).metrics
    finally:
        local.HOSTED_REPLIES = default
    environment = run.manifest().attempts[-1].environment
    if ("agent_processes" in environment) != (hosted and allowed_threads() > 1):
        raise RuntimeError(f"not measured as asked: {environment}")
    return metrics.episodes / timed.seconds


def measure(folder: Path, tasks: int, samples: int, rounds: int) -> Rates:
    """Play all rounds, after one of a single dialogue each way that loads the libraries."""
    found: dict[bool, list[float]] = {False: [], True: []}
    for number in range(-1, rounds):
        for hosted in (number % 2 == 0, number % 2 == 1):
            name = folder / f"{number}-{hosted}"
            rate = dialogues_per_second(name, *((1, 1) if number < 0 else (tasks, samples)), hosted=hosted)
            if number >= 0:
                found[hosted].append(rate)
    ratios = [many / one for one, many in zip(found[False], found[True], strict=True)]
    medians = statistics.median(found[False]), statistics.median(found[True]), statistics.median(ratios)
    return Rates(*medians, min(ratios), max(ratios))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--samples", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rates = measure(Path(folder), args.tasks, args.samples, args.rounds)
    cores = {"cores": allowed_threads(), "load": round(os.getloadavg()[0], 2)}
    print(json.dumps({name: round(value, 2) for name, value in asdict(rates).items()} | vars(args) | cores))


if __name__ == "__main__":
    main()
