"""Runs a stage in a child process with a limit, and keeps what it has finished.

When the time is up, the child and all that it started are ended, and what is missing is left for the next call; so they
are when this process is killed (`sweet.supervisor`), so that no measurement runs beside another. If a child ends in the
middle of a part, because it was killed for its memory or the driver failed, that part has failed and a new child goes
on with the next one. So has a part that did not finish although it had the whole limit, unless its work goes on where
it was ended; otherwise every call would end with it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.gpu.checkout import ROOT, is_installed, write_metadata
from benchmarks.gpu.results import Progress, Result, Row, Settings, read_progress, result_of, write_line
from benchmarks.gpu.stages import Stage
from sweet import supervisor

GRACE = 5.0
"""Seconds that a child has to end before it is killed; they are part of the limit."""
TAIL = 300
"""Characters of a child's log in the reason of a failure."""


def run_stage(stage: Stage, settings: Settings, limit: float, *, whole: bool = True) -> Result:
    """Measure the missing parts of a stage, write its result and return it.

    Args:
        limit: seconds.
        whole: whether a later call would have no more.
    """
    ends = time.monotonic() + limit
    rows = settings.rows_file(stage.name)
    settings.work.mkdir(parents=True, exist_ok=True)
    known = len(read_progress(rows).rows)
    reason = None
    while True:
        status = _child(stage, settings, ends)
        found = read_progress(rows)
        if status is None:
            reason = f"the limit of {limit:.0f} s was reached"
            if whole and found.begun is not None and len(found.rows) == known and not found.resumes:
                _fail(rows, found, f"it did not finish in {limit:.0f} s")
            break
        if status == 0:
            break
        said = _tail(settings.log_file(stage.name))
        if found.begun is None:  # nothing that another child would do differently
            reason = f"its process ended with status {status}: {said}"
            break
        _fail(rows, found, f"its process ended with status {status}: {said}")
    result = result_of(stage.name, read_progress(rows), tiny=settings.tiny, reason=reason)
    path = settings.result_file(stage.name)
    path.write_text(result.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return result


def _fail(rows: Path, found: Progress, reason: str) -> None:
    """Record the part that has begun as failed."""
    assert found.begun is not None
    write_line(rows, row=Row(part=found.begun, status="failed", reason=reason).model_dump(mode="json"))


def _child(stage: Stage, settings: Settings, ends: float) -> int | None:
    """Run the child until it ends or the time is up. Return its status; None if the time was up."""
    command = [sys.executable, "-m", "benchmarks.gpu.child", stage.as_json(), settings.model_dump_json()]
    with settings.log_file(stage.name).open("ab") as log:
        process = subprocess.Popen(
            supervisor.supervised(command, GRACE),
            cwd=ROOT,
            env=environment(settings),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        return process.wait(max(ends - time.monotonic() - GRACE, 0.1))
    except subprocess.TimeoutExpired:
        return None
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a child and what it started, if it still runs."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)  # the supervisor then kills everything at once
            process.wait()


def environment(settings: Settings) -> dict[str, str]:
    """Return the environment of a child: no hub, caches that a later call finds again, and the package as installed."""
    found = {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "SWEET_CACHE": str(settings.work / "cache"),
        "TORCHINDUCTOR_CACHE_DIR": str(settings.work / "compiled"),
    }
    if not is_installed():
        paths = (str(write_metadata(settings.work / "site")), str(ROOT), os.environ.get("PYTHONPATH"))
        found["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    return found


def _tail(path: Path) -> str:
    """Return the end of a log."""
    return path.read_text(encoding="utf-8", errors="replace").strip()[-TAIL:]
