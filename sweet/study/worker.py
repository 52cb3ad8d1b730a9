"""The process of one seed: `python -m sweet.study.worker`, started by `sweet.study.seeds`.

The job is read from stdin as JSON. stdout has a JSON object for each part when it ends, one a line; the output of
stages and libraries goes to stderr, which is the seed's log. After a part that fails the others are still done.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sweet import collector
from sweet.errors import Interrupted, SweetError
from sweet.runs.manifest import now
from sweet.stages.base import Progress, Silent
from sweet.units import format_duration

with collector.paused():
    from sweet.pipeline.steps import StepCache
    from sweet.study.study_steps import SeedJob


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
