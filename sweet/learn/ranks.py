"""A training by several ranks, seen from the command that asked for it.

The command stays one process: it keeps the manifest, the metrics and the terminal. The ranks are processes beneath it,
started by torch's launcher on this machine or by DeepSpeed's on the hosts of a hostfile; they get a folder with the job
(`sweet.learn.job`) and leave their news there, so with several machines the run's directory must be one that all see.

    command ── keeper ── launcher ── rank 0, 1, … (and over ssh, on other hosts)

The keeper ends the launcher when the command is gone, however it went (`sweet.keeper`); a rank ends with its
launcher, and on other hosts when the command's pulse stands still. What launcher and ranks print goes into a log.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import sweet
from sweet import keeper
from sweet.errors import SweetError, UsageError
from sweet.learn.figures import Record, Summary
from sweet.learn.job import FILE, PROGRESS, PULSE, Job, error_path
from sweet.llm.address import bind
from sweet.llm.vllm import last_lines

ORPHAN_PATIENCE = 10.0
"""Seconds the launcher has to end the ranks once the command is gone."""
GLANCE = 0.1
"""Seconds between two looks at the news."""
PULSE_EVERY = 5.0
PROGRAM = "sweet.learn.rank"

_HOST = re.compile(r"(\S+)\s+slots=([1-9]\d*)")


@dataclass(frozen=True)
class Layout:
    """Where the ranks run: so many on this machine, or on each host of a hostfile (None: as many as it says)."""

    devices: int | None
    hostfile: Path | None = None


def check_deepspeed() -> None:
    """Raise UsageError where deepspeed is not installed."""
    if find_spec("deepspeed") is None:
        raise UsageError("deepspeed is not installed.", where="--engine deepspeed", fix="pip install 'sweet-rl[gpu]'")


def check_hostfile(path: Path) -> None:
    """Raise UsageError unless every line is `HOST slots=N`, empty, or a comment."""
    fix = "one line a host: HOST slots=N, where ssh HOST needs no password"
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"The hostfile cannot be read: {error}", where=path, fix=fix) from error
    told = [(number, line.strip()) for number, line in enumerate(lines, 1) if line.strip()]
    hosts = [(number, line) for number, line in told if not line.startswith("#")]
    for number, line in hosts:
        if not _HOST.fullmatch(line):
            raise UsageError(f"Not a host and its slots: {line!r}", where=f"{path}, line {number}", fix=fix)
    if not hosts:
        raise UsageError("The hostfile names no host.", where=path, fix=fix)


def world_of(layout: Layout | None) -> int:
    """How many ranks there will be."""
    if layout is None or layout.hostfile is None:
        return (layout.devices if layout else None) or 1
    hosts = [_HOST.fullmatch(line.strip()) for line in layout.hostfile.read_text(encoding="utf-8").splitlines()]
    return sum(layout.devices or int(host[2]) for host in hosts if host)


def launch_command(layout: Layout, folder: Path, port: int) -> list[str]:
    """What starts the ranks of the job in `folder`; they meet at `port` of the first machine."""
    if layout.hostfile is None:
        start = ["torch.distributed.run", "--nnodes=1", f"--nproc-per-node={layout.devices or 1}"]
        start += ["--master-addr=127.0.0.1", f"--master-port={port}", "--max-restarts=0", "--module"]
    else:
        # A single host of a hostfile need not be this one.
        start = ["deepspeed.launcher.runner", f"--hostfile={layout.hostfile.absolute()}", "--force_multi"]
        start += [f"--num_gpus={layout.devices}"] if layout.devices else []
        start += [f"--master_port={port}", "--no_local_rank", "--module"]
    return [sys.executable, "-m", *start, PROGRAM, str(folder.absolute())]


def launch_environment(layout: Layout, base: dict[str, str]) -> dict[str, str]:
    """The environment of the launcher, from the command's: the ranks import the same package, and say little."""
    environment = child_environment(base)
    if layout.hostfile is None and sys.platform == "linux":
        environment.setdefault("GLOO_SOCKET_IFNAME", "lo")  # a machine's own name may lead nowhere
    return environment


