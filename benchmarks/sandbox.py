"""How many answers of ten tests a second the sandbox runs, and what a fresh Python for every answer would cost.

    python benchmarks/sandbox.py [--tasks micro|FILE] [--answers 400] [--workers 2] [--hanging 0.0]

Prints one JSON object: for each tier that works here `answers_per_s` and `seconds`; `spawn` is the same work with one
unsandboxed interpreter started for each answer, as many at once; `ratio` is the tier against it. The answers are the
tasks' own references; of the share `--hanging` every call loops for ever.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sweet.sandbox.program import Program
from sweet.sandbox.tiers import open_sandbox, probe_tiers
from sweet.tasks.registry import task_kind

HANGING = "while True: pass"
SPAWNED = """
import json, signal, sys
order = json.load(sys.stdin)
def late(*_): raise TimeoutError
signal.signal(signal.SIGALRM, late)
values = []
for call in order["calls"]:
    names = {"__name__": "answer"}
    signal.setitimer(signal.ITIMER_REAL, 1)
    try:
        exec(order["source"], names)
        values.append(repr(eval(call, names)))
    except BaseException as error:
        values.append(repr(error))
    signal.setitimer(signal.ITIMER_REAL, 0)
print(json.dumps(values))
"""


def programs(tasks: str, answers: int, hanging: float) -> list[Program]:
    known = task_kind("code").load(tasks, "test")
    every = round(1 / hanging) if hanging else answers + 1
    made = []
    for index in range(answers):
        task = known[index % len(known)]
        source = HANGING if index % every == every - 1 else task.ground_truth
        made.append(Program(source, tuple(task.test_cases.values())))
    return made


def spawn(program: Program) -> list[str]:
    order = json.dumps({"source": program.source, "calls": program.calls})
    command = [sys.executable, "-I", "-S", "-c", SPAWNED]
    done = subprocess.run(command, input=order, capture_output=True, text=True, check=True)
    values: list[str] = json.loads(done.stdout)
    return values


def timed(work: Callable[[], Any], answers: int) -> dict[str, float]:
    began = time.perf_counter()
    work()
    seconds = time.perf_counter() - began
    return {"answers_per_s": round(answers / seconds, 1), "seconds": round(seconds, 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", default="micro")
    parser.add_argument("--answers", type=int, default=400)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--hanging", type=float, default=0.0)
    options = parser.parse_args()
    work = programs(options.tasks, options.answers, options.hanging)
    with ThreadPoolExecutor(options.workers) as pool:
        figures: dict[str, Any] = {"spawn": timed(lambda: list(pool.map(spawn, work)), len(work))}
    for status in probe_tiers():
        if not status.works:
            figures[status.name] = {"works": False, "detail": status.detail}
            continue
        with open_sandbox(status.name, options.workers) as box:
            box.run(work[:4])
            figure: dict[str, Any] = timed(lambda box=box: box.run(work), len(work))
        figure["ratio"] = round(figures["spawn"]["seconds"] / figure["seconds"], 2)
        figures[status.name] = figure
    print(json.dumps({**vars(options), "tests": len(work[0].calls), "figures": figures}))


if __name__ == "__main__":
    main()
