"""How many answers a second the sandbox scores, against a loop that runs them in its own process.

    python benchmarks/sandbox.py [--tasks micro|FILE] [--answers 1000] [--hanging 0.02] [--rounds 3]

Prints one JSON object. `in_process` is the published evaluator's way: for each test execute reference and answer and
evaluate the call in this very process, one after the other, the answer under an alarm of `--call-seconds`. Each tier
that works here scores the same answers with the strict scorer, jails warm, the references' values computed anew in
every round (`…_cached`: known from an earlier run), no two answers of the same text (`…_repeated`: as drawn, in which
honest answers to one task are equal, and run once). Every round measures all of them one after the other; what is told
are medians over the rounds, and `ratio` is the median of the rounds' own ratios to `in_process`. Answers are honest,
wrong (as much work, another value), crashing (an exception after the work) and, for the share `--hanging`, loop for
ever on every call. `--scale 100,1000,20000` measures the strongest tier at these numbers of answers instead: the cost
of an answer, and this process's memory.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from sweet.sandbox.pool import Sandbox
from sweet.sandbox.program import Limits
from sweet.sandbox.tiers import open_sandbox, probe_tiers
from sweet.tasks.base import Task
from sweet.tasks.code.extract import published_code
from sweet.tasks.code.scoring import CodeScorer, names_in_tests
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
    """The alarm of the loop in process."""


def mixed(tasks: list[Task], count: int, hanging: float) -> list[Answer]:
    """`count` answers over the tasks in turn, their kinds spread by a fixed seed; exactly the share hangs."""
    dice = random.Random(0)
    kinds = ["hanging"] * round(count * hanging)
    kinds += dice.choices(list(SHARES), list(SHARES.values()), k=count - len(kinds))
    dice.shuffle(kinds)
    return [(task := tasks[i % len(tasks)], written(task, kind)) for i, kind in enumerate(kinds)]


def told_apart(answers: list[Answer], number: int) -> list[Answer]:
    """The same answers, no two of the same text, nor of the text of another number's."""
    return [(t, text.replace("```python", f"```python\n# {number}.{i}", 1)) for i, (t, text) in enumerate(answers)]


def written(task: Task, kind: str) -> str:
    """An answer of this kind, in a fence as models write them."""
    wrapped = [WRAPPERS[kind].format(name=name) for name in sorted(names_in_tests(task))]
    return "\n".join(["```python", task.ground_truth, *wrapped, "```"])


def in_process(answers: list[Answer], call_seconds: float) -> int:
    """Tests passed, counted by executing everything here."""

    def late(_number: int, _frame: FrameType | None) -> None:
        raise LateError

    def value(source: str, call: str, seconds: float) -> Any:
        names: dict[str, Any] = {}
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            exec(source, names)  # noqa: S102  # what is measured
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
            wanted = value(task.ground_truth, call, 0)
            got = value(source, call, call_seconds)
            try:
                passed += bool(wanted == got) and got is not None
            except ValueError:  # arrays say of each element whether it is equal
                continue
    return passed


def in_jails(box: Sandbox, answers: list[Answer], scorer: CodeScorer | None = None) -> int:
    """Tests passed, counted by the sandbox; the references' values are computed too unless the scorer has them."""
    return sum(verdict.passed for verdict in (scorer or CodeScorer(box, "strict")).score(answers))


def timed(work: Callable[[], int]) -> tuple[float, int]:
    began = time.perf_counter()
    passed = work()
    return time.perf_counter() - began, passed


def figure(seconds: list[float], against: list[float], count: int, passed: int) -> dict[str, Any]:
    median = statistics.median(seconds)
    ratio = statistics.median(ours / own for ours, own in zip(against, seconds, strict=True))
    return {
        "answers_per_s": round(count / median, 1),
        "seconds": round(median, 3),
        "rounds": [round(value, 3) for value in seconds],
        "ratio": round(ratio, 2),
        "tests_passed": passed,
    }


def compared(boxes: dict[str, Sandbox], answers: list[Answer], rounds: int, call_seconds: float) -> dict[str, Any]:
    """Every contestant's figures over paired rounds."""
    seconds: dict[str, list[float]] = {}
    passed: dict[str, int] = {}
    known = {name: CodeScorer(box, "strict") for name, box in boxes.items()}
    for name, box in boxes.items():
        in_jails(box, [(task, task.ground_truth) for task, _ in answers[:200]], known[name])  # warm jails and `cached`
    for number in range(rounds):
        apart = told_apart(answers, number)
        works: dict[str, Callable[[], int]] = {"in_process": lambda: in_process(answers, call_seconds)}
        for name, box in boxes.items():
            works[name] = partial(in_jails, box, apart)
            works[f"{name}_cached"] = partial(in_jails, box, apart, known[name])
            works[f"{name}_repeated"] = partial(in_jails, box, answers)
        for name, work in works.items():
            took, passed[name] = timed(work)
            seconds.setdefault(name, []).append(took)
    return {name: figure(values, seconds["in_process"], len(answers), passed[name]) for name, values in seconds.items()}


def scaled(box: Sandbox, tasks: list[Task], hanging: float, counts: list[int]) -> Iterator[dict[str, Any]]:
    """Cost of an answer at each count, as `sweet eval` works: one stream, one scorer."""
    scorer = CodeScorer(box, "strict")
    in_jails(box, [(task, task.ground_truth) for task in tasks], scorer)
    for count in counts:
        answers = told_apart(mixed(tasks, count, hanging), count)
        began = time.perf_counter()
        in_jails(box, answers, scorer)
        seconds = time.perf_counter() - began
        yield {
            "answers": count,
            "ms_per_answer": round(1000 * seconds / count, 3),
            "seconds": round(seconds, 3),
            "parent_rss_mib": rss(),
            "parent_peak_rss_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        }


def rss() -> float | None:
    """Resident memory of this process in MiB, where /proc tells it."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return None
    return round(pages * resource.getpagesize() / 2**20, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", default="micro")
    parser.add_argument("--answers", type=int, default=1000)
    parser.add_argument("--workers", type=int)
    parser.add_argument("--hanging", type=float, default=0.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--call-seconds", type=float, default=1.0)
    parser.add_argument("--tiers", default="bwrap,landlock,unsafe")
    parser.add_argument("--scale", default="", help="numbers of answers, such as 100,1000,20000; only these are run")
    options = parser.parse_args()
    tasks = task_kind("code").load(options.tasks, "test")
    limits = Limits(call_seconds=options.call_seconds)
    told: dict[str, Any] = {**vars(options), "cores": os.cpu_count(), "load_before": os.getloadavg()}
    statuses = [status for status in probe_tiers() if status.name in options.tiers.split(",")]
    told["not_working"] = {status.name: status.detail for status in statuses if not status.works}
    working = [status.name for status in statuses if status.works]
    with ExitStack() as stack:
        pools: dict[str, Sandbox] = {
            name: stack.enter_context(open_sandbox(name, options.workers, limits)) for name in working
        }
        if options.scale:
            box = pools[working[0]]
            told["scale"] = {box.tier: list(scaled(box, tasks, options.hanging, sizes(options.scale)))}
        else:
            answers = mixed(tasks, options.answers, options.hanging)
            told["figures"] = compared(pools, answers, options.rounds, options.call_seconds)
    print(json.dumps({**told, "load_after": os.getloadavg()}))


def sizes(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


if __name__ == "__main__":
    main()
