"""Whether the process that started an attempt still runs.

A pid alone is not enough, because pids are reused. On Linux a process is also identified by the boot, its pid namespace
and its start time. If these cannot be read (another host, container or system), the attempt counts as running, and
`--resume` tries to go on with it: what is written is guarded by locks that the system releases with the process.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path

_PROC = Path("/proc")


def host() -> str:
    return platform.node() or "localhost"


def process_mark(pid: int) -> str:
    """Return `boot/namespace/start` of a live process on Linux; empty if it cannot be read."""
    try:
        started = _stat(pid)[19]
        namespace = (_PROC / "self/ns/pid").readlink().name
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except (OSError, IndexError):
        return ""
    return f"{boot}/{namespace}/{started}"


def is_gone(pid: int, on_host: str, mark: str) -> bool | None:
    """Return whether the process has ended; None if that cannot be seen from here."""
    if on_host != host():
        return None
    own_mark = process_mark(os.getpid())
    if mark and own_mark:
        boot, namespace, started = mark.rsplit("/", 2) if mark.count("/") >= 2 else (mark, "", "")
        own_boot, own_namespace, _ = own_mark.rsplit("/", 2)
        if boot != own_boot:
            return True
        if namespace != own_namespace:
            return None
        try:
            stat = _stat(pid)
        except OSError:
            return True
        return stat[0] in "ZX" or stat[19] != started
    try:
        os.kill(pid, 0)
    except (OSError, OverflowError) as error:
        return isinstance(error, ProcessLookupError)
    return False


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the state on; the command before it may contain any character."""
    return (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
