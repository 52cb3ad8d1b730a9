"""The client process that benchmarks/rollout.py measures: reads a request as JSON and prints its metrics.

`loop` is `stage` (`sweet.rollouts.stage.run_rollout`, which the command line calls) or `lockstep`. The work first runs
on one short dialogue, so that imports are not measured; then the server's statistics are reset and the time is
measured. The CPU time is that of this process, user and system, all threads.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.lockstep import lockstep
from sweet.errors import SweetError
from sweet.rollouts.config import RolloutConfig
from sweet.rollouts.stage import run_rollout
from sweet.runs.run import Run
from sweet.stages.base import Silent
from sweet.tasks.registry import task_kind
from tests.rollouts.mock_server import AGENT, HUMAN, raise_open_files


def main() -> None:
    spec: dict[str, Any] = json.load(sys.stdin)
    open_files = raise_open_files()
    work = {"stage": stage, "lockstep": in_lockstep}[spec["loop"]]
    work(spec, spec["warm_tasks"], Path(spec["run"]).with_suffix(".warm"))
    ask(spec["address"], "/reset")
    before = memory("VmRSS")
    metrics = measured(lambda: work(spec, spec["tasks"], Path(spec["run"])))
    metrics["stats"] = ask(spec["address"], "/stats")
    print(json.dumps({**metrics, "rss_before_mib": before, "peak_rss_mib": memory("VmHWM"), "open_files": open_files}))


def measured(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Run the work and return its metrics with its seconds and CPU seconds."""
    started, used = time.monotonic(), cpu()
    metrics = work()
    return {**metrics, "seconds": time.monotonic() - started, "cpu_s": cpu() - used}


def stage(spec: dict[str, Any], tasks: str, path: Path) -> dict[str, Any]:
    """Call the stage once. An error is returned as a metric."""
    count = Path(tasks).read_bytes().count(b"\n")
    url = [f"{spec['address']}/v1"]
    config = RolloutConfig(
        **{"agent": AGENT, "agent_url": url, "sim": HUMAN, "sim_url": url, "tasks": tasks, "fail_on_error": count + 1},
        **spec["config"],
    )
    try:
        return run_rollout(Run.create(path, "code"), config, Silent()).metrics.as_json()
    except SweetError as error:
        return {"error": str(error)}


def in_lockstep(spec: dict[str, Any], tasks: str, _path: Path) -> dict[str, Any]:
    kind = task_kind("code")
    rows = kind.load(tasks, "train")
    steps = asyncio.run(
        lockstep(spec["address"], rows, kind, batch=spec["batch"], threads=spec["threads"], max_turns=10)
    )
    return {"steps": len(steps), "turns": sum(count for _, role, count in steps if role == "agent")}


def ask(address: str, path: str) -> Any:
    with urllib.request.urlopen(address + path, timeout=30) as answer:  # an address of this machine
        return json.load(answer)


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def memory(name: str) -> float | None:
    """Return VmRSS or VmHWM (the peak) of this process in MiB; None without /proc."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((round(int(line.split()[1]) / 1024, 1) for line in lines if line.startswith(f"{name}:")), None)


if __name__ == "__main__":
    main()
