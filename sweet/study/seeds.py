"""The seeds of a study, each in a process of its own, a few at once.

    command ── keeper ── worker of seed 0
            └─ keeper ── worker of seed 1, …

A keeper ends its worker when the command is gone, however it went (`sweet.supervisor`). What a seed has done stands in
its runs, so nothing is lost with its process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import IO

from sweet import supervisor
from sweet.device import usable_cores
from sweet.learn.launcher import child_environment
from sweet.stages.base import Progress, Reporter
from sweet.study.plan import SeedJob

PATIENCE = 10.0
"""Seconds a worker has to record that it was stopped."""
PROGRAM = "sweet.study.worker"


def run_seeds(jobs: Sequence[SeedJob], at_once: int | None, reporter: Reporter) -> list[str]:
    """Do the jobs.

    Args:
        at_once: processes; as many as there are cores where None.

    Returns:
        What failed, one line each.
    """
    processes = min(at_once or usable_cores(), len(jobs))
    crew = _Crew(threads=max(1, usable_cores() // processes), reporter=reporter)
    parts = sum(len(job.parts()) for job in jobs)
    with reporter.progress("parts", parts) as bar, ThreadPoolExecutor(processes) as pool:
        waiting = [pool.submit(crew.work, job, bar) for job in jobs]
        try:
            return [line for future in waiting for line in future.result()]
        except BaseException:
            crew.stop()
            pool.shutdown(wait=True, cancel_futures=True)
            raise


class _Crew:
    """The workers that are at it.

    Args:
        threads: of each worker.
    """

    def __init__(self, threads: int, reporter: Reporter) -> None:
        self.reporter = reporter
        self.environment = child_environment(dict(os.environ)) | {"OMP_NUM_THREADS": str(threads)}
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped = False

    def work(self, job: SeedJob, bar: Progress) -> list[str]:
        """Have a worker do the job; returns what failed."""
        log = job.folder / f"{job.run}.log"
        failed = []
        with log.open("ab") as out, self._started(out) as worker:
            assert worker.stdin is not None
            assert worker.stdout is not None
            worker.stdin.write(job.model_dump_json().encode())
            worker.stdin.close()
            for line in worker.stdout:
                told = json.loads(line)
                bar.advance()
                self.reporter.say(f"{job.run}: {told['part']}, {told['seconds']:.0f} s")
                if told["error"] is not None:
                    failed.append(f"{job.run}, {told['part']}: {told['error']}")
                    self.reporter.warn(failed[-1])
            status = worker.wait()
        if status != 0 and not self._stopped:
            failed.append(f"{job.run}: its process ended with status {status}; {log} says more")
            self.reporter.warn(failed[-1])
        return failed

    def stop(self) -> None:
        """Ask all workers to end, and start none any more."""
        with self._lock:
            self._stopped = True
            for worker in self._running:
                worker.terminate()

    @contextmanager
    def _started(self, log: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
        with self._lock:
            command = supervisor.supervised([sys.executable, "-m", PROGRAM], PATIENCE)
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
