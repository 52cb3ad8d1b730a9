"""The seeds of a study, each in a process, a few at the same time.

    command ── supervisor ── worker of seed 0
            └─ supervisor ── worker of seed 1, …

A supervisor ends its worker when the command has ended, for whatever reason (`sweet.supervisor`). The work of a seed is
recorded in its runs, so nothing is lost with its process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import IO

from sweet import supervisor
from sweet.device import usable_cores
from sweet.installation import child_environment
from sweet.stages.base import Progress, Reporter
from sweet.study.plan import SeedJob
from sweet.units import format_duration

STOP_TIMEOUT = 10.0
"""Seconds that a worker has to record that it was stopped."""
PROGRAM = "sweet.study.worker"


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
    workers = _Workers(threads=max(1, usable_cores() // processes), reporter=reporter)
    parts = sum(len(job.parts()) for job in jobs)
    with reporter.progress("parts", parts) as bar, ThreadPoolExecutor(processes) as pool:
        running = [pool.submit(workers.run, job, bar) for job in jobs]
        try:
            return [line for future in running for line in future.result()]
        except BaseException:
            workers.stop()
            pool.shutdown(wait=True, cancel_futures=True)
            raise


class _Workers:
    """The worker processes.

    Args:
        threads: of each worker.
    """

    def __init__(self, threads: int, reporter: Reporter) -> None:
        self.reporter = reporter
        self.environment = child_environment(dict(os.environ)) | {"OMP_NUM_THREADS": str(threads)}
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped = False

    def run(self, job: SeedJob, bar: Progress) -> list[str]:
        """Run a job in a worker and return one line for each failure."""
        log = job.folder / f"{job.run}.log"
        failed = []
        with log.open("ab") as out, self._started(out) as worker:
            assert worker.stdin is not None
            assert worker.stdout is not None
            with suppress(BrokenPipeError), worker.stdin as stdin:  # a worker that has ended: its status is read below
                stdin.write(job.model_dump_json().encode())
            for line in worker.stdout:
                part = json.loads(line)
                bar.advance()
                self.reporter.say(f"{job.run}: {part['part']}, {format_duration(part['seconds'])}")
                if part["error"] is not None:
                    failed.append(f"{job.run}, {part['part']}: {part['error']}")
                    self.reporter.warn(failed[-1])
            status = worker.wait()
        if status != 0 and not self._stopped:
            failed.append(f"{job.run}: its process ended with status {status}; see {log}")
            self.reporter.warn(failed[-1])
        return failed

    def stop(self) -> None:
        """Terminate all workers and start no more."""
        with self._lock:
            self._stopped = True
            for worker in self._running:
                worker.terminate()

    @contextmanager
    def _started(self, log: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
        with self._lock:
            command = supervisor.supervised([sys.executable, "-m", PROGRAM], STOP_TIMEOUT)
            worker = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=self.environment
            )
            self._running.add(worker)
            if self._stopped:
                worker.terminate()
        try:
            with worker:
                yield worker
        finally:
            with self._lock:
                self._running.discard(worker)
