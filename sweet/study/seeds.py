"""The seeds of a study, each in a process, a few at the same time.

    command ── supervisor ── worker of seed 0
            └─ supervisor ── worker of seed 1, …

A supervisor ends its worker when the command has ended, for whatever reason (`sweet.supervisor`). The work of a seed is
recorded in its runs, so nothing is lost with its process.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from subprocess import PIPE

from sweet import supervisor
from sweet.device import usable_cores
from sweet.gathering import run_all
from sweet.installation import child_environment
from sweet.stages.base import Progress, Reporter
from sweet.study.study_steps import SeedJob
from sweet.units import format_duration

STOP_TIMEOUT = 10.0
"""Seconds that a worker has to record that it was stopped."""
PROGRAM = "sweet.study.worker"
LONGEST = 1 << 20
"""Bytes of a line of a worker at most."""


def run_seeds(jobs: Sequence[SeedJob], max_processes: int | None, reporter: Reporter) -> list[str]:
    """Run each job in a process, without those whose steps are all finished.

    Args:
        max_processes: that run at the same time; the number of cores where None.

    Returns:
        One line for each failure.
    """
    jobs = [job for job in jobs if not job.is_done()]
    if not jobs:
        return []
    processes = min(max_processes or usable_cores(), len(jobs))
    threads = str(max(1, usable_cores() // processes))
    environment = child_environment(dict(os.environ)) | {"OMP_NUM_THREADS": threads}
    with reporter.progress("parts", sum(len(job.parts()) for job in jobs)) as bar:
        places = asyncio.Semaphore(processes)

        async def run(job: SeedJob) -> list[str]:
            async with places:
                return await _run(job, environment, bar, reporter)

        return [line for lines in asyncio.run(run_all(map(run, jobs))) for line in lines]


async def _run(job: SeedJob, environment: Mapping[str, str], bar: Progress, reporter: Reporter) -> list[str]:
    """Run a job in a worker, which ends with this call; return one line for each failure."""
    log, failed = job.folder / f"{job.run}.log", []
    command = supervisor.supervised([sys.executable, "-m", PROGRAM], STOP_TIMEOUT)
    with log.open("ab") as out:
        worker = await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=PIPE, stderr=out, env=environment, limit=LONGEST
        )
    assert worker.stdin is not None
    assert worker.stdout is not None
    try:
        with suppress(ConnectionError):  # a worker that has ended: its status is read below
            worker.stdin.write(job.model_dump_json().encode())
            await worker.stdin.drain()
        worker.stdin.close()
        async for line in worker.stdout:
            part = json.loads(line)
            bar.advance()
            reporter.say(f"{job.run}: {part['part']}, {format_duration(part['seconds'])}")
            if part["error"] is not None:
                failed.append(f"{job.run}, {part['part']}: {part['error']}")
                reporter.warn(failed[-1])
        status = await worker.wait()
    finally:
        with suppress(ProcessLookupError):
            worker.terminate()
        await worker.wait()
    if status != 0:
        failed.append(f"{job.run}: its process ended with status {status}; see {log}")
        reporter.warn(failed[-1])
    return failed
