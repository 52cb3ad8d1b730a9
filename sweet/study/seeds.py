"""The seeds of a study, each in a process, a few at the same time.

    command ── supervisor ── worker of seed 0
            └─ supervisor ── worker of seed 1, …

A supervisor ends its worker when the command has ended, for whatever reason (`sweet.supervisor`). The work of a seed is
recorded in its run, so nothing is lost with its process. A worker is this module as a program: it reads the job from
stdin as JSON, and writes a JSON object for each part when it ends, one a line, to stdout; the output of stages and
libraries goes to stderr, which is the seed's log. After a part that fails the others are still done.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from subprocess import PIPE
from typing import Any

from sweet import collector, supervisor
from sweet.device import allowed_threads, usable_cores
from sweet.errors import Interrupted, SweetError
from sweet.gathering import run_all, run_main
from sweet.installation import child_environment
from sweet.runs.manifest import now
from sweet.stages.base import Progress, Reporter, Silent
from sweet.units import format_duration

with collector.paused():
    from sweet.pipeline.steps import StepCache
    from sweet.study.study_steps import SeedJob

STOP_TIMEOUT = 10.0
"""Seconds that a worker has to record that it was stopped."""
PROGRAM = "sweet.study.seeds"
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
    threads = str(max(1, min(allowed_threads(), usable_cores() // processes)))
    environment = child_environment(dict(os.environ)) | {"OMP_NUM_THREADS": threads}
    with reporter.progress("parts", sum(len(job.parts()) for job in jobs)) as bar:
        places = asyncio.Semaphore(processes)

        async def run(job: SeedJob) -> list[str]:
            async with places:
                return await _run(job, environment, bar, reporter)

        return [line for lines in run_main(run_all(map(run, jobs))) for line in lines]


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


# In a worker ----------------------------------------------------------------------------------------------------------


class _Log(Silent):
    """Writes the messages of stages to the log, each progress bar as one line."""

    def say(self, text: str) -> None:
        sys.stderr.write(f"{now().isoformat(timespec='seconds')} {text}\n")

    def warn(self, text: str) -> None:
        self.say(f"warning: {text}")

    @contextmanager
    def progress(self, title: str, total: int | None) -> Iterator[Progress]:
        began = time.monotonic()
        with super().progress(title, total) as bar:
            yield bar
        self.say(f"{title}: {total}, {format_duration(time.monotonic() - began)}")


def run_parts(job: SeedJob) -> Iterator[dict[str, Any]]:
    """Do the parts; yield the name, the seconds and the error of each."""
    log = _Log()
    for name, do in job.parts().items():
        began, error = time.monotonic(), None
        log.say(f"part {name}")
        try:
            do(job.steps(StepCache, log))
        except Interrupted:
            raise
        except Exception as raised:
            error = str(raised) if isinstance(raised, SweetError) else f"{type(raised).__name__}: {raised}"
            log.warn("".join(traceback.format_exception(raised)))
        yield {"part": name, "seconds": round(time.monotonic() - began, 1), "error": error}


def main() -> int:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the parent process may ignore it
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    job = SeedJob.model_validate_json(sys.stdin.buffer.read())
    with os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8") as output:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        try:
            for result in run_parts(job):
                output.write(json.dumps(result) + "\n")
                output.flush()
        except (KeyboardInterrupt, Interrupted):
            return Interrupted.exit_code
    return 0


if __name__ == "__main__":
    status = main()
    collector.before_exit()
    sys.exit(status)
