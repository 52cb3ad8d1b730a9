"""Measure the answers per second that the sandbox scores, against a loop that runs them in its own process.

    python -m benchmarks.sandbox [--tasks micro|FILE] [--answers 1000] [--hanging 0.02] [--rounds 5]

Prints one JSON object. `in_process` works like the published evaluator: for each test it executes reference and answer
and evaluates the call in this process, sequentially, the answer under an alarm of `--call-seconds`. Each tier that
works on this machine scores the same answers with the strict scorer and warm jails. The references' values are computed
again in every round (`…_cached`: known from an earlier run), and all answers have different texts (`…_repeated`: as
drawn; the honest answers to one task are equal, and run once). The micro tasks are those of the split `train`, 2,000:
no two answers have the same task, whose text is read before. Every round measures all of them in sequence; the results
are medians over the rounds, and `ratio` is the median of the rounds' ratios to `in_process`. Answers are honest, wrong
(the same work, another value), crashing (an exception after the work) and, for the share `--hanging`, endless loops in
every call.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from types import FrameType
from typing import Any

from sweet.sandbox.pool import Sandbox
from sweet.sandbox.program import Limits
from sweet.sandbox.tiers import open_sandbox, probe_tiers
from sweet.tasks.base import Task
from sweet.tasks.code.extract import published_code
from sweet.tasks.code.reader import read_task
from sweet.tasks.code.scoring import CodeScorer
from sweet.tasks.registry import task_kind

Answer = tuple[Task, str]

SHARES = {"honest": 0.6, "wrong": 0.25, "crashing": 0.15}
WRAPPERS = {
    "honest": "",
    "wrong": "def {name}(*args, _right={name}, **named):\n    return (_right(*args, **named), 'wrong')",
    "crashing": "def {name}(*args, _right={name}, **named):\n    raise RuntimeError(_right(*args, **named))",
    "hanging": "def {name}(*args, **named):\n    while True:\n        pass",
}


class LateError(Exception):
    """The alarm of `in_process`."""


def mixed(tasks: list[Task], count: int, hanging: float) -> list[Answer]:
    """Return `count` answers to the tasks in turn, of kinds drawn by a fixed seed; the share `hanging` is exact."""
    dice = random.Random(0)
    kinds = ["hanging"] * round(count * hanging)
    kinds += dice.choices(list(SHARES), list(SHARES.values()), k=count - len(kinds))
    dice.shuffle(kinds)
    return [(task := tasks[i % len(tasks)], written(task, kind)) for i, kind in enumerate(kinds)]


def make_distinct(answers: list[Answer], number: int) -> list[Answer]:
    """Return the answers with different texts, which also differ between numbers."""
    return [(t, text.replace("```python", f"```python\n# {number}.{i}", 1)) for i, (t, text) in enumerate(answers)]


def written(task: Task, kind: str) -> str:
    """Return an answer of this kind in a code fence, as models write it."""
    wrapped = [WRAPPERS[kind].format(name=name) for name in sorted(read_task(task).names)]
    return "\n".join(["```python", task.ground_truth, *wrapped, "```"])


def in_process(answers: list[Answer], call_seconds: float) -> int:
    """Return the number of passed tests by executing everything in this process."""

    def late(_number: int, _frame: FrameType | None) -> None:
        raise LateError

    def value(source: str, call: str, seconds: float) -> Any:
        names: dict[str, Any] = {}
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            exec(source, names)  # noqa: S102  # the measured work
            return eval(call, names)  # noqa: S307
        except Exception:
            return None
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    signal.signal(signal.SIGALRM, late)
    passed = 0
    for task, answer in answers:
        source = published_code(answer)
        if source is None:
            continue
        for call in task.test_cases.values():
            expected = value(task.ground_truth, call, 0)
            actual = value(source, call, call_seconds)
            try:
                passed += bool(expected == actual) and actual is not None
            except ValueError:  # the comparison of arrays is an array
                continue
    return passed


def in_jails(pool: Sandbox, answers: list[Answer], scorer: CodeScorer | None = None) -> int:
    """Return the number of passed tests by the sandbox. References run too, unless the scorer knows their values."""
    return sum(verdict.passed for verdict in (scorer or CodeScorer(pool, "strict")).score(answers))


def timed(work: Callable[[], int]) -> tuple[float, int]:
    started = time.perf_counter()
    passed = work()
    return time.perf_counter() - started, passed


def metrics_of(seconds: list[float], against: list[float], count: int, passed: int) -> dict[str, Any]:
    median = statistics.median(seconds)
    ratio = statistics.median(baseline / own for baseline, own in zip(against, seconds, strict=True))
    return {
        "answers_per_s": round(count / median, 1),
        "seconds": round(median, 3),
        "rounds": [round(value, 3) for value in seconds],
        "ratio": round(ratio, 2),
        "tests_passed": passed,
    }


def compared(pools: dict[str, Sandbox], answers: list[Answer], rounds: int, call_seconds: float) -> dict[str, Any]:
    """Return the metrics of every contestant over paired rounds."""
    seconds: dict[str, list[float]] = {}
    passed: dict[str, int] = {}
    known = {name: CodeScorer(pool, "strict") for name, pool in pools.items()}
    for name, pool in pools.items():
        in_jails(pool, [(task, task.ground_truth) for task, _ in answers], known[name])  # warm jails and `cached`
    for number in range(rounds):
        distinct = make_distinct(answers, number)
        works: dict[str, Callable[[], int]] = {"in_process": lambda: in_process(answers, call_seconds)}
        for name, pool in pools.items():
            works[name] = partial(in_jails, pool, distinct)
            works[f"{name}_cached"] = partial(in_jails, pool, distinct, known[name])
            works[f"{name}_repeated"] = partial(in_jails, pool, answers)
        for name, work in works.items():
            elapsed, passed[name] = timed(work)
            seconds.setdefault(name, []).append(elapsed)
    return {
        name: metrics_of(values, seconds["in_process"], len(answers), passed[name]) for name, values in seconds.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", default="micro")
    parser.add_argument("--answers", type=int, default=1000)
    parser.add_argument("--workers", type=int)
    parser.add_argument("--hanging", type=float, default=0.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--call-seconds", type=float, default=1.0)
    parser.add_argument("--tiers", default="bwrap,landlock,unsafe")
    options = parser.parse_args()
    tasks = task_kind("code").load(options.tasks, "train")
    limits = Limits(call_seconds=options.call_seconds)
    results: dict[str, Any] = {**vars(options), "cores": os.cpu_count(), "load_before": os.getloadavg()}
    statuses = [status for status in probe_tiers() if status.name in options.tiers.split(",")]
    results["not_working"] = {status.name: status.detail for status in statuses if not status.works}
    working = [status.name for status in statuses if status.works]
    with ExitStack() as stack:
        pools: dict[str, Sandbox] = {
            name: stack.enter_context(open_sandbox(name, options.workers, limits)) for name in working
        }
        answers = mixed(tasks, options.answers, options.hanging)
        results["figures"] = compared(pools, answers, options.rounds, options.call_seconds)
    print(json.dumps({**results, "load_after": os.getloadavg()}))


if __name__ == "__main__":
    main()
