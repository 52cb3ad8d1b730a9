"""Measure what hostile answers and run directories cost the process that reads them.

    python -m benchmarks.redteam [--only answers|runs] [--sizes 1000,10000,…] [--names lambdas,…]

Prints one JSON object; each case that did not hold is named on stderr too. Every class of hostile input
(benchmarks/nasty.py, redteam_runs.py) has a process of its own, which does all sizes in order, so that one class cannot
harm another. A case is *held* if the input had the effect that it must have (an answer scores 0 with a reason and its
honest neighbours score 1; a command ends with an error that the program declares, or with the right result) before
`--limit` seconds. It is *cheap* if it also cost the measured process no more than `CPU_S` of CPU time and `GROWN_MIB`
of memory beyond what it had. Answers are scored under every tier that works here, as this user and, if this user is
root, as an ordinary one. Ctrl-C ends the measurements and prints what was found so far. Hostile servers, clients and
models are in the tests (tests/llm, tests/test_serving.py).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import redteam_runs
from benchmarks.nasty import DRAWN, NASTY
from sweet.sandbox.tiers import SAFE_TIERS, probe_tier
from tests.sandbox.redteam.ordinary import ROOT, can_become_ordinary, ordinary

CPU_S = 5.0
GROWN_MIB = 256.0
SIZES = (1_000, 10_000, 100_000, 1_000_000)
START_SECONDS = 30.0
"""Time beyond `--limit` for the first line of a process, which opens jails or makes a run first."""

Case = dict[str, Any]


def cases(module: str, spec: Case, limit: float, *, as_ordinary: bool = False) -> Iterator[Case]:
    """Yield the metrics of each step (a size, a command) of one class, from a process of its own.

    A process that ends early or prints nothing for `limit` seconds is killed: that step and those after it did not
    hold.
    """
    done, late = 0, False
    with tempfile.TemporaryDirectory(prefix="redteam-") as home, tempfile.TemporaryFile("w+b") as stderr:
        command = [sys.executable, "-m", f"benchmarks.{module}"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        if as_ordinary:
            command, environment = ordinary(command, Path(home))
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,
        )
        try:
            if process.stdin is None or process.stdout is None:
                raise RuntimeError("the process has no pipes")
            with contextlib.suppress(BrokenPipeError), process.stdin as stdin:  # it has ended before it read all
                stdin.write(json.dumps(spec).encode())
            for line in lines(process.stdout.fileno(), limit):
                yield json.loads(line)
                done += 1
            process.wait(START_SECONDS)
        except (TimeoutError, subprocess.TimeoutExpired):
            late = True
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
        stderr.seek(0)
        last = (stderr.read()[-2000:].decode(errors="replace").strip().splitlines() or [""])[-1]
    for number, step in enumerate(spec["steps"][done:]):
        why = f"no end within {limit:g} s" if late else f"the process ended with status {process.returncode}: {last}"
        yield {"step": step, "wrong": [why if number == 0 else "not run after a step that did not end"]}


def lines(descriptor: int, limit: float, start: float = START_SECONDS) -> Iterator[bytes]:
    """Yield the lines from a pipe until it is closed.

    Raises:
        TimeoutError: no line came within `limit` seconds; for the first there are `start` more.
    """
    buffer = b""
    ends = time.monotonic() + limit + start
    while (left := ends - time.monotonic()) > 0:
        if not select.select([descriptor], [], [], left)[0]:
            break
        data = os.read(descriptor, 1 << 16)
        if not data:
            return
        *whole, buffer = (buffer + data).split(b"\n")
        for line in whole:
            yield line
            ends = time.monotonic() + limit
    raise TimeoutError


def of_answers(options: argparse.Namespace) -> Iterator[Case]:
    """Yield the cases of every class of answers under every tier, as this user and as an ordinary one."""
    users = ["this"] + (["ordinary"] if os.geteuid() == 0 and can_become_ordinary() else [])
    for tier in SAFE_TIERS:
        if tier not in options.tiers.split(",") or not probe_tier(tier).works:
            continue
        for user in users:
            if user not in options.users.split(","):
                continue
            for nasty in (*NASTY, *DRAWN):
                if not wanted(nasty.name, options):
                    continue
                spec = {"name": nasty.name, "steps": options.sizes, "tier": tier}
                for case in cases("redteam_answers", spec, options.limit, as_ordinary=user == "ordinary"):
                    yield {"part": f"answers/{tier}/{user}", "name": nasty.name, **case}


def of_runs(options: argparse.Namespace) -> Iterator[Case]:
    """Yield the cases of the classes of run directories."""
    for name in redteam_runs.HOSTILE:
        if wanted(name, options):
            for case in cases("redteam_runs", {"name": name, "steps": redteam_runs.STEPS}, options.limit):
                yield {"part": "runs", "name": name, **case}


def wanted(name: str, options: argparse.Namespace) -> bool:
    return not options.names or name in options.names.split(",")


def is_cheap(case: Case) -> bool:
    """Return whether the case held at a bounded cost; the memory counts where it could be measured."""
    return not case["wrong"] and case["cpu_s"] <= CPU_S and (case["grown_mib"] or 0.0) <= GROWN_MIB


def largest(found: list[Case], name: str) -> Case:
    return max(found, key=lambda case: case[name] or 0.0)


def summary(found: list[Case]) -> dict[str, Any]:
    """Return the counts of each part, its largest costs, and the cases that were not held or not cheap."""
    parts: dict[str, Any] = {}
    for part in dict.fromkeys(case["part"] for case in found):
        own = [case for case in found if case["part"] == part]
        ran = [case for case in own if "seconds" in case]
        parts[part] = {
            "cases": len(own),
            "held": sum(not case["wrong"] for case in own),
            "cheap": sum(is_cheap(case) for case in own),
            **{f"most_{name}": largest(ran, name) for name in ("seconds", "cpu_s", "grown_mib") if ran},
            "not_held": [case for case in own if case["wrong"]],
            "costly": [case for case in own if not case["wrong"] and not is_cheap(case)],
        }
    return parts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("answers", "runs"), action="append")
    parser.add_argument("--names", default="", help="the classes to run; all by default")
    parser.add_argument("--sizes", type=lambda text: [int(part) for part in text.split(",")], default=list(SIZES))
    parser.add_argument("--tiers", default=",".join(SAFE_TIERS))
    parser.add_argument("--users", default="this,ordinary")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for each case")
    parser.add_argument("--details", action="store_true", help="print every case, not only the remarkable ones")
    options = parser.parse_args()
    works = {"answers": of_answers, "runs": of_runs}
    results: dict[str, Any] = {"options": vars(options), "cores": os.cpu_count(), "load_before": os.getloadavg()}
    found: list[Case] = []
    started = time.monotonic()
    with contextlib.suppress(KeyboardInterrupt):
        for part in options.only or works:
            for case in works[part](options):
                found.append(case)
                if not is_cheap(case):
                    print(json.dumps(case, ensure_ascii=False), file=sys.stderr, flush=True)
    results |= {"bounds": {"cpu_s": CPU_S, "grown_mib": GROWN_MIB}, "parts": summary(found)}
    if options.details:
        results["details"] = found
    results |= {"took_s": round(time.monotonic() - started, 1), "load_after": os.getloadavg()}
    print(json.dumps(results))


if __name__ == "__main__":
    main()
