"""The process that benchmarks/redteam.py measures for hostile answers: one class, each size, between honest answers.

Reads a request as JSON ({"name", "steps", "tier"}) and prints one JSON line for each size. The answer is read as a
reply by both protocols and scored by both scorers, as `sweet eval` does, with an honest answer before it and one after
it. The peak of the memory is that of this process alone; it is reset before each size.
"""

from __future__ import annotations

import contextlib
import json
import resource
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.nasty import DRAWN, HONEST, NASTY, REFERENCE, TESTS, Nasty
from sweet.sandbox.pool import Sandbox
from sweet.sandbox.tiers import open_sandbox
from sweet.tasks.base import ProtocolName, Task
from sweet.tasks.code.scoring import CodeScorer
from sweet.tasks.markers import read_move
from sweet.tasks.scores import Verdict

ADDRESS_SPACE = 6 * 2**30
"""Bytes that this process may map: more is a MemoryError here, and not a machine without memory."""


def memory(name: str) -> float | None:
    """Return VmRSS or VmHWM (the peak) of this process in MiB; None without /proc."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((round(int(line.split()[1]) / 1024, 1) for line in lines if line.startswith(f"{name}:")), None)


def main() -> None:
    spec: dict[str, Any] = json.load(sys.stdin)
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    (nasty,) = (each for each in (*NASTY, *DRAWN) if each.name == spec["name"])
    with open_sandbox(spec["tier"], workers=2) as box:
        score(box, nasty, 0)  # starts the jails
        for size in spec["steps"]:
            print(json.dumps({"step": size, **measured(partial(score, box, nasty, size))}), flush=True)


def measured(work: Callable[[], list[str]]) -> dict[str, Any]:
    """Run `work`, which returns what is wrong, and return it with the cost for this process."""
    reset_peak()
    before, started, used = memory("VmRSS"), time.monotonic(), time.process_time()
    wrong = work()
    seconds, cpu, peak = time.monotonic() - started, time.process_time() - used, memory("VmHWM")
    grown = None if peak is None or before is None else round(max(0.0, peak - before), 1)
    return {
        "wrong": wrong,
        "seconds": round(seconds, 3),
        "cpu_s": round(cpu, 3),
        "peak_rss_mib": peak,
        "grown_mib": grown,
    }


def reset_peak() -> None:
    """Let the kernel measure the peak of this process's memory from now on."""
    with contextlib.suppress(OSError):  # without /proc the peak is None, too
        Path("/proc/self/clear_refs").write_text("5")


def score(box: Sandbox, nasty: Nasty, size: int) -> list[str]:
    """Score one answer of the class with honest neighbours, and return what is wrong; size 0 is an honest one."""
    text = nasty.write(size) if size else HONEST
    plain = Task(id="plain", problem_description="p", ground_truth=REFERENCE, test_cases=TESTS)
    attacked = Task(id="attacked", problem_description="p", ground_truth=nasty.reference(size), test_cases=nasty.tests)
    return [
        f"{scorer}: {what}"
        for scorer in ("strict", "upstream")
        for what in _scored(box, scorer, size, text, plain, attacked)
    ]


def _scored(box: Sandbox, scorer: Any, size: int, text: str, plain: Task, attacked: Task) -> Iterator[str]:
    protocol: ProtocolName = "paper" if scorer == "strict" else "upstream"
    try:
        for last in (False, True):
            read_move(text, last=last, protocol=protocol)
        answers = [(plain, _distinct(1, size)), (attacked if size else plain, text), (plain, _distinct(2, size))]
        before, nasty, after = CodeScorer(box, scorer).score(answers)
    except Exception as error:
        yield f"the scoring ended with {type(error).__name__}: {str(error)[:200]}"
        return
    if size:
        yield from _faults(nasty)
    for where, verdict in (("before", before), ("after", after)):
        if verdict.reward != 1.0:
            yield f"the honest answer {where} it got {verdict.reward} ({verdict.outcome}: {verdict.detail.get('why')})"


def _distinct(number: int, size: int) -> str:
    return HONEST.replace("```python", f"```python\n# {number} of {size}")


def _faults(verdict: Verdict) -> Iterator[str]:
    if verdict.reward != 0.0:
        yield f"reward {verdict.reward} ({verdict.outcome}: {verdict.detail.get('why')})"
    elif not verdict.detail.get("why"):
        yield f"no reason for the score ({verdict.outcome})"


if __name__ == "__main__":
    main()