def child_environment(base: dict[str, str]) -> dict[str, str]:
    """The environment of a Python process that works for this one: it imports the same package, and says little."""
    environment = dict(base)
    root = str(Path(sweet.__file__).parent.parent)
    if root not in _installed():
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (root, base.get("PYTHONPATH"))))
    environment["PYTHONSAFEPATH"] = "1"  # not what happens to lie in the working directory
    environment.setdefault("PYTHONWARNINGS", "ignore")
    return environment


def train_in_ranks(job: Job, layout: Layout, folder: Path, log: Path, on_record: Callable[[Record], None]) -> Summary:
    """Have the ranks do the job; the model is in `job.output` afterwards.

    Args:
        folder: where job, news and checkpoints are kept; made where it is not there.
        log: a file for what launcher and ranks print.
        on_record: told what `Loop` tells of its steps.

    Raises:
        SweetError: a rank failed: its own error, or the last lines of the log.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for old in (folder / PROGRESS, folder / PULSE, *folder.glob(error_path(folder, "*").name)):
        old.unlink(missing_ok=True)
    job.write(folder / FILE)
    pulse = None if layout.hostfile is None else _Pulse(folder / PULSE)
    process = _start(layout, folder, log)
    try:
        summary = None
        for line in _news(process, folder / PROGRESS, pulse):
            if "record" in line:
                on_record(line["record"])
            else:
                summary = Summary(**line["summary"])
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)  # the keeper then waits for nobody
            process.wait()
    if process.returncode != 0 or summary is None:
        raise _error(folder, log, process.returncode)
    return summary


def _start(layout: Layout, folder: Path, log: Path) -> subprocess.Popen[bytes]:
    with bind("127.0.0.1", 0) as free:
        port = free.getsockname()[1]
    with log.open("ab") as out:
        return subprocess.Popen(
            keeper.kept(launch_command(layout, folder, port), ORPHAN_PATIENCE),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=launch_environment(layout, dict(os.environ)),
        )


class _Pulse:
    """A file that says something new every few seconds, as long as `beat` is called."""

    def __init__(self, path: Path) -> None:
        self._path, self._beats, self._due = path, 0, 0.0
        self.beat()

    def beat(self) -> None:
        if time.monotonic() >= self._due:
            self._due, self._beats = time.monotonic() + PULSE_EVERY, self._beats + 1
            self._path.write_text(str(self._beats), encoding="utf-8")


def _news(process: subprocess.Popen[bytes], path: Path, pulse: _Pulse | None) -> Iterator[dict[str, Any]]:
    """What rank 0 tells, line by line, until the launcher has ended."""
    torn, at = b"", 0
    running = True
    while running:
        running = process.poll() is None  # looked at before the last reading
        if pulse is not None:
            pulse.beat()
        if path.exists():
            with path.open("rb") as file:
                file.seek(at)
                read = file.read()
            at += len(read)
            *lines, torn = (torn + read).split(b"\n")
            yield from (json.loads(line) for line in lines)
        if running:
            time.sleep(GLANCE)


def _error(folder: Path, log: Path, status: int) -> SweetError:
    """The error that counts: the first that a rank knew the meaning of, else the first (others follow from it)."""
    found = []
    for path in folder.glob(error_path(folder, "*").name):
        rank = path.stem.rpartition("-")[2]
        found.append((json.loads(path.read_text(encoding="utf-8")), rank))
    found.sort(key=lambda item: (not item[0]["known"], item[0]["time"]))
    if found:
        told, rank = found[0]
        if told["known"]:
            make = UsageError if told["usage"] else SweetError
            return make(told["what"], where=told.get("where") or f"rank {rank}", fix=told.get("fix"))
        return SweetError(f"Rank {rank} failed: {told['what']}", where=log, fix="the log says where; then --resume")
    lines = last_lines(log)
    return SweetError(
        "\n".join([f"The ranks ended with status {status} and did not say why. The last lines of their log:", *lines]),
        where=log,
        fix="--resume goes on from the last checkpoint",
    )


def _installed() -> Sequence[str]:
    """Where packages are found by any Python of this installation."""
    import site

    return [*site.getsitepackages(), site.getusersitepackages()]
